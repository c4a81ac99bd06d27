//! `log`, and what is read there or on a server.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ServerArgs;
use tailwater_daemon::moment::Moment;

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Lists segments: source file, size, transactions, GTIDs, time.
    Ls(LogSource),
    /// Prints events with decoded rows, as mysqlbinlog -vv does, as JSON lines with --output json, or as SQL.
    Cat(CatArgs),
    /// Checks every checksum, the continuity of GTIDs, and the index; exit code 3 if anything is wrong.
    Verify(LogSource),
    /// Compresses every sealed segment that is not archived yet and puts it, read back and compared, into an archive.
    Archive(ArchiveArgs),
    /// Says what would be dropped, and with --yes drops it; exit code 4 if a reader still needs a part of it.
    Purge(PurgeArgs),
    /// What happened: big and long transactions, gaps between commits and what was written in them, the hottest tables,
    /// the rate over time; of logs, of binlog files, or of a server.
    Stats(StatsArgs),
}

#[derive(Debug, Args)]
pub struct LogSource {
    /// A source's log folder, a folder of several, or (cat, verify) a binlog file. With --archive all that is archived
    /// if absent.
    #[arg(value_name = "PATH", required_unless_present = "archive")]
    pub path: Option<PathBuf>,
    /// Read segments that were purged from this archive: s3://BUCKET/PREFIX or a folder. Credentials and endpoint as in
    /// the AWS_ variables of the environment.
    #[arg(long, value_name = "URL")]
    pub archive: Option<String>,
}

#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// A source's log folder, or a folder of several.
    #[arg(value_name = "LOG")]
    pub path: PathBuf,
    /// s3://BUCKET/PREFIX or a folder. Credentials and endpoint as in the AWS_ variables of the environment.
    #[arg(long, value_name = "URL")]
    pub to: String,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("limit").args(["to", "before", "older_than", "keep_bytes"])))]
pub struct PurgeArgs {
    /// A source's log folder.
    #[arg(value_name = "LOG")]
    pub path: PathBuf,
    /// Drop all segments before this one: its number, or the name of the source's file.
    #[arg(long, value_name = "SEGMENT")]
    pub to: Option<String>,
    /// Drop segments that were sealed before this moment: 2026-11-21, or 2026-11-21 23:59:59 (UTC).
    #[arg(long, value_name = "TIME")]
    pub before: Option<String>,
    /// Drop segments that were sealed longer ago than this: 12h, 30days.
    #[arg(long, value_name = "DURATION")]
    pub older_than: Option<String>,
    /// Drop the oldest segments until the log is at most this big.
    #[arg(long, value_name = "N")]
    pub keep_bytes: Option<u64>,
    /// Drop only what is in this archive.
    #[arg(long, value_name = "URL")]
    pub archive: Option<String>,
    /// First forget a reader that will not come back.
    #[arg(long, value_name = "READER", required_unless_present = "limit")]
    pub forget: Option<String>,
    /// Do it, rather than say what would be done.
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct CatArgs {
    #[command(flatten)]
    pub source: LogSource,
    /// Only this transaction, or those of a set (MySQL) or a list (MariaDB) of GTIDs.
    #[arg(long)]
    pub gtid: Option<String>,
    #[command(flatten)]
    pub time: TimeArgs,
    /// Only row events of this table, without transactions that change other tables only.
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub table: Option<String>,
    /// Only rows, decoded.
    #[arg(long)]
    pub rows: bool,
    /// SQL for the stock client that changes the same rows in the same way; a transaction that SQL cannot say exactly is
    /// left out, with a comment. Needs binlog_row_metadata=FULL on the source.
    #[arg(long, conflicts_with = "rows")]
    pub sql: bool,
    /// Stop at the first event that cannot be printed. Otherwise a line says what it is, the output continues, and the
    /// exit code is 3.
    #[arg(long, conflicts_with = "raw")]
    pub strict: bool,
    /// Print the verbatim bytes instead: a binlog file that the servers' own tools read.
    #[arg(long, conflicts_with_all = ["gtid", "table", "since", "until", "rows", "sql"])]
    pub raw: bool,
}

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// A source's log folder, a folder of several, or binlog files in their order; without any, a server is asked.
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Of a server: begin at this place instead of its oldest binlog file.
    #[arg(long, value_name = "FILE:POS", conflicts_with = "paths")]
    pub start: Option<String>,
    #[command(flatten)]
    pub time: TimeArgs,
    /// Only transactions that change this table.
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub table: Option<String>,
    /// How many tables, transactions and gaps are listed.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub top: u16,
    /// Also write a page with charts, which needs no network, to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TimeArgs {
    /// Only transactions that committed at this time or later: local "YYYY-MM-DD[ HH:MM:SS]", RFC 3339, or @SECONDS.
    #[arg(long, value_name = "TIME")]
    pub since: Option<Moment>,
    /// Only transactions that committed before this time.
    #[arg(long, value_name = "TIME")]
    pub until: Option<Moment>,
}
