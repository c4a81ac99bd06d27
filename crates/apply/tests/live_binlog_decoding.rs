//! Decodes transactions that a server has just logged. Table definitions come from the server's
//! `information_schema`.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use tailwater_apply::replication_filter::{FilterError, FilterRoute};
use tailwater_apply::source_transaction::{ApplyStep, LogSpan, Transaction, TransactionContent};
use tailwater_apply::table_definition_cache::Catalogue;
use tailwater_apply::target_table::TargetTable;
use tailwater_apply::transaction_decoder::{DecodeLimits, Decoded, Decoder, OldTimeDigits, TableLookup};
use tailwater_log::{EntryFlags, EntryKind, LogEntry, LogPosition};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{EVENT_HEADER_BYTES, EventHeader, FormatDescription, RowsKind};
use tailwater_wire::transaction_boundary::{TransactionStep, TransactionTracker};

use crate::binlog_event_reader::{flush, newest_events};

on_each_server!(the_newest_binlog_decodes);

/// A table lookup without filters: it finds all tables under their own names.
struct Catalogued(Catalogue);

impl TableLookup for Catalogued {
    fn route(&mut self, _: &str, _: &str, _: RowsKind) -> Result<FilterRoute, FilterError> {
        Ok(FilterRoute::Keep)
    }

    fn target(&self, schema: &str, table: &str) -> Option<Arc<TargetTable>> {
        self.0.get(schema, table)
    }

    fn old_time_digits(&self, _: &str, _: &str) -> OldTimeDigits {
        OldTimeDigits::Target
    }
}

async fn the_newest_binlog_decodes(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    // This test needs its own server, because other tests would write to its binlog.
    let relaxed = ["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"];
    let server = Server::start(ServerSpec::new(kind).options(relaxed)).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    connection.execute("CREATE DATABASE live").await?;
    connection.execute("USE live").await?;
    rows_of_every_image_have_keys(&server, &mut connection, kind.flavour()).await?;
    statements_and_their_context(&server, &mut connection, kind.flavour()).await
}

/// Decodes the newest binlog file.
async fn decode_all(
    server: &Server,
    connection: &mut Connection,
    flavour: Flavour,
) -> Result<Vec<Transaction>> {
    let events = newest_events(server, connection).await?;
    let mut decoder = Decoder::new(flavour, DecodeLimits::default(), 3);
    decoder.format_description(&events[0])?;
    let format = FormatDescription::parse(&events[0][EVENT_HEADER_BYTES..])?;
    let mut tables = Catalogued(Catalogue::new(flavour));
    let mut tracker = TransactionTracker::new(flavour);
    let (mut entry, mut bytes) = (None, BytesMut::new());
    let mut decoded = Vec::new();
    for event in &events {
        let header = EventHeader::parse(event)?;
        let boundary = tracker.observe(&header, &event[EVENT_HEADER_BYTES..], &format)?;
        match &boundary {
            TransactionStep::Outside | TransactionStep::Abandoned => continue,
            TransactionStep::Begin(start) => {
                entry = Some(LogEntry {
                    position: LogPosition { segment: 1, offset: 4 },
                    length: 0,
                    kind: EntryKind::Transaction,
                    gtid: start.gtid.clone(),
                    source_end: 0,
                    commit_time_us: 0,
                    flags: EntryFlags::default(),
                });
            }
            TransactionStep::Inside | TransactionStep::End => {}
        }
        bytes.extend_from_slice(event);
        if boundary == TransactionStep::End {
            let mut entry = entry.take().context("the transaction has no first event")?;
            let whole: Bytes = bytes.split().freeze();
            entry.length = whole.len() as u64;
            decoded.push(decode(&mut decoder, &mut tables, connection, &entry, whole).await?);
        }
    }
    Ok(decoded)
}

async fn decode(
    decoder: &mut Decoder,
    tables: &mut Catalogued,
    connection: &mut Connection,
    entry: &LogEntry,
    bytes: Bytes,
) -> Result<Transaction> {
    let span = LogSpan { start: entry.position, end: entry.end() };
    loop {
        match decoder.transaction(entry, span, bytes.clone(), tables)? {
            Decoded::Transaction(transaction) => return Ok(*transaction),
            Decoded::NeedsTable { schema, table } => {
                let loaded = tables.0.load(connection, &schema, &table).await?;
                ensure!(loaded.is_some(), "the server has no table {schema}.{table}");
            }
            Decoded::NeedsSource { schema, table } => {
                bail!("the decoder must not request the source's definition of {schema}.{table}")
            }
        }
    }
}

