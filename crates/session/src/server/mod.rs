//! The server's side of a session: clients, native replicas and `mysqlbinlog` log in to us.
//!
//! The map:
//! - [`accounts`]: who may log in, and what proves it.
//! - [`acceptor`]: from an open socket to a logged-in client, with [`options`] and [`limits`].
//! - `authentication`: the conversation of the authentication plugins, without any I/O; `admission`: who is let in how
//!   fast, without any clock.
//! - [`client_session`]: commands come, answers go.
//! - [`event_stream`]: a binlog goes out in big writes, acknowledgements come in; `event_framing` cuts it into packets.
//! - `certificate`: TLS with the operator's certificate or one of our own.
//!
//! Nobody gets in without proving a password. What a client sends before it did is bounded by
//! [`limits::LOGIN_BYTES_MAX`], how long it may take by [`ConnectionLimits::login_timeout`], and how many there are by
//! [`ConnectionLimits::unauthenticated_max`].

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
