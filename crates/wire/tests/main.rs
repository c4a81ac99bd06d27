//! Tests of the `wire` crate with files of real servers and with the fuzzing corpus.

mod binlog_files;
mod corpus;
mod error_codes;
mod printed_rows;
