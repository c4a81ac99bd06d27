//! Applies TIME, DATETIME and TIMESTAMP columns in the layout from before MySQL 5.6. The binlog does not
//! contain the number of their fractional digits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{
    ChannelFault, ChannelOptions, ChannelStart, ChannelState, OldTemporalPrecision,
};
use tailwater_apply::source_table_columns::{SourceAnswer, SourceCatalogue, SourceColumn, read_source_table};
use tailwater_sandbox::{ReplicaOf, Server, ServerKind};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::gtid::MariadbPosition;

use crate::channel_test_servers::{PATIENCE, Rig, spec};

/// Reads table definitions from a server, as the source of a channel.
#[derive(Debug)]
struct ServerCatalogue(ConnectOptions);

impl SourceCatalogue for ServerCatalogue {
    fn table<'a>(&'a self, schema: &'a str, table: &'a str) -> SourceAnswer<'a> {
        Box::pin(async move {
            let mut connection = Connection::connect(&self.0).await?;
            read_source_table(&mut connection, schema, table).await
        })
    }
}

/// Returns the options of a channel that reads the source's table definitions with this account.
fn options(rig: &Rig, account: ConnectOptions) -> ChannelOptions {
    let source_catalogue: Arc<dyn SourceCatalogue> = Arc::new(ServerCatalogue(account));
    ChannelOptions {
        start: ChannelStart::Target,
        source_catalogue: Some(source_catalogue),
        ..rig.options("old")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_digits_are_applied_exactly() -> Result<()> {
    for kind in [ServerKind::Mariadb1011, ServerKind::Mariadb118] {
        let Some(rig) = begin(kind).await? else { continue };
        let mut tables = vec![("wide".to_owned(), WIDE.to_owned())];
        for digits in 0..=6 {
            tables.push((format!("d{digits}"), columns(digits)));
        }
        // For each source table, one target table has the new layout and one has the old layout.
        for (table, columns) in &tables {
            for (suffix, target_is_old) in [("_new", false), ("_old", true)] {
                let name = format!("{table}{suffix}");
                make(&rig.source, &name, columns, true).await?;
                make(&rig.target, &name, columns, target_is_old).await?;
            }
        }
        // The hidden period columns of the table `versioned` have fractional digits too.
        for server in [&rig.source, &rig.target] {
            make(server, "versioned", &format!("{} WITH SYSTEM VERSIONING", columns(3)), true).await?;
        }
        let channel = rig.channel(options(&rig, rig.source.socket_options()));
        for (table, _) in &tables {
            for suffix in ["_new", "_old"] {
                let name = format!("{table}{suffix}");
                let rows = if table == "wide" { wide_rows(&name) } else { rows(&name) };
                rig.source.sql(&format!("USE old; {SESSION}; {rows}")).await?;
            }
        }
        rig.source.sql(&format!("USE old; {SESSION}; {}", rows("versioned"))).await?;
        rig.wait_applied(&channel).await?;
        ensure_same(&rig, "versioned").await?;
        for (table, _) in &tables {
            for suffix in ["_new", "_old"] {
                ensure_same(&rig, &format!("{table}{suffix}")).await?;
            }
        }
        // A DDL statement changes the number of digits on both servers, and the channel reads the definition
        // from the source again.
        rig.source
            .sql("SET GLOBAL mysql56_temporal_format=OFF; ALTER TABLE old.d1_old MODIFY a TIME(5)")
            .await?;
        rig.source.sql("SET GLOBAL mysql56_temporal_format=ON").await?;
        rig.source
            .sql(&format!("USE old; {SESSION}; INSERT INTO d1_old VALUES (9, '1:2:3.45678', NULL, NULL)"))
            .await?;
        rig.wait_applied(&channel).await?;
        ensure_same(&rig, "d1_old").await?;
        channel.shut_down().await;
        rig.ensure_equal(&["old"]).await?;
    }
    Ok(())
}

/// `TIME(1)` and `TIME(2)` have the same length in the log, so only the table definition on the source shows
/// the difference.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn different_digits_stop_the_channel() -> Result<()> {
    let Some(rig) = begin(ServerKind::Mariadb1011).await? else { return Ok(()) };
    for (table, target_is_old) in [("new", false), ("same", true)] {
        make(&rig.source, table, "(id INT PRIMARY KEY, a TIME(1))", true).await?;
        make(&rig.target, table, "(id INT PRIMARY KEY, a TIME(2))", target_is_old).await?;
    }
    let channel = rig.channel(options(&rig, rig.source.socket_options()));
    for table in ["new", "same"] {
        rig.source.sql(&format!("INSERT INTO old.{table} VALUES (1, '12:34:56.7'), (2, '-0:0:0.1')")).await?;
        let fault = rig.wait_failed(&channel).await?;
        ensure!(fault.code == "TW-APP-0054", "wrong fault of the channel: {fault:?}");
        for part in [&format!("old.{table}, column 2"), "a time(1)", "target time(2)", "FORCE"] {
            ensure!(fault.message.contains(part), "the fault does not contain {part:?}: {fault:?}");
        }
        ensure!(rig.target.sql(&format!("SELECT COUNT(*) FROM old.{table}")).await? == ["0"]);
        // Apply the remedy that the error message names.
        rig.target.sql(&format!("ALTER TABLE old.{table} MODIFY a TIME(1)")).await?;
        channel.resume(None).await?;
        rig.wait_applied(&channel).await?;
        ensure_same(&rig, table).await?;
    }
    channel.shut_down().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_channel_waits_for_a_source_that_is_down() -> Result<()> {
    let Some(mut rig) = begin(ServerKind::Mariadb1011).await? else { return Ok(()) };
    for server in [&rig.source, &rig.target] {
        make(server, "t", &columns(3), true).await?;
    }
    // This account may replicate, but sees no table.
    let account = rig.source.replication_options();
    let channel = rig.channel(options(&rig, account.clone()));
    rig.source.sql(&format!("USE old; {SESSION}; {}", rows("t"))).await?;
    let fault = wait_for_source_error(&channel).await?;
    ensure!(
        fault.message.contains("old.t") && fault.message.contains("GRANT SELECT on the table"),
        "wrong fault of the channel: {fault:?}"
    );
    ensure!(rig.target.sql("SELECT COUNT(*) FROM old.t").await? == ["0"]);
    rig.source.sql(&format!("SET sql_log_bin=0; GRANT SELECT ON old.* TO {}", account.user)).await?;
    rig.wait_applied(&channel).await?;
    ensure_same(&rig, "t").await?;
    channel.pause().await?;
    // The log has the rows, but the source is down.
    rig.source.sql(&format!("USE old; {SESSION}; UPDATE t SET a = '0:0:0.123' WHERE id = 1")).await?;
    let wanted = rig.source_gtids().await?;
    while !rig.log().gtid_set().is_some_and(|logged| wanted.is_subset_of(&logged)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    rig.source.stop().await?;
    channel.resume(None).await?;
    let fault = wait_for_source_error(&channel).await?;
    ensure!(
        fault.message.contains("The channel retries to read it from the source"),
        "wrong fault of the channel: {fault:?}"
    );
    rig.source.start_again().await?;
    rig.wait_applied(&channel).await?;
    ensure_same(&rig, "t").await?;
    channel.shut_down().await;
    Ok(())
}

/// Reads table definitions from a server, and lets a test change the answers.
#[derive(Debug)]
struct ChangedAnswers {
    server: ServerCatalogue,
    change: Arc<Mutex<Option<AnswerChange>>>,
}

#[derive(Debug, Clone)]
enum AnswerChange {
    ServerId(u32),
    Position(MariadbPosition),
}

impl SourceCatalogue for ChangedAnswers {
    fn table<'a>(&'a self, schema: &'a str, table: &'a str) -> SourceAnswer<'a> {
        Box::pin(async move {
            let mut answer = self.server.table(schema, table).await?;
            match self
                .change
                .lock()
                .expect("the mutex is not poisoned, because no test thread panicked")
                .clone()
            {
                Some(AnswerChange::ServerId(server_id)) => answer.server_id = server_id,
                Some(AnswerChange::Position(position)) => answer.position = position,
                None => {}
            }
            Ok(answer)
        })
    }
}

/// The channel waits in two cases. In the first case, the source is another server than the one that logged
/// the rows. In the second case, the relay has not yet captured what the source had logged when it answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_channel_waits_for_the_server_and_the_position_of_the_log() -> Result<()> {
    let Some(rig) = begin(ServerKind::Mariadb1011).await? else { return Ok(()) };
    let change = Arc::new(Mutex::new(None));
    let source_catalogue: Arc<dyn SourceCatalogue> = Arc::new(ChangedAnswers {
        server: ServerCatalogue(rig.source.socket_options()),
        change: Arc::clone(&change),
    });
    let options = ChannelOptions {
        start: ChannelStart::Target,
        source_catalogue: Some(source_catalogue),
        ..rig.options("old")
    };
    let channel = rig.channel(options);
    let cases = [
        ("moved", AnswerChange::ServerId(99), "the source is now the server with server_id 99"),
        ("lagging", AnswerChange::Position(MariadbPosition::parse("0-1-999999")?), "0-1-999999"),
    ];
    for (table, answer, reason) in cases {
        for server in [&rig.source, &rig.target] {
            make(server, table, &columns(3), true).await?;
        }
        *change.lock().expect("the mutex is not poisoned, because no test thread panicked") = Some(answer);
        rig.source.sql(&format!("USE old; {SESSION}; {}", rows(table))).await?;
        let fault = wait_for_source_error(&channel).await?;
        ensure!(
            fault.message.contains(&format!("old.{table}")) && fault.message.contains(reason),
            "wrong fault of the channel: {fault:?}"
        );
        ensure!(rig.target.sql(&format!("SELECT COUNT(*) FROM old.{table}")).await? == ["0"]);
        *change.lock().expect("the mutex is not poisoned, because no test thread panicked") = None;
        rig.wait_applied(&channel).await?;
        ensure_same(&rig, table).await?;
    }
    channel.shut_down().await;
    Ok(())
}

