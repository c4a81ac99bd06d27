//! The durable log of transactions: one directory per source, with byte-identical copies of the source's
//! binlog files and an index for each. Format: docs/reference/log-format.md.
//!
//! Modules:
//! - [`LogWriter`] (`log_writer`; `active_segment` is the file of the newest segment) appends events, runs
//!   one fdatasync per commit group, and publishes the durable position through `shared_log_state`. The
//!   thread in `sync_thread` runs syncs for bulk data and for `ack = received`.
//! - [`LogHandle`] and [`LogDir`] (`log_handle`) give access to the log, in the writer's process and in other
//!   processes. [`LogReader`] reads it, with buffers from `read_buffer_pool`.
//! - `log_metrics`: the duration of syncs, the size, and the backlog of readers, for monitoring.
//! - `crash_recovery`, `newest_segment_recovery` and `torn_write` open a log after a crash, and distinguish a
//!   torn write from damage.
//! - `segment_files`, `index_entry_builder`, `segment_index`, `segment_index_reader`, `control_file` and
//!   `atomic_json_file` define the files, and how events become index entries.
//! - `purge_policy` purges segments, `stored_reader_positions` stores the positions of disconnected readers,
//!   and `log_verification` checks the whole log.
//! - [`archive`] holds sealed segments in an object store, which are read like local segments.
//! - `storage` is the interface to the disk, which is real or simulated.
//!
//! Invariants: only durable bytes are published. Readers see only whole transactions. After a failed write or
//! fdatasync, this process publishes nothing more.

mod active_segment;
pub mod archive;
mod atomic_json_file;
mod control_file;
mod crash_recovery;
mod error;
pub mod fuzzing;
mod index_entry_builder;
mod log_handle;
mod log_metrics;
mod log_options;
mod log_position;
mod log_reader;
mod log_verification;
mod log_writer;
mod newest_segment_recovery;
mod previous_gtids;
mod purge_policy;
mod read_buffer_pool;
mod segment_files;
mod segment_index;
mod segment_index_reader;
mod shared_log_state;
mod storage;
mod stored_reader_positions;
mod sync_thread;
mod torn_write;

#[cfg(test)]
#[path = "../tests/support/binlog_generator.rs"]
#[allow(missing_docs)]
mod binlog_generator;
#[cfg(test)]
mod crash_simulation;
#[cfg(test)]
mod power_cut_points;

pub use archive::{Archive, ArchiveStore};
pub use atomic_json_file::AtomicJsonFile;
pub use crash_recovery::{RecoveryReport, TailTruncation};
pub use error::LogError;
pub use log_handle::{LogDir, LogHandle, PromptSyncGuard, SegmentSummary};
pub use log_metrics::{LogFigures, ReaderBacklog, SYNC_SECONDS_BOUNDS, SyncDurations};
pub use log_options::{AckMode, LogOptions, Retention};
pub use log_position::{
    EntryFlags, EntryKind, LogEntry, LogPosition, ReaderPlace, SourceIdentity, SourceTail, TransactionSpan,
};
pub use log_reader::LogReader;
pub use purge_policy::{Purge, PurgeLimit, RetentionPin};
pub use shared_log_state::{DurableState, LogState};
pub use storage::blocking;
pub use stored_reader_positions::PersistentReader;

pub use log_verification::{LogProblem, Verification, VerifyProgress};
pub use log_writer::{AppendedChunk, LogWriter};
