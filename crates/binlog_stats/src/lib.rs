//! Statistics of a binlog: which server wrote how much to which table, when nothing was committed, and why.
//!
//! [`Collector`] takes events in stream order, in pieces of any size, and returns a [`BinlogReport`]. It does
//! no I/O and reads no clock. Its memory is bounded: lists keep only their first few items, tables and
//! servers beyond a limit are added up, and the columns of the timeline are merged as it grows.
//!
//! - Input: `local_events` passes the events of a log or of binlog files to a collector, `server_binlog`
//!   those of a server's binlog.
//! - `collector`: turns events into transactions. `event_content`: the content of an event. `transaction`:
//!   one transaction. `statement`: the kind of a statement.
//! - `totals`, with `tables`, `top_list`, `timeline`: sums over all transactions.
//! - `report`: the result. `findings`: the notable facts in it.
//! - `report_text`: a report as text for a terminal, with `text_chart` and [`scale`]. [`labels`],
//!   [`humanize`] and [`LocalTime`] format names, numbers and times.

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

/// The statistics of one log, of a list of binlog files, or of a server.
#[derive(Debug)]
pub struct StatsResult {
    /// What the statistics are of: the folder of the log, the files, or the server.
    pub title: String,
    /// The statistics.
    pub report: BinlogReport,
    /// The findings, the most severe first.
    pub findings: Vec<StatsFinding>,
}

impl StatsResult {
    /// The statistics of the events that `collector` has received.
    pub fn new(title: String, collector: &Collector) -> Self {
        let report = collector.report();
        let findings = report.findings(&|us| labels::commit_time(us, &report));
        Self { title, report, findings }
    }
}

/// Receives the progress of reading events.
pub trait ReadProgress {
    /// Called when reading of `name` starts. It has about `bytes_total` bytes.
    fn start(&mut self, name: &str, bytes_total: u64);
    /// Called when reading of the next file starts.
    fn file(&mut self, name: &str);
    /// Called when this many more bytes were read.
    fn advance(&mut self, bytes: u64);
}
