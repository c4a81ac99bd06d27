//! One source's cluster: its watch, and its runs, of which there is one at a time.

pub(super) mod leftovers;
mod report;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use tailwater_manager::analysis::{Action, Code, Finding, Guard};
use tailwater_manager::choice::{Origin, Version};
use tailwater_manager::driving::{AuditFolder, AuditStore, Confirm, Driver, Limits, Machine, Term};
use tailwater_manager::failover::{Audit, End, Failover, Kind};
use tailwater_manager::hands::Hands;
use tailwater_manager::lease::LeaseHandle;
use tailwater_manager::switchover::Switchover;
use tailwater_manager::watching::{
    Chronicle, Clock, Confirmation, Watch, WatchedCluster, WatchedRelay, Wish,
};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tracing::{error, info, warn};

use self::leftovers::Leftovers;
use super::guarding::KeptGuard;
use super::ordering::{self, FailoverWish, SwitchoverWish};
use super::remembering::MemoryFile;
use super::sharing::{Records, SharedRecords};
use crate::causes::WithCauses;
use crate::config::ManagerConfig;
use crate::wiring::ClusterWiring;

pub use report::{ClusterReport, FindingReport};

/// A failover that the manager began by itself and that did not lead to a new primary is not tried again sooner, in milliseconds.
const AGAIN_MS_MIN: u64 = 10_000;
/// Nor later.
const AGAIN_MS_MAX: u64 = 300_000;

/// Between two questions whom the log follows.
const FOLLOWED_PAUSE: Duration = Duration::from_millis(100);

/// Between two times that what is known is kept.
const REMEMBERED_PAUSE: Duration = Duration::from_secs(1);

/// Makes what does the acts of the run of that name, for a cluster as it is now.
pub type MakeHands<H> = dyn Fn(&str, &ClusterWiring, &Chronicle) -> anyhow::Result<H> + Send + Sync;

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
    pub logged: Box<dyn Fn() -> Option<(Origin, Version)> + Send + Sync>,
    /// All relays that acknowledge.
    pub relays: Vec<WatchedRelay>,
    /// Who acts.
    pub hands: Box<MakeHands<H>>,
    /// Whether this manager may act.
    pub lease: LeaseHandle,
    /// What holds failovers back.
    pub guard: KeptGuard,
    /// Where records lie.
    pub records: AuditFolder,
    /// Where other managers find those of switchovers; nothing if this one is alone.
    pub shared: Option<Arc<SharedRecords>>,
    /// Where lies what the manager that comes behind this one may have to know.
    pub memory: MemoryFile,
}

/// A cluster that is managed; it no longer is when this is dropped.
pub struct ManagedCluster<H> {
    parts: ClusterParts<H>,
    clock: Clock,
    watched: Mutex<Watched>,
    /// The run that is under way, or was the last.
    run: Mutex<Option<Run>>,
    /// Does what the last run left; ended before another begins, which may stop what this would start.
    finishing: Mutex<Option<AbortHandle>>,
    /// A run of this manager's own was cut off, and nobody has looked at that yet.
    was_cut_off: AtomicBool,
    /// Told whenever another primary is watched.
    recast: watch::Sender<u64>,
    /// Told whenever a run begins that may change something.
    begun: watch::Sender<u64>,
}

struct Watched {
    watch: Arc<Watch>,
    wiring: ClusterWiring,
}

struct Run {
    id: String,
    progress: watch::Receiver<Option<Audit>>,
    /// Ends when what follows from the run is done, too.
    task: AbortHandle,
}

/// A run that is to begin.
pub struct Begun<M> {
    /// What orders.
    pub machine: M,
    /// Answers [`tailwater_manager::failover::Act::Confirm`].
    pub confirm: Arc<dyn Confirm>,
    /// Who led before, if that is not the primary that is watched.
    pub led_by: Option<String>,
    /// Whether it may change something.
    pub changes: bool,
}

