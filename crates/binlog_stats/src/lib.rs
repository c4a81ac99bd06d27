//! What happened in a binlog: which server wrote how much to which table, when nothing was committed, and
//! why.
//!
//! [`Collector`] takes events in stream order, in pieces of any size, and returns a [`BinlogReport`]. It is
//! pure: no I/O, no clock. Its memory is bounded: lists keep their first few items, tables and servers beyond
//! a limit are summed, and the columns of the timeline are merged as it grows.
//!
//! - Input: `local_events` feeds a log or binlog files to a collector, `server_events` the binlog of a
//!   server.
//! - `collector`: from events to transactions. `event_content`: the inside of an event. `transaction`: one
//!   transaction. `statement`: what kind of statement a text is.
//! - `totals`, with `tables`, `top_list`, `timeline`: sums over all transactions.
//! - `report`: the result. `findings`: the notable parts of it.
//! - `report_text`: a report as text for a terminal, with `text_chart` and [`scale`]. [`labels`],
//!   [`humanize`] and [`LocalTime`]: names, numbers and times as text.

mod collector;
mod error;
mod event_content;
mod findings;
pub mod humanize;
pub mod labels;
mod local_events;
mod local_time;
mod report;
mod report_text;
pub mod scale;
mod server_binlog;
mod statement;
mod tables;
#[cfg(test)]
mod tests;
mod text_chart;
mod timeline;
mod top_list;
mod totals;
mod transaction;

pub use collector::{Collector, CollectorOptions, FIRST_CHUNK_BYTES_MIN};
pub use error::StatsError;
pub use findings::{FindingSeverity, StatsFinding};
pub use local_events::{read_files, read_log};
pub use local_time::LocalTime;
pub use report::{
    BinlogRange, BinlogReport, Bucket, CompressionTotals, DdlStatement, EventTypeCount, Gap, RowCounts,
    ServerShare, SizeClass, TableShare, TableTotals, Timeline, TransactionKinds, TransactionSummary,
};
pub use report_text::report_text;
pub use server_binlog::read_server;
pub use timeline::TimelineColumns;

/// The statistics of one log, list of binlog files, or server.
#[derive(Debug)]
pub struct StatsResult {
    /// The log's folder, the files, or the server.
    pub title: String,
    /// The figures.
    pub report: BinlogReport,
    /// The notable parts of the report, the most severe first.
    pub findings: Vec<StatsFinding>,
}

impl StatsResult {
    /// The result of what `collector` has read.
    pub fn new(title: String, collector: &Collector) -> Self {
        let report = collector.report();
        let findings = report.findings(&|us| labels::commit_time(us, &report));
        Self { title, report, findings }
    }
}

/// Receives the progress of reading events.
pub trait ReadProgress {
    /// Reading of `name` starts; it has about `bytes_total` bytes.
    fn start(&mut self, name: &str, bytes_total: u64);
    /// The next file of it.
    fn file(&mut self, name: &str);
    /// This many more bytes were read.
    fn advance(&mut self, bytes: u64);
}
