//! One source's cluster: its watch, and its runs, of which there is one at a time.
//!
//! - `runs`: how runs begin, and what follows from their ends. `interrupted_runs`: what they leave. `relay_repoint`: relays that do not follow the primary.
//! - `supervisor`: what the manager does by itself.
//! - `report`: how it all is, for any client that asks. `readiness`: whether a failover would go through. `term_check`:
//!   whether relays obey.

pub(super) mod interrupted_runs;
mod readiness;
mod relay_repoint;
mod report;
mod runs;
mod supervisor;
mod term_check;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use parking_lot::{Mutex, MutexGuard};
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::analysis::FailoverGuard;
use tailwater_manager::candidates::{GtidOrigin, ServerVersion};
use tailwater_manager::cluster_watch::{
    ClusterState, ClusterWatch, ManagerClock, WatchedCluster, WatchedRelay,
};
use tailwater_manager::driver::{AuditError, AuditFolder};
use tailwater_manager::lease::LeaseHandle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tracing::info;

use self::runs::Run;
use self::supervisor::supervise;
use super::channel_controls::ChannelControls;
use super::checkpoint_file::WatchCheckpointFile;
use super::persisted_guard::PersistedGuard;
use super::replacement_history::{Past, past};
use super::shared_audits::SharedAudits;
use crate::config::ManagerConfig;
use crate::wiring::ClusterWiring;

pub use report::{ClusterReport, FindingReport};
pub use runs::PreparedRun;
pub use term_check::TermFloor;

/// Makes what does the acts of the run of that name, for a cluster as it is now.
pub type MakeExecutor<H> = dyn Fn(&str, &ClusterWiring, &ClusterState) -> anyhow::Result<H> + Send + Sync;

/// Who belongs to a cluster that a server leads.
pub type MakeWiring = dyn Fn(Option<&str>) -> anyhow::Result<ClusterWiring> + Send + Sync;

/// What a cluster is managed with.
pub struct ClusterParts<H> {
    /// The source's name.
    pub source: String,
    /// As configured.
    pub config: ManagerConfig,
    /// This manager's name.
    pub manager: String,
    /// Who belongs to it, led by the server of that name; by the one that the log follows if none is given.
    pub wiring: Box<MakeWiring>,
    /// Whom the log follows by order, now; its own source's server if nobody.
    pub followed: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// The server that the log came from last.
    pub log_origin: Box<dyn Fn() -> Option<(GtidOrigin, ServerVersion)> + Send + Sync>,
    /// All relays that acknowledge.
    pub relays: Vec<WatchedRelay>,
    /// Who acts.
    pub hands: Box<MakeExecutor<H>>,
    /// The channels that feed servers which may become primary.
    pub feeds: ChannelControls,
    /// Whether this manager may act.
    pub lease: LeaseHandle,
    /// What holds failovers back.
    pub guard: PersistedGuard,
    /// Where records lie.
    pub records: AuditFolder,
    /// Where other managers find them; nothing if this one is alone.
    pub shared: Option<Arc<SharedAudits>>,
    /// What all terms of the lease are above; nothing if its terms cannot be raised.
    pub above: Option<TermFloor>,
    /// Where lies what the manager that comes behind this one may have to know.
    pub memory: WatchCheckpointFile,
}

/// A cluster that is managed; it no longer is when this is dropped.
pub struct ManagedCluster<H> {
    parts: ClusterParts<H>,
    clock: ManagerClock,
    watched: Mutex<Watched>,
    /// The run that is under way, or was the last.
    run: Mutex<Option<Run>>,
    /// Does what the last run left; ended before another begins, which may stop what this would start.
    finishing: Mutex<Option<AbortHandle>>,
    /// A run of this manager's own was cut off, and nobody has looked at that yet.
    was_cut_off: AtomicBool,
    /// Relays that refuse this manager, each with why.
    refusing: watch::Sender<Vec<String>>,
    /// Told whenever another primary is watched.
    recast: watch::Sender<u64>,
    /// Told whenever a run begins that may change something.
    begun: watch::Sender<u64>,
}

