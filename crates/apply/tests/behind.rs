//! A server that replicates natively from the target: under the source's GTIDs it can be moved to the source and back, under
//! the target's own it gets the same rows, and of what the target does not log it gets nothing.

use anyhow::{Context, Result, bail, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{ChannelEdit, ChannelOptions, GtidMode};
use tailwater_sandbox::replica::stop_statement;
use tailwater_sandbox::require::is_skipped_in_ci;
use tailwater_sandbox::{ReplicaOf, Server, ServerKind};
use tailwater_wire::Flavour;

use crate::faults::until;
use crate::support::{Rig, spec};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_server_behind_the_target() -> Result<()> {
    a_server_behind_the_target(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_server_behind_the_target() -> Result<()> {
    if is_skipped_in_ci("a_mysql_server_behind_the_target", "that of MariaDB") {
        return Ok(());
    }
    a_server_behind_the_target(ServerKind::Mysql97).await
}

/// The rows that both have.
const ROWS: &str = "SELECT id, n FROM shop.t ORDER BY id";

async fn a_server_behind_the_target(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let options = ChannelOptions { gtid: GtidMode::Preserve, workers: 2, ..rig.options("chain") };
    let channel = rig.channel(options);
    let behind = Server::start(spec(kind, 3)).await?;
    behind.replicate_from(&rig.target).await?;
    rig.source
        .sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, n INT); INSERT INTO shop.t VALUES (1,0),(2,0)")
        .await?;
    rig.source.sql("UPDATE shop.t SET n = 1; DELETE FROM shop.t WHERE id = 2").await?;
    rig.wait_applied(&channel).await?;
    has_the_sources_gtids(&rig, &behind).await?;

    moves_to_the_source(&rig, &channel, &behind).await?;
    gets_what_is_the_targets_own(&rig, &channel, &behind).await?;
    gets_nothing_that_is_not_logged(&rig, &channel, &behind).await?;
    channel.shut_down().await;
    Ok(())
}

/// Waits until it has all of the source's transactions, under the source's GTIDs.
async fn has_the_sources_gtids(rig: &Rig, behind: &Server) -> Result<()> {
    let newest = rig.newest_gtid().await?;
    let has = match rig.source.kind().flavour() {
        Flavour::MySql => format!("SELECT GTID_SUBSET('{newest}', @@GLOBAL.gtid_executed)"),
        // Of a domain only the last one shows.
        Flavour::MariaDb => format!("SELECT @@GLOBAL.gtid_slave_pos = '{newest}'"),
    };
    if let Err(error) = until(behind, &has, "1").await {
        let (status, has) = (behind.replica_status().await?, behind.replicated_gtids().await?);
        bail!("{error:#}: it has {has}, the target {}: {status:?}", rig.target.replicated_gtids().await?);
    }
    if rig.source.kind().flavour() == Flavour::MySql {
        let all = rig.source_gtids().await?.to_string();
        let lacking = behind.sql(&format!("SELECT GTID_SUBTRACT('{all}', @@GLOBAL.gtid_executed)")).await?;
        ensure!(lacking == [""], "it lacks {lacking:?}");
    }
    ensure!(behind.sql(ROWS).await? == rig.source.sql(ROWS).await?, "it has other rows than the source");
    Ok(())
}

/// Has it replicate from another server, from where it is.
async fn turn_to(behind: &Server, source: &Server) -> Result<()> {
    let flavour = behind.kind().flavour();
    source.create_replication_user().await?;
    behind.sql(stop_statement(flavour)).await?;
    Ok(behind.replicate(&ReplicaOf::port(source.port())).await?)
}

/// And back, while transactions go on.
async fn moves_to_the_source(rig: &Rig, channel: &Channel, behind: &Server) -> Result<()> {
    turn_to(behind, &rig.source).await?;
    rig.source.sql("INSERT INTO shop.t VALUES (3,0); UPDATE shop.t SET n = n + 1").await?;
    has_the_sources_gtids(rig, behind).await?;
    rig.wait_applied(channel).await?;
    turn_to(behind, &rig.target).await?;
    rig.source.sql("INSERT INTO shop.t VALUES (4,0); UPDATE shop.t SET n = n + 1").await?;
    rig.wait_applied(channel).await?;
    has_the_sources_gtids(rig, behind).await
}

async fn set(channel: &Channel, gtid: GtidMode) -> Result<()> {
    let edit = ChannelEdit { gtid: Some(gtid), ..ChannelEdit::default() };
    channel.edit(edit).await.context("its identity")
}

async fn gets_what_is_the_targets_own(rig: &Rig, channel: &Channel, behind: &Server) -> Result<()> {
    set(channel, GtidMode::Own).await?;
    let before = rig.newest_gtid().await?;
    rig.source.sql("INSERT INTO shop.t VALUES (5,0); UPDATE shop.t SET n = n + 1").await?;
    rig.wait_applied(channel).await?;
    until(behind, "SELECT COUNT(*) FROM shop.t WHERE id = 5 AND n = 1", "1").await?;
    ensure!(behind.sql(ROWS).await? == rig.source.sql(ROWS).await?, "it has other rows than the source");
    // Nothing of it came as the source's.
    let newest = rig.newest_gtid().await?.to_string();
    let has = behind.replicated_gtids().await?;
    match rig.source.kind().flavour() {
        Flavour::MySql => {
            let sql = format!("SELECT GTID_SUBSET('{before}', '{has}'), GTID_SUBSET('{newest}', '{has}')");
            ensure!(behind.sql(&sql).await? == ["1\t0"], "{has}: {before} {newest}");
        }
        Flavour::MariaDb => ensure!(has.starts_with("0-2-"), "{has}"),
    }
    Ok(())
}

async fn gets_nothing_that_is_not_logged(rig: &Rig, channel: &Channel, behind: &Server) -> Result<()> {
    set(channel, GtidMode::Log).await?;
    rig.source.sql("INSERT INTO shop.t VALUES (6,0)").await?;
    rig.wait_applied(channel).await?;
    // What the target itself does comes behind it.
    rig.target.sql("CREATE DATABASE marked").await?;
    until(behind, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'marked'", "1")
        .await?;
    ensure!(behind.sql("SELECT COUNT(*) FROM shop.t WHERE id = 6").await? == ["0"], "it was logged");
    ensure!(rig.target.sql("SELECT COUNT(*) FROM shop.t WHERE id = 6").await? == ["1"]);
    Ok(())
}
