//! Captures without faults: every start position, rotations, several logs and several sources at the same
//! time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_capture::resume_position::StartPolicy;
use tailwater_log::{AckMode, LogWriter};
use tailwater_sandbox::ServerKind;

use crate::capture_test_source::{Running, Source, run, wait_until_acknowledged};

/// The first capture starts while clients already wait for their commits to be acknowledged. Then the source
/// rotates its binlog, the capture restarts, and further captures of the same source start at other
/// positions.
async fn under_load(kind: ServerKind) -> Result<()> {
    // CREATE TABLE would wait for an ACK too. So create the tables while a capture runs, then stop this
    // capture.
    let Some(mut source) = Source::start_waiting(kind, &["--max-binlog-size=65536"]).await? else {
        return Ok(());
    };
    let first = Running::start(source.options("live", 11))?;
    first.until_streaming().await?;
    source.prepare().await?;
    first.stop().await?;
    std::fs::remove_dir_all(source.log("live"))?;

    // Use enough clients to fill every stage of the source's group commit while all commits wait.
    let load = source.load(12, None);
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure!(load.counters().snapshot().acknowledged == 0, "commits did not wait for an ACK");
    let mut live = Running::start(source.options("live", 11))?;
    wait_until_acknowledged(&load, 150).await?;
    for _ in 0..3 {
        source.rotate().await?;
        wait_until_acknowledged(&load, 50).await?;
    }
    // While the capture is stopped, the clients wait again. After its restart, their commits continue.
    live.stop().await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    live = Running::start(source.options("live", 11))?;
    wait_until_acknowledged(&load, 100).await?;
    let mut received = source.options("received", 12);
    received.log.ack = AckMode::Received;
    let both = Running::start(received.clone())?;
    both.until_more(50).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "the test clients had errors: {:?}", report.errors);
    source.check_complete("live").await?;
    ensure!(source.check_ledger("live")?.acknowledged > 400);
    source.check_complete("received").await?;

    // The second capture, `both`, also sends ACKs when it is the only capture, and continues after a restart.
    let acks = live.status.snapshot().acks;
    ensure!(acks > 0 && acks >= live.status.snapshot().syncs);
    live.stop().await?;
    source.write(50).await?;
    both.stop().await?;
    let both = Running::start(received)?;
    both.until_streaming().await?;
    source.write(50).await?;
    source.check_complete("received").await?;
    both.stop().await?;
    let live = Running::start(source.options("live", 11))?;
    source.check_complete("live").await?;
    source.check_ledger("live")?;
    let semi_sync = source.server.semi_sync_status().await?;
    ensure!(
        semi_sync.unacknowledged == 0 && semi_sync.acknowledged > 0,
        "not every commit was acknowledged: {semi_sync:?}"
    );

    other_starts(&mut source, &live).await?;
    live.stop().await?;

    missing_start(&source).await?;
    source.server.kill().await?;
    Ok(())
}

/// Captures without semi-sync, one from the oldest binlog file and one from the middle of another file.
async fn other_starts(source: &mut Source, live: &Running) -> Result<()> {
    let mut oldest = source.options("oldest", 13);
    oldest.semi_sync = false;
    oldest.start = StartPolicy::Oldest;
    let oldest = Running::start(oldest)?;
    let (file, position) = middle_of_a_file(source).await?;
    let mut middle = source.options("middle", 14);
    middle.semi_sync = false;
    middle.start = StartPolicy::Position { file: file.clone(), position };
    // Simulate a log after a crash that left an empty segment.
    let identity = live.log().source().context("the capture has recorded no source in the log")?;
    LogWriter::open(&middle.directory, middle.log.clone())?.start_segment(&file, position, &identity)?;
    let from_middle = Running::start(middle.clone())?;
    source.check_complete("oldest").await?;
    source.check_complete("middle").await?;
    ensure!(oldest.status.snapshot().acks == 0);
    oldest.stop().await?;
    from_middle.stop().await?;
    let from_middle = Running::start(middle)?;
    source.write(20).await?;
    source.rotate().await?;
    source.check_complete("middle").await?;
    from_middle.stop().await?;
    Ok(())
}

