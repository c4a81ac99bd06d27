//! The binlog server: replicas, `mysqlbinlog -R` and monitoring connect to it as if it were the source.
//!
//! Modules without I/O:
//! - [`client_statement`]: the SQL statements of clients, and their results.
//! - [`binlog_file_list`]: the log's segments as served binlog files, and positions in them.
//! - [`stream_start`]: decides where a client's stream starts, or why the server refuses it.
//! - [`stream_filter`]: which events of the log go into one client's stream, and which artificial events are
//!   added.
//! - [`client_error`]: errors sent to a client.
//! - [`receiver_status`]: a trait for the capture that writes the log.
//!
//! Modules with I/O:
//! - [`listener`]: the listener, and the state that connections share: `connected_clients` (connected
//!   clients), `reader_wakeup_limiter` (how often readers are woken), `log_snapshot` (the state of the log at
//!   one moment).
//! - `client_command_loop`: the commands of one client; `status_collector` collects what its statements can
//!   query, `purge_binary_logs` runs `PURGE BINARY LOGS`.
//! - `binlog_sender`: the stream of one client; `shared_tail`: the newest transactions as packets, which all
//!   streams share.

pub mod binlog_file_list;
mod binlog_sender;
mod client_command_loop;
pub mod client_error;
pub mod client_statement;
mod connected_clients;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod listener;
mod log_snapshot;
mod purge_binary_logs;
mod reader_wakeup_limiter;
pub mod receiver_status;
mod shared_tail;
mod status_collector;
pub mod stream_filter;
pub mod stream_start;

pub use connected_clients::{StreamReader, StreamReaders};
pub use error::BinlogServerError;
pub use listener::{BinlogServer, BoundServer, SHARED_TAIL_BYTES_MAX, ServeOptions, ServedLog};
pub use receiver_status::{LogReceiver, ReceiverFailure, ReceiverState, ReceiverStatus};

#[cfg(test)]
#[path = "../../log/tests/support"]
#[allow(dead_code, missing_docs)]
mod support {
    pub mod binlog_generator;
    pub mod synthetic_capture;
}
