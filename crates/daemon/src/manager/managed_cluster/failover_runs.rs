//! The failovers, switchovers and recoveries of a cluster, one at a time: starts them, and handles their
//! ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tailwater_apply::trace_span_record;
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::cluster_watch::{ClusterState, ClusterWatch, FailoverTrigger, FailureConfirmation};
use tailwater_manager::failover::Failover;
use tailwater_manager::failover_driver::{
    AuditStore, ConfirmFailure, DriverTimeouts, LeaseCheck, RunDriver, RunMachine,
};
use tailwater_manager::model::{Audit, RunKind, RunOutcome};
use tailwater_manager::switchover::Switchover;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tracing::{error, info, warn};

use super::super::etcd_audit_records::AuditRecords;
use super::super::failover_request_builder;
use super::super::failover_run_id::new_run_id;
use super::super::failover_trace_span;
use super::{ManagedCluster, interrupted_failover_recovery, named_servers};
use crate::api::manager_requests::{FailoverOptions, SwitchoverOptions};
use crate::error_chain::ErrorChain;

/// The failover or switchover in progress. If there is none, the last failover or switchover.
pub(super) struct Run {
    pub(super) id: String,
    pub(super) progress: watch::Receiver<Option<Audit>>,
    /// The task that ends after the failover or switchover has ended and its outcome is handled.
    task: AbortHandle,
}

