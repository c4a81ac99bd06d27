//! The configuration and the captures of this process become a manager.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tailwater_capture::{CaptureAcker, CaptureStatus};
use tailwater_log::LogHandle;
use tailwater_manager::actions::executor_config::{
    ActionTimeouts, ExecutorConfig, ManagedServer, RelayEndpoint, ReplicaAccount,
};
use tailwater_manager::actions::replication::{ReplicaTls, ReplicationSource};
use tailwater_manager::actions::{Hook, ServerExecutor};
use tailwater_manager::candidates::{GtidOrigin, ServerVersion};
use tailwater_manager::cluster_watch::cluster_state::gtid_origin;
use tailwater_manager::cluster_watch::{ClusterState, WatchedRelay};
use tailwater_manager::driver::AuditFolder;
use tailwater_manager::lease::TERM_FLOOR_KEY;
use tailwater_session::PasswordText;

use super::acker::LocalAcker;
use super::automatic_rejoin::rejoin_former_primaries;
use super::channel_controls::ChannelControls;
use super::checkpoint_file::WatchCheckpointFile;
use super::cluster::{ClusterParts, ManagedCluster, TermFloor};
use super::lease_config;
use super::persisted_guard::PersistedGuard;
use super::relay_probes::{LocalRelayProbe, RemoteRelayProbe, ServerNames};
use super::remote::RemoteRelay;
use super::requests::Manager;
use super::shared_audits::SharedAudits;
use crate::config::{
    Config, HookConfig, ManagerConfig, RelayConfig, ServeConfig, ServeTlsConfig, SourceConfig,
};
use crate::wiring::{self, ClusterWiring};

/// What this daemon's own relay is called among the ackers of a source, and as a log that replicas read.
pub const OWN_RELAY: &str = "tailwater";

/// A capture of this process.
#[derive(Debug, Clone)]
pub struct LocalCapture {
    /// The source's name.
    pub source: String,
    /// To give it orders.
    pub acker: CaptureAcker,
    /// How it is.
    pub status: Arc<CaptureStatus>,
    /// Its log.
    pub log: LogHandle,
}

/// Starts the manager of the configuration, if it has one; on a runtime.
///
/// # Errors
/// If a file of it cannot be read, or the configuration contradicts itself.
pub fn start(
    config: &Config,
    captures: &[LocalCapture],
    feeds: &ChannelControls,
) -> anyhow::Result<Option<Manager>> {
    let Some(managing) = &config.manager else { return Ok(None) };
    let name = managing.name.clone().unwrap_or_else(own_name);
    let mut manager = Manager::default();
    for source in &config.sources {
        let capture = captures.iter().find(|capture| capture.source == source.name);
        let capture = capture.with_context(|| format!("source {} is not captured", source.name))?;
        let begun = start_cluster(config, managing, (source, capture), feeds, &name, &mut manager);
        begun.with_context(|| format!("the manager of source {}", source.name))?;
    }
    Ok(Some(manager))
}

fn start_cluster(
    config: &Config,
    managing: &ManagerConfig,
    (source, capture): (&SourceConfig, &LocalCapture),
    feeds: &ChannelControls,
    name: &str,
    manager: &mut Manager,
) -> anyhow::Result<()> {
    let folder = config.log.directory.join("manager");
    let lease = lease_config::start(managing, name, &folder, &source.name)?;
    let relays = relays(config, source, capture)?;
    let acting = ExecutorParts::of(config, managing, source, &relays, feeds)?;
    let (of, wired) = (config.clone(), source.clone());
    let parts = ClusterParts {
        source: source.name.clone(),
        config: managing.clone(),
        manager: name.to_owned(),
        wiring: Box::new(move |leader| wiring::cluster_led_by(&of, &wired, leader)),
        followed: {
            let status = Arc::clone(&capture.status);
            Box::new(move || status.orders().follows)
        },
        log_origin: Box::new({
            let log = capture.log.clone();
            move || log_origin(&log)
        }),
        relays,
        hands: Box::new(move |id, wiring, cluster_state| acting.actor(id, wiring, cluster_state)),
        feeds: feeds.clone(),
        lease: lease.handle(),
        guard: PersistedGuard::open(
            folder.join(format!("{}.guard", source.name)),
            lease_config::beside(managing, name, &source.name, "guard")?,
        )?,
        records: AuditFolder::new(folder.join(&source.name)),
        shared: lease_config::beside(managing, name, &source.name, "run")?
            .map(|etcd| Arc::new(SharedAudits::new(etcd))),
        above: lease_config::beside(managing, name, &source.name, TERM_FLOOR_KEY)?
            .map(|etcd| TermFloor::new(etcd, Duration::from_millis(managing.lease_ttl_ms))),
        memory: {
            let status = Arc::clone(&capture.status);
            let path = folder.join(format!("{}.seen", source.name));
            WatchCheckpointFile::new(path, Box::new(move || status.orders().token))
        },
    };
    let (cluster, supervisor) = ManagedCluster::start(parts)?;
    let following = Arc::clone(&cluster);
    manager.accompany(tokio::spawn(async move { following.follow_guard().await }));
    let following = Arc::clone(&cluster);
    manager.accompany(tokio::spawn(async move { following.follow_terms().await }));
    if managing.rejoin {
        let rejoin = rejoin_former_primaries(config.clone(), source.clone(), Arc::clone(&cluster));
        manager.accompany(tokio::spawn(rejoin));
    }
    manager.add(&source.name, cluster, lease, supervisor);
    Ok(())
}

