//! Finds the tables whose rows come later in the log, and the layout of these tables on the source. This
//! module does no I/O: it takes events, and returns the tables to check.

use rustc_hash::{FxHashMap, FxHashSet};
use tailwater_wire::binlog_event::{
    EVENT_HEADER_BYTES, EventBody, EventHeader, EventType, FormatDescription, PayloadDecoder, PayloadLimits,
    RowsEvent, RowsKind, strip_checksum,
};
use tailwater_wire::row_event::TableMap;
use tailwater_wire::{Flavour, WireError};

use crate::channel::statement_filter::{OWN_SCHEMA, changed_objects};
use crate::replication_filter::{FilterRoute, Filters, Operation};
use crate::transaction_decoder::statement_classifier;

/// The maximum length of an event that the scan reads, in bytes.
const EVENT_BYTES_MAX: u32 = 4 << 20;

/// How much of a compressed transaction is read, in uncompressed bytes.
const PAYLOAD_BYTES_MAX: usize = 4 << 20;

/// How much of a rows event is read, in bytes: enough for its table ID.
const FRONT_BYTES: usize = 4 << 10;

/// The maximum number of table layouts that are checked. Other layouts are checked when their first row is
/// applied.
const TABLES_MAX: usize = 65_536;

/// Which part of an event the scan needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventPart {
    Nothing,
    Whole,
    /// The first bytes of the event, as many as this number says.
    Prefix(usize),
}

/// A table whose rows are in the log, and which is not checked yet.
#[derive(Debug)]
pub(super) struct TableToCheck {
    /// The table's database on the target.
    pub(super) schema: String,
    pub(super) table: String,
    pub(super) map: TableMap,
    /// The body of the table map event.
    pub(super) body: Vec<u8>,
}

/// The state of the scan.
#[derive(Debug)]
pub(super) struct PreflightScan {
    flavour: Flavour,
    format: FormatDescription,
    filters: Filters,
    /// The bodies of the table maps of the current transaction, by table ID.
    maps: FxHashMap<u64, Vec<u8>>,
    /// The tables that the scan has already returned: the operation on the rows, and the table map without
    /// its table ID.
    met: FxHashSet<(Operation, Vec<u8>)>,
    /// The objects that DDL statements have changed, in lower case: a database and a table, or only a
    /// database, which means all its tables.
    defined: FxHashSet<(String, Option<String>)>,
    over: bool,
}

impl PreflightScan {
    pub(super) fn new(flavour: Flavour, format: FormatDescription, filters: Filters) -> Self {
        Self {
            flavour,
            format,
            filters,
            maps: FxHashMap::default(),
            met: FxHashSet::default(),
            defined: FxHashSet::default(),
            over: false,
        }
    }

    /// Returns whether the scan can find nothing more.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Reads a format description event. If it is invalid, later events cannot be read.
    pub(super) fn format_description(&mut self, event: &[u8]) {
        match FormatDescription::parse(event.get(EVENT_HEADER_BYTES..).unwrap_or_default()) {
            Ok(format) => self.format = format,
            Err(_) => self.over = true,
        }
    }

    /// Replaces the filters. Call this when the channel's filters change.
    pub(super) fn select_filters(&mut self, filters: Filters) {
        self.filters = filters;
        self.met.clear();
    }

    /// Resets the state that belongs to one transaction. Call this before the events of the next transaction.
    pub(super) fn begin(&mut self) {
        self.maps.clear();
    }

    /// Returns which part of an event the scan needs.
    pub(super) fn wants(&mut self, header: &EventHeader) -> EventPart {
        let whole = match header.event_type {
            event_type if event_type.is_rows() => return EventPart::Prefix(FRONT_BYTES),
            EventType::TABLE_MAP
            | EventType::QUERY
            | EventType::MARIADB_QUERY_COMPRESSED
            | EventType::TRANSACTION_PAYLOAD => header.event_length <= EVENT_BYTES_MAX,
            _ => return EventPart::Nothing,
        };
        // A statement that is too long to read may have changed any table, so the scan ends here.
        let is_query = matches!(header.event_type, EventType::QUERY | EventType::MARIADB_QUERY_COMPRESSED);
        self.over |= is_query && !whole;
        if whole { EventPart::Whole } else { EventPart::Nothing }
    }

