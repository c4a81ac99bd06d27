//! What one look at a server saw. Plain data: [`crate::probe`] takes the look, [`crate::topology`] and
//! [`crate::analysis`] think about it.

use std::fmt;

use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use crate::probe_failure::ProbeFailure;

/// One look at one server.
#[derive(Debug, Clone)]
pub struct Observation {
    /// Its name in the configuration.
    pub server: String,
    /// Where it was looked for: `host:port` or a socket.
    pub address: String,
    /// When the look began, in milliseconds since 1970.
    pub began_ms: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// What was seen, or why nothing was.
    pub outcome: Result<ServerState, ProbeError>,
}

impl Observation {
    /// What was seen, if anything was.
    pub fn state(&self) -> Option<&ServerState> {
        self.outcome.as_ref().ok()
    }
}

/// Why nothing was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeError {
    /// The kind.
    pub failure: ProbeFailure,
    /// In words, with the address and what to do.
    pub message: String,
}

/// What a server says of itself.
#[derive(Debug, Clone)]
pub struct ServerState {
    /// Its family.
    pub flavour: Flavour,
    /// Major, minor and patch number, with dots between them.
    pub version: String,
    /// `server_id`.
    pub server_id: u32,
    /// `server_uuid`; MariaDB has none.
    pub uuid: Option<String>,
    /// Its machine's name, as it knows it.
    pub hostname: String,
    /// The TCP port it listens on.
    pub port: u16,
    /// Under which name it registers with its source (`report_host`).
    pub report_host: Option<String>,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// `read_only`: ordinary accounts cannot write.
    pub read_only: bool,
    /// `super_read_only`: nobody can; MariaDB has none before 12.
    pub super_read_only: bool,
    /// All that it has executed: `gtid_executed`, or `gtid_binlog_state` and `gtid_slave_pos` together.
    pub executed: GtidSet,
    /// `gtid_purged`: executed, and no longer in its binlogs; MariaDB does not say.
    pub purged: Option<GtidSet>,
    /// What it has written of itself into its binlog, last first known: MariaDB's `gtid_binlog_state`. Absent for MySQL,
    /// whose `executed` tells it.
    pub binlog_state: Option<GtidSet>,
    /// Whether it writes a binlog.
    pub log_bin: bool,
    /// Whether what it applies as a replica goes into its binlog, too.
    pub log_replica_updates: bool,
    /// What a crash may cost.
    pub durability: DurabilitySettings,
    /// Semi-sync as a source; absent where the plugin is not loaded.
    pub semi_sync_source: Option<SemiSyncSource>,
    /// Semi-sync as a replica; absent where the plugin is not loaded.
    pub semi_sync_replica: Option<SemiSyncReplica>,
    /// Why it could not become a semi-sync source for this account: the source's side is not loaded, and may not be. Nothing where
    /// it is, or where nothing speaks against it; whether the server has the file only loading it can tell.
    pub semi_sync_unavailable: Option<String>,
    /// Why the account may not make it a primary or a replica, if that is certain: a privilege is missing.
    pub missing_privilege: Option<String>,
    /// Its own replication, one for each source.
    pub channels: Vec<ReplicaChannel>,
    /// Replicas that are registered with it.
    pub replicas: Vec<ConnectedReplica>,
    /// From where its binlog is read now, as its process list shows.
    pub dump_hosts: Vec<String>,
    /// What could not be asked, and why: mostly privileges.
    pub unanswered: Vec<UnansweredQuery>,
}

/// A question that a server did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredQuery {
    /// What it was about.
    pub question: OptionalQuery,
    /// The privilege that it takes, by the name that GRANT knows on that server.
    pub privilege: &'static str,
    /// The statement, and the server's words.
    pub reason: String,
}

impl fmt::Display for UnansweredQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { question, privilege, reason } = self;
        write!(f, "{question} is not known: the account needs {privilege} (`tailwater grants`): {reason}")
    }
}

/// What a look asks that an account may lack a privilege for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionalQuery {
    /// Its own replication.
    Replication,
    /// The replicas that are registered with it.
    Replicas,
    /// The connections that read its binlog.
    DumpThreads,
    /// Whether semi-sync lasts over a restart.
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
    /// Whether its own replication is known: without a privilege a server looks like one that replicates from nothing.
    pub fn is_replication_known(&self) -> bool {
        self.was_answered(OptionalQuery::Replication)
    }

    /// Whether a question was answered.
    pub fn was_answered(&self, question: OptionalQuery) -> bool {
        !self.unanswered.iter().any(|unanswered| unanswered.question == question)
    }

    /// Whether ordinary accounts can write.
    pub fn is_writable(&self) -> bool {
        !self.read_only && !self.super_read_only
    }
}