/// What the log says of the server that it came from last.
fn log_origin(log: &LogHandle) -> Option<(GtidOrigin, ServerVersion)> {
    let source = log.source()?;
    let origin = gtid_origin(source.flavour, source.server_uuid.as_deref(), source.server_id)?;
    // Logs of earlier versions have MariaDB's version as its greeting spells it.
    let version = source.server_version.trim_start_matches("5.5.5-");
    Some((origin, ServerVersion::read(version)))
}

/// All that acknowledge a source's commits: this daemon's own relay, and those on other machines.
fn relays(
    config: &Config,
    source: &SourceConfig,
    capture: &LocalCapture,
) -> anyhow::Result<Vec<WatchedRelay>> {
    let wiring = wiring::cluster_led_by(config, source, None)?;
    let names = ServerNames::of(&wiring);
    let own = WatchedRelay {
        name: OWN_RELAY.to_owned(),
        probe: Arc::new(LocalRelayProbe {
            status: Arc::clone(&capture.status),
            acknowledges: source.semi_sync,
            own: wiring.own,
        }),
        control: Arc::new(LocalAcker::new(OWN_RELAY, capture.acker.clone())),
    };
    // One that does not acknowledge is no acker, and proves nothing.
    let mut relays = if source.semi_sync { vec![own] } else { Vec::new() };
    for other in config.relays.iter().filter(|relay| relay.source == source.name) {
        let remote = RemoteRelay::of(other)?;
        relays.push(WatchedRelay {
            name: other.name.clone(),
            probe: Arc::new(RemoteRelayProbe { relay: remote.clone(), names: names.clone() }),
            control: Arc::new(remote),
        });
    }
    Ok(relays)
}

/// What acts are done with, whoever leads.
struct ExecutorParts {
    relays: Vec<WatchedRelay>,
    logs: Vec<RelayEndpoint>,
    account: ReplicaAccount,
    hooks: Vec<Hook>,
    limits: ActionTimeouts,
    feeds: ChannelControls,
}

impl ExecutorParts {
    fn of(
        config: &Config,
        managing: &ManagerConfig,
        source: &SourceConfig,
        relays: &[WatchedRelay],
        feeds: &ChannelControls,
    ) -> anyhow::Result<Self> {
        let serves: Vec<_> = config.serves.iter().filter(|serve| serve.source == source.name).collect();
        let account = account(managing, &serves)?;
        let own = serves.iter().map(|serve| log(managing, serve, &account));
        let others = config.relays.iter().filter(|relay| relay.source == source.name);
        let logs = own.chain(others.filter_map(|relay| log_there(relay, &account))).collect();
        let catch_up = Duration::from_millis(managing.catch_up_ms_max);
        let limits = ActionTimeouts { supply: catch_up, drain: catch_up, ..ActionTimeouts::default() };
        let hooks = managing.fence_hooks.iter().chain(&managing.route_hooks).map(hook).collect();
        Ok(Self { relays: relays.to_vec(), logs, account, hooks, limits, feeds: feeds.clone() })
    }

