//! Arguments of `copy`, some of which other commands share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tailwater_session::TlsMode;
use tailwater_session::option_file::parse_tls_mode;

use super::{DaemonArgs, ServerArgs, ThrottleArgs};

#[derive(Debug, Args)]
pub struct CopyArgs {
    #[command(flatten)]
    pub source: SourceServerArgs,
    #[command(flatten)]
    pub target: TargetServerArgs,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Copy only this database (repeatable). Default: all except system databases.
    #[arg(long, value_name = "NAME")]
    pub database: Vec<String>,
    /// Copy only this table (repeatable).
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub table: Vec<String>,
    /// Exclude this table (repeatable).
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub exclude_table: Vec<String>,
    #[command(flatten)]
    pub how: CopyHowArgs,
    /// After the copy, set gtid_purged (MySQL) or gtid_slave_pos (MariaDB) on the target to the GTIDs of the
    /// copy.
    #[arg(long)]
    pub set_gtid: bool,
    /// Do not write the copied rows to the target's binlog. The target's replicas do not get them.
    #[arg(long)]
    pub no_binlog: bool,
    /// Resume an interrupted copy: keep the finished tables, and copy the others from a new snapshot.
    #[arg(long, conflicts_with = "restart")]
    pub resume: bool,
    /// Create scheduled events in a disabled state, as on a replica.
    #[arg(long)]
    pub disable_events: bool,
    /// Load with INSERT statements, for a target with local_infile=OFF (slower).
    #[arg(long)]
    pub inserts: bool,
    #[command(flatten)]
    pub binary: CopyBinaryArgs,
    /// Only print the statements that take the snapshot, and the tables that would be copied.
    #[arg(long)]
    pub dry_run: bool,
}

/// Options of a physical copy.
#[derive(Debug, Args)]
pub struct CopyBinaryArgs {
    /// Physical copy of the whole server, accounts included. MySQL: CLONE into the target. MariaDB:
    /// mariadb-backup into a folder.
    #[arg(
        long,
        conflicts_with_all = ["database", "table", "exclude_table", "set_gtid", "no_binlog", "resume", "inserts", "restart"]
    )]
    pub binary: bool,
    #[command(flatten)]
    pub clone: CloneArgs,
    /// Folder that receives the data files and becomes the new server's data directory (MariaDB).
    #[arg(long, value_name = "DIR", requires = "binary")]
    pub to_directory: Option<PathBuf>,
    /// Path of a mariadb-backup program of the same release series as the server (MariaDB).
    #[arg(long, value_name = "PROGRAM", requires = "binary", default_value = "mariadb-backup")]
    pub backup_program: PathBuf,
    /// Memory for mariadb-backup --prepare, which applies the redo log that was written during the backup, in
    /// bytes (MariaDB).
    #[arg(long, value_name = "BYTES", requires = "binary", default_value_t = 256 << 20)]
    pub prepare_memory_bytes: u64,
}

/// Options of MySQL's CLONE.
#[derive(Debug, Args)]
pub struct CloneArgs {
    /// Address at which the target reaches the source. Default: the address that this command uses (MySQL).
    #[arg(long, value_name = "HOST:PORT", requires = "binary", value_parser = host_and_port)]
    pub source_address: Option<(String, u16)>,
    /// Maximum wait for the target to restart with the new data, in seconds (MySQL).
    #[arg(long, value_name = "SECONDS", requires = "binary", default_value_t = 600)]
    pub restart_wait_max_s: u64,
}

/// Parses HOST:PORT.
fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let wrong = || format!("{text:?} is not HOST:PORT");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    if host.is_empty() { Err(wrong()) } else { Ok((host.to_owned(), port)) }
}

/// Options of a logical copy.
#[derive(Debug, Args)]
pub struct CopyHowArgs {
    /// Number of connections to the source, and of connections to the target.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Approximate maximum of row data in one transaction on the target, in bytes.
    #[arg(long, value_name = "N", default_value_t = 32 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_bytes_max: u64,
    /// Maximum wait for a lock on the source, in seconds. Writers on the source wait meanwhile.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lock_wait_max_s: u64,
    /// Whether secondary indexes are created after the rows are loaded. This is faster for large tables.
    #[arg(long, value_enum, default_value_t = DeferIndexesArg::Auto)]
    pub defer_indexes: DeferIndexesArg,
    /// Drop everything that an interrupted copy created (tables, views, routines, events, sequences), and
    /// start from scratch.
    #[arg(long, alias = "anew")]
    pub restart: bool,
}

