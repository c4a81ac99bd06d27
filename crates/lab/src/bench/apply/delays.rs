//! How late steady streams arrive with each who may follow, in turns: a part of `tailwater bench apply`, and all of `tailwater bench delay`.

use std::collections::BTreeMap;

use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tailwater_sandbox::ServerKind;
use tailwater_wire::Flavour;

use super::contender::{CommitOrder, Native, ParallelMode};
use super::ours::Held;
use super::plan::HEADLINE;
use super::steady::{Delay, Follower, Promise, Steady, SteadyLoad};
use super::summary::{self, Delays};
use super::workload::Workload;
use crate::args::{DelayBench, DelaySource};
use crate::bench::report::{Machine, Report, Row};
use crate::demo::choose_server;
use crate::trial::{TrialFolder, provide};

/// Of the rate at which clients commit with the machine to themselves: half of half, as others share it.
const HALF_LOAD_SHARE: f64 = 0.25;
/// By which that rate is known.
const PACE_TRANSACTIONS: u32 = 6_000;
const ROWS: u32 = 250_000;

/// A stream that several follow, one at a time.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    /// Of source and targets.
    pub kind: ServerKind,
    /// What clients commit.
    pub workload: Workload,
    /// What they wait for.
    pub promise: Promise,
    /// How much they commit.
    pub load: SteadyLoad,
    /// The same in transactions per second.
    pub rate: f64,
    /// How long each measurement lasts.
    pub seconds: u64,
    /// How often each follower is measured.
    pub repeats: usize,
}

/// Who is measured beside native replication with some settings. At half load each also at the other's promise; at full load native
/// replication does not come back from where it falls behind, and a sync for each event is too much for it.
pub fn followers(natives: &[Native], ours: bool, promise: Promise, load: SteadyLoad) -> Vec<Follower> {
    let orders =
        [CommitOrder::Independent, CommitOrder::Source].map(|order| Follower::Ours(order, Held::Default));
    let other = match promise {
        Promise::None => Held::Durable,
        Promise::Lossless => Held::Received,
    };
    let other = (load == SteadyLoad::Half).then_some(Follower::Ours(CommitOrder::Independent, other));
    let synced = natives.first().filter(|_| load == SteadyLoad::Half).copied();
    let natives = natives.iter().copied().map(Follower::Native);
    let ours = orders.into_iter().chain(other).filter(|_| ours);
    natives.chain(ours).chain(synced.map(Follower::NativeSynced)).collect()
}

impl Stream {
    /// Lets each follow a new source in turn, in another order each time; what it says of each is a line.
    ///
    /// # Errors
    /// As [`Steady::measure`].
    pub async fn measure(&self, followers: &[Follower], say: &impl Fn(&str)) -> anyhow::Result<Delays> {
        // A new source: each follower begins with all that those before it have left behind.
        let mut steady = Steady::start(self.kind, self.workload, 0).await?;
        let delays = self.measure_on(&mut steady, followers, say).await?;
        steady.stop().await?;
        Ok(delays)
    }

    async fn measure_on(
        &self,
        steady: &mut Steady,
        followers: &[Follower],
        say: &impl Fn(&str),
    ) -> anyhow::Result<Delays> {
        if self.promise == Promise::Lossless {
            steady.wait_for_followers().await?;
        }
        let mut delays: Delays = followers.iter().map(|follower| (*follower, Vec::new())).collect();
        for repeat in 0..self.repeats {
            let mut turns: Vec<_> = delays.iter_mut().collect();
            // In an order of its own each time: what one leaves to the disk is not always the same other's burden.
            turns.shuffle(&mut StdRng::seed_from_u64(repeat as u64));
            for (follower, delays) in turns {
                let delay = steady.measure(*follower, self.rate, self.seconds).await?;
                say(&format!(
                    "{}, {:.0} transactions/s of {:.0}, {}, {}: {follower}: p50 {:.2} ms, p99 {:.1} ms, {:.0} µs of CPU each",
                    self.kind,
                    delay.rate,
                    self.rate,
                    self.promise.name(),
                    self.load.name(),
                    delay.p50_ms,
                    delay.p99_ms,
                    delay.cpu_us
                ));
                delays.push(delay);
            }
        }
        Ok(delays)
    }

