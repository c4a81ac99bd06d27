//! Starts the manager of the configuration.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tailwater_capture::{CaptureAcker, CaptureStatus};
use tailwater_log::LogHandle;
use tailwater_manager::actions::executor_config::{
    ActionTimeouts, ExecutorConfig, ManagedServer, RelayEndpoint, ReplicaAccount,
};
use tailwater_manager::actions::replication_setup::{ReplicaTls, ReplicationSource};
use tailwater_manager::actions::{Hook, ServerExecutor};
use tailwater_manager::candidates::GtidOrigin;
use tailwater_manager::cluster_watch::cluster_state::gtid_origin;
use tailwater_manager::cluster_watch::{ClusterState, WatchedRelay};
use tailwater_manager::failover_driver::AuditFolder;
use tailwater_manager::lease::{LeaseHandle, TERM_FLOOR_KEY};
use tailwater_session::PasswordText;
use tailwater_topology::ServerVersion;

use super::automatic_rejoin::rejoin_former_primaries;
use super::client_requests::Manager;
use super::etcd_audit_records::SharedAudits;
use super::lease_from_config;
use super::local_relay_acker::LocalAcker;
use super::managed_cluster::{ClusterParts, ManagedCluster, TermFloor};
use super::persisted_failover_guard::PersistedGuard;
use super::promotable_channel_targets::ChannelControls;
use super::relay_probes::LocalRelayProbe;
use super::remote_relay_acker::RemoteRelay;
use super::watch_checkpoint_file::WatchCheckpointFile;
use crate::cluster_prober::ClusterObserver;
use crate::jobs::job_service::JobService;
use crate::options_from_config::{self, ClusterWiring};
use tailwater_config::{
    Config, HookConfig, ManagerConfig, RelayConfig, ServeConfig, ServeTlsConfig, SourceConfig,
};

/// The name of this daemon's own relay, as an acker of a source and as a log that replicas read from.
pub const OWN_RELAY: &str = "tailwater";

/// A capture of this process.
#[derive(Debug, Clone)]
pub struct LocalCapture {
    /// The source's name.
    pub source: String,
    /// Takes orders to the capture.
    pub acker: CaptureAcker,
    /// The capture's status.
    pub status: Arc<CaptureStatus>,
    /// The capture's log.
    pub log: LogHandle,
}

/// Starts the manager, if the configuration has one. `observers` probe the clusters. Must be called within a
/// tokio runtime.
///
/// # Errors
/// If a file cannot be read, or the configuration contradicts itself.
pub fn start(
    config: &Config,
    captures: &[LocalCapture],
    channels: &ChannelControls,
    observers: &[ClusterObserver],
    jobs: &JobService,
) -> anyhow::Result<Option<Manager>> {
    let Some(manager_config) = &config.manager else { return Ok(None) };
    let name = manager_config.name.clone().unwrap_or_else(own_name);
    let mut manager = Manager::default();
    for source in &config.sources {
        let capture = captures.iter().find(|capture| capture.source == source.name);
        let capture = capture.with_context(|| format!("source {} is not captured", source.name))?;
        let observer = observers.iter().find(|observer| observer.wiring().plan.name == source.name);
        let observer = observer.with_context(|| format!("source {} has no cluster", source.name))?;
        let setup =
            ClusterSetup { config, manager_config, source, capture, channels, observer, jobs, name: &name };
        setup
            .start(&mut manager)
            .with_context(|| format!("cannot start the manager of source {}", source.name))?;
    }
    Ok(Some(manager))
}

/// What is needed to start the manager of one cluster.
struct ClusterSetup<'a> {
    config: &'a Config,
    manager_config: &'a ManagerConfig,
    source: &'a SourceConfig,
    capture: &'a LocalCapture,
    channels: &'a ChannelControls,
    observer: &'a ClusterObserver,
    jobs: &'a JobService,
    /// The name of this manager.
    name: &'a str,
}

