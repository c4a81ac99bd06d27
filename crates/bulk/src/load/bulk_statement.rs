//! When rows go in as values for a prepared statement, many at a time: on MariaDB, whose `LOAD DATA` spends a third of its time
//! on looking for the ends of fields, byte by byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tailwater_session::{BulkStatement, Connection, SessionError};

use super::bulk_rows::BulkRows;
use crate::error::BulkError;
use crate::fields::stored;
use crate::schema::TableName;
use crate::sql::{qualified, quoted};

/// The oldest series that is asked for it.
const VERSION_MIN: (u16, u16) = (10, 6);

/// How many bytes of values go at once.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The longest row that is kept whole in memory. Longer ones go by `LOAD DATA`, with all rows of their table that are still
/// to come.
const ROW_BYTES_MAX: usize = 16 << 20;

/// What a packet has besides its rows: the types of up to 4,096 columns among it.
const PACKET_OVERHEAD_BYTES: usize = 16 << 10;

/// How rows of a table go in as values.
#[derive(Debug, Clone)]
pub(super) struct Bulk {
    sql: String,
    pub(super) row_bytes_max: usize,
    /// Whether it turned out that it cannot be.
    given_up: Arc<AtomicBool>,
}

impl Bulk {
    /// `None` if a table with these columns and types cannot be loaded so.
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
        let names: Vec<_> = columns.iter().map(|(name, _)| quoted(name)).collect();
        let values = vec!["?"; names.len()].join(",");
        let table = qualified(&table.schema, &table.name);
        Ok(Some(Self {
            sql: format!("INSERT INTO {table} ({}) VALUES ({values})", names.join(",")),
            row_bytes_max: ROW_BYTES_MAX.min(packet_bytes_max.saturating_sub(PACKET_OVERHEAD_BYTES)),
            given_up: Arc::default(),
        }))
    }

    /// Has the statement prepared; `None` if it cannot be, or was given up.
    ///
    /// # Errors
    /// Anything that breaks the connection.
    pub(super) async fn prepare(
        &self,
        connection: &mut Connection,
    ) -> Result<Option<BulkStatement>, SessionError> {
        if self.given_up.load(Relaxed) {
            return Ok(None);
        }
        match connection.prepare_bulk(&self.sql).await {
            Ok(statement) => Ok(Some(statement)),
            // Such as that there are as many prepared statements as there may be. If it is the table, LOAD DATA will say so.
            Err(SessionError::Server { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What makes rows of a file values for the statement.
    pub(super) fn rows(&self, statement: &BulkStatement, zero_texts: Vec<Option<String>>) -> BulkRows {
        BulkRows::new(statement.parameters(), BATCH_BYTES_MAX, self.row_bytes_max).counting_zeros(zero_texts)
    }

    /// Has all that is to come go by `LOAD DATA`.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Relaxed);
    }
}
