//! Tests a native replica of the target. If the target logs the source's GTIDs, the replica can be moved to
//! the source and back. If the target logs its own GTIDs, the replica gets the same rows. The replica does
//! not get changes that the target does not log.

use anyhow::{Context, Result, bail, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{ChannelEdit, ChannelOptions, GtidMode};
use tailwater_sandbox::native_replica::stop_statement;
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::{ReplicaOf, Server, ServerKind};
use tailwater_wire::Flavour;

use crate::channel_test_servers::{Rig, spec};
use crate::faults::until;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_replica_of_the_target_gets_its_rows() -> Result<()> {
    replica_of_the_target(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_replica_of_the_target_gets_its_rows() -> Result<()> {
    if is_skipped_in_ci("a_mysql_replica_of_the_target_gets_its_rows", "the same test on MariaDB") {
        return Ok(());
    }
    replica_of_the_target(ServerKind::Mysql97).await
}

/// Reads the rows on both servers.
const ROWS: &str = "SELECT id, n FROM shop.t ORDER BY id";

async fn replica_of_the_target(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let options = ChannelOptions { gtid: GtidMode::Preserve, workers: 2, ..rig.options("chain") };
    let channel = rig.channel(options);
    let replica = Server::start(spec(kind, 3)).await?;
    replica.replicate_from(&rig.target).await?;
    rig.source
        .sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, n INT); INSERT INTO shop.t VALUES (1,0),(2,0)")
        .await?;
    rig.source.sql("UPDATE shop.t SET n = 1; DELETE FROM shop.t WHERE id = 2").await?;
    rig.wait_applied(&channel).await?;
    wait_for_source_gtids(&rig, &replica).await?;

    moves_to_the_source_and_back(&rig, &channel, &replica).await?;
    gets_rows_under_the_targets_gtids(&rig, &channel, &replica).await?;
    gets_nothing_the_target_does_not_log(&rig, &channel, &replica).await?;
    channel.shut_down().await;
    Ok(())
}

/// Waits until the replica has all transactions of the source, under the source's GTIDs.
async fn wait_for_source_gtids(rig: &Rig, replica: &Server) -> Result<()> {
    let newest = rig.newest_gtid().await?;
    let has = match rig.source.kind().flavour() {
        Flavour::MySql => format!("SELECT GTID_SUBSET('{newest}', @@GLOBAL.gtid_executed)"),
        // A MariaDB position has only the last GTID of each domain.
        Flavour::MariaDb => format!("SELECT @@GLOBAL.gtid_slave_pos = '{newest}'"),
    };
    if let Err(error) = until(replica, &has, "1").await {
        let (status, has) = (replica.replica_status().await?, replica.replicated_gtids().await?);
        bail!(
            "{error:#}: the replica has the GTIDs {has}, and the target has {}: {status:?}",
            rig.target.replicated_gtids().await?
        );
    }
    if rig.source.kind().flavour() == Flavour::MySql {
        let all = rig.source_gtids().await?.to_string();
        let lacking = replica.sql(&format!("SELECT GTID_SUBTRACT('{all}', @@GLOBAL.gtid_executed)")).await?;
        ensure!(lacking == [""], "the replica has not applied the GTIDs {lacking:?}");
    }
    ensure!(
        replica.sql(ROWS).await? == rig.source.sql(ROWS).await?,
        "the replica has other rows than the source"
    );
    Ok(())
}

/// Makes the replica replicate from another server, from its current position.
async fn replicate_from(replica: &Server, source: &Server) -> Result<()> {
    let flavour = replica.kind().flavour();
    source.create_replication_user().await?;
    replica.sql(stop_statement(flavour)).await?;
    Ok(replica.replicate(&ReplicaOf::port(source.port())).await?)
}

/// Moves the replica to the source and back while transactions continue.
async fn moves_to_the_source_and_back(rig: &Rig, channel: &Channel, replica: &Server) -> Result<()> {
    replicate_from(replica, &rig.source).await?;
    rig.source.sql("INSERT INTO shop.t VALUES (3,0); UPDATE shop.t SET n = n + 1").await?;
    wait_for_source_gtids(rig, replica).await?;
    rig.wait_applied(channel).await?;
    replicate_from(replica, &rig.target).await?;
    rig.source.sql("INSERT INTO shop.t VALUES (4,0); UPDATE shop.t SET n = n + 1").await?;
    rig.wait_applied(channel).await?;
    wait_for_source_gtids(rig, replica).await
}

async fn set(channel: &Channel, gtid: GtidMode) -> Result<()> {
    let edit = ChannelEdit { gtid: Some(gtid), ..ChannelEdit::default() };
    channel.edit(edit).await.context("cannot change the channel's GTID mode")
}

async fn gets_rows_under_the_targets_gtids(rig: &Rig, channel: &Channel, replica: &Server) -> Result<()> {
    set(channel, GtidMode::Own).await?;
    let before = rig.newest_gtid().await?;
    rig.source.sql("INSERT INTO shop.t VALUES (5,0); UPDATE shop.t SET n = n + 1").await?;
    rig.wait_applied(channel).await?;
    until(replica, "SELECT COUNT(*) FROM shop.t WHERE id = 5 AND n = 1", "1").await?;
    ensure!(
        replica.sql(ROWS).await? == rig.source.sql(ROWS).await?,
        "the replica has other rows than the source"
    );
    // The replica must have these transactions only under GTIDs of the target, not of the source.
    let newest = rig.newest_gtid().await?.to_string();
    let has = replica.replicated_gtids().await?;
    match rig.source.kind().flavour() {
        Flavour::MySql => {
            let sql = format!("SELECT GTID_SUBSET('{before}', '{has}'), GTID_SUBSET('{newest}', '{has}')");
            ensure!(
                replica.sql(&sql).await? == ["1\t0"],
                "the replica has the GTIDs {has}; it must have {before} and must not have {newest}"
            );
        }
        Flavour::MariaDb => {
            ensure!(has.starts_with("0-2-"), "the GTIDs of the replica do not begin with 0-2-: {has}")
        }
    }
    Ok(())
}

async fn gets_nothing_the_target_does_not_log(rig: &Rig, channel: &Channel, replica: &Server) -> Result<()> {
    set(channel, GtidMode::Log).await?;
    rig.source.sql("INSERT INTO shop.t VALUES (6,0)").await?;
    rig.wait_applied(channel).await?;
    // Run a transaction on the target itself. When the replica has this transaction, the replica has also
    // received everything that the target logged before.
    rig.target.sql("CREATE DATABASE marked").await?;
    until(replica, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'marked'", "1")
        .await?;
    ensure!(
        replica.sql("SELECT COUNT(*) FROM shop.t WHERE id = 6").await? == ["0"],
        "the target must not log the transaction, but the replica has it"
    );
    ensure!(rig.target.sql("SELECT COUNT(*) FROM shop.t WHERE id = 6").await? == ["1"]);
    Ok(())
}
