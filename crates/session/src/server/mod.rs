//! The server side of a session: clients, native replicas and `mysqlbinlog` log in to Tailwater.
//!
//! The modules:
//! - [`accounts`]: the accounts and their credentials.
//! - [`acceptor`]: logs in a client on an open socket, with [`options`] and [`limits`].
//! - `authentication`: the exchange of the authentication plugins, without I/O; `admission`: connection
//!   limits and login delays, without a clock.
//! - [`client_session`]: receives commands and sends answers.
//! - [`event_stream`]: sends a binlog in large writes and receives acknowledgements; `event_framing` splits
//!   it into packets.
//! - `certificate`: TLS with the operator's certificate or a generated one.
//!
//! Every client must prove a password. Before that, [`limits::LOGIN_BYTES_MAX`] limits its bytes,
//! [`ConnectionLimits::login_timeout`] its time, and [`ConnectionLimits::unauthenticated_max`] the number of
//! such clients.

pub mod acceptor;
pub mod accounts;
mod admission;
mod authentication;
mod certificate;
pub mod client_session;
mod event_framing;
pub mod event_stream;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
pub mod limits;
pub mod options;

pub use acceptor::{Acceptor, reject_connection};
pub use accounts::{Accounts, Credential};
pub use client_session::{ClientSession, integer_column, text_column};
pub use event_stream::{EventReceiver, EventSender};
pub use limits::ConnectionLimits;
pub use options::{ServerOptions, ServerTls};
