//! Real replicas read from Tailwater while Tailwater, its source and the replicas fail and restart.

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::native_replica::{start_statement, stop_statement};
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::{ReplicaStart, Server, ServerKind, require};
use tailwater_wire::Flavour;

use crate::binlog_server_with_replicas::{
    Tailwater, check_equal, check_tables, replica_spec, start_replica, status_variable, until_in_step,
};
use crate::capture_test_source::{Source, run, wait_until_acknowledged};
use crate::replica_test_helpers::{until_io_error, with_positions};

/// Replicas of one source, each connected in a different way.
struct Replicas {
    /// Requests the stream by GTIDs, and acknowledges transactions.
    by_gtid: Server,
    /// Requests the stream by GTIDs with MariaDB's `current_pos`, and uses TLS.
    with_tls: Server,
    by_position: Server,
    /// Requests the stream by GTIDs, and is frozen for a while.
    slow: Server,
}

impl Replicas {
    async fn start(source: &Source, tailwater: &Tailwater) -> Result<Self> {
        let kind = source.server.kind();
        let (by_gtid, with_tls, by_position, slow) = tokio::try_join!(
            async { Ok(Server::start(replica_spec(kind, "by-gtid", &[]).semi_sync_replica()).await?) },
            start_replica(kind, "with-tls", &[]),
            start_replica(kind, "by-position", &[]),
            start_replica(kind, "slow", &[]),
        )?;
        let (file, _) =
            source.binlogs().await?.into_iter().next().context("the source has no binlog file")?;
        let first = ReplicaStart::FilePosition { file, position: 4 };
        by_gtid.replicate(&tailwater.replica()).await?;
        with_tls.replicate(&tailwater.replica_with_tls().start(ReplicaStart::CurrentPos)).await?;
        by_position.replicate(&tailwater.replica().start(first)).await?;
        slow.replicate(&tailwater.replica()).await?;
        Ok(Self { by_gtid, with_tls, by_position, slow })
    }
}

async fn follow(kind: ServerKind) -> Result<()> {
    let mut options = vec!["--max-binlog-size=65536"];
    options.extend(with_positions(kind));
    let Some(mut source) = Source::start(kind, &options).await? else { return Ok(()) };
    let flavour = source.flavour();
    let mut tailwater = Tailwater::start(&source).await?;
    source.prepare().await?;
    let mut replicas = Replicas::start(&source, &tailwater).await?;
    let load = source.load(3, None);
    wait_until_acknowledged(&load, 60).await?;
    until_in_step(&replicas.slow, &source.server).await?;
    replicas.slow.pause()?;

    tailwater.stop().await?;
    source.rotate().await?;
    wait_until_acknowledged(&load, 30).await?;
    tailwater.start_again().await?;
    replicas.by_position.sql(stop_statement(flavour)).await?;
    wait_until_acknowledged(&load, 30).await?;
    replicas.by_position.sql(start_statement(flavour)).await?;
    replicas.by_gtid.kill().await?;
    source.server.restart(None).await?;
    wait_until_acknowledged(&load, 30).await?;
    replicas.by_gtid.start_again().await?;
    source.server.kill().await?;
    source.server.start_again().await?;
    wait_until_acknowledged(&load, 30).await?;
    source.rotate().await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "the test clients had errors: {:?}", report.errors);

    // The other replicas do not wait for the frozen one.
    for replica in [&replicas.by_gtid, &replicas.with_tls, &replicas.by_position] {
        check_equal(replica, &source.server, &source.ledger).await?;
    }
    replicas.slow.resume()?;
    check_equal(&replicas.slow, &source.server, &source.ledger).await?;
    source.check_complete("log").await?;

    let semi_sync = match flavour {
        Flavour::MySql => "Rpl_semi_sync_replica_status",
        Flavour::MariaDb => "Rpl_semi_sync_slave_status",
    };
    ensure!(status_variable(&replicas.by_gtid, semi_sync).await? == "ON");
    source.write(3).await?;
    let acknowledged = |streams: &[(u32, String)]| {
        streams.iter().filter(|(_, line)| line.contains("; acknowledged binlog.")).count() == 1
    };
    tailwater.until_streams("an acknowledgement", acknowledged).await?;
    // The list lacks the replica with TLS, because that replica is connected to a second binlog server.
    let show = if flavour == Flavour::MySql { "SHOW REPLICAS" } else { "SHOW SLAVE HOSTS" };
    let listed = tailwater.sql(show).await?;
    ensure!(listed.len() == 3, "three replicas must be listed, but the list is: {listed:?}");
    tailwater.stop().await
}

