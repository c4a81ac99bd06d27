//! Walks a table in chunks of a key.
//!
//! - [`range`]: what a chunk covers.

pub mod range;

pub use range::{ChunkRange, KeyRange};
