//! Tests the operator's commands on a channel while clients write to the source: until conditions, seek,
//! skip, filters, renames and edits.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{
    ChannelEdit, ChannelOptions, ChannelState, GtidMode, SourceTime, UntilCondition,
};
use tailwater_apply::replication_filter::{FilterSet, Operation, Rewrite, Rule};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::{Server, ServerKind};
use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::channel_test_servers::{PATIENCE, Rig};
use crate::channel_under_test::wait_for;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_filters_are_edited_under_load() -> Result<()> {
    filters_are_edited_under_load(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_filters_are_edited_under_load() -> Result<()> {
    filters_are_edited_under_load(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_stops_at_the_until_condition() -> Result<()> {
    stops_at_the_until_condition(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_stops_at_the_until_condition() -> Result<()> {
    stops_at_the_until_condition(ServerKind::Mariadb1011).await
}

/// Native replication runs on the target, so the target rejects the applied GTIDs. The channel still applies
/// transactions, and stops without an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_rejects_gtids_is_no_error() -> Result<()> {
    let Some(rig) = Rig::start(ServerKind::Mariadb1011, &[], &[]).await? else { return Ok(()) };
    let nowhere =
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=1, MASTER_USER='nobody'; START SLAVE";
    rig.target.sql(nowhere).await?;
    let channel = rig.channel(rig.options("replica"));
    rig.source.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY)").await?;
    rig.source.sql("INSERT INTO shop.t VALUES (1)").await?;
    rig.wait_applied(&channel).await?;
    rig.source.sql("INSERT INTO shop.t VALUES (2)").await?;
    let second = rig.newest_gtid().await?.to_string();
    // The channel sets the applied GTIDs on the target only once a second, so they may not be set yet. The
    // last check of this test checks them.
    wait_for(&channel, "apply both rows", |status| status.newest_gtid == second).await?;
    channel.pause().await?;
    let status = channel.status().borrow().clone();
    ensure!(
        status.state == ChannelState::Stopped && status.fault.is_none(),
        "wrong status of the channel: {status:?}"
    );
    ensure!(ids(&rig.target, "shop.t").await? == [1, 2]);
    let position = "SELECT @@GLOBAL.gtid_slave_pos";
    ensure!(
        rig.target.sql(position).await?.concat().is_empty(),
        "the target must reject the applied GTIDs while replication runs"
    );

    rig.target.sql("STOP SLAVE; RESET SLAVE ALL").await?;
    channel.resume(None).await?;
    wait_for(&channel, "run", |status| status.state == ChannelState::Running).await?;
    wait_for(&channel, "set the applied GTIDs on the target", |status| {
        status.gtids_unpublished_reason.is_none()
    })
    .await?;
    channel.pause().await?;
    let applied = rig.target.sql(position).await?;
    ensure!(
        applied == rig.source.sql("SELECT @@GLOBAL.gtid_binlog_pos").await?,
        "the target has not applied the GTIDs of the source: {applied:?}"
    );
    channel.shut_down().await;
    Ok(())
}

/// If the clocks of the source and the channel differ, the channel measures lag and delay by the source's
/// clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_is_measured_by_the_sources_clock() -> Result<()> {
    const BESIDE_S: u32 = 5000;
    let Some(rig) = Rig::start(ServerKind::Mysql97, &[], &[]).await? else { return Ok(()) };
    rig.source.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY)").await?;
    // According to this clock, every transaction was committed 5000 seconds ago.
    let (now, beside_us) = (rig.source_time(), u64::from(BESIDE_S) * 1_000_000);
    let beside = SourceTime::new(move || now.now_us() + beside_us);
    let options = ChannelOptions { delay: Duration::from_secs(3600), ..rig.options("replica") };
    let channel = Channel::start(options, rig.log(), beside, false);
    rig.wait_applied(&channel).await?;

    let mut holding = Connection::connect(&rig.target.connect_options()).await?;
    holding.execute("LOCK TABLES shop.t READ").await?;
    rig.source.sql("INSERT INTO shop.t VALUES (1)").await?;
    let status =
        wait_for(&channel, "report a lag", |status| status.lag_seconds.is_some_and(|lag| lag > 0.0)).await?;
    let lags = f64::from(BESIDE_S)..f64::from(BESIDE_S) + PATIENCE.as_secs_f64();
    ensure!(
        status.lag_seconds.is_some_and(|lag| lags.contains(&lag)),
        "the channel reports a wrong lag: {status:?}"
    );
    holding.close().await;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;

    // According to the source's own clock, the transaction is new, and the delay has not passed.
    let options = ChannelOptions { delay: Duration::from_secs(3600), ..rig.options("replica") };
    let channel = rig.channel(options);
    rig.source.sql("INSERT INTO shop.t VALUES (2)").await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure!(ids(&rig.target, "shop.t").await? == [1]);
    channel.shut_down().await;
    Ok(())
}

const TABLES: [&str; 4] = ["shop.a", "shop.b", "shop.c", "zoo.d"];

/// One connection that inserts into each table in turn. Each insert is a transaction, and `id` ascends.
struct Load {
    rows: watch::Receiver<u64>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), SessionError>>,
}

impl Load {
    async fn start(source: &Server) -> Result<Self> {
        let mut connection = Connection::connect(&source.connect_options()).await?;
        let (count, rows) = watch::channel(0);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut id = 0;
            while !*stopped.borrow() {
                id += 1;
                for table in TABLES {
                    connection.execute(&format!("INSERT INTO {table} VALUES ({id}, 'row {id}')")).await?;
                }
                count.send_replace(id);
            }
            Ok(())
        });
        Ok(Self { rows, stop, task })
    }

    /// Waits until each table has this many more rows. Returns the new number of rows.
    async fn more(&mut self, rows: u64) -> Result<u64> {
        let wanted = *self.rows.borrow() + rows;
        Ok(*self
            .rows
            .wait_for(|rows| *rows >= wanted)
            .await
            .context("the inserting client stopped before it had inserted the rows")?)
    }

    async fn stop(self) -> Result<()> {
        self.stop.send_replace(true);
        Ok(self.task.await??)
    }
}

