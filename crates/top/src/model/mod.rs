//! The answers of the last minutes, and what follows from them: rates, trends, and whether the daemon still
//! answers.

#[cfg(test)]
mod tests;
mod value_history;

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use tailwater_daemon::api::channels::{ChannelStatus, WorkerStatus};

pub use self::value_history::{Series, SeriesKind};
use crate::daemon_answer::DaemonAnswer;

/// A point in time, by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time since `tailwater top` was started, by a clock that is never set.
    pub elapsed: Duration,
    /// The local time.
    pub wall: DateTime<FixedOffset>,
}

/// Whether the daemon answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerState {
    /// The first answer is not due yet.
    Starting,
    /// The last answer is recent.
    Answering,
    /// There is no recent answer.
    Silent {
        /// The time of the last answer, or the start of `tailwater top` if there was none.
        since: Moment,
        /// Whether there was an answer.
        has_answered: bool,
        /// The last error; absent if the daemon has accepted a request and does not answer.
        error: Option<String>,
    },
}

/// The rates of a source or a channel. A rate is absent until there are two answers of the same process.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    /// Transactions per second.
    pub transactions: Option<f64>,
    /// For a source: bytes of events written to its log per second.
    pub bytes: Option<f64>,
    /// For a channel: rows applied per second.
    pub rows: Option<f64>,
}

/// The counters of an object at the last answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counted {
    transactions: u64,
    bytes: u64,
    rows: u64,
}

/// The answers of a daemon, and what follows from them.
#[derive(Debug, Clone)]
pub struct AnswerHistory {
    started: Moment,
    /// How long a daemon may send no answer before it counts as silent.
    silence_max: Duration,
    last: Option<(Moment, DaemonAnswer)>,
    error: Option<String>,
    sources: BTreeMap<String, Rates>,
    channels: BTreeMap<String, Rates>,
    /// The share of the last interval in which each worker of a channel had a batch.
    busy: BTreeMap<String, Vec<Option<f64>>>,
    series: BTreeMap<(SeriesKind, String), Series>,
}

impl AnswerHistory {
    /// A model without answers of a daemon that is asked once per interval.
    pub fn new(started: Moment, interval: Duration) -> Self {
        Self {
            started,
            silence_max: interval * 2 + Duration::from_secs(1),
            last: None,
            error: None,
            sources: BTreeMap::new(),
            channels: BTreeMap::new(),
            busy: BTreeMap::new(),
            series: BTreeMap::new(),
        }
    }

    /// Adds an answer of the daemon, which arrived at `at`.
    pub fn accept(&mut self, at: Moment, state: DaemonAnswer) {
        let before = self.last.take().filter(|(before, earlier)| {
            // After a restart of the daemon its counters begin at zero.
            at.elapsed > before.elapsed && earlier.status.uptime_seconds <= state.status.uptime_seconds
        });
        let seconds = before.as_ref().map_or(0.0, |(before, _)| (at.elapsed - before.elapsed).as_secs_f64());
        let earlier = before.map(|(_, earlier)| earlier);
        let (sources, channels) = earlier.as_ref().map(counted).unwrap_or_default();
        let (sources_now, channels_now) = counted(&state);
        self.sources = rates(&sources, &sources_now, seconds);
        self.channels = rates(&channels, &channels_now, seconds);
        self.busy = earlier.map(|earlier| busy(&earlier, &state, seconds)).unwrap_or_default();
        self.last = Some((at, state));
        self.error = None;
        self.record(at.elapsed);
    }

    /// Adds a failed attempt to get an answer.
    pub fn reject(&mut self, error: String) {
        self.error = Some(error);
    }

    /// Returns the last answer.
    pub fn state(&self) -> Option<&DaemonAnswer> {
        self.last.as_ref().map(|(_, state)| state)
    }

    /// Returns when the last answer arrived.
    pub fn answered_at(&self) -> Option<Moment> {
        self.last.as_ref().map(|(at, _)| *at)
    }

    /// Returns whether the daemon answers.
    pub fn answer_state(&self, now: Moment) -> AnswerState {
        let since = self.answered_at().unwrap_or(self.started);
        let is_recent = now.elapsed.saturating_sub(since.elapsed) <= self.silence_max;
        match (&self.error, &self.last) {
            (None, Some(_)) if is_recent => AnswerState::Answering,
            (None, None) if is_recent => AnswerState::Starting,
            (error, last) => {
                AnswerState::Silent { since, has_answered: last.is_some(), error: error.clone() }
            }
        }
    }

