//! The channel executes transactions on the target before the log has synced them. The channel commits these
//! transactions only after they are durable in the log.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{ChannelOptions, ChannelStart, ChannelState, ChannelStatus};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_log::{AckMode, DurableState, LogHandle, LogOptions, LogPosition, LogWriter};
use tailwater_sandbox::ServerKind;
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::EventHeader;
use tailwater_wire::gtid::GtidSet;
use tempfile::TempDir;

use crate::channel_test_servers::{PATIENCE, Rig};
use crate::channel_under_test::wait_for;

/// Returns the entries of a log, with their events.
fn entries(log: &LogHandle) -> Result<Vec<Vec<Vec<u8>>>> {
    let mut reader = log.reader(LogPosition::ZERO)?;
    let mut entries = Vec::new();
    while reader.try_next()?.is_some() {
        let mut events = Vec::new();
        while reader.next_event()?.is_some() {
            let mut event = Vec::new();
            reader.read_event(&mut event)?;
            events.push(event);
        }
        entries.push(events);
    }
    Ok(entries)
}

/// Creates a log, or opens a log that was closed. Its settings are such that the log is synced only when the
/// test requests a sync.
fn open(folder: &Path) -> Result<LogWriter> {
    let options = LogOptions { background_sync_bytes: u64::MAX, ..LogOptions::default() };
    Ok(LogWriter::open(folder, options)?)
}

/// Returns a writer like that of [`open`], for a new log that starts like `log`.
fn writer(folder: &Path, log: &LogHandle) -> Result<LogWriter> {
    let mut writer = open(folder)?;
    let segment = log.segments().into_iter().next().context("the log is empty")?;
    writer.start_segment(&segment.source_file, segment.source_offset, &segment.source)?;
    Ok(writer)
}

fn append(writer: &mut LogWriter, entry: &[Vec<u8>]) -> Result<()> {
    for event in entry {
        writer.append(&EventHeader::parse(event)?, event, true, true)?;
    }
    Ok(())
}

