//! `tailwater bench apply`: the same backlog replayed by the servers' own replication at its best and by Tailwater.
//!
//! The map: [`plan`] says what is measured and [`workload`] what the backlogs are made of; [`backlog`] is a source that
//! has written one, [`target`] a server that is to catch up, [`contender`] who makes it do so: [`native`] or [`ours`].
//! [`replay`] measures one of them once, [`steady`] how late a steady stream arrives with one, [`delays`] the same of all in turns, which
//! is `tailwater bench delay`, too; [`summary`] says what came out.

mod backlog;
mod contender;
mod delay;
mod native;
mod plan;
mod replay;
mod steady_stream;
mod summary;
mod tailwater;
mod target;
mod workload;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tailwater_sandbox::{ServerKind, SlowSync};

use self::backlog::Backlog;
use self::contender::{Contender, NativeSettings};
use self::delay::DelayMeasurement;
use self::plan::{ApplyPlan, Conditions, HEADLINE, PlannedWorkload, Scene};
use self::replay::{ReplaySetup, replay};
use self::steady_stream::{LoadLevel, SourceAckMode};
use self::summary::{replay_row, screen_row, summarise};
use self::tailwater::CapturedLog;
use self::target::ReplayTarget;
use self::workload::ApplyLoad;
use super::report::{BenchReport, MachineInfo, Measurement};
use crate::args::{ApplyBench, Side};
use crate::demo::choose_server;
use crate::trial::{TrialFolder, ensure_installed};

pub use self::delay::delay;

/// What is added to every sync where syncs are slow.
pub const SYNC_DELAY: Duration = Duration::from_millis(2);
/// Of the rate at which the source wrote its backlog, with the machine to itself, the most that a steady stream may ask
/// for: source and target share the machine then, and even so clients seldom come to it.
const STEADY_SHARE_MAX: f64 = 0.5;

/// Runs the benchmark for one family, or for both.
///
/// # Errors
/// If a measurement cannot be taken, or a contender gets the data wrong.
pub async fn apply(options: &ApplyBench) -> anyhow::Result<BenchReport> {
    let plan = ApplyPlan::new(options.workload, options.quick, options.transactions);
    let families = options.families();
    let folder = TrialFolder::new(None)?;
    let machine = MachineInfo::look(folder.path())?;
    let scenes: usize = plan.acts.iter().map(|act| act.scenes.len()).sum();
    let mut run = ApplyRun {
        quick: plan.quick,
        only: options.only,
        rows: Vec::new(),
        notes: Vec::new(),
        pace: None,
        bar: ProgressBar::new((scenes * families.len()) as u64)
            .with_style(ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}")?),
    };
    let mut versions = BTreeMap::new();
    for family in families {
        let kind = choose_server(family, None)?;
        ensure_installed(kind)?;
        for act in &plan.acts {
            versions.insert(kind.name(), run.act(kind, act).await?);
        }
        run.steady(kind, &plan).await?;
    }
    run.bar.finish_and_clear();
    Ok(summarise(run.rows, run.notes, &versions, machine))
}

/// A benchmark under way.
struct ApplyRun {
    quick: bool,
    only: Option<Side>,
    rows: Vec<Measurement>,
    notes: Vec<String>,
    pace: Option<ApplyPace>,
    /// Hidden by itself where standard error is no terminal.
    bar: ProgressBar,
}

impl ApplyRun {
    fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    fn measures(&self, side: Side) -> bool {
        self.only.is_none_or(|only| only == side)
    }

    /// Makes a backlog and replays it under all of its conditions; the server's version.
    async fn act(&mut self, kind: ServerKind, act: &PlannedWorkload) -> anyhow::Result<String> {
        self.bar.set_message(format!("{kind}, {}: writing the backlog", act.workload));
        let folder = TrialFolder::new(None)?;
        let workload = ApplyLoad { kind: act.workload, rows: act.rows };
        let backlog = Backlog::make(kind, workload, act.transactions, folder.path()).await?;
        self.say(&format!(
            "{kind}, {}: {} transactions, {} rows, written at {:.0}/s",
            act.workload, backlog.transactions, backlog.rows, backlog.written_rate
        ));
        let captured = match self.measures(Side::Tailwater) {
            true => Some(CapturedLog::capture(&backlog, folder.path()).await?),
            false => None,
        };
        let wants_slow = act.scenes.iter().any(|scene| scene.conditions.slow_sync);
        let slow = match wants_slow && SlowSync::is_possible() {
            true => Some(SlowSync::compile(folder.path(), SYNC_DELAY)?),
            false => None,
        };
        let mut stage = ReplaySetup { backlog, captured, slow, folder };
        for scene in act.scenes {
            if scene.conditions.slow_sync && stage.slow.is_none() {
                let note =
                    format!("{kind}, {}: slow syncs were skipped: no C compiler (package gcc)", act.workload);
                self.say(&note);
                self.notes.push(note);
            } else {
                self.scene(kind, act, &stage, scene).await?;
            }
            self.bar.inc(1);
        }
        let version = stage.backlog.source.version().to_owned();
        // Nobody needs its data any more.
        stage.backlog.source.kill().await?;
        Ok(version)
    }

