//! What happened in a binlog: who wrote how much into what, when nothing was committed, and what stood in the way.
//!
//! [`Collector`] takes events in the order of a stream, in pieces and whatever their size, and gives a [`Report`]. It is
//! pure: no I/O, no clock. Its memory does not grow with what it is fed: lists are cut to their first few, tables and
//! servers beyond a limit are added up, the columns of the rate are merged as time goes on.
//!
//! - `collector`: from events to transactions. `reading`: what is inside an event. `transaction`: one of them.
//! - `totals`, with `tables`, `top`, `timeline`: what is kept of all of them.
//! - `report`: the figures. `findings`: what of it deserves a word. `figures`: how figures are put in words.

mod collector;
mod findings;
pub mod humanize;
mod reading;
mod report;
mod statement;
mod tables;
#[cfg(test)]
mod tests;
mod timeline;
mod top;
mod totals;
mod transaction;

pub use collector::{Collector, CollectorOptions, FIRST_CHUNK_BYTES_MIN};
pub use findings::{FindingSeverity, StatsFinding};
pub use report::{
    BinlogRange, BinlogReport, Bucket, CompressionTotals, DdlStatement, EventTypeCount, Gap, RowCounts,
    ServerShare, SizeClass, TableShare, TableTotals, Timeline, TransactionKinds, TransactionSummary,
};
pub use timeline::TimelineColumns;
