//! Walks a table in chunks of a key, each row once.
//!
//! The core decides and does no I/O:
//! - [`range`]: what a chunk covers; [`condition`]: the same as SQL.
//! - [`key`]: which key a table is walked by, and how its values are asked for and compared.
//! - [`plan`]: [`Chunker`], which chunk comes next, and what must be asked for that.
//! - [`coverage`]: whether chunks that were cut cover the table, derived from their ranges alone.
//! - [`estimate`]: how far to go where keys are sparse; [`chunk_sizer`]: how many rows a chunk gets.
//!
//! The driver: [`shape`] reads what a table is like, [`queries`] puts the core's questions to the server.

pub mod chunk_sizer;
pub mod condition;
pub mod coverage;
pub mod key;
pub mod plan;
pub mod queries;
pub mod range;
pub mod table_info;
mod width_search;

pub use chunk_sizer::{ChunkSizeLimits, ChunkSizer};
pub use key::{ChunkKey, KeyColumn, KeyKind};
pub use plan::{ChunkPlan, ChunkQuery, ChunkQueryResult, ChunkStep, Chunker};
pub use range::{ChunkRange, KeyRange};
pub use table_info::TableInfo;
