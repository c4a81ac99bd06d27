//! The workload and its ledger on real servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tailwater_sandbox::ledger::{CommitOutcome, TransactionId};
use tailwater_sandbox::workload::{TransactionMix, prepare};
use tailwater_sandbox::{
    BinlogCheck, Ledger, LedgerReport, Link, Server, ServerKind, ServerSpec, Workload, WorkloadSpec, require,
};
use tailwater_session::{ConnectOptions, Connection, Endpoint, SessionRetry};

/// Returns the server's binlog files, in order.
async fn binlogs(server: &Server) -> Result<Vec<PathBuf>> {
    let lines = server.sql("SHOW BINARY LOGS").await?;
    Ok(lines.iter().filter_map(|line| Some(server.data().join(line.split('\t').next()?))).collect())
}

async fn check_binlogs(server: &Server, ledger: &Ledger) -> Result<LedgerReport> {
    let mut check = BinlogCheck::new(ledger, server.kind().flavour());
    for file in binlogs(server).await? {
        check.file(&file)?;
    }
    Ok(check.finish())
}

async fn wait_for_commits(load: &Workload, commits: u64) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while load.counters().snapshot().acknowledged < commits {
        ensure!(
            Instant::now() < deadline,
            "the workload did not commit enough transactions: {:?}",
            load.counters().snapshot()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Acknowledged transactions are in the tables and complete in the binlog, also after a kill. The ledger
/// lists the transactions of unknown outcome.
async fn survives_a_kill(kind: ServerKind, options: &[&str]) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut server = Server::start(ServerSpec::new(kind).options(options.iter().copied())).await?;
    prepare(&server.connect_options()).await?;
    let ledger = Arc::new(Ledger::new());
    let spec = WorkloadSpec { seed: 42, ..WorkloadSpec::new(4) };
    let load = Workload::start(server.connect_options(), &spec, Arc::clone(&ledger));
    wait_for_commits(&load, 300).await?;
    server.kill().await?;
    server.start_again().await?;
    let before = load.counters().snapshot().acknowledged;
    wait_for_commits(&load, before + 200).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "workers ended with errors: {:?}", report.errors);
    let (snapshot, totals) = (report.snapshot, ledger.totals());
    ensure!(
        (1..=4).contains(&snapshot.reconnects) && snapshot.connected == 0,
        "wrong number of reconnects or connected workers: {snapshot:?}"
    );
    ensure!(snapshot.latency_p50 > Duration::ZERO && snapshot.latency_p50 <= snapshot.latency_max);
    ensure!(report.per_second.iter().map(|count| u64::from(*count)).sum::<u64>() == snapshot.acknowledged);
    ensure!(
        (totals.acknowledged, totals.unknown, totals.failed)
            == (snapshot.acknowledged, snapshot.unknown, snapshot.failed)
    );

    let on_server = ledger.compare_with_server(&server.connect_options()).await?;
    ensure!(
        on_server.missing.is_empty() && on_server.altered.is_empty(),
        "the server lost or altered rows: {on_server:?}"
    );
    ensure!(
        on_server.failed_but_present.is_empty() && on_server.unlisted == 0,
        "the server has rows that were not committed: {on_server:?}"
    );
    ensure!(
        on_server.rows == totals.acknowledged + on_server.unknown_but_present,
        "wrong number of rows: {on_server:?}"
    );
    let sum = server.sql("SELECT SUM(balance) FROM tw_load.accounts").await?;
    ensure!(sum == ["1000000000"], "transfers changed the sum of all balances to {sum:?}");

    let in_log = check_binlogs(&server, &ledger).await?;
    ensure!(in_log.is_ok() && in_log.unlisted == 0, "the binlog differs from the ledger: {in_log:?}");
    ensure!(
        in_log.acknowledged == totals.acknowledged && in_log.in_log == on_server.rows,
        "wrong number of transactions: {in_log:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_kill_loses_no_acknowledged_transaction_on_mysql_97() -> Result<()> {
    let options = ["--binlog-transaction-compression=ON", "--binlog-row-image=MINIMAL"];
    survives_a_kill(ServerKind::Mysql97, &options).await
}

#[tokio::test]
async fn a_kill_loses_no_acknowledged_transaction_on_mariadb_1011() -> Result<()> {
    survives_a_kill(ServerKind::Mariadb1011, &["--log-bin-compress=ON"]).await
}

#[tokio::test]
async fn a_kill_loses_no_acknowledged_transaction_on_mariadb_118() -> Result<()> {
    survives_a_kill(ServerKind::Mariadb118, &[]).await
}

/// The checks find a row that was deleted from the table, and transactions that are not in the ledger.
#[tokio::test]
async fn lost_and_unlisted_transactions_are_found() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind)).await?;
    prepare(&server.connect_options()).await?;
    let ledger = Arc::new(Ledger::new());
    let mix = TransactionMix::SingleInsert { payload_bytes: 100 };
    let spec = WorkloadSpec { mix, transactions: Some(500), ..WorkloadSpec::new(3) };
    let report = Workload::start(server.connect_options(), &spec, Arc::clone(&ledger)).wait().await;
    ensure!(
        report.errors.is_empty() && report.snapshot.acknowledged == 500,
        "the workload did not commit 500 transactions: {report:?}"
    );
    ensure!(check_binlogs(&server, &ledger).await?.is_ok());

    server.sql("SET sql_log_bin=0; DELETE FROM tw_load.tw_ledger WHERE worker=2 AND sequence=3").await?;
    let on_server = ledger.compare_with_server(&server.connect_options()).await?;
    ensure!(
        on_server.missing.first == [TransactionId { worker: 2, sequence: 3 }],
        "the deleted row was not found: {on_server:?}"
    );
    server
        .sql("SET sql_log_bin=0; UPDATE tw_load.tw_ledger SET digest=1 WHERE worker=1 AND sequence=1")
        .await?;
    let on_server = ledger.compare_with_server(&server.connect_options()).await?;
    ensure!(
        on_server.altered.first == [TransactionId { worker: 1, sequence: 1 }],
        "the altered row was not found: {on_server:?}"
    );

    // Write three wrong transactions: a repeated transaction with another id, one with a wrong digest, and
    // one without a ledger row.
    server.sql("INSERT INTO tw_load.tw_ledger VALUES (9, 1, 0, 5, '')").await?;
    server.sql("UPDATE tw_load.accounts SET balance=0 WHERE id=1").await?;
    let in_log = check_binlogs(&server, &ledger).await?;
    ensure!(
        in_log.missing_in_log.is_empty() && !in_log.is_ok(),
        "the binlog check found no fault: {in_log:?}"
    );
    ensure!(
        (in_log.unlisted, in_log.incomplete.count, in_log.unidentified) == (1, 1, 1),
        "not all wrong transactions were found: {in_log:?}"
    );

    let missing = Arc::new(Ledger::new());
    ledger.for_each(|id, entry| missing.record(id, entry));
    let lost = TransactionId { worker: 1, sequence: ledger.last_sequence(1) + 1 };
    let entry = ledger.get(TransactionId { worker: 1, sequence: 1 });
    missing.record(
        lost,
        entry.ok_or_else(|| anyhow::anyhow!("the ledger lacks the first transaction of worker 1"))?,
    );
    let in_log = check_binlogs(&server, &missing).await?;
    ensure!(in_log.missing_in_log.first == [lost], "the lost transaction was not found: {in_log:?}");
    Ok(())
}

