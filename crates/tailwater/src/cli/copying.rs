//! `copy`, and what other commands take of it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tailwater_session::TlsMode;
use tailwater_session::option_file::parse_tls_mode;

use super::{ServerArgs, ThrottleArgs};

#[derive(Debug, Args)]
pub struct CopyArgs {
    #[command(flatten)]
    pub source: SourceServerArgs,
    #[command(flatten)]
    pub target: TargetServerArgs,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    /// Only this database; again for more. All but the server's own if absent.
    #[arg(long, value_name = "NAME")]
    pub database: Vec<String>,
    /// Only this table; again for more.
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub table: Vec<String>,
    /// Not this table; again for more.
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub exclude_table: Vec<String>,
    #[command(flatten)]
    pub how: CopyHowArgs,
    /// At the end tell the target that it has the transactions of the source: gtid_purged, or gtid_slave_pos.
    #[arg(long)]
    pub set_gtid: bool,
    /// Keep the copy out of the target's binlog, and so from its replicas.
    #[arg(long)]
    pub no_binlog: bool,
    /// Go on behind an interrupted copy: tables that it finished are kept, the others are copied at another point in time.
    #[arg(long, conflicts_with = "restart")]
    pub resume: bool,
    /// Make scheduled events disabled, as a replica has them.
    #[arg(long)]
    pub disable_events: bool,
    /// Load by INSERT statements, for a target with local_infile=OFF: slower.
    #[arg(long)]
    pub inserts: bool,
    #[command(flatten)]
    pub binary: CopyBinaryArgs,
    /// Only say which statements would be run for the snapshot, and which tables would be copied.
    #[arg(long)]
    pub dry_run: bool,
}

/// How a whole server is copied as its files lie.
#[derive(Debug, Args)]
pub struct CopyBinaryArgs {
    /// Copy the whole server as its files lie, its accounts too: MySQL by CLONE into the target, MariaDB by mariadb-backup
    /// into a folder.
    #[arg(
        long,
        conflicts_with_all = ["database", "table", "exclude_table", "set_gtid", "no_binlog", "resume", "inserts", "restart"]
    )]
    pub binary: bool,
    #[command(flatten)]
    pub clone: CloneArgs,
    /// The folder that becomes a data folder (MariaDB).
    #[arg(long, value_name = "DIR", requires = "binary")]
    pub to_directory: Option<PathBuf>,
    /// The backup program of the server's release series (MariaDB).
    #[arg(long, value_name = "PROGRAM", requires = "binary", default_value = "mariadb-backup")]
    pub backup_program: PathBuf,
    /// Memory for replaying what was written meanwhile (MariaDB).
    #[arg(long, value_name = "BYTES", requires = "binary", default_value_t = 256 << 20)]
    pub prepare_memory_bytes: u64,
}

/// How MySQL clones.
#[derive(Debug, Args)]
pub struct CloneArgs {
    /// Where the target finds the source, if not where it is found from here (MySQL).
    #[arg(long, value_name = "HOST:PORT", requires = "binary", value_parser = host_and_port)]
    pub source_address: Option<(String, u16)>,
    /// How long to wait for the target to come back with its new data (MySQL).
    #[arg(long, value_name = "SECONDS", requires = "binary", default_value_t = 600)]
    pub restart_wait_max_s: u64,
}

/// Reads HOST:PORT.
fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let wrong = || format!("{text:?} is not HOST:PORT");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    if host.is_empty() { Err(wrong()) } else { Ok((host.to_owned(), port)) }
}

/// How rows are copied.
#[derive(Debug, Args)]
pub struct CopyHowArgs {
    /// Connections on either side.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// About how many bytes of rows one transaction of the target has.
    #[arg(long, value_name = "N", default_value_t = 32 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_bytes_max: u64,
    /// How long to wait for a lock on the source, and to keep writers waiting, at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lock_wait_max_s: u64,
    /// Whether secondary indexes are made when all rows of their table are there, which is faster for large tables.
    #[arg(long, value_enum, default_value_t = DeferIndexesArg::Auto)]
    pub defer_indexes: DeferIndexesArg,
    /// Drop what an interrupted copy has made (tables, views, routines, events, sequences), and start from scratch.
    #[arg(long, alias = "anew")]
    pub restart: bool,
}

