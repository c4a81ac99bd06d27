//! Replicas that cannot be served get an error with a helpful text, and with the number that replicas and
//! monitoring know.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use tailwater_sandbox::native_replica::stop_statement;
use tailwater_sandbox::{ReplicaOf, ReplicaStart, Server, ServerKind};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;

use crate::binlog_server_with_replicas::{
    READER, READER_PASSWORD, Tailwater, start_replica, until_in_step, written_by,
};
use crate::capture_test_source::{Source, run};
use crate::replica_test_helpers::{FATAL, until_io_error};

/// A source with a few binlog files, and Tailwater with its log.
async fn served(kind: ServerKind) -> Result<Option<(Source, Tailwater)>> {
    let Some(mut source) = Source::start(kind, &[]).await? else { return Ok(None) };
    let tailwater = Tailwater::start(&source).await?;
    source.prepare().await?;
    source.write(10).await?;
    source.rotate().await?;
    source.write(10).await?;
    source.until_complete("log").await?;
    Ok(Some((source, tailwater)))
}

/// Resets the replication settings of a server, and then makes it a replica of `of`.
async fn point(replica: &Server, of: &ReplicaOf) -> Result<()> {
    let statements = match replica.kind().flavour() {
        Flavour::MySql => "STOP REPLICA; RESET REPLICA ALL",
        Flavour::MariaDb => "STOP SLAVE; RESET SLAVE ALL",
    };
    replica.sql(statements).await?;
    Ok(replica.replicate(of).await?)
}

/// Runs a statement as `account`, which must fail. Returns the number and text of the error.
async fn refusal_of(account: &ConnectOptions, statement: &str) -> Result<(u16, String)> {
    let mut connection = Connection::connect(account).await?;
    match connection.query(statement).await {
        Ok(answer) => bail!("the statement {statement} was not refused: {answer:?}"),
        Err(error) => {
            let server = error.server_error().with_context(|| {
                format!("the statement {statement} failed without an error packet: {error}")
            })?;
            Ok((server.number, server.message.expose().to_owned()))
        }
    }
}

async fn of_a_kind(kind: ServerKind) -> Result<()> {
    let Some((mut source, mut tailwater)) = served(kind).await? else { return Ok(()) };
    let flavour = kind.flavour();
    let replica = start_replica(kind, "refused", &["--server-id=811"]).await?;

    let wrong = ReplicaOf { password: "wrong".into(), ..tailwater.replica() };
    replica.replicate(&wrong).await?;
    until_io_error(&replica, 1045, "Access denied for user").await?;

    // This replica has transactions of the source that the log will never have. The binlog server lets it
    // wait for a while, and then sends the error.
    ahead(&replica, &source, &tailwater).await?;

    // An account without `admin` can neither purge files nor end other connections.
    let newest = source.newest().await?.0;
    let purge = format!("PURGE BINARY LOGS TO '{newest}'");
    let reader = tailwater.account(READER, READER_PASSWORD);
    for statement in [purge.as_str(), "KILL 1"] {
        let (number, message) = refusal_of(&reader, statement).await?;
        ensure!(
            number == 1227 && message.contains("admin = true"),
            "the client must get error 1227, but got {number} {message}"
        );
    }
    let (number, message) = refusal_of(&tailwater.admin(), "KILL 1000000").await?;
    ensure!(number == 1094, "the client must get error 1094, but got {number} {message}");

    // Tailwater refuses to purge files that a replica needs, whether or not the replica is connected.
    let mut other = start_replica(kind, "purged", &["--server-id=812"]).await?;
    other.replicate(&tailwater.replica()).await?;
    until_in_step(&other, &source.server).await?;
    other.sql(stop_statement(flavour)).await?;
    tailwater.until_streams("the replica's stream to end", <[_]>::is_empty).await?;
    source.rotate().await?;
    source.write(5).await?;
    source.until_complete("log").await?;
    let purge = format!("PURGE BINARY LOGS TO '{}'", source.newest().await?.0);
    let (number, message) = refusal_of(&tailwater.admin(), &purge).await?;
    ensure!(
        number == 1378 && message.contains("replica 812"),
        "the client got an unexpected error: {number} {message}"
    );
    // After a restart, Tailwater still refuses to purge the files that replica 812 needs.
    tailwater.stop().await?;
    tailwater.start_again().await?;
    let (number, message) = refusal_of(&tailwater.admin(), &purge).await?;
    ensure!(
        number == 1378 && message.contains("replica 812"),
        "the client got an unexpected error: {number} {message}"
    );
    ensure!(tailwater.log()?.forget_reader("replica 812")?);
    tailwater.sql(&purge).await?;
    ensure!(tailwater.sql("SHOW BINARY LOGS").await?.len() == 1);

    // A replica that needs purged files gets an error.
    let words = match flavour {
        Flavour::MySql => "Cannot replicate because the source purged required binary logs",
        Flavour::MariaDb => "Could not find GTID state requested by slave in any binlog files",
    };
    for replica in [&replica, &other] {
        forget_gtids(replica).await?;
        point(replica, &tailwater.replica()).await?;
        until_io_error(replica, FATAL, words).await?;
    }
    let gone = ReplicaStart::FilePosition { file: newest, position: 4 };
    point(&replica, &tailwater.replica().start(gone)).await?;
    until_io_error(&replica, FATAL, "Could not find first log file name in binary log index file").await?;

    twice(&mut other, &replica, &source, &tailwater).await?;
    tailwater.stop().await
}

