//! Checks that the target receives all commits of the source, in both commit orders and all GTID modes.

use std::sync::Arc;

use anyhow::{Result, ensure};
use tailwater_apply::channel::{ChannelOptions, GtidMode};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::workload::{TransactionMix, prepare};
use tailwater_sandbox::{Ledger, ServerKind, Workload, WorkloadSpec};

use crate::channel_test_servers::Rig;

/// Applies a mixed load from many connections, with DDL statements in between.
async fn applies_load(kind: ServerKind, change: impl Fn(&mut ChannelOptions)) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let mut options = rig.options("replica");
    change(&mut options);
    let preserved = options.gtid == GtidMode::Preserve;
    let channel = rig.channel(options);
    prepare(&rig.source.connect_options()).await?;
    let ledger = Arc::new(Ledger::new());
    let spec = WorkloadSpec {
        transactions: Some(1500),
        mix: TransactionMix::Mixed { body_bytes_max: 2000 },
        ..WorkloadSpec::new(6)
    };
    let load = Workload::start(rig.source.connect_options(), &spec, Arc::clone(&ledger));
    rig.source
        .sql(
            "CREATE DATABASE shop; CREATE TABLE shop.a (id INT PRIMARY KEY, t VARCHAR(20) UNIQUE); \
              INSERT INTO shop.a VALUES (1,'x'),(2,'y'); ALTER TABLE shop.a ADD COLUMN n INT DEFAULT 7; \
              UPDATE shop.a SET t='z' WHERE id=1",
        )
        .await?;
    if !preserved {
        rig.source.sql("CREATE TABLE shop.b AS SELECT * FROM shop.a").await?;
    }
    let report = load.wait().await;
    ensure!(report.errors.is_empty(), "the test clients had errors: {:?}", report.errors);
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    rig.ensure_equal(&["tw_load", "shop"]).await?;
    let compared = ledger.compare_with_server(&rig.target.connect_options()).await?;
    ensure!(
        compared.missing.is_empty() && compared.altered.is_empty(),
        "rows that the test clients wrote are missing or altered on the target: {compared:?}"
    );
    channel.shut_down().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_load_is_applied_in_source_order() -> Result<()> {
    applies_load(ServerKind::Mariadb1011, |_| ()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_load_is_applied_in_independent_order() -> Result<()> {
    applies_load(ServerKind::Mariadb1011, |options| options.commit_order = CommitOrder::Independent).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_load_is_applied_in_source_order() -> Result<()> {
    applies_load(ServerKind::Mysql97, |_| ()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_load_is_applied_in_independent_order() -> Result<()> {
    applies_load(ServerKind::Mysql97, |options| options.commit_order = CommitOrder::Independent).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_load_is_applied_under_the_sources_gtids() -> Result<()> {
    applies_load(ServerKind::Mysql97, |options| options.gtid = GtidMode::Preserve).await
}
