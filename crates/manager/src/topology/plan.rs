//! What the configuration says of a cluster, and what a running Tailwater says of itself.

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::GtidSet;

/// Whether a server may become the primary; the better first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promotion {
    /// Before others.
    Prefer,
    /// If no other is preferred.
    #[default]
    Neutral,
    /// Only if there is no other.
    PreferNot,
    /// Never.
    MustNot,
}

/// A server that the configuration names.
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// `host:port` or a socket.
    pub address: String,
    /// Whether it may become the primary.
    pub promotion: Promotion,
    /// Where it stands.
    pub region: Option<String>,
}

/// A cluster: a primary, and everything that gets its commits.
#[derive(Debug, Clone, Default)]
pub struct ClusterPlan {
    /// The `[[source]]`'s name.
    pub name: String,
    /// The server that the log follows.
    pub primary: Member,
    /// The other servers that the configuration names.
    pub servers: Vec<Member>,
    /// Tailwater itself: the source's log.
    pub relay: RelayPlan,
    /// Relays of the same source on other machines.
    pub others: Vec<RemoteRelay>,
    /// The targets of the log's channels.
    pub targets: Vec<TargetPlan>,
}

/// The log of a source, and where replicas read it.
#[derive(Debug, Clone, Default)]
pub struct RelayPlan {
    /// The `server_id` under which it is a replica of the primary.
    pub server_id: u32,
    /// Whether it is to acknowledge.
    pub semi_sync: bool,
    /// Where replicas read from it.
    pub listeners: Vec<ListenerPlan>,
    /// What the daemon says; absent if none answers.
    pub state: Option<RelayState>,
}

/// A `[[relay]]`: a relay on another machine.
#[derive(Debug, Clone, Default)]
pub struct RemoteRelay {
    /// Its name.
    pub name: String,
    /// What is known of it; its state is absent while nobody has asked it.
    pub relay: RelayPlan,
    /// Why it does not answer, if it was asked.
    pub silent: Option<String>,
}

/// A `[[serve]]`.
#[derive(Debug, Clone, Default)]
pub struct ListenerPlan {
    /// `host:port`.
    pub address: String,
    /// The `server_id` that replicas see.
    pub server_id: u32,
    /// The `server_uuid` that MySQL replicas see.
    pub uuid: String,
}

/// What the daemon says of a source's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayState {
    /// Whether it reads the primary's stream now.
    pub is_streaming: bool,
    /// What it is doing, in words, with the reason if it stands still.
    pub doing: String,
    /// How long ago something came in it, a heartbeat too, in milliseconds; absent if nothing ever did.
    pub heard_ago_ms: Option<u64>,
    /// What is in the log.
    pub gtids: Option<GtidSet>,
    /// Up to where the log is durable.
    pub durable: String,
    /// What its semi-sync watch found wrong.
    pub alarms: Vec<String>,
    /// Who reads from it.
    pub readers: Vec<RelayReader>,
}

/// Somebody who reads the log's stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayReader {
    /// Its `server_id`; 0 for a program that only looks.
    pub server_id: u32,
    /// Its `server_uuid`, if it said.
    pub uuid: Option<String>,
    /// From where it is connected.
    pub peer: String,
    /// The file and offset that it was sent last.
    pub sent: String,
}

/// A channel's target.
#[derive(Debug, Clone, Default)]
pub struct TargetPlan {
    /// The channel's name.
    pub channel: String,
    /// `host:port` or a socket.
    pub address: String,
    /// What the daemon says of the channel; absent if none answers.
    pub state: Option<TargetState>,
}

/// What the daemon says of a channel.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TargetState {
    /// `running`, `connecting`, `stopped` or `failed`.
    pub doing: String,
    /// Whether it applies.
    pub is_running: bool,
    /// How far it is behind, in seconds; absent while that is not known.
    pub lag_seconds: Option<f64>,
    /// Why it is stopped, if it is.
    pub stopped_because: Option<String>,
    /// What went wrong, with its code.
    pub fault: Option<String>,
}