async fn ahead(replica: &Server, source: &Source, tailwater: &Tailwater) -> Result<()> {
    let has = written_by(&source.server).await?;
    let (statement, words) = match replica.kind().flavour() {
        Flavour::MySql => {
            let (uuid, _) = has.split_once(':').context("the server has no GTIDs")?;
            (
                format!("SET GLOBAL gtid_purged='{uuid}:1-100000'"),
                "Replica has more GTIDs than the source has",
            )
        }
        Flavour::MariaDb => {
            let (server, _) = has.rsplit_once('-').context("the server has no GTIDs")?;
            (format!("SET GLOBAL gtid_slave_pos='{server}-100000'"), "which is not in the master's binlog")
        }
    };
    replica.sql(stop_statement(replica.kind().flavour())).await?;
    replica.sql(&statement).await?;
    let begin = Instant::now();
    point(replica, &tailwater.replica()).await?;
    until_io_error(replica, FATAL, words).await?;
    ensure!(begin.elapsed().as_secs() >= 9, "the client did not wait before it got the error");
    Ok(())
}

/// Removes the replica's GTIDs, so that it requests everything.
async fn forget_gtids(replica: &Server) -> Result<()> {
    let statements = match replica.kind().flavour() {
        Flavour::MySql => "STOP REPLICA; RESET BINARY LOGS AND GTIDS",
        Flavour::MariaDb => "STOP SLAVE; SET GLOBAL gtid_slave_pos=''",
    };
    replica.sql(statements).await?;
    Ok(())
}

/// If two replicas have the same identity, the first is disconnected with an error when the second connects.
async fn twice(second: &mut Server, first: &Server, source: &Source, tailwater: &Tailwater) -> Result<()> {
    let flavour = first.kind().flavour();
    second.stop().await?;
    match flavour {
        // MySQL replicas are distinguished by their `server_uuid`, so copy it.
        Flavour::MySql => {
            std::fs::copy(first.data().join("auto.cnf"), second.data().join("auto.cnf"))?;
        }
        Flavour::MariaDb => second.set_options(first.options().to_vec()),
    }
    second.start_again().await?;
    let (file, position) = source.newest().await?;
    let end = tailwater.replica().start(ReplicaStart::FilePosition { file, position });
    point(second, &tailwater.replica()).await?;
    point(first, &end).await?;
    tailwater.until_streams("the first", |streams| streams.len() == 1).await?;
    point(second, &end).await?;
    until_io_error(first, FATAL, "A replica with the same server_uuid/server_id").await?;
    tailwater.until_streams("the first replica's stream to end", |streams| streams.len() == 1).await?;
    Ok(())
}

#[test]
fn refused_replicas_of_mysql_97_get_the_known_errors() -> Result<()> {
    run(of_a_kind(ServerKind::Mysql97))
}

#[test]
fn refused_replicas_of_mariadb_1011_get_the_known_errors() -> Result<()> {
    run(of_a_kind(ServerKind::Mariadb1011))
}

/// A replica of one flavour connects to a log of the other flavour.
#[test]
fn replicas_of_the_other_flavour_are_refused() -> Result<()> {
    run(async {
        let Some((_mysql, mut mysql_log)) = served(ServerKind::Mysql97).await? else { return Ok(()) };
        let Some((_mariadb, mut mariadb_log)) = served(ServerKind::Mariadb1011).await? else { return Ok(()) };
        let oldest = || ReplicaStart::FilePosition { file: "binlog.000001".into(), position: 4 };
        let replica = start_replica(ServerKind::Mariadb1011, "mariadb", &[]).await?;
        for start in [ReplicaStart::Gtid, oldest()] {
            point(&replica, &mysql_log.replica().start(start)).await?;
            until_io_error(&replica, FATAL, "This is the log of a MySQL source").await?;
        }
        // The replica itself detects that this source has no GTIDs of MySQL.
        let mut replica = start_replica(ServerKind::Mysql97, "mysql", &[]).await?;
        replica.replicate(&mariadb_log.replica()).await?;
        until_io_error(&replica, 13117, "source has GTID_MODE = OFF").await?;
        let mut options = replica.options().to_vec();
        options.push("--gtid-mode=OFF".into());
        replica.sql("STOP REPLICA; RESET REPLICA ALL").await?;
        replica.restart(Some(options)).await?;
        replica.replicate(&mariadb_log.replica().start(oldest())).await?;
        until_io_error(&replica, FATAL, "This is the log of a MariaDB source").await?;
        mysql_log.stop().await?;
        mariadb_log.stop().await
    })
}
