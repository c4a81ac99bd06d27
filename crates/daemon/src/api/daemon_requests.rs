//! Commands to the daemon, and its answers.

use serde::{Deserialize, Serialize};
use tailwater_apply::channel::{ChannelEdit, ChannelStatus};
use tailwater_apply::replication_filter::FilterSet;

use super::capture_orders::AckerStatus;
use super::captures::SourceReport;
use super::cluster_servers::RoleCheck;
use super::configuration_reloads::ReloadReport;
use super::daemon_status::DaemonStatus;
use super::jobs::{JobAnswer, JobRequest};
use super::manager_requests::{ManagerAnswer, ManagerRequest};

/// A command to the daemon.
#[derive(Debug, Clone)]
pub enum ControlCommand {
    /// List all channels.
    List,
    /// List all channels with the details of their faults. The details may contain values of rows.
    ListWithValues,
    /// Start a channel.
    Start {
        /// The channel's name.
        channel: String,
        /// Stop after the transaction with this GTID.
        until_gtid: Option<String>,
        /// Stop before the first transaction that was committed at this time or later, in microseconds since
        /// 1970.
        until_time_us: Option<u64>,
    },
    /// Start a channel, and let it tolerate changes that the target already has.
    Tolerate {
        /// The channel's name.
        channel: String,
        /// Skip changes that the target already has, up to and including this transaction. If absent, skip
        /// them only in the transaction that the channel failed at.
        until_gtid: Option<String>,
    },
    /// Stop a channel after its running transactions have committed.
    Stop {
        /// The channel's name.
        channel: String,
    },
    /// Stop a channel after its running transactions have committed, and start it again when this connection
    /// ends. A channel that was already stopped stays stopped.
    Pause {
        /// The channel's name.
        channel: String,
    },
    /// Do not apply one transaction.
    Skip {
        /// The channel's name.
        channel: String,
        /// The GTID of the transaction.
        gtid: String,
    },
    /// Set which transactions count as applied on the target.
    Seek {
        /// The channel's name.
        channel: String,
        /// The GTIDs of the applied transactions, in the source's notation.
        gtids: String,
    },
    /// Replace the filters of a channel.
    Filter {
        /// The channel's name.
        channel: String,
        /// All filters of the channel.
        filters: FilterSet,
        /// The GTID of the first transaction to which the new filters apply.
        from_gtid: Option<String>,
    },
    /// Keep new transactions in the log until a stopped channel has applied them.
    Hold {
        /// The channel's name.
        channel: String,
    },
    /// Change options of a channel.
    Set {
        /// The channel's name.
        channel: String,
        /// The changes of the options.
        edit: ChannelEdit,
    },
    /// Stop the capture of a source, also after restarts of the daemon.
    AckerStop {
        /// The name of the source.
        source: String,
        /// The lease term of the manager that gives the order.
        token: u64,
        /// The number of the failover or switchover within the lease term; `None` in orders of operators.
        run: Option<u64>,
    },
    /// Report the state of a source's capture, and what its log contains.
    AckerRead {
        /// The name of the source.
        source: String,
    },
    /// Resume the capture of a source.
    AckerStart {
        /// The name of the source.
        source: String,
        /// The lease term of the manager that gives the order.
        token: u64,
        /// The number of the failover or switchover within the lease term; `None` in orders of operators.
        run: Option<u64>,
    },
    /// Order the capture of a source to follow another server of the cluster.
    AckerFollow {
        /// The name of the source.
        source: String,
        /// The lease term of the manager that gives the order.
        token: u64,
        /// The number of the failover or switchover within the lease term; `None` in orders of operators.
        run: Option<u64>,
        /// The name of the server to follow, or the name of the source for the source's own server.
        server: String,
    },
    /// Report the logs of the sources, and the replicas that read them.
    Topology,
    /// Report the status of the whole daemon.
    Status,
    /// Read the configuration again, and apply what can change while the daemon runs.
    Reload,
    /// A request to the manager.
    Manager(ManagerRequest),
    /// A request about jobs.
    Job(JobRequest),
    /// Check whether clients may write to a server. Only available within the process.
    CheckPrimary {
        /// The name of the server; if absent, the primary of the cluster.
        server: Option<String>,
        /// The name of the source whose cluster the server belongs to.
        source: Option<String>,
    },
    /// Check whether clients may read from a server. Only available within the process.
    CheckReplica {
        /// The name of the server.
        server: String,
        /// The name of the source whose cluster the server belongs to.
        source: Option<String>,
        /// The greatest lag at which clients may read, in seconds; 10 if absent.
        lag_seconds_max: Option<u64>,
    },
}

/// An answer of the daemon.
#[derive(Debug, Clone)]
pub enum ControlAnswer {
    /// The channels, after the command was executed.
    Channels(Vec<ChannelStatus>),
    /// The state of an acker, after it executed the order.
    Acker(AckerStatus),
    /// The logs of the sources.
    Topology(Vec<SourceReport>),
    /// The status of the whole daemon.
    Status(Box<DaemonStatus>),
    /// What a reload of the configuration did.
    Reloaded(ReloadReport),
    /// The manager's answer.
    Manager(ManagerAnswer),
    /// The answer to a request about jobs.
    Job(JobAnswer),
    /// The command failed.
    Failed {
        /// The stable error code, if there is one.
        code: Option<String>,
        /// The cause of the failure.
        message: String,
    },
    /// The result of a check of a server's role. Only available within the process.
    Role(RoleCheck),
}

/// A failover or switchover that has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StartedFailover {
    /// The name of the failover or switchover. `GET /api/v1/clusters/SOURCE/runs/ID` returns its audit
    /// record.
    pub id: String,
}

/// The body of a response that is not successful.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ApiFailure {
    /// The stable error code, if there is one.
    pub code: Option<String>,
    /// The cause of the failure, and what to do.
    pub message: String,
}

/// Why a command was not executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    /// The kind of failure.
    pub kind: CommandErrorKind,
    /// The stable error code, if there is one.
    pub code: Option<String>,
    /// The cause of the failure.
    pub message: String,
}

/// Kinds of [`CommandError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandErrorKind {
    /// The command names an object that the configuration does not have.
    UnknownName,
    /// The command lacks a parameter.
    Invalid,
    /// The command failed while it was executed.
    Failed,
}
