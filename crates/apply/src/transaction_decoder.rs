//! Decodes log entries into [`Transaction`](crate::source_transaction::Transaction)s. The decoder locates the
//! rows, hashes their keys, and finds their target tables. It does not copy the rows.
//!
//! The decoder does no I/O: [`TableLookup`] supplies the filter decisions and the target's tables. A table
//! that is not loaded yet is returned as [`Decoded::NeedsTable`]; the caller loads it from the target and
//! decodes the entry again.
//!
//! The modules: `decoder_state` holds the state of a [`Decoder`]; `log_entry_decoder` decodes a log entry
//! with this state; `streaming_decoder` decodes the events of a transaction, one step at a time;
//! `table_map_cache` caches table maps; `xa_transaction_detector` recognizes parts of XA transactions of any
//! size; `row_event_decoder` locates rows; `statement_classifier` and `canonical_xid` parse the text of
//! statements.

mod canonical_xid;
mod decoder_state;
mod log_entry_decoder;
pub(crate) mod old_temporal_format;
mod row_event_decoder;
pub mod statement_classifier;
mod streaming_decoder;
mod table_lookup;
mod table_map_cache;
mod xa_transaction_detector;

pub use self::decoder_state::{DecodeLimits, Decoder};
pub use self::log_entry_decoder::Decoded;
pub use self::old_temporal_format::{DeclaredColumns, OldTimeDigits};
pub use self::streaming_decoder::{TransactionRead, TransactionReader};
pub use self::table_lookup::TableLookup;
pub use self::xa_transaction_detector::XaPartReader;
