//! Sources that restart, connections that break, and bits that change in transit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_capture::CaptureOptions;
use tailwater_sandbox::network_link::Direction;
use tailwater_sandbox::{Link, ServerKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::capture_test_source::{PATIENCE, Running, Source, run, through, wait_until_acknowledged};

/// Commits one transaction of `mib` MiB, in rows of 1 MiB.
async fn big_transaction(source: &Source, mib: u32) -> Result<()> {
    let mut sql = String::from("BEGIN;");
    for letter in ('a'..='z').cycle().take(mib as usize) {
        sql += &format!("INSERT INTO test_big.t (b) VALUES (REPEAT('{letter}', 1048576));");
    }
    source.server.sql(&(sql + "COMMIT")).await?;
    Ok(())
}

async fn restarts_and_cuts(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start_waiting(kind, &["--max-allowed-packet=64M"]).await? else {
        return Ok(());
    };
    let link = Link::open(source.server.address()).await?;
    let capture = Running::start(through(source.options("log", 41), link.port()))?;
    capture.until_streaming().await?;
    source.prepare().await?;
    let load = source.load(6, None);
    wait_until_acknowledged(&load, 100).await?;

    // Kill and restart the source. Then restart it again in an orderly way.
    source.server.kill().await?;
    source.server.start_again().await?;
    wait_until_acknowledged(&load, 100).await?;
    source.server.restart(None).await?;
    wait_until_acknowledged(&load, 100).await?;

    // Reset the connection, then refuse connections for a while.
    link.reset();
    wait_until_acknowledged(&load, 100).await?;
    link.refuse();
    capture.until_waiting("").await?;
    link.restore();
    wait_until_acknowledged(&load, 100).await?;
    // Drop the data on the link without closing it. The capture must detect the silence. After that, the link
    // accepts new connections.
    for cut in [
        Link::cut_both as fn(&Link),
        |link| link.cut(Direction::ToClient),
        |link| link.cut(Direction::ToServer),
    ] {
        cut(&link);
        capture.until_waiting("").await?;
        link.restore();
        wait_until_acknowledged(&load, 50).await?;
    }
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "the test clients had errors: {:?}", report.errors);
    source.check_complete("log").await?;

    // Reset the connection twice in the middle of a big transaction.
    source.server.sql("CREATE DATABASE test_big; CREATE TABLE test_big.t (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)").await?;
    let mib = 24;
    link.set_bandwidth(Some(32 << 20));
    let before = capture.status.snapshot().event_bytes;
    let commit = big_transaction(&source, mib);
    let cuts = async {
        for share in [8, 12] {
            capture
                .until("a part of the transaction to arrive", |now| now.event_bytes > before + (share << 20))
                .await?;
            link.reset();
        }
        anyhow::Ok(())
    };
    let (committed, cut) = tokio::join!(commit, cuts);
    cut?;
    committed?;
    source.check_complete("log").await?;
    let bytes = capture.status.snapshot().event_bytes - before;
    ensure!(
        bytes > u64::from(mib + 8) << 20,
        "the test reset no connection in the middle of the transaction: {bytes} bytes"
    );
    let report = source.check_ledger("log")?;
    ensure!(report.acknowledged >= 600, "too few commits were acknowledged: {report:?}");
    capture.stop().await
}

#[test]
fn captures_continue_after_restarts_and_broken_connections_mysql_97() -> Result<()> {
    run(restarts_and_cuts(ServerKind::Mysql97))
}

#[test]
fn captures_continue_after_restarts_and_broken_connections_mariadb_1011() -> Result<()> {
    run(restarts_and_cuts(ServerKind::Mariadb1011))
}

/// Returns the id of the connection on which the capture queries the source, or `None` if there is no such
/// connection now. The other connection of the capture is its stream.
async fn control(source: &Source) -> Result<Option<String>> {
    let user = source.server.replication_options().user;
    let lines = source.server.sql("SHOW PROCESSLIST").await?;
    let of_control = |line: &String| {
        let fields: Vec<&str> = line.split('\t').collect();
        let is_it = fields.get(1) == Some(&user.as_str())
            && fields.get(4).is_some_and(|command| !command.starts_with("Binlog Dump"));
        fields.first().filter(|_| is_it).map(|id| (*id).to_owned())
    };
    Ok(lines.iter().find_map(of_control))
}

