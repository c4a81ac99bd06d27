//! Measures the replication delay of steady streams, with one follower after the other. It is a part of
//! `tailwater bench apply`, and all of `tailwater bench delay`.

use std::collections::BTreeMap;

use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tailwater_sandbox::ServerKind;
use tailwater_wire::Flavour;

use super::benchmark_plan::HEADLINE;
use super::benchmark_summary::{self, Delays};
use super::delay_under_steady_load::{LoadLevel, MeasuredFollower, SourceAckMode, SteadySource, StreamDelay};
use super::replication_variant::{NativeSettings, ParallelMode, ReplayOrder};
use super::tailwater_replay::LogDurability;
use super::workload::ApplyLoad;
use crate::arguments::{DelayBench, DelaySource};
use crate::bench::benchmark_report::{BenchReport, MachineInfo, Measurement};
use crate::demo::choose_server;
use crate::fault_trial::{TrialFolder, ensure_installed};

/// The share of the clients' commit rate without replication that counts as half load: half of the rate,
/// halved again because source and target share the machine.
const HALF_LOAD_SHARE: f64 = 0.25;
/// Number of transactions that the clients commit to measure their commit rate.
const PACE_TRANSACTIONS: u32 = 6_000;
const ROWS: u32 = 250_000;

/// One measured stream, which several followers apply, one at a time.
#[derive(Debug, Clone, Copy)]
pub struct DelayMeasurement {
    /// The version of the source and the targets.
    pub kind: ServerKind,
    /// The workload of the clients.
    pub workload: ApplyLoad,
    /// The ACK for which commits on the source wait.
    pub promise: SourceAckMode,
    /// The load of the clients.
    pub load: LoadLevel,
    /// The load of the clients, in transactions per second.
    pub rate: f64,
    /// The duration of each measurement, in seconds.
    pub seconds: u64,
    /// The number of measurements of each follower.
    pub repeats: usize,
}

/// Returns the followers that are measured: native replication with these settings, and Tailwater. At half
/// load, native replication is also measured with the log syncs of Tailwater, and Tailwater with those of
/// native replication. At full load these two variants are not measured: native replication does not recover
/// from its lag at full load, and cannot keep up if it syncs each event.
pub fn followers(
    natives: &[NativeSettings],
    ours: bool,
    promise: SourceAckMode,
    load: LoadLevel,
) -> Vec<MeasuredFollower> {
    let orders = [ReplayOrder::Independent, ReplayOrder::Source]
        .map(|order| MeasuredFollower::Ours(order, LogDurability::Default));
    let other = match promise {
        SourceAckMode::None => LogDurability::Durable,
        SourceAckMode::Lossless => LogDurability::Received,
    };
    let other = (load == LoadLevel::Half).then_some(MeasuredFollower::Ours(ReplayOrder::Independent, other));
    let synced = natives.first().filter(|_| load == LoadLevel::Half).copied();
    let natives = natives.iter().copied().map(MeasuredFollower::Native);
    let ours = orders.into_iter().chain(other).filter(|_| ours);
    natives.chain(ours).chain(synced.map(MeasuredFollower::NativeSynced)).collect()
}

impl DelayMeasurement {
    /// Starts a new source, and lets each follower apply its stream in turn, in a random order each time.
    /// Prints each result as a line.
    ///
    /// # Errors
    /// The errors of [`SteadySource::measure`].
    pub async fn measure(
        &self,
        followers: &[MeasuredFollower],
        say: &impl Fn(&str),
    ) -> anyhow::Result<Delays> {
        // Each measurement has a new source, because a follower must first apply all transactions of earlier
        // measurements on the same source.
        let mut steady = SteadySource::start(self.kind, self.workload, 0).await?;
        let delays = self.measure_on(&mut steady, followers, say).await?;
        steady.stop().await?;
        Ok(delays)
    }

