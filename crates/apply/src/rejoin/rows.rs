//! Writes rows to a server, over the existing rows.

use std::sync::Arc;

use bytes::Bytes;
use tailwater_log::LogEntry;
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;
use tailwater_wire::event::RowsKind;

use crate::catalogue::Catalogue;
use crate::channel::options::ChannelOptions;
use crate::channel::packets::Packets;
use crate::channel::row_writer::RowWriter;
use crate::channel::statement_filter::OWN_SCHEMA;
use crate::decode::{DecodeLimits, Decoded, Decoder, OldTimeDigits, TableLookup};
use crate::error::ApplyError;
use crate::filter::{FilterError, FilterRoute};
use crate::target::TargetTable;
use crate::transaction::{LogSpan, RowChanges, Transaction};
use tailwater_wire::sql_quote::portable_literal;

/// Seeds the hashes of keys.
const KEY_SEED: u64 = 0x5457;

/// Name of the sessions.
const NAME: &str = "rejoin";

/// Decodes events into transactions that are bound to the server's tables.
pub(super) struct RejoinRowReader {
    decoder: Decoder,
    tables: ServerTables,
}

/// Cached table definitions of the server. Only the tables in Tailwater's own schema are excluded.
struct ServerTables {
    catalogue: Catalogue,
    connection: Connection,
}

impl TableLookup for ServerTables {
    fn route(&mut self, schema: &str, _table: &str, _kind: RowsKind) -> Result<FilterRoute, FilterError> {
        Ok(if schema.eq_ignore_ascii_case(OWN_SCHEMA) { FilterRoute::Drop } else { FilterRoute::Keep })
    }

    fn target(&self, schema: &str, table: &str) -> Option<Arc<TargetTable>> {
        self.catalogue.get(schema, table)
    }

    /// The server itself logged the transactions to undo, and native replication uses its declarations too.
    fn old_time_digits(&self, _schema: &str, _table: &str) -> OldTimeDigits {
        OldTimeDigits::Target
    }
}

impl RejoinRowReader {
    /// Reads events of `flavour` for a server of the same flavour. Limit for one transaction:
    /// `transaction_bytes_max`.
    pub(super) async fn open(
        server: &ConnectOptions,
        transaction_bytes_max: usize,
    ) -> Result<Self, ApplyError> {
        let connection = Connection::connect(server).await?;
        let flavour = connection.server().flavour;
        let limits = DecodeLimits { transaction_bytes_max, ..DecodeLimits::default() };
        let decoder = Decoder::new(flavour, limits, KEY_SEED);
        Ok(Self { decoder, tables: ServerTables { catalogue: Catalogue::new(flavour), connection } })
    }

    /// Sets the format description event.
    pub(super) fn format(&mut self, event: &[u8], entry: &LogEntry) -> Result<(), ApplyError> {
        self.decoder.format_description(event).map_err(|error| ApplyError::Event {
            gtid: "before any transaction".to_owned(),
            position: entry.position,
            error,
        })
    }

    /// Sets the format description event of a tail.
    pub(super) fn format_of_tail(&mut self, event: &[u8]) -> Result<(), ApplyError> {
        self.decoder.format_description(event).map_err(ApplyError::rows)
    }

    /// Decodes the transaction of `entry`.
    pub(super) async fn transaction(
        &mut self,
        entry: &LogEntry,
        events: Bytes,
    ) -> Result<Box<Transaction>, ApplyError> {
        let span = LogSpan { start: entry.position, end: entry.end() };
        loop {
            let decoded = self.decoder.transaction(entry, span, events.clone(), &mut self.tables)?;
            let (schema, table) = match decoded {
                Decoded::Transaction(transaction) => return Ok(transaction),
                Decoded::NeedsTable { schema, table } => (schema, table),
                Decoded::NeedsSource { schema, table } => {
                    let (gtid, table) = (
                        entry.gtid.as_ref().map_or_else(String::new, ToString::to_string),
                        format!("{schema}.{table}"),
                    );
                    return Err(ApplyError::SourceCatalogue {
                        gtid,
                        table,
                        reason: "a rejoin asks no other server".to_owned(),
                    });
                }
            };
            let ServerTables { catalogue, connection } = &mut self.tables;
            if catalogue.load(connection, &schema, &table).await?.is_none() {
                return Err(ApplyError::MissingTable {
                    gtid: entry.gtid.as_ref().map_or_else(String::new, ToString::to_string),
                    table: format!("{schema}.{table}"),
                });
            }
        }
    }
}

/// A session that does not log, and writes over existing rows.
pub(super) struct RejoinSession {
    writer: RowWriter,
}

impl RejoinSession {
    pub(super) async fn open(server: &ConnectOptions) -> Result<Self, ApplyError> {
        let options = ChannelOptions::new(NAME, server.clone());
        Ok(Self { writer: RowWriter::open_idempotent(&options).await? })
    }

    /// The connection, for other statements.
    pub(super) fn connection(&mut self) -> &mut Connection {
        &mut self.writer.connection
    }

    /// Restores `slave_exec_mode` on MariaDB.
    pub(super) async fn restore_exec_mode(&mut self, exec_mode: &str) -> Result<(), ApplyError> {
        if self.writer.connection.server().flavour == Flavour::MariaDb && !exec_mode.is_empty() {
            let sql = format!("SET GLOBAL slave_exec_mode={}", portable_literal(exec_mode));
            self.writer.connection.execute(&sql).await?;
        }
        Ok(())
    }

    /// Writes the changes in one transaction, together with `note`. Returns the number of rows written or
    /// deleted.
    pub(super) async fn write(
        &mut self,
        changes: &[RowChanges],
        note: Option<&str>,
    ) -> Result<u64, ApplyError> {
        let mut packets = Packets::default();
        packets.push("START TRANSACTION");
        self.writer.push_rows(changes.iter(), &mut packets)?;
        if let Some(note) = note {
            packets.push(note);
        }
        packets.push("COMMIT");
        packets.run(&mut self.writer.connection).await?;
        Ok(changes.iter().map(|changes| changes.rows.len() as u64).sum())
    }
}
