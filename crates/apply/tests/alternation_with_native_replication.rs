//! Native replication and a channel take turns in applying transactions to one target. No transaction is
//! missing or applied twice.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tailwater_apply::channel::{ChannelEdit, GtidMode};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::native_replica::{start_statement, stop_statement};
use tailwater_sandbox::workload::{TransactionMix, prepare};
use tailwater_sandbox::{Ledger, ServerKind, Workload, WorkloadSpec};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use crate::channel_test_servers::{PATIENCE, Rig, spec};
use crate::channel_under_test::wait_for;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_alternates_with_native_replication() -> Result<()> {
    take_turns(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_alternates_with_native_replication() -> Result<()> {
    take_turns(ServerKind::Mariadb1011).await
}

async fn take_turns(kind: ServerKind) -> Result<()> {
    let Some(mut rig) = Rig::idle(spec(kind, 1), spec(kind, 2)).await? else { return Ok(()) };
    // Run local transactions on the target. On MariaDB these have GTIDs in the source's domain.
    rig.target.sql("CREATE DATABASE local").await?;
    rig.source
        .sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY AUTO_INCREMENT, n INT)")
        .await?;
    rig.source.sql("INSERT INTO shop.t (n) VALUES (1), (2)").await?;
    rig.target.replicate_from(&rig.source).await?;
    wait_for_native_replication(&rig).await?;
    rig.target.sql(stop_statement(kind.flavour())).await?;
    // Purge the earliest transactions from the source and the log, so that only the target has them.
    purge_all(&rig).await?;
    rig.source.sql("INSERT INTO shop.t (n) VALUES (3)").await?;
    rig.start_capture()?;

    a_target_that_lacks_transactions_is_rejected(&rig).await?;
    under_load(&rig).await?;
    natively_applied_transactions_are_not_repeated(&rig).await?;
    under_the_sources_gtids(&rig).await
}

/// Purges all binlog files except a new one. The source keeps a file that it is sending, until it notices
/// that the reader has disconnected.
async fn purge_all(rig: &Rig) -> Result<()> {
    let started = Instant::now();
    loop {
        rig.source.sql("FLUSH BINARY LOGS").await?;
        let files = rig.source.sql("SHOW BINARY LOGS").await?;
        let newest = files
            .last()
            .and_then(|line| line.split('\t').next())
            .context("the source must have a binlog file")?;
        rig.source.sql(&format!("PURGE BINARY LOGS TO '{newest}'")).await?;
        if rig.source.sql("SHOW BINARY LOGS").await?.len() == 1 {
            return Ok(());
        }
        ensure!(started.elapsed() < PATIENCE, "the binlog files were not purged in time: {files:?}");
    }
}

/// Waits until the target's native replication has applied all transactions of the source. Fails if native
/// replication reports an error.
async fn wait_for_native_replication(rig: &Rig) -> Result<()> {
    let wanted = match rig.source_gtids().await? {
        GtidSet::MySql(set) => set.to_string(),
        GtidSet::MariaDb(state) => state.position().to_string(),
    };
    let caught_up = rig.target.wait_for_gtids(&wanted, PATIENCE).await?;
    let status = rig.target.replica_status().await?;
    ensure!(caught_up, "native replication has not applied {wanted} in time: {status:?}");
    ensure!(
        status.as_ref().is_some_and(|status| status.sql_error.0 == 0),
        "native replication has an error: {status:?}"
    );
    Ok(())
}

/// The target is a copy of the source, but the GTID position of the target was not set.
async fn a_target_that_lacks_transactions_is_rejected(rig: &Rig) -> Result<()> {
    let flavour = rig.target.kind().flavour();
    let has = rig.target.replicated_gtids().await?;
    let (forget, remember) = match flavour {
        Flavour::MySql => ("RESET BINARY LOGS AND GTIDS", format!("SET GLOBAL gtid_purged='{has}'")),
        Flavour::MariaDb => ("SET GLOBAL gtid_slave_pos=''", format!("SET GLOBAL gtid_slave_pos='{has}'")),
    };
    rig.target.sql(forget).await?;
    let channel = rig.channel(rig.options("turns"));
    let fault = rig.wait_failed(&channel).await?;
    ensure!(
        fault.code == "TW-APP-0008" && fault.message.contains("lacks"),
        "wrong fault of the channel: {fault:?}"
    );
    ensure!(rig.target.sql("SELECT COUNT(*) FROM shop.t").await? == ["2"]);
    rig.target.sql(&remember).await?;
    // After the target's GTID position is set, the channel resumes.
    channel.resume(None).await?;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    rig.ensure_equal(&["shop"]).await
}

/// A channel with independent commit order is stopped while test clients write to the source. Native
/// replication then applies the remaining transactions of these clients.
async fn under_load(rig: &Rig) -> Result<()> {
    let mut options = rig.options("turns");
    options.commit_order = CommitOrder::Independent;
    options.batch_transactions_max = 5;
    let channel = rig.channel(options);
    prepare(&rig.source.connect_options()).await?;
    let ledger = Arc::new(Ledger::new());
    let spec = WorkloadSpec {
        transactions: Some(1200),
        mix: TransactionMix::Mixed { body_bytes_max: 1000 },
        ..WorkloadSpec::new(6)
    };
    let load = Workload::start(rig.source.connect_options(), &spec, Arc::clone(&ledger));
    wait_for(&channel, "apply some transactions", |status| status.transactions_total > 200).await?;
    channel.pause().await?;
    rig.source.sql("INSERT INTO shop.t (n) VALUES (9)").await?;
    rig.target.sql(start_statement(rig.target.kind().flavour())).await?;
    let report = load.wait().await;
    ensure!(report.errors.is_empty(), "the test clients had errors: {:?}", report.errors);
    wait_for_native_replication(rig).await?;
    channel.shut_down().await;
    rig.ensure_equal(&["tw_load", "shop"]).await?;
    let compared = ledger.compare_with_server(&rig.target.connect_options()).await?;
    ensure!(
        compared.missing.is_empty() && compared.altered.is_empty(),
        "rows that the test clients wrote are missing or altered on the target: {compared:?}"
    );
    Ok(())
}

async fn natively_applied_transactions_are_not_repeated(rig: &Rig) -> Result<()> {
    let flavour = rig.target.kind().flavour();
    rig.target.sql(stop_statement(flavour)).await?;
    rig.source.sql("UPDATE shop.t SET n = n + 1; INSERT INTO shop.t (n) VALUES (4)").await?;
    let channel = rig.channel(rig.options("turns"));
    let fault = rig.wait_failed(&channel).await?;
    ensure!(
        fault.code == "TW-APP-0006" && fault.message.contains("channel seek turns"),
        "wrong fault of the channel: {fault:?}"
    );
    let has = rig.target.replicated_gtids().await?;
    ensure!(fault.message.contains(&has), "the fault does not name the target's GTIDs {has}: {fault:?}");
    channel.seek(GtidSet::parse(flavour, &has)?).await?;
    channel.resume(None).await?;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    rig.ensure_equal(&["shop"]).await
}

/// The target logs each transaction under its GTID on the source. A transaction that the channel skipped is
/// then not applied by native replication either.
async fn under_the_sources_gtids(rig: &Rig) -> Result<()> {
    let flavour = rig.target.kind().flavour();
    let channel = rig.channel(rig.options("turns"));
    channel.edit(ChannelEdit { gtid: Some(GtidMode::Preserve), ..ChannelEdit::default() }).await?;
    rig.source.sql("INSERT INTO shop.t (n) VALUES (5); CREATE TABLE shop.u (id INT PRIMARY KEY)").await?;
    rig.wait_applied(&channel).await?;
    rig.target.sql("SET sql_log_bin=0; INSERT INTO shop.u VALUES (1)").await?;
    rig.source.sql("INSERT INTO shop.u VALUES (1)").await?;
    let planted = rig.newest_gtid().await?;
    rig.source.sql("UPDATE shop.t SET n = n + 1").await?;
    let fault = rig.wait_failed(&channel).await?;
    ensure!(fault.message.contains(&planted.to_string()), "wrong fault of the channel: {fault:?}");
    channel.skip(planted).await?;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    rig.ensure_equal(&["shop"]).await?;

    rig.source.sql("DELETE FROM shop.t WHERE id = 1; INSERT INTO shop.u VALUES (2)").await?;
    rig.target.sql(start_statement(flavour)).await?;
    wait_for_native_replication(rig).await?;
    rig.ensure_equal(&["shop"]).await
}
