//! Decodes log entries into [`Transaction`](crate::transaction::Transaction)s: rows are located, hashed and
//! bound to the target's tables, without copying them.
//!
//! The decoder does no I/O: [`TableLookup`] supplies the filter decisions and the target's tables. A table
//! that is not loaded yet is returned as [`Decoded::NeedsTable`]; the caller loads it from the target and
//! decodes the entry again.
//!
//! The modules: `decoder` holds the state of a [`Decoder`]; `transaction_builder` decodes an entry with it,
//! and `reader` the events of a transaction, one step at a time; `mapping` caches table maps; `xa_part`
//! recognizes parts of XA transactions of any size; `rows` locates rows; `statement` and `xid` parse the text
//! of statements.

mod decoder;
mod mapping;
pub(crate) mod old_times;
mod reader;
mod rows;
pub mod statement;
mod table_lookup;
mod transaction_builder;
mod xa_part;
mod xid;

pub use self::decoder::{DecodeLimits, Decoder};
pub use self::old_times::{DeclaredColumns, OldTimeDigits};
pub use self::reader::{TransactionRead, TransactionReader};
pub use self::table_lookup::TableLookup;
pub use self::transaction_builder::Decoded;
pub use self::xa_part::XaPartReader;
