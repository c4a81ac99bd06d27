//! A target whose disk is full: refused is tried again, until there is room.

use std::io::Write;

use anyhow::{Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{ChannelFault, ChannelState};
use tailwater_sandbox::{FullDisk, ServerKind, ServerSpec};

use super::in_time;
use crate::support::{Rig, spec};

/// Waits until the target refuses something, and the channel goes on trying.
async fn refused(channel: &Channel) -> Result<ChannelFault> {
    let mut status = channel.status();
    let full = async {
        let is_refused = |state| !matches!(state, ChannelState::Running | ChannelState::Stopped);
        let found =
            status.wait_for(|status| is_refused(status.state) && status.fault.is_some()).await?.clone();
        ensure!(found.state == ChannelState::Connecting, "{:?}", found.fault);
        Ok(found.fault)
    };
    let fault = in_time("the disk is full", full).await?;
    fault.ok_or_else(|| anyhow::anyhow!("it does not say why"))
}

/// Files of the target may not grow, which it refuses or falls over; then they may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_gets_room() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    let target: ServerSpec = spec(kind, 2).option("--innodb-log-file-size=8M").file_kib_max(24 << 10);
    let Some(mut rig) = Rig::start_specs(spec(kind, 1), target).await? else { return Ok(()) };
    let channel = rig.channel(rig.options("full"));
    let grow = "INSERT INTO roomy.t (body) SELECT REPEAT('b', 60000) FROM roomy.seq_1_to_100;".repeat(6);
    let create =
        "CREATE DATABASE roomy; CREATE TABLE roomy.t (id INT AUTO_INCREMENT PRIMARY KEY, body LONGTEXT);";
    rig.source.sql(&format!("{create} {grow}")).await?;
    eprintln!("full: {:?}", refused(&channel).await?);
    // It may have given up by itself.
    if rig.target.is_running() {
        rig.target.kill().await?;
    }
    rig.target.set_file_kib_max(None);
    rig.target.start_again().await?;
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    rig.ensure_equal(&["roomy"]).await?;
    channel.end().await;
    Ok(())
}

/// Nothing grows any more while the target goes on running: neither rows nor definitions find room, and then they do.
async fn a_disk_fills_up(kind: ServerKind) -> Result<()> {
    if !FullDisk::is_possible() {
        // Not `eprintln!`, whose output the test harness hides for tests that pass.
        let _ = writeln!(std::io::stderr(), "SKIPPED a full disk of {kind}: no C compiler (package gcc)");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let disk = FullDisk::compile(folder.path())?;
    let target = spec(kind, 2).environment([disk.environment()]);
    let Some(rig) = Rig::start_specs(spec(kind, 1), target).await? else { return Ok(()) };
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
        eprintln!("{kind}: full: {fault:?}");
        disk.make_room()?;
        rig.wait_applied(&channel).await?;
    }
    channel.pause().await?;
    rig.ensure_equal(&["roomy"]).await?;
    channel.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_of_mariadb_fills_up() -> Result<()> {
    a_disk_fills_up(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_of_mysql_fills_up() -> Result<()> {
    a_disk_fills_up(ServerKind::Mysql97).await
}
