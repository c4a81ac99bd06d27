//! A cache of table maps, with the target table for each table map.

use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use tailwater_wire::binlog_event::RowsKind;
use tailwater_wire::row_event::TableMap;
use tailwater_wire::{Flavour, WireError};

use super::old_temporal_format::{OldTimeDigits, lacks_digits, set_digits};
use super::table_lookup::TableLookup;
use crate::column_matching::ColumnMismatch;
use crate::replication_filter::{FilterError, FilterRoute};
use crate::row_writeset_keys::RowKeys;
use crate::source_to_target_table::MappedTable;

/// The maximum number of cached table maps. A busy source logs one table map for each open table. Each time
/// it reopens the table, the table map gets another table ID.
const MAPS_MAX: usize = 4096;

/// Caches table maps, because a source logs the same table map before every statement. The body of a table
/// map is the key of its cache entry.
#[derive(Debug)]
pub(super) struct MapCache {
    flavour: Flavour,
    seed: u64,
    known: FxHashMap<Bytes, KnownMap>,
}

#[derive(Debug)]
struct KnownMap {
    map: TableMap,
    /// The target table for each kind of rows, indexed by [`slot`].
    bindings: [Option<TableBinding>; 3],
}

/// The target table for one kind of rows.
#[derive(Debug)]
pub(super) enum TableBinding {
    Excluded,
    Bound { table: Arc<MappedTable>, keys: Box<RowKeys> },
}

/// Why rows cannot be mapped to a target table.
#[derive(Debug)]
pub(super) enum UnboundTable {
    Wire(WireError),
    NeedsTable {
        schema: String,
        table: String,
    },
    /// The source table has columns in the old temporal layout, and their numbers of fractional digits are
    /// not loaded.
    NeedsSource {
        schema: String,
        table: String,
    },
    UnknownDigits {
        table: String,
        mismatch: ColumnMismatch,
    },
    Misfits {
        table: String,
        mismatches: Vec<ColumnMismatch>,
    },
    Clash(FilterError),
}

impl From<WireError> for UnboundTable {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

fn slot(kind: RowsKind) -> usize {
    match kind {
        RowsKind::Write => 0,
        RowsKind::Update | RowsKind::PartialUpdate => 1,
        RowsKind::Delete => 2,
    }
}

impl MapCache {
    pub(super) fn new(flavour: Flavour, seed: u64) -> Self {
        Self { flavour, seed, known: FxHashMap::default() }
    }

    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Returns the target table for rows of `kind`, for a table map with this body.
    pub(super) fn resolve(
        &mut self,
        body: &Bytes,
        kind: RowsKind,
        tables: &mut dyn TableLookup,
    ) -> Result<&mut TableBinding, UnboundTable> {
        if !self.known.contains_key(body) {
            if self.known.len() >= MAPS_MAX {
                self.known.clear();
            }
            let map = TableMap::parse(body, self.flavour)?;
            // The body is copied, because a slice would keep the whole buffer of the transaction in memory.
            let known = KnownMap { map, bindings: [None, None, None] };
            self.known.insert(Bytes::copy_from_slice(body), known);
        }
        let seed = self.seed;
        let Some(known) = self.known.get_mut(body) else {
            return Err(WireError::malformed("table map", "the table map is not in the cache").into());
        };
        let KnownMap { map, bindings } = known;
        if bindings[slot(kind)].is_none() {
            bindings[slot(kind)] = Some(bind(map, body, bindings, kind, tables, seed)?);
        }
        match &mut bindings[slot(kind)] {
            Some(found) => Ok(found),
            None => Err(WireError::malformed("table map", "the table map has no target table").into()),
        }
    }
}

fn bind(
    map: &TableMap,
    body: &Bytes,
    others: &[Option<TableBinding>; 3],
    kind: RowsKind,
    tables: &mut dyn TableLookup,
    seed: u64,
) -> Result<TableBinding, UnboundTable> {
    let route = tables.route(&map.schema, &map.table, kind).map_err(UnboundTable::Clash)?;
    let (schema, name) = match &route {
        FilterRoute::Drop => return Ok(TableBinding::Excluded),
        FilterRoute::Keep => (map.schema.as_str(), map.table.as_str()),
        FilterRoute::Rename { schema, table } => (&**schema, &**table),
    };
    let Some(target) = tables.target(schema, name) else {
        return Err(UnboundTable::NeedsTable { schema: schema.to_owned(), table: name.to_owned() });
    };
    // If rows of another kind are already written to the same target table, share their mapped table.
    let shared = others.iter().flatten().find_map(|other| match other {
        TableBinding::Bound { table, .. } if Arc::ptr_eq(&table.target, &target) => Some(Arc::clone(table)),
        _ => None,
    });
    let table = match shared {
        Some(table) => table,
        None => {
            let table = || format!("{schema}.{name}");
            let mut map = map.clone();
            if lacks_digits(&map) {
                let digits = tables.old_time_digits(&map.schema, &map.table);
                if matches!(digits, OldTimeDigits::Unknown) {
                    return Err(UnboundTable::NeedsSource { schema: map.schema, table: map.table });
                }
                set_digits(&mut map, &target, &digits)
                    .map_err(|mismatch| UnboundTable::UnknownDigits { table: table(), mismatch })?;
            }
            let mapped = MappedTable::new(map, Bytes::copy_from_slice(body), target);
            Arc::new(mapped.map_err(|mismatches| UnboundTable::Misfits { table: table(), mismatches })?)
        }
    };
    let keys = Box::new(RowKeys::new(&table.map, &table.target, &table.columns, table.same_shape, seed));
    Ok(TableBinding::Bound { table, keys })
}
