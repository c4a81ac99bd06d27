//! The interface between the daemon and its front ends: the control socket, HTTP and metrics.
//!
//! - [`Control`]: snapshots, notifications of changes, commands.
//! - `daemon_state`: the captures, channels and the manager of this process.
//! - `command_dispatch`: executes commands.
//! - `connection_scoped_commands`: commands whose effect lasts until a connection ends.

mod command_dispatch;
mod connection_scoped_commands;
mod daemon_state;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tailwater_binlog_server::StreamReaders;
use tailwater_config::SectionInForce;
use tailwater_topology::RelayPlan;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::captures::{CaptureSnapshot, FollowedServer, SegmentSnapshot};
use crate::api::channels::ChannelSnapshot;
use crate::api::clusters::{ClusterSnapshot, ClusterView, ManagerSnapshot};
use crate::api::configuration_reloads::ReloadReport;
use crate::api::daemon_requests::{CommandError, CommandErrorKind, ControlAnswer, ControlCommand};
use crate::api::daemon_snapshot::DaemonSnapshot;
use crate::cluster_prober::ClusterObserver;
use crate::configuration_reload::ConfigurationReload;
use crate::manager::manager_startup::OWN_RELAY;
use crate::monitoring::Readings;
use crate::options_from_config;

pub use connection_scoped_commands::ControlSession;
pub use daemon_state::{DaemonState, SourceHandle};

/// How long the computed topology tree of a cluster is reused for snapshots. Without reuse, each of the
/// frequent checks of load balancers would compute the tree.
const TREE_AGE_MAX: Duration = Duration::from_millis(100);

/// A counter of changes of the daemon's state.
#[derive(Debug, Clone, Default)]
pub struct ChangeCounter(Arc<watch::Sender<u64>>);

impl ChangeCounter {
    /// Counts one change.
    pub fn count(&self) {
        self.0.send_modify(|changes| *changes = changes.wrapping_add(1));
    }
}

/// The daemon's interface for its front ends.
#[derive(Debug, Default)]
pub struct Control {
    state: DaemonState,
    clusters: Vec<ObservedCluster>,
    changes: ChangeCounter,
    /// When the daemon started.
    started: Option<Instant>,
    /// Reloads the configuration; empty in tests.
    configuration: OnceLock<Arc<ConfigurationReload>>,
    /// Tasks that count the changes of channels.
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct ObservedCluster {
    observer: ClusterObserver,
    tree: Mutex<Option<Arc<CachedTree>>>,
}

/// The parts of a cluster's snapshot that take long to compute.
#[derive(Debug)]
struct CachedTree {
    made: Instant,
    /// Whether all probes were recent when the tree was computed.
    is_fresh: bool,
    followed: FollowedServer,
    view: ClusterView,
    relay_silence_ms: BTreeMap<String, Option<u64>>,
    manager: Option<ManagerSnapshot>,
}

impl Control {
    /// Creates the interface to `state`. `observers` probe the clusters and count their probes in `changes`.
    /// Must be called within a tokio runtime.
    pub fn new(state: DaemonState, observers: Vec<ClusterObserver>, changes: ChangeCounter) -> Self {
        let mut tasks = JoinSet::new();
        for (channel, _) in state.channels.values() {
            let (mut status, changes) = (channel.status(), changes.clone());
            tasks.spawn(async move {
                while status.changed().await.is_ok() {
                    changes.count();
                }
            });
        }
        let clusters =
            observers.into_iter().map(|observer| ObservedCluster { observer, tree: Mutex::new(None) });
        Self {
            state,
            clusters: clusters.collect(),
            changes,
            started: Some(Instant::now()),
            configuration: OnceLock::new(),
            _tasks: tasks,
        }
    }

