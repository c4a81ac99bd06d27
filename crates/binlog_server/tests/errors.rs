//! Replicas that cannot be served get an error with a helpful text and the number that replicas and
//! monitoring know.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use tailwater_sandbox::replica::stop_statement;
use tailwater_sandbox::{ReplicaOf, ReplicaStart, Server, ServerKind};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;

use crate::serve_support::{
    FATAL, READER, READER_PASSWORD, Tailwater, start_replica, until_in_step, until_io_error, written_by,
};
use crate::support::{Source, run};

/// A source with a few files, and its log.
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

/// Makes a server a replica of another source, without its old settings.
async fn point(replica: &Server, of: &ReplicaOf) -> Result<()> {
    let statements = match replica.kind().flavour() {
        Flavour::MySql => "STOP REPLICA; RESET REPLICA ALL",
        Flavour::MariaDb => "STOP SLAVE; RESET SLAVE ALL",
    };
    replica.sql(statements).await?;
    Ok(replica.replicate(of).await?)
}

/// The number and text of the error for a statement of `account`.
async fn refusal_of(account: &ConnectOptions, statement: &str) -> Result<(u16, String)> {
    let mut connection = Connection::connect(account).await?;
    match connection.query(statement).await {
        Ok(answer) => bail!("{statement} was not refused: {answer:?}"),
        Err(error) => {
            let server = error.server_error().with_context(|| format!("{statement}: {error}"))?;
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

    // A replica that has more of the source than the log will ever have waits, then gets the error.
    ahead(&replica, &source, &tailwater).await?;

    // A read-only account can neither purge nor end other connections.
    let newest = source.newest().await?.0;
    let purge = format!("PURGE BINARY LOGS TO '{newest}'");
    let reader = tailwater.account(READER, READER_PASSWORD);
    for statement in [purge.as_str(), "KILL 1"] {
        let (number, message) = refusal_of(&reader, statement).await?;
        ensure!(number == 1227 && message.contains("admin = true"), "{number} {message}");
    }
    let (number, message) = refusal_of(&tailwater.admin(), "KILL 1000000").await?;
    ensure!(number == 1094, "{number} {message}");

    // Files that a replica needs are not purged, whether it is connected or not.
    let mut other = start_replica(kind, "purged", &["--server-id=812"]).await?;
    other.replicate(&tailwater.replica()).await?;
    until_in_step(&other, &source.server).await?;
    other.sql(stop_statement(flavour)).await?;
    tailwater.until_streams("the replica's going", <[_]>::is_empty).await?;
    source.rotate().await?;
    source.write(5).await?;
    source.until_complete("log").await?;
    let purge = format!("PURGE BINARY LOGS TO '{}'", source.newest().await?.0);
    let (number, message) = refusal_of(&tailwater.admin(), &purge).await?;
    ensure!(number == 1378 && message.contains("replica 812"), "{number} {message}");
    // Also after a restart.
    tailwater.stop().await?;
    tailwater.start_again().await?;
    let (number, message) = refusal_of(&tailwater.admin(), &purge).await?;
    ensure!(number == 1378 && message.contains("replica 812"), "{number} {message}");
    ensure!(tailwater.log()?.forget_reader("replica 812")?);
    tailwater.sql(&purge).await?;
    ensure!(tailwater.sql("SHOW BINARY LOGS").await?.len() == 1);

    // Purged files are not served.
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
            let (uuid, _) = has.split_once(':').context("no GTIDs")?;
            (
                format!("SET GLOBAL gtid_purged='{uuid}:1-100000'"),
                "Replica has more GTIDs than the source has",
            )
        }
        Flavour::MariaDb => {
            let (server, _) = has.rsplit_once('-').context("no GTIDs")?;
            (format!("SET GLOBAL gtid_slave_pos='{server}-100000'"), "which is not in the master's binlog")
        }
    };
    replica.sql(stop_statement(replica.kind().flavour())).await?;
    replica.sql(&statement).await?;
    let begin = Instant::now();
    point(replica, &tailwater.replica()).await?;
    until_io_error(replica, FATAL, words).await?;
    ensure!(begin.elapsed().as_secs() >= 9, "the client did not wait");
    Ok(())
}

/// Resets a replica.
async fn forget_gtids(replica: &Server) -> Result<()> {
    let statements = match replica.kind().flavour() {
        Flavour::MySql => "STOP REPLICA; RESET BINARY LOGS AND GTIDS",
        Flavour::MariaDb => "STOP SLAVE; SET GLOBAL gtid_slave_pos=''",
    };
    replica.sql(statements).await?;
    Ok(())
}

/// Of two replicas with one name the first is disconnected, with an error.
async fn twice(second: &mut Server, first: &Server, source: &Source, tailwater: &Tailwater) -> Result<()> {
    let flavour = first.kind().flavour();
    second.stop().await?;
    match flavour {
        // They are distinguished by their UUIDs.
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
    tailwater.until_streams("only the second", |streams| streams.len() == 1).await?;
    Ok(())
}

#[test]
fn of_mysql_97() -> Result<()> {
    run(of_a_kind(ServerKind::Mysql97))
}

#[test]
fn of_mariadb_1011() -> Result<()> {
    run(of_a_kind(ServerKind::Mariadb1011))
}

/// Replicas of one flavour at a log of the other.
#[test]
fn of_the_other_flavour() -> Result<()> {
    run(async {
        let Some((_mysql, mut mysql_log)) = served(ServerKind::Mysql97).await? else { return Ok(()) };
        let Some((_mariadb, mut mariadb_log)) = served(ServerKind::Mariadb1011).await? else { return Ok(()) };
        let oldest = || ReplicaStart::FilePosition { file: "binlog.000001".into(), position: 4 };
        let replica = start_replica(ServerKind::Mariadb1011, "mariadb", &[]).await?;
        for start in [ReplicaStart::Gtid, oldest()] {
            point(&replica, &mysql_log.replica().start(start)).await?;
            until_io_error(&replica, FATAL, "This is the log of a MySQL source").await?;
        }
        // The replica itself detects that the source has no GTIDs of its kind.
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
