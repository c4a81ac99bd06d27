//! The state of a decoder, from one log entry to the next.

use tailwater_wire::binlog_event::{ChecksumAlgorithm, EVENT_HEADER_BYTES, FormatDescription};
use tailwater_wire::{Flavour, WireError};

use super::table_map_cache::MapCache;

/// Size limits of the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// The maximum length of an event after decompression, in bytes. A longer event is an error.
    pub event_bytes_max: usize,
    /// The maximum length of a transaction that is kept in memory, in bytes of its events. A longer
    /// transaction becomes
    /// [`TransactionContent::Streamed`](crate::source_transaction::TransactionContent::Streamed). The same
    /// applies to a transaction whose decoded size is more than four times this limit.
    pub transaction_bytes_max: usize,
}

impl Default for DecodeLimits {
    /// Returns the default limits: 1 GiB for an event, which is the servers' maximum, and 64 MiB for a
    /// transaction.
    fn default() -> Self {
        Self { event_bytes_max: 1 << 30, transaction_bytes_max: 64 << 20 }
    }
}

/// Decodes the transactions of one log, in order.
///
/// Rows are mapped to the definitions that the target's tables have when the rows are decoded. So a statement
/// that is not [`Statement::dml`](crate::source_transaction::Statement::dml) must be executed before later
/// entries are decoded. Then [`Decoder::forget`] must be called.
#[derive(Debug)]
pub struct Decoder {
    pub(super) flavour: Flavour,
    pub(super) limits: DecodeLimits,
    pub(super) format: FormatDescription,
    pub(super) maps: MapCache,
}

impl Decoder {
    /// Returns a decoder for a log of this flavour. `seed` is the seed of the key hashes: see
    /// [`crate::row_writeset_keys::RowKeys`].
    pub fn new(flavour: Flavour, limits: DecodeLimits, seed: u64) -> Self {
        Self {
            flavour,
            limits,
            format: FormatDescription::assumed(flavour, ChecksumAlgorithm::Crc32),
            maps: MapCache::new(flavour, seed),
        }
    }

    /// Sets the format description for the following entries. `event` is a complete format description event;
    /// every segment starts with one.
    ///
    /// # Errors
    /// [`WireError`] if the event is malformed.
    pub fn format_description(&mut self, event: &[u8]) -> Result<(), WireError> {
        let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        self.format = FormatDescription::parse(body)?;
        Ok(())
    }

    /// Swaps the format description for the following entries.
    pub fn swap_format(&mut self, other: &mut FormatDescription) {
        std::mem::swap(&mut self.format, other);
    }

    /// Returns the format description for the following entries.
    pub fn format(&self) -> &FormatDescription {
        &self.format
    }

    /// Removes the cached answers of [`TableLookup`](super::TableLookup). Call this after statements that may
    /// have changed tables, and when filters change.
    pub fn forget(&mut self) {
        self.maps.forget();
    }
}