/// If the workload is stopped while a commit waits for an ACK that never comes, the outcome of the commit is
/// unknown.
#[tokio::test]
async fn the_outcome_of_an_interrupted_commit_is_unknown() -> Result<()> {
    let kind = ServerKind::Mariadb118;
    if require(kind).is_none() {
        return Ok(());
    }
    let mut server = Server::start(ServerSpec::new(kind)).await?;
    prepare(&server.connect_options()).await?;
    server.enable_semi_sync_source().await?;
    let ledger = Arc::new(Ledger::new());
    let load = Workload::start(server.connect_options(), &WorkloadSpec::new(2), Arc::clone(&ledger));
    let mut watcher = Connection::connect(&server.connect_options()).await?;
    let deadline = Instant::now() + Duration::from_secs(30);
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE info='COMMIT'";
    while watcher.query(waiting).await?.scalar() != Some("2") {
        ensure!(Instant::now() < deadline, "the commits of the two workers do not wait for an ACK");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let report = load.abort().await;
    ensure!(
        report.errors.is_empty() && report.snapshot.acknowledged == 0,
        "a commit was acknowledged, or a worker failed: {report:?}"
    );
    ensure!(
        ledger.totals().unknown == 2,
        "the outcomes of the two commits are not unknown: {:?}",
        ledger.totals()
    );
    let entry = ledger.get(TransactionId { worker: 1, sequence: 1 });
    ensure!(entry.is_some_and(|entry| entry.outcome == CommitOutcome::Unknown));
    server.kill().await?;
    Ok(())
}

/// If no server is reachable within the time limit, the workers end with an error.
#[tokio::test]
async fn a_workload_without_a_server_ends() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let mut server = Server::start(ServerSpec::new(kind)).await?;
    prepare(&server.connect_options()).await?;
    let ledger = Arc::new(Ledger::new());
    let spec = WorkloadSpec { reconnect: Duration::ZERO, ..WorkloadSpec::new(2) };
    let load = Workload::start(server.connect_options(), &spec, Arc::clone(&ledger));
    wait_for_commits(&load, 20).await?;
    server.kill().await?;
    let report = load.wait().await;
    ensure!(report.errors.len() == 2, "not every worker ended with an error: {report:?}");
    ensure!(
        report.errors.iter().all(|error| error.retry() == SessionRetry::Later),
        "an error does not allow a later retry: {report:?}"
    );
    Ok(())
}

