//! Writes rows over existing rows, for callers that do not know which changes a server already has. The
//! rejoin of a former primary uses this writer.

use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;
use tailwater_wire::sql_quote::portable_literal;

use super::channel_options::ChannelOptions;
use super::multi_statement_packets::Packets;
use super::row_writer::RowWriter;
use crate::error::ApplyError;
use crate::source_transaction::RowChanges;

/// A session in `IDEMPOTENT` mode that does not write to the binlog. An insert replaces an existing row, and
/// a delete of a missing row does nothing.
pub struct IdempotentSession {
    writer: RowWriter,
}

impl IdempotentSession {
    /// Connects to `server`. `name` identifies the session in messages.
    ///
    /// On MariaDB this changes the global `slave_exec_mode`; see [`IdempotentSession::restore_exec_mode`].
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub async fn open(name: &str, server: &ConnectOptions) -> Result<Self, ApplyError> {
        let options = ChannelOptions::new(name, server.clone());
        Ok(Self { writer: RowWriter::open_idempotent(&options).await? })
    }

    /// Returns the connection, for other statements.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.writer.connection
    }

    /// Restores the global `slave_exec_mode` on MariaDB.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub async fn restore_exec_mode(&mut self, exec_mode: &str) -> Result<(), ApplyError> {
        if self.writer.connection.server().flavour == Flavour::MariaDb && !exec_mode.is_empty() {
            let sql = format!("SET GLOBAL slave_exec_mode={}", portable_literal(exec_mode));
            self.writer.connection.execute(&sql).await?;
        }
        Ok(())
    }

    /// Writes the changes in one transaction. If `record` is given, it is the last statement before the
    /// commit. Returns the number of rows written or deleted.
    ///
    /// # Errors
    /// The server's error for a row or for `record`; nothing is committed then.
    pub async fn write(&mut self, changes: &[RowChanges], record: Option<&str>) -> Result<u64, ApplyError> {
        let mut packets = Packets::default();
        packets.push("START TRANSACTION");
        self.writer.push_rows(changes.iter(), &mut packets)?;
        if let Some(record) = record {
            packets.push(record);
        }
        packets.push("COMMIT");
        packets.run(&mut self.writer.connection).await?;
        Ok(changes.iter().map(|changes| changes.rows.len() as u64).sum())
    }
}
