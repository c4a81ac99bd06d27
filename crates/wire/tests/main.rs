//! What of `wire` is tested from the outside: against files of real servers, and with all that fuzzing has kept.

mod binlog_files;
mod corpus;
mod error_codes;
mod printed_rows;
