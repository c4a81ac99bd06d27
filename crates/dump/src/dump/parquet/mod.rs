//! Writes rows as Parquet files, whose column types other programs know.
//!
//! - [`types`]: the Parquet types of columns, and [`values`]: their values; both without I/O.
//! - [`file`]: writes a file.

pub mod parquet_column_types;
pub mod parquet_file_writer;
pub mod parquet_value_conversion;

pub use parquet_file_writer::{ParquetFile, ParquetTable, WrittenParquet};