    async fn measure_on(
        &self,
        steady: &mut SteadySource,
        followers: &[MeasuredFollower],
        say: &impl Fn(&str),
    ) -> anyhow::Result<Delays> {
        if self.promise == SourceAckMode::Lossless {
            steady.wait_for_followers().await?;
        }
        let mut delays: Delays = followers.iter().map(|follower| (*follower, Vec::new())).collect();
        for repeat in 0..self.repeats {
            let mut turns: Vec<_> = delays.iter_mut().collect();
            // The order is random, because the writes of one contender may slow down the disk for the next
            // one.
            turns.shuffle(&mut StdRng::seed_from_u64(repeat as u64));
            for (follower, delays) in turns {
                let delay = steady.measure(*follower, self.rate, self.seconds).await?;
                say(&format!(
                    "{}, {:.0} transactions/s of {:.0}, {}, {}: {follower}: p50 {:.2} ms, p99 {:.1} ms, {:.0} µs of CPU per transaction",
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

    /// Returns the row of one follower for the report.
    pub fn row(&self, follower: MeasuredFollower, delays: &[StreamDelay]) -> Measurement {
        benchmark_summary::delay_row(self.kind, follower, self.promise, self.load, self.rate, delays)
    }
}

/// Returns the settings with which native replication is known to be fastest. This benchmark has no
/// backlog with which it could find the fastest settings.
fn natives(flavour: Flavour, quick: bool) -> Vec<NativeSettings> {
    let all = match flavour {
        Flavour::MariaDb => vec![
            NativeSettings::Mariadb { mode: ParallelMode::Optimistic, workers: 16 },
            NativeSettings::Mariadb { mode: ParallelMode::Aggressive, workers: 16 },
        ],
        Flavour::MySql => vec![
            NativeSettings::Mysql { workers: 16, preserve_order: false },
            NativeSettings::Mysql { workers: 8, preserve_order: false },
        ],
    };
    all.into_iter().take(if quick { 1 } else { 2 }).collect()
}

/// Runs `tailwater bench delay` for one server family, or for both.
///
/// # Errors
/// If a measurement fails, or a contender applies wrong data.
pub async fn delay(options: &DelayBench) -> anyhow::Result<BenchReport> {
    let folder = TrialFolder::new(None)?;
    let machine = MachineInfo::look(folder.path())?;
    let bar = ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{msg} {elapsed}")?);
    let say = |line: &str| bar.suspend(|| eprintln!("{line}"));
    let (seconds, repeats) = if options.quick { (4, 1) } else { (8, options.repeats as usize) };
    let (mut rows, mut versions) = (Vec::new(), BTreeMap::new());
    for family in options.families() {
        let kind = choose_server(family, None)?;
        ensure_installed(kind)?;
        let workload = ApplyLoad { kind: HEADLINE, rows: if options.quick { ROWS / 4 } else { ROWS } };
        for promise in options.promises() {
            bar.set_message(format!("{kind}, a steady stream, {}", promise.name()));
            let mut steady = SteadySource::start(kind, workload, PACE_TRANSACTIONS).await?;
            versions.insert(kind.name(), steady.version().to_owned());
            let rate = options.rate.unwrap_or_else(|| steady.written_rate() * HALF_LOAD_SHARE);
            let load = LoadLevel::Half;
            let stream = DelayMeasurement { kind, workload, promise, load, rate, seconds, repeats };
            let mut followers = followers(&natives(kind.flavour(), options.quick), true, promise, load);
            // Native replication with a sync for each event is left out: it would lag by minutes, or delay
            // the clients. `bench apply` shows this.
            followers.retain(|follower| !matches!(follower, MeasuredFollower::NativeSynced(_)));
            let delays = stream.measure_on(&mut steady, &followers, &say).await?;
            rows.extend(delays.iter().map(|(follower, delays)| stream.row(*follower, delays)));
            steady.stop().await?;
        }
    }
    bar.finish_and_clear();
    Ok(benchmark_summary::summarise_delays(rows, &versions, machine))
}

impl DelayBench {
    fn promises(&self) -> Vec<SourceAckMode> {
        let of = |source| match source {
            DelaySource::Asynchronous => SourceAckMode::None,
            DelaySource::Lossless => SourceAckMode::Lossless,
        };
        match self.source {
            Some(source) => vec![of(source)],
            None => vec![SourceAckMode::None, SourceAckMode::Lossless],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_half_load_each_follower_is_also_measured_with_the_log_syncs_of_the_other() {
        let natives = natives(Flavour::MySql, false);
        let half = |promise| followers(&natives, true, promise, LoadLevel::Half);
        let ours = |held| MeasuredFollower::Ours(ReplayOrder::Independent, held);
        let asynchronous = half(SourceAckMode::None);
        assert_eq!(asynchronous.len(), 6, "wrong number of followers: {asynchronous:?}");
        assert!(
            asynchronous.contains(&MeasuredFollower::NativeSynced(natives[0])),
            "native replication with log syncs is missing: {asynchronous:?}"
        );
        assert!(
            asynchronous.contains(&ours(LogDurability::Durable)),
            "Tailwater with log syncs is missing: {asynchronous:?}"
        );
        assert!(half(SourceAckMode::Lossless).contains(&ours(LogDurability::Received)));
        let most = |natives: &[NativeSettings], ours| {
            followers(natives, ours, SourceAckMode::None, LoadLevel::Most).len()
        };
        assert_eq!([most(&natives, true), most(&natives, false), most(&[], true)], [4, 2, 2]);
    }
}