fn excluding(tables: &[&str]) -> FilterSet {
    let definitions = Rule { tables: "made.*".into(), operations: vec![Operation::Ddl] };
    let rules = tables.iter().map(|tables| Rule::from(*tables)).chain([definitions]);
    let rename = |from: &str, to: &str| Rewrite { from: from.into(), to: to.into() };
    FilterSet {
        exclude: rules.collect(),
        rewrite: vec![rename("shop.c", "copies.of_c"), rename("zoo.*", "garden.*")],
        ..FilterSet::default()
    }
}

/// Returns the IDs in a table, in order.
async fn ids(server: &Server, table: &str) -> Result<Vec<u64>> {
    let lines = server.sql(&format!("SELECT id FROM {table} ORDER BY id")).await?;
    lines.iter().map(|line| line.parse().context("the ID must be a number")).collect()
}

async fn filters_are_edited_under_load(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let tables = "id BIGINT PRIMARY KEY, t VARCHAR(30)";
    // The test creates the renamed tables itself, because statements are not rewritten.
    rig.target
        .sql(&format!(
            "SET sql_log_bin=0; CREATE DATABASE shop; CREATE DATABASE copies; CREATE DATABASE garden; \
             CREATE TABLE shop.a ({tables}); CREATE TABLE shop.b ({tables}); \
             CREATE TABLE copies.of_c ({tables}); CREATE TABLE garden.d ({tables})"
        ))
        .await?;
    let mut filters = excluding(&[]);
    filters.exclude.push(Rule { tables: "*.*".into(), operations: vec![Operation::Ddl] });
    rig.source
        .sql(&format!(
            "CREATE DATABASE shop; CREATE DATABASE zoo; CREATE TABLE shop.a ({tables}); \
             CREATE TABLE shop.b ({tables}); CREATE TABLE shop.c ({tables}); CREATE TABLE zoo.d ({tables})"
        ))
        .await?;
    let mut options = rig.options("replica");
    options.filters = filters;
    let mut channel = rig.channel(options.clone());
    rig.wait_applied(&channel).await?;
    let before = channel.status().borrow().transactions_total;
    let mut load = Load::start(&rig.source).await?;
    load.more(30).await?;
    wait_for(&channel, "apply some transactions", |status| status.transactions_total > before + 40).await?;

    // Without a GTID, the new filters take effect at the next transaction.
    channel.set_filters(excluding(&["shop.b"]), None).await?;
    wait_for(&channel, "use the new filters", |status| status.filter_version == 2).await?;
    load.more(60).await?;
    // The filters are stored on the target, so a new channel gets them.
    channel.shut_down().await;
    channel = rig.channel(options.clone());
    wait_for(&channel, "load the new filters from the target", |status| status.filter_version == 2).await?;
    edits_under_load(&channel, &mut load).await?;
    channel.set_filters(excluding(&[]), None).await?;
    load.more(30).await?;
    load.stop().await?;
    rig.wait_applied(&channel).await?;

    // The next filters take effect at a later transaction, and the channel is paused before that transaction.
    channel.pause().await?;
    rig.source.sql("INSERT INTO shop.b VALUES (1000001, 'before')").await?;
    rig.source.sql("INSERT INTO shop.b VALUES (1000002, 'from here')").await?;
    let from = rig.newest_gtid().await?;
    rig.source.sql("INSERT INTO shop.b VALUES (1000003, 'behind')").await?;
    channel.set_filters(excluding(&["shop.b"]), Some(from)).await?;
    channel.resume(None).await?;
    rig.wait_applied(&channel).await?;
    // A DDL statement on an excluded table is not applied.
    rig.source.sql("CREATE DATABASE made; CREATE TABLE made.t (id INT); DROP TABLE shop.b").await?;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    compare_with_filters(&rig).await
}