    /// Who acts in one run, on the cluster as it is then.
    fn actor(
        &self,
        id: &str,
        wiring: &ClusterWiring,
        cluster_state: &ClusterState,
    ) -> anyhow::Result<ServerExecutor> {
        let known = cluster_state.known_primary();
        let known = known.ok_or_else(|| {
            anyhow!("the primary was never seen alive by this manager, and its log is empty")
        })?;
        let servers = wiring.plan.servers.iter().filter_map(|member| {
            let subject = wiring.followers.iter().find(|subject| subject.name == member.name)?;
            let target = wiring.plan.targets.iter().find(|target| target.address == member.address);
            let feed = target.and_then(|target| self.feeds.get(&target.channel)).cloned();
            Some(ManagedServer { subject: subject.clone(), member: member.clone(), feed })
        });
        let primary = ManagedServer {
            subject: wiring.primary.clone(),
            member: wiring.plan.primary.clone(),
            feed: None,
        };
        let ackers = self.relays.iter().map(|relay| (relay.name.clone(), Arc::clone(&relay.control)));
        Ok(ServerExecutor::new(ExecutorConfig {
            run: id.to_owned(),
            primary: primary.hook_server(),
            flavour: known.origin.flavour(),
            version: known.version,
            servers: servers.collect(),
            ackers: ackers.collect::<BTreeMap<_, _>>(),
            logs: self.logs.clone(),
            replica_account: self.account.clone(),
            hooks: self.hooks.clone(),
            limits: self.limits,
        })
        .with_primary(primary))
    }
}

/// Where servers that become replicas read a source's log; nothing if nobody serves it.
///
/// # Errors
/// If a file with a password cannot be read.
pub fn read_from(config: &Config, source: &SourceConfig) -> anyhow::Result<Option<ReplicationSource>> {
    let managing = config.manager.clone().unwrap_or_default();
    let serves: Vec<_> = config.serves.iter().filter(|serve| serve.source == source.name).collect();
    let account = account(&managing, &serves)?;
    let log =
        serves.first().filter(|_| !account.user.is_empty()).map(|serve| log(&managing, serve, &account));
    Ok(log.map(|log| log.address))
}

/// Reads what the manager needs from files, without asking anybody.
///
/// # Errors
/// As [`start`].
pub fn check(config: &Config) -> anyhow::Result<()> {
    for source in &config.sources {
        let relays = config.relays.iter().filter(|relay| relay.source == source.name);
        for relay in relays {
            RemoteRelay::of(relay)?;
        }
        let Some(managing) = &config.manager else { continue };
        let serves: Vec<_> = config.serves.iter().filter(|serve| serve.source == source.name).collect();
        account(managing, &serves)?;
        lease_config::check(managing)?;
    }
    Ok(())
}

/// As whom replicas that are led elsewhere read.
fn account(managing: &ManagerConfig, serves: &[&ServeConfig]) -> anyhow::Result<ReplicaAccount> {
    let named = |user: String, password: String| ReplicaAccount {
        user,
        password: PasswordText::new(password),
        tls: ReplicaTls::default(),
    };
    if let Some(user) = &managing.replica_user {
        let password = match &managing.replica_password_file {
            Some(file) => wiring::first_line(file)?,
            None => String::new(),
        };
        return Ok(named(user.clone(), password));
    }
    for user in serves.iter().flat_map(|serve| &serve.users) {
        match (&user.password, &user.password_file) {
            (Some(password), _) => return Ok(named(user.name.clone(), password.clone())),
            (None, Some(file)) => return Ok(named(user.name.clone(), wiring::first_line(file)?)),
            (None, None) => {}
        }
    }
    // Nobody can be led to the log then; a promotion needs no account.
    Ok(ReplicaAccount::default())
}

fn log(managing: &ManagerConfig, serve: &ServeConfig, account: &ReplicaAccount) -> RelayEndpoint {
    let listeners = match serve.listen.ip() {
        ip if ip.is_unspecified() => own_name(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => ip.to_string(),
    };
    let host = managing.replica_host.clone().unwrap_or(listeners);
    let mut address =
        ReplicationSource::new(&host, serve.listen.port(), &account.user, account.password.clone());
    if serve.tls == ServeTlsConfig::Required {
        address.tls = ReplicaTls::Required;
    }
    RelayEndpoint { name: OWN_RELAY.to_owned(), address }
}

/// Where replicas read from a relay on another machine, if anywhere; as the same account.
fn log_there(relay: &RelayConfig, account: &ReplicaAccount) -> Option<RelayEndpoint> {
    let (host, port) = relay.serves.first()?.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = ReplicationSource::new(host, port.parse().ok()?, &account.user, account.password.clone());
    Some(RelayEndpoint { name: relay.name.clone(), address })
}

fn hook(config: &HookConfig) -> Hook {
    Hook {
        name: config.name.clone(),
        command: config.command.clone(),
        arguments: config.arguments,
        time_limit: Duration::from_millis(config.timeout_ms),
    }
}

/// This machine's name.
fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
