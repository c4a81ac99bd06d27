//! `dump` and `load`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{DeferIndexesArg, ServerArgs, ThrottleArgs};

#[derive(Debug, Args)]
pub struct DumpArgs {
    /// A folder, or s3://BUCKET/PREFIX; new or empty, or with --resume that of an interrupted dump. Or -: all of it as
    /// statements to standard output, for the stock client.
    #[arg(value_name = "PLACE")]
    pub place: String,
    #[command(flatten)]
    pub server: ServerArgs,
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
    /// Connections that read side by side.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// How files hold rows; `tailwater load` takes tsv, the stock client sql, other programs csv and parquet. tsv if absent.
    #[arg(long, value_enum)]
    pub format: Option<FormatArg>,
    /// How files of rows are compressed; zstd if absent.
    #[arg(long, value_enum)]
    pub compression: Option<CompressionArg>,
    /// The level of the compression: 1 to 19 of zstd (3 if absent), 1 to 9 of gzip (6 if absent).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=19))]
    pub compression_level: Option<i32>,
    /// The most rows of a file, of tables with a key.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_rows_max: u64,
    /// About how many bytes a file of rows has, before compression.
    #[arg(long, value_name = "N", default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_bytes_max: u64,
    /// Users and roles, too, with the hashes of their passwords and what they may do.
    #[arg(long)]
    pub users: bool,
    /// How long to wait for a lock, and to keep writers waiting, at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lock_wait_max_s: u64,
    /// Go on with an interrupted dump, at another point in time: the manifest says which rows stand at which.
    #[arg(long)]
    pub resume: bool,
    /// The server is the target of this channel, with gtid = "log": stop it until the snapshot is there, so that the GTIDs that
    /// the server names are those of its data; again for more.
    #[arg(long, value_name = "CHANNEL", requires = "config")]
    pub pause_channel: Vec<String>,
    /// Configuration file of the daemon that runs these channels.
    #[arg(short = 'c', long = "config", value_name = "FILE", requires = "pause_channel")]
    pub config: Option<PathBuf>,
    /// Only say which statements would be run for the snapshot, and which tables would be dumped.
    #[arg(long)]
    pub dry_run: bool,
}

/// How files hold rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Tab-separated text.
    Tsv,
    /// INSERT statements.
    Sql,
    /// Comma-separated text: UTF-8, and hexadecimal digits of what is no text.
    Csv,
    /// Parquet: columns with types. It is compressed within.
    Parquet,
}

/// How files of rows are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompressionArg {
    /// Not at all.
    None,
    /// Zstandard.
    Zstd,
    /// gzip: more programs read it; it takes several times the time.
    Gzip,
}

#[derive(Debug, Args)]
pub struct LoadArgs {
    /// The folder of the dump, or s3://BUCKET/PREFIX. Also one that mydumper or MySQL Shell wrote.
    #[arg(value_name = "PLACE")]
    pub place: String,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    /// Connections that load rows side by side.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Go on behind what an earlier load of the same dump did, which noted it in the database tailwater on the server.
    #[arg(long)]
    pub resume: bool,
    /// Load into tables that are there. A row whose key is there ends the load.
    #[arg(long)]
    pub force_merge: bool,
    /// Load a dump that was interrupted, so that its tables stand at several points in time.
    #[arg(long)]
    pub allow_mixed: bool,
    /// At the end tell the server that it has the transactions of the dump: gtid_purged, or gtid_slave_pos.
    #[arg(long)]
    pub set_gtid: bool,
    /// Keep the load out of the server's binlog, and so from its replicas.
    #[arg(long)]
    pub no_binlog: bool,
    /// Users and roles of the dump, too; those that the server has are left as they are.
    #[arg(long)]
    pub users: bool,
    /// With --users: drop those that the server has, but for the one that loads, and make them anew.
    #[arg(long, requires = "users")]
    pub replace_users: bool,
    /// Make scheduled events disabled, as a replica has them.
    #[arg(long)]
    pub disable_events: bool,
    /// Load by INSERT statements, for a server with local_infile=OFF: slower.
    #[arg(long)]
    pub inserts: bool,
    /// Whether secondary indexes are made when all rows of their table are there, which is faster for large tables.
    #[arg(long, value_enum, default_value_t = DeferIndexesArg::Auto)]
    pub defer_indexes: DeferIndexesArg,
}
