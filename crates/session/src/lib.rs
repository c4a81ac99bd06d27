//! Connections to MySQL and MariaDB servers: login, queries, and the binlog stream. Also the server side of
//! such connections: it authenticates clients, answers them, and sends them a binlog.
//!
//! The modules:
//! - [`connection_options`]: where and how to connect. [`option_file`] reads these options from option files
//!   and the environment.
//! - [`connection`]: a logged-in connection with [`Connection::query`] and similar methods.
//!   [`text_result_rows`]: the results of these methods.
//! - [`bulk_execute`]: sends many rows for a prepared statement, see [`Connection::prepare_bulk`].
//!   [`Connection::query_values`] runs a prepared statement that returns rows.
//! - [`load_data_local`]: `LOAD DATA LOCAL INFILE`, [`Connection::load_data`].
//! - [`binlog_dump`]: the binlog stream, [`Connection::dump`], with semi-synchronous acknowledgements.
//! - [`server`]: the server side, for clients and replicas that connect to Tailwater.
//! - [`session_settings`]: the session variables that every session sets, independent of the global values.
//! - [`required_privileges`]: checks that an account has the privileges of a job; [`user_privileges`]: its
//!   privileges on databases and tables; [`supported_versions`]: the supported server versions.
//! - [`semi_sync`]: the settings and counters of semi-synchronous replication.
//! - [`mariadb_slave_position`]: sets `gtid_slave_pos`.
//! - [`retry_backoff`]: delays between attempts.
//! - [`error`]: the errors, with stable codes.
//!
//! Memory is bounded whatever the server sends: [`ConnectOptions::rows_bytes_max`] limits results, and binlog
//! events come in chunks of at most [`binlog_dump::CHUNK_BYTES_MAX`].

pub mod binlog_dump;
pub mod bulk_execute;
pub mod connection;
pub mod connection_options;
pub mod error;
pub mod load_data_local;
mod login;
pub mod mariadb_slave_position;
pub mod option_file;
mod packet_stream;
mod prepared_statement;
pub mod required_privileges;
pub mod retry_backoff;
pub mod semi_sync;
pub mod server;
pub mod session_settings;
mod socket;
pub mod supported_versions;
pub mod text_result_rows;
mod tls;
pub mod user_privileges;

pub use binlog_dump::{DumpRequest, DumpStart, DumpStream, EventChunk};
pub use bulk_execute::BulkStatement;
pub use connection::{Connection, OkInfo, ServerInfo};
pub use connection_options::{ConnectOptions, Endpoint, PasswordText, TlsMode, TlsOptions};
pub use error::{PrivateText, ServerError, SessionError, SessionRetry, StatementPrefix};
pub use load_data_local::LoadPiece;
pub use mariadb_slave_position::{BACKUP_LOCK_WAIT_MAX, set_mariadb_slave_position};
pub use required_privileges::{AccountPurpose, check_plugin_privilege, check_privileges, grant_statement};
pub use retry_backoff::Backoff;
pub use session_settings::SessionPreset;
pub use supported_versions::{VersionSupport, support_of};
pub use text_result_rows::{QueryResult, RawRow, RawRows, RowStream, TextRow};
pub use user_privileges::UserPrivileges;
