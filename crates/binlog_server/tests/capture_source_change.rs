//! The capture moves to another server. The replicas of Tailwater continue without a change of their
//! configuration.

use std::mem;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::native_replica::{start_statement, stop_statement};
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::{ReplicaStart, Server, ServerKind};
use tailwater_wire::Flavour;

use crate::binlog_server_with_replicas::{Tailwater, check_equal, start_replica, until_in_step, written_by};
use crate::capture_test_source::{Source, run};

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

/// Makes the replica `stand_in` the new source, and makes Tailwater capture from it. Returns the former
/// source.
async fn fail_over(source: &mut Source, mut stand_in: Server, tailwater: &mut Tailwater) -> Result<Server> {
    until_in_step(&stand_in, &source.server).await?;
    tailwater.stop().await?;
    let forget = match source.flavour() {
        Flavour::MySql => "STOP REPLICA; RESET REPLICA ALL",
        Flavour::MariaDb => "STOP SLAVE; RESET SLAVE ALL",
    };
    stand_in.sql(forget).await?;
    mem::swap(&mut source.server, &mut stand_in);
    tailwater.capture.connect = source.server.replication_options();
    tailwater.start_again().await?;
    Ok(stand_in)
}

/// All transactions that a server has written itself or applied as a replica.
async fn everything(server: &Server) -> Result<String> {
    match server.kind().flavour() {
        Flavour::MySql => Ok(server.replicated_gtids().await?),
        Flavour::MariaDb => written_by(server).await,
    }
}

async fn moves(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start(kind, &["--max-binlog-size=65536"]).await? else { return Ok(()) };
    let flavour = source.flavour();
    let mut tailwater = Tailwater::start(&source).await?;
    source.prepare().await?;
    let (by_gtid, by_position, at_end, later) = tokio::try_join!(
        start_replica(kind, "by-gtid", &[]),
        start_replica(kind, "by-position", &[]),
        start_replica(kind, "at-end", &[]),
        start_replica(kind, "later", &[]),
    )?;
    let (file, _) = source.binlogs().await?.into_iter().next().context("the source has no binlog file")?;
    let first = ReplicaStart::FilePosition { file, position: 4 };
    by_gtid.replicate(&tailwater.replica()).await?;
    by_position.replicate(&tailwater.replica().start(first.clone())).await?;
    at_end.replicate(&tailwater.replica().start(first)).await?;
    let stand_in = stand_in(&source).await?;
    source.write(40).await?;
    // Stop one replica now. So it does not have all transactions of the first source when the second source
    // takes over.
    until_in_step(&by_position, &source.server).await?;
    by_position.sql(stop_statement(flavour)).await?;
    source.write(40).await?;
    source.until_complete("log").await?;
    // The replica `at_end` has read to the very end of a binlog file that has no rotate event at its end.
    until_in_step(&at_end, &source.server).await?;
    at_end.sql(stop_statement(flavour)).await?;

    let former = fail_over(&mut source, stand_in, &mut tailwater).await?;
    source.write(40).await?;
    by_position.sql(start_statement(flavour)).await?;
    at_end.sql(start_statement(flavour)).await?;
    source.write(20).await?;
    for replica in [&by_gtid, &by_position, &at_end] {
        check_equal(replica, &source.server, &source.ledger).await?;
    }
    let files = tailwater.sql("SHOW BINARY LOGS").await?;
    ensure!(
        files.iter().any(|line| line.starts_with("binlog.e2.")),
        "SHOW BINARY LOGS lists no file of the new source: {files:?}"
    );
    let status = by_position.replica_status().await?.context("the server is not a replica")?;
    ensure!(
        status.received.0.starts_with("binlog.e2."),
        "the replica has not received the new source's file: {status:?}"
    );

    // The replica reconnects, and resumes with the name under which Tailwater serves the new source's file. A
    // new replica reads the files of both sources.
    by_position.sql(stop_statement(flavour)).await?;
    source.rotate().await?;
    source.write(10).await?;
    by_position.sql(start_statement(flavour)).await?;
    later.replicate(&tailwater.replica()).await?;
    for replica in [&by_gtid, &by_position, &later] {
        check_equal(replica, &source.server, &source.ledger).await?;
    }

    // The former source lacks transactions that the log has. So the capture refuses it, and the replicas keep
    // these transactions.
    tailwater.stop().await?;
    tailwater.capture.connect = former.replication_options();
    tailwater.open().await?;
    let refusal = tailwater.refusal().await?;
    ensure!(refusal.code() == "TW-RELAY-0004", "the capture ended with an unexpected error: {refusal}");
    former.sql("CREATE DATABASE only_on_former_source").await?;
    // The capture has ended with this error, but the binlog server still serves the log.
    ensure!(tailwater.sql("SHOW BINARY LOGS").await?.len() > 1);
    for replica in [&by_gtid, &by_position, &later] {
        check_equal(replica, &source.server, &source.ledger).await?;
        ensure!(replica.sql("SHOW DATABASES LIKE 'only_on_former_source'").await?.is_empty());
    }
    ensure!(everything(&former).await? != everything(&source.server).await?);
    tailwater.stop_serving().await;
    Ok(())
}

#[test]
fn replicas_follow_a_change_of_source_mysql_97() -> Result<()> {
    run(moves(ServerKind::Mysql97))
}

#[test]
fn replicas_follow_a_change_of_source_mariadb_1011() -> Result<()> {
    run(moves(ServerKind::Mariadb1011))
}

#[test]
fn replicas_follow_a_change_of_source_mariadb_118() -> Result<()> {
    if is_skipped_in_ci(
        "capture_source_change::replicas_follow_a_change_of_source_mariadb_118",
        "the same test on MariaDB 10.11",
    ) {
        return Ok(());
    }
    run(moves(ServerKind::Mariadb118))
}
