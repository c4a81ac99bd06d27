//! Configuration of a server executor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tailwater_session::{Endpoint, PasswordText};
use tailwater_topology::Member;
use tailwater_topology::ServerVersion;
use tailwater_topology::probe::ProbeTarget;
use tailwater_wire::Flavour;

use super::channel_control::ChannelControl;
use super::hook::{Hook, HookServer};
use super::replication::{ReplicaPosition, ReplicaTls, ReplicationSource};
use crate::action_executor::AckerControl;

/// A server that may become primary or change its source.
#[derive(Clone)]
pub struct ManagedServer {
    /// Its name, address and account. The account needs [`tailwater_session::AccountPurpose::Failover`].
    pub subject: ProbeTarget,
    /// Its entry in the configuration.
    pub member: Member,
    /// The channel that feeds it; `None` for a native replica.
    pub feed: Option<Arc<dyn ChannelControl>>,
}

impl ManagedServer {
    /// This server as hooks see it.
    pub fn hook_server(&self) -> HookServer {
        let name = self.subject.name.clone();
        match &self.subject.connect.endpoint {
            Endpoint::Tcp { host, port } => HookServer { name, host: host.clone(), port: *port },
            Endpoint::Unix { path } => HookServer { name, host: path.display().to_string(), port: 0 },
        }
    }
}

/// A relay's log as a replication source.
#[derive(Debug, Clone)]
pub struct RelayEndpoint {
    /// The relay's name as an acker.
    pub name: String,
    /// The address at which it serves replicas.
    pub address: ReplicationSource,
}

/// The account that replicas use to read from other servers of the cluster.
#[derive(Debug, Clone, Default)]
pub struct ReplicaAccount {
    /// User name.
    pub user: String,
    /// Password.
    pub password: PasswordText,
    /// TLS mode of these connections.
    pub tls: ReplicaTls,
}

impl ReplicaAccount {
    /// The given server as a replication source; `None` if it is reached only through a socket.
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

/// Time limits of actions. Hooks have their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionTimeouts {
    /// For an answer of an acker.
    pub acker: Duration,
    /// For a probe of all servers.
    pub look: Duration,
    /// For a change of a server's settings.
    pub change: Duration,
    /// For a backfill.
    pub supply: Duration,
    /// For the execution of all received transactions.
    pub drain: Duration,
    /// For a replica to read from the log, including its drain.
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

/// Everything that a server executor needs for one run.
#[derive(Clone)]
pub struct ExecutorConfig {
    /// The run's id, for hooks.
    pub run: String,
    /// The old primary.
    pub primary: HookServer,
    /// Flavour of the old primary.
    pub flavour: Flavour,
    /// Version of the old primary.
    pub version: ServerVersion,
    /// The other servers.
    pub servers: Vec<ManagedServer>,
    /// The ackers, by name.
    pub ackers: BTreeMap<String, Arc<dyn AckerControl>>,
    /// Relays that serve replicas, the preferred one first.
    pub logs: Vec<RelayEndpoint>,
    /// The account that replicas use between servers.
    pub replica_account: ReplicaAccount,
    /// Fence hooks and route hooks.
    pub hooks: Vec<Hook>,
    /// Time limits of actions.
    pub limits: ActionTimeouts,
}
