//! The binlog server: replicas, `mysqlbinlog -R` and monitoring connect to it as if it were the source.
//!
//! The cores, which are pure:
//! - [`statement`]: what clients ask in SQL before, beside and instead of a dump, and the answers.
//! - [`catalog`]: the log's segments as the binlog files that are served, and places in them.
//! - [`start`]: where a client's stream begins, or why it does not.
//! - [`filter`]: what of the log goes into one client's stream, and what is made up for it.
//! - [`client_error`]: how a client is told no.
//!
//! The driver:
//! - [`server`]: the listener, and what connections share: `clients` (who is there), `pace` (how often they are told that
//!   the log has grown), `history` (one look at the log).
//! - `conversation`: one client's commands; `view` is what its statements can ask for, `purging` one that does something.
//! - `sending`: one client's stream.

mod binlog_sender;
pub mod catalog;
pub mod client_error;
mod client_loop;
mod clients;
pub mod filter;
mod log_snapshot;
mod purge;
pub mod server;
pub mod start;
pub mod statement;
mod status_view;
mod wakeup_pacer;

pub use clients::{StreamReader, StreamReaders};
pub use server::{BinlogServer, BoundServer, ServeOptions, ServedLog};
