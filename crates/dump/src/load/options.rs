//! The options and the result of a load.

use std::sync::Arc;
use std::time::Duration;

use tailwater_session::ConnectOptions;

use super::accounts::{AccountsReport, LoadAccounts};
use super::indexes::DeferIndexes;
use tailwater_tables::throttle::Throttle;

/// How to load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The target server and the account.
    pub connect: ConnectOptions,
    /// Number of parallel connections that load rows.
    pub workers: usize,
    /// Whether to continue after what an earlier load of the same dump did.
    pub resume: bool,
    /// Whether to load into existing tables.
    pub merge: bool,
    /// Whether to set the target's GTID state to that of the dump.
    pub set_gtid: bool,
    /// Whether the load is written to the target's binlog.
    pub binlog: bool,
    /// Whether to load by INSERT statements.
    pub inserts: bool,
    /// How to load the dump's accounts.
    pub accounts: LoadAccounts,
    /// Whether to create secondary indexes after all rows. With [`Self::merge`], existing tables keep theirs.
    pub defer_indexes: DeferIndexes,
    /// Whether to create scheduled events disabled, as on a replica.
    pub events_disabled: bool,
    /// Time limit for one statement of the target, for example for the rows of a file. The creation of
    /// deferred indexes has no time limit.
    pub answer_max: Duration,
    /// Pauses the load between files.
    pub throttle: Arc<Throttle>,
}

impl LoadOptions {
    /// Loads into an empty server over four connections, with a binlog.
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
    /// Number of files that this load loaded.
    pub chunks_loaded: u64,
    /// Number of files that an earlier load had loaded.
    pub chunks_before: u64,
    /// Rows of both.
    pub rows: u64,
    /// The GTID set that was set on the target.
    pub gtid_set: Option<String>,
    /// The outcome for accounts, if they were to be loaded.
    pub accounts: Option<AccountsReport>,
}