    /// Reads the part of an event that [`Self::wants`] has selected, and adds the tables to check to
    /// `tables`. Ignores malformed events: the channel reports such an event when it applies the event.
    pub(super) fn event(&mut self, event: &[u8], tables: &mut Vec<TableToCheck>) {
        let Ok(header) = EventHeader::parse(event) else { return };
        let whole = event.len() == header.event_length as usize;
        let bytes = match whole && self.format.has_checksums() {
            true => strip_checksum(event).unwrap_or_default(),
            false => event,
        };
        if self.take(&header, bytes, tables).is_err() && !header.event_type.is_rows() {
            self.over = true;
        }
    }

    fn take(
        &mut self,
        header: &EventHeader,
        event: &[u8],
        tables: &mut Vec<TableToCheck>,
    ) -> Result<(), WireError> {
        let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        match header.event_type {
            EventType::TABLE_MAP => {
                self.maps.insert(TableMap::peek_table_id(body)?, body.to_vec());
            }
            event_type if event_type.is_rows() => {
                let rows = RowsEvent::parse(event_type, body, &self.format)?;
                tables.extend(self.rows(rows.table_id, rows.kind)?);
            }
            _ => match EventBody::parse(header, body, &self.format)? {
                EventBody::Query(query) => {
                    self.statement(&query.statement(EVENT_BYTES_MAX as usize)?, query.database);
                }
                EventBody::TransactionPayload(payload) => {
                    let limits = PayloadLimits {
                        event_bytes_max: u64::from(EVENT_BYTES_MAX),
                        ..PayloadLimits::default()
                    };
                    let mut unpacking = PayloadDecoder::new(&payload, limits)?;
                    let (mut rest, mut bytes) = (payload.payload, 0);
                    while let Some(event) =
                        unpacking.next_event(&mut rest)?.filter(|_| bytes < PAYLOAD_BYTES_MAX)
                    {
                        bytes += event.len();
                        let header = EventHeader::parse(event)?;
                        let wanted = header.event_type.is_rows() || header.event_type == EventType::TABLE_MAP;
                        if wanted {
                            self.take(&header, event, tables)?;
                        }
                    }
                }
                _ => {}
            },
        }
        Ok(())
    }

    /// Handles a rows event. Returns its table if the scan has not returned this table layout before.
    fn rows(&mut self, table_id: u64, kind: RowsKind) -> Result<Option<TableToCheck>, WireError> {
        let Some(body) = self.maps.get(&table_id) else { return Ok(None) };
        let operation = match kind {
            RowsKind::Write => Operation::Insert,
            RowsKind::Update | RowsKind::PartialUpdate => Operation::Update,
            RowsKind::Delete => Operation::Delete,
        };
        // The table ID is left out, because it changes whenever the source opens the table again.
        let form = (operation, body.get(TABLE_ID_BYTES..).unwrap_or_default().to_vec());
        if self.met.len() >= TABLES_MAX || !self.met.insert(form) {
            return Ok(None);
        }
        let map = TableMap::parse(body, self.flavour)?;
        if map.schema.eq_ignore_ascii_case(OWN_SCHEMA) {
            return Ok(None);
        }
        let (schema, table) = match self.filters.route(&map.schema, &map.table, operation) {
            FilterRoute::Drop => return Ok(None),
            FilterRoute::Keep => (map.schema.clone(), map.table.clone()),
            FilterRoute::Rename { schema, table } => (schema.to_string(), table.to_string()),
        };
        let folded = schema.to_lowercase();
        if self.defined.contains(&(folded.clone(), None))
            || self.defined.contains(&(folded, Some(table.to_lowercase())))
        {
            return Ok(None);
        }
        Ok(Some(TableToCheck { schema, table, map, body: body.clone() }))
    }

    /// Handles a statement. The tables that it creates or alters may have another layout when their rows are
    /// applied.
    fn statement(&mut self, text: &[u8], database: &[u8]) {
        if !statement_classifier::defines(text) {
            return;
        }
        match changed_objects(&self.filters, statement_classifier::wrapped(text), database) {
            Some(names) => self.defined.extend(
                names
                    .into_iter()
                    .map(|(schema, table)| (schema.to_lowercase(), table.map(|table| table.to_lowercase()))),
            ),
            None => self.over = true,
        }
    }
}

