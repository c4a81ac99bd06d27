//! Audit records of failovers and switchovers in etcd, next to the lease, for all managers. From these
//! records the next holder of the lease learns which failover or switchover was interrupted, for example with
//! a read-only primary or stopped ackers. They also show how each former primary was replaced.

use std::io;
use std::sync::Arc;

use anyhow::{Context, bail};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Deserializer, Serialize};
use tailwater_manager::failover_driver::{AuditError, AuditFolder, AuditStore};
use tailwater_manager::lease::EtcdValue;
use tailwater_manager::model::{Audit, AuditEvent, LeaseToken, RunOutcome};
use tracing::warn;

use crate::error_chain::ErrorChain;
use tailwater_manager::audit_history::run_to_recover;

/// How many times a manager tries again to store an audit record, because other managers store records at the
/// same time.
const TRIES_MAX: u32 = 5;

/// How many earlier changes of the primary are kept. Other managers do not rejoin a server that was replaced
/// before the oldest kept change.
const CHANGES_MAX: usize = 32;

/// How many characters of an action's result are kept. etcd accepts at most 1.5 MiB, and GTID sets may be
/// long.
const ANSWER_CHARS_MAX: usize = 200;

/// The value in etcd.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Shared {
    /// The highest lease term in which a manager stored an audit record.
    term: u64,
    /// The earlier changes of the primary, then the last failover or switchover with its recoveries; the
    /// oldest first.
    #[serde(deserialize_with = "readable")]
    records: Vec<Audit>,
}

/// The audit records of one source's failovers and switchovers in etcd.
#[derive(Debug)]
pub struct SharedAudits {
    etcd: tokio::sync::Mutex<InEtcd>,
    /// The lease term in which this manager last read the audit records.
    read_in: Mutex<Option<LeaseToken>>,
}

#[derive(Debug)]
struct InEtcd {
    value: EtcdValue,
    /// The value that this manager wrote last, with its revision in etcd, so that a failover or switchover
    /// need not read the value first.
    written: Option<(u64, Shared)>,
}

impl SharedAudits {
    /// Creates access to the audit records under the key of `value`.
    pub fn new(value: EtcdValue) -> Self {
        Self { etcd: tokio::sync::Mutex::new(InEtcd { value, written: None }), read_in: Mutex::default() }
    }

    /// Whether this manager has read the audit records in this lease term. All later records of the term are
    /// written by this manager itself.
    pub fn is_read_in(&self, term: LeaseToken) -> bool {
        *self.lock() == Some(term)
    }

    /// Notes that this manager has read the audit records in this lease term.
    pub fn note_read_in(&self, term: LeaseToken) {
        *self.lock() = Some(term);
    }

    /// Returns the audit records, the oldest first.
    ///
    /// # Errors
    /// If etcd does not answer, or the value cannot be parsed.
    pub async fn read(&self) -> anyhow::Result<Vec<Audit>> {
        Ok(self.etcd.lock().await.read().await?.1.records)
    }

    /// Stores an audit record. Fails if a manager of a later lease term has stored a record, because then
    /// this manager has lost the lease.
    async fn store(&self, audit: &Audit, term: u64) -> anyhow::Result<()> {
        let mut etcd = self.etcd.lock().await;
        for _ in 0..TRIES_MAX {
            let (revision, Shared { term: last, records }) = match etcd.written.take() {
                Some(written) => written,
                None => etcd.read().await?,
            };
            if last > term {
                bail!("the manager of the later lease term {last} has already stored an audit record");
            }
            let shared = Shared { term, records: with(records, audit) };
            let bytes = serde_json::to_vec(&shared)?;
            if let Some(revision) = etcd.value.replace(revision, &bytes).await? {
                etcd.written = Some((revision, shared));
                return Ok(());
            }
            // The client may have sent the request to a second etcd member because the first one was slow,
            // and both members may have executed it.
            let now = etcd.value.read().await?;
            if now.bytes.as_deref() == Some(bytes.as_slice()) {
                etcd.written = Some((now.revision, shared));
                return Ok(());
            }
        }
        bail!(
            "other managers changed the audit record in etcd before each of {TRIES_MAX} attempts to store it"
        )
    }

