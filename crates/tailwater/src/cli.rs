//! The command line: noun, then verb. Defined once here; help texts are the reference.

#![allow(
    missing_docs,
    reason = "doc comments are help texts here, and those of groups would displace their parents'"
)]

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::moment::Moment;

mod checking;
mod copying;
mod managing;

pub use checking::{CheckArgs, CompareArgs, DigestsArg, RepairArgs, ThrottleArgs, WaitArg};
pub use copying::{
    CloneArgs, CopyArgs, CopyBinaryArgs, CopyHowArgs, DeferIndexesArg, SourceServerArgs, TargetServerArgs,
};
pub use managing::{
    DowntimeArgs, FailoverArgs, FailoverBench, ManagerCommand, ManagerScope, RejoinArgs, SwitchoverArgs,
    SwitchoverBench,
};

/// Everything downstream of the binlog: keeps MySQL and MariaDB data safe, in step and available.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 found what it looked for (a failed verification, drift), \
                        4 refused because it would be unsafe."
)]
pub struct Cli {
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs: one JSON object, or one per line where there are many.
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// The main job end to end on real servers started locally.
    Demo(DemoArgs),
    /// Real MariaDB and MySQL servers on this machine, for trying things out.
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// The daemon: captures every source of the configuration into the log until it is told to stop.
    Run(ConfigFile),
    /// The configuration file.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// The durable transaction log.
    #[command(subcommand)]
    Log(LogCommand),
    /// Where the log is applied: channels of a running daemon.
    #[command(subcommand)]
    Channel(ChannelCommand),
    /// Who reads from whom: the primary, Tailwater, replicas and targets of each source as a tree, with what is wrong.
    Topology(TopologyArgs),
    /// Makes another server the primary of a source whose own has failed, if nothing that was acknowledged is lost by it. Exits
    /// with 4 if a rule refuses; then everything is as it was.
    Failover(FailoverArgs),
    /// Makes another server the primary of a source whose own is alive, with a bound on how long nobody can write. Exits with 4
    /// if that cannot be kept or a rule refuses; then everything is as it was.
    Switchover(SwitchoverArgs),
    /// Makes a former primary a replica again: what only it has is undone, what it lost is done again from the log, and its rows are
    /// compared with the primary's. Exits with 3 if something differs, with 4 if it cannot be done.
    Rejoin(RejoinArgs),
    /// The manager in the daemon: what it sees, and what holds it back.
    #[command(subcommand)]
    Manager(ManagerCommand),
    /// Dumps databases into a folder: rows on several connections at one point in time, with the shortest lock that does.
    Dump(DumpArgs),
    /// Loads a dump into a server: rows on several connections, each file in one transaction with the note that it is there.
    Load(LoadArgs),
    /// Copies databases from one server into another, as a dump and a load at once with no disk between.
    Copy(CopyArgs),
    /// Compares the data of two servers that are kept in step, while they are written to: no locks, no writes. Exits with 3 if
    /// something differs.
    Check(CheckArgs),
    /// Makes rows of the target that differ as they are on the source, and compares them again. Exits with 3 if something
    /// remains.
    Repair(RepairArgs),
    /// The GRANT statements that capturing, applying, dumping and loading need.
    Grants {
        /// The family of the server; both if absent.
        #[arg(long, value_enum)]
        server: Option<ServerFamily>,
        /// The account that they are for.
        #[arg(long, value_name = "ACCOUNT", default_value = "'tailwater'@'%'")]
        account: String,
    },
    /// The measurements behind every claim, against real peers, in one run.
    #[command(subcommand)]
    Bench(BenchCommand),
}

/// Which family of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServerFamily {
    /// MariaDB.
    Mariadb,
    /// MySQL.
    Mysql,
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// The family of the primary.
    #[arg(long, value_enum, default_value_t = ServerFamily::Mariadb)]
    pub server: ServerFamily,
    /// The server's series, for instance 11.8; the family's default if absent.
    #[arg(long = "version", value_name = "SERIES")]
    pub series: Option<String>,
    /// A shorter load.
    #[arg(long)]
    pub short: bool,
    /// Connections of the workload.
    #[arg(long, default_value_t = 8)]
    pub clients: u32,
    /// Keep the servers' and the log's files in this folder instead of a temporary one.
    #[arg(long)]
    pub keep: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ConfigFile {
    /// Configuration file (TOML).
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub config: PathBuf,
}

