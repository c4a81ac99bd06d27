//! Arguments of `dump` and `load`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{DaemonArgs, DeferIndexesArg, ServerArgs, ThrottleArgs};

#[derive(Debug, Args)]
pub struct DumpArgs {
    /// Destination: a folder, s3://BUCKET/PREFIX, or -. A folder or prefix must be new or empty; with
    /// --resume it must hold an interrupted dump. With -, a stream of SQL for the mysql or mariadb client is
    /// written to standard output.
    #[arg(value_name = "PLACE")]
    pub place: String,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Dump only this database (repeatable). Default: all except system databases.
    #[arg(long, value_name = "NAME")]
    pub database: Vec<String>,
    /// Dump only this table (repeatable).
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub table: Vec<String>,
    /// Exclude this table (repeatable).
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub exclude_table: Vec<String>,
    /// Number of connections that read in parallel.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Format of the row files. tsv (default): for `tailwater load`. sql: for the mysql or mariadb client.
    /// csv, parquet: for other programs.
    #[arg(long, value_enum)]
    pub format: Option<FormatArg>,
    /// Compression of the row files. Default: zstd.
    #[arg(long, value_enum)]
    pub compression: Option<CompressionArg>,
    /// Compression level: zstd 1 to 19 (default 3), gzip 1 to 9 (default 6).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=19))]
    pub compression_level: Option<i32>,
    /// Maximum number of rows in a file, for tables with a key.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_rows_max: u64,
    /// Approximate maximum size of a row file before compression, in bytes.
    #[arg(long, value_name = "N", default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_bytes_max: u64,
    /// Also dump users and roles, with their password hashes and grants.
    #[arg(long)]
    pub users: bool,
    /// Maximum wait for a lock, in seconds. Writers wait meanwhile.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lock_wait_max_s: u64,
    /// Resume an interrupted dump. The remaining rows come from a new snapshot; the manifest records which
    /// snapshot each row file comes from.
    #[arg(long)]
    pub resume: bool,
    /// Pause this channel (gtid = "log") until the snapshot is taken, so that the server's GTIDs match its
    /// data (repeatable). The server must be the channel's target.
    #[arg(long, value_name = "CHANNEL", requires = "config")]
    pub pause_channel: Vec<String>,
    /// Configuration file of the daemon that runs the paused channels.
    #[arg(short = 'c', long = "config", value_name = "FILE", requires = "pause_channel")]
    pub config: Option<PathBuf>,
    /// Only print the statements that take the snapshot, and the tables that would be dumped.
    #[arg(long)]
    pub dry_run: bool,
}

/// Format of the row files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Tab-separated text.
    Tsv,
    /// INSERT statements.
    Sql,
    /// Comma-separated text in UTF-8. Binary values are hexadecimal digits.
    Csv,
    /// Parquet: typed columns. Parquet compresses inside the file.
    Parquet,
}

/// Compression of the row files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompressionArg {
    /// No compression.
    None,
    /// Zstandard.
    Zstd,
    /// gzip. More programs read it; several times slower than zstd.
    Gzip,
}

#[derive(Debug, Args)]
pub struct LoadArgs {
    /// The dump: a folder or s3://BUCKET/PREFIX. Dumps of mydumper and MySQL Shell are accepted too.
    #[arg(value_name = "PLACE")]
    pub place: String,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Number of connections that load rows in parallel.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Resume an interrupted load of the same dump. The load's progress is in the database tailwater on the
    /// server.
    #[arg(long)]
    pub resume: bool,
    /// Load rows into tables that already exist. A duplicate key stops the load.
    #[arg(long)]
    pub force_merge: bool,
    /// Accept a dump that was interrupted and resumed. Its tables come from several snapshots.
    #[arg(long)]
    pub allow_mixed: bool,
    /// After the load, set gtid_purged (MySQL) or gtid_slave_pos (MariaDB) on the server to the GTIDs of the
    /// dump.
    #[arg(long)]
    pub set_gtid: bool,
    /// Do not write the loaded rows to the server's binlog. The server's replicas do not get them.
    #[arg(long)]
    pub no_binlog: bool,
    /// Also create the users and roles of the dump. Existing accounts are left unchanged.
    #[arg(long)]
    pub users: bool,
    /// With --users: first drop the users and roles that already exist, except the user that runs the load.
    #[arg(long, requires = "users")]
    pub replace_users: bool,
    /// Create scheduled events in a disabled state, as on a replica.
    #[arg(long)]
    pub disable_events: bool,
    /// Load with INSERT statements, for a server with local_infile=OFF (slower).
    #[arg(long)]
    pub inserts: bool,
    /// Whether secondary indexes are created after the rows are loaded. This is faster for large tables.
    #[arg(long, value_enum, default_value_t = DeferIndexesArg::Auto)]
    pub defer_indexes: DeferIndexesArg,
}
