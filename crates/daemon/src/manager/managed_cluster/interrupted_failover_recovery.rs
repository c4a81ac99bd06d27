//! Completes what failovers and switchovers left incomplete: actions that failed after a promotion, and
//! interrupted failovers and switchovers. `relay_repoint` handles relays that still follow the old primary.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tailwater_manager::SafetyRefusal;
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::audit_history::{InterruptedRun, run_to_recover};
use tailwater_manager::cluster_watch::FailoverTrigger;
use tailwater_manager::failover_driver::AuditStore;
use tailwater_manager::interrupted_failover_recovery::RunRecovery;
use tailwater_manager::model::{ActionOutcome, LeaseToken, RunAction, RunKind, RunOutcome};
use tracing::{error, info, warn};

use super::super::etcd_audit_records::SharedAudits;
use super::super::failover_request_builder;
use super::super::failover_run_id::run_time;
use super::{ClusterParts, ManagedCluster, PreparedRun};
use crate::error_chain::ErrorChain;

/// How many times the manager tries to repoint a replica after a failover or switchover promoted a server,
/// and the pause before each try.
const FINISH_TRIES_MAX: u32 = 300;
pub(super) const FINISH_PAUSE: Duration = Duration::from_secs(1);

/// How many times the manager tries to undo or finish an interrupted failover or switchover, and the pause
/// before the second try. The pause doubles after each try.
const RECOVERIES_MAX: u32 = 10;
const RECOVERY_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a failure to read the audit records of other managers.
const ADOPTION_PAUSE: Duration = Duration::from_secs(1);
/// A failover or switchover that began longer ago than this is left to operators, in seconds.
const RECENT_SECONDS: i64 = 3600;

/// An interrupted failover or switchover of this manager or a previous one. It must be undone or finished.
struct Unfinished {
    traces: InterruptedRun,
    tries: u32,
    next: Instant,
}

impl Unfinished {
    /// Returns the last failover or switchover that changed anything, if it was interrupted and is not
    /// recovered.
    fn of<H: ActionExecutor + 'static>(cluster: &ManagedCluster<H>) -> Option<Self> {
        let parts = &cluster.parts;
        let names = match parts.records.list_newest_first() {
            Ok(names) => names,
            Err(error) => {
                error!(
                    source = parts.source,
                    "it is not known whether a failover or switchover was interrupted: the audit records cannot be listed: {error}"
                );
                return None;
            }
        };
        let mut traces = run_to_recover(names.iter().filter_map(|id| match cluster.load_record(id) {
            Ok(audit) => audit,
            Err(error) => {
                warn!(source = parts.source, id, "an audit record cannot be read: {error}");
                None
            }
        }))?;
        if traces.kind == RunKind::Switchover || !traces.ackers.is_empty() {
            // Failovers and switchovers both read or stop all relays. Records of another manager may name the
            // relays differently, so the names of this configuration are used.
            traces.ackers = parts.relays.iter().map(|relay| relay.name.clone()).collect();
        }
        let (source, id) = (&parts.source, &traces.run);
        if !is_recent(id, chrono::Utc::now()) {
            warn!(
                source,
                id,
                "this failover or switchover was interrupted, and is too old to be recovered automatically: see its audit record"
            );
            return None;
        }
        warn!(source, id, "this failover or switchover was interrupted: it will be undone or finished");
        Some(Self { traces, tries: 0, next: Instant::now() })
    }
}

/// Whether the last failover or switchover that changed anything was interrupted and is neither recovered nor
/// superseded, as in [`Unfinished::of`]. Also true if the audit records cannot be listed, or if the records
/// of another manager are not read yet.
pub(super) fn is_half_way<H: ActionExecutor + 'static>(cluster: &ManagedCluster<H>) -> bool {
    let parts = &cluster.parts;
    if !is_adopted(parts) {
        return true;
    }
    let Ok(names) = parts.records.list_newest_first() else { return true };
    let records = names.iter().filter_map(|id| cluster.load_record(id).ok().flatten());
    run_to_recover(records).is_some_and(|traces| is_recent(&traces.run, chrono::Utc::now()))
}

/// Whether a failover or switchover is recent, according to the time in its name. If it is older, an operator
/// may have corrected its effects.
fn is_recent(id: &str, now: chrono::DateTime<chrono::Utc>) -> bool {
    run_time(id).is_some_and(|began| (now - began).num_seconds() < RECENT_SECONDS)
}