impl<H: Hands + 'static> ManagedCluster<H> {
    /// Takes over what other managers are told, for as long as it runs.
    pub async fn follow_guard(&self) {
        self.parts.guard.follow(&self.parts.source).await;
    }

    /// Begins to watch, and to act by itself if that is configured; on a runtime.
    ///
    /// # Errors
    /// If it is not known who belongs to the cluster.
    pub fn start(parts: ClusterParts<H>) -> anyhow::Result<(Arc<Self>, JoinHandle<()>)> {
        let clock = Clock::start();
        parts.guard.begin_at(clock.now_ms());
        let watched = watch_now(&parts, None, clock)?;
        if let Some((memory, ago_ms)) = parts.memory.read(&watched.wiring.primary.name) {
            info!(source = parts.source, ago_ms, "the manager before this one has looked at the primary");
            watched.watch.remember(memory, ago_ms);
        }
        let cluster = Arc::new(Self {
            parts,
            clock,
            watched: Mutex::new(watched),
            run: Mutex::new(None),
            finishing: Mutex::new(None),
            was_cut_off: AtomicBool::new(false),
            recast: watch::Sender::new(0),
            begun: watch::Sender::new(0),
        });
        let supervisor = tokio::spawn(supervise(Arc::clone(&cluster)));
        Ok((cluster, supervisor))
    }

    /// Begins a failover and gives its name; [`ManagedCluster::audit`] tells what becomes of it. It goes on whatever becomes of
    /// who asked for it.
    ///
    /// # Errors
    /// If a run is under way, or not enough is known for one.
    pub fn fail_over(self: &Arc<Self>, wish: &FailoverWish) -> anyhow::Result<String> {
        self.begin_failover(wish).map(|(id, _)| id)
    }

    /// The same, with a handle that tells whether a server was promoted, when all that follows from it is done.
    fn begin_failover(self: &Arc<Self>, wish: &FailoverWish) -> anyhow::Result<(String, JoinHandle<bool>)> {
        info!(source = self.parts.source, dry_run = wish.dry_run, automatic = wish.is_automatic, "failover");
        self.begin(if wish.dry_run { "dry-run" } else { "failover" }, |id, watch, chronicle| {
            let confirm = Arc::new(self.confirmation(watch, wish.of_primary()));
            Ok(match ordering::failover(id.clone(), chronicle, &self.parts.config, wish) {
                Ok(order) => {
                    Begun { machine: Failover::new(order), confirm, led_by: None, changes: !wish.dry_run }
                }
                Err(refusal) => {
                    return Err(ordering::refused(id, Kind::Failover, chronicle, wish, refusal));
                }
            })
        })
    }

    /// Begins a switchover and gives its name, as [`ManagedCluster::fail_over`].
    ///
    /// # Errors
    /// If a run is under way, or not enough is known for one.
    pub fn switch_over(self: &Arc<Self>, wish: &SwitchoverWish) -> anyhow::Result<String> {
        info!(source = self.parts.source, dry_run = wish.dry_run, "switchover");
        let (id, _) =
            self.begin(if wish.dry_run { "dry-run" } else { "switchover" }, |id, watch, chronicle| {
                // It never asks whether the primary has failed.
                let confirm = Arc::new(self.confirmation(watch, Wish::DryRun));
                Ok(match ordering::switchover(id.clone(), chronicle, &self.parts.config, wish) {
                    Ok(order) => Begun {
                        machine: Switchover::new(order),
                        confirm,
                        led_by: None,
                        changes: !wish.dry_run,
                    },
                    Err(refusal) => {
                        let wish = FailoverWish { dry_run: wish.dry_run, ..FailoverWish::default() };
                        return Err(ordering::refused(id, Kind::Switchover, chronicle, &wish, refusal));
                    }
                })
            })?;
        Ok(id)
    }

    /// Begins the run that `make` makes of its name, if none is under way; or keeps the record of one that was refused before it
    /// began.
    ///
    /// # Errors
    /// If one is under way, or a record cannot be stored.
    pub fn begin<M: Machine + 'static>(
        self: &Arc<Self>,
        kind: &str,
        make: impl FnOnce(String, &Watch, &Chronicle) -> Result<Begun<M>, Box<Audit>>,
    ) -> anyhow::Result<(String, JoinHandle<bool>)> {
        // Held until the new run is noted: two at once find out here.
        let mut run = self.lock_run();
        if let Some(busy) = run.as_ref().filter(|run| !run.task.is_finished()) {
            anyhow::bail!("{} is under way", busy.id);
        }
        let (watch, wiring) = {
            let watched = self.watched();
            (Arc::clone(&watched.watch), watched.wiring.clone())
        };
        let chronicle = watch.chronicle();
        let id = self.new_id(kind);
        let (sender, progress) = watch::channel(None);
        let Begun { mut machine, confirm, led_by, changes } = match make(id.clone(), &watch, &chronicle) {
            Ok(begun) => begun,
            Err(refused) => {
                self.parts.records.save(&refused)?;
                sender.send_replace(Some(*refused));
                let task = tokio::spawn(async { false });
                *run = Some(Run { id: id.clone(), progress, task: task.abort_handle() });
                return Ok((id, task));
            }
        };
        let wiring = led_by.map_or_else(|| wiring.clone(), |leader| wiring.led_by(&leader));
        let driver = Driver {
            hands: Arc::new((self.parts.hands)(&id, &wiring, &chronicle)?),
            term: self.parts.lease.clone(),
            confirm,
            records: Arc::new(Records {
                folder: self.parts.records.clone(),
                shared: self.parts.shared.clone(),
            }),
            limits: Limits::default(),
        };
        if let Some(finishing) = self.finishing().take().filter(|_| changes) {
            finishing.abort();
        }
        if changes {
            self.begun.send_modify(|count| *count += 1);
        }
        let cluster = Arc::clone(self);
        let task = tokio::spawn(async move {
            if changes {
                watch.freeze_regimes(true);
            }
            let audit = driver.drive(&mut machine, &sender).await;
            cluster.take_end(&audit, &watch).await;
            if let Some(End::Promoted { left, .. }) = &audit.outcome {
                let (run, left) = ((audit.id.clone(), machine.token()), left.clone());
                let finish = leftovers::finish(Arc::clone(&cluster), run, driver.hands, left);
                *cluster.finishing() = Some(tokio::spawn(finish).abort_handle());
            }
            matches!(audit.outcome, Some(End::Promoted { .. }))
        });
        *run = Some(Run { id: id.clone(), progress, task: task.abort_handle() });
        Ok((id, task))
    }

    fn confirmation(&self, watch: &Watch, wish: Wish) -> Confirmation {
        let config = &self.parts.config;
        let ping_timeout = Duration::from_millis(config.pace.ping_timeout_ms);
        // As long as it takes until silence is told from a pause, and the looks that show it.
        let patience = Duration::from_millis(config.analysis.detect_after_ms + config.pace.look_timeout_ms);
        Confirmation::new(watch, wish, patience, ping_timeout)
    }

    /// What follows from how a run ended.
    async fn take_end(&self, audit: &Audit, watch: &Watch) {
        let source = &self.parts.source;
        match &audit.outcome {
            Some(End::Promoted { server, left }) => {
                warn!(source, id = audit.id, server, left = left.len(), "a new primary takes writes");
                let now_ms = self.clock.now_ms();
                // One that somebody wished needs nobody to look at it before the next.
                let is_failover = audit.kind == Kind::Failover;
                if let Err(reason) = self.watch_primary(Some(server)) {
                    error!(source, server, "the new primary cannot be watched: {}", WithCauses(&reason));
                }
                if is_failover && let Err(reason) = self.parts.guard.failed_over(now_ms).await {
                    error!(
                        source,
                        "the failover cannot be noted, and another may follow it sooner: {}",
                        WithCauses(&reason)
                    );
                }
            }
            Some(End::Unchanged { refusal } | End::Undone { refusal, .. }) => {
                warn!(source, id = audit.id, code = refusal.code(), "no {}: {refusal}", audit.kind);
                watch.freeze_regimes(false);
            }
            Some(End::Left { refusal, to_undo, .. }) => {
                let to_undo: Vec<_> = to_undo.iter().map(ToString::to_string).collect();
                error!(
                    source,
                    id = audit.id,
                    code = refusal.code(),
                    "half way: {refusal}; to undo it: {}; or begin the failover again",
                    to_undo.join("; ")
                );
                // Somebody puts it right, and from then on it counts again who acknowledges.
                watch.freeze_regimes(false);
                self.was_cut_off.fetch_or(audit.is_cut_off(), Ordering::Relaxed);
            }
            Some(End::Planned { .. }) | None => {}
        }
    }

    /// Watches the cluster with another primary from now on.
    fn watch_primary(&self, primary: Option<&str>) -> anyhow::Result<()> {
        let watched = watch_now(&self.parts, primary, self.clock)?;
        *self.watched() = watched;
        self.recast.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Watches whom the log follows, when that has become another than in `last`: the manager that holds the lease has led it
    /// there, or somebody did so by hand. A run of this manager's own sees to that itself, and may promote a server long before
    /// the log follows it: so what counts is the change.
    fn watch_whom_the_log_follows(&self, last: &mut Option<String>) {
        let followed = (self.parts.followed)();
        if followed == *last {
            return;
        }
        last.clone_from(&followed);
        if self.lock_run().as_ref().is_some_and(|run| !run.task.is_finished()) {
            return;
        }
        let (leader, watched) = {
            let watched = self.watched();
            let leader = followed.unwrap_or_else(|| watched.wiring.own.clone());
            (leader, watched.wiring.primary.name.clone())
        };
        if leader == watched {
            return;
        }
        let source = &self.parts.source;
        info!(source, server = leader, "the log follows another server: it is watched as the primary");
        if let Err(reason) = self.watch_primary(Some(&leader)) {
            error!(source, server = leader, "it cannot be watched: {}", WithCauses(&reason));
        }
    }

    /// For the manager that comes behind this one.
    fn keep_memory(&self) {
        let watch = Arc::clone(&self.watched().watch);
        if let Some((memory, ago_ms)) = watch.to_remember() {
            self.parts.memory.write(memory, ago_ms);
        }
    }

    /// The record of a run.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn audit(&self, id: &str) -> anyhow::Result<Option<Audit>> {
        let of_run =
            self.lock_run().as_ref().filter(|run| run.id == id).map(|run| run.progress.borrow().clone());
        match of_run {
            Some(Some(audit)) => Ok(Some(audit)),
            _ => Ok(self.parts.records.load(id)?),
        }
    }

    /// Changes what holds failovers back. Moments are of the manager's clock: it is given its present one.
    ///
    /// # Errors
    /// As [`KeptGuard::change`].
    pub async fn change_guard(&self, change: impl Fn(&mut Guard, u64)) -> anyhow::Result<()> {
        let now_ms = self.clock.now_ms();
        self.parts.guard.change(|guard| change(guard, now_ms)).await?;
        self.watched().watch.think_again();
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

    /// What is back when whoever works beside runs has to stop: a run begins after this was called, or this manager may not act
    /// any more.
    pub fn interrupted(&self) -> impl Future<Output = String> + Send + use<H> {
        let (mut begun, lease) = (self.begun.subscribe(), self.parts.lease.clone());
        async move {
            tokio::select! {
                _ = begun.changed() => "a run begins".to_owned(),
                reason = Term::ended(&lease) => reason,
            }
        }
    }

    /// Whether this manager may act, and no run is under way.
    pub fn is_free(&self) -> bool {
        self.parts.lease.check().is_ok() && !self.is_busy()
    }

    /// Whether a run is under way.
    pub fn is_busy(&self) -> bool {
        self.lock_run().as_ref().is_some_and(|run| !run.task.is_finished())
    }

    /// Whether somebody accepted, when this server was last replaced, that acknowledged commits may be missing: it may be the
    /// only one that has them.
    ///
    /// # Errors
    /// If records cannot be read.
    pub fn may_hold_what_is_missing(&self, server: &str) -> anyhow::Result<bool> {
        for id in self.parts.records.list()?.iter().rev() {
            let Some(audit) = self.parts.records.load(id)? else { continue };
            if audit.primary == server && matches!(audit.outcome, Some(End::Promoted { .. })) {
                return Ok(audit.may_be_missing.is_some());
            }
        }
        Ok(false)
    }

    /// Whether a run was left half done, by this manager or the one before it, or nobody can tell: who leads is not certain before it
    /// is undone or finished.
    pub fn is_half_way(&self) -> bool {
        leftovers::is_half_way(&self.parts)
    }

    /// Ends the run that is under way, if one is: its record tells how far it came.
    pub fn end_run(&self) {
        if let Some(run) = &*self.lock_run() {
            run.task.abort();
        }
    }

    /// What was heard of everybody, for whoever answers for the cluster.
    pub fn chronicle(&self) -> Chronicle {
        self.watched().watch.chronicle()
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finishing(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.finishing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_run(&self) -> MutexGuard<'_, Option<Run>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sorts as it was made.
    fn new_id(&self, kind: &str) -> String {
        let now = chrono::Utc::now().format("%Y%m%dT%H%M%S%3fZ");
        format!("{now}-{}-{kind}", self.parts.source)
    }
}

/// Whose stream the watch counts on, and who is looked at.
fn watch_now<H>(parts: &ClusterParts<H>, primary: Option<&str>, clock: Clock) -> anyhow::Result<Watched> {
    let wiring = (parts.wiring)(primary).context("who belongs to the cluster")?;
    let cluster = WatchedCluster {
        plan: wiring.plan.clone(),
        followers: wiring.followers.iter().map(|subject| subject.name.clone()).collect(),
        ackers: parts.relays.iter().map(|relay| relay.name.clone()).collect(),
        logged: (parts.logged)(),
    };
    let watch = Watch::start(
        cluster,
        (wiring.primary.clone(), wiring.followers.clone()),
        parts.relays.clone(),
        (parts.config.analysis, parts.config.pace),
        (parts.guard.shared(), clock),
        &parts.manager,
    );
    Ok(Watched { watch: Arc::new(watch), wiring })
}

/// Begins failovers by itself.
async fn supervise<H: Hands + 'static>(cluster: Arc<ManagedCluster<H>>) {
    let mut recast = cluster.recast.subscribe();
    let mut again_ms = AGAIN_MS_MIN;
    let mut followed = (cluster.parts.followed)();
    let mut left = Leftovers::default();
    let mut remembered = Instant::now();
    loop {
        leftovers::look(&cluster, &mut left).await;
        leftovers::recover(&cluster, &mut left).await;
        recast.mark_unchanged();
        let mut findings = cluster.watched().watch.findings();
        tokio::select! {
            () = dead_primary(&mut findings) => {}
            _ = recast.changed() => continue,
            () = tokio::time::sleep(FOLLOWED_PAUSE) => {
                cluster.watch_whom_the_log_follows(&mut followed);
                if remembered.elapsed() >= REMEMBERED_PAUSE {
                    remembered = Instant::now();
                    cluster.keep_memory();
                }
                continue;
            }
        }
        let term = cluster.parts.lease.check().ok();
        let may_act = term.is_some() && !left.wait(term) && cluster.parts.guard.is_known();
        if !cluster.parts.config.automatic || !may_act {
            // Somebody may take the lease, or it may come back, as long as this lasts.
            tokio::time::sleep(Duration::from_millis(cluster.parts.config.pace.ping_ms)).await;
            continue;
        }
        let wish = FailoverWish { is_automatic: true, ..FailoverWish::default() };
        let promoted = match cluster.begin_failover(&wish) {
            Ok((_, run)) => run.await.unwrap_or(false),
            Err(reason) => {
                warn!(source = cluster.parts.source, "no failover: {}", WithCauses(&reason));
                false
            }
        };
        let pause_ms = if promoted { 0 } else { again_ms };
        again_ms = if promoted { AGAIN_MS_MIN } else { (again_ms * 2).min(AGAIN_MS_MAX) };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
            _ = recast.changed() => {}
        }
    }
}

/// Is back when the primary is dead and nothing holds a failover back.
async fn dead_primary(findings: &mut watch::Receiver<Vec<Finding>>) {
    let is_reason =
        |finding: &Finding| finding.code == Code::DeadPrimary && finding.action == Action::FailOver;
    if findings.wait_for(|findings| findings.iter().any(is_reason)).await.is_err() {
        // The watch has ended; another follows it, or the daemon ends.
        std::future::pending::<()>().await;
    }
}