    /// Returns the present state. It queries no server; [`Control::keep_probed`] requests probes.
    pub fn snapshot(&self) -> DaemonSnapshot {
        let (captures, channels) = (self.state.captures(), self.state.channels());
        let clusters =
            self.clusters.iter().map(|cluster| cluster.snapshot(&self.state, &captures, &channels));
        let Readings { log_disk, backups, drift_checks } = self.state.monitor.readings();
        let (clusters, jobs) = (clusters.collect(), self.state.jobs.running());
        let file_faults = self.state.file_faults.list();
        let prefetches = self.state.prefetches();
        DaemonSnapshot {
            clusters,
            captures,
            channels,
            prefetches,
            log_disk,
            backups,
            drift_checks,
            jobs,
            file_faults,
        }
    }

    /// Returns the number of changes so far: probes of servers and relays, changes of channels, and reports
    /// of jobs. The receiver is notified of each change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.0.subscribe()
    }

    /// Executes a command.
    ///
    /// # Errors
    /// [`CommandError`] if the command was not executed, or if it is unknown whether it was executed.
    pub async fn execute(&self, command: ControlCommand) -> Result<ControlAnswer, CommandError> {
        command_dispatch::execute(self, command).await
    }

    /// Starts a session, for commands whose effect lasts until the session ends.
    pub fn session(self: &Arc<Self>) -> ControlSession {
        ControlSession::new(Arc::clone(self))
    }

    /// Whether all servers and relays of the cluster of `server` or `source` were probed recently. If
    /// `server` and `source` are absent, whether the servers and relays of all clusters were probed recently.
    pub fn is_probed(&self, server: Option<&str>, source: Option<&str>) -> bool {
        let observers = self.clusters.iter().map(|cluster| &cluster.observer);
        let mut named = observers.filter(|one| {
            source.is_none_or(|source| one.wiring().plan.name == source)
                && server.is_none_or(|server| one.has_server(server))
        });
        named.all(ClusterObserver::is_fresh)
    }

    /// Requests probes, and waits until the probes of the cluster of a server or source are recent, at most
    /// for `max`. While clients send requests regularly, the probes are always recent and nothing waits.
    pub async fn keep_probed(&self, server: Option<&str>, source: Option<&str>, max: Duration) {
        let mut changes = self.subscribe();
        self.clusters.iter().for_each(|cluster| cluster.observer.request());
        let fresh = async { while !self.is_probed(server, source) && changes.changed().await.is_ok() {} };
        // A server whose probe takes longer counts as not probed.
        let _ = tokio::time::timeout(max, fresh).await;
    }

    /// Sets how the configuration is reloaded. Only the first call counts.
    pub fn set_reload(&self, reload: ConfigurationReload) {
        let _ = self.configuration.set(Arc::new(reload));
    }

    /// Reads the configuration again, and applies what can change live.
    ///
    /// # Errors
    /// If the new configuration is refused; the present settings then stay.
    pub async fn reload(&self) -> Result<ReloadReport, CommandError> {
        match self.configuration.get() {
            Some(reload) => reload.reload(self).await,
            None => Err(CommandError {
                kind: CommandErrorKind::Failed,
                code: None,
                message: "this daemon has no configuration file to reload".to_owned(),
            }),
        }
    }

    /// The settings in force, without secrets; none if the daemon has no configuration file.
    pub async fn settings(&self) -> Vec<SectionInForce> {
        match self.configuration.get() {
            Some(reload) => reload.settings().await,
            None => Vec::new(),
        }
    }

    /// The segments of a source's log, the oldest first, with archived segments that this machine no longer
    /// has; `None` if there is no such source. Blocks, because it may query the archive.
    pub fn segments(&self, source: &str) -> Option<Vec<SegmentSnapshot>> {
        let log = &self.state.sources.get(source)?.log;
        let folder = log.path();
        let segments = log.segments().into_iter().map(|segment| SegmentSnapshot {
            number: segment.number,
            source_file: segment.source_file,
            source_offset: segment.source_offset,
            server_id: segment.source.server_id,
            server_version: segment.source.server_version,
            epoch: segment.epoch,
            bytes: segment.bytes,
            is_sealed: segment.sealed,
            is_local: segment.path.starts_with(&folder),
        });
        Some(segments.collect())
    }

