//! Decodes transactions into row changes that are bound to the tables of the rejoining server.

use std::sync::Arc;

use bytes::Bytes;
use tailwater_log::LogEntry;
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::binlog_event::RowsKind;

use tailwater_apply::ApplyError;
use tailwater_apply::channel::OWN_SCHEMA;
use tailwater_apply::replication_filter::{FilterError, FilterRoute};
use tailwater_apply::source_transaction::{LogSpan, Transaction};
use tailwater_apply::table_definition_cache::Catalogue;
use tailwater_apply::target_table::TargetTable;
use tailwater_apply::transaction_decoder::{DecodeLimits, Decoded, Decoder, OldTimeDigits, TableLookup};

use crate::error::RejoinError;

/// Seed for the hashes of row keys.
const KEY_SEED: u64 = 0x5457;

/// Decodes events into transactions that are bound to the server's tables.
pub(crate) struct RejoinRowReader {
    decoder: Decoder,
    tables: ServerTables,
}

/// Cached table definitions of the rejoining server. Tables in Tailwater's own schema are not in the cache.
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

    /// For old-format time columns, use the table definitions of the rejoining server. This server logged the
    /// transactions to undo, and its native replication would also use its own definitions.
    fn old_time_digits(&self, _schema: &str, _table: &str) -> OldTimeDigits {
        OldTimeDigits::Target
    }
}

impl RejoinRowReader {
    /// Creates a reader for events of `flavour`, on a server of the same flavour. `transaction_bytes_max`
    /// limits the size of one transaction, in bytes.
    pub(crate) async fn open(
        server: &ConnectOptions,
        transaction_bytes_max: usize,
    ) -> Result<Self, RejoinError> {
        let connection = Connection::connect(server).await?;
        let flavour = connection.server().flavour;
        let limits = DecodeLimits { transaction_bytes_max, ..DecodeLimits::default() };
        let decoder = Decoder::new(flavour, limits, KEY_SEED);
        Ok(Self { decoder, tables: ServerTables { catalogue: Catalogue::new(flavour), connection } })
    }

    /// Sets the format description event for the next transactions.
    pub(crate) fn format(&mut self, event: &[u8], entry: &LogEntry) -> Result<(), RejoinError> {
        self.decoder.format_description(event).map_err(|error| {
            // A format description event belongs to no transaction.
            ApplyError::Event { gtid: String::new(), position: entry.position, error }.into()
        })
    }

    /// Sets the format description event for the transactions of the server's binlog tail.
    pub(crate) fn format_of_tail(&mut self, event: &[u8]) -> Result<(), RejoinError> {
        self.decoder.format_description(event).map_err(RejoinError::own_binlog)
    }

    /// Decodes the transaction that `entry` describes, from its `events`.
    pub(crate) async fn transaction(
        &mut self,
        entry: &LogEntry,
        events: Bytes,
    ) -> Result<Box<Transaction>, RejoinError> {
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
                        reason: "a rejoin does not query another server for its table definition".to_owned(),
                    }
                    .into());
                }
            };
            let ServerTables { catalogue, connection } = &mut self.tables;
            if catalogue.load(connection, &schema, &table).await?.is_none() {
                return Err(ApplyError::MissingTable {
                    gtid: entry.gtid.as_ref().map_or_else(String::new, ToString::to_string),
                    table: format!("{schema}.{table}"),
                }
                .into());
            }
        }
    }
}
