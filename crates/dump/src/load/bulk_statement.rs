//! Decides whether rows are sent as values for a prepared statement, many at a time: on MariaDB, whose `LOAD
//! DATA` spends a third of its time searching for field ends byte by byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tailwater_session::{BulkStatement, Connection, SessionError};

use super::bulk_rows::BulkRows;
use tailwater_tables::error::BulkError;
use tailwater_tables::fields::stored;
use tailwater_tables::schema::TableName;
use tailwater_wire::sql_quote::{qualified_name, quote_identifier};

/// The oldest release series for which it is used.
const VERSION_MIN: (u16, u16) = (10, 6);

/// Size of the values of one execution, in bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Maximum size of a row that is kept in memory. After a longer one, the table's remaining rows are loaded by
/// `LOAD DATA`.
const ROW_BYTES_MAX: usize = 16 << 20;

/// Size of a packet without its rows, including the types of up to 4,096 columns.
const PACKET_OVERHEAD_BYTES: usize = 16 << 10;

/// The bulk INSERT statement of a table.
#[derive(Debug, Clone)]
pub(super) struct BulkInsert {
    sql: String,
    pub(super) row_bytes_max: usize,
    /// Whether it turned out to be impossible.
    given_up: Arc<AtomicBool>,
}

impl BulkInsert {
    /// `None` if a table with these columns and types cannot be loaded in this way.
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

    /// Prepares the statement; `None` if the server cannot, or if an earlier failure switched bulk execution
    /// off.
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
            // For example, the limit of prepared statements is reached. If the table is the cause, LOAD DATA
            // will report it.
            Err(SessionError::Server { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The converter from rows of a file to values for the statement.
    pub(super) fn rows(&self, statement: &BulkStatement, zero_texts: Vec<Option<String>>) -> BulkRows {
        BulkRows::new(statement.parameters(), BATCH_BYTES_MAX, self.row_bytes_max).counting_zeros(zero_texts)
    }

    /// Loads all further rows by `LOAD DATA`.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Relaxed);
    }
}
