//! The records of switchovers where every manager finds them: in etcd, beside the lease. Whoever takes the lease over knows from them
//! what another left half done, whose primary takes no writes meanwhile; a failover that is left needs nobody's record, since the
//! primary is dead and the next one begins anew.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};
use serde::{Deserialize, Deserializer, Serialize};
use tailwater_manager::driving::{AuditFolder, AuditStore, RecordError};
use tailwater_manager::failover::{Audit, Kind};
use tailwater_manager::lease::{EtcdValue, Token};
use tracing::warn;

use super::cluster::leftovers::unfinished;
use crate::causes::WithCauses;

/// How often a record is stored anew because another manager has stored one meanwhile.
const TRIES_MAX: u32 = 5;

/// What lies in etcd.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Shared {
    /// The highest term in which something was stored.
    term: u64,
    /// The last switchover, and what was done about it, the oldest first.
    #[serde(deserialize_with = "readable")]
    records: Vec<Audit>,
}

/// The records of one source's switchovers in etcd.
#[derive(Debug)]
pub struct SharedRecords {
    etcd: tokio::sync::Mutex<EtcdValue>,
    /// The term in which this manager has read them.
    read_in: Mutex<Option<Token>>,
}

impl SharedRecords {
    /// Under that key.
    pub fn new(etcd: EtcdValue) -> Self {
        Self { etcd: tokio::sync::Mutex::new(etcd), read_in: Mutex::default() }
    }

    /// Whether they were read in this term: who holds the lease longer than that has written what came since.
    pub fn is_read_in(&self, term: Token) -> bool {
        *self.lock() == Some(term)
    }

    /// Notes that they were read in this term.
    pub fn note_read_in(&self, term: Token) {
        *self.lock() = Some(term);
    }

    /// What there is, the oldest first.
    ///
    /// # Errors
    /// If etcd does not answer, or what it has is not understood.
    pub async fn read(&self) -> anyhow::Result<Vec<Audit>> {
        let stored = self.etcd.lock().await.read().await?;
        Ok(understood(stored.bytes.as_deref())?.records)
    }

    /// Stores a record, unless a manager of a later term has stored one: then this one's lease is over.
    async fn store(&self, audit: &Audit, term: u64) -> anyhow::Result<()> {
        let mut etcd = self.etcd.lock().await;
        for _ in 0..TRIES_MAX {
            let stored = etcd.read().await?;
            let Shared { term: last, records } = understood(stored.bytes.as_deref())?;
            if last > term {
                bail!("the manager of term {last} has stored its own since");
            }
            let shared = Shared { term, records: with(records, audit) };
            if etcd.replace(stored.revision, &serde_json::to_vec(&shared)?).await? {
                return Ok(());
            }
        }
        bail!("others change it all the time; {TRIES_MAX} tries came too late")
    }

    // Nothing panics while it is held.
    fn lock(&self) -> MutexGuard<'_, Option<Token>> {
        self.read_in.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn understood(bytes: Option<&[u8]>) -> anyhow::Result<Shared> {
    let Some(bytes) = bytes else { return Ok(Shared::default()) };
    serde_json::from_slice(bytes)
        .context("the records in etcd are not understood; remove their key to begin anew")
}

/// The records that can be read: those of a manager of a later version may tell of what this one does not know, and it may act as if
/// they were not there.
fn readable<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Audit>, D::Error> {
    let records = Vec::<serde_json::Value>::deserialize(from)?;
    let read = records.into_iter().filter_map(|record| {
        let read = Audit::deserialize(&record);
        read.inspect_err(|error| warn!(id = %record["id"], "a record in etcd is not understood: {error}"))
            .ok()
    });
    Ok(read.collect())
}

/// The records with this one among them; only this one when nothing is left half done.
fn with(mut records: Vec<Audit>, audit: &Audit) -> Vec<Audit> {
    records.retain(|record| record.id != audit.id);
    records.push(audit.clone());
    if unfinished(records.iter().rev().cloned()).is_none() {
        records.drain(..records.len() - 1);
    }
    records
}

/// Where the records of a source's runs lie: on this machine, and of switchovers where others find them, too.
#[derive(Debug, Clone)]
pub struct Records {
    /// On this machine.
    pub folder: AuditFolder,
    /// Where others find them; nothing if one manager is alone.
    pub shared: Option<Arc<SharedRecords>>,
}

impl AuditStore for Records {
    /// Blocks; on a thread of a runtime's for blocking work.
    fn save(&self, audit: &Audit) -> Result<(), RecordError> {
        let wanted = self.shared.as_ref().filter(|_| audit.kind == Kind::Switchover && !audit.dry_run);
        let shared = match (wanted, audit.token) {
            (Some(shared), Some(term)) => {
                tokio::runtime::Handle::current().block_on(shared.store(audit, term))
            }
            _ => Ok(()),
        };
        // Where people look it stands, whatever becomes of the other.
        self.folder.save(audit)?;
        shared.map_err(|reason| {
            let source = io::Error::other(WithCauses(&reason).to_string());
            RecordError { path: format!("{} in etcd", audit.id).into(), source }
        })
    }
}

#[cfg(test)]
mod tests {
    use tailwater_manager::Refusal;
    use tailwater_manager::failover::{Act, End, Note, Phase, Step};
    use tailwater_manager::lease::EtcdOptions;
    use tailwater_sandbox::etcd::Etcd;