    /// Returns the time since the daemon started.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.map(|started| started.elapsed()).unwrap_or_default()
    }

    /// Returns the folder of the logs.
    pub(crate) fn log_directory(&self) -> Option<PathBuf> {
        let source = self.state.sources.values().next()?;
        source.log.path().parent().map(Path::to_owned)
    }

    /// Returns the binlog servers: for each one, the name of its source, the address at which it listens, and
    /// its readers.
    pub(crate) fn binlog_servers(&self) -> impl Iterator<Item = (&str, &str, &StreamReaders)> {
        self.clusters.iter().flat_map(|cluster| {
            let plan = &cluster.observer.wiring().plan;
            let readers = self.state.sources.get(&plan.name).map_or(&[][..], |source| &source.readers);
            // The listeners and their readers are both in the order of the configuration.
            let listeners = plan.relay.listeners.iter().zip(readers);
            listeners.map(|(listener, readers)| (plan.name.as_str(), listener.address.as_str(), readers))
        })
    }

    /// Returns the captures, the channels and the manager.
    pub fn state(&self) -> &DaemonState {
        &self.state
    }
}

impl ObservedCluster {
    fn snapshot(
        &self,
        state: &DaemonState,
        captures: &[CaptureSnapshot],
        channels: &[ChannelSnapshot],
    ) -> ClusterSnapshot {
        let wiring = self.observer.wiring();
        let source = &wiring.plan.name;
        let capture = captures.iter().find(|capture| capture.report.source == *source);
        let followed = capture.map_or_else(
            || FollowedServer {
                server: wiring.own.clone(),
                withheld: Some(format!("source {source} is not captured here")),
            },
            |capture| capture.followed.clone(),
        );
        let tree = self.tree(state, captures, channels, &followed);
        ClusterSnapshot {
            source: source.clone(),
            own: wiring.own.clone(),
            followed,
            servers: self.observer.servers(),
            stale_after_ms: self.observer.stale_after_ms(),
            view: tree.view.clone(),
            relay_silence_ms: tree.relay_silence_ms.clone(),
            manager: tree.manager.clone(),
        }
    }

    fn tree(
        &self,
        state: &DaemonState,
        captures: &[CaptureSnapshot],
        channels: &[ChannelSnapshot],
        followed: &FollowedServer,
    ) -> Arc<CachedTree> {
        let mut cached = self.tree.lock();
        let is_fresh = self.observer.is_fresh();
        let is_valid = |tree: &&Arc<CachedTree>| {
            tree.followed == *followed && tree.made.elapsed() < TREE_AGE_MAX && (tree.is_fresh || !is_fresh)
        };
        if let Some(tree) = cached.as_ref().filter(is_valid) {
            return Arc::clone(tree);
        }
        let made = Instant::now();
        let mut wired = self.observer.wiring().with_primary(&followed.server);
        let reports: Vec<_> = captures.iter().map(|capture| capture.report.clone()).collect();
        let statuses: Vec<_> = channels.iter().map(|channel| channel.status.clone()).collect();
        options_from_config::set_states(std::slice::from_mut(&mut wired), &reports, &statuses);
        self.observer.set_relay_states(&mut wired);
        let silence_ms = |relay: &RelayPlan| relay.state.as_ref().and_then(|state| state.heard_ago_ms);
        let others = wired.plan.others.iter().map(|other| (other.name.clone(), silence_ms(&other.relay)));
        let own = (OWN_RELAY.to_owned(), silence_ms(&wired.plan.relay));
        let relay_silence_ms = others.chain([own]).collect();
        let manager = state.manager_snapshot(&wired.plan.name);
        let readiness = manager.as_ref().map(|manager| manager.report.readiness.clone());
        let view = ClusterView::of(&wired, &self.observer.observations(), readiness);
        let tree = Arc::new(CachedTree {
            made,
            is_fresh,
            followed: followed.clone(),
            view,
            relay_silence_ms,
            manager,
        });
        *cached = Some(Arc::clone(&tree));
        tree
    }
}
