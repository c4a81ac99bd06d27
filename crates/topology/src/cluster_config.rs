//! The configuration of a cluster, and the state of a running daemon.

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::GtidSet;

/// Preference for a server as primary, the better first.
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

/// A configured server.
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// `host:port` or a socket path.
    pub address: String,
    /// Its preference as primary.
    pub promotion: Promotion,
    /// Its region.
    pub region: Option<String>,
}

/// A cluster: a primary, and everything that receives its transactions.
#[derive(Debug, Clone, Default)]
pub struct ClusterPlan {
    /// Name of the `[[source]]`.
    pub name: String,
    /// The server that the log follows.
    pub primary: Member,
    /// The other configured servers.
    pub servers: Vec<Member>,
    /// The local relay.
    pub relay: RelayPlan,
    /// Relays of the same source on other machines.
    pub others: Vec<RemoteRelayPlan>,
    /// Targets of the log's channels.
    pub targets: Vec<TargetPlan>,
}

/// A relay: the log of a source, and where replicas read it.
#[derive(Debug, Clone, Default)]
pub struct RelayPlan {
    /// Its `server_id` as a replica of the primary.
    pub server_id: u32,
    /// Whether it shall acknowledge.
    pub semi_sync: bool,
    /// Where it serves replicas.
    pub listeners: Vec<ListenerPlan>,
    /// State from the daemon; `None` if it does not answer.
    pub state: Option<RelayState>,
}

/// A `[[relay]]`: a relay on another machine.
#[derive(Debug, Clone, Default)]
pub struct RemoteRelayPlan {
    /// Its name.
    pub name: String,
    /// Its state is `None` until it is probed.
    pub relay: RelayPlan,
    /// Why it does not answer, if it was probed.
    pub silent: Option<String>,
}

/// A `[[serve]]`.
#[derive(Debug, Clone, Default)]
pub struct ListenerPlan {
    /// `host:port`.
    pub address: String,
    /// The `server_id` shown to replicas.
    pub server_id: u32,
    /// The `server_uuid` shown to MySQL replicas.
    pub uuid: String,
}

/// State of a relay, from its daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayState {
    /// Whether it reads the primary's stream.
    pub is_streaming: bool,
    /// Its activity as text, with the reason if it is stopped.
    pub doing: String,
    /// Time since the last event, heartbeats included, in milliseconds; `None` if there was none.
    pub heard_ago_ms: Option<u64>,
    /// Transactions in the log.
    pub gtids: Option<GtidSet>,
    /// Durable position of the log.
    pub durable: String,
    /// Problems found by its semi-sync check.
    pub alarms: Vec<String>,
    /// Readers of its stream.
    pub readers: Vec<RelayReader>,
}

/// A reader of the log's stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayReader {
    /// Its `server_id`; 0 for a program such as mysqlbinlog.
    pub server_id: u32,
    /// Its `server_uuid`, if it sent one.
    pub uuid: Option<String>,
    /// Its address.
    pub peer: String,
    /// Binlog file and offset sent last.
    pub sent: String,
}

/// The target of a channel.
#[derive(Debug, Clone, Default)]
pub struct TargetPlan {
    /// Name of the channel.
    pub channel: String,
    /// `host:port` or a socket path.
    pub address: String,
    /// State from the daemon; `None` if it does not answer.
    pub state: Option<TargetState>,
}

/// State of a channel, from its daemon.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TargetState {
    /// `running`, `connecting`, `stopped` or `failed`.
    pub doing: String,
    /// Whether it applies.
    pub is_running: bool,
    /// Lag in seconds; `None` while unknown.
    pub lag_seconds: Option<f64>,
    /// Why it is stopped, if so.
    pub stopped_because: Option<String>,
    /// The error, with its code.
    pub fault: Option<String>,
}
