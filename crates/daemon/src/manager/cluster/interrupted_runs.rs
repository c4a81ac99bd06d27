//! Work that runs leave undone: actions that failed after a promotion, and runs that were cut off.
//! `relay_repoint` handles relays that still follow the old primary.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tailwater_manager::SafetyRefusal;
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::cluster_watch::FailoverTrigger;
use tailwater_manager::driver::AuditStore;
use tailwater_manager::history::{InterruptedRun, run_to_recover};
use tailwater_manager::model::LeaseToken;
use tailwater_manager::model::{ActionOutcome, RunAction, RunKind, RunOutcome};
use tailwater_manager::recovery::RunRecovery;
use tracing::{error, info, warn};

use super::super::run_requests;
use super::super::shared_audits::SharedAudits;
use super::{ClusterParts, ManagedCluster, PreparedRun};
use crate::error_chain::ErrorChain;

/// Attempts to repoint replicas that a run did not repoint after its promotion, and the pause before each.
const FINISH_TRIES_MAX: u32 = 300;
pub(super) const FINISH_PAUSE: Duration = Duration::from_secs(1);

/// Attempts to undo or finish an interrupted run, and the pause before the second one, which doubles.
const RECOVERIES_MAX: u32 = 10;
const RECOVERY_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a failure to read the records of other managers.
const ADOPTION_PAUSE: Duration = Duration::from_secs(1);
/// Runs that began longer ago are left to operators.
const RECENT_SECONDS: i64 = 3600;

/// An interrupted run of this manager or a previous one, to be undone or finished.
struct Unfinished {
    traces: InterruptedRun,
    tries: u32,
    next: Instant,
}

impl Unfinished {
    /// The last run that changed anything, if it was cut off and is not recovered.
    fn of<H>(parts: &ClusterParts<H>) -> Option<Self> {
        let names = match parts.records.list() {
            Ok(names) => names,
            Err(error) => {
                error!(source = parts.source, "whether a run was left half done is not known: {error}");
                return None;
            }
        };
        let mut traces = run_to_recover(names.iter().rev().filter_map(|id| match parts.records.load(id) {
            Ok(audit) => audit,
            Err(error) => {
                warn!(source = parts.source, id, "a record cannot be read: {error}");
                None
            }
        }))?;
        if traces.kind == RunKind::Switchover || !traces.ackers.is_empty() {
            // Both kinds of run read or stop all relays. The record of another manager has other names for
            // them.
            traces.ackers = parts.relays.iter().map(|relay| relay.name.clone()).collect();
        }
        let (source, id) = (&parts.source, &traces.run);
        if !is_recent(id, chrono::Utc::now()) {
            warn!(source, id, "this run was cut off half way, and is too old to be touched: see its record");
            return None;
        }
        warn!(source, id, "this run was cut off half way: it is to be undone, or finished");
        Some(Self { traces, tries: 0, next: Instant::now() })
    }
}

/// Whether the last run that changed anything was cut off, is not recovered and not superseded, as in
/// [`Unfinished::of`]. Also true while the records cannot be listed, or those of another manager are not
/// read.
pub(super) fn is_half_way<H>(parts: &ClusterParts<H>) -> bool {
    if !is_adopted(parts) {
        return true;
    }
    let Ok(names) = parts.records.list() else { return true };
    let records = names.iter().rev().filter_map(|id| parts.records.load(id).ok().flatten());
    run_to_recover(records).is_some_and(|traces| is_recent(&traces.run, chrono::Utc::now()))
}

/// Whether a run is recent, by the time in its name: later an operator may have corrected its effects.
fn is_recent(id: &str, now: chrono::DateTime<chrono::Utc>) -> bool {
    let began = id.split('-').next().unwrap_or_default();
    let began = chrono::NaiveDateTime::parse_from_str(began, "%Y%m%dT%H%M%S%3fZ");
    began.is_ok_and(|began| (now - began.and_utc()).num_seconds() < RECENT_SECONDS)
}

