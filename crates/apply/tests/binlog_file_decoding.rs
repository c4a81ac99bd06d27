//! Decodes binlog files of real servers. Decodes each transaction as a whole and step by step, and also
//! decodes damaged copies of the transaction.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use tailwater_apply::ApplyError;
use tailwater_apply::replication_filter::{FilterError, FilterRoute};
use tailwater_apply::source_transaction::{ApplyStep, LogSpan, RowChanges, Transaction, TransactionContent};
use tailwater_apply::target_table::{IndexPart, TargetColumn, TargetTable, UniqueIndex};
use tailwater_apply::transaction_decoder::{
    DecodeLimits, Decoded, Decoder, OldTimeDigits, TableLookup, TransactionRead, TransactionReader,
    XaPartReader,
};
use tailwater_apply::writeset::IndexId;
use tailwater_log::{EntryFlags, EntryKind, LogEntry, LogPosition};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{
    BinlogEvent, EVENT_HEADER_BYTES, EventBody, EventHeader, EventType, FormatDescription, PayloadLimits,
    RowsKind,
};
use tailwater_wire::row_event::{RowChangeIter, TableMap};
use tailwater_wire::transaction_boundary::{TransactionStep, TransactionTracker};

use crate::binlog_event_reader::split;

const FILES: [&str; 9] = [
    "binlog/mysql-9.7",
    "binlog/mysql-9.7-plain",
    "binlog/mariadb-10.11",
    "binlog/mariadb-10.11-plain",
    "binlog/mariadb-11.8",
    "binlog/mariadb-11.8-plain",
    "rows/mysql-9.7",
    "rows/mariadb-10.11",
    "rows/mariadb-11.8",
];

/// The transactions of a binlog file, as log entries.
struct File {
    flavour: Flavour,
    description: Bytes,
    format: FormatDescription,
    transactions: Vec<(LogEntry, Vec<Bytes>)>,
}

impl File {
    fn read(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/fixtures");
        let path = folder.join(format!("{name}.binlog"));
        let file =
            std::fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        let events = split(file).unwrap();
        let description = events[0].clone();
        let format = FormatDescription::parse(&description[EVENT_HEADER_BYTES..]).unwrap();
        let flavour = format.flavour();
        let mut tracker = TransactionTracker::new(flavour);
        let mut transactions: Vec<(LogEntry, Vec<Bytes>)> = Vec::new();
        let mut offset = 4;
        for event in events {
            let header = EventHeader::parse(&event).unwrap();
            match tracker.observe(&header, &event[EVENT_HEADER_BYTES..], &format).unwrap() {
                TransactionStep::Begin(start) => {
                    let entry = LogEntry {
                        position: LogPosition { segment: 1, offset },
                        length: 0,
                        kind: EntryKind::Transaction,
                        gtid: start.gtid,
                        source_end: offset,
                        commit_time_us: start.commit_time_us.unwrap_or(0),
                        flags: EntryFlags::default(),
                    };
                    transactions.push((entry, vec![event.clone()]));
                }
                TransactionStep::Inside | TransactionStep::End => {
                    transactions.last_mut().unwrap().1.push(event.clone())
                }
                TransactionStep::Outside | TransactionStep::Abandoned => {}
            }
            offset += event.len() as u64;
        }
        for (entry, events) in &mut transactions {
            entry.length = events.iter().map(|event| event.len() as u64).sum();
        }
        Self { flavour, description, format, transactions }
    }

    fn decoder(&self, limits: DecodeLimits) -> Decoder {
        let mut decoder = Decoder::new(self.flavour, limits, 7);
        decoder.format_description(&self.description).unwrap();
        decoder
    }

    /// Counts the rows of a transaction without using the decoder.
    fn count_rows(&self, events: &[Bytes]) -> usize {
        let mut maps = HashMap::new();
        let mut count = 0;
        for event in events {
            match BinlogEvent::parse(event, &self.format).unwrap().body {
                EventBody::TransactionPayload(payload) => {
                    let mut inner = payload.events(PayloadLimits::default()).unwrap();
                    while let Some(event) = inner.next_event().unwrap() {
                        let header = EventHeader::parse(event).unwrap();
                        let body =
                            EventBody::parse(&header, &event[EVENT_HEADER_BYTES..], &self.format).unwrap();
                        count += self.rows_of(&body, &mut maps);
                    }
                }
                body => count += self.rows_of(&body, &mut maps),
            }
        }
        count
    }