    use super::*;

    /// A switchover whose writes were held, in that term.
    fn held(id: &str, term: u64) -> Audit {
        let act = Act::HoldWrites { server: "db1".to_owned(), within_ms: 500, grace_ms: 100 };
        let note = Note::Ordered { number: 1, what: act };
        Audit {
            id: id.to_owned(),
            kind: Kind::Switchover,
            resumes: None,
            primary: "db1".to_owned(),
            dry_run: false,
            allow_data_loss: false,
            token: Some(term),
            steps: vec![Step { at_ms: 1, phase: Phase::Pause, note }],
            holds: None,
            may_be_missing: None,
            choice: None,
            pause_ms: None,
            outcome: None,
        }
    }

    fn undone(mut audit: Audit) -> Audit {
        let refusal = Refusal::NoLease { reason: "as the test says".to_owned() };
        audit.outcome = Some(End::Undone { refusal, stays: Vec::new() });
        audit
    }

    fn ids(records: &[Audit]) -> Vec<&str> {
        records.iter().map(|record| record.id.as_str()).collect()
    }

    #[test]
    fn what_was_left_stays_until_it_is_recovered() {
        let records = with(Vec::new(), &undone(held("a", 1)));
        let records = with(records, &held("b", 1));
        assert_eq!(ids(&records), ["a", "b"]);
        let recovery = Audit { resumes: Some("b".to_owned()), ..held("c", 2) };
        let records = with(records, &recovery);
        assert_eq!(ids(&records), ["a", "b", "c"], "it may die as well");
        assert_eq!(ids(&with(records, &undone(recovery))), ["c"]);
    }

    #[test]
    fn what_a_later_version_tells_holds_nobody_up() {
        let known = serde_json::to_value(held("a", 1)).unwrap();
        let text = serde_json::json!({ "term": 7, "records": [{ "id": "b", "kind": "other" }, known] });
        let shared = understood(Some(text.to_string().as_bytes())).unwrap();
        assert_eq!((shared.term, ids(&shared.records)), (7, vec!["a"]));
        assert!(understood(Some(b"{")).is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_one_manager_began_the_next_one_finds() {
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
            let shared = Some(SharedRecords::new(value.unwrap()).into());
            Records { folder: AuditFolder::new(folder.path().join(name)), shared }
        });
        let save = async |records: &Records, audit: Audit| {
            let records = records.clone();
            tokio::task::spawn_blocking(move || records.save(&audit)).await.unwrap()
        };
        let found = async |records: &Records| records.shared.as_ref().unwrap().read().await.unwrap();
        assert!(found(&two).await.is_empty());
        save(&one, held("a", 1)).await.unwrap();
        assert_eq!(ids(&found(&two).await), ["a"]);
        // A failover is nobody else's, nor what changes nothing.
        save(&one, Audit { kind: Kind::Failover, ..held("b", 1) }).await.unwrap();
        save(&one, Audit { dry_run: true, ..held("c", 1) }).await.unwrap();
        assert_eq!(ids(&found(&two).await), ["a"]);
        assert_eq!(one.folder.list().unwrap(), ["a", "b", "c"]);

        // Whose lease is over cannot act on, and overwrites nothing.
        let recovery = Audit { resumes: Some("a".to_owned()), ..held("d", 2) };
        save(&two, recovery.clone()).await.unwrap();
        let refused = save(&one, held("a", 1)).await.unwrap_err();
        assert!(refused.to_string().contains("term 2"), "{refused}");
        save(&two, undone(recovery)).await.unwrap();
        assert_eq!(ids(&found(&one).await), ["d"]);
        // What cannot be stored is not begun, and has its record here all the same.
        drop(etcd);
        assert!(save(&two, held("e", 3)).await.is_err());
        assert!(two.folder.load("e").unwrap().is_some());
    }
}