/// The channel lags, so the table definition on the source is newer than the rows. The target's definition
/// matches the source's current definition, but not the rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_ddl_statements_are_found() -> Result<()> {
    let Some(rig) = begin(ServerKind::Mariadb118).await? else { return Ok(()) };
    for (table, digits) in [("rebuilt", 1), ("changed", 2)] {
        make(&rig.source, table, "(id INT PRIMARY KEY, a TIME(1))", true).await?;
        make(&rig.target, table, &format!("(id INT PRIMARY KEY, a TIME({digits}))"), false).await?;
        rig.source.sql(&format!("INSERT INTO old.{table} VALUES (1, '12:34:56.7')")).await?;
    }
    // The first statement keeps the number of digits and changes the layout. The second one changes only the
    // digits.
    rig.source.sql("ALTER TABLE old.rebuilt FORCE").await?;
    rig.source
        .sql("SET GLOBAL mysql56_temporal_format=OFF; ALTER TABLE old.changed MODIFY a TIME(2)")
        .await?;
    rig.source.sql("SET GLOBAL mysql56_temporal_format=ON").await?;
    let verified = options(&rig, rig.source.socket_options());
    let channel = rig.channel(verified.clone());
    let fault = rig.wait_failed(&channel).await?;
    ensure!(
        fault.code == "TW-APP-0054" && fault.message.contains("old.changed"),
        "wrong fault of the channel: {fault:?}"
    );
    ensure!(fault.message.contains("the later transaction"), "wrong fault of the channel: {fault:?}");
    ensure!(rig.target.sql("SELECT COUNT(*) FROM old.changed").await? == ["0"]);
    ensure!(rig.target.sql("SELECT a FROM old.rebuilt").await? == ["12:34:56.7"]);
    channel.shut_down().await;
    // If the target declares the earlier number of digits, an operator can let the channel apply the rows
    // without verification.
    rig.target.sql("ALTER TABLE old.changed MODIFY a TIME(1)").await?;
    let channel =
        rig.channel(ChannelOptions { old_temporal_precision: OldTemporalPrecision::Target, ..verified });
    rig.wait_applied(&channel).await?;
    ensure_same(&rig, "changed").await?;
    channel.shut_down().await;
    Ok(())
}