const CHANGES: [&str; 10] = [
    "INSERT INTO parent (id, name) VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    "INSERT INTO child (id, p, code) VALUES (1, 1, 'a'), (2, 2, 'b'), (3, NULL, NULL)",
    "UPDATE child SET code = 'c' WHERE id = 1",
    "UPDATE child SET p = 3 WHERE id = 2",
    "UPDATE parent SET note = 'noted' WHERE id = 1",
    "DELETE FROM child WHERE id = 2",
    "DELETE FROM parent WHERE id = 2",
    "INSERT INTO computed (id, a) VALUES (1, 5), (2, 6)",
    "UPDATE computed SET a = 7 WHERE id = 1",
    // This statement deletes a child row by a cascade.
    "DELETE FROM parent WHERE id = 1",
];

/// With full images, the keys of every row are known, even keys on generated columns. With minimal images,
/// enough keys are known to find the conflicts between the transactions.
async fn rows_of_every_image_have_keys(
    server: &Server,
    connection: &mut Connection,
    flavour: Flavour,
) -> Result<()> {
    for table in [
        "parent (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL UNIQUE, note TEXT)",
        "child (id INT PRIMARY KEY, p INT, code VARCHAR(9) UNIQUE, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "computed (id INT PRIMARY KEY, a INT, v INT GENERATED ALWAYS AS (a + 1) VIRTUAL, \
         s INT GENERATED ALWAYS AS (a * 2) STORED, UNIQUE KEY (v), UNIQUE KEY (s))",
    ] {
        connection.execute(&format!("CREATE TABLE {table}")).await.with_context(|| table.to_owned())?;
    }
    for image in ["FULL", "NOBLOB", "MINIMAL"] {
        connection.execute(&format!("SET binlog_row_image = {image}")).await?;
        flush(connection).await?;
        for change in CHANGES {
            connection.execute(change).await.with_context(|| change.to_owned())?;
        }
        let decoded = decode_all(server, connection, flavour).await?;
        ensure!(
            decoded.len() == CHANGES.len(),
            "wrong number of decoded transactions, {}: {decoded:#?}",
            decoded.len()
        );
        for (change, transaction) in CHANGES.iter().zip(&decoded) {
            let TransactionContent::Rows(changes) = &transaction.content else {
                bail!("{change} was not decoded as row changes: {transaction:?}")
            };
            ensure!(
                changes.iter().all(|changes| changes.table.same_shape),
                "{image} images: the source's table and the target's table must have the same shape: {change}"
            );
            let any = transaction.writeset.accesses.iter().filter(|access| access.key.is_any()).count();
            ensure!(!transaction.writeset.accesses.is_empty() && !transaction.writeset.barrier);
            ensure!(
                image == "MINIMAL" || any == 0,
                "{image} images: some keys of the rows that {change} changes are unknown: {:?}",
                transaction.writeset
            );
        }
        let TransactionContent::Rows(changes) = &decoded[9].content else {
            bail!("the transaction must contain rows: {:?}", decoded[9])
        };
        let tables: Vec<_> = changes.iter().map(|changes| changes.table.map.table.as_str()).collect();
        let cascades: &[&str] = match flavour {
            // MySQL logs the cascades. The flag `FLAG_SQL_FOREIGN_KEYS` shows this, and the computation of
            // keys relies on this flag.
            Flavour::MySql => &["child", "parent"],
            Flavour::MariaDb => &["parent"],
        };
        ensure!(
            tables == cascades,
            "{image} images: wrong tables in the transaction with the cascade: {tables:?}"
        );
        let conflict = |one: usize, other: usize| decoded[one].writeset.conflicts(&decoded[other].writeset);
        // Each child row must come after its parents. Changes of one row must keep their order. Deleting a
        // parent must wait for the changes of its children.
        ensure!(
            conflict(0, 1) && conflict(1, 2) && conflict(1, 3) && conflict(3, 5) && conflict(7, 8),
            "wrong conflicts between transactions with the row image: {image}"
        );
        ensure!(
            conflict(1, 6) && conflict(3, 6),
            "wrong conflicts between transactions with the row image: {image}"
        );
        // Transaction 5 deletes a child row that no longer references the parent row that transaction 6
        // deletes. So this conflict matters only where the source does not log cascades.
        ensure!(
            conflict(5, 6) || flavour == Flavour::MySql,
            "wrong conflicts between transactions with the row image: {image}"
        );
        ensure!(
            conflict(2, 9) && conflict(4, 9),
            "wrong conflicts between transactions with the row image: {image}"
        );
        ensure!(
            !conflict(2, 7) && !conflict(6, 8),
            "wrong conflicts between transactions with the row image: {image}"
        );
        for table in ["child", "parent", "computed"] {
            connection.execute(&format!("DELETE FROM {table}")).await?;
        }
    }
    Ok(())
}

