//! The result of a statement.

use super::session_variables::SqlValue;
use crate::client_error::ClientError;

/// The result of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatementResult {
    /// An OK packet.
    Ok,
    /// A result set, possibly empty.
    Rows(ResultRows),
    /// An error packet.
    Error(ClientError),
    /// End a connection, or its current statement, then send OK.
    Kill {
        /// Its connection id.
        connection_id: u32,
        /// End only its current statement.
        query_only: bool,
    },
    /// Purge the oldest files, if their readers allow it, then send OK.
    Purge(PurgeBefore),
    /// MariaDB's `BINLOG_GTID_POS()`: one row with the GTID position at an offset of a file; `NULL` if the
    /// log does not have it.
    GtidPosition {
        /// The name of the one column.
        column: String,
        /// The served file.
        file: String,
        /// The offset in it.
        position: u64,
    },
}

/// The limit of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeBefore {
    /// All files before this one.
    File(String),
    /// All files that were last written before this time, in seconds since 1970.
    Time(u64),
}

/// A result set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultRows {
    /// Its columns.
    pub columns: Vec<ResultColumn>,
    /// Its rows; each as long as `columns`.
    pub rows: Vec<Vec<Option<String>>>,
}

/// A column of a result set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultColumn {
    /// Its name.
    pub name: String,
    /// Type of its values.
    pub column_type: ResultColumnType,
}

/// Type of a column's values. All are sent as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultColumnType {
    /// Whole numbers.
    Integer,
    /// UTF-8 text.
    Text,
}

impl ResultRows {
    /// A result set with columns given as `name`, or `name#` for whole numbers.
    pub(super) fn new(columns: &[&str]) -> Self {
        let column = |text: &&str| match text.strip_suffix('#') {
            Some(name) => ResultColumn { name: name.to_owned(), column_type: ResultColumnType::Integer },
            None => ResultColumn { name: (*text).to_owned(), column_type: ResultColumnType::Text },
        };
        Self { columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(super) fn push(&mut self, values: impl IntoIterator<Item = SqlValue>) {
        self.rows.push(values.into_iter().map(SqlValue::into_cell).collect());
    }
}

impl From<ResultRows> for StatementResult {
    fn from(rows: ResultRows) -> Self {
        Self::Rows(rows)
    }
}

impl From<&str> for SqlValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for SqlValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl From<$int> for SqlValue {
            fn from(number: $int) -> Self {
                Self::Integer(number.into())
            }
        }
    )*};
}

integers! { u16 u32 u64 i64 }