struct Watched {
    watch: Arc<ClusterWatch>,
    wiring: ClusterWiring,
}

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    /// Takes over what other managers are told, for as long as it runs.
    pub async fn follow_guard(&self) {
        self.parts.guard.follow(&self.parts.source).await;
    }

    /// Begins to watch, and to act by itself if that is configured; on a runtime.
    ///
    /// # Errors
    /// If it is not known who belongs to the cluster.
    pub fn start(parts: ClusterParts<H>) -> anyhow::Result<(Arc<Self>, JoinHandle<()>)> {
        let clock = ManagerClock::start();
        parts.guard.begin_at(clock.now_ms());
        let watched = watch_now(&parts, None, clock)?;
        if let Some((memory, ago_ms)) = parts.memory.read(&watched.wiring.primary.name) {
            info!(source = parts.source, ago_ms, "the manager before this one has looked at the primary");
            watched.watch.restore_checkpoint(memory, ago_ms);
        }
        let cluster = Arc::new(Self {
            parts,
            clock,
            watched: Mutex::new(watched),
            run: Mutex::new(None),
            finishing: Mutex::new(None),
            was_cut_off: AtomicBool::new(false),
            refusing: watch::Sender::default(),
            recast: watch::Sender::new(0),
            begun: watch::Sender::new(0),
        });
        let (supervised, leading) =
            (supervise(Arc::clone(&cluster)), relay_repoint::lead(Arc::clone(&cluster)));
        let rehearsing = readiness::rehearse_for_ever(Arc::clone(&cluster));
        let supervisor = tokio::spawn(async move {
            tokio::join!(supervised, leading, rehearsing);
        });
        Ok((cluster, supervisor))
    }

    /// Watches the cluster with another primary from now on.
    fn watch_primary(&self, primary: Option<&str>) -> anyhow::Result<()> {
        let watched = watch_now(&self.parts, primary, self.clock)?;
        *self.watched() = watched;
        self.recast.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Changes what holds failovers back. Moments are of the manager's clock: it is given its present one.
    ///
    /// # Errors
    /// As [`PersistedGuard::change`].
    pub async fn change_guard(&self, change: impl Fn(&mut FailoverGuard, u64)) -> anyhow::Result<()> {
        let now_ms = self.clock.now_ms();
        self.parts.guard.change(|guard| change(guard, now_ms)).await?;
        self.watched().watch.reanalyse();
        Ok(())
    }

    /// Whether a server or relay of that name belongs to it.
    pub fn knows(&self, name: &str) -> bool {
        let watched = self.watched();
        let wiring = &watched.wiring;
        let mut servers = wiring.followers.iter().chain([&wiring.primary]);
        servers.any(|server| server.name == name) || self.parts.relays.iter().any(|relay| relay.name == name)
    }

    /// Where the records of its runs lie.
    pub fn records(&self) -> &AuditFolder {
        &self.parts.records
    }

    /// How this server was replaced last, `leader` being the present primary.
    pub fn past_of(&self, server: &str, leader: &str) -> Past {
        let records = &self.parts.records;
        let read = || -> Result<Vec<_>, AuditError> {
            let names = records.list()?;
            names.iter().rev().filter_map(|id| records.load(id).transpose()).collect()
        };
        match read() {
            Ok(newest_first) => past(server, leader, newest_first.into_iter()),
            Err(error) => Past::Unknown(format!("a record cannot be read: {error}")),
        }
    }

    /// Whether a run was left half done, by this manager or the one before it, or nobody can tell: who leads is not certain before it
    /// is undone or finished.
    pub fn is_half_way(&self) -> bool {
        interrupted_runs::is_half_way(&self.parts)
    }

    /// What was heard of everybody, for whoever answers for the cluster.
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

/// Whose stream the watch counts on, and who is looked at.
fn watch_now<H>(
    parts: &ClusterParts<H>,
    primary: Option<&str>,
    clock: ManagerClock,
) -> anyhow::Result<Watched> {
    let wiring = (parts.wiring)(primary).context("who belongs to the cluster")?;
    let cluster = WatchedCluster {
        plan: wiring.plan.clone(),
        followers: wiring.followers.iter().map(|subject| subject.name.clone()).collect(),
        ackers: parts.relays.iter().map(|relay| relay.name.clone()).collect(),
        log_origin: (parts.log_origin)(),
    };
    let watch = ClusterWatch::start(
        cluster,
        (wiring.primary.clone(), wiring.followers.clone()),
        parts.relays.clone(),
        (parts.config.analysis, parts.config.pace),
        (parts.guard.shared(), clock),
        &parts.manager,
    );
    Ok(Watched { watch: Arc::new(watch), wiring })
}
