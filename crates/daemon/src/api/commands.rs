//! Requests to the daemon, and its answers.

use serde::{Deserialize, Serialize};
use tailwater_apply::channel::{ChannelEdit, ChannelStatus};
use tailwater_apply::filter::FilterSet;

use super::ackers::AckerStatus;
use super::captures::SourceReport;
use super::failovers::{ManagerAnswer, ManagerRequest};
use super::servers::RoleCheck;

/// A request to the daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "request", deny_unknown_fields)]
pub enum ControlCommand {
    /// List all channels.
    #[serde(rename = "channel_list")]
    List,
    /// List all channels, with the details of faults, which may contain values of rows.
    #[serde(rename = "channel_list_with_values")]
    ListWithValues,
    /// Start a channel.
    #[serde(rename = "channel_start")]
    Start {
        /// The channel.
        channel: String,
        /// Stop after this transaction.
        until_gtid: Option<String>,
        /// Stop before the first transaction committed at this time or later, in microseconds since 1970.
        until_time_us: Option<u64>,
    },
    /// Start a channel, and tolerate changes that the target already has.
    #[serde(rename = "channel_tolerate")]
    Tolerate {
        /// The channel.
        channel: String,
        /// Up to and including this transaction; the one that it failed at if absent.
        until_gtid: Option<String>,
    },
    /// Stop a channel after the transactions under way have committed.
    #[serde(rename = "channel_stop")]
    Stop {
        /// The channel.
        channel: String,
    },
    /// Stop a channel after the transactions under way have committed, and start it again when this
    /// connection ends. A stopped channel stays stopped.
    #[serde(rename = "channel_pause")]
    Pause {
        /// The channel.
        channel: String,
    },
    /// Leave out a transaction.
    #[serde(rename = "channel_skip")]
    Skip {
        /// The channel.
        channel: String,
        /// The transaction.
        gtid: String,
    },
    /// Take a set of transactions as applied, and no others.
    #[serde(rename = "channel_seek")]
    Seek {
        /// The channel.
        channel: String,
        /// In the source's notation.
        gtids: String,
    },
    /// Replace the filters.
    #[serde(rename = "channel_filter")]
    Filter {
        /// The channel.
        channel: String,
        /// All filters.
        filters: FilterSet,
        /// The first transaction to which they apply.
        from_gtid: Option<String>,
    },
    /// Keep new transactions in the log until the channel, which is stopped, has applied them.
    #[serde(rename = "channel_hold")]
    Hold {
        /// The channel.
        channel: String,
    },
    /// Change options of a channel.
    #[serde(rename = "channel_set")]
    Set {
        /// The channel.
        channel: String,
        /// The changes.
        edit: ChannelEdit,
    },
    /// Stop the capture of a source, across restarts too.
    #[serde(rename = "acker_stop")]
    AckerStop {
        /// The source.
        source: String,
        /// The term of the lease.
        token: u64,
    },
    /// Report the state of a source's capture, and the content of its log.
    #[serde(rename = "acker_read")]
    AckerRead {
        /// The source.
        source: String,
    },
    /// Resume the capture of a source.
    #[serde(rename = "acker_start")]
    AckerStart {
        /// The source.
        source: String,
        /// The term of the lease.
        token: u64,
    },
    /// Capture from another server of the cluster.
    #[serde(rename = "acker_follow")]
    AckerFollow {
        /// The source.
        source: String,
        /// The term of the lease.
        token: u64,
        /// The server's name, or the source's own.
        server: String,
    },
    /// Report the logs of the sources, and their readers.
    #[serde(rename = "topology")]
    Topology,
    /// A request to the manager.
    #[serde(rename = "manager")]
    Manager(ManagerRequest),
    /// Keep the probes of all servers fresh for a while. Only within the process.
    #[serde(skip)]
    KeepProbed,
    /// Check whether clients may write to a server. Only within the process.
    #[serde(skip)]
    CheckPrimary {
        /// The server; the primary of the cluster if absent.
        server: Option<String>,
        /// The source of its cluster.
        source: Option<String>,
    },
    /// Check whether clients may read from a server. Only within the process.
    #[serde(skip)]
    CheckReplica {
        /// The server.
        server: String,
        /// The source of its cluster.
        source: Option<String>,
        /// The greatest lag that is allowed, in seconds; 10 if absent.
        lag_seconds_max: Option<u64>,
    },
}

/// An answer of the daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAnswer {
    /// The channels, after the command was carried out.
    Channels(Vec<ChannelStatus>),
    /// The state of an acker, after the order was carried out.
    Acker(AckerStatus),
    /// The logs of the sources.
    Topology(Vec<SourceReport>),
    /// The manager's answer.
    Manager(ManagerAnswer),
    /// The command failed.
    Failed {
        /// A stable code, if there is one.
        code: Option<String>,
        /// The cause.
        message: String,
    },
    /// The result of a check. Only within the process.
    #[serde(skip)]
    Role(RoleCheck),
    /// The command was carried out. Only within the process.
    #[serde(skip)]
    Done,
}

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    /// The kind of failure.
    pub kind: CommandErrorKind,
    /// A stable code, if there is one.
    pub code: Option<String>,
    /// The cause.
    pub message: String,
}

/// Kinds of [`CommandError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandErrorKind {
    /// The command names an object that the configuration does not have.
    UnknownName,
    /// The command lacks a parameter.
    Invalid,
    /// It failed.
    Failed,
}