impl ClusterSetup<'_> {
    fn start(&self, manager: &mut Manager) -> anyhow::Result<()> {
        let (manager_config, source) = (self.manager_config, self.source);
        let folder = self.config.log.directory.join("manager");
        let lease = lease_from_config::start(manager_config, self.name, &folder, &source.name)?;
        let parts = self.parts(&folder, lease.handle())?;
        let (cluster, supervisor) = ManagedCluster::start(parts)?;
        let guarded = Arc::clone(&cluster);
        manager.add_task(tokio::spawn(async move { guarded.follow_guard().await }));
        let checked = Arc::clone(&cluster);
        manager.add_task(tokio::spawn(async move { checked.check_terms_forever().await }));
        let checked = Arc::clone(&cluster);
        manager.add_task(tokio::spawn(async move { checked.check_shared_records_forever().await }));
        if manager_config.rejoin {
            let cluster = Arc::clone(&cluster);
            let rejoin =
                rejoin_former_primaries(self.config.clone(), source.clone(), cluster, self.jobs.clone());
            manager.add_task(tokio::spawn(rejoin));
        }
        manager.add(&source.name, cluster, lease, supervisor);
        Ok(())
    }

    fn parts(&self, folder: &Path, lease: LeaseHandle) -> anyhow::Result<ClusterParts<ServerExecutor>> {
        let (manager_config, source) = (self.manager_config, self.source);
        let etcd_value =
            |key: &str| lease_from_config::etcd_value(manager_config, self.name, &source.name, key);
        let relays = self.relays()?;
        let executor_parts = ExecutorParts::of(self.config, manager_config, source, &relays, self.channels)?;
        let (config, wired) = (self.config.clone(), source.clone());
        let (followed, ordered) = (Arc::clone(&self.capture.status), Arc::clone(&self.capture.status));
        let log = self.capture.log.clone();
        Ok(ClusterParts {
            source: source.name.clone(),
            config: manager_config.clone(),
            manager: self.name.to_owned(),
            wiring: Box::new(move |primary| options_from_config::cluster_led_by(&config, &wired, primary)),
            poller: self.observer.poller(),
            followed: Box::new(move || followed.orders().follows),
            log_origin: Box::new(move || log_origin(&log)),
            relays,
            make_executor: Box::new(move |run, wiring, state| executor_parts.executor(run, wiring, state)),
            channels: self.channels.clone(),
            lease,
            guard: PersistedGuard::open(folder.join(format!("{}.guard", source.name)), etcd_value("guard")?)?,
            records: AuditFolder::new(folder.join(&source.name)),
            shared: etcd_value("run")?.map(|etcd| Arc::new(SharedAudits::new(etcd))),
            term_floor: etcd_value(TERM_FLOOR_KEY)?
                .map(|etcd| TermFloor::new(etcd, Duration::from_millis(manager_config.lease_ttl_ms))),
            checkpoint: WatchCheckpointFile::new(
                folder.join(format!("{}.seen", source.name)),
                Box::new(move || ordered.orders().token),
            ),
        })
    }

    /// Returns all relays that acknowledge the source's commits: this daemon's own relay, and relays on other
    /// machines.
    fn relays(&self) -> anyhow::Result<Vec<WatchedRelay>> {
        let own = WatchedRelay {
            name: OWN_RELAY.to_owned(),
            probe: Arc::new(LocalRelayProbe {
                status: Arc::clone(&self.capture.status),
                acknowledges: self.source.semi_sync,
                own: self.observer.wiring().own.clone(),
            }),
            control: Arc::new(LocalAcker::new(OWN_RELAY, self.capture.acker.clone())),
        };
        // A relay that does not acknowledge commits cannot prove that it has them, so it is left out.
        let mut relays = if self.source.semi_sync { vec![own] } else { Vec::new() };
        for other in self.config.relays.iter().filter(|relay| relay.source == self.source.name) {
            let probe = self.observer.relay_probe(&other.name);
            let probe = probe.with_context(|| format!("relay {} is not probed", other.name))?;
            let control = Arc::new(probe.relay().clone());
            relays.push(WatchedRelay { name: other.name.clone(), probe, control });
        }
        Ok(relays)
    }
}

/// Returns the origin and version of the server whose binlog is at the end of the log.
fn log_origin(log: &LogHandle) -> Option<(GtidOrigin, ServerVersion)> {
    let source = log.source()?;
    let origin = gtid_origin(source.flavour, source.server_uuid.as_deref(), source.server_id)?;
    // Logs of earlier versions of Tailwater have MariaDB's version with the prefix that its greeting has.
    let version = source.server_version.trim_start_matches("5.5.5-");
    Some((origin, ServerVersion::read(version)))
}

/// The parts of executors that do not depend on the primary.
struct ExecutorParts {
    relays: Vec<WatchedRelay>,
    logs: Vec<RelayEndpoint>,
    account: ReplicaAccount,
    hooks: Vec<Hook>,
    limits: ActionTimeouts,
    channels: ChannelControls,
}

impl ExecutorParts {
    fn of(
        config: &Config,
        manager_config: &ManagerConfig,
        source: &SourceConfig,
        relays: &[WatchedRelay],
        channels: &ChannelControls,
    ) -> anyhow::Result<Self> {
        let serves: Vec<_> = config.serves.iter().filter(|serve| serve.source == source.name).collect();
        let account = account(manager_config, &serves)?;
        let own = serves.iter().map(|serve| log(manager_config, serve, &account));
        let others = config.relays.iter().filter(|relay| relay.source == source.name);
        let logs = own.chain(others.filter_map(|relay| remote_log(relay, &account))).collect();
        let catch_up = Duration::from_millis(manager_config.catch_up_ms_max);
        let limits = ActionTimeouts { supply: catch_up, drain: catch_up, ..ActionTimeouts::default() };
        let hooks = manager_config.fence_hooks.iter().chain(&manager_config.route_hooks).map(hook).collect();
        Ok(Self { relays: relays.to_vec(), logs, account, hooks, limits, channels: channels.clone() })
    }

