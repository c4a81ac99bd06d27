//! The result of a statement.

use super::session_variables::SqlValue;
use crate::client_error::ClientError;

/// The result of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatementResult {
    /// Send an OK packet.
    Ok,
    /// Send a result set, which may be empty.
    Rows(ResultRows),
    /// Send an error packet.
    Error(ClientError),
    /// End a connection, or its current statement, and then send an OK packet.
    Kill {
        /// The id of the connection to end.
        connection_id: u32,
        /// Whether to end only the current statement of the connection.
        query_only: bool,
    },
    /// Purge the oldest files, if no reader needs them, and then send an OK packet.
    Purge(PurgeBefore),
    /// The result of MariaDB's `BINLOG_GTID_POS()`: one row with the GTID position at an offset in a file.
    /// The GTID position is `NULL` if the log does not have this offset.
    GtidPosition {
        /// The name of the result's only column.
        column: String,
        /// The name of the served file.
        file: String,
        /// The offset in the file.
        position: u64,
    },
}

/// Which files a purge removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeBefore {
    /// All files before this file.
    File(String),
    /// All files that were last written before this time, in seconds since 1970.
    Time(u64),
}

/// A result set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultRows {
    /// The columns of the result set.
    pub columns: Vec<ResultColumn>,
    /// The rows. Each row has as many values as there are columns.
    pub rows: Vec<Vec<Option<String>>>,
}

/// A column of a result set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultColumn {
    /// The name of the column.
    pub name: String,
    /// The type of the column's values.
    pub column_type: ResultColumnType,
}

/// The type of a column's values. All values are sent as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultColumnType {
    /// The values are whole numbers.
    Integer,
    /// The values are UTF-8 text.
    Text,
}

impl ResultRows {
    /// An empty result set. The columns are given as `name`, or as `name#` for a column of whole numbers.
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
