//! Computes the key accesses of a changed row: its values in every unique index, the parent rows that it
//! needs, and the child rows that it may change.
//!
//! [`RowKeys`] is built once per table and reads each image once. `hashing` hashes the values. The rules:
//! - Both images of an update count. A key that contains NULL is not a key.
//! - A value that an image lacks, or that cannot be hashed as the index compares it, becomes
//!   [`WritesetKey::ANY`]: the row conflicts with every other row of that index.
//! - If the after image of an update has no column of an index, the index did not change.
//! - A row without a unique key (no unique index, or NULL values) has the whole table as its key.
//! - A row written to a table whose rows keep the source's order also has the whole table as a key.
//! - A child row has shared access to its parent's key, and shared access to its whole table, so that it
//!   conflicts with cascades. A parent row that is deleted or whose key changes has exclusive access to the
//!   tables to which this cascades, unless the source logs cascades.

mod hashing;

use tailwater_wire::event::RowsEvent;
use tailwater_wire::rows::{Image, TableMap};

use self::hashing::{Hashes, ValuePlace};
pub use self::hashing::{ValueKind, compares_ascii};
use crate::target::TargetTable;
use crate::transaction::Accesses;
use crate::writeset::{Access, IndexId, WritesetKey};

/// The hash for [`TargetTable::rows`], which has no values.
const ROWS_HASH: u64 = 1;

/// Computes the key accesses of rows of one table.
#[derive(Debug)]
pub struct RowKeys {
    hashes: Hashes,
    /// Unique indexes, and other columns that foreign keys reference.
    exclusive: Vec<KeyRule>,
    /// The referenced indexes of the parents.
    shared: Vec<KeyRule>,
    rows: IndexId,
    /// Every row has a key, whatever its values.
    always_keyed: bool,
    /// Rows must be written in the source's order even if they share no key:
    /// [`TargetTable::is_written_in_order`].
    written_in_order: bool,
    cascades: Vec<IndexId>,
    /// Number of leading columns that contain all key columns.
    columns: usize,
    /// Positions of the values in the current images.
    before: ValuePlaces,
    after: ValuePlaces,
}

/// The rule for the key of one index.
#[derive(Debug)]
struct KeyRule {
    index: IndexId,
    /// Empty if the key cannot be computed.
    parts: Vec<PartRule>,
    /// A unique index.
    unique: bool,
    /// Referenced by children.
    referenced: bool,
}

#[derive(Debug, Clone, Copy)]
struct PartRule {
    /// Column index in the image.
    column: usize,
    kind: ValueKind,
    /// Prefix length, in characters.
    prefix: Option<u32>,
}

/// Positions of the values in an image, by column.
#[derive(Debug, Default)]
struct ValuePlaces(Vec<ValuePlace>);

/// A row's key in one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyValue {
    /// The key contains NULL.
    None,
    /// The key cannot be computed.
    Unknown,
    Hash(u64),
}

impl RowKeys {
    /// Keys for rows that the source logs with `map` and that are written to `target`. `columns[i]` is the
    /// index of the target's column for column `i` of the map; `same_shape` is that of
    /// [`crate::mapped_table::MappedTable`]. Only hashes with the same `seed` can be compared; each channel
    /// has its own.
    pub fn new(map: &TableMap, target: &TargetTable, columns: &[usize], same_shape: bool, seed: u64) -> Self {
        let mut kinds = vec![None; target.columns.len()];
        for (source, column) in columns.iter().enumerate() {
            if let (Some(kind), Some(of_map), Some(of_target)) =
                (kinds.get_mut(*column), map.columns.get(source), target.columns.get(*column))
            {
                // If the target's column cannot be NULL, the server stores another value.
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

    /// Appends the key accesses of a row to `out`: for each index the old key, then the new key if it
    /// differs. `flags` are the flags of the event.
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
            // A new row has no children yet.
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
        // With this flag the source logs the changes of child rows itself, before those of the parent.
        if cascades && flags & RowsEvent::FLAG_SQL_FOREIGN_KEYS == 0 {
            for rows in &self.cascades {
                push_rows(*rows, false, out);
            }
        }
    }
}

/// The images of one row, with the positions of their values.
struct KeyImages<'a> {
    before: Option<Image<'a>>,
    after: Option<Image<'a>>,
    old: &'a ValuePlaces,
    new: &'a ValuePlaces,
    hashes: &'a Hashes,
}

impl KeyImages<'_> {
    /// The keys of the old and the new row. `None` for a row that does not exist, and for both if the update
    /// does not change the index.
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
            // Columns that the after image lacks did not change.
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
    /// Finds the first `columns` columns of `image`.
    fn find(&mut self, image: Option<Image<'_>>, columns: usize) {
        self.0.clear();
        self.0.resize(columns, ValuePlace::Missing);
        let Some(image) = image else { return };
        let (front, prefixes) = (image.bytes().as_ptr() as usize, &image.table().columns);
        for cell in image.cells() {
            // The image was already parsed, so this cannot fail.
            let Ok(cell) = cell else { return };
            let Some(place) = self.0.get_mut(cell.index) else { return };
            *place = match cell.raw {
                None => ValuePlace::Null,
                // The result of a JSON diff is not known here.
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