/// Whether this manager has read the audit records of previous lease holders, or does not hold the lease.
pub(super) fn is_adopted<H>(parts: &ClusterParts<H>) -> bool {
    match (&parts.shared, parts.lease.check()) {
        (Some(shared), Ok(term)) => shared.is_read_in(term),
        _ => true,
    }
}

/// The interrupted failover or switchover that this manager knows, if any.
#[derive(Default)]
pub(super) struct Leftovers {
    unfinished: Option<Unfinished>,
    /// The lease term in which this manager last searched for an interrupted failover or switchover.
    looked_in: Option<LeaseToken>,
}

impl Leftovers {
    /// Whether failovers must wait for a recovery, which may make another server writable.
    pub(super) fn wait(&self, now: Option<LeaseToken>) -> bool {
        self.looked_in != now || self.unfinished.as_ref().is_some_and(|left| left.tries == 0)
    }
}

/// Searches for an interrupted failover or switchover: once in each lease term, and again after a failover or
/// switchover of this manager was interrupted. Before that it reads the audit records of other managers,
/// because this manager must undo or finish their interrupted failovers and switchovers.
pub(super) async fn look<H: ActionExecutor + 'static>(
    cluster: &ManagedCluster<H>,
    leftovers: &mut Leftovers,
) {
    let parts = &cluster.parts;
    let Ok(term) = parts.lease.check() else { return };
    let was_cut_off = cluster.was_cut_off.swap(false, Ordering::Relaxed);
    if leftovers.looked_in == Some(term) && !was_cut_off {
        return;
    }
    if let Some(shared) = &parts.shared
        && !shared.is_read_in(term)
        && !adopt(parts, shared, term).await
    {
        tokio::time::sleep(ADOPTION_PAUSE).await;
        return;
    }
    *leftovers = Leftovers { unfinished: Unfinished::of(cluster), looked_in: Some(term) };
}

/// Stores the audit records of other managers on this machine. Returns whether it succeeded.
async fn adopt<H>(parts: &ClusterParts<H>, shared: &SharedAudits, term: LeaseToken) -> bool {
    let source = &parts.source;
    let records = match shared.read().await {
        Ok(records) => records,
        Err(reason) => {
            let reason = ErrorChain(&reason);
            warn!(
                source,
                "it is not known whether a failover or switchover of another manager was interrupted: {reason}"
            );
            return false;
        }
    };
    for record in records {
        let id = &record.id;
        // An audit record on this machine is replaced only if it lacks an outcome and the record in etcd has
        // one.
        let known = parts.records.load(id).ok().flatten();
        if known.is_some_and(|known| known.outcome.is_some() || record.outcome.is_none()) {
            continue;
        }
        if let Err(error) = parts.records.save(&record) {
            // Until this audit record can be stored, the manager recovers no failover or switchover. It could
            // not store the audit record of the recovery either.
            error!(
                source,
                id,
                "the audit record of another manager's failover or switchover cannot be stored on this machine: {error}"
            );
            return false;
        }
    }
    if let Err(reason) = restore(parts, shared, term).await {
        // The next failover needs its record in etcd as well, and `tailwater status` reports the problem.
        warn!(source, "the audit records of this machine cannot be stored in etcd: {}", ErrorChain(&reason));
    }
    shared.note_read_in(term);
    true
}

/// Stores the audit records of this machine in etcd if etcd has none, so that the other managers know the
/// earlier changes of the primary again.
async fn restore<H>(parts: &ClusterParts<H>, shared: &SharedAudits, term: LeaseToken) -> anyhow::Result<()> {
    let ids = parts.records.list_newest_first()?;
    let newest_first: Vec<_> = ids.iter().filter_map(|id| parts.records.load(id).ok().flatten()).collect();
    if shared.restore(&newest_first, term.0).await? {
        let source = &parts.source;
        warn!(source, "etcd had no audit records; those of this machine are stored in it again");
    }
    Ok(())
}

