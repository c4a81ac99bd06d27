//! Transactions and rows that are larger than the memory budget.
//! `crates/tailwater/tests/apply/large_transactions.rs` measures the memory used.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_apply::channel::{ChannelOptions, ChannelState};
use tailwater_sandbox::ServerKind;
use tailwater_session::Connection;

use super::{Applier, in_time, is_long, kinds};
use crate::channel_test_servers::Rig;

const PACKET: &str = "--max-allowed-packet=1G";

/// Returns the number of bytes that a server has received from clients.
async fn received(connection: &mut Connection) -> Result<u64> {
    let status = connection.query("SHOW GLOBAL STATUS LIKE 'Bytes_received'").await?;
    status.first().and_then(|row| row.get_u64(1)).context("Bytes_received must be a number")
}

/// A transaction of `2^doublings` rows of 100 kB each is streamed. The applier is killed in the middle of the
/// transaction.
async fn streamed(kind: ServerKind, doublings: u32) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[PACKET], &[PACKET]).await? else { return Ok(()) };
    rig.source
        .sql("CREATE DATABASE large; CREATE TABLE large.t (id INT AUTO_INCREMENT PRIMARY KEY, body LONGTEXT)")
        .await?;
    let double =
        "INSERT INTO large.t (body) SELECT CONCAT(id, body) FROM large.t;".repeat(doublings as usize);
    let fill = format!("BEGIN; INSERT INTO large.t (body) VALUES (REPEAT('b', 100000)); {double} COMMIT");
    rig.source.sql(&fill).await?;
    let options = ChannelOptions { transaction_bytes_max: 1 << 20, ..rig.options("large") };
    let mut watcher = Connection::connect(&rig.target.connect_options()).await?;
    for _ in 0..if is_long() { 4 } else { 1 } {
        let received_before = received(&mut watcher).await?;
        let applier = Applier::start(options.clone(), &rig)?;
        let status = applier.channel.status();
        let midway = async {
            loop {
                if received(&mut watcher).await? > received_before + (5 << 20) {
                    return Ok(());
                }
                ensure!(
                    status.borrow().state != ChannelState::Failed,
                    "wrong fault of the channel: {:?}",
                    status.borrow().fault
                );
                ensure!(
                    status.borrow().transactions_total < 3,
                    "the transaction was applied before the applier could be killed"
                );
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        in_time("rows arrive on the target", midway).await?;
        applier.kill();
        ensure!(
            rig.target.sql("SELECT COUNT(*) FROM large.t").await? == ["0"],
            "a part of the transaction is committed"
        );
    }
    let applier = Applier::start(options, &rig)?;
    rig.wait_applied(&applier.channel).await?;
    applier.channel.pause().await?;
    rig.ensure_equal(&["large"]).await?;
    applier.end().await;
    Ok(())
}

fn doublings() -> u32 {
    // 2^8 rows are 26 MB; in a long test run, 2^11 rows are 205 MB.
    if is_long() { 11 } else { 8 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_transactions_are_streamed() -> Result<()> {
    for kind in kinds() {
        streamed(*kind, doublings()).await?;
    }
    Ok(())
}

/// A row is larger than the memory budget. The channel applies it alone and together with other rows.
async fn wide(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[PACKET], &[PACKET]).await? else { return Ok(()) };
    let bytes = if is_long() { 64 << 20 } else { 16 << 20 };
    let options =
        ChannelOptions { transaction_bytes_max: 1 << 20, memory_bytes_max: 4 << 20, ..rig.options("wide") };
    let channel = rig.channel(options);
    rig.source
        .sql(&format!(
            "CREATE DATABASE wide; CREATE TABLE wide.t (id INT PRIMARY KEY, body LONGBLOB, n INT); \
             INSERT INTO wide.t VALUES (1, 'a', 1); INSERT INTO wide.t VALUES (2, REPEAT('x', {bytes}), 2); \
             BEGIN; INSERT INTO wide.t VALUES (3, 'c', 3); UPDATE wide.t SET body=CONCAT(id, body); COMMIT; \
             DELETE FROM wide.t WHERE id=2"
        ))
        .await?;
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    rig.ensure_equal(&["wide"]).await?;
    channel.shut_down().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wide_rows_are_applied() -> Result<()> {
    for kind in kinds() {
        wide(*kind).await?;
    }
    Ok(())
}

/// If the reader fails in the middle of a transaction, the channel reports the reader's error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_in_a_streamed_transaction_is_reported() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let options = ChannelOptions { transaction_bytes_max: 150, ..rig.options("refused") };
    let channel = rig.channel(options);
    rig.source
        .sql("CREATE DATABASE large; CREATE TABLE large.t (id INT PRIMARY KEY); CREATE TABLE large.u LIKE large.t")
        .await?;
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    rig.target.sql("SET sql_log_bin=0; RENAME TABLE large.u TO large.v").await?;
    rig.source
        .sql("BEGIN; INSERT INTO large.t VALUES (1),(2); INSERT INTO large.u VALUES (3); COMMIT")
        .await?;
    channel.resume(None).await?;
    let fault = rig.wait_failed(&channel).await?;
    ensure!(fault.message.contains("large.u"), "wrong fault of the channel: {fault:?}");
    ensure!(
        rig.target.sql("SELECT COUNT(*) FROM large.t").await? == ["0"],
        "a part of the transaction is committed"
    );
    rig.target.sql("SET sql_log_bin=0; RENAME TABLE large.v TO large.u").await?;
    channel.resume(None).await?;
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    rig.ensure_equal(&["large"]).await?;
    channel.shut_down().await;
    Ok(())
}
