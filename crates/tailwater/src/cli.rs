//! The command line: noun, then verb. Defined once here; help texts are the reference.

#![allow(
    missing_docs,
    reason = "doc comments are help texts here, and those of groups would displace their parents'"
)]

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

mod bench;
mod channel;
mod checking;
mod copying;
mod dumping;
mod log;
mod managing;
mod sandbox;
mod trial;

pub use bench::{
    ApplyBench, ApplyWorkload, BenchCommand, DelayBench, DelaySource, Side, TablesBench, TablesData,
};
pub use channel::{ChannelAdd, ChannelCommand, ChannelEditArgs, ChannelName, CommitOrderArg, GtidArg};
pub use checking::{CheckArgs, CompareArgs, DigestsArg, RepairArgs, ThrottleArgs, WaitArg};
pub use copying::{
    CloneArgs, CopyArgs, CopyBinaryArgs, CopyHowArgs, DeferIndexesArg, SourceServerArgs, TargetServerArgs,
};
pub use dumping::{CompressionArg, DumpArgs, FormatArg, LoadArgs};
pub use log::{ArchiveArgs, CatArgs, LogCommand, LogSource, PurgeArgs, StatsArgs, TimeArgs};
pub use managing::{
    DowntimeArgs, FailoverArgs, FailoverBench, ManagerCommand, ManagerScope, RaiseTermsArgs, RejoinArgs,
    SwitchoverArgs, SwitchoverBench,
};
pub use sandbox::{DemoArgs, SandboxCommand};
pub use trial::{SuitesArgs, TrialCommand};

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
    /// Trials for developers of this program.
    #[command(subcommand, hide = true)]
    Trial(TrialCommand),
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
