//! Rows as Parquet files, whose columns have types that other programs know.
//!
//! - [`types`]: the types of columns, and [`values`]: their values; both without I/O.
//! - [`file`]: a file while it is written.

pub mod file;
pub mod types;
pub mod values;

pub use file::{ParquetFile, ParquetTable, WrittenParquet};