async fn statements_and_their_context(
    server: &Server,
    connection: &mut Connection,
    flavour: Flavour,
) -> Result<()> {
    connection.execute("SET binlog_row_image = FULL").await?;
    connection.execute("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT) ENGINE = InnoDB").await?;
    connection.execute("INSERT INTO t (a) VALUES (1)").await?;
    flush(connection).await?;
    connection.execute("CREATE TABLE made AS SELECT id, a FROM t").await?;
    connection.execute("ALTER TABLE t ADD COLUMN b INT").await?;
    connection.execute("START TRANSACTION").await?;
    connection.execute("INSERT INTO t (a) VALUES (2)").await?;
    connection.execute("SAVEPOINT s").await?;
    connection.execute("INSERT INTO t (a) VALUES (3)").await?;
    connection.execute("COMMIT").await?;
    connection.execute("SET binlog_format = STATEMENT, @value = 7").await?;
    connection.execute("INSERT INTO t (a) VALUES (@value)").await?;
    let decoded = decode_all(server, connection, flavour).await?;
    let [made, altered, rows, statement] = &decoded[..] else {
        bail!("wrong number of transactions: {decoded:#?}")
    };
    ensure!(
        matches!(made.content, TransactionContent::Streamed { .. }) && made.writeset.barrier,
        "wrong content of the decoded transaction: {made:?}"
    );
    let of = |transaction: &Transaction| match &transaction.content {
        TransactionContent::Steps(steps) => match &steps[..] {
            [ApplyStep::Statement(statement)] => Ok(statement.clone()),
            other => bail!("the transaction must contain one statement: {other:?}"),
        },
        other => bail!("the transaction must contain one statement: {other:?}"),
    };
    let alter = of(altered)?;
    ensure!(alter.text.starts_with(b"ALTER TABLE t") && !alter.dml && altered.writeset.barrier);
    ensure!(&alter.database[..] == b"live");
    ensure!(
        matches!(&rows.content, TransactionContent::Rows(changes) if changes.len() == 2),
        "wrong content of the decoded transaction: {rows:?}"
    );
    let insert = of(statement)?;
    ensure!(
        insert.dml && insert.text.starts_with(b"INSERT") && insert.variables.len() == 2,
        "wrong content of the decoded transaction: {insert:?}"
    );
    if flavour == Flavour::MariaDb {
        // With this setting, MariaDB logs an ALTER in two phases. The decoder must return it as one
        // statement.
        connection.execute("SET binlog_alter_two_phase = ON").await?;
        flush(connection).await?;
        connection.execute("ALTER TABLE t ADD COLUMN c INT, ALGORITHM = COPY").await?;
        let decoded = decode_all(server, connection, flavour).await?;
        let [start, commit] = &decoded[..] else { bail!("wrong number of transactions: {decoded:#?}") };
        ensure!(
            matches!(&start.content, TransactionContent::Rows(changes) if changes.is_empty()),
            "wrong content of the decoded transaction: {start:?}"
        );
        ensure!(
            of(commit)?.text.starts_with(b"ALTER TABLE t"),
            "wrong content of the decoded transaction: {commit:?}"
        );
    }
    Ok(())
}
