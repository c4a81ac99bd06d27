//! The state of a server at one time. Plain data: [`crate::probe`] produces it, [`crate::topology`] and
//! [`crate::analysis`] use it.

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
    /// Its name in the configuration.
    pub server: String,
    /// `host:port` or a socket path.
    pub address: String,
    /// Start of the probe, in milliseconds since 1970.
    pub began_ms: u64,
    /// Duration of the probe, in milliseconds.
    pub took_ms: u64,
    /// The server's state, or why it could not be read.
    pub outcome: Result<ServerState, ProbeError>,
}

impl Observation {
    /// The server's state, if it was read.
    pub fn state(&self) -> Option<&ServerState> {
        self.outcome.as_ref().ok()
    }
}

/// Why a probe failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeError {
    /// The kind of failure.
    pub failure: ProbeFailure,
    /// The error, with the address and the remedy.
    pub message: String,
}

/// State of a server.
#[derive(Debug, Clone)]
pub struct ServerState {
    /// Its flavour.
    pub flavour: Flavour,
    /// Major, minor and patch number: `9.7.1`.
    pub version: String,
    /// `server_id`.
    pub server_id: u32,
    /// `server_uuid`; MariaDB has none.
    pub uuid: Option<String>,
    /// The server's own host name.
    pub hostname: String,
    /// The TCP port it listens on.
    pub port: u16,
    /// `report_host`: the host under which it registers with its source.
    pub report_host: Option<String>,
    /// Seconds since its start.
    pub uptime_seconds: u64,
    /// `read_only`: ordinary accounts cannot write.
    pub read_only: bool,
    /// `super_read_only`: no account can write. MariaDB has none before 12.
    pub super_read_only: bool,
    /// All transactions executed: `gtid_executed`, or `gtid_binlog_state` and `gtid_slave_pos` together.
    pub executed: GtidSet,
    /// `gtid_purged`: executed and no longer in its binlogs; `None` for MariaDB.
    pub purged: Option<GtidSet>,
    /// MariaDB's `gtid_binlog_state`: what its binlog has ever contained. `None` for MySQL, where `executed`
    /// says it.
    pub binlog_state: Option<GtidSet>,
    /// Whether it writes a binlog.
    pub log_bin: bool,
    /// Whether its binlog contains replicated transactions.
    pub log_replica_updates: bool,
    /// What a crash may lose.
    pub durability: DurabilitySettings,
    /// Semi-sync as a source; `None` if the plugin is not loaded.
    pub semi_sync_source: Option<SemiSyncSource>,
    /// Semi-sync as a replica; `None` if the plugin is not loaded.
    pub semi_sync_replica: Option<SemiSyncReplica>,
    /// Why it cannot become a semi-sync source: the source side is not loaded, and this account may not load
    /// it. `None` if it is loaded or nothing is known to prevent it; whether the plugin file exists shows
    /// only when it is loaded.
    pub semi_sync_unavailable: Option<String>,
    /// The privilege that the account lacks to make this server a primary or a replica, if that is certain.
    pub missing_privilege: Option<String>,
    /// Its replication channels, one for each source.
    pub channels: Vec<ReplicaChannel>,
    /// Replicas registered with it.
    pub replicas: Vec<ConnectedReplica>,
    /// Hosts that read its binlog, from the process list.
    pub dump_hosts: Vec<String>,
    /// Queries that the server refused, mostly for lack of privileges.
    pub unanswered: Vec<UnansweredQuery>,
}

/// A query that the server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredQuery {
    /// The query.
    pub question: OptionalQuery,
    /// The missing privilege, as GRANT names it on that server.
    pub privilege: &'static str,
    /// The statement and the server's error.
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
    /// Its replication status.
    Replication,
    /// Replicas registered with it.
    Replicas,
    /// Connections that read its binlog.
    DumpThreads,
    /// Whether semi-sync survives a restart.
    SemiSyncPersistence,
}

impl fmt::Display for OptionalQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replication => "from where it replicates",
            Self::Replicas => "which replicas are registered with it",
            Self::DumpThreads => "who reads its binlog",
            Self::SemiSyncPersistence => "whether semi-sync lasts over a restart",
        })
    }
}

impl ServerState {
    /// Whether its replication status is known. Without the privilege a server looks as if it did not
    /// replicate.
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

/// Replication of a server from one source.
#[derive(Debug, Clone)]
pub struct ReplicaChannel {
    /// Channel name; empty for the default channel.
    pub name: String,
    /// Host of the source, as configured on the replica.
    pub source_host: String,
    /// Port of the source.
    pub source_port: u16,
    /// `server_id` of the source; 0 if it was never reached.
    pub source_server_id: u32,
    /// `server_uuid` of the source; MariaDB does not keep it.
    pub source_uuid: Option<String>,
    /// The receiver.
    pub io: IoState,
    /// The receiver's last error.
    pub io_error: Option<ThreadError>,
    /// Whether the applier runs.
    pub sql_running: bool,
    /// The applier's last error.
    pub sql_error: Option<ThreadError>,
    /// Lag as the replica reports it, in seconds; `None` while unknown.
    pub lag_seconds: Option<u64>,
    /// Configured delay, in seconds.
    pub delay_seconds: u64,
    /// Whether it replicates by GTIDs.
    pub uses_gtids: bool,
    /// Transactions received: MySQL's `Retrieved_Gtid_Set`, MariaDB's `Gtid_IO_Pos`.
    pub received: GtidSet,
    /// Binlog file and offset of the source up to which it has received.
    pub received_position: (String, u64),
    /// Binlog file and offset of the source up to which it has executed.
    pub executed_position: (String, u64),
}

/// A replica as its source lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedReplica {
    /// Its `server_id`.
    pub server_id: u32,
    /// Its `report_host`; usually empty.
    pub host: String,
    /// Its `report_port`; 0 if it did not say.
    pub port: u16,
    /// Its `server_uuid`; MariaDB has none.
    pub uuid: Option<String>,
}

/// Kind of a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PingKind {
    /// A statement on an open connection: whether the process is there and works.
    Select,
    /// A new connection and a login: whether clients can connect.
    Connect,
    /// An insert into `tailwater.ping`, through binlog and semi-sync: whether the server takes writes. Only
    /// this detects a full disk, a read-only server, and commits that wait for ACKs for ever.
    Insert,
}

/// Result of a ping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingResult {
    /// What was checked.
    pub kind: PingKind,
    /// Duration.
    pub took: Duration,
    /// Success, or the error.
    pub outcome: Result<(), ProbeError>,
}
