//! The binlog server: replicas, `mysqlbinlog -R` and monitoring connect to it as if it were the source.
//!
//! The cores, which are pure:
//! - [`statement`]: what clients ask in SQL before, beside and instead of a dump, and the answers.
//! - [`catalog`]: the log's segments as the binlog files that are served, and places in them.
//! - [`start`]: where a client's stream begins, or why it does not.
//! - [`filter`]: what of the log goes into one client's stream, and what is made up for it.
//! - [`refusal`]: how a client is told no.

pub mod catalog;
pub mod filter;
pub mod refusal;
pub mod start;
pub mod statement;