/// Edits the channel's settings while a client inserts rows. No row may be lost or written twice.
async fn edits_under_load(channel: &Channel, load: &mut Load) -> Result<()> {
    let nothing = ChannelEdit::default();
    for edit in [
        ChannelEdit { workers: Some(6), ..nothing.clone() },
        ChannelEdit { commit_order: Some(CommitOrder::Independent), ..nothing.clone() },
        ChannelEdit { batch_transactions_max: Some(1), batch_bytes_max: Some(1), ..nothing.clone() },
        ChannelEdit { gtid: Some(GtidMode::Own), workers: Some(2), ..nothing.clone() },
        ChannelEdit {
            gtid: Some(GtidMode::Log),
            commit_order: Some(CommitOrder::Source),
            batch_transactions_max: Some(100),
            batch_bytes_max: Some(1 << 20),
            ..nothing
        },
    ] {
        let before = channel.status().borrow().transactions_total;
        channel.edit(edit.clone()).await?;
        load.more(10).await?;
        let status =
            wait_for(channel, "apply more transactions", |status| status.transactions_total > before + 10)
                .await?;
        ensure!(
            edit.workers.is_none_or(|workers| workers == status.workers),
            "the channel does not have the workers of the edit {edit:?}: {status:?}"
        );
    }
    Ok(())
}

