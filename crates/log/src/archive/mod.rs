//! Archived segments: compressed, in an object store, and read as if they were still here.
//!
//! - `seekable`: the compressed form, of which any part can be read.
//! - `store`: what is needed of an object store.
//! - `catalogue`: [`Archive`], the archived segments of one source, known from the objects there are.
//! - `overlay`: a log's directory whose purged segments are read from the archive.
//! - `upload`: puts sealed segments there, and reads each back before it counts.

mod catalogue;
pub(crate) mod overlay;
pub mod seekable;
mod store;
mod upload;

pub use catalogue::{Archive, ArchiveExpiry};
pub use store::{ArchiveFailure, ArchiveObject, ArchiveStore, RangedRead};
pub use upload::{ArchiveOptions, ArchiveProgress, ArchiveReport, ArchiveStep};
pub(crate) use upload::{archive_sealed, confirm};