/// Kills only the connection for queries, several times.
async fn lost_query_connection(kind: ServerKind, semi_sync: bool) -> Result<()> {
    let source = match semi_sync {
        true => Source::start_waiting(kind, &[]).await?,
        false => Source::start(kind, &[]).await?,
    };
    let Some(mut source) = source else { return Ok(()) };
    let capture = Running::start(CaptureOptions { semi_sync, ..source.options("log", 44) })?;
    capture.until_streaming().await?;
    source.prepare().await?;
    let load = source.load(4, None);
    wait_until_acknowledged(&load, 50).await?;
    for _ in 0..3 {
        let killed = control(&source).await?.context("the capture has no connection for queries")?;
        source.server.sql(&format!("KILL {killed}")).await?;
        let begin = Instant::now();
        while control(&source).await?.is_none_or(|now| now == killed) {
            ensure!(begin.elapsed() < PATIENCE, "the capture has stopped querying the source");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        wait_until_acknowledged(&load, 50).await?;
    }
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "the test clients had errors: {:?}", report.errors);
    source.check_complete("log").await?;
    source.check_ledger("log")?;
    let streams = capture.status.snapshot().connections;
    // With semi-sync, the capture also restarts the stream. No commit may depend on an ACK of the capture
    // while its semi-sync checks do not run.
    ensure!(if semi_sync { streams > 1 } else { streams == 1 }, "unexpected number of streams: {streams}");
    capture.stop().await
}

#[test]
fn the_query_connection_is_restored_mysql() -> Result<()> {
    run(lost_query_connection(ServerKind::Mysql97, false))
}

#[test]
fn the_query_connection_is_restored_mariadb() -> Result<()> {
    run(lost_query_connection(ServerKind::Mariadb1011, false))
}

#[test]
fn the_query_connection_is_restored_mysql_with_semi_sync() -> Result<()> {
    run(lost_query_connection(ServerKind::Mysql97, true))
}

/// Forwards connections to a server. Changes one bit of the server's data after `due` bytes were forwarded.
async fn flipping(target: std::net::SocketAddr, due: Arc<AtomicU64>, flips: Arc<AtomicU64>) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(target).await else { continue };
            let (due, flips) = (Arc::clone(&due), Arc::clone(&flips));
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                let mut buffer = vec![0; 16 << 10];
                let mut passed = 0_u64;
                while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
                    // Logins and query results have fewer bytes than this, so the changed bit is in the
                    // binlog stream.
                    if passed > 20_000 && passed + count as u64 > due.load(Ordering::Relaxed) {
                        buffer[count / 2] ^= 0x10;
                        due.store(u64::MAX, Ordering::Relaxed);
                        flips.fetch_add(1, Ordering::Relaxed);
                    }
                    passed += count as u64;
                    if to_client.write_all(&buffer[..count]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    Ok(port)
}

async fn flipped_bits(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start(kind, &["--max-binlog-size=131072"]).await? else { return Ok(()) };
    source.prepare().await?;
    source.write(400).await?;
    for round in 0..8_u64 {
        let due = Arc::new(AtomicU64::new(25_000 + round * 17_001));
        let flips = Arc::new(AtomicU64::new(0));
        let port = flipping(source.server.address(), Arc::clone(&due), Arc::clone(&flips)).await?;
        let name = format!("log-{round}");
        let mut options = through(source.options(&name, 51), port);
        options.semi_sync = false;
        options.start = tailwater_capture::resume_position::StartPolicy::Oldest;
        let capture = Running::start(options)?;
        source.check_complete(&name).await?;
        ensure!(flips.load(Ordering::Relaxed) == 1, "the link changed no bit, so the test proves nothing");
        ensure!(
            capture.status.snapshot().connections > 1,
            "the capture did not detect the changed bit in round {round}: {:?}",
            capture.status.snapshot()
        );
        source.check_ledger(&name)?;
        capture.stop().await?;
    }
    Ok(())
}

#[test]
fn flipped_bits_are_detected_mysql_97() -> Result<()> {
    run(flipped_bits(ServerKind::Mysql97))
}

#[test]
fn flipped_bits_are_detected_mariadb_1011() -> Result<()> {
    run(flipped_bits(ServerKind::Mariadb1011))
}

/// A source is frozen and later resumes. The capture detects the silence, and no event is lost or duplicated.
#[test]
fn a_frozen_source_is_detected_mariadb_1011() -> Result<()> {
    run(async {
        let Some(mut source) = Source::start_waiting(ServerKind::Mariadb1011, &[]).await? else {
            return Ok(());
        };
        let capture = Running::start(source.options("log", 61))?;
        capture.until_streaming().await?;
        source.prepare().await?;
        let load = source.load(4, None);
        wait_until_acknowledged(&load, 50).await?;
        source.server.pause()?;
        capture.until_waiting("silent").await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        source.server.resume()?;
        wait_until_acknowledged(&load, 50).await?;
        load.finish().await;
        source.check_complete("log").await?;
        source.check_ledger("log")?;
        capture.stop().await
    })
}