/// Settings that decide what a crash of the server's machine may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurabilitySettings {
    /// `innodb_flush_log_at_trx_commit`.
    pub flush_log_at_commit: u64,
    /// `sync_binlog`.
    pub sync_binlog: u64,
}

impl DurabilitySettings {
    /// Whether a commit is on disk before it is told to the client.
    pub fn is_crash_safe(self) -> bool {
        self.flush_log_at_commit == 1 && self.sync_binlog == 1
    }
}

/// Where a commit waits for its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPoint {
    /// Before the engine commits: nobody sees it before it is acknowledged.
    AfterSync,
    /// After the engine has committed: others see it before it is acknowledged.
    AfterCommit,
}

/// Semi-sync as a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemiSyncSource {
    /// It is switched on.
    pub enabled: bool,
    /// It is in force now: false also after it fell back to asynchronous replication.
    pub active: bool,
    /// How long a commit waits before the server gives up on semi-sync, in milliseconds.
    pub timeout_ms: u64,
    /// Where commits wait.
    pub wait_point: WaitPoint,
    /// Commits wait also while there are fewer replicas than needed.
    pub wait_no_replica: bool,
    /// How many replicas have to acknowledge; always one on MariaDB.
    pub acks_needed: u32,
    /// Semi-sync replicas that are connected now.
    pub clients: u32,
    /// Sessions whose commit waits for acknowledgements now.
    pub waiting_sessions: u64,
    /// Commits that were acknowledged since the server started.
    pub acknowledged: u64,
    /// Commits that were not, since the server started.
    pub unacknowledged: u64,
    /// It waits as the lossless rules want it after a restart, too: by option file, command line or persisted variable, not by
    /// a statement that a restart forgets. False also where it cannot be asked, and while semi-sync is off.
    pub survives_restart: bool,
}

/// Semi-sync as a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SemiSyncReplica {
    /// It is switched on.
    pub enabled: bool,
    /// It acknowledges now.
    pub active: bool,
}

/// What the receiving side of a replica does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoState {
    /// It receives.
    Running,
    /// It tries to reach its source.
    Connecting,
    /// It is stopped.
    Stopped,
}

/// One thread's last error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadError {
    /// The server's number.
    pub number: u16,
    /// The server's text.
    pub message: String,
}

/// A server's replication from one source.
#[derive(Debug, Clone)]
pub struct ReplicaChannel {
    /// Its name; empty for the default.
    pub name: String,
    /// The source's host, as it was configured.
    pub source_host: String,
    /// The source's port.
    pub source_port: u16,
    /// The source's `server_id`; 0 if it was never reached.
    pub source_server_id: u32,
    /// The source's `server_uuid`; MariaDB does not keep it.
    pub source_uuid: Option<String>,
    /// The receiving side.
    pub io: IoState,
    /// Its last error.
    pub io_error: Option<ThreadError>,
    /// Whether the applying side runs.
    pub sql_running: bool,
    /// Its last error.
    pub sql_error: Option<ThreadError>,
    /// How far it is behind, in seconds, by its own clock; absent while it cannot say.
    pub lag_seconds: Option<u64>,
    /// How far it is told to stay behind, in seconds.
    pub delay_seconds: u64,
    /// Whether it asks its source by GTIDs.
    pub uses_gtids: bool,
    /// What it has received: MySQL's `Retrieved_Gtid_Set`, MariaDB's `Gtid_IO_Pos`.
    pub received: GtidSet,
    /// The source's file and offset that it has received up to.
    pub received_position: (String, u64),
    /// The source's file and offset that it has executed up to.
    pub executed_position: (String, u64),
}

/// A replica as its source lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedReplica {
    /// Its `server_id`.
    pub server_id: u32,
    /// What it told of its host (`report_host`); mostly empty.
    pub host: String,
    /// Its port, if it told.
    pub port: u16,
    /// Its `server_uuid`; MariaDB has none.
    pub uuid: Option<String>,
}
