//! Other clients use the target: they hold locks, cause deadlocks, or make the target read-only.

use std::time::Duration;

use anyhow::{Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::ChannelState;
use tailwater_sandbox::ServerKind;
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use super::{TALLY, Tally, in_time, kinds, until};
use crate::channel_test_servers::Rig;

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
        // This client ignores a deadlock with the applier, and the timeout of its own lock wait.
        let _ = other.query(&format!("SELECT * FROM {held} FOR UPDATE")).await;
        // Hold the lock for longer than the lock wait timeout.
        tokio::time::sleep(Duration::from_millis(1300)).await;
        other.execute("ROLLBACK").await?;
    }
    let transactions = load.stop().await?;
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    rig.ensure_equal(TALLY).await?;
    Tally::ensure_counted(&rig.target, transactions).await?;
    a_deadlock_is_met(&rig, &channel).await?;
    channel.shut_down().await;
    Ok(())
}

/// The channel and another client deadlock. The other client has changed more rows, so the target rolls the
/// channel's transaction back.
async fn a_deadlock_is_met(rig: &Rig, channel: &Channel) -> Result<()> {
    rig.source.sql("CREATE TABLE tally.knot (id INT PRIMARY KEY, n INT NOT NULL)").await?;
    let rows: Vec<_> = (1..=200).map(|id| format!("({id},0)")).collect();
    rig.source.sql(&format!("INSERT INTO tally.knot VALUES {}", rows.join(","))).await?;
    channel.resume(None).await?;
    rig.wait_applied(channel).await?;
    let met = deadlocks(rig).await?;
    let mut other = Connection::connect(&rig.target.connect_options()).await?;
    other.execute("SET innodb_lock_wait_timeout=50").await?;
    other.execute("BEGIN").await?;
    other.execute("UPDATE tally.knot SET n=7 WHERE id >= 2").await?;
    rig.source
        .sql("BEGIN; UPDATE tally.knot SET n=n+1 WHERE id=1; UPDATE tally.knot SET n=n+1 WHERE id=2; COMMIT")
        .await?;
    // Wait until the channel has locked the first row. The channel then waits for the second row.
    let has_first = async {
        loop {
            let held =
                "SET innodb_lock_wait_timeout=1; SELECT id FROM tally.knot WHERE id=1 FOR UPDATE SKIP LOCKED";
            if rig.target.sql(held).await?.is_empty() {
                return Ok(());
            }
        }
    };
    in_time("the channel locks the first row", has_first).await?;
    // The client gets this row only if the channel releases it.
    other.execute("UPDATE tally.knot SET n=7 WHERE id=1").await?;
    ensure!(deadlocks(rig).await? > met, "the target reports no new deadlock");
    other.execute("ROLLBACK").await?;
    rig.wait_applied(channel).await?;
    channel.pause().await?;
    rig.ensure_equal(TALLY).await
}

/// Returns the number of deadlocks on the target.
async fn deadlocks(rig: &Rig) -> Result<u64> {
    let sql = match rig.target.kind().flavour() {
        Flavour::MySql => "SELECT count FROM information_schema.innodb_metrics WHERE name='lock_deadlocks'",
        Flavour::MariaDb => {
            "SELECT variable_value FROM information_schema.global_status WHERE variable_name='INNODB_DEADLOCKS'"
        }
    };
    Ok(rig.target.sql(sql).await?.concat().parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_for_locks_of_other_clients() -> Result<()> {
    for kind in kinds() {
        locks_are_waited_for(*kind).await?;
    }
    Ok(())
}

/// Returns the privileges to apply rows of one database and to set the applied GTIDs. These privileges do not
/// allow writes to a read-only server.
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
    // The test account has only these privileges, because privileged accounts may write to a read-only
    // server.
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
            ensure!(found.state == ChannelState::Connecting, "wrong fault of the channel: {:?}", found.fault);
            Ok(())
        };
        in_time("the target refuses to write", waits).await?;
        rig.target.sql("SET GLOBAL read_only=0").await?;
        rig.wait_applied(&channel).await?;
        // Make the target read-only again, during the load.
        rig.target.sql("SET GLOBAL read_only=1").await?;
    }
    rig.target.sql("SET GLOBAL read_only=0").await?;
    let transactions = load.stop().await?;
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    rig.ensure_equal(TALLY).await?;
    Tally::ensure_counted(&rig.target, transactions).await?;
    // The account may set the applied GTIDs.
    let position = match kind.flavour() {
        Flavour::MySql => "SELECT @@GLOBAL.gtid_executed <> ''",
        Flavour::MariaDb => "SELECT @@GLOBAL.gtid_slave_pos <> ''",
    };
    ensure!(rig.target.sql(position).await? == ["1"], "the applied GTIDs were not set on the target");
    table_swaps_need_process_privilege(&rig, &channel).await?;
    channel.shut_down().await;
    Ok(())
}

