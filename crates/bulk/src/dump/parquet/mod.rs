//! Rows as files of Parquet, whose columns have types that other programs know.
//!
//! - [`types`]: what columns become, and [`values`]: their values; both without I/O.
//! - [`file`]: one file while it is written.

pub mod file;
pub mod types;
pub mod values;

pub use file::{ParquetFile, ParquetTable, WrittenParquet};
