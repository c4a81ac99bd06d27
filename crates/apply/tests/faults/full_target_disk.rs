//! If the target's disk is full, the channel retries until there is room.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{ChannelFault, ChannelOptions, ChannelState, GtidMode};
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::{FullDisk, ServerKind, ServerSpec};

use super::in_time;
use crate::channel_test_servers::{Rig, spec};

/// Waits until the target rejects a write and the channel retries.
async fn refused(channel: &Channel) -> Result<ChannelFault> {
    let mut status = channel.status();
    let full = async {
        let is_refused = |state| !matches!(state, ChannelState::Running | ChannelState::Stopped);
        let found =
            status.wait_for(|status| is_refused(status.state) && status.fault.is_some()).await?.clone();
        ensure!(found.state == ChannelState::Connecting, "wrong fault of the channel: {:?}", found.fault);
        Ok(found.fault)
    };
    let fault = in_time("the channel reports that the target's disk is full", full).await?;
    fault.ok_or_else(|| anyhow::anyhow!("the channel reports no fault"))
}

/// The files of the target cannot grow, so the target rejects writes or crashes. Later its files can grow
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applies_once_a_full_disk_has_room() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    let target: ServerSpec = spec(kind, 2).option("--innodb-log-file-size=8M").file_kib_max(24 << 10);
    let Some(mut rig) = Rig::start_specs(spec(kind, 1), target).await? else { return Ok(()) };
    let channel = rig.channel(rig.options("full"));
    let grow = "INSERT INTO roomy.t (body) SELECT REPEAT('b', 60000) FROM roomy.seq_1_to_100;".repeat(6);
    let create =
        "CREATE DATABASE roomy; CREATE TABLE roomy.t (id INT AUTO_INCREMENT PRIMARY KEY, body LONGTEXT);";
    rig.source.sql(&format!("{create} {grow}")).await?;
    eprintln!("full: {:?}", refused(&channel).await?);
    // The target may have crashed.
    rig.target.kill_if_running().await?;
    rig.target.set_file_kib_max(None);
    rig.target.start_again().await?;
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    rig.ensure_equal(&["roomy"]).await?;
    channel.shut_down().await;
    Ok(())
}

/// Starts a target whose disk can be filled. Returns `None` without a C compiler or without the servers.
async fn on_a_disk(kind: ServerKind, folder: &Path) -> Result<Option<(FullDisk, Rig)>> {
    if !FullDisk::is_possible() {
        // This code does not use `eprintln!`, because the test harness hides the output of `eprintln!` for
        // tests that pass.
        let _ = writeln!(std::io::stderr(), "SKIPPED a full disk of {kind}: no C compiler (package gcc)");
        return Ok(None);
    }
    let disk = FullDisk::compile(folder)?;
    let target = spec(kind, 2).environment([disk.environment()]);
    let rig = Rig::start_specs(spec(kind, 1), target).await?;
    Ok(rig.map(|rig| (disk, rig)))
}

/// The target keeps running, but its files cannot grow, so it rejects rows and DDL statements. Later the
/// files can grow again.
async fn a_disk_fills_up(kind: ServerKind) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let Some((disk, rig)) = on_a_disk(kind, folder.path()).await? else { return Ok(()) };
    let channel = rig.channel(rig.options("full"));
    let numbers: Vec<_> = (1..=100).map(|n| format!("({n})")).collect();
    rig.source
        .sql(&format!(
            "CREATE DATABASE roomy; CREATE TABLE roomy.numbers (n INT PRIMARY KEY); \
             INSERT INTO roomy.numbers VALUES {}; \
             CREATE TABLE roomy.t (id INT AUTO_INCREMENT PRIMARY KEY, body LONGTEXT)",
            numbers.join(",")
        ))
        .await?;
    rig.wait_applied(&channel).await?;
    let grow = "INSERT INTO roomy.t (body) SELECT REPEAT('b', 60000) FROM roomy.numbers";
    let make = "CREATE TABLE roomy.made (id INT PRIMARY KEY) AS SELECT n AS id FROM roomy.numbers";
    for changes in [grow, make] {
        disk.fill()?;
        rig.source.sql(changes).await?;
        let fault = refused(&channel).await?;
        eprintln!("{kind}: the target's disk is full, and the channel reports {fault:?}");
        disk.make_room()?;
        rig.wait_applied(&channel).await?;
    }
    channel.pause().await?;
    rig.ensure_equal(&["roomy"]).await?;
    channel.shut_down().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_disk_fills_up() -> Result<()> {
    a_disk_fills_up(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_disk_fills_up() -> Result<()> {
    a_disk_fills_up(ServerKind::Mysql97).await
}

/// Existing rows are updated in place, so only the target's binlog cannot grow. The server then waits for
/// space, one minute at a time, and the channel waits for the server.
async fn target_binlog_fills_up(kind: ServerKind) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let Some((disk, rig)) = on_a_disk(kind, folder.path()).await? else { return Ok(()) };
    let channel = rig.channel(ChannelOptions { gtid: GtidMode::Own, ..rig.options("logged") });
    rig.source
        .sql(
            "CREATE DATABASE roomy; CREATE TABLE roomy.t (id INT PRIMARY KEY, n INT NOT NULL); \
             INSERT INTO roomy.t VALUES (1, 0), (2, 0), (3, 0)",
        )
        .await?;
    rig.wait_applied(&channel).await?;
    let logged = logged_bytes(&rig).await?;
    disk.fill()?;
    rig.source.sql(&"UPDATE roomy.t SET n = n + id;".repeat(20)).await?;
    // The target applies rows until its existing files are full. Wait until the target makes no more
    // progress.
    let waits_for_space = async {
        let mut before = channel.status().borrow().transactions_total;
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let now = channel.status().borrow().transactions_total;
            if now == before {
                return Ok(());
            }
            before = now;
        }
    };
    in_time("the channel makes no more progress because the target's binlog cannot grow", waits_for_space)
        .await?;
    let all = tokio::time::timeout(Duration::from_secs(1), rig.wait_applied(&channel)).await;
    ensure!(all.is_err(), "the target's disk had room for all rows, so it was never full");
    disk.make_room()?;
    rig.wait_applied(&channel).await?;
    ensure!(logged_bytes(&rig).await? > logged, "the target must log the applied rows");
    channel.pause().await?;
    rig.ensure_equal(&["roomy"]).await?;
    channel.shut_down().await;
    Ok(())
}

/// Returns the size of the target's binlog, in bytes.
async fn logged_bytes(rig: &Rig) -> Result<u64> {
    let sizes = rig.target.sql("SHOW BINARY LOGS").await?;
    let size = |line: &String| line.split_whitespace().nth(1).and_then(|size| size.parse::<u64>().ok());
    Ok(sizes.iter().filter_map(size).sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_target_binlog_fills_up() -> Result<()> {
    target_binlog_fills_up(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_target_binlog_fills_up() -> Result<()> {
    if is_skipped_in_ci("mysql_target_binlog_fills_up", "the same test on MariaDB") {
        return Ok(());
    }
    target_binlog_fills_up(ServerKind::Mysql97).await
}
