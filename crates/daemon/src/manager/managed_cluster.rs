//! The manager's part for the cluster of one source: it watches the cluster, and runs failovers, switchovers
//! and recoveries, one at a time.
//!
//! - `failover_runs`: starts failovers and switchovers, and handles their ends.
//!   `interrupted_failover_recovery`: undoes or finishes incomplete failovers and switchovers.
//! - `relay_repoint`: repoints relays that do not follow the primary. `lease_term_check`: finds relays that
//!   refuse this manager. `etcd_audit_storage_check`: whether a failover could store its record in etcd.
//! - `automatic_failover`: starts failovers without an operator.
//! - `cluster_report`: the report for clients. `failover_rehearsal`: whether a failover would succeed.

mod automatic_failover;
mod cluster_report;
mod etcd_audit_storage_check;
mod failover_rehearsal;
mod failover_runs;
pub(super) mod interrupted_failover_recovery;
mod lease_term_check;
mod relay_repoint;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use parking_lot::{Mutex, MutexGuard};
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::candidates::GtidOrigin;
use tailwater_manager::cluster_watch::{
    ClusterState, ClusterWatch, ManagerClock, ServerPoller, WatchedCluster, WatchedRelay,
};
use tailwater_manager::failover_driver::{AuditError, AuditFolder};
use tailwater_manager::lease::LeaseHandle;
use tailwater_topology::ServerVersion;
use tailwater_topology::failure_analysis::{AnalysisSettings, FailoverGuard};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tracing::info;

use self::automatic_failover::supervise;
use self::failover_runs::Run;
use super::etcd_audit_records::SharedAudits;
use super::persisted_failover_guard::PersistedGuard;
use super::promotable_channel_targets::ChannelControls;
use super::watch_checkpoint_file::WatchCheckpointFile;
use crate::options_from_config::ClusterWiring;
use tailwater_config::ManagerConfig;
use tailwater_manager::audit_history::{Replacement, last_replacement, with_configured_names};
use tailwater_manager::model::{Audit, NamedServer};

pub use failover_runs::PreparedRun;
pub use lease_term_check::TermFloor;

/// Creates the executor for the failover or switchover of the given name and number, from the present state
/// of a cluster.
pub type MakeExecutor<H> =
    dyn Fn((&str, u64), &ClusterWiring, &ClusterState) -> anyhow::Result<H> + Send + Sync;

/// Returns the servers and relays of the cluster with the given server as primary; if none is given, with the
/// server that the log follows.
pub type MakeWiring = dyn Fn(Option<&str>) -> anyhow::Result<ClusterWiring> + Send + Sync;

/// What the manager of a cluster needs.
pub struct ClusterParts<H> {
    /// The source's name.
    pub source: String,
    /// The manager's configuration.
    pub config: ManagerConfig,
    /// This manager's name.
    pub manager: String,
    /// Returns the cluster with the given server as primary; if none is given, with the server that the log
    /// follows.
    pub wiring: Box<MakeWiring>,
    /// Probes the servers of the cluster.
    pub poller: Arc<ServerPoller>,
    /// Returns the server that an order told the log to follow; `None` if the log follows the source's own
    /// server.
    pub followed: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Returns the origin and version of the server whose binlog is at the end of the log.
    pub log_origin: Box<dyn Fn() -> Option<(GtidOrigin, ServerVersion)> + Send + Sync>,
    /// All relays that acknowledge commits.
    pub relays: Vec<WatchedRelay>,
    /// Creates the executors of failovers and switchovers.
    pub make_executor: Box<MakeExecutor<H>>,
    /// The channels whose targets may become primary.
    pub channels: ChannelControls,
    /// The lease, which decides whether this manager may act.
    pub lease: LeaseHandle,
    /// The guard, which holds failovers back.
    pub guard: PersistedGuard,
    /// The audit records of the cluster's failovers and switchovers.
    pub records: AuditFolder,
    /// The audit records that managers share in etcd; `None` for a single manager.
    pub shared: Option<Arc<SharedAudits>>,
    /// The floor in etcd that all lease terms exceed; `None` if the terms cannot be raised.
    pub term_floor: Option<TermFloor>,
    /// The checkpoint for the next manager process.
    pub checkpoint: WatchCheckpointFile,
}