    async fn scene(
        &mut self,
        kind: ServerKind,
        act: &PlannedWorkload,
        stage: &ReplaySetup,
        scene: &Scene,
    ) -> anyhow::Result<()> {
        let mut contenders = Vec::new();
        if self.measures(Side::Native) {
            let best = self.screen(kind, act, stage, scene).await?;
            contenders.extend(best.into_iter().map(Contender::Native));
        }
        if self.measures(Side::Tailwater) {
            contenders.extend(Contender::OURS);
        }
        let mut replays: Vec<_> = contenders.into_iter().map(|contender| (contender, Vec::new())).collect();
        for repeat in 0..scene.repeats {
            // In an order of its own each time: what one leaves to the disk is not always the same other's burden.
            let mut turns: Vec<_> = replays.iter_mut().collect();
            turns.shuffle(&mut StdRng::seed_from_u64(repeat as u64));
            for (contender, replays) in turns {
                self.bar.set_message(format!("{kind}, {}: {contender}", act.workload));
                let replay = replay(stage, scene.conditions, *contender).await?;
                self.say(&format!(
                    "{}, {contender}, repeat {}: {:.2} s, {:.0} transactions/s, {:.2} CPU-s",
                    describe(kind, act, scene.conditions),
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
            let row = replay_row(kind, act, scene.conditions, contender, &stage.backlog, &replays);
            if let Contender::Native(native) = contender {
                pace.native_rate = row.median.max(pace.native_rate);
                pace.natives.push((native, row.median));
            }
            self.rows.push(row);
        }
        pace.natives.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        if act.workload == HEADLINE && scene.conditions == Conditions::FULL {
            self.pace = Some(pace);
        }
        Ok(())
    }

    /// Tries all native settings on a slice each; the best of them, and the single-threaded one where it is wanted.
    async fn screen(
        &mut self,
        kind: ServerKind,
        act: &PlannedWorkload,
        stage: &ReplaySetup,
        scene: &Scene,
    ) -> anyhow::Result<Vec<NativeSettings>> {
        let all = NativeSettings::all(kind.flavour(), self.quick);
        if scene.natives == 0 {
            return Ok(all.into_iter().take(usize::from(scene.single)).collect());
        }
        self.bar.set_message(format!("{kind}, {}: native settings", act.workload));
        let slow = stage.slow.as_ref().filter(|_| scene.conditions.slow_sync);
        let mut target =
            ReplayTarget::start(&stage.backlog, scene.conditions, slow, stage.folder.path()).await?;
        let mut rates = native::screen(&stage.backlog, &mut target, &all)
            .await
            .with_context(|| format!("native settings on {}", act.workload))?;
        target.end().await?;
        rates.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        for (native, rate) in &rates {
            self.rows.push(screen_row(kind, act, scene.conditions, *native, *rate));
        }
        let mut best: Vec<_> = rates.iter().take(scene.natives).map(|(native, _)| *native).collect();
        if scene.single && !best.iter().any(|native| native.is_single()) {
            best.extend(all.first());
        }
        for (native, rate) in rates.iter().take(scene.natives) {
            self.say(&format!(
                "{}: best of {}: {native}, {rate:.0}/s",
                describe(kind, act, scene.conditions),
                all.len()
            ));
        }
        Ok(best)
    }

    /// How late commits arrive: of a source that commits half as fast as native replication can apply at its best, if it can
    /// while others share its machine; and at half the rate to which it came with that following.
    async fn steady(&mut self, kind: ServerKind, plan: &ApplyPlan) -> anyhow::Result<()> {
        let (Some(act), Some(pace)) =
            (plan.acts.iter().find(|act| act.workload == HEADLINE), self.pace.take())
        else {
            return Ok(());
        };
        let most = (pace.native_rate / 2.0).min(pace.written_rate * STEADY_SHARE_MAX);
        let natives: Vec<_> = pace.natives.iter().map(|(native, _)| *native).collect();
        let workload = ApplyLoad { kind: act.workload, rows: act.rows };
        for promise in [SourceAckMode::None, SourceAckMode::Lossless] {
            let mut rate = most;
            for load in [LoadLevel::Most, LoadLevel::Half] {
                let followers = delay::followers(&natives, self.measures(Side::Tailwater), promise, load);
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
                let delays = stream.measure(&followers, &|line| self.say(line)).await?;
                // The first is native replication where it replays fastest, if that is measured.
                let attained = delays.first().and_then(|(_, delays)| delays.first()).map(|delay| delay.rate);
                self.rows.extend(delays.iter().map(|(follower, delays)| stream.row(*follower, delays)));
                rate = attained.unwrap_or(rate).min(rate) / 2.0;
            }
        }
        Ok(())
    }
}

/// What the pace of a steady stream follows from, measured under the headline's conditions.
struct ApplyPace {
    /// The settings of native replication that were measured in full, and their rates; the best first.
    natives: Vec<(NativeSettings, f64)>,
    /// At the best of them, in transactions per second; not a number, and so no limit, if none was measured.
    native_rate: f64,
    written_rate: f64,
}

fn describe(kind: ServerKind, act: &PlannedWorkload, conditions: Conditions) -> String {
    let disk = if conditions.slow_sync { ", slow fsync" } else { "" };
    format!("{kind}, {}, {} durability{disk}", act.workload, conditions.durability_name())
}