/// A channel that lags reads rows of tables that the source has dropped since then. It applies these rows
/// with the target's digits, because the target will drop the tables too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_dropped_tables_are_applied() -> Result<()> {
    let Some(rig) = begin(ServerKind::Mariadb118).await? else { return Ok(()) };
    let old = "SET GLOBAL mysql56_temporal_format=OFF";
    let own = "SET GLOBAL mysql56_temporal_format=ON";
    rig.source.sql(&format!("{old}; CREATE DATABASE brief; {own}")).await?;
    for table in ["old.dropped", "old.replaced", "brief.gone"] {
        let make = format!("CREATE TABLE {table} (id INT PRIMARY KEY, a TIME(1)); {own}");
        let fill = format!("INSERT INTO {table} VALUES (1, '12:34:56.7')");
        rig.source.sql(&format!("{old}; {make}; {fill}")).await?;
    }
    rig.source.sql("DROP TABLE old.dropped; DROP DATABASE brief; DROP TABLE old.replaced").await?;
    rig.source.sql("CREATE TABLE old.replaced (id INT PRIMARY KEY, a TIME(2))").await?;
    rig.source.sql("INSERT INTO old.replaced VALUES (1, '12:34:56.78')").await?;
    let verified = options(&rig, rig.source.socket_options());
    let channel = rig.channel(verified);
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    ensure_same(&rig, "replaced").await?;
    ensure!(rig.target.sql("SHOW TABLES FROM old").await? == ["replaced"]);
    ensure!(rig.target.sql("SHOW DATABASES LIKE 'brief'").await?.is_empty());
    Ok(())
}