/// Undoes or finishes an interrupted failover or switchover, if this manager may act and the pause is over.
/// If another failover or switchover starts in the meantime, it continues from the state that it finds, and
/// the recovery ends.
pub(super) async fn recover<H: ActionExecutor + 'static>(
    cluster: &Arc<ManagedCluster<H>>,
    Leftovers { unfinished, .. }: &mut Leftovers,
) {
    let Some(left) = unfinished.as_mut() else { return };
    if !cluster.is_free() || Instant::now() < left.next {
        return;
    }
    // The audit records are read again, because this manager may have waited days for the lease.
    match Unfinished::of(cluster).filter(|now| now.traces.run == left.traces.run) {
        Some(now) => left.traces = now.traces,
        None => {
            *unfinished = None;
            return;
        }
    }
    left.tries += 1;
    left.next = Instant::now() + RECOVERY_PAUSE * 2_u32.pow(left.tries - 1);
    let (source, run, traces) = (&cluster.parts.source, left.traces.run.clone(), left.traces.clone());
    let started = cluster.begin("recovery", |id, watch, cluster_state| {
        let previous_primary = Some(traces.primary.clone());
        let order = failover_request_builder::recovery(id, cluster_state, &cluster.parts.config, traces);
        let confirm = Arc::new(cluster.confirmation(watch, FailoverTrigger::DryRun));
        Ok(PreparedRun { machine: RunRecovery::new(order), confirm, previous_primary, changes: true })
    });
    let ended = match started {
        Ok((id, task)) => {
            // The outcome is read from the audit record below; the task does not return it.
            let _ = task.await;
            cluster.audit(&id).ok().flatten().and_then(|audit| audit.outcome)
        }
        Err(reason) => {
            warn!(
                source,
                run,
                "the interrupted failover or switchover cannot be recovered now: {}",
                ErrorChain(&reason)
            );
            None
        }
    };
    if matches!(ended, Some(RunOutcome::Promoted { .. } | RunOutcome::Undone { .. })) {
        info!(source, run, "the interrupted failover or switchover is undone or finished");
        *unfinished = None;
    } else if matches!(ended, Some(RunOutcome::Unchanged { refusal: SafetyRefusal::Superseded { .. } })) {
        info!(
            source,
            run,
            "the interrupted failover or switchover needs no recovery: another manager has acted on the cluster since"
        );
        *unfinished = None;
    } else if left.tries >= RECOVERIES_MAX {
        error!(
            source,
            run,
            "the interrupted failover or switchover could not be recovered, and is not tried again: see its audit record and those of its recoveries"
        );
        *unfinished = None;
    }
}

/// Repoints the replicas that a failover or switchover did not repoint after its promotion. Tries until all
/// replicas are repointed, another failover or switchover begins, or another manager has held the lease.
/// [`super::relay_repoint`] repoints relays. Hooks are not repeated, because it is unknown what they already
/// did.
pub(super) async fn finish<H: ActionExecutor + 'static>(
    cluster: Arc<ManagedCluster<H>>,
    (id, token): (String, Option<LeaseToken>),
    hands: Arc<H>,
    mut left: Vec<RunAction>,
) {
    left.retain(|act| matches!(act, RunAction::RepointReplica { .. }));
    for _ in 0..FINISH_TRIES_MAX {
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(FINISH_PAUSE).await;
        let mut still = Vec::new();
        for act in left {
            let is_last = cluster.lock_run().as_ref().is_some_and(|run| run.id == id);
            if !is_last {
                return;
            }
            let answer = match cluster.parts.lease.check() {
                Ok(now) if Some(now) != token => return,
                Ok(now) => hands.execute(&act, now).await,
                Err(reason) => ActionOutcome::Failed(reason.to_string()),
            };
            match answer {
                ActionOutcome::Done | ActionOutcome::DoneWithNote(_) => {
                    info!(id, "executed an action that the failover or switchover did not complete: {act}")
                }
                other => {
                    let (outcome, text) = other.summary();
                    warn!(
                        id,
                        "an action that the failover or switchover did not complete failed again: {act}: {outcome}: {text}"
                    );
                    still.push(act);
                }
            }
        }
        left = still;
    }
    let left: Vec<_> = left.iter().map(ToString::to_string).collect();
    error!(
        id,
        "some actions of the failover or switchover were not completed, and are not tried again: {}",
        left.join("; ")
    );
}

#[cfg(test)]
mod tests {
    use tailwater_manager::model::{Audit, AuditEntry, AuditEvent, RunPhase};

    use super::*;