/// Where the source is; what is not said here is taken from its option file and the environment.
#[derive(Debug, Args)]
pub struct SourceServerArgs {
    /// Option file with a [client] group for the source, in place of ~/.my.cnf.
    #[arg(long, value_name = "FILE")]
    pub source_defaults_file: Option<PathBuf>,
    /// The source's host.
    #[arg(long, value_name = "HOST")]
    pub source_host: Option<String>,
    /// Its port.
    #[arg(long, value_name = "PORT")]
    pub source_port: Option<u16>,
    /// Its Unix socket.
    #[arg(long, value_name = "FILE")]
    pub source_socket: Option<PathBuf>,
    /// The user there; the password is taken from the option file or TAILWATER_PASSWORD.
    #[arg(long, value_name = "USER")]
    pub source_user: Option<String>,
    /// How much TLS the connection needs: DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY. VERIFY_CA if
    /// --source-ssl-ca is given, else PREFERRED.
    #[arg(long, value_name = "MODE", value_parser = parse_tls_mode)]
    pub source_ssl_mode: Option<TlsMode>,
    /// PEM file of the authorities that may have signed the source's certificate, which is then verified.
    #[arg(long, value_name = "FILE")]
    pub source_ssl_ca: Option<PathBuf>,
    /// PEM file of the client's own certificate there.
    #[arg(long, value_name = "FILE")]
    pub source_ssl_cert: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long, value_name = "FILE")]
    pub source_ssl_key: Option<PathBuf>,
}

/// Where the target is; what is not said here is taken from its option file and the environment.
#[derive(Debug, Args)]
pub struct TargetServerArgs {
    /// Option file with a [client] group for the target, in place of ~/.my.cnf.
    #[arg(long, value_name = "FILE")]
    pub target_defaults_file: Option<PathBuf>,
    /// The target's host.
    #[arg(long, value_name = "HOST")]
    pub target_host: Option<String>,
    /// Its port.
    #[arg(long, value_name = "PORT")]
    pub target_port: Option<u16>,
    /// Its Unix socket.
    #[arg(long, value_name = "FILE")]
    pub target_socket: Option<PathBuf>,
    /// The user there; the password is taken from the option file or TAILWATER_PASSWORD.
    #[arg(long, value_name = "USER")]
    pub target_user: Option<String>,
    /// How much TLS the connection needs: DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY. VERIFY_CA if
    /// --target-ssl-ca is given, else PREFERRED.
    #[arg(long, value_name = "MODE", value_parser = parse_tls_mode)]
    pub target_ssl_mode: Option<TlsMode>,
    /// PEM file of the authorities that may have signed the target's certificate, which is then verified.
    #[arg(long, value_name = "FILE")]
    pub target_ssl_ca: Option<PathBuf>,
    /// PEM file of the client's own certificate there.
    #[arg(long, value_name = "FILE")]
    pub target_ssl_cert: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long, value_name = "FILE")]
    pub target_ssl_key: Option<PathBuf>,
}

impl From<&SourceServerArgs> for ServerArgs {
    fn from(source: &SourceServerArgs) -> Self {
        Self {
            defaults_file: source.source_defaults_file.clone(),
            host: source.source_host.clone(),
            port: source.source_port,
            socket: source.source_socket.clone(),
            user: source.source_user.clone(),
            ssl_mode: source.source_ssl_mode,
            ssl_ca: source.source_ssl_ca.clone(),
            ssl_cert: source.source_ssl_cert.clone(),
            ssl_key: source.source_ssl_key.clone(),
        }
    }
}

impl From<&TargetServerArgs> for ServerArgs {
    fn from(target: &TargetServerArgs) -> Self {
        Self {
            defaults_file: target.target_defaults_file.clone(),
            host: target.target_host.clone(),
            port: target.target_port,
            socket: target.target_socket.clone(),
            user: target.target_user.clone(),
            ssl_mode: target.target_ssl_mode,
            ssl_ca: target.target_ssl_ca.clone(),
            ssl_cert: target.target_ssl_cert.clone(),
            ssl_key: target.target_ssl_key.clone(),
        }
    }
}

/// Whether secondary indexes are made behind the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeferIndexesArg {
    /// Of large tables.
    Auto,
    /// Of all tables.
    Always,
    /// Of none.
    Never,
}

impl From<DeferIndexesArg> for tailwater_bulk::load::DeferIndexes {
    fn from(defer: DeferIndexesArg) -> Self {
        match defer {
            DeferIndexesArg::Auto => Self::Auto,
            DeferIndexesArg::Always => Self::Always,
            DeferIndexesArg::Never => Self::Never,
        }
    }
}
