//! What a chunk covers: a range of a table's key, ends and all.

use serde::{Deserialize, Serialize};

/// One value of a key as an SQL literal that compares as the column does: a number, a quoted text, or bytes in hexadecimal
/// behind their character set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyLiteral(pub String);

/// Which rows of a table, or of one of its partitions, a chunk holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkRange {
    /// Only this partition; absent for tables without partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Which keys.
    pub keys: KeyRange,
}

/// Which keys a chunk holds. The ranges of one walk cover every row once, whatever is in the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyRange {
    /// All rows.
    All,
    /// Rows with a NULL in one of the key's columns, which a unique key lets occur more than once.
    Nulls,
    /// Integers from `from` to `to`, both included; absent ends are open.
    Integers {
        /// The lowest.
        from: Option<i128>,
        /// The highest.
        to: Option<i128>,
    },
    /// Keys behind `after`, up to and including `to`, as the server orders them; absent ends are open.
    Keys {
        /// The last key that does not belong to it any more.
        after: Option<Vec<KeyLiteral>>,
        /// The last key that belongs to it.
        to: Option<Vec<KeyLiteral>>,
    },
}
