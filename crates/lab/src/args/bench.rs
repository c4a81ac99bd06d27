//! Arguments of `tailwater bench`.

use clap::{Args, Subcommand, ValueEnum};

use super::ServerFamily;

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Commit rate of the primary without semi-sync, with a native semi-sync replica, and with Tailwater; raw
    /// capture rate; memory with a huge transaction.
    Capture {
        /// Server family of the primary. Default: both.
        #[arg(long, value_enum)]
        server: Option<ServerFamily>,
        /// Fewer and shorter measurements.
        #[arg(long)]
        quick: bool,
    },
    /// Replica catch-up from Tailwater's log and from the source itself; cost of readers for commits; added
    /// delay; memory with 50 readers; size of the archived log.
    Serve {
        /// Server family of the primary. Default: both.
        #[arg(long, value_enum)]
        server: Option<ServerFamily>,
        /// Fewer and shorter measurements.
        #[arg(long)]
        quick: bool,
    },
    /// Apply rate of the same backlog by native replication, at the best of its settings, and by Tailwater in
    /// both commit orders: transactions per second, CPU time, memory, and the delay of a steady stream.
    Apply(ApplyBench),
    /// Replication delay by native replication and by Tailwater: from the client's OK on the source until a
    /// reader of the target sees the row, at a set write rate.
    Delay(DelayBench),
    /// Time without a primary after the primary is killed or frozen, split into detection, proof and
    /// promotion; and the same with MHA.
    Failover(FailoverBench),
    /// Time without writes during a switchover, there and back.
    Switchover(SwitchoverBench),
    /// Dump of whole tables by Tailwater, mydumper and the server's own tool: rows per second, CPU time,
    /// memory, and the wait of concurrent commits.
    Dump(TablesBench),
    /// Load of the same tables into an empty server by Tailwater, myloader and the server's own client.
    Load(TablesBench),
    /// Comparison of a primary with its replica by Tailwater and pt-table-checksum: rows per second, CPU time
    /// of the primary, memory.
    Check(TablesBench),
}

#[derive(Debug, Args)]
pub struct TablesBench {
    /// Server family. Default: both.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// Rows in each set of tables.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..))]
    pub rows: Option<u64>,
    /// Only this set of tables.
    #[arg(long, value_enum)]
    pub data: Option<TablesData>,
    /// Measurements of each tool.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    /// Fewer rows.
    #[arg(long)]
    pub quick: bool,
}

/// The tables to dump, load or check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TablesData {
    /// As created by sysbench: two numbers and two texts of digits, one secondary index.
    Sysbench,
    /// Two tables with many column types, composite keys, several secondary indexes and NULLs.
    Mixed,
}

#[derive(Debug, Args)]
pub struct ApplyBench {
    /// Server family of source and target. Default: both.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// Only this workload.
    #[arg(long, value_enum)]
    pub workload: Option<ApplyWorkload>,
    /// Measure only one side; no ratio is printed.
    #[arg(long, value_enum)]
    pub only: Option<Side>,
    /// Transactions in each backlog, except the slow-sync ones.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1000..))]
    pub transactions: Option<u32>,
    /// Fewer and shorter measurements, and few of the native settings.
    #[arg(long)]
    pub quick: bool,
}

impl ApplyBench {
    /// The families to measure.
    pub fn families(&self) -> Vec<ServerFamily> {
        families(self.server)
    }
}

/// One family, or all.
fn families(only: Option<ServerFamily>) -> Vec<ServerFamily> {
    match only {
        Some(family) => vec![family],
        None => vec![ServerFamily::Mariadb, ServerFamily::Mysql],
    }
}

impl DelayBench {
    /// The families to measure.
    pub fn families(&self) -> Vec<ServerFamily> {
        families(self.server)
    }
}

#[derive(Debug, Args)]
pub struct DelayBench {
    /// Server family of source and target. Default: both.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// Only an asynchronous source, or only one with lossless semi-sync.
    #[arg(long, value_enum)]
    pub source: Option<DelaySource>,
    /// Transactions per second. Default: a quarter of the maximum rate without replication.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Measurements of each tool; the tools take turns, in a different order each time.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    /// Fewer and shorter measurements, and one of the native settings.
    #[arg(long)]
    pub quick: bool,
}

/// Replication mode of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DelaySource {
    /// Clients do not wait for a replica.
    Asynchronous,
    /// Commits wait for an acknowledgement: lossless semi-synchronous replication.
    Lossless,
}

/// Which side is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// Native replication.
    Native,
    /// Tailwater.
    #[value(alias = "ours")]
    Tailwater,
}

/// Workload of a backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApplyWorkload {
    /// sysbench's oltp_write_only: two updates, a delete and an insert over ten tables.
    OltpWriteOnly,
    /// sysbench's oltp_insert: one insert into one of ten tables.
    OltpInsert,
    /// Two updates of a table with a skewed distribution: its first rows are updated most.
    UpdateHotRows,
    /// An insert and an update of rows with 60 columns and 4 KiB.
    WideRows,
    /// An insert and two updates of a table with four secondary indexes.
    SecondaryIndexes,
    /// Transactions of one small insert or update.
    SmallTransactions,
    /// DDL on small tables and views; each statement is a transaction.
    Statements,
}

impl ApplyWorkload {
    /// All workloads, the headline first.
    pub const ALL: [Self; 7] = [
        Self::OltpWriteOnly,
        Self::OltpInsert,
        Self::UpdateHotRows,
        Self::WideRows,
        Self::SecondaryIndexes,
        Self::SmallTransactions,
        Self::Statements,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::OltpWriteOnly => "oltp-write-only",
            Self::OltpInsert => "oltp-insert",
            Self::UpdateHotRows => "update-hot-rows",
            Self::WideRows => "wide-rows",
            Self::SecondaryIndexes => "secondary-indexes",
            Self::SmallTransactions => "small-transactions",
            Self::Statements => "statements",
        }
    }
}

impl std::fmt::Display for ApplyWorkload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Args)]
pub struct FailoverBench {
    /// Server family. Default: both.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// Number of failovers, each on new servers.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Freeze the primary (SIGSTOP) instead of killing it.
    #[arg(long)]
    pub silent: bool,
    /// Measure Tailwater only, without MHA.
    #[arg(long)]
    pub no_peers: bool,
}

#[derive(Debug, Args)]
pub struct SwitchoverBench {
    /// Server family. Default: both.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// Number of round trips, two switchovers each.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Only two round trips.
    #[arg(long, conflicts_with = "rounds")]
    pub quick: bool,
}
