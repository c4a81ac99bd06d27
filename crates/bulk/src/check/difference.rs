//! What a check finds.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pair::TableMismatch;
use super::row_verdict::RowVersion;
use crate::chunker::range::KeyLiteral;
use crate::schema::TableName;

/// A row that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowDifference {
    /// The database.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The row's key, as SQL literals; none for rows that no key tells apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<KeyLiteral>,
    /// What is wrong with it.
    pub what: DifferenceKind,
    /// The row's values on source and target, if they are to be shown. They are in no file.
    #[serde(skip)]
    pub values: Option<Box<RowValues>>,
}

/// How a row differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// Values of these columns are others.
    Changed {
        /// The columns.
        columns: Vec<String>,
    },
    /// The target does not have it.
    Missing,
    /// Only the target has it.
    Extra,
    /// It changed each time it was asked for: not known whether it differs.
    Undecided,
    /// Of rows that no key tells apart: so many are there with these values.
    Count {
        /// A digest of the values.
        hash: u64,
        /// How many the source has.
        source: u64,
        /// How many the target has.
        target: u64,
    },
}

impl DifferenceKind {
    /// Its name, in output for programs and people.
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

/// A row's values on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowValues {
    /// Their columns, which many rows have in common.
    pub columns: Arc<[String]>,
    /// On the source.
    pub source: RowVersion,
    /// On the target.
    pub target: RowVersion,
}

impl RowDifference {
    /// The table.
    pub fn table_name(&self) -> TableName {
        TableName::new(&self.schema, &self.table)
    }

    /// What it is sorted by: table and key, numbers by their value.
    pub(super) fn order(&self) -> (TableName, Vec<(Option<i128>, String)>) {
        let part = |literal: &KeyLiteral| (literal.0.parse().ok(), literal.0.clone());
        (self.table_name(), self.key.iter().map(part).collect())
    }

    /// Whether its key is one: what stands in a file becomes a part of statements.
    pub(super) fn is_sound(&self) -> bool {
        self.key.iter().all(KeyLiteral::is_literal)
    }
}

/// Something about a whole table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableFinding {
    /// The target does not have it.
    OnlySource(TableName),
    /// The source does not have it.
    OnlyTarget(TableName),
    /// Not all columns could be compared; the others were.
    Columns(TableName, TableMismatch),
    /// More rows differ than were asked for; the rest was not looked at.
    TooMany(TableName),
    /// A server does not read it, or not all of it: which one, and what it says.
    Unreadable(TableName, String),
}

impl TableFinding {
    /// The table.
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