    fn lock(&self) -> MutexGuard<'_, Option<LeaseToken>> {
        self.read_in.lock()
    }
}

impl InEtcd {
    /// Returns the value and its revision.
    async fn read(&mut self) -> anyhow::Result<(u64, Shared)> {
        let stored = self.value.read().await?;
        Ok((stored.revision, understood(stored.bytes.as_deref())?))
    }
}

fn understood(bytes: Option<&[u8]>) -> anyhow::Result<Shared> {
    let Some(bytes) = bytes else { return Ok(Shared::default()) };
    serde_json::from_slice(bytes)
        .context("the audit records in etcd cannot be parsed; remove their key to start without records")
}

/// Returns the audit records that can be parsed. Records of a later version of Tailwater may contain unknown
/// events; this manager ignores such records.
fn readable<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Audit>, D::Error> {
    let records = Vec::<serde_json::Value>::deserialize(from)?;
    let read = records.into_iter().filter_map(|record| {
        let read = Audit::deserialize(&record);
        read.inspect_err(|error| warn!(id = %record["id"], "an audit record in etcd cannot be parsed and is ignored: {error}"))
            .ok()
    });
    Ok(read.collect())
}

/// Returns the audit records with this record added. While a failover or switchover is interrupted, all
/// records are kept. Otherwise only this record and the earlier changes of the primary are kept; the earlier
/// changes are kept without their steps.
fn with(mut records: Vec<Audit>, audit: &Audit) -> Vec<Audit> {
    records.retain(|record| record.id != audit.id);
    // The audit records of refused failovers and switchovers are left out, because they would accumulate
    // after an interrupted one.
    if changes_nothing(audit) {
        return records;
    }
    records.push(brief(audit));
    if run_to_recover(records.iter().rev().cloned()).is_some() {
        return records;
    }
    let last = records.pop();
    records.retain(|record| matches!(record.outcome, Some(RunOutcome::Promoted { .. })));
    records.drain(..records.len().saturating_sub(CHANGES_MAX));
    records.iter_mut().for_each(|record| record.steps.clear());
    records.extend(last);
    records
}

/// Whether a failover or switchover was refused before it changed anything, and is not a recovery.
fn changes_nothing(audit: &Audit) -> bool {
    audit.resumes.is_none() && matches!(audit.outcome, Some(RunOutcome::Unchanged { .. }))
}

/// Returns the part of an audit record that other managers need. The machine that executed the failover or
/// switchover keeps the whole record.
fn brief(audit: &Audit) -> Audit {
    let mut audit = Audit { holds: None, choice: None, ..audit.clone() };
    for step in &mut audit.steps {
        if let AuditEvent::ActionAnswered { text, .. } = &mut step.note {
            *text = text.chars().take(ANSWER_CHARS_MAX).collect();
        }
    }
    audit
}

/// The audit records of a source's failovers and switchovers, on this machine and in etcd for other managers.
#[derive(Debug, Clone)]
pub struct AuditRecords {
    /// The audit records on this machine.
    pub folder: AuditFolder,
    /// The audit records in etcd; `None` if there is only one manager.
    pub shared: Option<Arc<SharedAudits>>,
}

impl AuditStore for AuditRecords {
    /// Writes to disk and waits for etcd, so it must be called on a thread for blocking work.
    fn save(&self, audit: &Audit) -> Result<(), AuditError> {
        let wanted = self.shared.as_ref().filter(|_| !audit.dry_run);
        let shared = match (wanted, audit.token) {
            (Some(shared), Some(term)) => {
                tokio::runtime::Handle::current().block_on(shared.store(audit, term))
            }
            _ => Ok(()),
        };
        // Operators read the audit record on this machine, so it is stored even if etcd fails.
        self.folder.save(audit)?;
        shared.map_err(|reason| {
            let source = io::Error::other(ErrorChain(&reason).to_string());
            AuditError { path: format!("{}, in etcd", audit.id).into(), source }
        })
    }
}

