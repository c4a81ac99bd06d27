//! One replay of a binlog backlog by one contender: native replication or Tailwater. The replay starts with a
//! new copy of the data, and ends with a comparison with the source.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tailwater_sandbox::SlowSync;

use super::benchmark_plan::Conditions;
use super::native_replication_replay;
use super::replication_variant::Contender;
use super::source_backlog::Backlog;
use super::tailwater_replay::{self, ApplyDaemon, CapturedLog};
use super::target_server::ReplayTarget;
use crate::fault_trial::TrialFolder;

/// Interval between two queries that test whether the target has applied the whole backlog.
const POLL_INTERVAL: Duration = Duration::from_millis(8);
/// Interval between two checks for errors of the contender.
const CHECK: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(900);

/// What every replay needs.
#[derive(Debug)]
pub struct ReplaySetup {
    /// The backlog.
    pub backlog: Backlog,
    /// The backlog in the log of Tailwater, if Tailwater is measured.
    pub captured: Option<CapturedLog>,
    /// The library that makes syncs of the disk slow, if the plan wants it and it could be compiled.
    pub slow: Option<SlowSync>,
    /// The folder for all files.
    pub folder: TrialFolder,
}

/// The result of a replay.
#[derive(Debug, Clone, Copy)]
pub struct Replay {
    /// The time from the start command (`START REPLICA`, `tailwater channel start`) until the last
    /// transaction was visible on the target, in seconds. Before that command, the servers and the daemon
    /// were running, and the target's relay log or Tailwater's log already had the whole backlog.
    pub seconds: f64,
    /// The CPU time of target and Tailwater together, in seconds.
    pub cpu_seconds: f64,
    /// The peak memory of Tailwater, in MiB.
    pub memory_mib: Option<f64>,
}

/// Replays the whole backlog.
///
/// # Errors
/// If a server or the contender fails, or the target differs from the source at the end.
pub async fn replay(
    stage: &ReplaySetup,
    conditions: Conditions,
    contender: Contender,
) -> anyhow::Result<Replay> {
    let folder = stage.folder.path();
    let slow = stage.slow.as_ref().filter(|_| conditions.slow_fsync);
    let mut target = ReplayTarget::start(&stage.backlog, conditions, slow, folder).await?;
    let log = match contender {
        Contender::Native(native) => {
            native_replication_replay::receive(&stage.backlog, &mut target).await?;
            native_replication_replay::set(&mut target, native).await?;
            None
        }
        Contender::Ours(_) => {
            Some(stage.captured.as_ref().context("Tailwater has captured nothing")?.copy(folder)?)
        }
    };
    let mut daemon = match (contender, &log) {
        (Contender::Ours(order), Some(log)) => {
            Some(tailwater_replay::start_ready(&stage.backlog, &target, order, slow, log).await?)
        }
        _ => None,
    };
    let cpu_of = |daemon: &Option<ApplyDaemon>| {
        daemon.as_ref().and_then(|daemon| daemon.process.cpu_time()).unwrap_or_default()
    };
    let cpu_before = (target.cpu_time()?, cpu_of(&daemon));
    let begin = Instant::now();
    match &daemon {
        Some(daemon) => daemon.begin()?,
        None => native_replication_replay::apply(&mut target).await?,
    }
    wait_finished(&mut target, daemon.as_mut())
        .await
        .with_context(|| format!("{contender} did not replay the backlog"))?;
    let seconds = begin.elapsed().as_secs_f64();
    let of_server = target.cpu_time()?.saturating_sub(cpu_before.0);
    let of_ours = cpu_of(&daemon).saturating_sub(cpu_before.1);
    let memory_mib = daemon
        .as_ref()
        .and_then(|daemon| daemon.process.memory_bytes_max())
        .map(|bytes| bytes as f64 / f64::from(1 << 20));
    stage.backlog.ensure_equal(&target.server).await.with_context(|| {
        format!("the comparison of the target with the source failed after the replay by {contender}")
    })?;
    if let Some(daemon) = daemon {
        daemon.end().await?;
    }
    if let Some(log) = log {
        std::fs::remove_dir_all(log)?;
    }
    target.end().await?;
    Ok(Replay { seconds, cpu_seconds: (of_server + of_ours).as_secs_f64(), memory_mib })
}

async fn wait_finished(
    target: &mut ReplayTarget,
    mut daemon: Option<&mut ApplyDaemon>,
) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut checked = begin;
    while !target.is_finished().await? {
        tokio::time::sleep(POLL_INTERVAL).await;
        if checked.elapsed() < CHECK {
            continue;
        }
        checked = Instant::now();
        match &mut daemon {
            Some(daemon) => daemon.ensure_running()?,
            None => target.ensure_replicating().await?,
        }
        ensure!(begin.elapsed() < PATIENCE, "the backlog was not applied within {} s", PATIENCE.as_secs());
    }
    Ok(())
}