/// Only the table IDs show whether a statement that swaps tables has run, and reading the IDs needs the
/// PROCESS privilege.
async fn table_swaps_need_process_privilege(rig: &Rig, channel: &Channel) -> Result<()> {
    rig.source
        .sql(
            "CREATE TABLE tally.whole (id INT, k INT); INSERT INTO tally.whole VALUES (1,1); \
             CREATE TABLE tally.parts (id INT, k INT) PARTITION BY HASH (k) PARTITIONS 2; INSERT INTO tally.parts VALUES (2,1); \
             ALTER TABLE tally.parts EXCHANGE PARTITION p1 WITH TABLE tally.whole",
        )
        .await?;
    channel.resume(None).await?;
    let fault = rig.wait_failed(channel).await?;
    ensure!(
        fault.code == "TW-APP-0005" && fault.message.contains("GRANT PROCESS"),
        "wrong fault of the channel: {fault:?}"
    );
    ensure!(
        rig.target.sql("SELECT id FROM tally.whole").await? == ["1"],
        "the statement ran without the PROCESS privilege"
    );
    rig.target.sql("SET sql_log_bin=0; GRANT PROCESS ON *.* TO applier@'%'").await?;
    channel.resume(None).await?;
    rig.wait_applied(channel).await?;
    ensure!(
        rig.target.sql("SELECT id FROM tally.whole").await? == ["2"],
        "the statement must run after the GRANT"
    );
    channel.pause().await?;
    rig.ensure_equal(TALLY).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_target_becomes_writable() -> Result<()> {
    a_target_becomes_writable(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_target_becomes_writable() -> Result<()> {
    a_target_becomes_writable(ServerKind::Mysql97).await
}

/// A channel that stops does not wait for a statement of an earlier connection, which may run for days.
async fn stop_does_not_wait_for_an_earlier_statement(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let channel = rig.channel(rig.options("hasty"));
    rig.source.sql("CREATE DATABASE busy").await?;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    let mut predecessor = Connection::connect(&rig.target.connect_options()).await?;
    // The target may need time to notice that the earlier client has disconnected.
    let got = predecessor.query("SELECT GET_LOCK('tailwater.hasty', 60)").await?;
    ensure!(got.scalar() == Some("1"), "the test cannot get the lock of the earlier connection");
    let channel = rig.channel(rig.options("hasty"));
    rig.source.sql("CREATE TABLE busy.t (id INT PRIMARY KEY); INSERT INTO busy.t VALUES (1)").await?;
    let waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE state='User lock'";
    for _ in 0..2 {
        until(&rig.target, waits, "1").await?;
        in_time("the channel stops", async { Ok(channel.pause().await?) }).await?;
        let status = channel.status().borrow().clone();
        ensure!(
            status.state == ChannelState::Stopped && status.fault.is_none(),
            "wrong status of the channel: {status:?}"
        );
        ensure!(
            rig.target.sql("SHOW TABLES IN busy").await?.is_empty(),
            "the statement ran although an earlier connection still holds the lock"
        );
        channel.resume(None).await?;
    }
    until(&rig.target, waits, "1").await?;
    // A newer process may have taken the channel over and hold the lock. In that case the channel must not
    // wait for the lock.
    rig.target.sql("UPDATE tailwater.apply_channel SET incarnation=incarnation+1").await?;
    let fault = rig.wait_failed(&channel).await?;
    ensure!(fault.code == "TW-APP-0007", "wrong fault of the channel: {fault:?}");
    channel.resume(None).await?;
    until(&rig.target, waits, "1").await?;
    predecessor.execute("DO RELEASE_LOCK('tailwater.hasty')").await?;
    rig.wait_applied(&channel).await?;
    rig.ensure_equal(&["busy"]).await?;
    channel.shut_down().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_stop_does_not_wait_for_an_earlier_statement() -> Result<()> {
    stop_does_not_wait_for_an_earlier_statement(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_stop_does_not_wait_for_an_earlier_statement() -> Result<()> {
    stop_does_not_wait_for_an_earlier_statement(ServerKind::Mysql97).await
}