    fn rows_of(&self, body: &EventBody<'_>, maps: &mut HashMap<u64, TableMap>) -> usize {
        match body {
            EventBody::TableMap(body) => {
                let map = TableMap::parse(body, self.flavour).unwrap();
                maps.insert(map.table_id, map);
                0
            }
            EventBody::Rows(event) if maps.contains_key(&event.table_id) => {
                let images = event.images(1 << 20).unwrap();
                RowChangeIter::new(&maps[&event.table_id], event, &images)
                    .unwrap()
                    .map(Result::unwrap)
                    .count()
            }
            _ => 0,
        }
    }
}

/// A target with all tables that the test has added. Each table has the columns of its table map, and its
/// first column is the primary key.
#[derive(Default)]
struct Everything {
    tables: HashMap<(String, String), Arc<TargetTable>>,
    dropped: Option<RowsKind>,
}

impl TableLookup for Everything {
    fn route(&mut self, _: &str, table: &str, kind: RowsKind) -> Result<FilterRoute, FilterError> {
        Ok(match self.dropped == Some(kind) {
            true => FilterRoute::Drop,
            false => FilterRoute::Rename { schema: "copy".into(), table: table.into() },
        })
    }

    fn target(&self, schema: &str, table: &str) -> Option<Arc<TargetTable>> {
        self.tables.get(&(schema.to_owned(), table.to_owned())).cloned()
    }

    fn old_time_digits(&self, _: &str, _: &str) -> OldTimeDigits {
        OldTimeDigits::Target
    }
}

impl Everything {
    fn add(&mut self, file: &File, schema: &str, table: &str) {
        // If the log does not contain column names, columns are matched by position. If the log contains
        // them, use the names of the newest table map.
        let mut names: Vec<String> = (0..200).map(|number| format!("c{number}")).collect();
        file.each_map(|map| {
            if map.table == table {
                for (place, column) in map.columns.iter().enumerate() {
                    if let Some(name) = &column.name {
                        names[place] = name.clone();
                    }
                }
            }
        });
        let columns = names.into_iter().map(|name| TargetColumn {
            name,
            column_type: "int".to_owned(),
            collation: None,
            nullable: true,
            generated: false,
            stored: false,
            period: None,
            auto_increment: false,
        });
        let number = self.tables.len() as u32;
        let target = TargetTable {
            transactional: true,
            engine: "INNODB".to_owned(),
            partitioned: false,
            flavour: file.flavour,
            schema: schema.to_owned(),
            table: table.to_owned(),
            columns: columns.collect(),
            rows: IndexId(2 * number),
            unique: vec![UniqueIndex {
                id: IndexId(2 * number + 1),
                name: "PRIMARY".to_owned(),
                parts: vec![IndexPart { column: 0, prefix: None }],
                opaque: false,
            }],
            has_primary_key: true,
            parents: Vec::new(),
            children: Vec::new(),
            cascades: Vec::new(),
        };
        self.tables.insert((schema.to_owned(), table.to_owned()), Arc::new(target));
    }
}

