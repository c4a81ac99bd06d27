//! The options and the result of a load.

use std::sync::Arc;
use std::time::Duration;

use tailwater_session::ConnectOptions;

use super::account_creation::{AccountsReport, LoadAccounts};
use super::deferred_indexes::DeferIndexes;
use tailwater_tables::throttle::Throttle;

/// How to load a dump.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The target server, and the account that loads.
    pub connect: ConnectOptions,
    /// Number of parallel connections that load rows.
    pub workers: usize,
    /// Whether to resume an earlier load of the same dump.
    pub resume: bool,
    /// Whether to load into tables that exist already.
    pub merge: bool,
    /// Whether to set the target's GTID state to the GTID set of the dump.
    pub set_gtid: bool,
    /// Whether the target writes the load to its binlog.
    pub binlog: bool,
    /// Whether to load with INSERT statements in place of `LOAD DATA`.
    pub inserts: bool,
    /// Which accounts of the dump to load.
    pub accounts: LoadAccounts,
    /// For which tables to create secondary indexes after all rows. With [`Self::merge`], existing tables
    /// keep their indexes.
    pub defer_indexes: DeferIndexes,
    /// Whether to create scheduled events disabled, as on a replica.
    pub events_disabled: bool,
    /// Time limit for one statement on the target, for example for the rows of a file. The creation of
    /// deferred indexes has no time limit.
    pub answer_max: Duration,
    /// Pauses the load between files.
    pub throttle: Arc<Throttle>,
}

impl LoadOptions {
    /// Creates options that load over four connections into a server that does not have the tables of the
    /// dump, and write the load to the target's binlog.
    pub fn new(connect: ConnectOptions) -> Self {
        Self {
            connect,
            workers: 4,
            resume: false,
            merge: false,
            set_gtid: false,
            binlog: true,
            inserts: false,
            accounts: LoadAccounts::None,
            defer_indexes: DeferIndexes::Auto,
            answer_max: Duration::from_secs(3600),
            throttle: Arc::new(Throttle::open()),
            events_disabled: false,
        }
    }
}

/// The result of a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadReport {
    /// Number of tables in the dump.
    pub tables: usize,
    /// Number of data files that this load has loaded.
    pub chunks_loaded: u64,
    /// Number of data files that an earlier load had loaded.
    pub chunks_before: u64,
    /// Number of rows that this load and an earlier one have loaded together.
    pub rows: u64,
    /// The GTID set that was set on the target, if any.
    pub gtid_set: Option<String>,
    /// The result of loading accounts, if they were loaded.
    pub accounts: Option<AccountsReport>,
}