#[cfg(test)]
mod tests {
    use tailwater_manager::SafetyRefusal;
    use tailwater_manager::lease::EtcdOptions;
    use tailwater_manager::lossless_rules::PossibleLoss;
    use tailwater_manager::model::{AuditEntry, RunAction, RunKind, RunPhase};
    use tailwater_sandbox::etcd_process::Etcd;

    use super::*;

    /// The audit record of a switchover that paused writes, in this lease term.
    fn held(id: &str, term: u64) -> Audit {
        let act = RunAction::PauseWrites { server: "db1".to_owned(), within_ms: 500, grace_ms: 100 };
        let note = AuditEvent::ActionOrdered { number: 1, what: act };
        Audit {
            id: id.to_owned(),
            kind: RunKind::Switchover,
            resumes: None,
            primary: "db1".to_owned(),
            dry_run: false,
            allow_data_loss: false,
            token: Some(term),
            steps: vec![AuditEntry { at_ms: 1, phase: RunPhase::Pause, note }],
            holds: None,
            possible_loss: None,
            choice: None,
            pause_ms: None,
            outcome: None,
        }
    }

    fn undone(mut audit: Audit) -> Audit {
        let refusal = SafetyRefusal::NoLease { reason: "the test ends this failover".to_owned() };
        audit.outcome = Some(RunOutcome::Undone { refusal, irreversible: Vec::new() });
        audit
    }

    /// The audit record of a failover that stopped an acker, in this lease term.
    fn fenced(id: &str, term: u64) -> Audit {
        let act = RunAction::StopAcker { acker: "relay1".to_owned() };
        let note = AuditEvent::ActionOrdered { number: 1, what: act };
        let steps = vec![AuditEntry { at_ms: 1, phase: RunPhase::Fence, note }];
        Audit { kind: RunKind::Failover, steps, ..held(id, term) }
    }

    fn promoted(mut audit: Audit, server: &str) -> Audit {
        audit.outcome = Some(RunOutcome::Promoted { server: server.to_owned(), left: Vec::new() });
        audit
    }

    fn ids(records: &[Audit]) -> Vec<&str> {
        records.iter().map(|record| record.id.as_str()).collect()
    }

    #[test]
    fn an_interrupted_failover_is_kept_in_etcd_until_it_is_recovered() {
        let records = with(Vec::new(), &undone(held("a", 1)));
        let records = with(records, &held("b", 1));
        assert_eq!(ids(&records), ["a", "b"]);
        let recovery = Audit { resumes: Some("b".to_owned()), ..held("c", 2) };
        let records = with(records, &recovery);
        assert_eq!(
            ids(&records),
            ["a", "b", "c"],
            "the recovery may be interrupted as well, so all records are kept"
        );
        assert_eq!(ids(&with(records, &undone(recovery))), ["c"]);
    }

    #[test]
    fn an_interrupted_failover_is_kept_and_refused_failovers_are_not() {
        let refused = |id: &str| {
            let refusal = SafetyRefusal::NoLease { reason: "the test refuses this failover".to_owned() };
            Audit { steps: Vec::new(), outcome: Some(RunOutcome::Unchanged { refusal }), ..fenced(id, 1) }
        };
        let records = with(Vec::new(), &fenced("a", 1));
        let records = (0..9).fold(records, |records, at| with(records, &refused(&format!("b{at}"))));
        assert_eq!(ids(&records), ["a"]);
        let recovery = Audit { resumes: Some("a".to_owned()), ..fenced("c", 2) };
        assert_eq!(ids(&with(records, &undone(recovery))), ["c"]);
    }

