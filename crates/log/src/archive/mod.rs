//! Archived segments: compressed objects in an object store, which are read like local segments.
//!
//! - `seekable`: the compressed format with random access.
//! - `store`: the interface to an object store.
//! - `catalogue`: [`Archive`], the archived segments of one source, as listed by the store.
//! - `overlay`: a log's directory whose purged segments are read from the archive.
//! - `upload`: uploads sealed segments, and reads each back before it counts as archived.

mod catalogue;
pub(crate) mod overlay;
pub mod seekable;
mod store;
mod upload;

pub use catalogue::{Archive, ArchiveExpiry};
pub use store::{ArchiveFailure, ArchiveObject, ArchiveStore, RangedRead};
pub use upload::{ArchiveOptions, ArchiveProgress, ArchiveReport, ArchiveStep};
pub(crate) use upload::{archive_sealed, confirm};
