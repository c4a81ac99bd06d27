//! `check`, `repair`, and what holds bulk work back.

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
    /// Repair what a check found and kept in --state, and compare nothing first.
    #[arg(long, requires = "state", conflicts_with = "resume")]
    pub from_state: bool,
    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// Have the target log what is written to its binlog, for servers that replicate from it. On a replica, these are transactions
    /// that its source does not have.
    #[arg(long)]
    pub log_to_binlog: bool,
    /// Repair tables with triggers on the target too, and let these act.
    #[arg(long)]
    pub fire_triggers: bool,
    /// How long to wait for a row's lock on the target.
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
    /// Only this database; again for more. All but the servers' own if absent.
    #[arg(long, value_name = "NAME")]
    pub database: Vec<String>,
    /// Only this table; again for more.
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub table: Vec<String>,
    /// Not this table; again for more.
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub exclude_table: Vec<String>,
    /// How to know that the target has what the source had.
    #[arg(long, value_enum, default_value_t = WaitArg::Auto)]
    pub wait: WaitArg,
    /// How long to wait for the target to have what the source had.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub wait_max_s: u64,
    /// Where row digests are computed.
    #[arg(long, value_enum, default_value_t = DigestsArg::Quick)]
    pub digests: DigestsArg,
    /// Chunks that are compared side by side, on one connection each to source and target.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// The most rows of a chunk, of tables with a key.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_rows_max: u64,
    /// About how long a chunk may take on either server.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_time_ms: u64,
    /// Look for no more than so many rows of a table that differ.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub differences_max: u64,
    /// Keep in this file how far the check is and what it found, but no values: to go on from, and to repair from.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Go on with the check whose state is in --state.
    #[arg(long, requires = "state")]
    pub resume: bool,
    #[command(flatten)]
    pub throttle: ThrottleArgs,
}

/// How to know that the target has what the source had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WaitArg {
    /// By GTIDs, if the servers say that they replicate so; else ask for a choice.
    Auto,
    /// The target executes the source's transactions under their GTIDs.
    Gtid,
    /// Write a row to the database tailwater of the source, and wait until the target has it.
    Mark,
    /// Do not wait: nobody writes.
    None,
}

/// Where row digests are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DigestsArg {
    /// 32 bits of each row (CRC-32) on the servers if both are MariaDB 10.8 or newer and the table has a key; else as client.
    Quick,
    /// 128 bits in this process: the servers send all rows.
    #[value(alias = "here")]
    Client,
    /// 64 bits of SHA-256 on the servers, for slow networks: little is sent.
    Servers,
}

/// What holds the work back.
#[derive(Debug, Clone, Args)]
pub struct ThrottleArgs {
    /// Pause while this replica is behind, or cannot say; again for more. The user is the source's.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub throttle_replica: Vec<String>,
    /// How far such a replica may be behind.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub replica_lag_max_s: u64,
    /// Pause while more threads of the server run statements.
    #[arg(long, value_name = "N")]
    pub threads_running_max: Option<u64>,
    /// Pause while this statement gives more than --throttle-query-max on the server.
    #[arg(long, value_name = "SQL")]
    pub throttle_query: Option<String>,
    /// The most that --throttle-query may give.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    pub throttle_query_max: f64,
    /// How often servers are asked whether to pause.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub throttle_every_ms: u64,
}
