//! `bench`.

use clap::{Args, Subcommand, ValueEnum};

use super::ServerFamily;

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
    /// How late commits arrive on a target by the server's own replication and by Tailwater: from the client's OK on the source
    /// until a reader of the target sees them, while clients write at a set rate.
    Delay(DelayBench),
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
    /// Only this set of tables.
    #[arg(long, value_enum)]
    pub data: Option<TablesData>,
    /// How often each contender is measured.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    /// Fewer rows.
    #[arg(long)]
    pub quick: bool,
}

/// What whole tables are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TablesData {
    /// As sysbench makes them: two numbers and two texts of digits, one secondary index.
    Sysbench,
    /// Two tables of all kinds of types, with composite keys, several secondary indexes and NULLs.
    Mixed,
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
    /// The families to be measured.
    pub fn families(&self) -> Vec<ServerFamily> {
        families(self.server)
    }
}

#[derive(Debug, Args)]
pub struct DelayBench {
    /// The family of source and target; both if absent.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// Only a source whose clients wait for nobody, or only one whose commits wait for an acknowledgement.
    #[arg(long, value_enum)]
    pub source: Option<DelaySource>,
    /// Transactions per second; a quarter of what clients come to with nobody following if absent.
    #[arg(long)]
    pub rate: Option<f64>,
    /// How often each contender is measured; they take turns, in another order each time.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    /// Fewer and shorter measurements, and one of the native settings.
    #[arg(long)]
    pub quick: bool,
}

/// Whom a source's clients wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DelaySource {
    /// For nobody.
    Asynchronous,
    /// For whoever follows: lossless semi-synchronous replication.
    Lossless,
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
    /// Definitions of small tables and views: each commits by itself.
    Statements,
}

impl ApplyWorkload {
    /// Every one, the headline's first.
    pub const ALL: [Self; 7] = [
        Self::OltpWriteOnly,
        Self::OltpInsert,
        Self::UpdateHotRows,
        Self::WideRows,
        Self::SecondaryIndexes,
        Self::SmallTransactions,
        Self::Statements,
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
    /// The family of the servers; both if absent.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// How many failovers, each on servers of its own.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// The primary is stopped (SIGSTOP) rather than killed: nothing answers any more.
    #[arg(long)]
    pub silent: bool,
    /// Only Tailwater, and no MHA beside it.
    #[arg(long)]
    pub no_peers: bool,
}

#[derive(Debug, Args)]
pub struct SwitchoverBench {
    /// The family of the servers; both if absent.
    #[arg(long, value_enum)]
    pub server: Option<ServerFamily>,
    /// How many times there and back, two switchovers each.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Twice there and back will do.
    #[arg(long, conflicts_with = "rounds")]
    pub quick: bool,
}
