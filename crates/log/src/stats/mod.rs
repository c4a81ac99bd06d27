//! Statistics of a binlog: which server wrote how much to which table, when nothing was committed, and why.
//!
//! [`Collector`] takes events in stream order, in pieces of any size, and returns a [`BinlogReport`]. It is
//! pure: no I/O, no clock. Its memory is bounded: lists keep their first few items, tables and servers beyond
//! a limit are summed, and the columns of the timeline are merged as it grows.
//!
//! - `collector`: from events to transactions. `event_content`: the inside of an event. `transaction`: one
//!   transaction.
//! - `totals`, with `tables`, `top_list`, `timeline`: sums over all transactions.
//! - `report`: the result. `findings`: the notable parts of it. `humanize`: numbers as text.

mod collector;
mod event_content;
mod findings;
pub mod humanize;
mod report;
mod statement;
mod tables;
#[cfg(test)]
mod tests;
mod timeline;
mod top_list;
mod totals;
mod transaction;

pub use collector::{Collector, CollectorOptions, FIRST_CHUNK_BYTES_MIN};
pub use findings::{FindingSeverity, StatsFinding};
pub use report::{
    BinlogRange, BinlogReport, Bucket, CompressionTotals, DdlStatement, EventTypeCount, Gap, RowCounts,
    ServerShare, SizeClass, TableShare, TableTotals, Timeline, TransactionKinds, TransactionSummary,
};
pub use timeline::TimelineColumns;