/// If a link is cut and reset under load, the outcomes of some commits are unknown. The faults have no other
/// effect.
#[tokio::test]
async fn a_broken_link_makes_outcomes_unknown() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind)).await?;
    prepare(&server.connect_options()).await?;
    let link = Link::open(server.address()).await?;
    let target =
        ConnectOptions { endpoint: Endpoint::tcp("127.0.0.1", link.port()), ..server.connect_options() };
    let ledger = Arc::new(Ledger::new());
    let load = Workload::start(target, &WorkloadSpec::new(8), Arc::clone(&ledger));
    for round in 1..=3 {
        wait_for_commits(&load, round * 100).await?;
        // Now the server's answers are lost: commits succeed, and no client gets the OK.
        link.cut(tailwater_sandbox::network_link::Direction::ToClient);
        tokio::time::sleep(Duration::from_millis(100)).await;
        link.restore();
    }
    wait_for_commits(&load, 400).await?;
    let report = load.finish().await;
    ensure!(
        report.errors.is_empty() && report.snapshot.reconnects >= 3,
        "workers failed or did not reconnect: {report:?}"
    );
    let on_server = ledger.compare_with_server(&server.connect_options()).await?;
    ensure!(
        on_server.missing.is_empty() && on_server.failed_but_present.is_empty(),
        "the table differs from the ledger: {on_server:?}"
    );
    let in_log = check_binlogs(&server, &ledger).await?;
    ensure!(in_log.is_ok(), "the binlog differs from the ledger: {in_log:?}");
    ensure!(
        in_log.unknown_but_present == on_server.unknown_but_present,
        "binlog and table differ: {in_log:?} {on_server:?}"
    );
    ensure!(
        in_log.unknown > 0,
        "in at least one of three cuts, one of the 8 clients should have been waiting for a commit: {in_log:?}"
    );
    Ok(())
}