#[derive(Debug, Args)]
pub struct TopologyArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Look again after so many seconds, until interrupted; with --output json one object per line.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub watch: Option<u64>,
    /// How long one server may take to answer.
    #[arg(long, value_name = "N", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub timeout_ms: u64,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Reads a configuration file and says what is wrong with it, if anything.
    Check(ConfigFile),
}

#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Fetches the servers that are missing into the cache folder, without root and without touching the system.
    Install {
        /// Only this family.
        #[arg(long, value_enum)]
        server: Option<ServerFamily>,
    },
    /// Starts servers that run until `down`.
    Up {
        /// The family.
        #[arg(long, value_enum)]
        server: ServerFamily,
        /// The series, for instance 11.8; the family's default if absent.
        #[arg(long = "version", value_name = "SERIES")]
        series: Option<String>,
        /// How many.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
        count: u32,
        /// Lossless semi-synchronous replication: the first is the source, the others its replicas. The commits of one
        /// server alone wait until something, such as `tailwater run`, acknowledges them.
        #[arg(long)]
        semi_sync: bool,
        /// Options for each server, behind `--`: for instance `-- --sync-binlog=0`.
        #[arg(last = true, value_name = "SERVER_OPTION")]
        options: Vec<String>,
    },
    /// Shows the servers started by `up`.
    List,
    /// Stops the servers started by `up` and removes their data.
    Down {
        /// Only these; all of them if absent.
        names: Vec<String>,
    },
}

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
    /// SQL for the stock client that changes the same rows in the same way; what SQL cannot say exactly is refused.
    /// Needs binlog_row_metadata=FULL on the source.
    #[arg(long, conflicts_with = "rows")]
    pub sql: bool,
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
    /// How files hold rows; `tailwater load` takes tsv, the stock client sql, other programs csv. tsv if absent.
    #[arg(long, value_enum)]
    pub format: Option<FormatArg>,
    /// How files of rows are compressed; zstd if absent.
    #[arg(long, value_enum)]
    pub compression: Option<CompressionArg>,
    /// The level of the compression.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub compression_level: i32,
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
}

/// How files of rows are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompressionArg {
    /// Not at all.
    None,
    /// Zstandard.
    Zstd,
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

/// Where a server is and who asks; what is not said here is taken from the option file and the environment.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Option file with a [client] group, in place of ~/.my.cnf.
    #[arg(long, value_name = "FILE")]
    pub defaults_file: Option<PathBuf>,
    /// The server's host.
    #[arg(long)]
    pub host: Option<String>,
    /// Its port.
    #[arg(long)]
    pub port: Option<u16>,
    /// Its Unix socket.
    #[arg(long, value_name = "FILE")]
    pub socket: Option<PathBuf>,
    /// The user; the password is taken from the option file or TAILWATER_PASSWORD.
    #[arg(long)]
    pub user: Option<String>,
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

