//! The state of a server at one time. Plain data: [`crate::server_probe`] produces it, [`crate::build_tree`]
//! and [`crate::failure_analysis`] use it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
pub use tailwater_session::semi_sync::{
    SEMI_SYNC_TIMEOUT_MS_MIN, SemiSyncReplica, SemiSyncSource, WaitPoint,
};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use crate::probe_failure::ProbeFailure;

/// One probe of one server.
#[derive(Debug, Clone)]
pub struct Observation {
    /// Name of the server in the configuration.
    pub server: String,
    /// Address of the server: `host:port` or a socket path.
    pub address: String,
    /// Start of the probe, in milliseconds since 1970.
    pub began_ms: u64,
    /// Duration of the probe, in milliseconds.
    pub took_ms: u64,
    /// The server's state, or why it could not be read.
    pub outcome: Result<ServerState, ProbeError>,
    /// The transactions that the server had at its last successful probe before the probe of this
    /// observation.
    pub earlier: Option<ObservedGtids>,
}

/// The transactions that a server had at the end of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedGtids {
    /// The end of the probe, in milliseconds since 1970.
    pub ended_ms: u64,
    /// [`ServerState::executed`]
    pub executed: GtidSet,
    /// [`ServerState::binlog_state`]
    pub binlog_state: Option<GtidSet>,
}

impl Observation {
    /// Returns the transactions that the server had at its last successful probe. This is the probe of this
    /// observation or, if that failed, an earlier probe.
    pub fn last_gtids(&self) -> Option<ObservedGtids> {
        self.gtids().or_else(|| self.earlier.clone())
    }

    /// Returns the transactions that the server had at the newest probe that ended before this time, in
    /// milliseconds since 1970; `None` if all known probes ended later.
    pub fn gtids_before(&self, time_ms: u64) -> Option<ObservedGtids> {
        [self.gtids(), self.earlier.clone()].into_iter().flatten().find(|gtids| gtids.ended_ms <= time_ms)
    }

    fn gtids(&self) -> Option<ObservedGtids> {
        self.state().map(|state| ObservedGtids {
            ended_ms: self.began_ms.saturating_add(self.took_ms),
            executed: state.executed.clone(),
            binlog_state: state.binlog_state.clone(),
        })
    }

    /// Returns the server's state, if it could be read.
    pub fn state(&self) -> Option<&ServerState> {
        self.outcome.as_ref().ok()
    }
}

/// Why a probe failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeError {
    /// The kind of failure.
    pub failure: ProbeFailure,
    /// The error text, with the address and the remedy.
    pub message: String,
}

