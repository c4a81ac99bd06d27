//! The durable transaction log: one directory per source, byte-identical copies of the source's binlog files,
//! and an index for each. Format: docs/reference/log-format.md.
//!
//! Modules:
//! - [`LogWriter`] (`writer`, with the newest segment's file in `active_segment`): appends, runs one
//!   fdatasync per commit group, and publishes the durable position through `shared_state`. `flusher` is its
//!   helper thread for bulk data and for `ack = received`.
//! - [`LogHandle`] and [`LogDir`] (`handle`): the log for readers in the writer's process and in other
//!   processes; [`LogReader`] with its `buffer_pool`.
//! - `recovery`, `tail_recovery`, `torn_write`: opening a log after a crash; telling a torn write from
//!   damage.
//! - `segment`, `framing`, `index`, `index_file`, `control_file`, `atomic_json_file`: the files, and how
//!   events become entries.
//! - `retention`: purging; `persistent_readers`: readers that are remembered while disconnected; `verify`:
//!   reads everything back.
//! - [`archive`]: sealed segments in an object store, read like local ones.
//! - `storage`: the interface to the disk, real or simulated.
//!
//! Invariants: only durable bytes are published; readers see whole transactions only; after a failed write or
//! fdatasync this process publishes nothing more.

mod active_segment;
pub mod archive;
mod atomic_json_file;
mod buffer_pool;
mod control_file;
mod error;
mod flusher;
mod framing;
pub mod fuzzing;
mod handle;
mod index;
mod index_file;
mod options;
mod persistent_readers;
mod position;
mod previous_gtids;
mod reader;
mod recovery;
mod retention;
mod segment;
mod shared_state;
mod storage;
mod tail_recovery;
mod torn_write;
mod verify;
mod writer;

#[cfg(test)]
#[path = "../tests/support/events.rs"]
#[allow(missing_docs)]
mod events;
#[cfg(test)]
mod simulation;

pub use archive::{Archive, ArchiveStore};
pub use atomic_json_file::AtomicJsonFile;
pub use error::LogError;
pub use handle::{LogDir, LogHandle, PromptSyncGuard, SegmentSummary};
pub use options::{AckMode, LogOptions, Retention};
pub use persistent_readers::PersistentReader;
pub use position::{
    EntryFlags, EntryKind, LogEntry, LogPosition, SourceIdentity, SourceTail, TransactionSpan,
};
pub use reader::LogReader;
pub use recovery::{RecoveryReport, TailTruncation};
pub use retention::{Purge, PurgeLimit, RetentionPin};
pub use shared_state::{DurableState, LogState};
pub use storage::blocking;

pub use verify::{LogProblem, Verification, VerifyProgress};
pub use writer::{AppendedChunk, LogWriter};
