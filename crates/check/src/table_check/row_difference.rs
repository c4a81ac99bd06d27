//! The results of a check.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::row_difference_confirmation::RowVersion;
use super::table_pair::TableMismatch;
use tailwater_tables::chunker::key_range::KeyLiteral;
use tailwater_tables::schema::TableName;

/// A row that differs between source and target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowDifference {
    /// The database of the table.
    pub schema: String,
    /// The table of the row.
    pub table: String,
    /// The row's key as SQL literals; empty for rows without a unique key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<KeyLiteral>,
    /// How the row differs.
    pub what: DifferenceKind,
    /// The row's values on the source and the target, if the options request them. They are never written to
    /// a file.
    #[serde(skip)]
    pub values: Option<Box<RowValues>>,
}

/// How a row differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// Some columns have different values.
    Changed {
        /// The names of the columns that differ.
        columns: Vec<String>,
    },
    /// The target lacks the row.
    Missing,
    /// Only the target has the row.
    Extra,
    /// The row changed every time it was read, so it is unknown whether it differs.
    Undecided,
    /// For rows without a unique key: the number of rows with the same values differs.
    Count {
        /// A digest of the values.
        hash: u64,
        /// Number of rows on the source.
        source: u64,
        /// Number of rows on the target.
        target: u64,
    },
}

impl DifferenceKind {
    /// Returns the name of the kind, which text and JSON output use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Changed { .. } => "changed",
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Undecided => "undecided",
            Self::Count { .. } => "count",
        }
    }
}

/// The values of a row on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowValues {
    /// The names of the columns. Many rows share this list.
    pub columns: Arc<[String]>,
    /// The values on the source.
    pub source: RowVersion,
    /// The values on the target.
    pub target: RowVersion,
}

impl RowDifference {
    /// Returns the name of the table.
    pub fn table_name(&self) -> TableName {
        TableName::new(&self.schema, &self.table)
    }

    /// Returns the sort key: table and row key, with numbers ordered by value.
    pub(super) fn order(&self) -> (TableName, Vec<(Option<i128>, String)>) {
        let part = |literal: &KeyLiteral| (literal.0.parse().ok(), literal.0.clone());
        (self.table_name(), self.key.iter().map(part).collect())
    }

    /// Whether the key consists of SQL literals. This is checked because the key is read from a file and
    /// becomes part of statements.
    pub(super) fn is_sound(&self) -> bool {
        self.key.iter().all(KeyLiteral::is_literal)
    }
}

/// A result about a whole table, not about single rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableFinding {
    /// The target lacks the table.
    OnlySource(TableName),
    /// The source lacks the table.
    OnlyTarget(TableName),
    /// Some columns could not be compared. The other columns were compared.
    Columns(TableName, TableMismatch),
    /// The table has more differences than the limit. The rest of the table was not compared.
    TooMany(TableName),
    /// A server cannot read the table, or cannot read all of it. The text has the server and its error.
    Unreadable(TableName, String),
}

impl TableFinding {
    /// Returns the name of the table.
    pub fn table_name(&self) -> &TableName {
        match self {
            Self::OnlySource(name)
            | Self::OnlyTarget(name)
            | Self::Columns(name, _)
            | Self::TooMany(name)
            | Self::Unreadable(name, _) => name,
        }
    }
}