/// The state of a server at one time.
#[derive(Debug, Clone)]
pub struct ServerState {
    /// Flavour of the server.
    pub flavour: Flavour,
    /// Major, minor and patch number, for example `9.7.1`.
    pub version: String,
    /// The system variable `server_id`.
    pub server_id: u32,
    /// The system variable `server_uuid`; `None` on MariaDB, which has none.
    pub uuid: Option<String>,
    /// The host name that the server itself reports.
    pub hostname: String,
    /// The TCP port on which the server listens.
    pub port: u16,
    /// The system variable `report_host`: the host name under which the server registers with its source.
    pub report_host: Option<String>,
    /// Seconds since the server started.
    pub uptime_seconds: u64,
    /// The system variable `read_only`: ordinary accounts cannot write.
    pub read_only: bool,
    /// The system variable `super_read_only`: no account can write. MariaDB has it only since version 12.
    pub super_read_only: bool,
    /// All executed transactions: `gtid_executed`, or on MariaDB `gtid_binlog_state` and `gtid_slave_pos`
    /// together.
    pub executed: GtidSet,
    /// The system variable `gtid_purged`: executed transactions that are no longer in the binlogs. `None` for
    /// MariaDB.
    pub purged: Option<GtidSet>,
    /// The MariaDB variable `gtid_binlog_state`: all transactions that the binlog has ever contained. `None`
    /// for MySQL, where `executed` contains the same transactions.
    pub binlog_state: Option<GtidSet>,
    /// Whether the server writes a binlog.
    pub log_bin: bool,
    /// Whether the server's binlog contains replicated transactions.
    pub log_replica_updates: bool,
    /// How many of the server's connections are in use.
    pub connections: ConnectionUsage,
    /// Settings that decide what a crash may lose.
    pub durability: DurabilitySettings,
    /// State of semi-sync for the server as a source; `None` if the plugin is not loaded.
    pub semi_sync_source: Option<SemiSyncSource>,
    /// State of semi-sync for the server as a replica; `None` if the plugin is not loaded.
    pub semi_sync_replica: Option<SemiSyncReplica>,
    /// Why the server cannot become a semi-sync source: the source plugin is not loaded, and this account is
    /// not allowed to load it. `None` if the plugin is loaded, or if nothing is known to prevent loading it.
    /// Whether the plugin file exists is known only when the plugin is loaded.
    pub semi_sync_unavailable: Option<String>,
    /// The privilege that the account lacks to make this server a primary or a replica, if that is certain.
    pub missing_privilege: Option<String>,
    /// The replication channels of the server, one for each source.
    pub channels: Vec<ReplicaChannel>,
    /// Replicas that are registered with the server.
    pub replicas: Vec<ConnectedReplica>,
    /// Hosts that read the server's binlog, from its process list.
    pub dump_hosts: Vec<String>,
    /// Queries that the server refused, mostly because of missing privileges.
    pub unanswered: Vec<UnansweredQuery>,
}

/// How many connections of a server are in use, and for what if few are left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionUsage {
    /// The status variable `Threads_connected`.
    pub connected: u64,
    /// The system variable `max_connections`; 0 if it is not known.
    pub connections_max: u64,
    /// What the most sessions do, in words. Empty unless nearly all connections are in use.
    pub busy_with: Vec<String>,
    /// The transaction that has changed the most rows. `None` unless nearly all connections are in use.
    pub largest_transaction: Option<LargestTransaction>,
}

/// The transaction that has changed the most rows of all transactions that have not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargestTransaction {
    /// The id of its session, as in `SHOW PROCESSLIST` and `KILL`.
    pub session: u64,
    /// The account of the session.
    pub user: String,
    /// How many rows it has changed.
    pub rows: u64,
    /// How long ago it began, in seconds.
    pub seconds: u64,
    /// What the session does at present, as in `SHOW PROCESSLIST`.
    pub state: String,
}

impl fmt::Display for LargestTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, user, rows, seconds, state } = self;
        let state = if state.is_empty() { "no state" } else { state };
        write!(
            f,
            "session {session} of {user} has changed {rows} rows in a transaction of {seconds} s, and is in state: {state}"
        )
    }
}

/// A query that the server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredQuery {
    /// The query that was refused.
    pub question: OptionalQuery,
    /// The missing privilege, as GRANT names it on this server.
    pub privilege: &'static str,
    /// The statement, and the error of the server.
    pub reason: String,
}

impl fmt::Display for UnansweredQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { question, privilege, reason } = self;
        write!(f, "{question} is not known: the account needs {privilege} (`tailwater grants`): {reason}")
    }
}

/// Queries for which an account may lack the privilege.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionalQuery {
    /// The server's replication status.
    Replication,
    /// Replicas that are registered with the server.
    Replicas,
    /// Connections that read the server's binlog.
    DumpThreads,
    /// Whether semi-sync survives a restart.
    SemiSyncPersistence,
    /// Which sessions and transactions use the connections.
    Sessions,
}

impl fmt::Display for OptionalQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replication => "from where it replicates",
            Self::Replicas => "which replicas are registered with it",
            Self::DumpThreads => "who reads its binlog",
            Self::SemiSyncPersistence => "whether semi-sync survives a restart",
            Self::Sessions => "which sessions use its connections",
        })
    }
}

