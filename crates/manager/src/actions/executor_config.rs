//! What an actor needs to know of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tailwater_session::{Endpoint, Secret};
use tailwater_wire::Flavour;

use super::channel_control::ChannelControl;
use super::hook::{Hook, HookServer};
use super::replication::{ReplicaPosition, ReplicaTls, ReplicationSource};
use crate::action_executor::AckerControl;
use crate::candidates::ServerVersion;
use crate::probe::ProbeTarget;
use crate::topology::Member;

/// A server that may become primary, or read from another source.
#[derive(Clone)]
pub struct ManagedServer {
    /// Its name, where it is, and who asks. The account needs [`tailwater_session::Purpose::Lead`].
    pub subject: ProbeTarget,
    /// What the configuration says of it.
    pub member: Member,
    /// The channel of Tailwater that feeds it, if one does; absent for a native replica.
    pub feed: Option<Arc<dyn ChannelControl>>,
}

impl ManagedServer {
    /// As hooks are told of it.
    pub fn hook_server(&self) -> HookServer {
        let name = self.subject.name.clone();
        match &self.subject.connect.endpoint {
            Endpoint::Tcp { host, port } => HookServer { name, host: host.clone(), port: *port },
            Endpoint::Unix { path } => HookServer { name, host: path.display().to_string(), port: 0 },
        }
    }
}

/// A relay's log, as native replicas read it.
#[derive(Debug, Clone)]
pub struct RelayEndpoint {
    /// The relay's name, as an acker.
    pub name: String,
    /// Where it serves.
    pub address: ReplicationSource,
}

/// The account that replicas use to read from other servers of the cluster.
#[derive(Debug, Clone, Default)]
pub struct ReplicaAccount {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: Secret,
    /// Whether such connections are encrypted.
    pub tls: ReplicaTls,
}

impl ReplicaAccount {
    /// Reading from a server of the cluster; `None` if that is only reached through a socket.
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

/// How long acts may take; hooks have their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionTimeouts {
    /// An answer of an acker.
    pub acker: Duration,
    /// A look at all servers.
    pub look: Duration,
    /// A change of a server's settings.
    pub change: Duration,
    /// Until a server has got what it lacks.
    pub supply: Duration,
    /// Until a server has executed what it has.
    pub drain: Duration,
    /// Until a replica reads from the log, its draining included.
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

/// All that an actor needs for one failover.
#[derive(Clone)]
pub struct ExecutorConfig {
    /// The run's name, for hooks.
    pub run: String,
    /// The old primary.
    pub primary: HookServer,
    /// Its family.
    pub flavour: Flavour,
    /// Its version.
    pub version: ServerVersion,
    /// The other servers.
    pub servers: Vec<ManagedServer>,
    /// The ackers by name.
    pub ackers: BTreeMap<String, Arc<dyn AckerControl>>,
    /// Where replicas read, the preferred first.
    pub logs: Vec<RelayEndpoint>,
    /// The account that replicas use among servers.
    pub replica_account: ReplicaAccount,
    /// Hooks of both kinds.
    pub hooks: Vec<Hook>,
    /// How long acts may take.
    pub limits: ActionTimeouts,
}
