//! Prefetch: reads the pages that a replica needs into its buffer pool, before the replica's applier needs
//! them.
//!
//! The single thread that applies transactions on a cold replica waits for one page after the other. The
//! prefetch reads the binlog ahead of the applied position, and sends SELECT statements for the same rows and
//! index entries over many connections, so that the pages are in the buffer pool when the applier gets there.
//! It never writes.
//!
//! Cores, without I/O and without a clock:
//! - [`change_decoder`]: events of a binlog to row changes and statements.
//! - [`table_indexes`]: the indexes of a table. [`row_reads`]: the index entries that a row change touches,
//!   as queries. [`statement_reads`]: a statement of the binlog as a SELECT.
//! - [`read_window`]: which transactions are ahead of the applied position, and how far to read.
//! - [`pending_keys`]: which entries were read already. [`slow_query_cache`]: which queries are too
//!   expensive. [`gain_feedback`]: whether the prefetch pays.
//!
//! Drivers:
//! - [`prefetcher`]: joins all parts. `binlog_stream` reads the binlog of a server, `log_stream` our log,
//!   `replica_progress` the applied position, `index_reader` the table definitions; `read_connections` runs
//!   the queries.
//! - [`prefetch_figures`]: counters and state, for status, API and metrics.

mod binlog_stream;
pub mod change_decoder;
mod error;
pub mod gain_feedback;
mod index_reader;
mod log_stream;
pub mod pending_keys;
pub mod prefetch_figures;
pub mod prefetcher;
mod read_connections;
pub mod read_window;
mod replica_progress;
pub mod row_reads;
pub mod slow_query_cache;
pub mod statement_reads;
pub mod table_indexes;
#[cfg(test)]
mod tests;

pub use error::PrefetchError;
pub use log_stream::segment_place;
pub use prefetch_figures::{PrefetchFigures, PrefetchStatus};
pub use prefetcher::{PrefetchOptions, PrefetchProgress, PrefetchSource, check, run, source_of};
