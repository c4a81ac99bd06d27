//! Writes rows as Parquet files, whose column types other programs know.
//!
//! - [`parquet_column_types`]: the Parquet types of columns, and [`parquet_value_conversion`]: their values;
//!   both without I/O.
//! - [`parquet_file_writer`]: writes a file.

pub mod parquet_column_types;
pub mod parquet_file_writer;
pub mod parquet_value_conversion;

pub use parquet_file_writer::{ParquetFile, ParquetTable, WrittenParquet};
