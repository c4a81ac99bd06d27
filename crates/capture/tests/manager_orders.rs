//! Captures that receive orders to stop, to start and to follow another server, and the effects on servers
//! and replicas.

use std::collections::BTreeMap;
use std::mem;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tailwater_capture::persisted_manager_orders::{AckerState, OrderNumber};
use tailwater_capture::{CaptureAcker, CaptureError, CaptureState};
use tailwater_log::LogDir;
use tailwater_sandbox::{BinlogCheck, Server, ServerKind};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use crate::binlog_server_with_replicas::{
    Tailwater, check_equal, start_replica, status_variable, written_by,
};
use crate::capture_test_source::{PATIENCE, Running, Source, run, wait_until_acknowledged};

/// The name of a semi-sync variable: `rpl_semi_sync_source_...` on MySQL, `rpl_semi_sync_master_...` on
/// MariaDB.
fn semi_sync(flavour: Flavour, mysql: &str, mariadb: &str) -> String {
    match flavour {
        Flavour::MySql => format!("rpl_semi_sync_source_{mysql}"),
        Flavour::MariaDb => format!("rpl_semi_sync_master_{mariadb}"),
    }
}

/// Waits until a commit on the server waits for an ACK. Later commits wait for this commit.
async fn until_waiting(server: &Server) -> Result<()> {
    let name = semi_sync(server.kind().flavour(), "wait_sessions", "wait_sessions");
    let begin = Instant::now();
    loop {
        let waiting = status_variable(server, &name).await?;
        if waiting != "0" {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "no commit on the server waits for an ACK");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The number of streams that read the server's binlog.
async fn streams(server: &Server) -> Result<usize> {
    let sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'";
    Ok(server.sql(sql).await?.concat().parse()?)
}

fn code<T: std::fmt::Debug>(result: Result<T, CaptureError>) -> Result<&'static str> {
    match result {
        Ok(state) => bail!("an order that must be refused was executed: {state:?}"),
        Err(error) => Ok(error.code()),
    }
}

/// Checks that every commit that was acknowledged to a client is in the log. The log may also have commits
/// that are still in progress.
fn check_acknowledged_commits(source: &Source) -> Result<()> {
    let mut check = BinlogCheck::new(&source.ledger, source.flavour());
    for segment in LogDir::open_read_only(&source.log("log"))?.segments()? {
        check.file(&segment.path)?;
    }
    let report = check.finish();
    ensure!(
        report.missing_in_log.count == 0 && report.acknowledged > 0,
        "the log lacks acknowledged commits, or no commit was acknowledged: {report:?}"
    );
    Ok(())
}

/// An order to stop the capture blocks the commits of the source. Commits continue only after an order to
/// start. If the lease term of the order to start is earlier than that of the order to stop, it is refused.
async fn stops_permanently(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start_waiting(kind, &[]).await? else { return Ok(()) };
    let options = source.options("log", 94);
    let capture = Running::start(options.clone())?;
    let acker = capture.acker();
    source.prepare().await?;
    source.write(20).await?;

    // Stop the capture while clients write. Every acknowledged commit is in the log, and no further commit is
    // acknowledged.
    let load = source.load(6, None);
    wait_until_acknowledged(&load, 60).await?;
    let stopped = acker.stop(5).await?;
    let acks = capture.status.snapshot().acks;
    ensure!(
        stopped.orders.stopped.is_some_and(|stop| stop.token == 5) && stopped.durable,
        "the order did not stop the capture, or its ACKs are not durable: {stopped:?}"
    );
    until_waiting(&source.server).await?;
    ensure!(capture.status.snapshot().acks == acks);
    check_acknowledged_commits(&source)?;
    // The source notices at its next heartbeat that the stream has ended.
    let begin = Instant::now();
    while streams(&source.server).await? > 0 {
        ensure!(begin.elapsed() < PATIENCE, "the source still serves the stream of the stopped capture");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(code(acker.start(4).await)? == "TW-RELAY-0015");
    ensure!(code(acker.stop(4).await)? == "TW-RELAY-0015");
    ensure!(code(acker.follow(6, "nobody", PATIENCE).await)? == "TW-RELAY-0016");
    ensure!(acker.read()? == stopped, "the orders to the capture have changed: {:?}", acker.read()?);
    // After a second order to stop, the recorded stop time is still that of the first order.
    let again = acker.stop(6).await?;
    ensure!(
        again.orders.stopped.map(|stop| stop.since_ms) == stopped.orders.stopped.map(|stop| stop.since_ms)
    );

    // Orders of an earlier failover of the same lease term are refused, and do not interrupt the capture. An
    // order by hand has no number.
    let run = |run| OrderNumber { token: 6, run: Some(run) };
    let again_in_run_2 = acker.stop(run(2)).await?;
    ensure!(again_in_run_2.orders.run == 2 && again_in_run_2.orders.stopped == again.orders.stopped);
    ensure!(code(acker.start(run(1)).await)? == "TW-RELAY-0015");
    ensure!(code(acker.follow(run(1), "log", PATIENCE).await)? == "TW-RELAY-0015");
    ensure!(acker.stop(6).await? == again_in_run_2 && acker.stop(run(2)).await? == again_in_run_2);
    let again = again_in_run_2;

    // After a restart or a crash, the order to stop is still in force, and the capture does not even connect.
    capture.stop().await?;
    let capture = Running::start(options.clone())?;
    let acker = capture.acker();
    ensure!(code(acker.start(5).await)? == "TW-RELAY-0015");
    ensure!(code(acker.start(run(1)).await)? == "TW-RELAY-0015");
    ensure!(acker.stop(6).await? == again);
    ensure!(matches!(capture.status.snapshot().state, CaptureState::StoppedByOrder(stop) if stop.token == 6));
    ensure!(capture.status.snapshot().connections == 0 && streams(&source.server).await? == 0);
    ensure!(acker.read()? == again, "the orders to the capture have changed: {:?}", acker.read()?);
    until_waiting(&source.server).await?;
    ensure!(capture.status.snapshot().acks == 0);
    check_acknowledged_commits(&source)?;

    acker.start(7).await?;
    wait_until_acknowledged(&load, 30).await?;
    // The capture executes the order in time even if the source does not answer.
    source.server.pause()?;
    acker.start(7).await?;
    let held = acker.stop(8).await?;
    source.server.resume()?;
    until_waiting(&source.server).await?;
    ensure!(acker.read()? == held);
    acker.start(8).await?;
    wait_until_acknowledged(&load, 10).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "the test clients had errors: {:?}", report.errors);
    source.check_complete("log").await?;
    source.check_ledger("log")?;
    let held = acker.read()?.holds.context("the log is empty")?;
    let written = GtidSet::parse(source.flavour(), &written_by(&source.server).await?)?;
    ensure!(held == written, "the log has the GTIDs {held}, but the source has {written}");

    stop_does_not_fence_an_asynchronous_source(&mut source, &acker).await?;
    source.check_complete("log").await?;
    capture.stop().await
}

/// Some sources do not wait for ACKs while no acker is connected. Stopping the capture does not fence such a
/// source: its setting must be changed first.
async fn stop_does_not_fence_an_asynchronous_source(source: &mut Source, acker: &CaptureAcker) -> Result<()> {
    let wait = semi_sync(source.flavour(), "wait_no_replica", "wait_no_slave");
    source.server.sql(&format!("SET GLOBAL {wait} = 0")).await?;
    acker.stop(9).await?;
    source.write(3).await?;
    ensure!(source.server.semi_sync_status().await?.unacknowledged > 0);
    // The source waits for ACKs again when an acker is connected.
    source.server.sql(&format!("SET GLOBAL {wait} = 1")).await?;
    acker.start(9).await?;
    let begin = Instant::now();
    while !source.server.semi_sync_status().await?.on {
        ensure!(begin.elapsed() < PATIENCE, "semi-sync was not enabled again");
        source.write(1).await?;
    }
    let before = source.server.semi_sync_status().await?;
    source.write(5).await?;
    let after = source.server.semi_sync_status().await?;
    ensure!(
        after.acknowledged > before.acknowledged && after.unacknowledged == before.unacknowledged,
        "after the order to start, the source did not wait for the ACK of each commit: {after:?}"
    );
    Ok(())
}

/// A native replica of the source that can take the source's place.
async fn stand_in(source: &Source) -> Result<Server> {
    let option = match source.flavour() {
        Flavour::MySql => "--log-replica-updates",
        Flavour::MariaDb => "--log-slave-updates",
    };
    let server = start_replica(source.server.kind(), "stand-in", &[option]).await?;
    server.create_replication_user().await?;
    server.replicate_from(&source.server).await?;
    Ok(server)
}

/// Turns a replica into a source whose commits wait for an ACK.
async fn promote(server: &Server) -> Result<()> {
    let forget = match server.kind().flavour() {
        Flavour::MySql => "STOP REPLICA; RESET REPLICA ALL",
        Flavour::MariaDb => "STOP SLAVE; RESET SLAVE ALL",
    };
    server.sql(forget).await?;
    server.enable_semi_sync_source().await?;
    Ok(())
}

/// Checks that a replica receives and applies events without an error.
async fn check_healthy(replica: &Server) -> Result<()> {
    let status = replica.replica_status().await?.context("the server is not a replica")?;
    ensure!(
        status.io_running == "Yes"
            && status.sql_running == "Yes"
            && status.io_error.0 == 0
            && status.sql_error.0 == 0,
        "the replica {} does not replicate: {status:?}",
        replica.name()
    );
    Ok(())
}

/// Checks that every transaction is in the log exactly once, and that the log's files are valid.
fn check_log(source: &Source) -> Result<()> {
    let verified = LogDir::open_read_only(&source.log("log"))?.verify(|_| {})?;
    ensure!(verified.problems.is_empty(), "`verify` reports problems in the log: {:?}", verified.problems);
    source.check_ledger("log").map(drop)
}

/// After an order to follow another server, a capture continues there without a gap. Replicas of the log do
/// not notice the change. After a restart, the capture still follows this server.
async fn follows(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start_waiting(kind, &[]).await? else { return Ok(()) };
    let mut tailwater = Tailwater::of(&source)?;
    tailwater.capture.semi_sync = true;
    tailwater.capture.wait_when_refused = true;
    let stand_in = stand_in(&source).await?;
    tailwater.capture.servers = BTreeMap::from([("stand-in".to_owned(), stand_in.replication_options())]);
    tailwater.start_again().await?;
    source.prepare().await?;
    let by_gtid = start_replica(kind, "by-gtid", &[]).await?;
    by_gtid.replicate(&tailwater.replica()).await?;
    source.write(40).await?;

    // One commit of the old primary gets no ACK. The replica that becomes primary may have received this
    // commit, and may keep it.
    let acker = tailwater.running()?.acker();
    let stopped: AckerState = acker.stop(1).await?;
    let pending = source.load(1, None);
    until_waiting(&source.server).await?;
    let begin = Instant::now();
    let held = stopped.holds.context("the log is empty")?;
    loop {
        let has = GtidSet::parse(source.flavour(), &everything(&stand_in).await?)?;
        if held.is_subset_of(&has) {
            break;
        }
        ensure!(
            begin.elapsed() < PATIENCE,
            "the server that is to become primary has the GTIDs {has}, but the log has {held}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    promote(&stand_in).await?;
    let mut former = mem::replace(&mut source.server, stand_in);
    former.kill().await?;
    drop(pending.finish().await);
    acker.follow(1, "stand-in", PATIENCE).await?;
    ensure!(acker.read()?.orders.follows.as_deref() == Some("stand-in"));
    source.write(40).await?;
    let status = source.server.semi_sync_status().await?;
    ensure!(
        status.acknowledged > 0 && status.unacknowledged == 0 && status.on,
        "some commits on the new source got no ACK, or semi-sync is off: {status:?}"
    );
    check_equal(&by_gtid, &source.server, &source.ledger).await?;
    check_healthy(&by_gtid).await?;
    let files = tailwater.sql("SHOW BINARY LOGS").await?;
    ensure!(
        files.iter().any(|line| line.starts_with("binlog.e2.")),
        "SHOW BINARY LOGS lists no file of the new source: {files:?}"
    );
    check_log(&source)?;

    // After a restart the capture still follows this server.
    tailwater.stop().await?;
    tailwater.start_again().await?;
    source.write(10).await?;

    // The former primary lacks transactions of the log. The capture reports this and does not end.
    former.start_again().await?;
    let acker = tailwater.running()?.acker();
    let error = match acker.follow(2, "log", PATIENCE).await {
        Err(error @ CaptureError::NotFollowing { .. }) => error.to_string(),
        other => bail!("the order to follow the former primary was not refused: {other:?}"),
    };
    ensure!(error.contains("the source is behind the log"), "unexpected error: {error}");
    ensure!(matches!(tailwater.running()?.status.snapshot().state, CaptureState::Refused(_)));
    acker.follow(3, "stand-in", PATIENCE).await?;
    source.write(10).await?;
    check_equal(&by_gtid, &source.server, &source.ledger).await?;
    check_healthy(&by_gtid).await?;
    check_log(&source)?;

    waits_for_orders_without_the_server(&mut tailwater).await
}

/// Tests a capture whose followed server is removed from the configuration. The capture waits for new orders.
async fn waits_for_orders_without_the_server(tailwater: &mut Tailwater) -> Result<()> {
    tailwater.stop().await?;
    tailwater.capture.servers.clear();
    tailwater.open().await?;
    ensure!(code(tailwater.running()?.acker().follow(3, "stand-in", PATIENCE).await)? == "TW-RELAY-0016");
    let begin = Instant::now();
    while !matches!(&tailwater.running()?.status.snapshot().state, CaptureState::Refused(reason) if reason.contains("stand-in"))
    {
        ensure!(
            begin.elapsed() < PATIENCE,
            "unexpected state of the capture: {:?}",
            tailwater.running()?.status.snapshot().state
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tailwater.stop().await
}

/// A capture can follow a MariaDB server whose `gtid_slave_pos` was set to the position of the log, and which
/// has written no transaction itself.
async fn follows_one_set_up_at_a_position(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start(kind, &[]).await? else { return Ok(()) };
    let second = start_replica(kind, "second", &[]).await?;
    second.create_replication_user().await?;
    let mut options = source.options("log", 96);
    (options.semi_sync, options.wait_when_refused) = (false, true);
    options.servers = BTreeMap::from([("second".to_owned(), second.replication_options())]);
    let capture = Running::start(options)?;
    source.prepare().await?;
    source.write(5).await?;
    source.until_complete("log").await?;
    capture.acker().stop(1).await?;
    let position = source.server.sql("SELECT @@global.gtid_binlog_pos").await?.concat();
    second.sql(&format!("SET GLOBAL gtid_slave_pos = '{position}'")).await?;
    ensure!(written_by(&second).await?.is_empty());
    capture.acker().follow(1, "second", PATIENCE).await?;
    second.sql("CREATE DATABASE behind_it").await?;
    let begin = Instant::now();
    let newest = written_by(&second).await?;
    loop {
        let holds = capture.acker().read()?.holds.context("the log is empty")?.to_string();
        if holds.split(',').any(|gtid| gtid == newest) {
            break;
        }
        ensure!(begin.elapsed() < PATIENCE, "the log has the GTIDs {holds}, but lacks {newest}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The sequence number of the server's first own GTID is one higher than the number in the position.
    let number = |gtid: &str| gtid.rsplit('-').next().and_then(|number| number.parse::<u64>().ok());
    ensure!(
        number(&newest) == number(&position).map(|number| number + 1),
        "the server's first own GTID must directly follow {position}, but it is {newest}"
    );
    check_log(&source)?;
    capture.stop().await
}

/// All transactions that a server has written itself or applied as a replica.
async fn everything(server: &Server) -> Result<String> {
    match server.kind().flavour() {
        Flavour::MySql => Ok(server.replicated_gtids().await?),
        Flavour::MariaDb => written_by(server).await,
    }
}

#[test]
fn an_order_to_stop_persists_on_mysql_97() -> Result<()> {
    run(stops_permanently(ServerKind::Mysql97))
}

#[test]
fn an_order_to_stop_persists_on_mariadb_1011() -> Result<()> {
    run(stops_permanently(ServerKind::Mariadb1011))
}

#[test]
fn a_capture_follows_another_mysql_97() -> Result<()> {
    run(follows(ServerKind::Mysql97))
}

#[test]
fn a_capture_follows_another_mariadb_1011() -> Result<()> {
    run(follows(ServerKind::Mariadb1011))
}

#[test]
fn a_capture_follows_a_mariadb_1011_set_up_at_a_position() -> Result<()> {
    run(follows_one_set_up_at_a_position(ServerKind::Mariadb1011))
}

#[test]
fn a_capture_follows_another_mariadb_118() -> Result<()> {
    if std::env::var_os("TAILWATER_LONG").is_none() {
        eprintln!(
            "SKIPPED a_capture_follows_another_mariadb_118: nearly the same as the test on MariaDB 10.11; set TAILWATER_LONG=1 to run it"
        );
        return Ok(());
    }
    run(follows(ServerKind::Mariadb118))
}