/// If the numbers of fractional digits are not verified, the channel writes the same values as native
/// replication, whether right or wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unverified_digits_give_the_values_of_native_replication() -> Result<()> {
    let Some(rig) = begin(ServerKind::Mariadb1011).await? else { return Ok(()) };
    let native = Server::start(spec(ServerKind::Mariadb1011, 3)).await?;
    let begin = rig.source.sql("SELECT @@GLOBAL.gtid_binlog_pos").await?.concat();
    native.sql(&format!("CREATE DATABASE old; SET GLOBAL gtid_slave_pos='{begin}'")).await?;
    for (table, digits) in [("right", 1), ("wrong", 2)] {
        make(&rig.source, table, "(id INT PRIMARY KEY, a TIME(1))", true).await?;
        for server in [&rig.target, &native] {
            make(server, table, &format!("(id INT PRIMARY KEY, a TIME({digits}))"), true).await?;
        }
        rig.source.sql(&format!("INSERT INTO old.{table} VALUES (1, '12:34:56.7'), (2, '0:0:0.1')")).await?;
    }
    native.replicate(&ReplicaOf::port(rig.source.port())).await?;
    let options = ChannelOptions { start: ChannelStart::Target, ..rig.options("old") };
    let channel =
        rig.channel(ChannelOptions { old_temporal_precision: OldTemporalPrecision::Target, ..options });
    rig.wait_applied(&channel).await?;
    for table in ["right", "wrong"] {
        let rows = format!("SELECT id, a FROM old.{table} ORDER BY id");
        let ours = rig.target.sql(&rows).await?;
        let started = std::time::Instant::now();
        while native.sql(&rows).await? != ours {
            ensure!(
                started.elapsed() < PATIENCE,
                "{table} differs: the channel's target has {ours:?}, and the native replica has {:?}",
                native.sql(&rows).await?
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ensure!(
            (ours == rig.source.sql(&rows).await?) == (table == "right"),
            "unverified numbers of fractional digits gave wrong values in {table}: {ours:?}"
        );
    }
    channel.shut_down().await;
    Ok(())
}

/// The number of digits and the layout of a table's columns do not depend on the current value of
/// `mysql56_temporal_format`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_catalogue_shows_digits_and_layout() -> Result<()> {
    for kind in [ServerKind::Mariadb1011, ServerKind::Mariadb118] {
        let Some(rig) = begin(kind).await? else { continue };
        make(&rig.source, "off", WIDE, true).await?;
        make(&rig.source, "onn", WIDE, false).await?;
        for format in ["ON", "OFF"] {
            rig.source.sql(&format!("SET GLOBAL mysql56_temporal_format={format}")).await?;
            let mut connection = Connection::connect(&rig.source.connect_options()).await?;
            for (table, old) in [("off", true), ("onn", false)] {
                let found = read_source_table(&mut connection, "old", table).await?;
                ensure!(found.server_id == 1, "wrong server ID of the source: {found:?}");
                let columns = found.columns.unwrap_or_default();
                let temporal: Vec<(&str, &str, u8, Option<bool>)> = columns
                    .iter()
                    .filter(|column| !["int", "varchar"].contains(&column.type_name.as_str()))
                    .map(|SourceColumn { name, type_name, digits, old_layout }| {
                        (&**name, &**type_name, *digits, *old_layout)
                    })
                    .collect();
                let expected = [
                    ("a", "time", 3),
                    ("b", "datetime", 6),
                    ("c", "timestamp", 2),
                    ("d", "datetime", 0),
                    ("e", "time", 0),
                    ("f", "timestamp", 0),
                    ("g", "time", 6),
                    ("h", "datetime", 1),
                ];
                let expected = expected.map(|(name, type_name, digits)| (name, type_name, digits, Some(old)));
                ensure!(
                    temporal == expected,
                    "{kind:?} shows unexpected temporal columns for {table}: {temporal:?}"
                );
                ensure!(columns.len() == 10, "wrong number of columns: {columns:?}");
            }
            let missing = read_source_table(&mut connection, "old", "missing").await?;
            ensure!(
                missing.columns.is_none(),
                "a table that does not exist must have no columns: {missing:?}"
            );
        }
    }
    Ok(())
}

