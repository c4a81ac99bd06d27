//! What is asked and answered.

use serde::{Deserialize, Serialize};
use tailwater_apply::channel::{ChannelEdit, ChannelStatus};
use tailwater_apply::filter::FilterSet;
use tailwater_manager::topology::RelayReader;

use crate::manager::acker::AckerStatus;
use crate::manager::requests::{ManagerAnswer, ManagerRequest};

/// A request, and an answer, is no longer than this.
pub const LINE_BYTES_MAX: u64 = 4 << 20;

/// What can be asked: of channels, of ackers, of all.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "request", deny_unknown_fields)]
pub enum Request {
    /// All channels.
    #[serde(rename = "channel_list")]
    List,
    /// All channels, with what faults leave out because it may hold values of rows.
    #[serde(rename = "channel_list_with_values")]
    ListWithValues,
    /// Goes on.
    #[serde(rename = "channel_start")]
    Start {
        /// The channel.
        channel: String,
        /// Stops behind this transaction.
        until_gtid: Option<String>,
        /// Stops before the first transaction that committed then or later, in microseconds since 1970.
        until_time_us: Option<u64>,
    },
    /// Goes on, and tolerates what the target has.
    #[serde(rename = "channel_tolerate")]
    Tolerate {
        /// The channel.
        channel: String,
        /// Up to this transaction; or else the one that it failed at.
        until_gtid: Option<String>,
    },
    /// Stops when what is under way has committed.
    #[serde(rename = "channel_stop")]
    Stop {
        /// The channel.
        channel: String,
    },
    /// Stops when what is under way has committed, and goes on when this connection ends, however it ends. One that stands
    /// still is left so.
    #[serde(rename = "channel_pause")]
    Pause {
        /// The channel.
        channel: String,
    },
    /// Leaves a transaction out.
    #[serde(rename = "channel_skip")]
    Skip {
        /// The channel.
        channel: String,
        /// The transaction.
        gtid: String,
    },
    /// Goes on as if these were applied.
    #[serde(rename = "channel_seek")]
    Seek {
        /// The channel.
        channel: String,
        /// In the source's notation.
        gtids: String,
    },
    /// Has other filters count.
    #[serde(rename = "channel_filter")]
    Filter {
        /// The channel.
        channel: String,
        /// All of them.
        filters: FilterSet,
        /// From this transaction on.
        from_gtid: Option<String>,
    },
    /// Keeps what comes from now on in the log until the channel, which is stopped, has applied it.
    #[serde(rename = "channel_hold")]
    Hold {
        /// The channel.
        channel: String,
    },
    /// Changes how it works.
    #[serde(rename = "channel_set")]
    Set {
        /// The channel.
        channel: String,
        /// What.
        edit: ChannelEdit,
    },
    /// Has a source's capture stop, over restarts too.
    #[serde(rename = "acker_stop")]
    AckerStop {
        /// The source.
        source: String,
        /// The term of the lease in which the order is given.
        token: u64,
    },
    /// How a source's capture stands, and what its log holds.
    #[serde(rename = "acker_read")]
    AckerRead {
        /// The source.
        source: String,
    },
    /// Has a source's capture go on.
    #[serde(rename = "acker_start")]
    AckerStart {
        /// The source.
        source: String,
        /// The term of the lease in which the order is given.
        token: u64,
    },
    /// Has a source's capture follow another server of the cluster.
    #[serde(rename = "acker_follow")]
    AckerFollow {
        /// The source.
        source: String,
        /// The term of the lease in which the order is given.
        token: u64,
        /// The server's name, or the source's own.
        server: String,
    },
    /// How the sources' logs are, and who reads them.
    #[serde(rename = "topology")]
    Topology,
    /// What the manager is told or asked.
    #[serde(rename = "manager")]
    Manager(ManagerRequest),
}

/// What is answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done, and how the channels are now.
    Channels(Vec<ChannelStatus>),
    /// How an acker stands, once it has obeyed.
    Acker(AckerStatus),
    /// How the sources' logs are.
    Topology(Vec<SourceReport>),
    /// What the manager answers.
    Manager(ManagerAnswer),
    /// Not done.
    Failed {
        /// A stable code, if there is one.
        code: Option<String>,
        /// Why.
        message: String,
    },
}

/// How a source's log is, and who reads it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SourceReport {
    /// The source's name.
    pub source: String,
    /// Whether its stream is read now.
    pub is_streaming: bool,
    /// The server that is captured from by order; the source's own if absent.
    #[serde(default)]
    pub follows: Option<String>,
    /// Whether it stands still by order, over restarts too.
    #[serde(default)]
    pub is_stopped_by_order: bool,
    /// What its capture is doing, in words.
    pub doing: String,
    /// How long ago something came from the source, in milliseconds; absent if nothing ever did.
    pub heard_ago_ms: Option<u64>,
    /// The source's family; none before it was first reached.
    pub is_mariadb: Option<bool>,
    /// What is in the log, in the source's notation.
    pub gtids: Option<String>,
    /// Up to where the log is durable.
    pub durable: String,
    /// What the semi-sync watch last found wrong.
    pub alarms: Vec<String>,
    /// Who reads the log's stream.
    pub readers: Vec<RelayReader>,
}

pub(super) fn too_long(what: &str) -> String {
    format!("{what} is longer than {LINE_BYTES_MAX} bytes")
}
