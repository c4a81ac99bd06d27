//! A broken replica or source is reported, and the prefetch continues when it is back.

use anyhow::ensure;
use tailwater_prefetch::{PrefetchError, PrefetchProgress, check};
use tailwater_sandbox::ServerKind;

use crate::cold_replica::{ColdReplica, RunningPrefetch};

on_each_server!(broken_servers_are_tolerated, wrong_setups_are_refused);

async fn broken_servers_are_tolerated(kind: ServerKind) -> anyhow::Result<()> {
    let Some(mut servers) = ColdReplica::start(kind, 32).await? else { return Ok(()) };
    let prefetch = RunningPrefetch::start(servers.options());
    prefetch.wait_for("it runs", |status| status.state == "reading").await?;

    servers.source.kill().await?;
    let failed = prefetch.wait_for("the source is reported", |status| status.state == "failed").await?;
    let reason = failed.reason.unwrap_or_default();
    ensure!(reason.contains("the source") && reason.starts_with("TW-"), "{kind}: {reason}");
    servers.source.start_again().await?;
    prefetch.wait_for("it runs again", |status| status.state == "reading").await?;

    servers.replica.kill().await?;
    let failed = prefetch.wait_for("the replica is reported", |status| status.state == "failed").await?;
    ensure!(failed.reason.is_some_and(|reason| reason.contains("the replica")), "{kind}");
    servers.replica.start_again().await?;
    prefetch.wait_for("it runs again", |status| status.state == "reading").await?;

    // The replica stops at a row that it lacks.
    servers.wait_until_applied().await?;
    servers.replica.sql("SET sql_log_bin = 0; DELETE FROM d.t WHERE id = 77").await?;
    servers.source.sql("UPDATE d.t SET a = 1 WHERE id = 77; UPDATE d.t SET a = 2 WHERE id = 78").await?;
    let broken = prefetch
        .wait_for("the applier is reported", |status| {
            status.reason.as_ref().is_some_and(|reason| reason.contains("applier has stopped with an error"))
        })
        .await?;
    ensure!(broken.state != "failed" && broken.bytes_ahead > 0, "{kind}: {broken:?}");

    // A table that the replica does not have in this form.
    servers.replica.sql("SET sql_log_bin = 0; ALTER TABLE d.t DROP KEY on_a, DROP COLUMN more").await?;
    servers.source.sql("CREATE TABLE d.u (id INT PRIMARY KEY); INSERT INTO d.u VALUES (1); UPDATE d.t SET a = 3 WHERE id = 79").await?;
    prefetch
        .wait_for("both tables are counted", |status| {
            status.skipped.contains_key("no_table") && status.skipped.contains_key("table_differs")
        })
        .await?;
    prefetch.stop().await?;
    Ok(())
}

async fn wrong_setups_are_refused(kind: ServerKind) -> anyhow::Result<()> {
    let Some(servers) = ColdReplica::start(kind, 32).await? else { return Ok(()) };
    let mut options = servers.options();
    check(&options).await?;
    options.progress = PrefetchProgress::Replication(Some("other".to_owned()));
    let error = check(&options).await.err();
    ensure!(matches!(error, Some(PrefetchError::NotAReplica { channels: 0, .. })), "{kind}: {error:?}");
    options.progress = PrefetchProgress::Replication(None);
    options.replica = servers.source.connect_options();
    let error = check(&options).await.err();
    ensure!(error.as_ref().is_some_and(|error| error.code() == "TW-PRE-0002"), "{kind}: {error:?}");
    Ok(())
}
