//! `tailwater bench apply`: replays the same backlog with the servers' own replication at its best settings,
//! and with Tailwater.
//!
//! - [`benchmark_plan`]: what is measured. [`workload`]: the transactions of the backlogs.
//!   [`source_backlog`]: a source with a backlog.
//! - [`target_server`]: a server that applies the backlog with one of the [`replication_variant`]s:
//!   [`native_replication_replay`] or [`tailwater_replay`].
//! - [`backlog_replay`]: one measurement.
//! - [`delay_under_steady_load`]: the delay of a steady stream with one follower. [`replication_delay`]: with
//!   all followers, also for `tailwater bench delay`.
//! - [`benchmark_summary`]: the report.

mod backlog_replay;
mod benchmark_plan;
mod benchmark_summary;
mod delay_under_steady_load;
mod native_replication_replay;
mod replication_delay;
mod replication_variant;
mod source_backlog;
mod tailwater_replay;
mod target_server;
mod workload;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tailwater_sandbox::{ServerKind, SlowSync};

use self::backlog_replay::{ReplaySetup, replay};
use self::benchmark_plan::{ApplyPlan, Conditions, HEADLINE, PlannedWorkload, ReplayCondition};
use self::benchmark_summary::{replay_row, screen_row, summarise};
use self::delay_under_steady_load::{LoadLevel, SourceAckMode};
use self::replication_delay::DelayMeasurement;
use self::replication_variant::{Contender, NativeSettings};
use self::source_backlog::Backlog;
use self::tailwater_replay::CapturedLog;
use self::target_server::ReplayTarget;
use self::workload::ApplyLoad;
use super::benchmark_report::{BenchReport, MachineInfo, Measurement};
use crate::arguments::{ApplyBench, Side};
use crate::demo::choose_server;
use crate::fault_trial::{TrialFolder, ensure_installed};

pub use self::replication_delay::delay;

/// The delay that is added to every sync of the disk under slow-sync conditions.
pub const SYNC_DELAY: Duration = Duration::from_millis(2);
/// The maximum rate of a steady stream, as a share of the source's rate while the source had the machine to
/// itself. During the measurement, source and target share the machine, so clients rarely reach this rate.
const STEADY_SHARE_MAX: f64 = 0.5;

/// Runs the benchmark for one server family, or for both.
///
/// # Errors
/// If a measurement fails, or a contender applies wrong data.
pub async fn apply(options: &ApplyBench) -> anyhow::Result<BenchReport> {
    let plan = ApplyPlan::new(options.workload, options.quick, options.transactions);
    let families = options.families();
    let folder = TrialFolder::new(None)?;
    let machine = MachineInfo::look(folder.path())?;
    let conditions: usize = plan.workloads.iter().map(|planned| planned.conditions.len()).sum();
    let mut run = ApplyRun {
        quick: plan.quick,
        only: options.only,
        rows: Vec::new(),
        notes: Vec::new(),
        pace: None,
        bar: ProgressBar::new((conditions * families.len()) as u64)
            .with_style(ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}")?),
    };
    let mut versions = BTreeMap::new();
    for family in families {
        let kind = choose_server(family, None)?;
        ensure_installed(kind)?;
        for planned in &plan.workloads {
            versions.insert(kind.name(), run.run_workload(kind, planned).await?);
        }
        run.run_steady_streams(kind, &plan).await?;
    }
    run.bar.finish_and_clear();
    Ok(summarise(run.rows, run.notes, &versions, machine))
}

/// A benchmark in progress.
struct ApplyRun {
    quick: bool,
    only: Option<Side>,
    rows: Vec<Measurement>,
    notes: Vec<String>,
    pace: Option<ApplyPace>,
    /// The progress bar. It is hidden if standard error is not a terminal.
    bar: ProgressBar,
}