/// A managed cluster. Dropping this value ends the watch.
pub struct ManagedCluster<H> {
    parts: ClusterParts<H>,
    /// The thresholds of the failure analysis, which a reload of the configuration can change.
    analysis: Mutex<AnalysisSettings>,
    clock: ManagerClock,
    watched: Mutex<Watched>,
    /// The failover or switchover in progress. If there is none, the last failover or switchover.
    run: Mutex<Option<Run>>,
    /// The task that finishes the actions that the last failover or switchover did not complete. It is
    /// cancelled before another failover or switchover begins, because the new failover or switchover may
    /// stop what the task would start.
    finishing: Mutex<Option<AbortHandle>>,
    /// Whether a failover or switchover of this manager was interrupted and has not been examined for
    /// recovery yet.
    was_cut_off: AtomicBool,
    /// The relays that refuse orders of this manager, each with the reason.
    refusing: watch::Sender<Vec<String>>,
    /// Why a failover could not store its audit record in etcd; `None` if it could, or with one manager.
    records_problem: watch::Sender<Option<String>>,
    /// Counts the changes of the watched primary.
    primary_changes: watch::Sender<u64>,
    /// Counts the failovers, switchovers and recoveries that may change something. The relays refuse orders
    /// of an earlier one after orders of a later one.
    runs_begun: watch::Sender<u64>,
}

struct Watched {
    watch: Arc<ClusterWatch>,
    wiring: ClusterWiring,
}

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    /// Keeps reading the guard that managers share, until the future is dropped.
    pub async fn follow_guard(&self) {
        self.parts.guard.follow(&self.parts.source).await;
    }

    /// Starts to watch the cluster, and to fail over automatically if that is configured. Must be called
    /// within a tokio runtime.
    ///
    /// # Errors
    /// If the servers of the cluster cannot be determined.
    pub fn start(parts: ClusterParts<H>) -> anyhow::Result<(Arc<Self>, JoinHandle<()>)> {
        let clock = ManagerClock::start();
        parts.guard.begin_at(clock.now_ms());
        let analysis = parts.config.analysis;
        let watched = start_watch((&parts, analysis), None, clock)?;
        if let Some((checkpoint, ago_ms)) = parts.checkpoint.read(&watched.wiring.primary.name) {
            info!(source = parts.source, ago_ms, "restoring the checkpoint of the previous manager");
            watched.watch.restore_checkpoint(checkpoint, ago_ms);
        }
        let cluster = Arc::new(Self {
            parts,
            analysis: Mutex::new(analysis),
            clock,
            watched: Mutex::new(watched),
            run: Mutex::new(None),
            finishing: Mutex::new(None),
            was_cut_off: AtomicBool::new(false),
            refusing: watch::Sender::default(),
            records_problem: watch::Sender::default(),
            primary_changes: watch::Sender::new(0),
            runs_begun: watch::Sender::new(0),
        });
        let supervising = supervise(Arc::clone(&cluster));
        let repointing = relay_repoint::repoint_forever(Arc::clone(&cluster));
        let rehearsing = failover_rehearsal::rehearse_forever(Arc::clone(&cluster));
        let supervisor = tokio::spawn(async move {
            tokio::join!(supervising, repointing, rehearsing);
        });
        Ok((cluster, supervisor))
    }

    /// Watches the cluster with another server as primary.
    fn watch_primary(&self, primary: Option<&str>) -> anyhow::Result<()> {
        let analysis = *self.analysis.lock();
        let watched = start_watch((&self.parts, analysis), primary, self.clock)?;
        *self.watched() = watched;
        // A reload of the configuration may have changed the thresholds while the watch started, so they are
        // set again.
        let analysis = *self.analysis.lock();
        self.watched().watch.set_settings(analysis);
        self.primary_changes.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Changes the guard. `change` receives the present time of the manager's clock, in milliseconds.
    ///
    /// # Errors
    /// The errors of [`PersistedGuard::change`].
    pub async fn change_guard(&self, change: impl Fn(&mut FailoverGuard, u64)) -> anyhow::Result<()> {
        let now_ms = self.clock.now_ms();
        self.parts.guard.change(|guard| change(guard, now_ms)).await?;
        self.watched().watch.reanalyse();
        Ok(())
    }

    /// Whether the cluster has a server or relay of that name.
    pub fn has_member(&self, name: &str) -> bool {
        let watched = self.watched();
        let wiring = &watched.wiring;
        let mut servers = wiring.followers.iter().chain([&wiring.primary]);
        servers.any(|server| server.name == name) || self.parts.relays.iter().any(|relay| relay.name == name)
    }

    /// Returns the audit records of the cluster's failovers and switchovers.
    pub fn records(&self) -> &AuditFolder {
        &self.parts.records
    }

    /// Returns an audit record with the names that this configuration has for the servers; `None` if there is
    /// no record with this id.
    ///
    /// # Errors
    /// If the audit record cannot be read.
    pub fn load_record(&self, id: &str) -> Result<Option<Audit>, AuditError> {
        let record = self.parts.records.load(id)?;
        Ok(record.map(|record| with_configured_names(record, &named_servers(&self.cluster_state()))))
    }

    /// Returns how this server was last replaced as primary, according to the audit records and the relays.
    /// `leader` is the present primary.
    pub fn past_of(&self, server: &str, leader: &str) -> Replacement {
        let records = &self.parts.records;
        let read = || -> Result<Vec<_>, AuditError> {
            let names = records.list_newest_first()?;
            names.iter().filter_map(|id| self.load_record(id).transpose()).collect()
        };
        match read() {
            Ok(newest_first) => {
                let state = self.cluster_state();
                let assignments = state.relays().values().map(|result| result.assignment.clone());
                last_replacement(server, leader, newest_first, assignments)
            }
            Err(error) => Replacement::Unknown(format!("an audit record cannot be read: {error}")),
        }
    }

    /// Whether a failover or switchover of this or another manager is incomplete, or whether that is unknown.
    /// Until it is undone or finished, it is uncertain which server is the primary.
    pub fn is_half_way(&self) -> bool {
        interrupted_failover_recovery::is_half_way(self)
    }

    /// Sets the thresholds of the failure analysis.
    pub fn set_analysis(&self, analysis: AnalysisSettings) {
        *self.analysis.lock() = analysis;
        self.watched().watch.set_settings(analysis);
    }

    /// Returns the present state of the watched cluster.
    pub fn cluster_state(&self) -> ClusterState {
        self.watched().watch.cluster_state()
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock()
    }

    fn finishing(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.finishing.lock()
    }

    fn lock_run(&self) -> MutexGuard<'_, Option<Run>> {
        self.run.lock()
    }
}

