//! Arguments of `check` and `repair`, and the throttle options that other commands use too.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{DaemonArgs, SourceServerArgs, TargetServerArgs};

#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub what: CompareArgs,
}

#[derive(Debug, Args)]
pub struct RepairArgs {
    #[command(flatten)]
    pub what: CompareArgs,
    /// Repair the differences that an earlier check stored in the --state file. Skips the first comparison.
    #[arg(long, requires = "state", conflicts_with = "resume")]
    pub from_state: bool,
    /// Only print which rows would be changed.
    #[arg(long)]
    pub dry_run: bool,
    /// Write the repairs to the target's binlog, so that the target's replicas get them. If the target is
    /// itself a replica, its source does not have these transactions.
    #[arg(long)]
    pub log_to_binlog: bool,
    /// Also repair tables that have triggers on the target. The triggers fire.
    #[arg(long)]
    pub fire_triggers: bool,
    /// Maximum wait for a row lock on the target, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lock_wait_max_s: u64,
}

/// What is compared, and how.
#[derive(Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    pub source: SourceServerArgs,
    #[command(flatten)]
    pub target: TargetServerArgs,
    /// Compare only this database (repeatable). Default: all except system databases.
    #[arg(long, value_name = "NAME")]
    pub database: Vec<String>,
    /// Compare only this table (repeatable).
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub table: Vec<String>,
    /// Exclude this table (repeatable).
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub exclude_table: Vec<String>,
    /// How check waits until the target has applied everything that the source committed before.
    #[arg(long, value_enum, default_value_t = WaitArg::Auto)]
    pub wait: WaitArg,
    /// Maximum wait for the target to catch up with the source, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub wait_max_s: u64,
    /// Where the row checksums are computed, and how long they are.
    #[arg(long, value_enum, default_value_t = DigestsArg::Quick)]
    pub digests: DigestsArg,
    /// Number of chunks that are compared in parallel. Each uses one connection to the source and one to the
    /// target.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Maximum number of rows in a chunk of a table with a key.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_rows_max: u64,
    /// Intended duration of the queries for one chunk on either server, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_time_ms: u64,
    /// Stop comparing a table after this many differing rows.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub differences_max: u64,
    /// State file for --resume and `repair --from-state`: progress, and the keys of differing rows. The file
    /// contains no other row values.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Resume the check whose progress is in the --state file.
    #[arg(long, requires = "state")]
    pub resume: bool,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// How check waits until the target has applied everything that the source committed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WaitArg {
    /// Wait by GTIDs if the servers replicate with GTIDs. Otherwise fail and report which method to choose.
    Auto,
    /// Wait until the target has executed the source's GTIDs.
    Gtid,
    /// Write a row (the mark) to the database tailwater on the source, and wait until the target has that
    /// row.
    Mark,
    /// Do not wait. Nothing is written to either server.
    None,
}

/// Where the row checksums are computed, and how long they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DigestsArg {
    /// The servers compute CRC-32 of each row. Requires MariaDB 10.8 or newer on both sides and a table with
    /// a key; otherwise the same as client.
    Quick,
    /// Tailwater computes 128 bits for each row. The servers send all rows.
    #[value(alias = "here")]
    Client,
    /// The servers compute 64 bits of SHA-256 for each row. Less network traffic than client, more CPU time
    /// on the servers.
    Servers,
}

/// Conditions that pause the work.
#[derive(Debug, Clone, Args)]
pub struct ThrottleArgs {
    /// Pause while this replica lags or its lag is unknown (repeatable). Connects with the user of the
    /// source.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub throttle_replica: Vec<String>,
    /// Maximum replica lag, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub replica_lag_max_s: u64,
    /// Pause while Threads_running of the server exceeds this number.
    #[arg(long, value_name = "N")]
    pub threads_running_max: Option<u64>,
    /// Pause while the result of this SQL statement on the server exceeds --throttle-query-max.
    #[arg(long, value_name = "SQL")]
    pub throttle_query: Option<String>,
    /// Maximum result of --throttle-query that does not pause the work.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    pub throttle_query_max: f64,
    /// Interval between two checks of the throttle conditions, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub throttle_every_ms: u64,
}
