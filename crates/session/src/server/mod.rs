//! The server side of a session: clients, native replicas and `mysqlbinlog` log in to Tailwater.
//!
//! The modules:
//! - [`client_accounts`]: the accounts and their credentials.
//! - [`client_acceptor`]: logs in a client on an open socket, with [`server_options`] and [`client_limits`].
//! - `authentication_exchange`: the exchange of the authentication plugins, without I/O;
//!   `connection_admission`: connection limits and login delays, without a clock.
//! - [`client_session`]: receives commands and sends answers.
//! - [`binlog_stream`]: sends a binlog in large writes and receives acknowledgements; `event_packets` splits
//!   it into packets.
//! - `tls_certificate`: TLS with the operator's certificate or a generated one.
//!
//! Every client must prove a password. Before the proof, three limits apply:
//! [`client_limits::LOGIN_BYTES_MAX`] limits the bytes of a client, [`ConnectionLimits::login_timeout`]
//! limits its time, and [`ConnectionLimits::unauthenticated_max`] limits the number of such clients.

mod authentication_exchange;
pub mod binlog_stream;
pub mod client_acceptor;
pub mod client_accounts;
pub mod client_limits;
pub mod client_session;
mod connection_admission;
mod event_packets;
#[doc(hidden)]
pub mod login_fuzzing;
mod login_handshake;
pub mod server_options;
mod tls_certificate;

pub use binlog_stream::{EventReceiver, EventSender};
pub use client_acceptor::{Acceptor, reject_connection};
pub use client_accounts::{Accounts, Credential};
pub use client_limits::ConnectionLimits;
pub use client_session::{ClientSession, integer_column, text_column};
pub use event_packets::SharedPackets;
pub use server_options::{ServerOptions, ServerTls};
pub use tls_certificate::tls_acceptor;
