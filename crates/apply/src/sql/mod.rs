//! Groups of rows as SQL, for a table of another shape, on another flavour, or for an account that may not replay a binlog.
//!
//! Values arrive exactly, or the channel stops: [`MappedTable::sql_mapping`] refuses, once per table, columns that cannot hold what the
//! source's can; the session is strict, so that the server refuses the rest (a text that is too long, a character that the
//! target's character set lacks, a TIMESTAMP beyond its range).
//!
//! What differs from `BINLOG` statements:
//! - Triggers of the target run. Nobody can switch them off; drop those that do what the source's have already done.
//! - Columns that only the target has get their defaults; generated columns are computed by the target.
//! - An UPDATE or DELETE that finds no row is no error to the server. Each statement says how many rows it must find
//!   ([`SqlStatement::rows`]); the connection must have been made with [`ConnectOptions::found_rows`].
//! - MariaDB stores a negative zero as zero, however it is given.
//! - JSON of MariaDB is text, and MySQL writes it anew when it stores it.
//! - A MariaDB UUID or INET6 goes to a column of the same type or to a binary one; its text is not made here.
//!
//! [`MappedTable::sql_mapping`]: crate::transaction::MappedTable::sql_mapping
//! [`ConnectOptions::found_rows`]: tailwater_session::ConnectOptions::found_rows

mod column_type;
mod json_number;
mod mapping;
mod statements;
mod text;
mod values;

pub use mapping::SqlMapping;
pub(crate) use mapping::mapping;
pub use statements::{RowImageBytes, SqlWriter};

use tailwater_wire::Flavour;

/// A statement and what is to be expected of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlStatement {
    /// The statement, in UTF-8 but for nothing in it.
    pub text: Vec<u8>,
    /// How many rows it must insert, find or delete; `None` if it is no change of rows.
    pub rows: Option<u64>,
}

/// A statement whose long values stay where they are until it is sent.
#[derive(Debug)]
pub struct LongSqlStatement<'v> {
    text: text::SqlText<'v>,
    /// As [`SqlStatement::rows`].
    pub rows: Option<u64>,
}

impl LongSqlStatement<'_> {
    /// Its length, in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// How it begins, up to its first long value.
    pub fn start(&self) -> &[u8] {
        self.text.start()
    }

    /// The statement, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = Vec<u8>> + Send {
        self.text.pieces()
    }
}

/// What a session executes first: values as they are, and refused rather than changed.
pub fn session_statement(flavour: Flavour) -> String {
    // Comparisons with a literal of a character set of its own must not depend on the session's collation.
    let checks = match flavour {
        Flavour::MySql => "",
        Flavour::MariaDb => ", @@session.check_constraint_checks=1",
    };
    format!(
        "SET NAMES utf8mb4, @@session.time_zone='+00:00', @@session.sql_mode='{STRICT}', \
         @@session.foreign_key_checks=1, @@session.unique_checks=1{checks}"
    )
}

/// Dates that do not exist, and zero for an AUTO_INCREMENT column, are values like any other.
const STRICT: &str = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES";

/// As strict, for rows with an ENUM of no member, which a strict server refuses.
const LAX: &str = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES";
