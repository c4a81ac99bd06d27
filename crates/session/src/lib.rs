//! Connections to MySQL and MariaDB servers: log in, ask, and receive the binlog. And the other side of such
//! connections: let clients log in, answer them, and send them a binlog.
//!
//! The map:
//! - [`options`]: where and how to connect; [`option_file`] reads it from option files and the environment.
//! - [`connection`]: a logged-in connection, [`Connection::query`] and its kin; [`rows`] is what they give.
//! - [`bulk`]: rows for a statement that the server has prepared, [`Connection::prepare_bulk`]; rows that such a statement
//!   gives are [`Connection::query_values`].
//! - [`load_data`]: rows for the server, [`Connection::load_data`].
//! - [`dump`]: the binlog stream, [`Connection::dump`], with semi-synchronous acknowledgements.
//! - [`server`]: the server's side, for clients and replicas that connect to us.
//! - [`session_settings`]: the settings that each session begins with, whatever the server's global ones are.
//! - [`required_privileges`]: whether a user may do what a job needs; [`user_privileges`]: what it may do with a database or a table.
//! - [`backoff`]: how long to wait before the next attempt.
//! - [`error`]: what can go wrong, with stable codes.
//!
//! Memory is bounded whatever the server sends: results by [`ConnectOptions::rows_bytes_max`], binlog events by being
//! handed on in chunks of at most [`dump::CHUNK_BYTES_MAX`].

pub mod backoff;
pub mod bulk;
pub mod connection;
pub mod dump;
pub mod error;
pub mod load_data;
mod login;
pub mod option_file;
pub mod options;
mod packet_stream;
mod prepared;
pub mod required_privileges;
pub mod rows;
pub mod server;
pub mod session_settings;
mod socket;
pub mod supported_versions;
mod tls;
pub mod user_privileges;

pub use backoff::Backoff;
pub use bulk::BulkStatement;
pub use connection::{Connection, OkInfo, ServerInfo};
pub use dump::{DumpRequest, DumpStart, DumpStream, EventChunk};
pub use error::{PrivateText, ServerError, SessionError, SessionRetry, StatementPrefix};
pub use load_data::LoadPiece;
pub use options::{ConnectOptions, Endpoint, PasswordText, TlsMode, TlsOptions};
pub use required_privileges::{AccountPurpose, check_plugin_privilege, check_privileges, grant_statement};
pub use rows::{QueryResult, RawRow, RawRows, RowStream, TextRow};
pub use session_settings::SessionPreset;
pub use user_privileges::UserPrivileges;
