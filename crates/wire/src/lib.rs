//! The bytes that MySQL and MariaDB exchange: client/server packets, authentication, binlog events, row
//! images and GTID sets of both flavours.
//!
//! All functions of this crate depend only on their input: they use no sockets, no files, no clock and no
//! tokio. The input comes from outside, so every parser accepts any bytes. For malformed bytes it returns a
//! [`WireError`]. It never panics, and never allocates more memory than the input justifies.
//!
//! The modules:
//! - [`protocol`]: packet framing, handshake, authentication scrambles, commands, results, semi-sync framing.
//! - [`binlog_event`]: binlog event headers and bodies, checksums, compressed events.
//! - [`row_event`]: table maps and row images decoded to typed values; binary JSON.
//! - [`event_printer`]: prints events as text like `mysqlbinlog -vv`, as JSON lines, and as SQL.
//! - [`gtid`]: GTIDs and GTID sets of both flavours.
//! - [`sql_redaction`]: removes secrets and row values from statements and error texts.
//! - [`url_credentials`]: removes logins from URLs.
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
pub mod url_credentials;

pub use display_escape::printable;
pub use error::WireError;
pub use flavour_and_server_id::{Flavour, ServerId};
