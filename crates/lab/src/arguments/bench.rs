//! Arguments of `tailwater bench`.

use clap::{Args, Subcommand, ValueEnum};

use super::ServerFamily;

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure the commit rate of the primary without semi-sync, with a native semi-sync replica, and with
    /// Tailwater. Also measure the rate of capturing an existing binlog, and the memory use with a huge
    /// transaction.
    Capture {
        /// Server family of the primary. Default: both.
        #[arg(long, value_enum)]
        server: Option<ServerFamily>,
        /// Take fewer and shorter measurements.
        #[arg(long)]
        quick: bool,
    },
    /// Measure how fast replicas catch up from Tailwater's log and from the source itself. Also measure how
    /// much readers slow commits down, how much Tailwater delays transactions, the memory use with 50
    /// readers, and the size of the archived log.
    Serve {
        /// Server family of the primary. Default: both.
        #[arg(long, value_enum)]
        server: Option<ServerFamily>,
        /// Take fewer and shorter measurements.
        #[arg(long)]
        quick: bool,
    },
    /// Measure how fast native replication with its best settings, and Tailwater with both commit orders,
    /// apply the same backlog: transactions per second, CPU time, memory, and the delay of a steady stream.
    Apply(ApplyBench),
    /// Measure the replication delay of native replication and of Tailwater, at a set write rate: the time
    /// from the client's OK on the source until a reader of the target sees the row.
    Delay(DelayBench),
    /// Measure the time without a primary after the primary is killed or frozen, split into detection, proof
    /// and promotion. The same is measured with MHA.
    Failover(FailoverBench),
    /// Measure the time without writes during a switchover to another server and back.
    Switchover(SwitchoverBench),
    /// Measure the dump of whole tables by Tailwater, mydumper and the server's own tool: rows per second,
    /// CPU time, memory, and the wait of concurrent commits.
    Dump(TablesBench),
    /// Measure the load of the same tables into an empty server by Tailwater, myloader and the server's own
    /// client.
    Load(TablesBench),
    /// Measure the comparison of a primary with its replica by Tailwater and pt-table-checksum: rows per
    /// second, CPU time of the primary, memory.
    Check(TablesBench),
    /// Measure what the daemon costs while nothing happens, and how fast it answers: the API and the metrics
    /// with 50 sources, the page, and the CPU time and memory with 20 sources.
    Daemon(DaemonBench),
}

#[derive(Debug, Args)]
pub struct DaemonBench {
    /// Server family. Default: MariaDB.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// Number of primaries that the 20 sources are captured from. Default: one for each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=20))]
    pub servers: Option<u16>,
    /// Take fewer and shorter measurements.
    #[arg(long)]
    pub quick: bool,
}

impl DaemonBench {
    /// Returns the server family to measure with.
    pub fn family(&self) -> ServerFamily {
        self.server.unwrap_or(ServerFamily::Mariadb)
    }
}

#[derive(Debug, Args)]
pub struct TablesBench {
    /// Server family. Default: both.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// Number of rows in each set of tables.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..))]
    pub rows: Option<u64>,
    /// Measure only this set of tables.
    #[arg(long, value_enum)]
    pub data: Option<TablesData>,
    /// Number of measurements of each tool.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    /// Use fewer rows.
    #[arg(long)]
    pub quick: bool,
}

/// The tables to dump, load or check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TablesData {
    /// Tables as sysbench creates them: two numbers and two texts of digits, one secondary index.
    Sysbench,
    /// Two tables with many column types, composite keys, several secondary indexes and NULLs.
    Mixed,
}

#[derive(Debug, Args)]
pub struct ApplyBench {
    /// Server family of source and target. Default: both.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// Measure only this workload.
    #[arg(long, value_enum)]
    pub workload: Option<ApplyWorkload>,
    /// Measure only native replication or only Tailwater; no ratio is printed then.
    #[arg(long, value_enum)]
    pub only: Option<Side>,
    /// Number of transactions in each backlog. The backlogs for measurements with slow syncs keep their own
    /// sizes.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1000..))]
    pub transactions: Option<u32>,
    /// Take fewer and shorter measurements, and try only a few of the native settings.
    #[arg(long)]
    pub quick: bool,
}

impl ApplyBench {
    /// Returns the server families to measure.
    pub fn families(&self) -> Vec<ServerFamily> {
        families(self.server)
    }
}

/// Returns the family `only`; all families if it is `None`.
fn families(only: Option<ServerFamily>) -> Vec<ServerFamily> {
    match only {
        Some(family) => vec![family],
        None => vec![ServerFamily::Mariadb, ServerFamily::Mysql],
    }
}

impl DelayBench {
    /// Returns the server families to measure.
    pub fn families(&self) -> Vec<ServerFamily> {
        families(self.server)
    }
}

#[derive(Debug, Args)]
pub struct DelayBench {
    /// Server family of source and target. Default: both.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// Measure only an asynchronous source, or only a source with lossless semi-sync.
    #[arg(long, value_enum)]
    pub source: Option<DelaySource>,
    /// Transactions per second of the clients. Default: a quarter of the maximum rate without replication.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Number of measurements of each tool. The tools take turns, in a different order each time.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    /// Take fewer and shorter measurements, and only one of the native settings.
    #[arg(long)]
    pub quick: bool,
}

/// Replication mode of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DelaySource {
    /// Clients do not wait for a replica.
    Asynchronous,
    /// Commits wait for an acknowledgement by a replica: lossless semi-synchronous replication.
    Lossless,
}

/// Whether native replication or Tailwater is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// Only native replication.
    Native,
    /// Only Tailwater.
    #[value(alias = "ours")]
    Tailwater,
}

/// The workload that writes a backlog.
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
    /// DDL on small tables and views, with each statement as its own transaction.
    Statements,
}

impl ApplyWorkload {
    /// All workloads. The first one is the workload of the headline figure.
    pub const ALL: [Self; 7] = [
        Self::OltpWriteOnly,
        Self::OltpInsert,
        Self::UpdateHotRows,
        Self::WideRows,
        Self::SecondaryIndexes,
        Self::SmallTransactions,
        Self::Statements,
    ];

    /// Returns the name of the workload on the command line.
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
    /// Number of round trips. Each round trip has two switchovers.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Measure only two round trips.
    #[arg(long, conflicts_with = "rounds")]
    pub quick: bool,
}
