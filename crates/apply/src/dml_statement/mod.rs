//! Writes groups of rows as SQL statements. This is needed for a target table whose columns differ from the
//! source's, for a target of another flavour, and for an account that may not execute `BINLOG`.
//!
//! Values are stored exactly, or the channel stops. [`MappedTable::sql_mapping`] checks the columns once for
//! each table, and rejects columns that cannot hold the source's values. The session is strict, so that the
//! server rejects single values that do not fit: text that is too long, a character that the target's
//! character set lacks, a TIMESTAMP out of range.
//!
//! Differences from `BINLOG` statements:
//! - Triggers of the target run, and no setting disables them. So the operator must drop the triggers whose
//!   changes the source has already logged.
//! - Columns that only the target has get their defaults; the target computes generated columns.
//! - An UPDATE or DELETE without a matching row is not an error for the server. So each statement comes with
//!   the number of rows that it must match ([`SqlStatement::rows`]); the connection needs
//!   [`ConnectOptions::found_rows`].
//! - MariaDB stores a negative zero as zero, in every notation.
//! - MariaDB stores JSON as text. MySQL reformats a JSON document when it stores it.
//! - For a system-versioned table, the target itself computes the period of a row (see
//!   `system_versioned_table`).
//! - A MariaDB UUID or INET6 is written to a column of the same type or to a binary column; the value is not
//!   converted to text.
//!
//! [`MappedTable::sql_mapping`]: crate::source_to_target_table::MappedTable::sql_mapping
//! [`ConnectOptions::found_rows`]: tailwater_session::ConnectOptions::found_rows

mod column_compatibility;
mod json_number_precision;
mod literal_writer;
mod row_image_bytes;
mod source_to_target_columns;
mod sql_text_with_long_values;
mod statement_writer;
mod system_versioned_table;

pub use row_image_bytes::RowImageBytes;
pub use source_to_target_columns::SqlMapping;
pub(crate) use source_to_target_columns::mapping;
pub use statement_writer::SqlWriter;
pub use system_versioned_table::SqlPart;

use tailwater_wire::Flavour;

/// A statement, with the number of rows that it must insert, match or delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlStatement {
    /// The text of the statement. It need not be UTF-8.
    pub text: Vec<u8>,
    /// Number of rows that the statement must insert, match or delete; `None` if this is not checked.
    pub rows: Option<u64>,
}

/// A statement whose long values are copied only while it is sent.
#[derive(Debug)]
pub struct LongSqlStatement<'v> {
    text: sql_text_with_long_values::SqlText<'v>,
    /// See [`SqlStatement::rows`].
    pub rows: Option<u64>,
}

impl LongSqlStatement<'_> {
    /// Returns the length of the statement in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the start of the statement, up to the first long value.
    pub fn start(&self) -> &[u8] {
        self.text.start()
    }

    /// Returns the statement in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = Vec<u8>> + Send {
        self.text.pieces()
    }
}

/// Returns the first statement of a session. After this statement, the server stores values unchanged or
/// rejects them.
pub fn session_statement(flavour: Flavour) -> String {
    // A comparison with a literal that has its own character set must not depend on the session's collation.
    let checks = match flavour {
        Flavour::MySql => "",
        Flavour::MariaDb => ", @@session.check_constraint_checks=1",
    };
    format!(
        "SET NAMES utf8mb4, @@session.time_zone='+00:00', @@session.sql_mode='{STRICT}', \
         @@session.foreign_key_checks=1, @@session.unique_checks=1{checks}"
    )
}

/// The strict SQL mode. Invalid dates, and zero for an AUTO_INCREMENT column, are stored like other values.
const STRICT: &str = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES";

/// The SQL mode for rows with an empty ENUM value, which a strict server rejects.
const LAX: &str = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES";