/// A source without GTIDs: replicas can request the stream only by position.
async fn follow_without_gtids() -> Result<()> {
    let kind = ServerKind::Mysql97;
    let options = ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--max-binlog-size=32768"];
    let Some(mut source) = Source::start(kind, &options).await? else { return Ok(()) };
    let mut tailwater = Tailwater::start(&source).await?;
    source.prepare().await?;
    let replica = start_replica(kind, "by-position", &options[..2]).await?;
    let (file, _) = source.binlogs().await?.into_iter().next().context("the source has no binlog file")?;
    replica.replicate(&tailwater.replica().start(ReplicaStart::FilePosition { file, position: 4 })).await?;
    source.write(20).await?;
    replica.sql("STOP REPLICA").await?;
    source.write(20).await?;
    source.server.restart(None).await?;
    source.write(20).await?;
    replica.sql("START REPLICA").await?;
    let (file, end) = source.newest().await?;
    let arrived = replica.sql(&format!("SELECT SOURCE_POS_WAIT('{file}', {end}, 60) >= 0")).await?;
    ensure!(arrived == ["1"], "the replica lacks the row: {:?}", replica.replica_status().await?);
    check_tables(&replica, &source.server, &source.ledger).await?;
    source.check_complete("log").await?;

    // A replica that requests the stream by GTIDs gets an error.
    let by_gtid = start_replica(kind, "by-gtid", &[]).await?;
    by_gtid.replicate(&tailwater.replica()).await?;
    until_io_error(&by_gtid, 13117, "source has GTID_MODE = OFF").await?;
    tailwater.stop().await
}

#[test]
fn replicas_of_mysql_97_without_gtids_stay_equal() -> Result<()> {
    run(follow_without_gtids())
}

/// As in an upgrade, the replica has a later release than the source.
#[test]
fn newer_replicas_of_mariadb_1011_stay_equal() -> Result<()> {
    run(async {
        let Some(mut source) = Source::start(ServerKind::Mariadb1011, &[]).await? else { return Ok(()) };
        if require(ServerKind::Mariadb118).is_none() {
            return Ok(());
        }
        let mut tailwater = Tailwater::start(&source).await?;
        source.prepare().await?;
        let replica = start_replica(ServerKind::Mariadb118, "newer", &[]).await?;
        replica.replicate(&tailwater.replica_with_tls()).await?;
        source.write(20).await?;
        source.rotate().await?;
        source.write(20).await?;
        check_equal(&replica, &source.server, &source.ledger).await?;
        tailwater.stop().await
    })
}

#[test]
fn replicas_of_mysql_97_stay_equal() -> Result<()> {
    run(follow(ServerKind::Mysql97))
}

#[test]
fn replicas_of_mariadb_1011_stay_equal() -> Result<()> {
    run(follow(ServerKind::Mariadb1011))
}

#[test]
fn replicas_of_mariadb_118_stay_equal() -> Result<()> {
    if is_skipped_in_ci(
        "native_replicas::replicas_of_mariadb_118_stay_equal",
        "the same test on MariaDB 10.11",
    ) {
        return Ok(());
    }
    run(follow(ServerKind::Mariadb118))
}
