//! Archived segments: compressed objects in an object store, which are read like local segments.
//!
//! - `seekable_zstd`: the compressed format with random access.
//! - `object_store`: the interface to an object store.
//! - `archived_segment_list`: [`Archive`], the archived segments of one source, as listed by the store.
//! - `archive_backed_directory`: a log's directory whose purged segments are read from the archive.
//! - `segment_upload`: uploads sealed segments, and reads each back before it counts as archived.

pub(crate) mod archive_backed_directory;
mod archived_segment_list;
mod object_store;
pub mod seekable_zstd;
mod segment_upload;

pub use archived_segment_list::{Archive, ArchiveExpiry};
pub use object_store::{ArchiveFailure, ArchiveObject, ArchiveStore, RangedRead};
pub use segment_upload::{ArchiveOptions, ArchiveProgress, ArchiveReport, ArchiveStep};
pub(crate) use segment_upload::{archive_sealed, confirm};