/// Returns the configured servers of the cluster, with the `server_id` of each server that was reached.
fn named_servers(cluster_state: &ClusterState) -> Vec<NamedServer> {
    let plan = &cluster_state.cluster().plan;
    let members = plan.servers.iter().chain([&plan.primary]);
    members
        .map(|member| NamedServer {
            name: member.name.clone(),
            address: member.address.clone(),
            server_id: cluster_state.last_state(&member.name).map(|state| state.server_id),
        })
        .collect()
}

/// Starts to watch the cluster with that primary.
fn start_watch<H>(
    (parts, analysis): (&ClusterParts<H>, AnalysisSettings),
    primary: Option<&str>,
    clock: ManagerClock,
) -> anyhow::Result<Watched> {
    let wiring = (parts.wiring)(primary).context("cannot determine the servers of the cluster")?;
    let cluster = WatchedCluster {
        plan: wiring.plan.clone(),
        followers: wiring.followers.iter().map(|subject| subject.name.clone()).collect(),
        ackers: parts.relays.iter().map(|relay| relay.name.clone()).collect(),
        log_origin: (parts.log_origin)(),
    };
    let watch = ClusterWatch::start(
        cluster,
        (wiring.primary.clone(), Arc::clone(&parts.poller)),
        parts.relays.clone(),
        (analysis, parts.config.pace),
        (parts.guard.shared(), clock),
        &parts.manager,
    );
    Ok(Watched { watch: Arc::new(watch), wiring })
}
