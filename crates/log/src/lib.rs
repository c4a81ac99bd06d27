//! The durable log of transactions: one directory per source, with byte-identical copies of the source's
//! binlog files and an index for each. Format: docs/reference/log-format.md.
//!
//! Modules:
//! - [`LogWriter`] (`writer`; `active_segment` is the file of the newest segment) appends events, runs one
//!   fdatasync per commit group, and publishes the durable position through `shared_state`. The thread in
//!   `flusher` runs syncs for bulk data and for `ack = received`.
//! - [`LogHandle`] and [`LogDir`] (`handle`) give access to the log, in the writer's process and in other
//!   processes. [`LogReader`] reads it, with buffers from `buffer_pool`.
//! - `recovery`, `tail_recovery` and `torn_write` open a log after a crash, and distinguish a torn write from
//!   damage.
//! - `segment`, `framing`, `index`, `index_file`, `control_file` and `atomic_json_file` define the files, and
//!   how events become index entries.
//! - `retention` purges segments, `persistent_readers` stores the positions of disconnected readers, and
//!   `verify` checks the whole log.
//! - [`archive`] holds sealed segments in an object store, which are read like local segments.
//! - `storage` is the interface to the disk, which is real or simulated.
//!
//! Invariants: only durable bytes are published. Readers see only whole transactions. After a failed write or
//! fdatasync, this process publishes nothing more.

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
