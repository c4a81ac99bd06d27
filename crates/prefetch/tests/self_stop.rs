//! A prefetch that does not pay stops itself and says so.

use std::time::Instant;

use anyhow::ensure;
use tailwater_prefetch::PrefetchOptions;
use tailwater_prefetch::gain_feedback::FeedbackLimits;
use tailwater_sandbox::ServerKind;

use crate::cold_replica::{ColdReplica, PATIENCE, RunningPrefetch};

on_each_server!(a_cached_replica_needs_no_prefetch);

async fn a_cached_replica_needs_no_prefetch(kind: ServerKind) -> anyhow::Result<()> {
    let Some(servers) = ColdReplica::start(kind, 256).await? else { return Ok(()) };
    let feedback =
        FeedbackLimits { on_seconds: 1, off_seconds: 1, turns: 2, rows_min: 20, ..FeedbackLimits::default() };
    let prefetch = RunningPrefetch::start(PrefetchOptions { feedback: Some(feedback), ..servers.options() });
    let mut stopped = None;
    for round in 0..200u64 {
        let updates: String =
            (1..=100).map(|id| format!("UPDATE d.t SET a = {round} WHERE id = {id};")).collect();
        servers.source.sql(&updates).await?;
        let status = prefetch.figures.status();
        if status.state == "stopped" {
            stopped = Some(status);
            break;
        }
    }
    let Some(stopped) = stopped else { anyhow::bail!("{kind}: not stopped: {:?}", prefetch.stop().await?) };
    ensure!(
        stopped.reason.as_ref().is_some_and(|reason| reason.contains("buffer pool")),
        "{kind}: {stopped:?}"
    );
    ensure!(stopped.reads_per_row.is_some_and(|reads| reads < 0.02), "{kind}: {stopped:?}");

    // Stopped, it costs nothing: no stream of the binlog, and no query.
    servers.wait_until_applied().await?;
    let before = prefetch.figures.status();
    servers.source.sql("UPDATE d.t SET a = 7 WHERE id <= 50").await?;
    servers.wait_until_applied().await?;
    let began = Instant::now();
    while servers.readers_of_source().await? != 1 {
        ensure!(began.elapsed() < PATIENCE, "{kind}: the source still sends its binlog to the prefetch");
    }
    let after = prefetch.figures.status();
    ensure!((after.queries, after.events) == (before.queries, before.events), "{kind}: {after:?}");
    prefetch.stop().await?;
    Ok(())
}
