//! The configuration of a cluster, and the state that its running daemon reports.

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::GtidSet;

/// Preference for a server as the new primary. The best preference is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promotion {
    /// The server is preferred to others.
    Prefer,
    /// The server is used if no other server is preferred.
    #[default]
    Neutral,
    /// The server is used only if no other server can be promoted.
    PreferNot,
    /// The server is never promoted.
    MustNot,
}

/// A configured server.
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// Name of the server.
    pub name: String,
    /// Address of the server: `host:port` or a socket path.
    pub address: String,
    /// Preference for the server as the new primary.
    pub promotion: Promotion,
    /// Region of the server, if configured.
    pub region: Option<String>,
}

/// A cluster: a primary, and everything that receives its transactions.
#[derive(Debug, Clone, Default)]
pub struct ClusterPlan {
    /// Name of the `[[source]]`.
    pub name: String,
    /// The server from which the log is captured.
    pub primary: Member,
    /// All other configured servers.
    pub servers: Vec<Member>,
    /// The local relay.
    pub relay: RelayPlan,
    /// Relays of the same source on other machines.
    pub others: Vec<RemoteRelayPlan>,
    /// Targets of the channels that apply the log.
    pub targets: Vec<TargetPlan>,
}

/// A relay: its log, and where replicas can read the log.
#[derive(Debug, Clone, Default)]
pub struct RelayPlan {
    /// The `server_id` of the relay as a replica of the primary.
    pub server_id: u32,
    /// Whether the relay is configured to send semi-sync ACKs.
    pub semi_sync: bool,
    /// The addresses at which the relay serves replicas.
    pub listeners: Vec<ListenerPlan>,
    /// State that the daemon reports; `None` if the daemon does not answer.
    pub state: Option<RelayState>,
}

/// A `[[relay]]`: a relay on another machine.
#[derive(Debug, Clone, Default)]
pub struct RemoteRelayPlan {
    /// Name of the relay.
    pub name: String,
    /// The relay; its state is `None` until it is probed.
    pub relay: RelayPlan,
    /// Why the relay did not answer the probe. `None` if it answered or has not been probed.
    pub silent: Option<String>,
}

/// A `[[serve]]` section of the configuration: an address at which the relay serves replicas.
#[derive(Debug, Clone, Default)]
pub struct ListenerPlan {
    /// Address of the form `host:port`.
    pub address: String,
    /// The `server_id` that replicas see.
    pub server_id: u32,
    /// The `server_uuid` that MySQL replicas see.
    pub uuid: String,
}

/// The state of a relay, as its daemon reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayState {
    /// Whether the relay reads the primary's stream.
    pub is_streaming: bool,
    /// What the relay does, as text. If it is stopped, the text contains the reason.
    pub doing: String,
    /// Time since the relay received the last event or heartbeat of the primary's stream, in milliseconds;
    /// `None` if it received none.
    pub heard_ago_ms: Option<u64>,
    /// The transactions in the relay's log.
    pub gtids: Option<GtidSet>,
    /// Position up to which the log is durable.
    pub durable: String,
    /// Problems that the semi-sync check of the relay has found.
    pub alarms: Vec<String>,
    /// Readers of the relay's log.
    pub readers: Vec<RelayReader>,
}

/// A reader of the log's stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RelayReader {
    /// The `server_id` of the binlog reader; 0 for a program such as mysqlbinlog.
    pub server_id: u32,
    /// The `server_uuid` of the reader, if it sent one.
    pub uuid: Option<String>,
    /// The network address of the reader.
    pub peer: String,
    /// Binlog file and offset of the last event that was sent to the reader.
    pub sent: String,
}

/// A server to which a channel applies the log.
#[derive(Debug, Clone, Default)]
pub struct TargetPlan {
    /// Name of the channel.
    pub channel: String,
    /// Address of the target: `host:port` or a socket path.
    pub address: String,
    /// State that the daemon reports; `None` if the daemon does not answer.
    pub state: Option<TargetState>,
}

/// The state of a channel, as its daemon reports it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TargetState {
    /// State as a word: `running`, `connecting`, `stopped` or `failed`.
    pub doing: String,
    /// Whether the channel applies transactions.
    pub is_running: bool,
    /// Lag in seconds; `None` if unknown.
    pub lag_seconds: Option<f64>,
    /// Why the channel is stopped, if it is.
    pub stopped_because: Option<String>,
    /// The error of the channel, with its code.
    pub fault: Option<String>,
}
