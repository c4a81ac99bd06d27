//! The bytes that MySQL and MariaDB exchange: client/server packets, authentication, binlog events, row
//! images and GTID sets of both flavours.
//!
//! Everything here is a pure function of bytes: no sockets, no files, no clock, no tokio. All input comes
//! from outside, so every parser accepts any bytes. Malformed bytes give a [`WireError`], never a panic, and
//! never an allocation larger than the input justifies.
//!
//! The modules:
//! - [`protocol`]: packet framing, handshake, authentication scrambles, commands, results, semi-sync framing.
//! - [`event`]: binlog event headers and bodies, checksums, compressed events.
//! - [`rows`]: table maps and row images decoded to typed values; binary JSON.
//! - [`print`]: events as text like `mysqlbinlog -vv`, as JSON lines, and as SQL.
//! - [`gtid`]: GTIDs and GTID sets of both flavours.
//! - [`redact`]: statements and error texts without secrets, and without values of rows.
//! - [`sql_quote`]: identifiers and literals in SQL text.
//! - [`server_version`]: version texts, and the features of server versions.
//! - [`transaction`]: transaction boundaries in a stream of events.

pub mod cursor;
pub mod error;
pub mod event;
#[doc(hidden)]
pub mod fuzzing;
pub mod gtid;
pub mod ids;
pub mod print;
mod printable;
pub mod protocol;
pub mod redact;
pub mod rows;
pub mod server_version;
pub mod sql_quote;
pub mod transaction;

pub use error::WireError;
pub use ids::{Flavour, ServerId};
pub use printable::printable;