/// Whether this manager has read the records of previous lease holders, or does not hold the lease.
pub(super) fn is_adopted<H>(parts: &ClusterParts<H>) -> bool {
    match (&parts.shared, parts.lease.check()) {
        (Some(shared), Ok(term)) => shared.is_read_in(term),
        _ => true,
    }
}

/// The runs that were cut off, as far as this manager knows.
#[derive(Default)]
pub(super) struct Leftovers {
    unfinished: Option<Unfinished>,
    /// The term in which it last searched for one.
    looked_in: Option<LeaseToken>,
}

impl Leftovers {
    /// Whether a recovery must come before any failover: it may make another server writable.
    pub(super) fn wait(&self, now: Option<LeaseToken>) -> bool {
        self.looked_in != now || self.unfinished.as_ref().is_some_and(|left| left.tries == 0)
    }
}

/// Searches for an interrupted run, once in each term, and again after a run of this manager was cut off.
/// Before that it reads the records of other managers: this one must undo or finish their runs.
pub(super) async fn look<H>(cluster: &ManagedCluster<H>, leftovers: &mut Leftovers) {
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
    *leftovers = Leftovers { unfinished: Unfinished::of(parts), looked_in: Some(term) };
}

/// Stores the records of other managers here. Returns whether it succeeded.
async fn adopt<H>(parts: &ClusterParts<H>, shared: &SharedAudits, term: LeaseToken) -> bool {
    let source = &parts.source;
    let records = match shared.read().await {
        Ok(records) => records,
        Err(reason) => {
            let reason = ErrorChain(&reason);
            warn!(source, "what another manager may have left half done is not known: {reason}");
            return false;
        }
    };
    for record in records {
        let id = &record.id;
        // A local record is as good, unless it lacks the end of the run.
        let known = parts.records.load(id).ok().flatten();
        if known.is_some_and(|known| known.outcome.is_some() || record.outcome.is_none()) {
            continue;
        }
        if let Err(error) = parts.records.save(&record) {
            // Nothing is done before this succeeds: a run could not store its own record either.
            error!(source, id, "what another manager left half done cannot be stored here: {error}");
            return false;
        }
    }
    shared.note_read_in(term);
    true
}

/// Undoes or finishes an interrupted run, if this manager may act and the pause is over. Another run that
/// starts meanwhile continues from the state that it finds, and ends the recovery.
pub(super) async fn recover<H: ActionExecutor + 'static>(
    cluster: &Arc<ManagedCluster<H>>,
    Leftovers { unfinished, .. }: &mut Leftovers,
) {
    let Some(left) = unfinished.as_mut() else { return };
    if !cluster.is_free() || Instant::now() < left.next {
        return;
    }
    // This manager may have waited days for the lease.
    match Unfinished::of(&cluster.parts).filter(|now| now.traces.run == left.traces.run) {
        Some(now) => left.traces = now.traces,
        None => {
            *unfinished = None;
            return;
        }
    }
    left.tries += 1;
    left.next = Instant::now() + RECOVERY_PAUSE * 2_u32.pow(left.tries - 1);
    let (source, run, traces) = (&cluster.parts.source, left.traces.run.clone(), left.traces.clone());
    let begun = cluster.begin("recovery", |id, watch, cluster_state| {
        let previous_primary = Some(traces.primary.clone());
        let order = run_requests::recovery(id, cluster_state, &cluster.parts.config, traces);
        let confirm = Arc::new(cluster.confirmation(watch, FailoverTrigger::DryRun));
        Ok(PreparedRun { machine: RunRecovery::new(order), confirm, previous_primary, changes: true })
    });
    let ended = match begun {
        Ok((id, task)) => {
            // Its record has the outcome.
            let _ = task.await;
            cluster.audit(&id).ok().flatten().and_then(|audit| audit.outcome)
        }
        Err(reason) => {
            warn!(source, run, "what it left cannot be recovered now: {}", ErrorChain(&reason));
            None
        }
    };
    if matches!(ended, Some(RunOutcome::Promoted { .. } | RunOutcome::Undone { .. })) {
        info!(source, run, "what it left is undone or finished");
        *unfinished = None;
    } else if matches!(ended, Some(RunOutcome::Unchanged { refusal: SafetyRefusal::Superseded { .. } })) {
        info!(source, run, "what it left is over: another manager has led the cluster since");
        *unfinished = None;
    } else if left.tries >= RECOVERIES_MAX {
        error!(source, run, "what it left is given up: see the records of this run and of its recoveries");
        *unfinished = None;
    }
}