/// Connection options of the source. An option that is not given comes from the source's option file or the
/// environment.
#[derive(Debug, Args)]
pub struct SourceServerArgs {
    /// Option file with a [client] group for the source, instead of ~/.my.cnf.
    #[arg(long, value_name = "FILE")]
    pub source_defaults_file: Option<PathBuf>,
    /// Host of the source.
    #[arg(long, value_name = "HOST")]
    pub source_host: Option<String>,
    /// TCP port.
    #[arg(long, value_name = "PORT")]
    pub source_port: Option<u16>,
    /// Unix socket file.
    #[arg(long, value_name = "FILE")]
    pub source_socket: Option<PathBuf>,
    /// User name. The password is read from the option file or TAILWATER_PASSWORD.
    #[arg(long, value_name = "USER")]
    pub source_user: Option<String>,
    /// TLS mode: DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY. Default: VERIFY_CA with
    /// --source-ssl-ca, else PREFERRED.
    #[arg(long, value_name = "MODE", value_parser = parse_tls_mode)]
    pub source_ssl_mode: Option<TlsMode>,
    /// PEM file of the certificate authorities that the source's certificate is verified against.
    #[arg(long, value_name = "FILE")]
    pub source_ssl_ca: Option<PathBuf>,
    /// PEM file of the client certificate.
    #[arg(long, value_name = "FILE")]
    pub source_ssl_cert: Option<PathBuf>,
    /// PEM file of the client's private key.
    #[arg(long, value_name = "FILE")]
    pub source_ssl_key: Option<PathBuf>,
}

/// Connection options of the target. An option that is not given comes from the target's option file or the
/// environment.
#[derive(Debug, Args)]
pub struct TargetServerArgs {
    /// Option file with a [client] group for the target, instead of ~/.my.cnf.
    #[arg(long, value_name = "FILE")]
    pub target_defaults_file: Option<PathBuf>,
    /// Host of the target.
    #[arg(long, value_name = "HOST")]
    pub target_host: Option<String>,
    /// TCP port.
    #[arg(long, value_name = "PORT")]
    pub target_port: Option<u16>,
    /// Unix socket file.
    #[arg(long, value_name = "FILE")]
    pub target_socket: Option<PathBuf>,
    /// User name. The password is read from the option file or TAILWATER_PASSWORD.
    #[arg(long, value_name = "USER")]
    pub target_user: Option<String>,
    /// TLS mode: DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY. Default: VERIFY_CA with
    /// --target-ssl-ca, else PREFERRED.
    #[arg(long, value_name = "MODE", value_parser = parse_tls_mode)]
    pub target_ssl_mode: Option<TlsMode>,
    /// PEM file of the certificate authorities that the target's certificate is verified against.
    #[arg(long, value_name = "FILE")]
    pub target_ssl_ca: Option<PathBuf>,
    /// PEM file of the client certificate.
    #[arg(long, value_name = "FILE")]
    pub target_ssl_cert: Option<PathBuf>,
    /// PEM file of the client's private key.
    #[arg(long, value_name = "FILE")]
    pub target_ssl_key: Option<PathBuf>,
}

impl SourceServerArgs {
    /// Whether an option says where the source is.
    pub fn is_named(&self) -> bool {
        self.source_host.is_some()
            || self.source_port.is_some()
            || self.source_socket.is_some()
            || self.source_defaults_file.is_some()
    }
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

/// For which tables secondary indexes are created after the rows are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeferIndexesArg {
    /// Only large tables.
    Auto,
    /// All tables.
    Always,
    /// No table.
    Never,
}

impl From<DeferIndexesArg> for tailwater_dump::load::DeferIndexes {
    fn from(defer: DeferIndexesArg) -> Self {
        match defer {
            DeferIndexesArg::Auto => Self::Auto,
            DeferIndexesArg::Always => Self::Always,
            DeferIndexesArg::Never => Self::Never,
        }
    }
}
