//! Cuts a table into chunks by ranges of a key, so that each row is in one chunk.
//!
//! The core modules decide, and do no I/O:
//! - [`key_range`]: which rows a chunk has; [`key_range_condition`]: the same as SQL.
//! - [`chunk_key`]: the key by which a table is cut, and how its values are read and compared.
//! - [`next_chunk`]: [`Chunker`], which returns the next chunk, or the query that it needs before.
//! - [`table_coverage_check`]: whether chunks cover the table, from their ranges alone.
//! - [`sparse_key_search`]: how wide a range must be where keys are sparse; [`chunk_sizer`]: how many rows a
//!   chunk gets.
//!
//! The other modules talk to the server: [`table_info`] reads a table's columns and keys, and
//! [`chunk_queries`] sends the queries of the core.

pub mod chunk_key;
pub mod chunk_queries;
pub mod chunk_sizer;
pub mod key_range;
pub mod key_range_condition;
pub mod next_chunk;
mod sparse_key_search;
pub mod table_coverage_check;
pub mod table_info;

pub use chunk_key::{ChunkKey, KeyColumn, KeyKind};
pub use chunk_sizer::{ChunkSizeLimits, ChunkSizer};
pub use key_range::{ChunkRange, KeyRange};
pub use next_chunk::{ChunkPlan, ChunkQuery, ChunkQueryResult, ChunkStep, Chunker};
pub use table_info::TableInfo;