    /// The audit record of a switchover that paused writes, or of its recovery.
    fn record(id: &str, resumes: Option<&str>, outcome: Option<RunOutcome>) -> Audit {
        let held = RunAction::PauseWrites { server: "db1".to_owned(), within_ms: 500, grace_ms: 100 };
        let note = AuditEvent::ActionOrdered { number: 1, what: held };
        Audit {
            id: id.to_owned(),
            kind: RunKind::Switchover,
            resumes: resumes.map(str::to_owned),
            primary: "db1".to_owned(),
            servers: Vec::new(),
            dry_run: false,
            allow_data_loss: false,
            token: Some(7),
            steps: vec![AuditEntry { at_ms: 1, phase: RunPhase::Pause, note }],
            holds: None,
            possible_loss: None,
            choice: None,
            pause_ms: None,
            outcome,
        }
    }

    #[test]
    fn the_last_failover_that_changed_something_counts_until_it_is_recovered() {
        let refusal = || SafetyRefusal::NoLease { reason: "gone".to_owned() };
        let promoted = || Some(RunOutcome::Promoted { server: "db2".to_owned(), left: Vec::new() });
        let undone = || Some(RunOutcome::Undone { refusal: refusal(), irreversible: Vec::new() });
        let unchanged = || Some(RunOutcome::Unchanged { refusal: refusal() });
        let left = || {
            Some(RunOutcome::Incomplete { refusal: refusal(), to_undo: Vec::new(), irreversible: Vec::new() })
        };
        let found = |newest_first: &[Audit]| {
            run_to_recover(newest_first.iter().cloned()).map(|traces| traces.run).unwrap_or_default()
        };
        assert_eq!(found(&[]), "");
        assert_eq!(found(&[record("b", None, promoted())]), "");
        assert_eq!(found(&[record("b", None, None), record("a", None, promoted())]), "b");
        // A failover or switchover that could not be undone is left to operators. Only if its manager lost
        // the lease, another manager recovers it.
        assert_eq!(found(&[record("b", None, left()), record("a", None, None)]), "");
        let mut lost = record("b", None, left());
        lost.steps.push(AuditEntry {
            at_ms: 2,
            phase: RunPhase::Pause,
            note: AuditEvent::RuleRefused { refusal: refusal() },
        });
        assert_eq!(found(&[lost]), "b");
        // A refused failover after the interrupted one does not change the result.
        assert_eq!(found(&[record("c", None, unchanged()), record("b", None, None)]), "b");
        assert_eq!(found(&[record("c", None, undone()), record("b", None, None)]), "");
        // After a recovery that was interrupted, had no effect, or was incomplete, the failover must still be
        // recovered. After a complete recovery, nothing is left to recover.
        for half in [None, unchanged(), left()] {
            assert_eq!(found(&[record("c", Some("b"), half), record("b", None, None)]), "b");
        }
        for whole in [undone(), promoted()] {
            let records = [
                record("d", Some("b"), None),
                record("c", Some("b"), whole),
                record("b", None, None),
                record("a", None, None),
            ];
            assert_eq!(found(&records), "");
        }
        // Another manager has superseded the failover or switchover, so it needs no recovery.
        let superseded = SafetyRefusal::Superseded {
            run: "b".to_owned(),
            by: "the relay obeyed another manager in term 8".to_owned(),
        };
        let over = Some(RunOutcome::Unchanged { refusal: superseded });
        assert_eq!(found(&[record("c", Some("b"), over), record("b", None, None)]), "");
        // The first recovery may have given orders to relays in lease term 9. The second recovery must not
        // take these orders for orders of another manager.
        let half = Audit { token: Some(9), ..record("c", Some("b"), left()) };
        let traces = run_to_recover([half, record("b", None, None)]);
        assert_eq!(traces.map(|traces| traces.term), Some(9));
        let dry = Audit { dry_run: true, ..record("c", None, None) };
        assert_eq!(found(&[dry, record("b", None, None)]), "b");
    }

    #[test]
    fn old_interrupted_failovers_are_left_to_operators() {
        let at = |text: &str| text.parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        let id = "20261122T101500123Z-shop-switchover";
        assert!(is_recent(id, at("2026-11-22T11:15:00Z")));
        assert!(!is_recent(id, at("2026-11-22T11:15:02Z")));
        assert!(!is_recent("by-hand", at("2026-11-22T11:15:02Z")));
    }
}
