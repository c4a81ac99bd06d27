//! Writes rows as Parquet files, whose column types other programs know.
//!
//! - [`types`]: the Parquet types of columns, and [`values`]: their values; both without I/O.
//! - [`file`]: writes a file.

pub mod file;
pub mod types;
pub mod values;

pub use file::{ParquetFile, ParquetTable, WrittenParquet};