/// A failover or switchover that has not started yet.
pub struct PreparedRun<M> {
    /// The state machine of the failover or switchover.
    pub machine: M,
    /// Answers [`tailwater_manager::model::RunAction::ConfirmFailure`].
    pub confirm: Arc<dyn ConfirmFailure>,
    /// The previous primary, if it is not the watched server.
    pub previous_primary: Option<String>,
    /// Whether the failover or switchover may change something.
    pub changes: bool,
}

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    /// Starts a failover and returns its name. [`ManagedCluster::audit`] returns its audit record so far. The
    /// failover continues when the client disconnects.
    ///
    /// # Errors
    /// If another failover or switchover is in progress, or an audit record cannot be stored.
    pub fn fail_over(self: &Arc<Self>, options: &FailoverOptions) -> anyhow::Result<String> {
        self.begin_failover(options).map(|(id, _)| id)
    }

    /// Starts a failover, as [`ManagedCluster::fail_over`] does. Also returns a task that ends after the
    /// outcome of the failover is handled, and returns whether a server was promoted.
    pub(super) fn begin_failover(
        self: &Arc<Self>,
        options: &FailoverOptions,
    ) -> anyhow::Result<(String, JoinHandle<bool>)> {
        info!(
            source = self.parts.source,
            dry_run = options.dry_run,
            automatic = options.is_automatic,
            "failover"
        );
        self.begin(if options.dry_run { "dry-run" } else { "failover" }, |id, watch, cluster_state| {
            let confirm = Arc::new(self.confirmation(watch, failover_request_builder::trigger_of(options)));
            Ok(
                match failover_request_builder::failover(
                    id.clone(),
                    cluster_state,
                    &self.parts.config,
                    options,
                ) {
                    Ok(order) => PreparedRun {
                        machine: Failover::new(order),
                        confirm,
                        previous_primary: None,
                        changes: !options.dry_run,
                    },
                    Err(refusal) => {
                        return Err(failover_request_builder::refused(
                            id,
                            RunKind::Failover,
                            cluster_state,
                            options,
                            refusal,
                        ));
                    }
                },
            )
        })
    }

    /// Starts a switchover and returns its name, as [`ManagedCluster::fail_over`] does.
    ///
    /// # Errors
    /// If another failover or switchover is in progress, or an audit record cannot be stored.
    pub fn switch_over(self: &Arc<Self>, options: &SwitchoverOptions) -> anyhow::Result<String> {
        info!(source = self.parts.source, dry_run = options.dry_run, "switchover");
        let (id, _) = self.begin(
            if options.dry_run { "dry-run" } else { "switchover" },
            |id, watch, cluster_state| {
                // A switchover never requests a confirmation of a failure, so this trigger is not used.
                let confirm = Arc::new(self.confirmation(watch, FailoverTrigger::DryRun));
                Ok(
                    match failover_request_builder::switchover(
                        id.clone(),
                        cluster_state,
                        &self.parts.config,
                        options,
                    ) {
                        Ok(order) => PreparedRun {
                            machine: Switchover::new(order),
                            confirm,
                            previous_primary: None,
                            changes: !options.dry_run,
                        },
                        Err(refusal) => {
                            let options =
                                FailoverOptions { dry_run: options.dry_run, ..FailoverOptions::default() };
                            return Err(failover_request_builder::refused(
                                id,
                                RunKind::Switchover,
                                cluster_state,
                                &options,
                                refusal,
                            ));
                        }
                    },
                )
            },
        )?;
        Ok(id)
    }

    /// Starts the failover or switchover that `make` prepares, with a new id. If `make` refuses, stores
    /// the audit record of the refusal.
    ///
    /// # Errors
    /// If another failover or switchover is in progress, or an audit record cannot be stored.
    pub fn begin<M: RunMachine + 'static>(
        self: &Arc<Self>,
        kind: &str,
        make: impl FnOnce(String, &ClusterWatch, &ClusterState) -> Result<PreparedRun<M>, Box<Audit>>,
    ) -> anyhow::Result<(String, JoinHandle<bool>)> {
        // The lock is held until the new failover or switchover is stored, so that a second one at the same
        // time is refused.
        let mut run = self.lock_run();
        if let Some(busy) = run.as_ref().filter(|run| !run.task.is_finished()) {
            anyhow::bail!("{} is under way", busy.id);
        }
        let (watch, wiring) = {
            let watched = self.watched();
            (Arc::clone(&watched.watch), watched.wiring.clone())
        };
        let cluster_state = watch.cluster_state();
        let id = new_run_id(chrono::Utc::now(), &self.parts.records.list()?, &self.parts.source, kind);
        let (sender, progress) = watch::channel(None);
        let PreparedRun { mut machine, confirm, previous_primary, changes } =
            match make(id.clone(), &watch, &cluster_state) {
                Ok(started) => started,
                Err(refused) => {
                    self.parts.records.save(&refused)?;
                    sender.send_replace(Some(*refused));
                    let task = tokio::spawn(async { false });
                    *run = Some(Run { id: id.clone(), progress, task: task.abort_handle() });
                    return Ok((id, task));
                }
            };
        // From now on, clients that know the id can request the audit record.
        sender.send_replace(Some(machine.audit().clone()));
        let wiring = previous_primary.map_or_else(|| wiring.clone(), |primary| wiring.with_primary(&primary));
        let number = *self.runs_begun.borrow() + u64::from(changes);
        let driver = RunDriver {
            executor: Arc::new((self.parts.make_executor)((&id, number), &wiring, &cluster_state)?),
            term: self.parts.lease.clone(),
            confirm,
            records: Arc::new(AuditRecords {
                folder: self.parts.records.clone(),
                shared: self.parts.shared.clone(),
                servers: named_servers(&cluster_state),
            }),
            limits: DriverTimeouts::default(),
        };
        if let Some(finishing) = self.finishing().take().filter(|_| changes) {
            finishing.abort();
        }
        if changes {
            self.runs_begun.send_replace(number);
        }
        let cluster = Arc::clone(self);
        let task = tokio::spawn(async move {
            if changes {
                watch.freeze_ack_policies(true);
            }
            let started = SystemTime::now();
            let audit = driver.drive(&mut machine, &sender).await;
            trace_span_record::export(|| failover_trace_span::of(&audit, &cluster.parts.source, started));
            cluster.handle_outcome(&audit, &watch).await;
            if let Some(RunOutcome::Promoted { left, .. }) = &audit.outcome {
                let (run, left) = ((audit.id.clone(), machine.token()), left.clone());
                let finish =
                    interrupted_failover_recovery::finish(Arc::clone(&cluster), run, driver.executor, left);
                *cluster.finishing() = Some(tokio::spawn(finish).abort_handle());
            }
            matches!(audit.outcome, Some(RunOutcome::Promoted { .. }))
        });
        *run = Some(Run { id: id.clone(), progress, task: task.abort_handle() });
        Ok((id, task))
    }

    pub(super) fn confirmation(&self, watch: &ClusterWatch, trigger: FailoverTrigger) -> FailureConfirmation {
        let config = &self.parts.config;
        let ping_timeout = Duration::from_millis(config.pace.ping_timeout_ms);
        // The confirmation waits until silence counts as a failure, and then for the time-out of one probe.
        let detect_after_ms = self.analysis.lock().detect_after_ms;
        let patience = Duration::from_millis(detect_after_ms + config.pace.poll_timeout_ms);
        FailureConfirmation::new(watch, trigger, patience, ping_timeout)
    }

    /// Acts on the outcome of a failover or switchover.
    async fn handle_outcome(&self, audit: &Audit, watch: &ClusterWatch) {
        let source = &self.parts.source;
        match &audit.outcome {
            Some(RunOutcome::Promoted { server, left }) => {
                warn!(source, id = audit.id, server, left = left.len(), "a new primary takes writes");
                let now_ms = self.clock.now_ms();
                // After a switchover another switchover or failover may start at once, because an operator
                // has requested it. Only a failover starts the cool-down.
                let is_failover = audit.kind == RunKind::Failover;
                if let Err(reason) = self.watch_primary(Some(server)) {
                    error!(source, server, "the new primary cannot be watched: {}", ErrorChain(&reason));
                }
                if is_failover && let Err(reason) = self.parts.guard.record_failover(now_ms).await {
                    error!(
                        source,
                        "the failover cannot be recorded in the guard, so another failover may follow too soon: {}",
                        ErrorChain(&reason)
                    );
                }
            }
            Some(RunOutcome::Unchanged { refusal } | RunOutcome::Undone { refusal, .. }) => {
                warn!(
                    source,
                    id = audit.id,
                    code = refusal.code(),
                    "the {} did not promote a server: {refusal}",
                    audit.kind
                );
                watch.freeze_ack_policies(false);
            }
            Some(RunOutcome::Incomplete { refusal, to_undo, .. }) => {
                let to_undo: Vec<_> = to_undo.iter().map(ToString::to_string).collect();
                error!(
                    source,
                    id = audit.id,
                    code = refusal.code(),
                    "the failover or switchover is incomplete: {refusal}; to undo it: {}; or start the failover again",
                    to_undo.join("; ")
                );
                // After an operator has corrected the cluster, its ack policies count again.
                watch.freeze_ack_policies(false);
                self.was_cut_off.fetch_or(audit.is_interrupted(), Ordering::Relaxed);
            }
            Some(RunOutcome::Planned { .. }) | None => {}
        }
    }

    /// Returns the audit record of a failover or switchover.
    ///
    /// # Errors
    /// If the audit record cannot be read.
    pub fn audit(&self, id: &str) -> anyhow::Result<Option<Audit>> {
        let of_run =
            self.lock_run().as_ref().filter(|run| run.id == id).map(|run| run.progress.borrow().clone());
        match of_run {
            Some(Some(audit)) => Ok(Some(audit)),
            _ => Ok(self.load_record(id)?),
        }
    }

    /// Returns the newest audit records, the newest first. Blocks. A record that cannot be read, such as that
    /// of a later version, is left out.
    ///
    /// # Errors
    /// If the folder of the audit records cannot be read.
    pub fn audits(&self, count_max: usize) -> anyhow::Result<Vec<Audit>> {
        let ids = self.parts.records.list_newest_first()?;
        let read = ids.iter().filter_map(|id| {
            let audit = self.audit(id);
            audit.inspect_err(|error| warn!(id, "the audit record cannot be read: {error}")).ok().flatten()
        });
        Ok(read.take(count_max).collect())
    }

    /// Completes when other work on the cluster must stop, and returns the reason: a failover or switchover
    /// begins after this call, or this manager may no longer act.
    pub fn interrupted(&self) -> impl Future<Output = String> + Send + use<H> {
        let (mut started, lease) = (self.runs_begun.subscribe(), self.parts.lease.clone());
        async move {
            tokio::select! {
                _ = started.changed() => "a failover or switchover begins".to_owned(),
                reason = LeaseCheck::ended(&lease) => reason,
            }
        }
    }

    /// Whether this manager may act, and no failover or switchover is in progress.
    pub fn is_free(&self) -> bool {
        self.parts.lease.check().is_ok() && !self.is_busy()
    }

    /// Whether a failover or switchover is in progress.
    pub fn is_busy(&self) -> bool {
        self.lock_run().as_ref().is_some_and(|run| !run.task.is_finished())
    }

    /// Cancels the failover or switchover in progress, if there is one. Its audit record shows how far it
    /// came.
    pub fn end_run(&self) {
        if let Some(run) = &*self.lock_run() {
            run.task.abort();
        }
    }
}
