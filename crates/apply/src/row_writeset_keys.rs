//! Computes the key accesses of a changed row: its keys in all unique indexes, the parent rows that it
//! references, and the child rows that the change may affect.
//!
//! [`RowKeys`] is built once per table and reads each image once. `index_value_hash` hashes the values. The
//! rules:
//! - An update accesses the keys of its before image and of its after image. A key that contains NULL does
//!   not count as a key.
//! - If an image lacks a value, or the value cannot be hashed as the index compares it, the key becomes
//!   [`WritesetKey::ANY`]: the row conflicts with every other row of that index.
//! - If the after image of an update has no column of an index, the row's key in that index did not change.
//! - A row without a unique key (no unique index, or NULL values) has the whole table as its key.
//! - If the rows of a table must be written in the source's order, each row also has the whole table as a
//!   key.
//! - A child row has shared access to its parent's key. It also has shared access to the whole child table,
//!   so that it conflicts with cascades to that table. A parent row that is deleted, or whose key changes,
//!   has exclusive access to the child tables to which the change cascades. If the source logs cascades, the
//!   parent row has no access to child tables.

mod index_value_hash;

use tailwater_wire::binlog_event::RowsEvent;
use tailwater_wire::row_event::{Image, TableMap};

use self::index_value_hash::{Hashes, ValuePlace};
pub use self::index_value_hash::{ValueKind, compares_ascii};
use crate::source_transaction::Accesses;
use crate::target_table::TargetTable;
use crate::writeset::{Access, IndexId, WritesetKey};

/// The hash of the key that represents the whole table, in the index [`TargetTable::rows`]. This key has no
/// values.
const ROWS_HASH: u64 = 1;

/// Computes the key accesses of rows of one table.
#[derive(Debug)]
pub struct RowKeys {
    hashes: Hashes,
    /// The rules for unique indexes, and for other columns that foreign keys reference.
    exclusive: Vec<KeyRule>,
    /// The rules for the indexes of parent tables that this table's foreign keys reference.
    shared: Vec<KeyRule>,
    rows: IndexId,
    /// Whether every row has a key, even if columns are NULL.
    always_keyed: bool,
    /// Whether rows must be written in the source's order even if they share no key:
    /// [`TargetTable::is_written_in_order`].
    written_in_order: bool,
    cascades: Vec<IndexId>,
    /// The number of columns at the start of an image that must be parsed to find all key columns.
    columns: usize,
    /// The positions of the values in the before image and in the after image of the current row.
    before: ValuePlaces,
    after: ValuePlaces,
}

/// How to compute a row's key in one index.
#[derive(Debug)]
struct KeyRule {
    index: IndexId,
    /// The parts of the key. Empty if the key cannot be computed.
    parts: Vec<PartRule>,
    /// Whether the index is unique. If not, the index is here only because foreign keys reference it.
    unique: bool,
    /// Whether foreign keys of child tables reference the index.
    referenced: bool,
}

#[derive(Debug, Clone, Copy)]
struct PartRule {
    /// Index of the key column in the row image.
    column: usize,
    kind: ValueKind,
    /// Prefix length of the index part, in characters.
    prefix: Option<u32>,
}

/// Where the values are in a row image, by column.
#[derive(Debug, Default)]
struct ValuePlaces(Vec<ValuePlace>);

/// A row's key in one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyValue {
    /// The key contains NULL, so the row has no key in this index.
    None,
    /// The key cannot be computed from the image.
    Unknown,
    Hash(u64),
}

