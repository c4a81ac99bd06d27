//! The binlog server: replicas, `mysqlbinlog -R` and monitoring connect to it as if it were the source.
//!
//! Modules without I/O:
//! - [`statement`]: the SQL statements of clients, and their results.
//! - [`catalog`]: the log's segments as served binlog files, and positions in them.
//! - [`start`]: where a client's stream starts, or why it is refused.
//! - [`filter`]: which events of the log go into one client's stream, and which artificial events are added.
//! - [`client_error`]: errors sent to a client.
//! - [`receiver`]: the capture that writes the log, as a trait.
//!
//! Modules with I/O:
//! - [`server`]: the listener, and the state that connections share: `clients` (connected clients),
//!   `wakeup_pacer` (how often readers are woken), `log_snapshot` (the state of the log at one moment).
//! - `client_loop`: the commands of one client; `server_status` collects what its statements can query,
//!   `purge` runs `PURGE BINARY LOGS`.
//! - `binlog_sender`: the stream of one client.

mod binlog_sender;
pub mod catalog;
pub mod client_error;
mod client_loop;
mod clients;
mod error;
pub mod filter;
#[doc(hidden)]
pub mod fuzzing;
mod log_snapshot;
mod purge;
pub mod receiver;
pub mod server;
mod server_status;
pub mod start;
pub mod statement;
mod wakeup_pacer;

pub use clients::{StreamReader, StreamReaders};
pub use error::BinlogServerError;
pub use receiver::{LogReceiver, ReceiverFailure, ReceiverState, ReceiverStatus};
pub use server::{BinlogServer, BoundServer, ServeOptions, ServedLog};