#[derive(Debug, Subcommand)]
pub enum ChannelCommand {
    /// Shows all channels: state, lag, rate, and what is wrong.
    List(ConfigFile),
    /// Copies a channel's source to its empty target, and starts the channel behind exactly what was copied.
    Add(ChannelAdd),
    /// Goes on behind what is applied; a channel that failed tries again.
    Start {
        #[command(flatten)]
        channel: ChannelName,
        /// Stop behind this transaction.
        #[arg(long, value_name = "GTID", conflicts_with = "until_time")]
        until_gtid: Option<String>,
        /// Stop before the first transaction that committed on the source at this time or later: local
        /// "YYYY-MM-DD[ HH:MM:SS]", RFC 3339, or @SECONDS.
        #[arg(long, value_name = "TIME")]
        until_time: Option<Moment>,
        /// For the transaction that it failed at: rows that are there are replaced, rows that are not there are not missed.
        #[arg(long, conflicts_with_all = ["until_gtid", "until_time"])]
        idempotent_once: bool,
        /// The same for all transactions up to this one.
        #[arg(long, value_name = "GTID", conflicts_with_all = ["until_gtid", "until_time", "idempotent_once"])]
        idempotent_until: Option<String>,
    },
    /// Stops when what is under way has committed, and tells the target what was applied.
    Stop(ChannelName),
    /// Leaves a transaction out for good, and records that on the target.
    Skip {
        #[command(flatten)]
        channel: ChannelName,
        /// The transaction.
        gtid: String,
        /// Do it, rather than say what would be done.
        #[arg(long)]
        yes: bool,
    },
    /// Goes on as if exactly these transactions of the source were applied.
    Seek {
        #[command(flatten)]
        channel: ChannelName,
        /// A GTID set (MySQL) or position (MariaDB); "" for none.
        gtids: String,
        /// Do it, rather than say what would be done.
        #[arg(long)]
        yes: bool,
    },
    /// Has other filters and rewrites count, from the next transaction on or from a named one; kept on the target.
    Filter {
        #[command(flatten)]
        channel: ChannelName,
        /// All of them, as [channel.filters] of the configuration has them; - reads standard input.
        #[arg(value_name = "TOML")]
        filters: PathBuf,
        /// From this transaction on.
        #[arg(long, value_name = "GTID")]
        from_gtid: Option<String>,
    },
    /// Changes how a running channel works, until the daemon is started anew.
    Set {
        #[command(flatten)]
        channel: ChannelName,
        #[command(flatten)]
        edit: ChannelEditArgs,
    },
}

#[derive(Debug, Args)]
pub struct ChannelAdd {
    #[command(flatten)]
    pub channel: ChannelName,
    /// Copy all databases of the source to the target.
    #[arg(long, required = true)]
    pub provision: bool,
    /// Copy the whole server by MySQL's CLONE, its accounts too.
    #[arg(long, conflicts_with = "anew")]
    pub binary: bool,
    #[command(flatten)]
    pub clone: CloneArgs,
    /// Option file with an account that may dump the source, in place of the one that captures it.
    #[arg(long, value_name = "FILE")]
    pub source_defaults_file: Option<PathBuf>,
    /// The user of that account.
    #[arg(long, value_name = "USER")]
    pub source_user: Option<String>,
    #[command(flatten)]
    pub how: CopyHowArgs,
}

#[derive(Debug, Args)]
pub struct ChannelName {
    #[command(flatten)]
    pub file: ConfigFile,
    /// The channel.
    #[arg(value_name = "CHANNEL")]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct ChannelEditArgs {
    /// Connections that apply side by side.
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// The most source transactions in one target transaction.
    #[arg(long, value_name = "N")]
    pub batch_transactions_max: Option<usize>,
    /// The most bytes of rows in one target transaction.
    #[arg(long, value_name = "N")]
    pub batch_bytes_max: Option<usize>,
    /// Whether commits keep the source's order.
    #[arg(long, value_enum)]
    pub commit_order: Option<CommitOrderArg>,
    /// Under which identity transactions stand in the target's own binlog, or that they do not.
    #[arg(long, value_enum)]
    pub gtid: Option<GtidArg>,
    /// Apply transactions this many seconds after they committed on the source.
    #[arg(long, value_name = "N")]
    pub delay_seconds: Option<u64>,
}

/// The order of commits on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CommitOrderArg {
    /// The source's.
    Source,
    /// Only transactions that share a key keep their order.
    Independent,
}

impl From<CommitOrderArg> for tailwater_apply::scheduler::CommitOrder {
    fn from(order: CommitOrderArg) -> Self {
        match order {
            CommitOrderArg::Source => Self::Source,
            CommitOrderArg::Independent => Self::Independent,
        }
    }
}

/// Identity of transactions on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GtidArg {
    /// Not in its binlog; what was applied is published to it.
    Log,
    /// In its binlog under the source's GTIDs.
    Preserve,
    /// In its binlog as its own.
    Own,
}