    #[test]
    fn earlier_changes_of_the_primary_are_kept_without_their_steps() {
        let mut long = promoted(fenced("a", 1), "db2");
        long.holds = Some("0-1-1".to_owned());
        let text = "ä".repeat(3 * ANSWER_CHARS_MAX);
        long.steps.push(AuditEntry {
            at_ms: 2,
            phase: RunPhase::Fence,
            note: AuditEvent::ActionAnswered { number: 1, outcome: "done".to_owned(), text },
        });
        let missing = PossibleLoss { after: None, known: None, held_by: Vec::new(), grows: true };
        long.possible_loss = Some(missing.clone());
        let records = with(Vec::new(), &long);
        assert_eq!(records[0].steps.len(), 2);
        assert!(records[0].to_string().chars().count() < 2 * ANSWER_CHARS_MAX + 200);
        assert!(records[0].holds.is_none());
        // Of earlier failovers and switchovers, `with` keeps only the outcome.
        let records = with(records, &undone(fenced("b", 2)));
        let records = with(records, &promoted(held("c", 3), "db3"));
        assert_eq!(ids(&records), ["a", "c"]);
        assert!(records[0].steps.is_empty() && !records[1].steps.is_empty());
        assert_eq!(records[0].possible_loss, Some(missing));
        let many = (0..2 * CHANGES_MAX)
            .fold(records, |records, at| with(records, &promoted(held(&format!("d{at}"), 3), "db3")));
        assert_eq!(many.len(), CHANGES_MAX + 1);
        assert_eq!(many[CHANGES_MAX].id, format!("d{}", 2 * CHANGES_MAX - 1));
    }

    #[test]
    fn an_audit_record_of_a_later_version_is_ignored() {
        let known = serde_json::to_value(held("a", 1)).unwrap();
        let text = serde_json::json!({ "term": 7, "records": [{ "id": "b", "kind": "other" }, known] });
        let shared = understood(Some(text.to_string().as_bytes())).unwrap();
        assert_eq!((shared.term, ids(&shared.records)), (7, vec!["a"]));
        assert!(understood(Some(b"{")).is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_manager_finds_the_failover_that_another_manager_began() {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = Etcd::require() else { return };
        let etcd = Etcd::start(&program, folder.path()).await.unwrap();
        let [one, two] = ["one", "two"].map(|name| {
            let value = EtcdValue::new(EtcdOptions {
                endpoints: vec![etcd.endpoint()],
                key: "/tailwater/orders/run".to_owned(),
                request_ms_max: 5_000,
                ..EtcdOptions::default()
            });
            let shared = Some(SharedAudits::new(value.unwrap()).into());
            AuditRecords { folder: AuditFolder::new(folder.path().join(name)), shared }
        });
        let save = async |records: &AuditRecords, audit: Audit| {
            let records = records.clone();
            tokio::task::spawn_blocking(move || records.save(&audit)).await.unwrap()
        };
        let found = async |records: &AuditRecords| records.shared.as_ref().unwrap().read().await.unwrap();
        assert!(found(&two).await.is_empty());
        save(&one, held("a", 1)).await.unwrap();
        assert_eq!(ids(&found(&two).await), ["a"]);
        // A failover is stored in etcd from the fence on. A failover that changed nothing is not stored
        // there.
        save(&one, undone(held("a", 1))).await.unwrap();
        save(&one, fenced("b", 1)).await.unwrap();
        save(&one, Audit { dry_run: true, ..held("c", 1) }).await.unwrap();
        let left = run_to_recover(found(&two).await.into_iter().rev()).unwrap();
        assert_eq!((left.run, left.ackers), ("b".to_owned(), vec!["relay1".to_owned()]));
        assert_eq!(one.folder.list().unwrap(), ["a", "b", "c"]);

        // A manager that lost the lease cannot continue its failover, and overwrites no audit record.
        let recovery = Audit { resumes: Some("b".to_owned()), ..fenced("d", 2) };
        save(&two, recovery.clone()).await.unwrap();
        let refused = save(&one, fenced("b", 1)).await.unwrap_err();
        assert!(
            refused.to_string().contains("term 2"),
            "the error does not name the later lease term: {refused}"
        );
        save(&two, promoted(recovery, "db2")).await.unwrap();
        assert_eq!(ids(&found(&one).await), ["d"]);
        // If the audit record of a failover or switchover cannot be stored in etcd, the failover or
        // switchover does not start, but its audit record on this machine remains.
        drop(etcd);
        assert!(save(&two, held("e", 3)).await.is_err());
        assert!(two.folder.load("e").unwrap().is_some());
    }
}