async fn compare_with_filters(rig: &Rig) -> Result<()> {
    for (theirs, ours) in [("shop.a", "shop.a"), ("shop.c", "copies.of_c"), ("zoo.d", "garden.d")] {
        let expected = rig.source.sql(&format!("SELECT * FROM {theirs} ORDER BY id")).await?;
        ensure!(
            rig.target.sql(&format!("SELECT * FROM {ours} ORDER BY id")).await? == expected,
            "wrong rows in the target table: {ours}"
        );
        ensure!(expected.len() > 100, "the source has too few rows: {}", expected.len());
    }
    // The target must lack two parts of the rows: one range in the middle, and all rows since the last
    // filters took effect.
    let all = ids(&rig.source, "shop.a").await?;
    let (named, kept): (Vec<u64>, Vec<u64>) =
        ids(&rig.target, "shop.b").await?.into_iter().partition(|id| *id > 1_000_000);
    ensure!(
        named == [1_000_001],
        "the target must have only the first of the rows with an ID above 1000000: {named:?}"
    );
    let missing: Vec<u64> = all.iter().copied().filter(|id| kept.binary_search(id).is_err()).collect();
    let (first, last) = missing
        .first()
        .zip(missing.last())
        .context("the target must lack the excluded rows, but has all rows")?;
    ensure!(last - first + 1 == missing.len() as u64, "the missing rows are not one range: {missing:?}");
    ensure!(
        missing.len() >= 10 && kept.first() == Some(&1) && kept.last() == all.last(),
        "the wrong rows are missing on the target: {missing:?}"
    );
    let made = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name IN ('made', 'zoo')";
    ensure!(rig.target.sql(made).await? == ["0"]);
    Ok(())
}

async fn stops_at_the_until_condition(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let channel = Channel::start(rig.options("replica"), rig.log(), rig.source_time(), true);
    rig.source.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY)").await?;
    rig.source.sql("INSERT INTO shop.t VALUES (1)").await?;
    let first = rig.newest_gtid().await?;
    let before_second = rig.source_gtids().await?;
    rig.source.sql("INSERT INTO shop.t VALUES (2)").await?;
    ensure!(
        channel.status().borrow().transactions_total == 0,
        "the channel is stopped and must not apply anything"
    );

    channel.resume(Some(UntilCondition::Gtid(first.clone()))).await?;
    wait_for(&channel, "stop", |status| status.state == ChannelState::Stopped).await?;
    ensure!(ids(&rig.target, "shop.t").await? == [1]);
    // This until condition names a transaction that is already applied.
    channel.resume(Some(UntilCondition::Gtid(first))).await?;
    wait_for(&channel, "stop a second time", |status| status.state == ChannelState::Stopped).await?;
    ensure!(ids(&rig.target, "shop.t").await? == [1]);

    // Wait for a full second, because MariaDB logs whole seconds.
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let moment = Duration::from_secs(now.as_secs() + 1);
    tokio::time::sleep(moment.saturating_sub(now) + Duration::from_millis(20)).await;
    rig.source.sql("INSERT INTO shop.t VALUES (3)").await?;
    channel.resume(Some(UntilCondition::TimeUs(u64::try_from(moment.as_micros())?))).await?;
    wait_for(&channel, "stop", |status| status.state == ChannelState::Stopped).await?;
    ensure!(ids(&rig.target, "shop.t").await? == [1, 2]);

    resumes_after_a_seek(&rig, &channel, before_second).await?;
    applies_with_the_configured_delay(&rig, &channel).await?;
    logs_as_the_gtid_mode_says(&rig, &channel).await?;
    starts_at_the_oldest_transaction(&rig).await?;
    channel.shut_down().await;
    rig.ensure_equal(&["shop"]).await
}

async fn resumes_after_a_seek(
    rig: &Rig,
    channel: &Channel,
    gtids: tailwater_wire::gtid::GtidSet,
) -> Result<()> {
    channel.pause().await?;
    rig.target.sql("DELETE FROM shop.t WHERE id > 1").await?;
    channel.seek(gtids).await?;
    ensure!(
        channel.status().borrow().state == ChannelState::Stopped,
        "the channel resumed without a command"
    );
    channel.resume(None).await?;
    rig.wait_applied(channel).await?;
    ensure!(ids(&rig.target, "shop.t").await? == [1, 2, 3]);
    Ok(())
}