    /// The row of one follower.
    pub fn row(&self, follower: Follower, delays: &[Delay]) -> Row {
        summary::delay_row(self.kind, follower, self.promise, self.load, self.rate, delays)
    }
}

/// Where native replication is known to be fastest: there is no backlog here by which to find out.
fn natives(flavour: Flavour, quick: bool) -> Vec<Native> {
    let all = match flavour {
        Flavour::MariaDb => vec![
            Native::Mariadb { mode: ParallelMode::Optimistic, workers: 16 },
            Native::Mariadb { mode: ParallelMode::Aggressive, workers: 16 },
        ],
        Flavour::MySql => vec![
            Native::Mysql { workers: 16, preserve_order: false },
            Native::Mysql { workers: 8, preserve_order: false },
        ],
    };
    all.into_iter().take(if quick { 1 } else { 2 }).collect()
}

/// Runs `tailwater bench delay` for one family, or for both.
///
/// # Errors
/// If a measurement cannot be taken, or a contender gets the data wrong.
pub async fn delay(options: &DelayBench) -> anyhow::Result<Report> {
    let folder = TrialFolder::new(None)?;
    let machine = Machine::look(folder.path())?;
    let bar = ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{msg} {elapsed}")?);
    let say = |line: &str| bar.suspend(|| eprintln!("{line}"));
    let (seconds, repeats) = if options.quick { (4, 1) } else { (8, options.repeats as usize) };
    let (mut rows, mut versions) = (Vec::new(), BTreeMap::new());
    for family in options.families() {
        let kind = choose_server(family, None)?;
        provide(kind)?;
        let workload = Workload { kind: HEADLINE, rows: if options.quick { ROWS / 4 } else { ROWS } };
        for promise in options.promises() {
            bar.set_message(format!("{kind}, a steady stream, {}", promise.name()));
            let mut steady = Steady::start(kind, workload, PACE_TRANSACTIONS).await?;
            versions.insert(kind.name(), steady.version().to_owned());
            let rate = options.rate.unwrap_or_else(|| steady.written_rate() * HALF_LOAD_SHARE);
            let load = SteadyLoad::Half;
            let stream = Stream { kind, workload, promise, load, rate, seconds, repeats };
            let mut followers = followers(&natives(kind.flavour(), options.quick), true, promise, load);
            // It falls minutes behind, or holds the clients up: `bench apply` shows it.
            followers.retain(|follower| !matches!(follower, Follower::NativeSynced(_)));
            let delays = stream.measure_on(&mut steady, &followers, &say).await?;
            rows.extend(delays.iter().map(|(follower, delays)| stream.row(*follower, delays)));
            steady.stop().await?;
        }
    }
    bar.finish_and_clear();
    Ok(summary::summarise_delays(rows, &versions, machine))
}

impl DelayBench {
    fn promises(&self) -> Vec<Promise> {
        let of = |source| match source {
            DelaySource::Asynchronous => Promise::None,
            DelaySource::Lossless => Promise::Lossless,
        };
        match self.source {
            Some(source) => vec![of(source)],
            None => vec![Promise::None, Promise::Lossless],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_half_load_each_is_also_measured_at_the_others_promise() {
        let natives = natives(Flavour::MySql, false);
        let half = |promise| followers(&natives, true, promise, SteadyLoad::Half);
        let ours = |held| Follower::Ours(CommitOrder::Independent, held);
        let asynchronous = half(Promise::None);
        assert_eq!(asynchronous.len(), 6, "{asynchronous:?}");
        assert!(asynchronous.contains(&Follower::NativeSynced(natives[0])), "{asynchronous:?}");
        assert!(asynchronous.contains(&ours(Held::Durable)), "{asynchronous:?}");
        assert!(half(Promise::Lossless).contains(&ours(Held::Received)));
        let most = |natives: &[Native], ours| followers(natives, ours, Promise::None, SteadyLoad::Most).len();
        assert_eq!([most(&natives, true), most(&natives, false), most(&[], true)], [4, 2, 2]);
    }
}
