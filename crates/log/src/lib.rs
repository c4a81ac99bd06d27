//! The durable transaction log: one directory per source, byte-identical copies of the source's binlog files, an index
//! beside each. Format: docs/reference/log-format.md.
//!
//! The map:
//! - [`LogWriter`] (`writer`, with the newest segment's file in `active`): appends, one fdatasync per commit group,
//!   publishes what is durable through `progress`; `flusher` is its helper thread for bulk and for `ack = received`.
//! - [`LogHandle`] and [`LogDir`] (`handle`): the log for readers in the writer's process and beside it; [`LogReader`].
//! - `recovery`, `tail_recovery`, `tear`: what opening does after a crash; what is a torn write and what is damage.
//! - `segment`, `framing`, `index`, `index_file`, `control`: the files, and how events become entries.
//! - `retention`: what may be purged; `readers`: who is remembered while away. `verify`: reads everything back.
//! - [`archive`]: sealed segments in an object store, and reading on in them.
//! - `storage`: the seam to the disk, real or simulated.
//!
//! What always holds: nothing is published that is not durable; readers see whole transactions only; after a failed
//! write or fdatasync nothing more is published by this process.

mod active_segment;
pub mod archive;
mod atomic_json_file;
mod control;
mod error;
mod flusher;
mod framing;
pub mod fuzzing;
mod gtid_before;
mod handle;
mod index;
mod index_file;
mod options;
mod position;
mod progress;
mod reader;
mod readers;
mod recovery;
mod retention;
mod segment;
pub mod stats;
mod storage;
mod tail_recovery;
mod tear;
mod verify;
mod window;
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
pub use position::{
    EntryFlags, EntryKind, LogEntry, LogPosition, SourceIdentity, SourceTail, TransactionSpan,
};
pub use progress::{DurableState, LogState};
pub use reader::LogReader;
pub use readers::PersistentReader;
pub use recovery::{RecoveryReport, TailTruncation};
pub use retention::{Purge, PurgeLimit, RetentionPin};
pub use storage::blocking;

pub use verify::{LogProblem, Verification, VerifyProgress};
pub use writer::{Appended, LogWriter};
