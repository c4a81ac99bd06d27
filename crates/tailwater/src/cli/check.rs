//! Arguments of `check` and `repair`, and of the throttle.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{SourceServerArgs, TargetServerArgs};

#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub what: CompareArgs,
}

#[derive(Debug, Args)]
pub struct RepairArgs {
    #[command(flatten)]
    pub what: CompareArgs,
    /// Repair the differences stored in --state by an earlier check, without comparing first.
    #[arg(long, requires = "state", conflicts_with = "resume")]
    pub from_state: bool,
    /// Only print what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// Write the repairs to the target's binlog, for its replicas. On a replica these are transactions that
    /// its source does not have.
    #[arg(long)]
    pub log_to_binlog: bool,
    /// Also repair tables with triggers on the target, and let the triggers fire.
    #[arg(long)]
    pub fire_triggers: bool,
    /// Maximum wait for a row lock on the target.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lock_wait_max_s: u64,
}

/// Selection and method of a comparison.
#[derive(Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    pub source: SourceServerArgs,
    #[command(flatten)]
    pub target: TargetServerArgs,
    /// Only this database (repeatable). Default: all except system databases.
    #[arg(long, value_name = "NAME")]
    pub database: Vec<String>,
    /// Only this table (repeatable).
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub table: Vec<String>,
    /// Exclude this table (repeatable).
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub exclude_table: Vec<String>,
    /// How to find out that the target has applied what the source had.
    #[arg(long, value_enum, default_value_t = WaitArg::Auto)]
    pub wait: WaitArg,
    /// Maximum wait for the target to catch up with the source.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub wait_max_s: u64,
    /// Where row checksums are computed, and how long they are.
    #[arg(long, value_enum, default_value_t = DigestsArg::Quick)]
    pub digests: DigestsArg,
    /// Number of chunks compared in parallel, on one connection each to source and target.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Maximum rows of a chunk, in tables with a key.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_rows_max: u64,
    /// Target time for a chunk on either server, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_time_ms: u64,
    /// Stop searching a table after this many differing rows.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub differences_max: u64,
    /// State file: progress and differences (keys, no values), for --resume and `repair --from-state`.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Resume the check whose progress is in --state.
    #[arg(long, requires = "state")]
    pub resume: bool,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
}

/// How to find out that the target has applied what the source had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WaitArg {
    /// By GTIDs, if the servers replicate with GTIDs; otherwise report which method to choose.
    Auto,
    /// The target executes the source's transactions with their GTIDs.
    Gtid,
    /// Write a marker row to the database tailwater on the source, and wait until the target has it.
    Mark,
    /// Do not wait: neither server is written to.
    None,
}

/// Where row checksums are computed, and how long they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DigestsArg {
    /// On the servers, CRC-32 of each row, if both are MariaDB 10.8 or newer and the table has a key; else as
    /// client.
    Quick,
    /// In this process, 128 bits of each row: the servers send all rows.
    #[value(alias = "here")]
    Client,
    /// On the servers, 64 bits of SHA-256 of each row: little network traffic, more CPU time.
    Servers,
}

/// Conditions under which the work pauses.
#[derive(Debug, Clone, Args)]
pub struct ThrottleArgs {
    /// Pause while this replica lags or its lag is unknown (repeatable). The user is that of the source.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub throttle_replica: Vec<String>,
    /// Maximum replica lag.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub replica_lag_max_s: u64,
    /// Pause while Threads_running of the server exceeds this.
    #[arg(long, value_name = "N")]
    pub threads_running_max: Option<u64>,
    /// Pause while the result of this statement on the server exceeds --throttle-query-max.
    #[arg(long, value_name = "SQL")]
    pub throttle_query: Option<String>,
    /// Maximum result of --throttle-query.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    pub throttle_query_max: f64,
    /// Interval between throttle checks, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub throttle_every_ms: u64,
}
