//! Arguments of `tailwater log`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ServerArgs;
use tailwater_binlog_stats::LocalTime;

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// List the segments: source file, size, transactions, GTIDs, time of the last commit.
    Ls(LogSource),
    /// Print events with decoded rows: in the format of mysqlbinlog -vv, as JSON lines (--output json), or as
    /// SQL.
    Cat(CatArgs),
    /// Verify all checksums, the sequence of the GTIDs, and the index. Exit code 3: the log is damaged.
    Verify(LogSource),
    /// Copy each sealed segment to an archive. The copies are compressed, then verified.
    Archive(ArchiveArgs),
    /// Print which segments would be purged; with --yes purge them. Exit code 4: a reader still needs one of
    /// them.
    Purge(PurgeArgs),
    /// Analyse logs, binlog files or a server's binlog: big transactions, long transactions, gaps between
    /// commits with their cause, hottest tables, rate over time.
    Stats(StatsArgs),
}

#[derive(Debug, Args)]
pub struct LogSource {
    /// Log folder of a source, a folder with several of them, or (cat, verify) a binlog file. With --archive,
    /// the default is everything in the archive.
    #[arg(value_name = "PATH", required_unless_present = "archive")]
    pub path: Option<PathBuf>,
    /// Read purged segments from this archive: s3://BUCKET/PREFIX or a folder. The S3 credentials and
    /// endpoint come from the environment variables AWS_*.
    #[arg(long, value_name = "URL")]
    pub archive: Option<String>,
}

#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// Log folder of a source, or a folder with several of them.
    #[arg(value_name = "LOG")]
    pub path: PathBuf,
    /// The archive: s3://BUCKET/PREFIX or a folder. The S3 credentials and endpoint come from the environment
    /// variables AWS_*.
    #[arg(long, value_name = "URL")]
    pub to: String,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("limit").args(["to", "before", "older_than", "keep_bytes"])))]
pub struct PurgeArgs {
    /// Log folder of the source.
    #[arg(value_name = "LOG")]
    pub path: PathBuf,
    /// Purge all segments before this one: its number, or the name of the source's binlog file.
    #[arg(long, value_name = "SEGMENT")]
    pub to: Option<String>,
    /// Purge segments that were sealed before this time (UTC): 2026-11-21, or "2026-11-21 23:59:59".
    #[arg(long, value_name = "TIME")]
    pub before: Option<String>,
    /// Purge segments that were sealed longer ago than this: 12h, 30days.
    #[arg(long, value_name = "DURATION")]
    pub older_than: Option<String>,
    /// Purge the oldest segments until the log has at most this many bytes.
    #[arg(long, value_name = "N")]
    pub keep_bytes: Option<u64>,
    /// Purge only segments that this archive contains.
    #[arg(long, value_name = "URL")]
    pub archive: Option<String>,
    /// First remove the retention record of this reader. Use this option for a reader that no longer exists.
    #[arg(long, value_name = "READER", required_unless_present = "limit")]
    pub forget: Option<String>,
    /// Purge. Without --yes, the command only prints what it would purge.
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct CatArgs {
    #[command(flatten)]
    pub source: LogSource,
    /// Print only these transactions: a GTID, a GTID set (MySQL) or a list of GTIDs (MariaDB).
    #[arg(long)]
    pub gtid: Option<String>,
    #[command(flatten)]
    pub time: TimeArgs,
    /// Print only row events of this table, and only transactions that change it.
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub table: Option<String>,
    /// Print only decoded rows.
    #[arg(long)]
    pub rows: bool,
    /// Print SQL that makes the same changes, for the mysql or mariadb client. A comment replaces each
    /// transaction that SQL cannot express exactly. Requires binlog_row_metadata=FULL on the source.
    #[arg(long, conflicts_with = "rows")]
    pub sql: bool,
    /// Stop at the first event that cannot be printed. By default, the command prints a line about the event,
    /// continues, and exits with code 3.
    #[arg(long, conflicts_with = "raw")]
    pub strict: bool,
    /// Write the unchanged bytes of the events: a binlog file that mysqlbinlog or mariadb-binlog can read.
    #[arg(long, conflicts_with_all = ["gtid", "table", "since", "until", "rows", "sql"])]
    pub raw: bool,
}

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Log folder of a source, a folder with several of them, or binlog files in order. Without paths, the
    /// command reads the binlog of the server given by --host, --port, --socket or --defaults-file.
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Position at which to start reading the server's binlog, as FILE:POS. Default: the start of the oldest
    /// binlog file.
    #[arg(long, value_name = "FILE:POS", conflicts_with = "paths")]
    pub start: Option<String>,
    #[command(flatten)]
    pub time: TimeArgs,
    /// Analyse only transactions that change this table.
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub table: Option<String>,
    /// Number of tables, transactions and gaps in each printed list.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub top: u16,
    /// Also write an HTML page with charts to this file. The page loads nothing from the network.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TimeArgs {
    /// Only transactions that were committed at or after this time: local "YYYY-MM-DD[ HH:MM:SS]", RFC 3339,
    /// or @SECONDS.
    #[arg(long, value_name = "TIME")]
    pub since: Option<LocalTime>,
    /// Only transactions that were committed before this time.
    #[arg(long, value_name = "TIME")]
    pub until: Option<LocalTime>,
}