/// Starts a source and a target, each with an empty database `old`. A channel starts after the creation of
/// the database.
async fn begin(kind: ServerKind) -> Result<Option<Rig>> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(None) };
    rig.source.sql("CREATE DATABASE old").await?;
    let begin = rig.source.sql("SELECT @@GLOBAL.gtid_binlog_pos").await?.concat();
    rig.target.sql(&format!("CREATE DATABASE old; SET GLOBAL gtid_slave_pos='{begin}'")).await?;
    Ok(Some(rig))
}

/// Creates a table without logging it.
async fn make(server: &Server, table: &str, columns: &str, is_old: bool) -> Result<()> {
    let format = if is_old { "OFF" } else { "ON" };
    let make = format!(
        "SET sql_log_bin=0; SET GLOBAL mysql56_temporal_format={format}; CREATE TABLE old.{table} {columns}; \
         SET GLOBAL mysql56_temporal_format=ON"
    );
    server.sql(&make).await?;
    Ok(())
}

/// Waits until a channel reports that it waits for the source.
async fn wait_for_source_error(channel: &Channel) -> Result<ChannelFault> {
    let mut status = channel.status();
    let waits = status.wait_for(|status| {
        let is_waiting = status.fault.as_ref().is_some_and(|fault| fault.code == "TW-APP-0055");
        is_waiting && status.state == ChannelState::Connecting
    });
    let waits = tokio::time::timeout(PATIENCE, waits).await??;
    Ok(waits.fault.clone().expect("the wait condition requires a fault"))
}