impl RowKeys {
    /// Returns the key computation for rows that the source logs with `map` and that are written to `target`.
    /// `columns[i]` is the index of the target's column for column `i` of the map. `same_shape` is
    /// [`crate::source_to_target_table::MappedTable::same_shape`]. Hashes can be compared only if their
    /// `seed` is equal; each channel has its own seed.
    pub fn new(map: &TableMap, target: &TargetTable, columns: &[usize], same_shape: bool, seed: u64) -> Self {
        let mut kinds = vec![None; target.columns.len()];
        for (source, column) in columns.iter().enumerate() {
            if let (Some(kind), Some(of_map), Some(of_target)) =
                (kinds.get_mut(*column), map.columns.get(source), target.columns.get(*column))
            {
                // Do not hash the column if the server stores another value for a NULL of the source, because
                // the target's column is NOT NULL.
                let kind_of = match same_shape || of_target.nullable || !of_map.nullable {
                    true => ValueKind::of(of_map.column_type, of_target, same_shape),
                    false => ValueKind::Opaque,
                };
                *kind = Some((source, kind_of));
            }
        }
        let part = |column: usize, prefix| {
            let (column, kind) = (*kinds.get(column)?)?;
            (kind != ValueKind::Opaque).then_some(PartRule { column, kind, prefix })
        };
        let of_columns = |columns: &[usize]| {
            columns.iter().map(|column| part(*column, None)).collect::<Option<Vec<_>>>().unwrap_or_default()
        };
        let mut exclusive: Vec<KeyRule> = Vec::new();
        for index in &target.unique {
            let parts = index.parts.iter().map(|of_index| part(of_index.column, of_index.prefix));
            let parts = parts.collect::<Option<Vec<_>>>().filter(|_| !index.opaque).unwrap_or_default();
            if exclusive.iter().all(|rule| rule.index != index.id) {
                exclusive.push(KeyRule { index: index.id, parts, unique: true, referenced: false });
            }
        }
        for child in &target.children {
            match exclusive.iter_mut().find(|rule| rule.index == child.parent_index) {
                Some(rule) => rule.referenced = true,
                None => exclusive.push(KeyRule {
                    index: child.parent_index,
                    parts: of_columns(&child.parent_columns),
                    unique: false,
                    referenced: true,
                }),
            }
        }
        let shared = target.parents.iter().map(|parent| KeyRule {
            index: parent.parent_index,
            parts: of_columns(&parent.child_columns),
            unique: false,
            referenced: false,
        });
        let shared: Vec<KeyRule> = shared.collect();
        let in_keys =
            exclusive.iter().chain(&shared).flat_map(|rule| &rule.parts).map(|part| part.column + 1);
        let never_null = |column: usize| target.columns.get(column).is_some_and(|column| !column.nullable);
        let always_keyed = target
            .unique
            .iter()
            .any(|index| !index.opaque && index.parts.iter().all(|part| never_null(part.column)));
        Self {
            hashes: Hashes::new(seed),
            columns: in_keys.max().unwrap_or(0),
            exclusive,
            shared,
            rows: target.rows,
            always_keyed,
            written_in_order: target.is_written_in_order(),
            cascades: target.cascades.clone(),
            before: ValuePlaces::default(),
            after: ValuePlaces::default(),
        }
    }

    /// Appends the key accesses of a row to `out`: for each index the old key, and the new key if it differs.
    /// `flags` are the flags of the rows event.
    pub fn row(
        &mut self,
        before: Option<Image<'_>>,
        after: Option<Image<'_>>,
        flags: u16,
        out: &mut Accesses,
    ) {
        if self.columns > 0 {
            self.before.find(before, self.columns);
            self.after.find(after, self.columns);
        }
        let images = KeyImages { before, after, old: &self.before, new: &self.after, hashes: &self.hashes };
        let mut keyed = [false; 2];
        let mut cascades = false;
        for rule in &self.exclusive {
            let (old, new) = images.keys(rule);
            push(rule.index, false, old, new, out);
            if rule.unique {
                for (keyed, value) in keyed.iter_mut().zip([old, new]) {
                    *keyed |= !matches!(value, Some(KeyValue::None));
                }
            }
            // A newly inserted row has no child rows yet.
            cascades |= rule.referenced
                && before.is_some()
                && old.is_some()
                && (old != new || old == Some(KeyValue::Unknown));
        }
        for rule in &self.shared {
            let (old, new) = images.keys(rule);
            push(rule.index, true, old, new, out);
        }
        let unkeyed = (before.is_some() && !keyed[0]) || (after.is_some() && !keyed[1]);
        if (!self.always_keyed && unkeyed) || (self.written_in_order && after.is_some()) {
            push_rows(self.rows, false, out);
        } else if !self.shared.is_empty() {
            push_rows(self.rows, true, out);
        }
        // With this flag, the source has logged the changes of the child rows itself, before the change of
        // the parent row.
        if cascades && flags & RowsEvent::FLAG_SQL_FOREIGN_KEYS == 0 {
            for rows in &self.cascades {
                push_rows(*rows, false, out);
            }
        }
    }
}

