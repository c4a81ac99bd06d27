//! Arguments of `dump` and `load`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{DeferIndexesArg, ServerArgs, ThrottleArgs};

#[derive(Debug, Args)]
pub struct DumpArgs {
    /// Destination: a folder or s3://BUCKET/PREFIX. It must be new or empty, or with --resume hold an
    /// interrupted dump. With -: a stream of SQL to standard output, for the mysql or mariadb client.
    #[arg(value_name = "PLACE")]
    pub place: String,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    /// Only this database (repeatable). Default: all except system databases.
    #[arg(long, value_name = "NAME")]
    pub database: Vec<String>,
    /// Only this table (repeatable).
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub table: Vec<String>,
    /// Exclude this table (repeatable).
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub exclude_table: Vec<String>,
    /// Number of connections that read in parallel.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Format of row files: tsv (default) for `tailwater load`, sql for the mysql or mariadb client, csv and
    /// parquet for other programs.
    #[arg(long, value_enum)]
    pub format: Option<FormatArg>,
    /// Compression of row files. Default: zstd.
    #[arg(long, value_enum)]
    pub compression: Option<CompressionArg>,
    /// Compression level: zstd 1 to 19 (default 3), gzip 1 to 9 (default 6).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=19))]
    pub compression_level: Option<i32>,
    /// Maximum rows of a file, in tables with a key.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_rows_max: u64,
    /// Approximate bytes of a row file, before compression.
    #[arg(long, value_name = "N", default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_bytes_max: u64,
    /// Also dump users and roles with password hashes and grants.
    #[arg(long)]
    pub users: bool,
    /// Maximum wait for a lock, during which writers wait too.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lock_wait_max_s: u64,
    /// Resume an interrupted dump from a new snapshot; the manifest records which rows belong to which
    /// snapshot.
    #[arg(long)]
    pub resume: bool,
    /// Pause this channel (gtid = "log") until the snapshot is taken, so that the server's GTIDs match its
    /// data (repeatable). The server must be the channel's target.
    #[arg(long, value_name = "CHANNEL", requires = "config")]
    pub pause_channel: Vec<String>,
    /// Configuration file of the daemon that runs the channel.
    #[arg(short = 'c', long = "config", value_name = "FILE", requires = "pause_channel")]
    pub config: Option<PathBuf>,
    /// Only print the snapshot statements and the tables that would be dumped.
    #[arg(long)]
    pub dry_run: bool,
}

/// Format of row files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Tab-separated text.
    Tsv,
    /// INSERT statements.
    Sql,
    /// Comma-separated text in UTF-8; binary values as hexadecimal digits.
    Csv,
    /// Parquet: typed columns, compressed inside the file.
    Parquet,
}

/// Compression of row files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompressionArg {
    /// No compression.
    None,
    /// Zstandard.
    Zstd,
    /// gzip: read by more programs, several times slower.
    Gzip,
}

#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Dump to load: a folder or s3://BUCKET/PREFIX. Dumps of mydumper and MySQL Shell are accepted too.
    #[arg(value_name = "PLACE")]
    pub place: String,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    /// Number of connections that load rows in parallel.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Resume an interrupted load of the same dump. Its progress is in the database tailwater on the server.
    #[arg(long)]
    pub resume: bool,
    /// Load into existing tables. A duplicate key ends the load.
    #[arg(long)]
    pub force_merge: bool,
    /// Load a dump that was interrupted and resumed, whose tables are from several snapshots.
    #[arg(long)]
    pub allow_mixed: bool,
    /// Afterwards set gtid_purged or gtid_slave_pos on the server to the GTIDs of the dump.
    #[arg(long)]
    pub set_gtid: bool,
    /// Do not write the load to the server's binlog (its replicas do not get it).
    #[arg(long)]
    pub no_binlog: bool,
    /// Also create the users and roles of the dump; existing ones are left unchanged.
    #[arg(long)]
    pub users: bool,
    /// With --users: drop existing users and roles first, except the user that loads.
    #[arg(long, requires = "users")]
    pub replace_users: bool,
    /// Create scheduled events disabled, as on a replica.
    #[arg(long)]
    pub disable_events: bool,
    /// Load with INSERT statements, for a server with local_infile=OFF (slower).
    #[arg(long)]
    pub inserts: bool,
    /// Whether secondary indexes are created after the rows are loaded, which is faster for large tables.
    #[arg(long, value_enum, default_value_t = DeferIndexesArg::Auto)]
    pub defer_indexes: DeferIndexesArg,
}
