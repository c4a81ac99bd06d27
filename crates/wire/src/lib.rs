//! The bytes that MySQL and MariaDB exchange: client/server packets, authentication, binlog events, row
//! images and GTID sets of both flavours.
//!
//! Everything here is a pure function of bytes: no sockets, no files, no clock, no tokio. All input comes
//! from outside, so every parser accepts any bytes. Malformed bytes give a [`WireError`], never a panic, and
//! never an allocation larger than the input justifies.
//!
//! The modules:
//! - [`protocol`]: packet framing, handshake, authentication scrambles, commands, results, semi-sync framing.
//! - [`binlog_event`]: binlog event headers and bodies, checksums, compressed events.
//! - [`row_event`]: table maps and row images decoded to typed values; binary JSON.
//! - [`event_printer`]: events as text like `mysqlbinlog -vv`, as JSON lines, and as SQL.
//! - [`gtid`]: GTIDs and GTID sets of both flavours.
//! - [`sql_redaction`]: statements and error texts without secrets, and without values of rows.
//! - [`sql_quote`]: identifiers and literals in SQL text.
//! - [`server_version`]: version texts, and the features of server versions.
//! - [`transaction_boundary`]: transaction boundaries in a stream of events.

pub mod binlog_event;
pub mod byte_cursor;
mod display_escape;
pub mod error;
pub mod event_printer;
pub mod flavour_and_server_id;
#[doc(hidden)]
pub mod fuzzing;
pub mod gtid;
pub mod protocol;
pub mod row_event;
pub mod server_version;
pub mod sql_quote;
pub mod sql_redaction;
pub mod transaction_boundary;

pub use display_escape::printable;
pub use error::WireError;
pub use flavour_and_server_id::{Flavour, ServerId};