impl From<GtidArg> for tailwater_apply::channel::GtidMode {
    fn from(mode: GtidArg) -> Self {
        match mode {
            GtidArg::Log => Self::Log,
            GtidArg::Preserve => Self::Preserve,
            GtidArg::Own => Self::Own,
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Commits per second on the primary without semi-sync, with a native semi-sync replica, and with Tailwater; raw
    /// capture rate; memory with a huge transaction.
    Capture {
        /// The family of the primary; both if absent.
        #[arg(long, value_enum)]
        server: Option<ServerFamily>,
        /// Fewer and shorter measurements.
        #[arg(long)]
        quick: bool,
    },
    /// Catching up from Tailwater's log against the source itself; what readers that follow cost the commits; how much
    /// later a commit arrives; memory with 50 readers; size of the archived log.
    Serve {
        /// The family of the primary; both if absent.
        #[arg(long, value_enum)]
        server: Option<ServerFamily>,
        /// Fewer and shorter measurements.
        #[arg(long)]
        quick: bool,
    },
    /// Replaying the same backlog by the server's own replication, at its best of all its settings, and by Tailwater in
    /// both commit orders: transactions per second, CPU time, memory; and how late a steady stream arrives.
    Apply(ApplyBench),
    /// How long clients are without a primary when theirs is killed, or falls silent, with what of it was notice, proof and
    /// promotion; and under MHA.
    Failover(FailoverBench),
    /// How long clients cannot write while another server becomes their primary, and back again.
    Switchover(SwitchoverBench),
    /// Dumping whole tables by Tailwater, mydumper and the server's own tool: rows per second, CPU time, memory; and how
    /// long those who commit meanwhile wait.
    Dump(TablesBench),
    /// Loading the same tables into an empty server by Tailwater, myloader and the server's own client.
    Load(TablesBench),
    /// Comparing a primary with its replica by Tailwater and pt-table-checksum: rows per second, CPU time of the primary, memory.
    Check(TablesBench),
}

#[derive(Debug, Args)]
pub struct TablesBench {
    /// The family of the servers; both if absent.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// Rows of each set of tables.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..))]
    pub rows: Option<u64>,
    /// Fewer rows and fewer repeats.
    #[arg(long)]
    pub quick: bool,
}

#[derive(Debug, Args)]
pub struct ApplyBench {
    /// The family of source and target; both if absent.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// Only this workload.
    #[arg(long, value_enum)]
    pub workload: Option<ApplyWorkload>,
    /// Measure only one side; there is no ratio then.
    #[arg(long, value_enum)]
    pub only: Option<Side>,
    /// Transactions in each backlog, but for those of slow syncs.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1000..))]
    pub transactions: Option<u32>,
    /// Fewer and shorter measurements, and few of the native settings.
    #[arg(long)]
    pub quick: bool,
}

impl ApplyBench {
    /// The families to be measured.
    pub fn families(&self) -> Vec<ServerFamily> {
        match self.server {
            Some(family) => vec![family],
            None => vec![ServerFamily::Mariadb, ServerFamily::Mysql],
        }
    }
}

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// The server's own replication.
    Native,
    /// Tailwater.
    Ours,
}

/// What a backlog is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApplyWorkload {
    /// As sysbench's: two updates, a delete and an insert over ten tables.
    OltpWriteOnly,
    /// As sysbench's: one insert into one of ten tables.
    OltpInsert,
    /// Two updates of a table whose first rows are changed most.
    UpdateHotRows,
    /// An insert and an update of rows with 60 columns and 4 KiB.
    WideRows,
    /// An insert and two updates of a table with four secondary indexes.
    SecondaryIndexes,
    /// One small insert or update, each a transaction by itself.
    SmallTransactions,
}

impl ApplyWorkload {
    /// Every one, the headline's first.
    pub const ALL: [Self; 6] = [
        Self::OltpWriteOnly,
        Self::OltpInsert,
        Self::UpdateHotRows,
        Self::WideRows,
        Self::SecondaryIndexes,
        Self::SmallTransactions,
    ];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::OltpWriteOnly => "oltp-write-only",
            Self::OltpInsert => "oltp-insert",
            Self::UpdateHotRows => "update-hot-rows",
            Self::WideRows => "wide-rows",
            Self::SecondaryIndexes => "secondary-indexes",
            Self::SmallTransactions => "small-transactions",
        }
    }
}

impl std::fmt::Display for ApplyWorkload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
