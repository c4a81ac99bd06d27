//! The connections to the source and to replicas break repeatedly, and some are slow. No event is lost or
//! duplicated.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::{Link, ReplicaOf, ReplicaStart, Server, ServerKind};

use crate::binlog_server_with_replicas::{Tailwater, check_equal, start_replica};
use crate::capture_test_source::{PATIENCE, Source, run, through, wait_until_acknowledged};

/// The total number of times that the test breaks a connection.
const BREAKS: usize = 8;

/// Waits until a replica has received more events than before.
async fn until_it_receives(replica: &Server) -> Result<()> {
    let status = async || replica.replica_status().await?.context("the server is not a replica");
    let before = status().await?.received;
    let begin = Instant::now();
    loop {
        let now = status().await?;
        if now.received != before {
            return Ok(());
        }
        ensure!(now.io_error.0 != 1236, "the binlog server refused the replica {}: {now:?}", replica.name());
        ensure!(begin.elapsed() < PATIENCE, "the replica {} receives nothing: {now:?}", replica.name());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

async fn broken(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start(kind, &["--max-binlog-size=131072"]).await? else { return Ok(()) };
    let mut tailwater = Tailwater::of(&source)?;
    let upstream = Link::open(source.server.address()).await?;
    tailwater.capture = through(tailwater.capture, upstream.port());
    tailwater.start_again().await?;
    source.prepare().await?;
    let (by_gtid, slow) =
        tokio::try_join!(start_replica(kind, "by-gtid", &[]), start_replica(kind, "slow", &[]))?;
    let links =
        [Link::open(loopback(tailwater.port())).await?, Link::open(loopback(tailwater.port())).await?];
    // This link is slow, so that breaks happen in the middle of events.
    links[1].set_bandwidth(Some(256 << 10));
    let (first, _) = source.binlogs().await?.into_iter().next().context("the source has no binlog file")?;
    by_gtid.replicate(&ReplicaOf::port(links[0].port())).await?;
    let start = match kind {
        // Inside a transaction, a replica of MariaDB 11.8 counts positions without the checksums of events.
        // If the connection breaks there, no source can resume the stream by position.
        ServerKind::Mariadb118 => ReplicaStart::CurrentPos,
        _ => ReplicaStart::FilePosition { file: first, position: 4 },
    };
    slow.replicate(&ReplicaOf::port(links[1].port()).start(start)).await?;

    let load = source.load(3, None);
    for number in 0..BREAKS {
        wait_until_acknowledged(&load, 15).await?;
        match number % 3 {
            0 => upstream.reset(),
            1 => links[0].reset(),
            _ => links[1].reset(),
        }
        for replica in [&by_gtid, &slow] {
            if let Err(error) = until_it_receives(replica).await {
                bail!(
                    "a replica does not receive events: {error}; streams of the binlog server: {:?}",
                    tailwater.streams().await?
                );
            }
        }
    }
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "the test clients had errors: {:?}", report.errors);
    links[1].set_bandwidth(None);
    for replica in [&by_gtid, &slow] {
        check_equal(replica, &source.server, &source.ledger).await?;
    }
    source.check_complete("log").await?;
    tailwater.stop().await
}

#[test]
fn replicas_of_mysql_97_survive_broken_links() -> Result<()> {
    run(broken(ServerKind::Mysql97))
}

#[test]
fn replicas_of_mariadb_1011_survive_broken_links() -> Result<()> {
    run(broken(ServerKind::Mariadb1011))
}

#[test]
fn replicas_of_mariadb_118_survive_broken_links() -> Result<()> {
    if is_skipped_in_ci(
        "broken_network_links::replicas_of_mariadb_118_survive_broken_links",
        "the same test on MariaDB 10.11",
    ) {
        return Ok(());
    }
    run(broken(ServerKind::Mariadb118))
}