impl ApplyRun {
    fn print_step(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    fn measures(&self, side: Side) -> bool {
        self.only.is_none_or(|only| only == side)
    }

    /// Writes a backlog and replays it under all conditions of its plan. Returns the server's version.
    async fn run_workload(&mut self, kind: ServerKind, planned: &PlannedWorkload) -> anyhow::Result<String> {
        self.bar.set_message(format!("{kind}, {}: writing the backlog", planned.workload));
        let folder = TrialFolder::new(None)?;
        let workload = ApplyLoad { kind: planned.workload, rows: planned.rows };
        let backlog = Backlog::make(kind, workload, planned.transactions, folder.path()).await?;
        self.print_step(&format!(
            "{kind}, {}: {} transactions, {} rows, written at {:.0}/s",
            planned.workload, backlog.transactions, backlog.rows, backlog.written_rate
        ));
        let captured = match self.measures(Side::Tailwater) {
            true => Some(CapturedLog::capture(&backlog, folder.path()).await?),
            false => None,
        };
        let wants_slow = planned.conditions.iter().any(|condition| condition.conditions.slow_fsync);
        let slow = match wants_slow && SlowSync::is_possible() {
            true => Some(SlowSync::compile(folder.path(), SYNC_DELAY)?),
            false => None,
        };
        let mut stage = ReplaySetup { backlog, captured, slow, folder };
        for condition in planned.conditions {
            if condition.conditions.slow_fsync && stage.slow.is_none() {
                let note = format!(
                    "{kind}, {}: slow syncs were skipped: no C compiler (package gcc)",
                    planned.workload
                );
                self.print_step(&note);
                self.notes.push(note);
            } else {
                self.run_condition(kind, planned, &stage, condition).await?;
            }
            self.bar.inc(1);
        }
        let version = stage.backlog.source.version().to_owned();
        // The data of the source is not needed any more, so the source is killed.
        stage.backlog.source.kill().await?;
        Ok(version)
    }

    async fn run_condition(
        &mut self,
        kind: ServerKind,
        planned: &PlannedWorkload,
        stage: &ReplaySetup,
        condition: &ReplayCondition,
    ) -> anyhow::Result<()> {
        let mut contenders = Vec::new();
        if self.measures(Side::Native) {
            let best = self.screen_settings(kind, planned, stage, condition).await?;
            contenders.extend(best.into_iter().map(Contender::Native));
        }
        if self.measures(Side::Tailwater) {
            contenders.extend(Contender::OURS);
        }
        let mut replays: Vec<_> = contenders.into_iter().map(|contender| (contender, Vec::new())).collect();
        for repeat in 0..condition.repeats {
            // The order is random, because the writes of one contender may slow down the disk for the next
            // one.
            let mut turns: Vec<_> = replays.iter_mut().collect();
            turns.shuffle(&mut StdRng::seed_from_u64(repeat as u64));
            for (contender, replays) in turns {
                self.bar.set_message(format!("{kind}, {}: {contender}", planned.workload));
                let replay = replay(stage, condition.conditions, *contender).await?;
                self.print_step(&format!(
                    "{}, {contender}, repeat {}: {:.2} s, {:.0} transactions/s, {:.2} CPU-s",
                    describe(kind, planned, condition.conditions),
                    repeat + 1,
                    replay.seconds,
                    stage.backlog.transactions as f64 / replay.seconds,
                    replay.cpu_seconds
                ));
                replays.push(replay);
            }
        }
        let mut pace = ApplyPace {
            natives: Vec::new(),
            native_rate: f64::NAN,
            written_rate: stage.backlog.written_rate,
        };
        for (contender, replays) in replays {
            let row = replay_row(kind, planned, condition.conditions, contender, &stage.backlog, &replays);
            if let Contender::Native(native) = contender {
                pace.native_rate = row.median.max(pace.native_rate);
                pace.natives.push((native, row.median));
            }
            self.rows.push(row);
        }
        pace.natives.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        if planned.workload == HEADLINE && condition.conditions == Conditions::FULL {
            self.pace = Some(pace);
        }
        Ok(())
    }

    /// Tries each native setting on a slice of the backlog. Returns the best settings, and also the
    /// single-threaded setting if the plan requires it.
    async fn screen_settings(
        &mut self,
        kind: ServerKind,
        planned: &PlannedWorkload,
        stage: &ReplaySetup,
        condition: &ReplayCondition,
    ) -> anyhow::Result<Vec<NativeSettings>> {
        let all = NativeSettings::all(kind.flavour(), self.quick);
        if condition.natives == 0 {
            return Ok(all.into_iter().take(usize::from(condition.single)).collect());
        }
        self.bar.set_message(format!("{kind}, {}: trying the native settings", planned.workload));
        let slow = stage.slow.as_ref().filter(|_| condition.conditions.slow_fsync);
        let mut target =
            ReplayTarget::start(&stage.backlog, condition.conditions, slow, stage.folder.path()).await?;
        let mut rates = native_replication_replay::screen(&stage.backlog, &mut target, &all)
            .await
            .with_context(|| format!("cannot measure the native settings with {}", planned.workload))?;
        target.end().await?;
        rates.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        for (native, rate) in &rates {
            self.rows.push(screen_row(kind, planned, condition.conditions, *native, *rate));
        }
        let mut best: Vec<_> = rates.iter().take(condition.natives).map(|(native, _)| *native).collect();
        if condition.single && !best.iter().any(|native| native.is_single()) {
            best.extend(all.first());
        }
        for (native, rate) in rates.iter().take(condition.natives) {
            self.print_step(&format!(
                "{}: best of {}: {native}, {rate:.0}/s",
                describe(kind, planned, condition.conditions),
                all.len()
            ));
        }
        Ok(best)
    }

    /// Measures the delay of commits at two rates. The first is half of the rate at which the best native
    /// replication applies, if the source reaches that rate while it shares the machine. The second is half
    /// of the rate that the source reached with native replication.
    async fn run_steady_streams(&mut self, kind: ServerKind, plan: &ApplyPlan) -> anyhow::Result<()> {
        let (Some(planned), Some(pace)) =
            (plan.workloads.iter().find(|planned| planned.workload == HEADLINE), self.pace.take())
        else {
            return Ok(());
        };
        let most = (pace.native_rate / 2.0).min(pace.written_rate * STEADY_SHARE_MAX);
        let natives: Vec<_> = pace.natives.iter().map(|(native, _)| *native).collect();
        let workload = ApplyLoad { kind: planned.workload, rows: planned.rows };
        for promise in [SourceAckMode::None, SourceAckMode::Lossless] {
            let mut rate = most;
            for load in [LoadLevel::Most, LoadLevel::Half] {
                let followers =
                    replication_delay::followers(&natives, self.measures(Side::Tailwater), promise, load);
                let repeats = if load == LoadLevel::Half { plan.steady_repeats } else { 1 };
                let stream = DelayMeasurement {
                    kind,
                    workload,
                    promise,
                    load,
                    rate,
                    seconds: plan.steady_seconds,
                    repeats,
                };
                self.bar.set_message(format!("{kind}, a steady stream, {}, {}", promise.name(), load.name()));
                let delays = stream.measure(&followers, &|line| self.print_step(line)).await?;
                // The first entry is native replication with its fastest settings, if it is measured.
                let attained = delays.first().and_then(|(_, delays)| delays.first()).map(|delay| delay.rate);
                self.rows.extend(delays.iter().map(|(follower, delays)| stream.row(*follower, delays)));
                rate = attained.unwrap_or(rate).min(rate) / 2.0;
            }
        }
        Ok(())
    }
}

/// The rates that determine the load of the steady stream, measured under the conditions of the headline
/// figure.
struct ApplyPace {
    /// The native settings that were measured in full, with their rates; the best first.
    natives: Vec<(NativeSettings, f64)>,
    /// The rate of the best native setting, in transactions per second. If none was measured, it is NaN,
    /// which means no limit.
    native_rate: f64,
    written_rate: f64,
}

fn describe(kind: ServerKind, planned: &PlannedWorkload, conditions: Conditions) -> String {
    let disk = if conditions.slow_fsync { ", slow fsync" } else { "" };
    format!("{kind}, {}, {} durability{disk}", planned.workload, conditions.durability_name())
}