async fn ensure_same(rig: &Rig, table: &str) -> Result<()> {
    let rows = format!("SET time_zone='+00:00'; SELECT * FROM old.{table} ORDER BY id");
    let (ours, theirs) = (rig.target.sql(&rows).await?, rig.source.sql(&rows).await?);
    ensure!(
        ours == theirs && !ours.is_empty(),
        "{table} has other rows on the target than on the source: target {ours:#?}, source {theirs:#?}"
    );
    Ok(())
}

const SESSION: &str = "SET time_zone='+00:00', sql_mode=''";

fn columns(digits: u8) -> String {
    format!("(id INT PRIMARY KEY, a TIME({digits}), b DATETIME({digits}), c TIMESTAMP({digits}) NULL)")
}

/// Returns rows whose fractional seconds the server truncates to the number of digits of each column.
fn rows(table: &str) -> String {
    let rows = [
        "1, '-12:34:56.789123', '2024-02-29 12:34:56.123456', '2001-02-03 04:05:06.070809'",
        "2, NULL, NULL, NULL",
        "3, 0, 0, 0",
        "4, '838:59:59.999999', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.999999'",
        "5, '-838:59:59.999999', '1000-01-01', '1970-01-01 00:00:01'",
        "6, '00:00:00.100000', '2024-01-01 00:00:00.1', '2024-01-01 00:00:00.1'",
        "7, '-00:00:00.123456', '2024-01-01 00:00:00.000001', '2024-01-01 00:00:00.5'",
    ];
    let inserts = rows.map(|row| format!("INSERT INTO {table} VALUES ({row});")).concat();
    format!(
        "{inserts} UPDATE {table} SET a = '00:00:01.25', b = '2020-01-01 00:00:00.000001' WHERE id = 5; \
         DELETE FROM {table} WHERE id = 6;"
    )
}

const WIDE: &str = "(id INT PRIMARY KEY, a TIME(3), b DATETIME(6), c TIMESTAMP(2) NULL, d DATETIME, e TIME, \
                    f TIMESTAMP NULL, v VARCHAR(10), g TIME(6), h DATETIME(1))";

fn wide_rows(table: &str) -> String {
    let rows = [
        "1, '-12:34:56.789', '2024-02-29 12:34:56.123456', '2001-02-03 04:05:06.07', '2024-02-29 1:2:3', '838:59:59', \
         '2010-01-01', 'x', '00:00:00.000001', '2024-01-01 00:00:00.1'",
        "2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
        "3, 0, 0, 0, 0, 0, 0, '', 0, 0",
        "4, '838:59:59.999', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.99', '1000-01-01', '-838:59:59', \
         '1970-01-01 00:00:01', 'nine', '-838:59:59.999999', '9999-12-31 23:59:59.9'",
        "5, '00:00:00.5', '2024-02-29', '2001-02-03', '2024-02-29', '1:00', '2010-01-01', 'x', '1:00', '2024-01-01'",
        "6, '1:02:03.004', '2024-02-29 1:2:3', NULL, '2024-02-29', '1:00', NULL, 'six', '1:02:03.004', \
         '2024-02-29 1:2:3.4'",
    ];
    let inserts = rows.map(|row| format!("INSERT INTO {table} VALUES ({row});")).concat();
    format!(
        "{inserts} UPDATE {table} SET a = '00:00:01.25', b = '2020-01-01 00:00:00.000001' WHERE id = 5; \
         DELETE FROM {table} WHERE id = 6;"
    )
}