/// Flushes two consecutive transactions, each as a separate batch.
fn flush_two(writer: &mut LogWriter, two: &[Vec<Vec<u8>>]) -> Result<()> {
    for entry in two {
        append(writer, entry)?;
        writer.flush()?;
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Returns two counts from the target: the committed rows of `t`, and the rows that open transactions have
/// changed, including progress rows.
async fn committed_and_open(rig: &Rig) -> Result<(u64, u64)> {
    // Servers refresh their list of open transactions only if the list was not read during the last 0.1 s.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let number = async |sql: &str| -> Result<u64> {
        let lines = rig.target.sql(sql).await?;
        Ok(lines.first().context("the query returned no row")?.parse()?)
    };
    let committed = number("SELECT COUNT(*) FROM shop.t").await?;
    Ok((
        committed,
        number("SELECT COALESCE(SUM(trx_rows_modified),0) FROM information_schema.innodb_trx").await?,
    ))
}

async fn until(what: &str, is_so: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !is_so().await? {
        ensure!(started.elapsed() < PATIENCE, "timed out while waiting for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Waits until a channel has stopped without an error.
async fn stopped(channel: &Channel) -> Result<()> {
    wait_for(channel, "stop", |status| status.state == ChannelState::Stopped).await.map(drop)
}

async fn commits_only_what_is_durable(kind: ServerKind, order: CommitOrder) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let tables = "CREATE TABLE shop.at_once (id INT) ENGINE=MyISAM; CREATE TABLE shop.t (id INT PRIMARY KEY)";
    rig.source.sql(&format!("CREATE DATABASE shop; {tables}")).await?;
    for (table, id) in [("t", 1), ("t", 2), ("t", 3), ("t", 4), ("at_once", 1), ("t", 5), ("t", 6)] {
        rig.source.sql(&format!("INSERT INTO shop.{table} VALUES ({id})")).await?;
    }
    let newest = rig.newest_gtid().await?;
    until("the relay to capture the source", async || {
        Ok(rig.log().gtid_set().is_some_and(|all| all.contains(&newest)))
    })
    .await?;
    let captured = entries(&rig.log())?;
    let (before, rows) = captured.split_at(captured.len() - 7);

    let folder = tempfile::tempdir()?;
    let mut writer = writer(folder.path(), &rig.log())?;
    before.iter().try_for_each(|entry| append(&mut writer, entry))?;
    writer.sync()?;
    let options = ChannelOptions { commit_order: order, ..rig.options("second") };
    let channel = Channel::start(options, writer.handle(), rig.source_time(), false);
    until("the target to have the table shop.t", async || {
        Ok(rig.target.sql("SELECT 1 FROM shop.t").await.is_ok())
    })
    .await?;

    // The channel writes the first row on the target before the row is durable in the log, but does not
    // commit it.
    append(&mut writer, &rows[0])?;
    writer.flush()?;
    until("a row to be written in an open transaction", async || Ok(committed_and_open(&rig).await?.1 > 0))
        .await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (committed, open) = committed_and_open(&rig).await?;
    ensure!(
        (committed, open > 0) == (0, true),
        "unexpected rows on the target: {committed} committed, {open} in open transactions"
    );
    // Sync in the background, like a relay while no client waits for an ACK.
    writer.sync_in_background()?;
    until("the first row to commit", async || Ok(committed_and_open(&rig).await? == (1, 0))).await?;

    // This row is durable from the start.
    append(&mut writer, &rows[1])?;
    writer.sync()?;
    until("the second row to commit", async || Ok(committed_and_open(&rig).await? == (2, 0))).await?;

    // The channel executes these transactions on the target. The commits wait, because the transactions are
    // not durable in the log. A channel that stops must not wait for the log's disk, which may hang.
    flush_two(&mut writer, &rows[2..4])?;
    until("more rows to be written in open transactions", async || Ok(committed_and_open(&rig).await?.1 > 0))
        .await?;
    tokio::time::timeout(PATIENCE, channel.pause()).await.context("the channel did not stop in time")??;
    let (committed, open) = committed_and_open(&rig).await?;
    ensure!(
        (committed, open) == (2, 0),
        "unexpected rows on the target: {committed} committed, {open} in open transactions"
    );
    writer.sync()?;
    channel.resume(None).await?;
    until("four rows to be committed and none to be open", async || {
        Ok(committed_and_open(&rig).await? == (4, 0))
    })
    .await?;

    // Rows of a MyISAM table cannot be rolled back, so the channel starts a transaction with such rows only
    // after it is durable in the log.
    append(&mut writer, &rows[4])?;
    writer.flush()?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let at_once = async || Ok::<_, anyhow::Error>(rig.target.sql("SELECT id FROM shop.at_once").await?);
    ensure!(at_once().await?.is_empty(), "a MyISAM row was written before it was durable");
    writer.sync()?;
    until("the MyISAM row to be written", async || Ok(at_once().await?.len() == 1)).await?;

    // These two transactions never become durable, because the log is closed first.
    flush_two(&mut writer, &rows[5..7])?;
    until("the last rows to be written in open transactions", async || {
        Ok(committed_and_open(&rig).await?.1 > 0)
    })
    .await?;
    drop(writer);
    stopped(&channel).await?;
    let (committed, open) = committed_and_open(&rig).await?;
    ensure!(
        (committed, open) == (4, 0),
        "unexpected rows on the target: {committed} committed, {open} in open transactions"
    );
    channel.shut_down().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_commits_only_what_is_durable_in_independent_order() -> Result<()> {
    commits_only_what_is_durable(ServerKind::Mariadb1011, CommitOrder::Independent).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_commits_only_what_is_durable_in_source_order() -> Result<()> {
    commits_only_what_is_durable(ServerKind::Mysql97, CommitOrder::Source).await
}

/// Waits until the log has all transactions of the source, with or without GTIDs. Returns the events of each
/// log entry.
async fn captured(rig: &Rig) -> Result<Vec<Vec<Vec<u8>>>> {
    let sql = match rig.source.kind().flavour() {
        Flavour::MySql => "SHOW BINARY LOG STATUS",
        Flavour::MariaDb => "SHOW MASTER STATUS",
    };
    let status = rig.source.sql(sql).await?.concat();
    let end: u64 =
        status.split('\t').nth(1).context("the source's binlog status has no position")?.parse()?;
    until("the relay to capture the source", async || {
        Ok(rig.log().last_transaction().is_some_and(|last| last.source_end >= end))
    })
    .await?;
    entries(&rig.log())
}

/// A log whose relay acknowledges transactions on receipt. Its machine loses power after the channel has
/// applied transactions that were not durable.
struct PowerCut {
    rig: Rig,
    /// The first entries of the source's binlog file.
    head: Vec<Vec<Vec<u8>>>,
    /// Five transactions. After the power failure the log has only the first of these transactions, while the
    /// target has the first three.
    counts: Vec<Vec<Vec<u8>>>,
    options: ChannelOptions,
    after: TempDir,
    durable: DurableState,
}

impl PowerCut {
    fn log_options() -> LogOptions {
        let hour = Duration::from_secs(3600);
        LogOptions {
            background_sync_bytes: u64::MAX,
            ack: AckMode::Received,
            sync_interval: hour,
            ..LogOptions::default()
        }
    }

    async fn happen(kind: ServerKind, options: &[&str], order: CommitOrder) -> Result<Option<Self>> {
        let Some(rig) = Rig::start(kind, options, &[]).await? else { return Ok(None) };
        let tally = "CREATE TABLE shop.tally (id INT PRIMARY KEY, count INT)";
        rig.source
            .sql(&format!("CREATE DATABASE shop; {tally}; INSERT INTO shop.tally VALUES (1, 0)"))
            .await?;
        for _ in 0..5 {
            rig.source.sql("UPDATE shop.tally SET count = count + 1").await?;
        }
        let mut before = captured(&rig).await?;
        let counts = before.split_off(before.len() - 5);
        // The format description event, and on MySQL also the event with the GTIDs of earlier files. Each of
        // these events is a separate log entry.
        let head = before.iter().take_while(|entry| entry.len() == 1).take(2).cloned().collect();

        let folder = tempfile::tempdir()?;
        let mut log = LogWriter::open(folder.path(), Self::log_options())?;
        let segment = rig.log().segments().into_iter().next().context("the log is empty")?;
        log.start_segment(&segment.source_file, segment.source_offset, &segment.source)?;
        before.iter().chain(&counts[..1]).try_for_each(|entry| append(&mut log, entry))?;
        log.sync()?;
        let after = tempfile::tempdir()?;
        for file in std::fs::read_dir(folder.path())? {
            let file = file?;
            std::fs::copy(file.path(), after.path().join(file.file_name()))?;
        }
        let options =
            ChannelOptions { commit_order: order, start: ChannelStart::Oldest, ..rig.options("second") };
        let channel = Channel::start(options.clone(), log.handle(), rig.source_time(), false);
        let durable = log.handle().durable();
        let cut = Self { rig, head, counts, options, after, durable };
        until("the durable transactions to be applied", async || Ok(cut.count().await? == ["1"])).await?;
        cut.counts[1..3].iter().try_for_each(|entry| append(&mut log, entry))?;
        log.flush()?;
        until("the received transactions to be applied", async || Ok(cut.count().await? == ["3"])).await?;
        ensure!(log.handle().durable() == durable, "the log must not be synced before the power failure");
        channel.shut_down().await;
        Ok(Some(cut))
    }

    async fn count(&self) -> Result<Vec<String>> {
        Ok(self.rig.target.sql("SELECT count FROM shop.tally").await.unwrap_or_default())
    }

    /// Opens the log in the state in which the power failure has left it.
    fn log(&self) -> Result<LogWriter> {
        let log = LogWriter::open(self.after.path(), Self::log_options())?;
        ensure!(
            log.handle().durable() == self.durable,
            "the durable position of the log has changed: {:?}",
            log.handle().durable()
        );
        Ok(log)
    }

    fn channel(&self, log: &LogWriter) -> Channel {
        Channel::start(self.options.clone(), log.handle(), self.rig.source_time(), false)
    }
}

/// Server options for a source with GTIDs, and for a MySQL source without GTIDs.
const WITH_AND_WITHOUT: [&[&str]; 2] = [&[], &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]];

/// If the relay acknowledges transactions on receipt, a commit does not wait for the sync. A power failure
/// may then remove transactions from the log but not from the target. The relay captures these transactions
/// again before the channel resumes, and the channel does not apply them again.
async fn commits_when_received(kind: ServerKind, options: &[&str]) -> Result<()> {
    let Some(cut) = PowerCut::happen(kind, options, CommitOrder::Independent).await? else { return Ok(()) };
    let log = cut.log()?;
    let channel = cut.channel(&log);
    // The status shows why the channel waits.
    let waits = |status: &ChannelStatus| {
        let code = status.fault.as_ref().map(|fault| fault.code.as_str());
        status.state == ChannelState::Connecting && code == Some("TW-APP-0014")
    };
    let status = wait_for(&channel, "report that the target is ahead of the log", waits).await?;
    // The status also reports the GTIDs that the target has, because the target may be the most advanced
    // server.
    let flavour = cut.rig.source.kind().flavour();
    let had = GtidSet::parse(flavour, &status.gtids)?;
    let logged = log.handle().gtid_set().context("the log is empty")?;
    let beyond = had.subtract(&logged)?;
    ensure!(
        beyond.is_empty() != options.is_empty(),
        "wrong GTIDs in the status of the channel: {had}; the log has {logged}"
    );
    // If the log closes while the channel waits, the channel does not continue. A log closes, for example, if
    // the relay refuses to capture the source.
    drop(log);
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure!(
        channel.status().borrow().state != ChannelState::Failed,
        "wrong status of the channel: {:?}",
        channel.status().borrow()
    );
    channel.shut_down().await;
    let mut log = cut.log()?;
    let channel = cut.channel(&log);
    wait_for(&channel, "report again that the target is ahead of the log", waits).await?;
    cut.counts[1..].iter().try_for_each(|entry| append(&mut log, entry))?;
    // Flush the log, as a relay does after it has received events. No other code syncs this log.
    log.flush()?;
    until("all five rows to be applied", async || Ok(cut.count().await? == ["5"])).await?;
    ensure!(
        channel.status().borrow().transactions_total == 2,
        "wrong status of the channel: {:?}",
        channel.status().borrow()
    );
    channel.shut_down().await;
    Ok(())
}

/// The source and the machine of the log failed together. The log then captures another server, which has the
/// same transactions at other positions.
async fn transactions_at_another_position(kind: ServerKind, options: &[&str]) -> Result<()> {
    let order = if options.is_empty() { CommitOrder::Source } else { CommitOrder::Independent };
    let Some(cut) = PowerCut::happen(kind, options, order).await? else { return Ok(()) };
    let mut log = cut.log()?;
    let mut other = log.source_tail().context("the log is empty")?.source;
    other.server_id += 1;
    other.server_uuid = other.server_uuid.map(|uuid| uuid.chars().rev().collect());
    log.start_segment("binlog.000007", 4, &other)?;
    cut.head.iter().chain(&cut.counts[1..]).try_for_each(|entry| append(&mut log, entry))?;
    log.sync()?;
    let channel = cut.channel(&log);
    let fault = cut.rig.wait_failed(&channel).await?;
    ensure!(
        fault.code == "TW-APP-0006" && fault.message.contains("no transaction of this log ends there"),
        "wrong fault of the channel: {fault:?}"
    );
    let count = cut.count().await?;
    ensure!(count == ["3"], "wrong count in shop.tally on the target: {count:?}");
    channel.shut_down().await;
    Ok(())
}

/// The channel restarts although the log was not synced since the channel applied transactions.
async fn restarts_within_the_sync_interval(kind: ServerKind, options: &[&str]) -> Result<()> {
    let orders = [CommitOrder::Source, CommitOrder::Independent];
    for order in orders {
        let Some(cut) = PowerCut::happen(kind, options, order).await? else { return Ok(()) };
        let mut log = cut.log()?;
        cut.counts[1..3].iter().try_for_each(|entry| append(&mut log, entry))?;
        log.flush()?;
        let channel = cut.channel(&log);
        append(&mut log, &cut.counts[3])?;
        log.flush()?;
        until("the fourth row to be applied", async || Ok(cut.count().await? == ["4"])).await?;
        channel.pause().await?;
        channel.resume(None).await?;
        append(&mut log, &cut.counts[4])?;
        log.flush()?;
        until("the fifth row to be applied", async || Ok(cut.count().await? == ["5"])).await?;
        let status = channel.status().borrow().clone();
        ensure!(
            status.fault.is_none() && status.transactions_total == 2,
            "wrong status of the channel: {status:?}"
        );
        channel.shut_down().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_commits_received_transactions_if_acknowledged() -> Result<()> {
    commits_when_received(ServerKind::Mariadb1011, &[]).await?;
    restarts_within_the_sync_interval(ServerKind::Mariadb1011, &[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_commits_received_transactions_if_acknowledged() -> Result<()> {
    for options in WITH_AND_WITHOUT {
        commits_when_received(ServerKind::Mysql97, options).await?;
        restarts_within_the_sync_interval(ServerKind::Mysql97, options).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_at_another_log_position_are_not_applied_again() -> Result<()> {
    transactions_at_another_position(ServerKind::Mariadb1011, &[]).await?;
    for options in WITH_AND_WITHOUT {
        transactions_at_another_position(ServerKind::Mysql97, options).await?;
    }
    Ok(())
}

/// Some transactions are read from the log twice: large transactions and prepared XA transactions. The
/// channel waits between the two reads until they are durable. In this test the log closes instead.
async fn resumes_after_the_log_was_closed(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    rig.source.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, b LONGBLOB)").await?;
    rig.source.sql("INSERT INTO shop.t VALUES (1, REPEAT('b', 100000))").await?;
    let prepared = "XA START 'x'; INSERT INTO shop.t VALUES (2, 'b'); XA END 'x'; XA PREPARE 'x'";
    rig.source.sql(&format!("{prepared}; XA COMMIT 'x'")).await?;
    let newest = rig.newest_gtid().await?;
    until("the relay to capture the source", async || {
        Ok(rig.log().gtid_set().is_some_and(|all| all.contains(&newest)))
    })
    .await?;
    let captured = entries(&rig.log())?;
    let (before, read_again) = captured.split_at(captured.len() - 3);
    let (large, in_two_parts) = read_again.split_at(1);

    let folder = tempfile::tempdir()?;
    let mut log = writer(folder.path(), &rig.log())?;
    before.iter().try_for_each(|entry| append(&mut log, entry))?;
    log.sync()?;
    let options = ChannelOptions { transaction_bytes_max: 10_000, ..rig.options("second") };
    let start = |log: &LogWriter| Channel::start(options.clone(), log.handle(), rig.source_time(), false);
    let rows = async || Ok::<_, anyhow::Error>(rig.target.sql("SELECT id FROM shop.t ORDER BY id").await?);
    let mut channel = start(&log);
    until("the target to have the table shop.t", async || Ok(rows().await.is_ok())).await?;
    for (transaction, has, is_to_have) in [(large, &[][..], &["1"][..]), (in_two_parts, &["1"], &["1", "2"])]
    {
        transaction.iter().try_for_each(|entry| append(&mut log, entry))?;
        log.flush()?;
        // The reader needs time to read the transaction, and does not report when it has read the
        // transaction. So wait.
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(log);
        stopped(&channel).await?;
        ensure!(rows().await? == has, "wrong rows on the target: {:?}", rows().await?);
        channel.shut_down().await;
        log = open(folder.path())?;
        channel = start(&log);
        until("the rows to be applied after the restart", async || Ok(rows().await? == is_to_have)).await?;
    }
    channel.shut_down().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_resumes_after_the_log_was_closed() -> Result<()> {
    resumes_after_the_log_was_closed(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_resumes_after_the_log_was_closed() -> Result<()> {
    resumes_after_the_log_was_closed(ServerKind::Mysql97).await
}