/// Repoints the replicas that a run did not repoint after its promotion, until that is done, another run
/// begins, or another manager has held the lease. [`super::relay_repoint`] repoints relays. Hooks are not
/// repeated, because their effect is unknown.
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
                    info!(id, "what was left is done: {act}")
                }
                other => {
                    let (outcome, text) = other.summary();
                    warn!(id, "still to be done: {act}: {outcome}: {text}");
                    still.push(act);
                }
            }
        }
        left = still;
    }
    let left: Vec<_> = left.iter().map(ToString::to_string).collect();
    error!(id, "given up: {}", left.join("; "));
}

#[cfg(test)]
mod tests {
    use tailwater_manager::model::{Audit, AuditEntry, AuditEvent, RunPhase};

    use super::*;

    /// A switchover that paused writes, or its recovery.
    fn record(id: &str, resumes: Option<&str>, outcome: Option<RunOutcome>) -> Audit {
        let held = RunAction::PauseWrites { server: "db1".to_owned(), within_ms: 500, grace_ms: 100 };
        let note = AuditEvent::ActionOrdered { number: 1, what: held };
        Audit {
            id: id.to_owned(),
            kind: RunKind::Switchover,
            resumes: resumes.map(str::to_owned),
            primary: "db1".to_owned(),
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
    fn the_last_run_that_changed_something_counts_until_it_is_recovered() {
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
        // A run that could not be undone is left to operators, unless it lost the lease.
        assert_eq!(found(&[record("b", None, left()), record("a", None, None)]), "");
        let mut lost = record("b", None, left());
        lost.steps.push(AuditEntry {
            at_ms: 2,
            phase: RunPhase::Pause,
            note: AuditEvent::RuleRefused { refusal: refusal() },
        });
        assert_eq!(found(&[lost]), "b");
        // A refused failover makes no difference.
        assert_eq!(found(&[record("c", None, unchanged()), record("b", None, None)]), "b");
        assert_eq!(found(&[record("c", None, undone()), record("b", None, None)]), "");
        // Recoveries that were cut off, had no effect, or were incomplete; then complete ones.
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
        // Another manager has superseded the run, so it is over.
        let superseded =
            SafetyRefusal::Superseded { run: "b".to_owned(), by: "relay was led in term 8".to_owned() };
        let over = Some(RunOutcome::Unchanged { refusal: superseded });
        assert_eq!(found(&[record("c", Some("b"), over), record("b", None, None)]), "");
        // The orders of the recovery do not prevent the next one.
        let half = Audit { token: Some(9), ..record("c", Some("b"), left()) };
        let traces = run_to_recover([half, record("b", None, None)]);
        assert_eq!(traces.map(|traces| traces.term), Some(9));
        let dry = Audit { dry_run: true, ..record("c", None, None) };
        assert_eq!(found(&[dry, record("b", None, None)]), "b");
    }

    #[test]
    fn what_is_old_is_left_to_people() {
        let at = |text: &str| text.parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        let id = "20261122T101500123Z-shop-switchover";
        assert!(is_recent(id, at("2026-11-22T11:15:00Z")));
        assert!(!is_recent(id, at("2026-11-22T11:15:02Z")));
        assert!(!is_recent("by-hand", at("2026-11-22T11:15:02Z")));
    }
}
