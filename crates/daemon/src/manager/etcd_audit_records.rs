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
use tailwater_manager::model::{Audit, AuditEvent, LeaseToken, NamedServer, RunOutcome};
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

/// The longest value that this manager writes, in bytes. etcd refuses requests of more than 1.5 MiB by
/// default, and a request contains the value as base64, which is a third longer.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// A value that is longer than this, in bytes, is reported before it reaches [`VALUE_BYTES_MAX`].
const VALUE_BYTES_WARNING: usize = VALUE_BYTES_MAX / 4 * 3;

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
            let (shared, bytes) = bounded(shared)?;
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

    /// Stores audit records of this machine in etcd if etcd has none, and returns whether it did so. etcd has
    /// no records after it was created again or lost its data.
    ///
    /// # Errors
    /// If etcd does not answer, or does not accept the value.
    pub async fn restore(&self, newest_first: &[Audit], term: u64) -> anyhow::Result<bool> {
        let mut etcd = self.etcd.lock().await;
        let (revision, shared) = etcd.read().await?;
        let oldest_first = newest_first.iter().rev().filter(|audit| !audit.dry_run && audit.token.is_some());
        let records = oldest_first.fold(Vec::new(), with);
        if !shared.records.is_empty() || records.is_empty() {
            return Ok(false);
        }
        let highest = records.iter().filter_map(|record| record.token).max();
        let (shared, bytes) = bounded(Shared { term: highest.unwrap_or_default().max(term), records })?;
        let revision = etcd.value.replace(revision, &bytes).await?;
        etcd.written = revision.map(|revision| (revision, shared));
        Ok(revision.is_some())
    }

    /// Checks that a failover could store its audit record in etcd now: etcd accepts a write, and the value
    /// has space for more records. Writes the value unchanged. Returns the problem, if there is one.
    pub async fn problem(&self) -> Option<String> {
        let mut etcd = self.etcd.lock().await;
        let written = async {
            let stored = etcd.value.read().await?;
            // The key may not exist before the first failover. Then an empty list is written.
            let bytes = match stored.bytes {
                Some(bytes) => bytes,
                None => serde_json::to_vec(&Shared::default())?,
            };
            let shared = understood(Some(&bytes))?;
            // The revision changes. A failover that begins now waits for the lock, and need not read the
            // value.
            etcd.written = None;
            let revision = etcd.value.replace(stored.revision, &bytes).await?;
            etcd.written = revision.map(|revision| (revision, shared));
            anyhow::Ok(bytes.len())
        };
        match written.await {
            Ok(bytes) => (bytes > VALUE_BYTES_WARNING).then(|| {
                format!(
                    "the audit records in etcd have {bytes} bytes, and at most {VALUE_BYTES_MAX} are stored"
                )
            }),
            Err(reason) => {
                Some(format!("the audit records cannot be written to etcd: {}", ErrorChain(&reason)))
            }
        }
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

/// Returns the value with its bytes, at most [`VALUE_BYTES_MAX`] of them. If it is longer, leaves out what
/// other managers need least: first the texts of results, then the oldest changes of the primary. The records
/// of an interrupted failover or switchover and of its recoveries are always kept.
///
/// # Errors
/// If these records alone are too long.
fn bounded(mut shared: Shared) -> anyhow::Result<(Shared, Vec<u8>)> {
    let mut bytes = serde_json::to_vec(&shared)?;
    if bytes.len() > VALUE_BYTES_MAX {
        let steps = shared.records.iter_mut().flat_map(|record| &mut record.steps);
        for step in steps {
            if let AuditEvent::ActionAnswered { text, .. } = &mut step.note {
                text.clear();
            }
        }
        bytes = serde_json::to_vec(&shared)?;
    }
    while bytes.len() > VALUE_BYTES_MAX {
        let is_change = |record: &Audit| matches!(record.outcome, Some(RunOutcome::Promoted { .. }));
        let others = shared.records.len().saturating_sub(1);
        let Some(oldest) = shared.records.iter().take(others).position(is_change) else {
            bail!(
                "the audit record has {} bytes, and at most {VALUE_BYTES_MAX} can be stored in etcd",
                bytes.len()
            );
        };
        shared.records.remove(oldest);
        bytes = serde_json::to_vec(&shared)?;
    }
    Ok((shared, bytes))
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
    /// The servers of the cluster, which are stored in each record.
    pub servers: Vec<NamedServer>,
}

impl AuditStore for AuditRecords {
    /// Writes to disk and waits for etcd, so it must be called on a thread for blocking work.
    fn save(&self, audit: &Audit) -> Result<(), AuditError> {
        let audit = &Audit { servers: self.servers.clone(), ..audit.clone() };
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
            servers: Vec::new(),
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
    fn the_value_in_etcd_is_bounded() {
        // Sets of GTIDs may be long: these changes have about 100 KiB each.
        let missing = PossibleLoss {
            after: Some("x".repeat(100 << 10)),
            known: None,
            held_by: Vec::new(),
            grows: true,
        };
        let change = |at: usize| Audit {
            possible_loss: Some(missing.clone()),
            ..promoted(held(&format!("a{at:02}"), 1), "db2")
        };
        let records = (0..CHANGES_MAX).fold(Vec::new(), |records, at| with(records, &change(at)));
        let records = with(records, &fenced("b", 2));
        let (shared, bytes) = bounded(Shared { term: 2, records }).unwrap();
        assert!(bytes.len() <= VALUE_BYTES_MAX, "the value has {} bytes", bytes.len());
        let kept = ids(&shared.records);
        assert_eq!((kept.first(), kept.last(), kept.len()), (Some(&"a22"), Some(&"b"), 11));
        assert_eq!(understood(Some(&bytes)).unwrap().records, shared.records);

        let long = PossibleLoss { after: Some("x".repeat(VALUE_BYTES_MAX)), ..missing };
        let error =
            bounded(Shared { term: 2, records: vec![Audit { possible_loss: Some(long), ..fenced("c", 2) }] });
        let error = error.map(drop).unwrap_err().to_string();
        assert!(error.contains("can be stored in etcd"), "another error was expected: {error}");
    }

    #[test]
    fn an_audit_record_of_a_later_version_is_ignored() {
        let known = serde_json::to_value(held("a", 1)).unwrap();
        let text = serde_json::json!({ "term": 7, "records": [{ "id": "b", "kind": "other" }, known] });
        let shared = understood(Some(text.to_string().as_bytes())).unwrap();
        assert_eq!((shared.term, ids(&shared.records)), (7, vec!["a"]));
        assert!(understood(Some(b"{")).is_err());
    }

    fn shared_in(etcd: &Etcd) -> SharedAudits {
        shared_at(etcd, "/tailwater/orders/run")
    }

    fn shared_at(etcd: &Etcd, key: &str) -> SharedAudits {
        let value = EtcdValue::new(EtcdOptions {
            endpoints: vec![etcd.endpoint()],
            key: key.to_owned(),
            request_ms_max: 5_000,
            ..EtcdOptions::default()
        });
        SharedAudits::new(value.unwrap())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_etcd_that_lost_its_data_gets_the_records_of_a_manager_again() {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = Etcd::require() else { return };
        let etcd = Etcd::start(&program, folder.path()).await.unwrap();
        let [one, two] = [shared_in(&etcd), shared_in(&etcd)];
        assert_eq!(one.problem().await, None);
        assert!(!one.restore(&[], 3).await.unwrap(), "nothing is stored by a manager without records");
        let newest_first = [
            undone(fenced("c", 3)),
            promoted(fenced("b", 2), "db3"),
            Audit { dry_run: true, ..promoted(fenced("a-dry-run", 2), "db3") },
            promoted(fenced("a", 1), "db2"),
        ];
        assert!(one.restore(&newest_first, 4).await.unwrap());
        assert_eq!(ids(&two.read().await.unwrap()), ["a", "b", "c"]);
        assert!(!two.restore(&newest_first[3..], 4).await.unwrap(), "existing records are not replaced");
        assert_eq!(two.problem().await, None);
        // The check has changed the revision of the value. The first manager still stores its next record.
        one.store(&promoted(held("d", 4), "db1"), 4).await.unwrap();
        assert_eq!(ids(&two.read().await.unwrap()), ["a", "b", "d"]);
        assert!(two.store(&held("e", 3), 3).await.is_err(), "a manager of an earlier term stored a record");
        drop(etcd);
        let problem = two.problem().await.unwrap_or_default();
        assert!(problem.contains("cannot be written to etcd"), "another problem was expected: {problem:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_etcd_without_space_is_found_before_a_failover() {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = Etcd::require() else { return };
        let etcd = Etcd::start_with_quota(&program, folder.path(), 4 << 20).await.unwrap();
        let records = shared_in(&etcd);
        records.store(&fenced("a", 1), 1).await.unwrap();
        assert_eq!(records.problem().await, None);
        let options = EtcdOptions {
            endpoints: vec![etcd.endpoint()],
            key: "/other".to_owned(),
            request_ms_max: 5_000,
            ..EtcdOptions::default()
        };
        let mut other = EtcdValue::new(options).unwrap();
        let mut revision = Some(0);
        while let Some(at) = revision {
            revision = other.replace(at, &vec![b'x'; 512 << 10]).await.unwrap_or(None);
        }
        let problem = records.problem().await.unwrap_or_default();
        assert!(problem.contains("space"), "the problem does not name the space of etcd: {problem:?}");
        // A manager that must restore the records reports that etcd does not accept them.
        let lost = shared_at(&etcd, "/tailwater/other/run");
        let error = lost.restore(&[promoted(fenced("a", 1), "db2")], 2).await.unwrap_err();
        let error = ErrorChain(&error).to_string();
        assert!(error.contains("space"), "the error does not name the space of etcd: {error}");
        assert_eq!(ids(&records.read().await.unwrap()), ["a"]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_manager_finds_the_failover_that_another_manager_began() {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = Etcd::require() else { return };
        let etcd = Etcd::start(&program, folder.path()).await.unwrap();
        let [one, two] = ["one", "two"].map(|name| {
            let shared = Some(shared_in(&etcd).into());
            AuditRecords { folder: AuditFolder::new(folder.path().join(name)), shared, servers: Vec::new() }
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