impl File {
    fn each_map(&self, mut take: impl FnMut(&TableMap)) {
        for event in self.transactions.iter().flat_map(|(_, events)| events) {
            let parsed = BinlogEvent::parse(event, &self.format).unwrap();
            match parsed.body {
                EventBody::TableMap(body) => take(&TableMap::parse(body, self.flavour).unwrap()),
                EventBody::TransactionPayload(payload) => {
                    let mut inner = payload.events(PayloadLimits::default()).unwrap();
                    while let Some(event) = inner.next_event().unwrap() {
                        if EventHeader::parse(event).unwrap().event_type == EventType::TABLE_MAP {
                            take(&TableMap::parse(&event[EVENT_HEADER_BYTES..], self.flavour).unwrap());
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

fn joined(events: &[Bytes]) -> Bytes {
    let mut joined = BytesMut::new();
    for event in events {
        joined.extend_from_slice(event);
    }
    joined.freeze()
}

fn span(entry: &LogEntry) -> LogSpan {
    LogSpan { start: entry.position, end: entry.end() }
}

/// Decodes a transaction. Adds the tables that the decoder requests, until no table is missing.
fn decode(
    file: &File,
    decoder: &mut Decoder,
    tables: &mut Everything,
    entry: &LogEntry,
    events: &[Bytes],
    xa_rows: bool,
) -> Result<Box<Transaction>, ApplyError> {
    loop {
        let decoded = match xa_rows {
            true => decoder.xa_rows(entry, span(entry), joined(events), tables)?,
            false => decoder.transaction(entry, span(entry), joined(events), tables)?,
        };
        match decoded {
            Decoded::Transaction(transaction) => return Ok(transaction),
            Decoded::NeedsTable { schema, table } => {
                assert!(
                    tables.target(&schema, &table).is_none(),
                    "the decoder requests {schema}.{table} again, although it was already added"
                );
                tables.add(file, &schema, &table);
            }
            Decoded::NeedsSource { schema, table } => {
                panic!("the decoder must not request the source's definition of {schema}.{table}")
            }
        }
    }
}

fn rows_in(content: &TransactionContent) -> usize {
    let of = |changes: &RowChanges| changes.rows.len();
    match content {
        TransactionContent::Rows(changes) => changes.iter().map(of).sum(),
        TransactionContent::Steps(steps) => {
            steps.iter().map(|step| if let ApplyStep::Rows(rows) = step { of(rows) } else { 0 }).sum()
        }
        _ => 0,
    }
}

/// Reads the steps of a transaction one by one.
fn read_steps(
    file: &File,
    decoder: &mut Decoder,
    tables: &mut Everything,
    entry: &LogEntry,
    events: &[Bytes],
) -> Result<Vec<ApplyStep>, ApplyError> {
    let mut reader = TransactionReader::new(entry);
    let mut events = events.iter();
    let mut steps = Vec::new();
    loop {
        match reader.read(decoder, tables)? {
            TransactionRead::Step(step) => steps.push(step),
            TransactionRead::NeedsTable { schema, table } => tables.add(file, &schema, &table),
            TransactionRead::NeedsSource { schema, table } => {
                panic!("the decoder must not request the source's definition of {schema}.{table}")
            }
            TransactionRead::NeedsEvent => match events.next() {
                Some(event) => reader.event(event.clone()),
                None => return Ok(steps),
            },
        }
    }
}

#[test]
fn every_transaction_of_real_files_decodes() {
    for name in FILES {
        let file = File::read(name);
        let mut decoder = file.decoder(DecodeLimits::default());
        let mut tables = Everything::default();
        let (mut rows, mut refused) = (0, 0);
        for (entry, events) in &file.transactions {
            let place = format!("{name} at {}", entry.position);
            let decoded = decode(&file, &mut decoder, &mut tables, entry, events, false);
            let transaction = match decoded {
                Ok(transaction) => transaction,
                // LOAD DATA statements and incident events cannot be applied.
                Err(ApplyError::Unsupported { .. }) => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("cannot decode the transaction in {place}: {error}"),
            };
            assert!(
                transaction.memory_bytes >= size_of::<Transaction>(),
                "the counted memory of the transaction is too small: {place}"
            );
            assert_eq!(transaction.gtid, entry.gtid, "{place}");
            let expected = file.count_rows(events);
            let transaction = match &transaction.content {
                TransactionContent::XaPrepare { .. } => {
                    decode(&file, &mut decoder, &mut tables, entry, events, true).unwrap()
                }
                _ => transaction,
            };
            if matches!(transaction.content, TransactionContent::Streamed { .. }) {
                let steps = read_steps(&file, &mut decoder, &mut tables, entry, events).unwrap();
                assert!(
                    steps.iter().any(|step| matches!(step, ApplyStep::Statement(_))),
                    "the transaction has no statement: {place}"
                );
                let streamed = TransactionContent::Steps(steps);
                assert_eq!(rows_in(&streamed), expected, "{place}");
                rows += expected;
                continue;
            }
            assert_eq!(
                rows_in(&transaction.content),
                expected,
                "wrong number of rows in {place}: {transaction:#?}"
            );
            rows += expected;
            check_rows(&place, &transaction);
        }
        assert!(
            rows > 0 && refused < 8,
            "{name} has too few rows ({rows}) or too many transactions that cannot be applied ({refused})"
        );
    }
}

/// Checks that the rows fill their images without gaps, and that the writeset contains their key accesses.
fn check_rows(place: &str, transaction: &Transaction) {
    let TransactionContent::Rows(changes) = &transaction.content else {
        return;
    };
    assert!(!transaction.writeset.barrier, "the transaction must not run alone: {place}");
    for changes in changes {
        let mut end = 0;
        for (index, row) in changes.rows.iter().enumerate() {
            assert_eq!(row.start, end, "{place}");
            end = row.end;
            let (before, after) = changes.images_of(index).unwrap();
            assert!(!before.is_empty(), "the row has no before image: {place}");
            let update = matches!(changes.kind, RowsKind::Update | RowsKind::PartialUpdate);
            assert_eq!(update, !after.is_empty(), "{place}");
            assert!(!changes.accesses_of(index).is_empty(), "the row has no key access: {place}");
            for access in changes.accesses_of(index) {
                let held = transaction.writeset.accesses.iter().any(|held| held.key == access.key);
                assert!(held, "a key access of the row is not in the writeset: {place}");
            }
        }
        assert_eq!(end as usize, changes.images.len(), "{place}");
    }
    assert!(
        transaction.writeset.accesses.windows(2).all(|pair| pair[0].key < pair[1].key),
        "the writeset is not sorted: {place}"
    );
}

/// Finds out with [`XaPartReader`] whether a transaction is a part of an XA transaction, from only those
/// events that the reader needs.
fn open(
    decoder: &Decoder,
    entry: &LogEntry,
    events: &[Bytes],
) -> Result<Option<TransactionContent>, ApplyError> {
    let mut opening = XaPartReader::new(entry);
    for event in events {
        if opening.is_over() {
            break;
        }
        if opening.wants(&EventHeader::parse(event).unwrap()) {
            opening.event(event.clone(), decoder)?;
        }
    }
    opening.finish()
}

#[test]
fn xa_transactions_are_matched_with_their_commits() {
    for name in ["binlog/mysql-9.7", "binlog/mariadb-10.11", "binlog/mariadb-11.8"] {
        let file = File::read(name);
        let mut decoder = file.decoder(DecodeLimits::default());
        let mut tables = Everything::default();
        let (mut prepared, mut committed, mut rolled_back) = (Vec::new(), Vec::new(), Vec::new());
        for (entry, events) in &file.transactions {
            let Ok(transaction) = decode(&file, &mut decoder, &mut tables, entry, events, false) else {
                continue;
            };
            // The first events of a transaction are enough to recognize a part of an XA transaction.
            let opening = open(&decoder, entry, events).unwrap();
            let names = |content: &TransactionContent| {
                matches!(
                    content,
                    TransactionContent::XaPrepare { .. }
                        | TransactionContent::XaCommit { .. }
                        | TransactionContent::XaRollback { .. }
                )
            };
            let wanted = names(&transaction.content).then(|| format!("{:?}", transaction.content));
            assert_eq!(
                opening.map(|content| format!("{content:?}")),
                wanted,
                "wrong part of an XA transaction in {name} at {}",
                entry.position
            );
            match &transaction.content {
                TransactionContent::XaPrepare { xid } => {
                    prepared.push(String::from_utf8_lossy(xid).into_owned())
                }
                TransactionContent::XaCommit { xid } => {
                    committed.push(String::from_utf8_lossy(xid).into_owned())
                }
                TransactionContent::XaRollback { xid } => {
                    rolled_back.push(String::from_utf8_lossy(xid).into_owned())
                }
                _ => {}
            }
        }
        assert!(
            !committed.is_empty() && !rolled_back.is_empty(),
            "no XA transaction was committed, or none was rolled back: {name}"
        );
        for xid in committed.iter().chain(&rolled_back) {
            assert!(
                prepared.contains(xid),
                "{name}: the log completes the XA transaction {xid} but prepares only {prepared:?}"
            );
        }
    }
}

#[test]
fn excluded_rows_are_left_out() {
    let file = File::read("rows/mysql-9.7");
    let mut tables = Everything { dropped: Some(RowsKind::Write), ..Everything::default() };
    let mut decoder = file.decoder(DecodeLimits::default());
    let mut kinds = Vec::new();
    for (entry, events) in &file.transactions {
        let transaction = decode(&file, &mut decoder, &mut tables, entry, events, false).unwrap();
        if let TransactionContent::Rows(changes) = &transaction.content {
            for changes in changes {
                assert_eq!(changes.table.target.schema, "copy");
                kinds.push(changes.kind);
            }
        }
    }
    assert!(!kinds.is_empty() && !kinds.contains(&RowsKind::Write), "wrong kinds of row changes: {kinds:?}");
}

#[test]
fn transactions_above_the_memory_limit_are_streamed() {
    let mut streamed = 0;
    for name in FILES {
        let file = File::read(name);
        let limits = DecodeLimits { transaction_bytes_max: 300, ..DecodeLimits::default() };
        let mut decoder = file.decoder(limits);
        let mut tables = Everything::default();
        for (entry, events) in &file.transactions {
            // The first event of a long transaction is enough.
            let held = if entry.length > 300 { &events[..1] } else { &events[..] };
            match decode(&file, &mut decoder, &mut tables, entry, held, false) {
                Ok(transaction) if entry.length > 300 => {
                    assert!(
                        matches!(transaction.content, TransactionContent::Streamed { bytes } if bytes == entry.length)
                    );
                    assert!(transaction.writeset.barrier);
                    streamed += 1;
                }
                Ok(_) | Err(ApplyError::Unsupported { .. }) => {}
                Err(error) => {
                    panic!("cannot decode the transaction in {name} at {}: {error}", entry.position)
                }
            }
        }
    }
    assert!(streamed > 50, "too few transactions were streamed: {streamed}");
}

proptest! {
    /// Decoding damaged events gives an error or a transaction, but never a panic. After the damage, the
    /// checksums are corrected, or checksums are off.
    #[test]
    fn damaged_events_never_panic(
        name in proptest::sample::select(&FILES[..]),
        which: proptest::sample::Index,
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let file = File::read(name);
        let (entry, events) = &file.transactions[which.index(file.transactions.len())];
        let mut events: Vec<Vec<u8>> = events.iter().map(|event| event.to_vec()).collect();
        for (place, byte) in &damage {
            let event = place.index(events.len());
            let at = EVENT_HEADER_BYTES + place.index(events[event].len() - EVENT_HEADER_BYTES);
            events[event][at] = *byte;
        }
        if let Some(cut) = cut {
            let event = cut.index(events.len());
            let length = EVENT_HEADER_BYTES + cut.index(events[event].len() - EVENT_HEADER_BYTES + 1);
            events[event].truncate(length);
            events[event][9..13].copy_from_slice(&(length as u32).to_le_bytes());
        }
        if file.format.has_checksums() {
            for event in &mut events {
                if let Some(body) = event.len().checked_sub(4).filter(|body| *body >= EVENT_HEADER_BYTES) {
                    let checksum = tailwater_wire::binlog_event::compute_checksum(&event[..body]);
                    event[body..].copy_from_slice(&checksum.to_le_bytes());
                }
            }
        }
        let events: Vec<Bytes> = events.into_iter().map(Bytes::from).collect();
        let limits = DecodeLimits { event_bytes_max: 1 << 20, transaction_bytes_max: 1 << 20 };
        let mut decoder = file.decoder(limits);
        let mut tables = Everything::default();
        for _ in 0..20 {
            match decoder.transaction(entry, span(entry), joined(&events), &mut tables) {
                Ok(Decoded::NeedsTable { schema, table }) => tables.add(&file, &schema, &table),
                Ok(Decoded::NeedsSource { schema, table }) => {
                    panic!("the decoder must not request the source's definition of {schema}.{table}")
                }
                _ => break,
            }
        }
        let _ = read_steps(&file, &mut decoder, &mut tables, entry, &events);
    }
}
