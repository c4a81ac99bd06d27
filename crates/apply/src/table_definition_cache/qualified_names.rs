//! Names of tables and IDs of indexes.

use rustc_hash::FxHashMap;

use crate::writeset::IndexId;

/// Database and table name, in the letter case in which the server compares names.
pub(super) type QualifiedName = (String, String);

/// Assigns IDs to indexes. An index keeps its ID as long as the table definition cache exists.
///
/// An index is identified by its columns, not by its name. So the ID for a foreign key of another table can
/// be computed without loading this table. Two indexes on the same columns share one ID.
#[derive(Debug, Default)]
pub(super) struct IndexIds {
    numbers: FxHashMap<(QualifiedName, String), IndexId>,
}

impl IndexIds {
    /// Returns the ID of the index on `parts` of `table`. Empty `parts` mean all rows of the table.
    pub(super) fn id(&mut self, table: &QualifiedName, parts: &str) -> IndexId {
        let next = IndexId(self.numbers.len() as u32);
        *self.numbers.entry((table.clone(), parts.to_owned())).or_insert(next)
    }
}

/// Returns the names in the letter case in which the server compares them.
pub(super) fn fold(schema: &str, table: &str, folds: bool) -> QualifiedName {
    match folds {
        true => (schema.to_lowercase(), table.to_lowercase()),
        false => (schema.to_owned(), table.to_owned()),
    }
}