    /// Creates the executor of one failover or switchover, for the present state of the cluster.
    fn executor(
        &self,
        (id, number): (&str, u64),
        wiring: &ClusterWiring,
        cluster_state: &ClusterState,
    ) -> anyhow::Result<ServerExecutor> {
        let known = cluster_state.known_primary();
        let known = known.ok_or_else(|| {
            anyhow!("this manager has never reached the primary, and this relay's log is empty")
        })?;
        let servers = wiring.plan.servers.iter().filter_map(|member| {
            let subject = wiring.followers.iter().find(|subject| subject.name == member.name)?;
            let target = wiring.plan.targets.iter().find(|target| target.address == member.address);
            let feed = target.and_then(|target| self.channels.get(&target.channel)).cloned();
            Some(ManagedServer { subject: subject.clone(), member: member.clone(), feed })
        });
        let primary = ManagedServer {
            subject: wiring.primary.clone(),
            member: wiring.plan.primary.clone(),
            feed: None,
        };
        let ackers = self.relays.iter().map(|relay| (relay.name.clone(), relay.control.in_run(number)));
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

/// Returns the address at which new replicas read a source's log; `None` if the log is not served.
///
/// # Errors
/// If a file with a password cannot be read.
pub fn read_from(config: &Config, source: &SourceConfig) -> anyhow::Result<Option<ReplicationSource>> {
    let manager_config = config.manager.clone().unwrap_or_default();
    let serves: Vec<_> = config.serves.iter().filter(|serve| serve.source == source.name).collect();
    let account = account(&manager_config, &serves)?;
    let log = serves
        .first()
        .filter(|_| !account.user.is_empty())
        .map(|serve| log(&manager_config, serve, &account));
    Ok(log.map(|log| log.address))
}

/// Reads the files that the manager needs. Queries no server.
///
/// # Errors
/// The errors of [`start`].
pub fn check(config: &Config) -> anyhow::Result<()> {
    for source in &config.sources {
        let relays = config.relays.iter().filter(|relay| relay.source == source.name);
        for relay in relays {
            RemoteRelay::of(relay)?;
        }
        let Some(manager_config) = &config.manager else { continue };
        let serves: Vec<_> = config.serves.iter().filter(|serve| serve.source == source.name).collect();
        account(manager_config, &serves)?;
        lease_from_config::check(manager_config)?;
    }
    Ok(())
}

/// Returns the account that repointed replicas use to connect to the log.
fn account(manager_config: &ManagerConfig, serves: &[&ServeConfig]) -> anyhow::Result<ReplicaAccount> {
    let named = |user: String, password: String| ReplicaAccount {
        user,
        password: PasswordText::new(password),
        tls: ReplicaTls::default(),
    };
    if let Some(user) = &manager_config.replica_user {
        let password = match &manager_config.replica_password_file {
            Some(file) => options_from_config::first_line(file)?,
            None => String::new(),
        };
        return Ok(named(user.clone(), password));
    }
    for user in serves.iter().flat_map(|serve| &serve.users) {
        match (&user.password, &user.password_file) {
            (Some(password), _) => return Ok(named(user.name.clone(), password.clone())),
            (None, Some(file)) => {
                return Ok(named(user.name.clone(), options_from_config::first_line(file)?));
            }
            (None, None) => {}
        }
    }
    // Without an account no replica can be repointed to the log, but a promotion needs no account.
    Ok(ReplicaAccount::default())
}

fn log(manager_config: &ManagerConfig, serve: &ServeConfig, account: &ReplicaAccount) -> RelayEndpoint {
    let listeners = match serve.listen.ip() {
        ip if ip.is_unspecified() => own_name(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => ip.to_string(),
    };
    let host = manager_config.replica_host.clone().unwrap_or(listeners);
    let mut address =
        ReplicationSource::new(&host, serve.listen.port(), &account.user, account.password.clone());
    if serve.tls == ServeTlsConfig::Required {
        address.tls = ReplicaTls::Required;
    }
    RelayEndpoint { name: OWN_RELAY.to_owned(), address }
}

/// Returns the address at which replicas read from a relay on another machine, with the account that they
/// use; `None` if the relay has no listener for replicas.
fn remote_log(relay: &RelayConfig, account: &ReplicaAccount) -> Option<RelayEndpoint> {
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

/// Returns the host name of this machine.
fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