impl ServerState {
    /// Whether the replication status is known. If the account lacks the privilege, a server looks as if it
    /// did not replicate.
    pub fn is_replication_known(&self) -> bool {
        self.was_answered(OptionalQuery::Replication)
    }

    /// Whether the server answered a query.
    pub fn was_answered(&self, question: OptionalQuery) -> bool {
        !self.unanswered.iter().any(|unanswered| unanswered.question == question)
    }

    /// Whether ordinary accounts can write.
    pub fn is_writable(&self) -> bool {
        !self.read_only && !self.super_read_only
    }
}

/// Settings that decide whether a crash of the host loses commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurabilitySettings {
    /// `innodb_flush_log_at_trx_commit`.
    pub flush_log_at_commit: u64,
    /// `sync_binlog`.
    pub sync_binlog: u64,
}

impl DurabilitySettings {
    /// Whether a commit is on disk before the client gets its OK.
    pub fn is_crash_safe(self) -> bool {
        self.flush_log_at_commit == 1 && self.sync_binlog == 1
    }
}

/// State of a replica's receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoState {
    /// The receiver runs.
    Running,
    /// The receiver tries to reach its source.
    Connecting,
    /// The receiver is stopped.
    Stopped,
}

/// The last error of a replication thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadError {
    /// The server's error number.
    pub number: u16,
    /// The server's error text.
    pub message: String,
}

/// The replication of a server from one source.
#[derive(Debug, Clone)]
pub struct ReplicaChannel {
    /// Name of the channel; empty for the default channel.
    pub name: String,
    /// Host of the source, as configured on the replica.
    pub source_host: String,
    /// Port of the source.
    pub source_port: u16,
    /// `server_id` of the source; 0 if it was never reached.
    pub source_server_id: u32,
    /// `server_uuid` of the source; `None` on MariaDB, which does not store it.
    pub source_uuid: Option<String>,
    /// State of the receiver.
    pub io: IoState,
    /// The last error of the receiver.
    pub io_error: Option<ThreadError>,
    /// Whether the applier runs.
    pub sql_running: bool,
    /// The last error of the applier.
    pub sql_error: Option<ThreadError>,
    /// Lag as the replica reports it, in seconds; `None` if unknown.
    pub lag_seconds: Option<u64>,
    /// The configured delay, in seconds.
    pub delay_seconds: u64,
    /// Whether the channel replicates by GTIDs.
    pub uses_gtids: bool,
    /// The transactions that were received: MySQL's `Retrieved_Gtid_Set`, MariaDB's `Gtid_IO_Pos`.
    pub received: GtidSet,
    /// Binlog file and offset of the source up to which the replica has received.
    pub received_position: (String, u64),
    /// Binlog file and offset of the source up to which the replica has executed.
    pub executed_position: (String, u64),
}

/// A replica as its source lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedReplica {
    /// The `server_id` of the replica.
    pub server_id: u32,
    /// The `report_host` of the replica; usually empty.
    pub host: String,
    /// The `report_port` of the replica; 0 if it did not report one.
    pub port: u16,
    /// The `server_uuid` of the replica; `None` on MariaDB, which has none.
    pub uuid: Option<String>,
}

/// Kind of a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PingKind {
    /// A statement on an open connection. It shows whether the server process works.
    Select,
    /// A new connection and a login. It shows whether clients can connect.
    Connect,
    /// An insert into `tailwater.ping`, which goes through the binlog and semi-sync. It shows whether the
    /// server takes writes. Only this ping detects a full disk, a read-only server, and commits that wait for
    /// ACKs for ever.
    Insert,
}

/// The result of a ping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingResult {
    /// The kind of the ping.
    pub kind: PingKind,
    /// How long the ping took.
    pub took: Duration,
    /// Success, or the error of the ping.
    pub outcome: Result<(), ProbeError>,
}
