//! Configuration of a `ServerExecutor`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tailwater_session::{Endpoint, PasswordText};
use tailwater_topology::server_probe::ProbeTarget;
use tailwater_topology::{Member, ServerVersion};
use tailwater_wire::Flavour;

use super::channel_control::ChannelControl;
use super::hook_command::{Hook, HookServer};
use super::replication_setup::{ReplicaPosition, ReplicaTls, ReplicationSource};
use crate::action_executor::AckerControl;

/// A server that may become primary or that may get another replication source.
#[derive(Clone)]
pub struct ManagedServer {
    /// The server's name, address and account. The account needs
    /// [`tailwater_session::AccountPurpose::Failover`].
    pub subject: ProbeTarget,
    /// The server's entry in the manager's configuration.
    pub member: Member,
    /// The channel that applies to this server; `None` for a native replica.
    pub feed: Option<Arc<dyn ChannelControl>>,
}

impl ManagedServer {
    /// Returns the description of this server that hooks receive.
    pub fn hook_server(&self) -> HookServer {
        let name = self.subject.name.clone();
        match &self.subject.connect.endpoint {
            Endpoint::Tcp { host, port } => HookServer { name, host: host.clone(), port: *port },
            Endpoint::Unix { path } => HookServer { name, host: path.display().to_string(), port: 0 },
        }
    }
}

/// A relay's log, as a source that replicas can read from.
#[derive(Debug, Clone)]
pub struct RelayEndpoint {
    /// The relay's name as an acker.
    pub name: String,
    /// The address at which the relay serves replicas.
    pub address: ReplicationSource,
}

/// The account that replicas use to read from other servers of the cluster.
#[derive(Debug, Clone, Default)]
pub struct ReplicaAccount {
    /// User name of the account.
    pub user: String,
    /// Password of the account.
    pub password: PasswordText,
    /// TLS mode of the connections between servers.
    pub tls: ReplicaTls,
}

impl ReplicaAccount {
    /// Returns the given server as a replication source; `None` if the server can be reached only through a
    /// socket.
    pub fn at(&self, server: &ManagedServer) -> Option<ReplicationSource> {
        let Endpoint::Tcp { host, port } = &server.subject.connect.endpoint else { return None };
        Some(ReplicationSource {
            host: host.clone(),
            port: *port,
            user: self.user.clone(),
            password: self.password.clone(),
            tls: self.tls.clone(),
            position: ReplicaPosition::default(),
        })
    }
}

/// Time limits of the actions. Hooks have their own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionTimeouts {
    /// Limit for an answer of an acker.
    pub acker: Duration,
    /// Limit for a probe of all servers.
    pub look: Duration,
    /// Limit for a change of a server's settings.
    pub change: Duration,
    /// Limit for a backfill.
    pub supply: Duration,
    /// Time limit for the execution of all transactions that a replica has received.
    pub drain: Duration,
    /// Time limit for repointing a replica to the log, including the drain.
    pub repoint: Duration,
}

impl Default for ActionTimeouts {
    fn default() -> Self {
        Self {
            acker: Duration::from_secs(5),
            look: Duration::from_secs(2),
            change: Duration::from_secs(10),
            supply: Duration::from_secs(60),
            drain: Duration::from_secs(60),
            repoint: Duration::from_secs(60),
        }
    }
}

/// Everything that a server executor needs for one failover or switchover.
#[derive(Clone)]
pub struct ExecutorConfig {
    /// The id of the failover or switchover, which hooks receive.
    pub run: String,
    /// The old primary.
    pub primary: HookServer,
    /// Flavour of the old primary.
    pub flavour: Flavour,
    /// Version of the old primary.
    pub version: ServerVersion,
    /// All servers of the cluster except the old primary.
    pub servers: Vec<ManagedServer>,
    /// The ackers, by name.
    pub ackers: BTreeMap<String, Arc<dyn AckerControl>>,
    /// Relays that serve replicas, the preferred one first.
    pub logs: Vec<RelayEndpoint>,
    /// The account that replicas use to read from other servers.
    pub replica_account: ReplicaAccount,
    /// Fence hooks and route hooks.
    pub hooks: Vec<Hook>,
    /// Time limits of actions.
    pub limits: ActionTimeouts,
}
