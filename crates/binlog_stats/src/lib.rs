//! Statistics of a binlog: which server wrote how much to which table, when nothing was committed, and why.
//!
//! [`Collector`] takes events in stream order, in pieces of any size, and returns a [`BinlogReport`]. It does
//! no I/O and reads no clock. Its memory is bounded: lists keep only their first few items, tables and
//! servers beyond a limit are added up, and the columns of the timeline are merged as it grows.
//!
//! - Input: `local_binlog_reader` passes the events of a log or of binlog files to a collector,
//!   `server_binlog_reader` those of a server's binlog, `recent_log_reader` the newest ones of a log in use.
//! - `stats_collector`: turns events into transactions. `incremental_event_parser`: the content of an event.
//!   `single_transaction_stats`: one transaction. `statement_classifier`: the kind of a statement.
//! - `all_transactions_totals`, with `table_stats`, `top_n_list`, `commit_timeline`: sums over all
//!   transactions.
//! - `stats_report`: the result. `notable_findings`: the notable facts in it.
//! - `stats_report_text`: a report as text for a terminal, with `terminal_chart` and [`chart_scale`].
//!   [`display_labels`], [`number_format`] and [`LocalTime`] format names, numbers and times.

mod all_transactions_totals;
pub mod chart_scale;
mod commit_timeline;
pub mod display_labels;
mod error;
mod incremental_event_parser;
mod local_binlog_reader;
mod local_time;
mod notable_findings;
pub mod number_format;
mod recent_log_reader;
mod server_binlog_reader;
mod single_transaction_stats;
mod statement_classifier;
mod stats_collector;
mod stats_report;
mod stats_report_text;
mod table_stats;
mod terminal_chart;
#[cfg(test)]
mod tests;
mod top_n_list;

pub use commit_timeline::TimelineColumns;
pub use error::StatsError;
pub use local_binlog_reader::{read_files, read_log};
pub use local_time::LocalTime;
pub use notable_findings::{FindingSeverity, StatsFinding};
pub use recent_log_reader::{RecentStats, read_recent};
pub use server_binlog_reader::read_server;
pub use stats_collector::{Collector, CollectorOptions, FIRST_CHUNK_BYTES_MIN};
pub use stats_report::{
    BinlogRange, BinlogReport, Bucket, CompressionTotals, DdlStatement, EventTypeCount, Gap, RowCounts,
    ServerShare, SizeClass, TableShare, TableTotals, Timeline, TransactionKinds, TransactionSummary,
};
pub use stats_report_text::report_text;

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
        let findings = report.findings(&|us| display_labels::commit_time(us, &report));
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