async fn applies_with_the_configured_delay(rig: &Rig, channel: &Channel) -> Result<()> {
    let delay = |seconds| ChannelEdit { delay_seconds: Some(seconds), ..ChannelEdit::default() };
    channel.edit(delay(3600)).await?;
    rig.source.sql("INSERT INTO shop.t VALUES (4)").await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure!(ids(&rig.target, "shop.t").await? == [1, 2, 3]);
    channel.edit(delay(0)).await?;
    rig.wait_applied(channel).await?;
    ensure!(ids(&rig.target, "shop.t").await? == [1, 2, 3, 4]);
    let started = SystemTime::now();
    channel.edit(delay(2)).await?;
    rig.source.sql("INSERT INTO shop.t VALUES (5)").await?;
    rig.wait_applied(channel).await?;
    // MariaDB logs whole seconds, so the delay may be up to a second shorter.
    ensure!(
        started.elapsed()? >= Duration::from_secs(1),
        "the channel applied the row after only {:?}",
        started.elapsed()
    );
    channel.edit(delay(0)).await.context("cannot remove the delay from the channel")
}

/// Returns the events in the newest binlog file of the target.
async fn logged(target: &Server) -> Result<Vec<String>> {
    let files = target.sql("SHOW BINARY LOGS").await?;
    let newest = files
        .last()
        .and_then(|line| line.split('\t').next())
        .context("the target must have a binlog file")?;
    Ok(target.sql(&format!("SHOW BINLOG EVENTS IN '{newest}'")).await?)
}

async fn logs_as_the_gtid_mode_says(rig: &Rig, channel: &Channel) -> Result<()> {
    let mode = |gtid| ChannelEdit { gtid: Some(gtid), ..ChannelEdit::default() };
    rig.target.sql("FLUSH BINARY LOGS").await?;
    let names_table = |events: &[String]| events.iter().any(|event| event.contains("(shop.t)"));
    for (gtid, id) in
        [(GtidMode::Log, 10), (GtidMode::Own, 11), (GtidMode::Preserve, 12), (GtidMode::Log, 13)]
    {
        rig.target.sql("FLUSH BINARY LOGS").await?;
        channel.edit(mode(gtid)).await?;
        rig.source.sql(&format!("INSERT INTO shop.t VALUES ({id})")).await?;
        let newest = rig.newest_gtid().await?;
        let newest = match rig.target.kind().flavour() {
            Flavour::MySql => format!("GTID_NEXT= '{newest}'"),
            Flavour::MariaDb => format!("GTID {newest}"),
        };
        rig.wait_applied(channel).await?;
        let events = logged(&rig.target).await?;
        ensure!(
            names_table(&events) == (gtid != GtidMode::Log),
            "wrong events in the target's binlog with gtid = {gtid:?}: {events:#?}"
        );
        let preserved = events.iter().any(|event| event.contains(&newest));
        ensure!(
            preserved == (gtid == GtidMode::Preserve),
            "with gtid = {gtid:?}, the GTID {newest} is in the target's binlog, or is missing there: {events:#?}"
        );
        ensure!(ids(&rig.target, "shop.t").await?.contains(&id));
    }
    Ok(())
}

/// Starts another channel to the same target, at the log's oldest transaction.
async fn starts_at_the_oldest_transaction(rig: &Rig) -> Result<()> {
    let to = match rig.target.kind().flavour() {
        Flavour::MySql => "again",
        Flavour::MariaDb => "once_more",
    };
    rig.target.sql(&format!("CREATE DATABASE {to}; CREATE TABLE {to}.t (id INT PRIMARY KEY)")).await?;
    let start = tailwater_apply::channel::ChannelStart::Oldest;
    let mut options = ChannelOptions { start, gtid: GtidMode::Own, ..rig.options("copy") };
    options.filters.exclude = vec![Rule { tables: "*.*".into(), operations: vec![Operation::Ddl] }];
    options.filters.rewrite = vec![Rewrite { from: "shop.*".into(), to: format!("{to}.*") }];
    let copy = rig.channel(options);
    rig.wait_applied(&copy).await?;
    copy.shut_down().await;
    ensure!(ids(&rig.target, &format!("{to}.t")).await? == ids(&rig.source, "shop.t").await?);
    Ok(())
}
