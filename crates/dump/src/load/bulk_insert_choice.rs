//! Decides whether to send rows as values of a prepared statement, many rows at a time (bulk execution). This
//! is only done on MariaDB, whose `LOAD DATA` spends a third of its time searching for field ends byte by
//! byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tailwater_session::{BulkStatement, Connection, SessionError};

use super::prepared_statement_rows::BulkRows;
use tailwater_tables::data_file_field_conversion::stored;
use tailwater_tables::error::BulkError;
use tailwater_tables::schema::TableName;
use tailwater_wire::sql_quote::{qualified_name, quote_identifier};

/// The oldest MariaDB release series for which bulk statements are used.
const VERSION_MIN: (u16, u16) = (10, 6);

/// Approximate size in bytes of the values that one execution of the statement sends.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Maximum size in bytes of a row that is kept in memory. After a longer row, the remaining rows of the table
/// are loaded by `LOAD DATA`.
const ROW_BYTES_MAX: usize = 16 << 20;

/// Size in bytes of a packet without its rows, including the types of up to 4,096 columns.
const PACKET_OVERHEAD_BYTES: usize = 16 << 10;

/// The bulk INSERT statement of a table.
#[derive(Debug, Clone)]
pub(super) struct BulkInsert {
    sql: String,
    pub(super) row_bytes_max: usize,
    /// Whether an earlier failure has switched bulk execution off for this table.
    given_up: Arc<AtomicBool>,
}

impl BulkInsert {
    /// Returns the bulk INSERT statement of a table; `None` if bulk execution is not possible for a table
    /// with these columns and types.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub(super) async fn of(
        connection: &mut Connection,
        table: &TableName,
        columns: &[(String, String)],
    ) -> Result<Option<Self>, BulkError> {
        let server = connection.server();
        let (flavour, (major, minor, _)) = (server.flavour, server.version);
        let is_plain = |(_, data_type): &(String, String)| stored("?", flavour, data_type).is_none();
        if !connection.takes_bulk()
            || (major, minor) < VERSION_MIN
            || columns.is_empty()
            || !columns.iter().all(is_plain)
        {
            return Ok(None);
        }
        let answer = connection.query("SELECT @@SESSION.max_allowed_packet").await?;
        let packet_bytes_max = answer.first().and_then(|row| row.get_u64(0));
        let packet_bytes_max = packet_bytes_max.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
        let names: Vec<_> = columns.iter().map(|(name, _)| quote_identifier(name)).collect();
        let values = vec!["?"; names.len()].join(",");
        let table = qualified_name(&table.schema, &table.name);
        Ok(Some(Self {
            sql: format!("INSERT INTO {table} ({}) VALUES ({values})", names.join(",")),
            row_bytes_max: ROW_BYTES_MAX.min(packet_bytes_max.saturating_sub(PACKET_OVERHEAD_BYTES)),
            given_up: Arc::default(),
        }))
    }

    /// Prepares the statement. Returns `None` if the server cannot prepare it, or if an earlier failure
    /// switched bulk execution off.
    ///
    /// # Errors
    /// Errors that break the connection.
    pub(super) async fn prepare(
        &self,
        connection: &mut Connection,
    ) -> Result<Option<BulkStatement>, SessionError> {
        if self.given_up.load(Relaxed) {
            return Ok(None);
        }
        match connection.prepare_bulk(&self.sql).await {
            Ok(statement) => Ok(Some(statement)),
            // The load then uses LOAD DATA. For example, the server may have reached its limit of prepared
            // statements. If the table itself is the cause, LOAD DATA will report it.
            Err(SessionError::Server { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns a converter that turns the rows of a file into values of the statement.
    pub(super) fn rows(&self, statement: &BulkStatement, zero_texts: Vec<Option<String>>) -> BulkRows {
        BulkRows::new(statement.parameters(), BATCH_BYTES_MAX, self.row_bytes_max).counting_zeros(zero_texts)
    }

    /// Switches bulk execution off: all further rows of the table are loaded by `LOAD DATA`.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Relaxed);
    }
}