/// A start position that does not exist on the source is refused.
async fn missing_start(source: &Source) -> Result<()> {
    let mut nowhere = source.options("nowhere", 15);
    nowhere.start = StartPolicy::Position { file: "binlog.999999".into(), position: 4 };
    let error = Running::start(nowhere)?.refusal().await?;
    ensure!(
        error.code() == "TW-RELAY-0013" && error.to_string().contains("binlog.999999:4"),
        "unexpected error: {error}"
    );
    Ok(())
}

/// Returns a binlog file and the start of a transaction in it that is not the file's first transaction.
async fn middle_of_a_file(source: &Source) -> Result<(String, u64)> {
    let mut files = source.binlogs().await?;
    files.pop();
    let (file, _) =
        files.iter().max_by_key(|(_, size)| *size).context("the source has only one binlog file")?;
    let events = source.server.sql(&format!("SHOW BINLOG EVENTS IN '{file}'")).await?;
    let starts = events.iter().filter_map(|line| {
        let mut fields = line.split('\t').skip(1);
        let position = fields.next()?.parse().ok()?;
        matches!(fields.next()?, "Gtid" | "Gtid_tagged").then_some(position)
    });
    let starts: Vec<u64> = starts.collect();
    ensure!(starts.len() > 4, "the binlog file {file} has only {} transactions", starts.len());
    Ok((file.clone(), starts[starts.len() / 2]))
}

#[test]
fn captures_under_load_on_mysql_97() -> Result<()> {
    run(under_load(ServerKind::Mysql97))
}

#[test]
fn captures_under_load_on_mariadb_1011() -> Result<()> {
    run(under_load(ServerKind::Mariadb1011))
}

/// One process captures a MariaDB source and a MySQL source at the same time. MariaDB 11.4 and later writes
/// no positions into events inside transactions, and the log must be complete anyway.
#[test]
fn mariadb_118_and_mysql_97_are_captured_at_once() -> Result<()> {
    run(async {
        let first = Source::start_waiting(ServerKind::Mariadb118, &["--max-binlog-size=65536"]).await?;
        let Some(mut first) = first else { return Ok(()) };
        let Some(mut second) = Source::start(ServerKind::Mysql97, &[]).await? else { return Ok(()) };
        let one = Running::start(first.options("one", 21))?;
        let mut options = second.options("two", 21);
        options.semi_sync = false;
        let two = Running::start(options)?;
        one.until_streaming().await?;
        first.prepare().await?;
        second.prepare().await?;
        let loads = (first.load(4, Some(300)), second.load(4, Some(300)));
        let reports = tokio::join!(loads.0.wait(), loads.1.wait());
        ensure!(
            reports.0.errors.is_empty() && reports.1.errors.is_empty(),
            "the test clients had errors: {reports:?}"
        );
        for (source, name) in [(&first, "one"), (&second, "two")] {
            source.check_complete(name).await?;
            ensure!(source.check_ledger(name)?.acknowledged == 300);
        }
        ensure!(first.server.semi_sync_status().await?.unacknowledged == 0);
        ensure!(one.status.snapshot().acks > 0 && two.status.snapshot().acks == 0);
        one.stop().await?;
        two.stop().await
    })
}

/// Runs two captures with the same `server_id`: whenever one of them connects, the source ends the stream of
/// the other. Both captures report this, and commits on the source continue.
async fn same_server_id(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start_waiting(kind, &[]).await? else { return Ok(()) };
    let left = Running::start(source.options("left", 31))?;
    left.until_streaming().await?;
    source.prepare().await?;
    let load = source.load(4, None);
    let right = Running::start(source.options("right", 31))?;
    left.until_waiting("server_id 31 too").await?;
    right.until_waiting("server_id 31 too").await?;
    let states = || format!("{:?} {:?}", left.status.snapshot(), right.status.snapshot());
    wait_until_acknowledged(&load, 200).await.with_context(states)?;
    right.stop().await?;
    wait_until_acknowledged(&load, 50).await?;
    load.finish().await;
    source.check_complete("left").await?;
    source.check_ledger("left")?;
    left.stop().await
}

#[test]
fn a_duplicate_server_id_is_reported_on_mysql_97() -> Result<()> {
    run(same_server_id(ServerKind::Mysql97))
}

#[test]
fn a_duplicate_server_id_is_reported_on_mariadb_1011() -> Result<()> {
    run(same_server_id(ServerKind::Mariadb1011))
}
