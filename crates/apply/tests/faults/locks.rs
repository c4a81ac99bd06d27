//! Others on the target: locks, a target that may only be read, a full disk.

use std::time::Duration;

use anyhow::{Result, ensure};
use tailwater_apply::channel::ChannelState;
use tailwater_sandbox::{ServerKind, ServerSpec};
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use super::{TALLY, Tally, in_time, kinds, until};
use crate::support::{Rig, spec};

async fn locks_are_waited_for(kind: ServerKind) -> Result<()> {
    let options = ["--innodb-lock-wait-timeout=1"];
    let Some(rig) = Rig::start(kind, &[], &options).await? else { return Ok(()) };
    Tally::prepare(&rig.source).await?;
    let channel = rig.channel(rig.options("locked"));
    rig.wait_applied(&channel).await?;
    let load = Tally::start(&rig.source, 4, 7);
    let mut other = Connection::connect(&rig.target.connect_options()).await?;
    for held in ["tally.hot", "tally.cold", "tailwater.apply_progress", "tailwater.apply_channel"] {
        other.execute("BEGIN").await?;
        // A deadlock with the applier, or its own lock wait, is nothing to this client.
        let _ = other.query(&format!("SELECT * FROM {held} FOR UPDATE")).await;
        // Longer than a lock is waited for.
        tokio::time::sleep(Duration::from_millis(1300)).await;
        other.execute("ROLLBACK").await?;
    }
    let transactions = load.stop().await?;
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    rig.ensure_equal(TALLY).await?;
    Tally::ensure_counted(&rig.target, transactions).await?;
    channel.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_others_are_waited_for() -> Result<()> {
    for kind in kinds() {
        locks_are_waited_for(*kind).await?;
    }
    Ok(())
}

/// What an account needs to apply rows of one database, and to publish GTIDs, but not to write to a read-only server.
fn account(flavour: Flavour) -> String {
    let global = match flavour {
        Flavour::MySql => "REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN, SYSTEM_VARIABLES_ADMIN",
        Flavour::MariaDb => "BINLOG REPLAY, BINLOG ADMIN, REPLICATION SLAVE ADMIN",
    };
    format!(
        "SET sql_log_bin=0; CREATE USER applier@'%' IDENTIFIED BY 'apply'; GRANT {global} ON *.* TO applier@'%'; \
         GRANT ALL ON tailwater.* TO applier@'%'; GRANT ALL ON tally.* TO applier@'%'"
    )
}

async fn a_target_becomes_writable(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    // Read-only is for those only who may not write all the same.
    rig.target.sql(&account(kind.flavour())).await?;
    rig.target.sql("SET GLOBAL read_only=1").await?;
    let mut options = rig.options("patient");
    options.target.user = "applier".into();
    options.target = options.target.password("apply");
    let channel = rig.channel(options);
    Tally::prepare(&rig.source).await?;
    let load = Tally::start(&rig.source, 3, 7);
    let mut status = channel.status();
    let is_refused = |code: &str, message: &str| code == "TW-SES-0009" && message.contains("1290");
    for _ in 0..2 {
        let waits = async {
            let found = status.wait_for(|status| {
                status.state == ChannelState::Failed
                    || status.fault.as_ref().is_some_and(|fault| is_refused(&fault.code, &fault.message))
            });
            let found = found.await?;
            ensure!(found.state == ChannelState::Connecting, "{:?}", found.fault);
            Ok(())
        };
        in_time("the target refuses", waits).await?;
        rig.target.sql("SET GLOBAL read_only=0").await?;
        rig.wait_applied(&channel).await?;
        // Once more, in the midst of it.
        rig.target.sql("SET GLOBAL read_only=1").await?;
    }
    rig.target.sql("SET GLOBAL read_only=0").await?;
    let transactions = load.stop().await?;
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    rig.ensure_equal(TALLY).await?;
    Tally::ensure_counted(&rig.target, transactions).await?;
    // The account may publish what was applied.
    let position = match kind.flavour() {
        Flavour::MySql => "SELECT @@GLOBAL.gtid_executed <> ''",
        Flavour::MariaDb => "SELECT @@GLOBAL.gtid_slave_pos <> ''",
    };
    ensure!(rig.target.sql(position).await? == ["1"], "no GTIDs were published");
    channel.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_target_becomes_writable() -> Result<()> {
    a_target_becomes_writable(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_target_becomes_writable() -> Result<()> {
    a_target_becomes_writable(ServerKind::Mysql97).await
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
    let mut status = channel.status();
    let full = async {
        let found = status.wait_for(|status| status.state != ChannelState::Running && status.fault.is_some());
        let found = found.await?;
        ensure!(found.state == ChannelState::Connecting, "{:?}", found.fault);
        Ok(found.fault.clone())
    };
    let fault = in_time("the disk is full", full).await?;
    eprintln!("full: {fault:?}");
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

/// A predecessor's statement may take days; who is told to stop does not wait for it.
async fn a_stop_is_heard(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let channel = rig.channel(rig.options("hasty"));
    rig.source.sql("CREATE DATABASE busy").await?;
    rig.wait_applied(&channel).await?;
    channel.end().await;
    let mut predecessor = Connection::connect(&rig.target.connect_options()).await?;
    // The target may take its time to see that the one before has gone.
    let got = predecessor.query("SELECT GET_LOCK('tailwater.hasty', 60)").await?;
    ensure!(got.scalar() == Some("1"), "the lock is not to be had");
    let channel = rig.channel(rig.options("hasty"));
    rig.source.sql("CREATE TABLE busy.t (id INT PRIMARY KEY); INSERT INTO busy.t VALUES (1)").await?;
    let waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE state='User lock'";
    for _ in 0..2 {
        until(&rig.target, waits, "1").await?;
        in_time("it stops", async { Ok(channel.pause().await?) }).await?;
        let status = channel.status().borrow().clone();
        ensure!(status.state == ChannelState::Stopped && status.fault.is_none(), "{status:?}");
        ensure!(rig.target.sql("SHOW TABLES IN busy").await?.is_empty(), "it ran beside its predecessor");
        channel.resume(None).await?;
    }
    until(&rig.target, waits, "1").await?;
    // Whoever holds the lock may have come later: it is not waited for.
    rig.target.sql("UPDATE tailwater.apply_channel SET incarnation=incarnation+1").await?;
    let fault = rig.wait_failed(&channel).await?;
    ensure!(fault.code == "TW-APP-0007", "{fault:?}");
    channel.resume(None).await?;
    until(&rig.target, waits, "1").await?;
    predecessor.execute("DO RELEASE_LOCK('tailwater.hasty')").await?;
    rig.wait_applied(&channel).await?;
    rig.ensure_equal(&["busy"]).await?;
    channel.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_heard_while_mariadb_runs_a_statement_of_before() -> Result<()> {
    a_stop_is_heard(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_heard_while_mysql_runs_a_statement_of_before() -> Result<()> {
    a_stop_is_heard(ServerKind::Mysql97).await
}