/// Number of bytes of the table ID at the start of a table map.
const TABLE_ID_BYTES: usize = 6;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use tailwater_wire::binlog_event::event_header::BINLOG_MAGIC;

    use super::*;
    use crate::replication_filter::{FilterSet, Rewrite, Rule};

    /// Returns the tables to check in a binlog file of a real server.
    fn tables_in_file(name: &str, filters: &FilterSet) -> BTreeSet<String> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/fixtures").join(name);
        let file =
            std::fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        let mut rest = file.strip_prefix(&BINLOG_MAGIC).expect("the file must start with the binlog magic");
        let first =
            EventHeader::parse(rest).expect("the file must contain a whole event").event_length as usize;
        let format = FormatDescription::parse(&rest[EVENT_HEADER_BYTES..first])
            .expect("the format description must be valid");
        let mut scan = PreflightScan::new(
            format.flavour(),
            format,
            filters.compile().expect("the filters must be valid"),
        );
        let mut tables = Vec::new();
        while !rest.is_empty() {
            let header = EventHeader::parse(rest).expect("the file must contain a whole event");
            let (event, tail) = rest.split_at(header.event_length as usize);
            rest = tail;
            match scan.wants(&header) {
                EventPart::Nothing => {}
                EventPart::Whole => scan.event(event, &mut tables),
                EventPart::Prefix(bytes) => scan.event(&event[..bytes.min(event.len())], &mut tables),
            }
        }
        assert!(!scan.is_over(), "the scan ended before the end of the file: {name}");
        let names: Vec<_> = tables.iter().map(|table| format!("{}.{}", table.schema, table.table)).collect();
        names.into_iter().collect()
    }

    fn without(operations: &[Operation]) -> FilterSet {
        let rule = Rule { tables: "*.*".into(), operations: operations.to_vec() };
        FilterSet { exclude: vec![rule], ..FilterSet::default() }
    }

    #[test]
    fn compressed_events_are_scanned() {
        for (name, tables) in [
            ("mysql-9.7", "fixture.a fixture.c fixture.m other.o"),
            ("mysql-9.7-plain", "fixture.anonymous fixture.m"),
            // This file also has compressed events.
            ("mariadb-10.11", "fixture.a fixture.ar fixture.c fixture.cm fixture.m fixture.q other.o"),
        ] {
            let met = tables_in_file(&format!("binlog/{name}.binlog"), &without(&[Operation::Ddl]));
            assert_eq!(met.into_iter().collect::<Vec<_>>().join(" "), tables, "{name}");
        }
    }

    #[test]
    fn filtered_tables_and_tables_changed_by_ddl_are_not_checked() {
        for kind in ["mysql-9.7", "mariadb-10.11"] {
            let name = format!("binlog/{kind}.binlog");
            assert_eq!(
                tables_in_file(&name, &FilterSet::default()),
                BTreeSet::new(),
                "the DDL statements in the file define all tables of the file, so the scan must return no table"
            );
            let rows = [Operation::Ddl, Operation::Insert, Operation::Update, Operation::Delete];
            assert_eq!(tables_in_file(&name, &without(&rows)), BTreeSet::new());
            let kept = tables_in_file(&name, &without(&[Operation::Ddl]));
            let first = kept.first().expect("the scan must return a table").clone();
            let mut filters = without(&[Operation::Ddl]);
            filters.rewrite = vec![Rewrite { from: first.clone(), to: "else.where".into() }];
            let mut renamed = kept.clone();
            renamed.remove(&first);
            renamed.insert("else.where".to_owned());
            assert_eq!(tables_in_file(&name, &filters), renamed);
        }
    }

    #[test]
    fn a_damaged_event_ends_the_scan() {
        let format =
            FormatDescription::assumed(Flavour::MySql, tailwater_wire::binlog_event::ChecksumAlgorithm::Off);
        let mut scan = PreflightScan::new(
            Flavour::MySql,
            format,
            FilterSet::default().compile().expect("the filters must be valid"),
        );
        let mut event = vec![0_u8; EVENT_HEADER_BYTES + 3];
        event[4] = EventType::QUERY.0;
        event[9] = event.len() as u8;
        let mut tables = Vec::new();
        scan.event(&event, &mut tables);
        assert!(scan.is_over() && tables.is_empty());
    }
}