/// The images of one row, with the positions of the values in them.
struct KeyImages<'a> {
    before: Option<Image<'a>>,
    after: Option<Image<'a>>,
    old: &'a ValuePlaces,
    new: &'a ValuePlaces,
    hashes: &'a Hashes,
}

impl KeyImages<'_> {
    /// Returns the keys of the old row and of the new row. The old key is `None` for an insert, and the new
    /// key is `None` for a delete. Both are `None` if an update changes no column of the index.
    fn keys(&self, rule: &KeyRule) -> (Option<KeyValue>, Option<KeyValue>) {
        let (old, new) = (self.before.is_some(), self.after.is_some());
        if rule.parts.is_empty() {
            return (old.then_some(KeyValue::Unknown), new.then_some(KeyValue::Unknown));
        }
        if old && new {
            let held = |places: &ValuePlaces| rule.parts.iter().any(|part| places.holds(part.column));
            if !held(self.new) {
                let unchanged = held(self.old).then(|| self.value(rule, false));
                return (unchanged, unchanged);
            }
        }
        (old.then(|| self.value(rule, false)), new.then(|| self.value(rule, true)))
    }

    fn value(&self, rule: &KeyRule, of_new: bool) -> KeyValue {
        let (old, new) = (bytes_of(self.before), bytes_of(self.after));
        let mut hash = self.hashes.begin();
        let mut unknown = false;
        for part in &rule.parts {
            // A column that the after image lacks is unchanged, so its value is in the before image.
            let (places, bytes) = match of_new && self.new.holds(part.column) {
                true => (self.new, new),
                false => (self.old, old),
            };
            match places.0.get(part.column) {
                Some(ValuePlace::Null) => return KeyValue::None,
                Some(ValuePlace::At { start, end }) => match bytes.get(*start as usize..*end as usize) {
                    Some(value) => unknown |= !hash.add(part.kind, part.prefix, value),
                    None => unknown = true,
                },
                Some(ValuePlace::Missing) | None => unknown = true,
            }
        }
        if unknown { KeyValue::Unknown } else { KeyValue::Hash(hash.finish()) }
    }
}

fn bytes_of(image: Option<Image<'_>>) -> &[u8] {
    image.map_or(&[], |image| image.bytes())
}

impl ValuePlaces {
    /// Locates the values of the first `columns` columns of `image`.
    fn find(&mut self, image: Option<Image<'_>>, columns: usize) {
        self.0.clear();
        self.0.resize(columns, ValuePlace::Missing);
        let Some(image) = image else { return };
        let (front, prefixes) = (image.bytes().as_ptr() as usize, &image.table().columns);
        for cell in image.cells() {
            // The image was already parsed once, so parsing it again cannot fail.
            let Ok(cell) = cell else { return };
            let Some(place) = self.0.get_mut(cell.index) else { return };
            *place = match cell.raw {
                None => ValuePlace::Null,
                // A JSON diff does not contain the whole new value.
                Some(_) if cell.partial => ValuePlace::Missing,
                Some(raw) => {
                    let length =
                        prefixes.get(cell.index).map_or(0, |column| column.column_type.length_prefix_bytes());
                    let start = raw.as_ptr() as usize - front;
                    ValuePlace::At {
                        start: (start + length.min(raw.len())) as u32,
                        end: (start + raw.len()) as u32,
                    }
                }
            };
        }
    }

    fn holds(&self, column: usize) -> bool {
        !matches!(self.0.get(column), Some(ValuePlace::Missing) | None)
    }
}

fn push(index: IndexId, shared: bool, old: Option<KeyValue>, new: Option<KeyValue>, out: &mut Accesses) {
    let mut push = |value: KeyValue| {
        let hash = match value {
            KeyValue::None => return,
            KeyValue::Unknown => WritesetKey::ANY,
            KeyValue::Hash(hash) => hash,
        };
        out.push(Access { key: WritesetKey { index, hash }, shared });
    };
    if let Some(old) = old {
        push(old);
    }
    if let Some(new) = new
        && old != Some(new)
    {
        push(new);
    }
}

fn push_rows(index: IndexId, shared: bool, out: &mut Accesses) {
    out.push(Access { key: WritesetKey { index, hash: ROWS_HASH }, shared });
}

#[cfg(test)]
mod tests;
