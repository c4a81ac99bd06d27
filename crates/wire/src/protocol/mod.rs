//! The client/server protocol: packets before, around and during a binlog stream.
//!
//! Both directions are here, because Tailwater is a client of its sources and a server for its replicas:
//! - [`packet`]: framing, and the splitting of payloads of 16 MiB and more.
//! - [`capabilities`]: capability and status bits.
//! - [`handshake`]: the server's greeting, the request for TLS, the client's answer.
//! - [`auth`]: authentication plugins and their scrambles; [`sha256_crypt`] and [`password_key`] are the
//!   server's part.
//! - [`response`]: OK, ERR and EOF packets.
//! - [`resultset`]: column definitions and rows in text form.
//! - [`binary_row`]: binary rows of a prepared statement.
//! - [`bulk`]: rows of values for a prepared statement.
//! - [`command`]: the client's commands, binlog dumps included.
//! - [`semi_sync`]: the header that semi-synchronous sources put before events, and the acknowledgement.
//!
//! Everything works on complete payloads; the caller reads them from a socket.

pub mod auth;
pub mod binary_row;
pub mod bulk_execute;
pub mod capabilities;
pub mod command;
pub mod handshake;
pub mod packet;
pub mod password_key;
pub mod response;
pub mod resultset;
pub mod semi_sync;
pub mod sha256_crypt;

pub use capabilities::{Capabilities, MariadbCapabilities, ServerStatus};
pub use handshake::{HandshakeResponse, HandshakeV10};
pub use response::{ErrPacket, OkPacket};
pub use resultset::ColumnDefinition;

/// The collation id that clients announce: `utf8mb4_general_ci`, which every server of both flavours has.
pub const COLLATION_UTF8MB4: u8 = 45;

/// The collation id of bytes without a character set.
pub const COLLATION_BINARY: u8 = 63;