    /// Returns the rates of a source.
    pub fn source_rates(&self, source: &str) -> Rates {
        self.sources.get(source).copied().unwrap_or_default()
    }

    /// Returns the rates of a channel.
    pub fn channel_rates(&self, channel: &str) -> Rates {
        self.channels.get(channel).copied().unwrap_or_default()
    }

    /// Returns the share of the last interval in which a worker of a channel had a batch, from 0 to 1.
    pub fn worker_busy(&self, channel: &str, worker: usize) -> Option<f64> {
        self.busy.get(channel)?.get(worker).copied()?
    }

    /// Returns the trends, by kind and name of the object.
    pub fn series(&self) -> impl Iterator<Item = (SeriesKind, &str, &Series)> {
        self.series.iter().map(|((kind, object), series)| (*kind, object.as_str(), series))
    }

    /// Adds the present values to the trends. Removes the trends of objects that do not exist any more.
    fn record(&mut self, at: Duration) {
        let Some((_, state)) = &self.last else { return };
        let mut now = Vec::new();
        for source in &state.status.sources {
            let rates = self.source_rates(&source.source);
            now.push((SeriesKind::SourceBytes, source.source.clone(), rates.bytes));
            now.push((SeriesKind::SourceTransactions, source.source.clone(), rates.transactions));
        }
        for channel in &state.status.channels {
            let rates = self.channel_rates(&channel.name);
            now.push((SeriesKind::ChannelTransactions, channel.name.clone(), rates.transactions));
            now.push((SeriesKind::ChannelRows, channel.name.clone(), rates.rows));
            now.push((SeriesKind::ChannelLag, channel.name.clone(), channel.lag_seconds));
        }
        // The lag of a channel's target is the lag of the channel.
        let servers = state.status.clusters.iter().flat_map(|cluster| &cluster.servers);
        for server in servers.filter(|server| server.role == "replica") {
            now.push((SeriesKind::ServerLag, server.name.clone(), server.lag_seconds));
        }
        let mut series = BTreeMap::new();
        for (kind, object, value) in now {
            let key = (kind, object);
            let mut one = self.series.remove(&key).unwrap_or_else(|| Series::new(self.silence_max));
            one.push(at, value);
            series.insert(key, one);
        }
        self.series = series;
    }
}

type CountersByName = BTreeMap<String, Counted>;

/// Returns the counters of the sources and of the channels.
fn counted(state: &DaemonAnswer) -> (CountersByName, CountersByName) {
    let sources = state.counters.captures.iter().map(|capture| {
        let (transactions, bytes) = (capture.transactions_total, capture.event_bytes_total);
        (capture.report.source.clone(), Counted { transactions, bytes, rows: 0 })
    });
    let channels = state.status.channels.iter().map(|channel| {
        let (transactions, rows) = (channel.transactions_total, channel.rows_total);
        (channel.name.clone(), Counted { transactions, bytes: 0, rows })
    });
    (sources.collect(), channels.collect())
}

/// Returns the share of the time in which each worker of each channel had a batch.
fn busy(before: &DaemonAnswer, now: &DaemonAnswer, seconds: f64) -> BTreeMap<String, Vec<Option<f64>>> {
    let of = |channel: &ChannelStatus| {
        let earlier = before.status.channels.iter().find(|earlier| earlier.name == channel.name);
        let earlier = earlier.map_or(&[][..], |earlier| &earlier.worker_states);
        let share = |(number, worker): (usize, &WorkerStatus)| {
            let more = worker.busy_seconds_total - earlier.get(number)?.busy_seconds_total;
            // The workers of a channel that was started again count from zero. The daemon updates the
            // counters once per second, so an interval can contain a little more than its own time.
            (more >= 0.0 && seconds > 0.0).then(|| (more / seconds).min(1.0))
        };
        (channel.name.clone(), channel.worker_states.iter().enumerate().map(share).collect())
    };
    now.status.channels.iter().map(of).collect()
}

fn rates(before: &CountersByName, now: &CountersByName, seconds: f64) -> BTreeMap<String, Rates> {
    let rate = |before: u64, now: u64| {
        // A counter that is smaller than before has begun again.
        now.checked_sub(before).filter(|_| seconds > 0.0).map(|more| more as f64 / seconds)
    };
    let of = |(name, now): (&String, &Counted)| {
        let rates = before.get(name).map_or_else(Rates::default, |before| Rates {
            transactions: rate(before.transactions, now.transactions),
            bytes: rate(before.bytes, now.bytes),
            rows: rate(before.rows, now.rows),
        });
        (name.clone(), rates)
    };
    now.iter().map(of).collect()
}
