//! The runs of a cluster, of which there is one at a time: how they begin, and what follows from their ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::cluster_watch::{ClusterState, ClusterWatch, FailoverTrigger, FailureConfirmation};
use tailwater_manager::driver::{
    AuditStore, ConfirmFailure, DriverTimeouts, LeaseCheck, RunDriver, RunMachine,
};
use tailwater_manager::failover::{Audit, Failover, RunKind, RunOutcome};
use tailwater_manager::switchover::Switchover;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tracing::{error, info, warn};

use super::super::run_requests::{self, FailoverWish, SwitchoverWish};
use super::super::shared_audits::AuditRecords;
use super::{ManagedCluster, interrupted_runs};
use crate::error_chain::ErrorChain;

/// The run that is under way, or was the last.
pub(super) struct Run {
    pub(super) id: String,
    pub(super) progress: watch::Receiver<Option<Audit>>,
    /// Ends when what follows from the run is done, too.
    task: AbortHandle,
}

/// A run that is to begin.
pub struct PreparedRun<M> {
    /// What orders.
    pub machine: M,
    /// Answers [`tailwater_manager::failover::RunAction::ConfirmFailure`].
    pub confirm: Arc<dyn ConfirmFailure>,
    /// Who led before, if that is not the primary that is watched.
    pub led_by: Option<String>,
    /// Whether it may change something.
    pub changes: bool,
}

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    /// Begins a failover and gives its name; [`ManagedCluster::audit`] tells what becomes of it. It goes on whatever becomes of
    /// who asked for it.
    ///
    /// # Errors
    /// If a run is under way, or not enough is known for one.
    pub fn fail_over(self: &Arc<Self>, wish: &FailoverWish) -> anyhow::Result<String> {
        self.begin_failover(wish).map(|(id, _)| id)
    }

    /// The same, with a handle that tells whether a server was promoted, when all that follows from it is done.
    pub(super) fn begin_failover(
        self: &Arc<Self>,
        wish: &FailoverWish,
    ) -> anyhow::Result<(String, JoinHandle<bool>)> {
        info!(source = self.parts.source, dry_run = wish.dry_run, automatic = wish.is_automatic, "failover");
        self.begin(if wish.dry_run { "dry-run" } else { "failover" }, |id, watch, cluster_state| {
            let confirm = Arc::new(self.confirmation(watch, wish.of_primary()));
            Ok(match run_requests::failover(id.clone(), cluster_state, &self.parts.config, wish) {
                Ok(order) => PreparedRun {
                    machine: Failover::new(order),
                    confirm,
                    led_by: None,
                    changes: !wish.dry_run,
                },
                Err(refusal) => {
                    return Err(run_requests::refused(id, RunKind::Failover, cluster_state, wish, refusal));
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
            self.begin(if wish.dry_run { "dry-run" } else { "switchover" }, |id, watch, cluster_state| {
                // It never asks whether the primary has failed.
                let confirm = Arc::new(self.confirmation(watch, FailoverTrigger::DryRun));
                Ok(match run_requests::switchover(id.clone(), cluster_state, &self.parts.config, wish) {
                    Ok(order) => PreparedRun {
                        machine: Switchover::new(order),
                        confirm,
                        led_by: None,
                        changes: !wish.dry_run,
                    },
                    Err(refusal) => {
                        let wish = FailoverWish { dry_run: wish.dry_run, ..FailoverWish::default() };
                        return Err(run_requests::refused(
                            id,
                            RunKind::Switchover,
                            cluster_state,
                            &wish,
                            refusal,
                        ));
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
    pub fn begin<M: RunMachine + 'static>(
        self: &Arc<Self>,
        kind: &str,
        make: impl FnOnce(String, &ClusterWatch, &ClusterState) -> Result<PreparedRun<M>, Box<Audit>>,
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
        let cluster_state = watch.cluster_state();
        let id = self.new_id(kind);
        let (sender, progress) = watch::channel(None);
        let PreparedRun { mut machine, confirm, led_by, changes } =
            match make(id.clone(), &watch, &cluster_state) {
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
        let driver = RunDriver {
            executor: Arc::new((self.parts.hands)(&id, &wiring, &cluster_state)?),
            term: self.parts.lease.clone(),
            confirm,
            records: Arc::new(AuditRecords {
                folder: self.parts.records.clone(),
                shared: self.parts.shared.clone(),
            }),
            limits: DriverTimeouts::default(),
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
                watch.freeze_ack_policies(true);
            }
            let audit = driver.drive(&mut machine, &sender).await;
            cluster.take_end(&audit, &watch).await;
            if let Some(RunOutcome::Promoted { left, .. }) = &audit.outcome {
                let (run, left) = ((audit.id.clone(), machine.token()), left.clone());
                let finish = interrupted_runs::finish(Arc::clone(&cluster), run, driver.executor, left);
                *cluster.finishing() = Some(tokio::spawn(finish).abort_handle());
            }
            matches!(audit.outcome, Some(RunOutcome::Promoted { .. }))
        });
        *run = Some(Run { id: id.clone(), progress, task: task.abort_handle() });
        Ok((id, task))
    }

    pub(super) fn confirmation(&self, watch: &ClusterWatch, wish: FailoverTrigger) -> FailureConfirmation {
        let config = &self.parts.config;
        let ping_timeout = Duration::from_millis(config.pace.ping_timeout_ms);
        // As long as it takes until silence is told from a pause, and the looks that show it.
        let patience = Duration::from_millis(config.analysis.detect_after_ms + config.pace.poll_timeout_ms);
        FailureConfirmation::new(watch, wish, patience, ping_timeout)
    }

    /// What follows from how a run ended.
    async fn take_end(&self, audit: &Audit, watch: &ClusterWatch) {
        let source = &self.parts.source;
        match &audit.outcome {
            Some(RunOutcome::Promoted { server, left }) => {
                warn!(source, id = audit.id, server, left = left.len(), "a new primary takes writes");
                let now_ms = self.clock.now_ms();
                // One that somebody wished needs nobody to look at it before the next.
                let is_failover = audit.kind == RunKind::Failover;
                if let Err(reason) = self.watch_primary(Some(server)) {
                    error!(source, server, "the new primary cannot be watched: {}", ErrorChain(&reason));
                }
                if is_failover && let Err(reason) = self.parts.guard.failed_over(now_ms).await {
                    error!(
                        source,
                        "the failover cannot be noted, and another may follow it sooner: {}",
                        ErrorChain(&reason)
                    );
                }
            }
            Some(RunOutcome::Unchanged { refusal } | RunOutcome::Undone { refusal, .. }) => {
                warn!(source, id = audit.id, code = refusal.code(), "no {}: {refusal}", audit.kind);
                watch.freeze_ack_policies(false);
            }
            Some(RunOutcome::Incomplete { refusal, to_undo, .. }) => {
                let to_undo: Vec<_> = to_undo.iter().map(ToString::to_string).collect();
                error!(
                    source,
                    id = audit.id,
                    code = refusal.code(),
                    "half way: {refusal}; to undo it: {}; or begin the failover again",
                    to_undo.join("; ")
                );
                // Somebody puts it right, and from then on it counts again who acknowledges.
                watch.freeze_ack_policies(false);
                self.was_cut_off.fetch_or(audit.is_interrupted(), Ordering::Relaxed);
            }
            Some(RunOutcome::Planned { .. }) | None => {}
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

    /// What is back when whoever works beside runs has to stop: a run begins after this was called, or this manager may not act
    /// any more.
    pub fn interrupted(&self) -> impl Future<Output = String> + Send + use<H> {
        let (mut begun, lease) = (self.begun.subscribe(), self.parts.lease.clone());
        async move {
            tokio::select! {
                _ = begun.changed() => "a run begins".to_owned(),
                reason = LeaseCheck::ended(&lease) => reason,
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

    /// Ends the run that is under way, if one is: its record tells how far it came.
    pub fn end_run(&self) {
        if let Some(run) = &*self.lock_run() {
            run.task.abort();
        }
    }

    /// Sorts as it was made.
    fn new_id(&self, kind: &str) -> String {
        let now = chrono::Utc::now().format("%Y%m%dT%H%M%S%3fZ");
        format!("{now}-{}-{kind}", self.parts.source)
    }
}
