//! The client/server protocol: the packets before, during and after a binlog stream.
//!
//! This module has both sides of the protocol, because Tailwater is a client of its sources and a server for
//! its replicas:
//! - [`packet`]: framing of packets, and splitting of payloads of 16 MiB and more.
//! - [`capabilities`]: capability and status flags.
//! - [`handshake`]: the server's greeting, the client's request for TLS, and the client's answer.
//! - [`authentication_plugin`]: authentication plugins and their scrambles. [`sha256_crypt`] and
//!   [`rsa_password_key`] are the parts that only a server needs.
//! - [`ok_err_eof_packets`]: OK, ERR and EOF packets.
//! - [`resultset`]: column definitions and rows in text form.
//! - [`binary_row`]: binary rows of a prepared statement.
//! - [`bulk_execute`]: rows of values for a prepared statement.
//! - [`command`]: the client's commands, binlog dumps included.
//! - [`semi_sync`]: the header that semi-synchronous sources put before events, and the ACK of a replica.
//!
//! All functions work on complete payloads. The caller reads the payloads from a socket.

pub mod authentication_plugin;
pub mod binary_row;
pub mod bulk_execute;
pub mod capabilities;
pub mod command;
pub mod handshake;
pub mod ok_err_eof_packets;
pub mod packet;
pub mod resultset;
pub mod rsa_password_key;
pub mod semi_sync;
pub mod sha256_crypt;

pub use capabilities::{Capabilities, MariadbCapabilities, ServerStatus};
pub use handshake::{HandshakeResponse, HandshakeV10};
pub use ok_err_eof_packets::{ErrPacket, OkPacket};
pub use resultset::ColumnDefinition;

/// The collation id that clients announce: `utf8mb4_general_ci`, which every server of both flavours has.
pub const COLLATION_UTF8MB4: u8 = 45;

/// The collation id of binary data, which has no character set.
pub const COLLATION_BINARY: u8 = 63;
