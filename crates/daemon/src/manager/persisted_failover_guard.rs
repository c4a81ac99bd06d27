//! The guard that holds back failovers of a cluster. It is stored, so that it survives a restart and all
//! managers that share a lease know it. Otherwise a pause would end when another manager acquires the lease.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::error_chain::ErrorChain;
use anyhow::Context;
use serde::Serialize;
use tailwater_manager::lease::EtcdValue;
use tailwater_topology::failure_analysis::FailoverGuard;
use tracing::{error, info, warn};

/// Interval between two reads of the guard in etcd.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// The greatest size of the guard file, in bytes. A thousand downtimes with long reasons need less.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// How many times a manager tries to change the value in etcd, because other managers change it at the same
/// time.
const TRIES_MAX: u32 = 20;

/// A guard, stored in a file and, if several managers share it, also under a key in etcd. With etcd, the file
/// has the last known value.
pub struct PersistedGuard {
    path: PathBuf,
    guard: Arc<Mutex<FailoverGuard>>,
    /// The value in etcd. The mutex allows one request at a time.
    etcd: Option<tokio::sync::Mutex<EtcdValue>>,
    shared: Mutex<SharedState>,
}

/// State of the exchange with etcd.
#[derive(Debug, Default)]
struct SharedState {
    /// Whether the key in etcd has been read.
    is_read: bool,
    /// The start of a failover of this manager that is not recorded in etcd yet, in milliseconds.
    owes_failover_ms: Option<u64>,
    /// When this manager started, in milliseconds. If the last failover in etcd has a later time, the clock
    /// was set back, and the time in etcd must be corrected. `None` after the first exchange with etcd.
    begins_at_ms: Option<u64>,
}

/// The content of the guard file.
#[derive(Debug, Default, Serialize)]
struct GuardFile {
    #[serde(flatten)]
    guard: FailoverGuard,
    /// The start of a failover that is not recorded in etcd yet, in milliseconds. A manager that starts with
    /// this file must still record it there.
    #[serde(skip_serializing_if = "Option::is_none")]
    owes_failover_ms: Option<u64>,
}

impl GuardFile {
    /// Parses the file. This function is written by hand, because derived code for a flattened
    /// [`FailoverGuard`] would ignore unknown fields, and so also misspelt field names.
    fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(bytes)?;
        let owes_failover_ms = fields.remove("owes_failover_ms").map(serde_json::from_value).transpose()?;
        let guard = serde_json::from_value(fields.into())?;
        Ok(Self { guard, owes_failover_ms })
    }
}

impl std::fmt::Debug for PersistedGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PersistedGuard")
            .field("path", &self.path)
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

impl PersistedGuard {
    /// Opens the guard in the file at `path`. If there is no file, the guard holds nothing back. With `etcd`,
    /// the guard is shared with other managers.
    ///
    /// # Errors
    /// If the file exists but cannot be read: it is then unknown whether failovers are paused.
    pub fn open(path: PathBuf, etcd: Option<EtcdValue>) -> anyhow::Result<Self> {
        let GuardFile { guard, owes_failover_ms } = match tailwater_files::read_regular(&path, FILE_BYTES_MAX)
        {
            Ok(bytes) => GuardFile::parse(&bytes).with_context(|| {
                format!("{} cannot be parsed; remove it to start with an empty guard", path.display())
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => GuardFile::default(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let etcd = etcd.map(tokio::sync::Mutex::new);
        let shared = SharedState { owes_failover_ms, ..SharedState::default() };
        Ok(Self { path, guard: Arc::new(Mutex::new(guard)), etcd, shared: Mutex::new(shared) })
    }

    /// Records that a manager starts at `now_ms`. Its clock may have been set back since the guard was
    /// stored.
    pub fn begin_at(&self, now_ms: u64) {
        self.lock().begin_at(now_ms);
        self.shared_state().begins_at_ms = Some(now_ms);
    }

    /// Returns the guard for other readers, who see its later changes.
    pub fn shared(&self) -> Arc<Mutex<FailoverGuard>> {
        Arc::clone(&self.guard)
    }

    /// Returns the guard's value, as far as this manager knows it.
    pub fn now(&self) -> FailoverGuard {
        self.lock().clone()
    }

    /// Whether the value that managers share has been read.
    pub fn is_known(&self) -> bool {
        self.etcd.is_none() || self.shared_state().is_read
    }

    /// Changes the guard. The change takes effect when it is durable; if the guard is shared, when etcd has
    /// stored it.
    ///
    /// # Errors
    /// If the change cannot be stored. If etcd did not answer, the change may have taken effect.
    pub async fn change(&self, change: impl Fn(&mut FailoverGuard)) -> anyhow::Result<()> {
        let changed = match &self.etcd {
            None => {
                let mut changed = self.now();
                change(&mut changed);
                changed
            }
            Some(etcd) => self.change_in(&mut *etcd.lock().await, change).await?,
        };
        self.store(changed)
    }

    /// Records a failover that began at `at_ms`. If etcd does not answer, the failover is recorded in etcd
    /// later.
    ///
    /// # Errors
    /// If the failover is not recorded everywhere yet.
    pub async fn record_failover(&self, at_ms: u64) -> anyhow::Result<()> {
        let recorded = self.change(|guard| guard.failed_over(at_ms)).await;
        if recorded.is_err() {
            let mut guard = self.now();
            guard.failed_over(at_ms);
            self.shared_state().owes_failover_ms = self.etcd.as_ref().map(|_| at_ms);
            self.store(guard)?;
        }
        recorded
    }

    /// Reads the shared value at intervals, until the future is dropped. Returns at once if the guard is not
    /// shared.
    pub async fn follow(&self, source: &str) {
        let Some(etcd) = &self.etcd else { return };
        let mut is_logged = false;
        loop {
            match self.exchange(&mut *etcd.lock().await).await {
                Ok(()) => is_logged = false,
                Err(reason) if !is_logged => {
                    warn!(
                        source,
                        "the pauses and downtimes that managers share cannot be read from etcd: {}",
                        ErrorChain(&reason)
                    );
                    is_logged = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(READ_INTERVAL).await;
        }
    }

    /// Reads the value in etcd, and records a failover there that is not recorded yet.
    async fn exchange(&self, etcd: &mut EtcdValue) -> anyhow::Result<()> {
        let (owed_ms, begins_at_ms) = {
            let shared = self.shared_state();
            (shared.owes_failover_ms, shared.begins_at_ms)
        };
        let read = etcd.read().await?;
        // If etcd has no value yet, the file may hold pauses and downtimes from the time when there was only
        // one manager.
        let only_here = read.bytes.is_none() && self.now() != FailoverGuard::default();
        let guard = self.parse(read.bytes.as_deref())?;
        let is_later =
            begins_at_ms.is_some_and(|now_ms| guard.last_failover_ms().is_some_and(|at_ms| at_ms > now_ms));
        let guard = if owed_ms.is_some() || only_here || is_later {
            let change = |guard: &mut FailoverGuard| {
                owed_ms.into_iter().for_each(|at_ms| guard.failed_over(at_ms));
                begins_at_ms.into_iter().for_each(|now_ms| guard.begin_at(now_ms));
            };
            self.change_in(etcd, change).await?
        } else {
            guard
        };
        let mut shared = self.shared_state();
        shared.is_read = true;
        shared.begins_at_ms = None;
        let is_recorded = shared.owes_failover_ms == owed_ms;
        if is_recorded {
            shared.owes_failover_ms = None;
        }
        drop(shared);
        if guard == self.now() {
            return if owed_ms.is_some() && is_recorded { self.store(guard) } else { Ok(()) };
        }
        info!(path = %self.path.display(), "another manager has changed the pauses and downtimes that hold back failovers");
        self.store(guard)
    }

    /// Changes the value in etcd, even if other managers change it at the same time.
    async fn change_in(
        &self,
        etcd: &mut EtcdValue,
        change: impl Fn(&mut FailoverGuard),
    ) -> anyhow::Result<FailoverGuard> {
        for _ in 0..TRIES_MAX {
            let read = etcd.read().await?;
            let mut guard = self.parse(read.bytes.as_deref())?;
            change(&mut guard);
            let bytes = serde_json::to_vec(&guard)?;
            // The client may have sent the change to two etcd members, because the first one was slow. If the
            // first member has stored the change, the second member refuses it, so the value is read again.
            if etcd.replace(read.revision, &bytes).await?.is_some()
                || etcd.read().await?.bytes.as_deref() == Some(bytes.as_slice())
            {
                return Ok(guard);
            }
        }
        anyhow::bail!("other managers changed the failover guard in etcd during each of {TRIES_MAX} attempts")
    }

    /// Parses the value in etcd. If there is none, returns the value that this manager knows.
    fn parse(&self, bytes: Option<&[u8]>) -> anyhow::Result<FailoverGuard> {
        let Some(bytes) = bytes else { return Ok(self.now()) };
        serde_json::from_slice(bytes).context(
            "the failover guard in etcd cannot be parsed; remove its key to start with an empty guard",
        )
    }

    /// Stores the guard on disk, and then makes it effective.
    fn store(&self, guard: FailoverGuard) -> anyhow::Result<()> {
        let file = GuardFile { guard, owes_failover_ms: self.shared_state().owes_failover_ms };
        let bytes = serde_json::to_vec_pretty(&file)?;
        let guard = file.guard;
        let stored =
            replace(&self.path, &bytes).with_context(|| format!("cannot write {}", self.path.display()));
        match stored {
            // The error is only logged, because etcd already has the value. A manager reads the file only
            // when it starts.
            Err(reason) if self.etcd.is_some() => error!("{}", ErrorChain(&reason)),
            stored => stored?,
        }
        *self.lock() = guard;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, FailoverGuard> {
        self.guard.lock()
    }

    fn shared_state(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock()
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    tailwater_files::write_atomically(path, bytes, 0o640)
}

#[cfg(test)]
mod tests {
    use tailwater_manager::lease::EtcdOptions;
    use tailwater_sandbox::etcd_process::Etcd;
    use tailwater_topology::failure_analysis::Downtime;

    use super::*;

    /// Time limit of each wait. A passing test never reaches it.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_pause_survives_a_restart_and_a_broken_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manager").join("orders.guard");
        let kept = PersistedGuard::open(path.clone(), None).unwrap();
        assert!(!kept.now().is_paused() && kept.is_known());
        kept.change(FailoverGuard::pause).await.unwrap();
        kept.record_failover(7).await.unwrap();
        let again = PersistedGuard::open(path.clone(), None).unwrap();
        assert_eq!(again.now(), kept.now());
        assert!(again.now().is_paused());
        assert_eq!(again.now().last_failover_ms(), Some(7));
        again.begin_at(9);
        assert_eq!(again.now().last_failover_ms(), Some(7));
        again.begin_at(5);
        assert_eq!(
            again.now().last_failover_ms(),
            Some(5),
            "the failover must not be later than the start of the manager"
        );
        let sound = fs::read_to_string(&path).unwrap();
        for wrong in [
            "{".to_owned(),
            sound.replacen("last_failover_ms", "last_failover", 1),
            sound.replacen("is_paused", "is_pausd", 1),
            sound.replacen("{", "{\"owes_failover\": 7,", 1),
            sound.replacen("[]", r#"[{"sever": "db1", "from_ms": 1, "until_ms": 2, "reason": ""}]"#, 1),
        ] {
            assert_ne!(wrong, sound);
            fs::write(&path, &wrong).unwrap();
            let refused = PersistedGuard::open(path.clone(), None);
            assert!(
                refused.is_err_and(|error| error.to_string().contains("cannot be parsed")),
                "a broken guard file was accepted: {wrong}"
            );
        }
    }

    fn in_etcd(etcd: &Etcd, folder: &Path, name: &str) -> Arc<PersistedGuard> {
        let value = EtcdValue::new(EtcdOptions {
            endpoints: vec![etcd.endpoint()],
            key: "/tailwater/orders/guard".to_owned(),
            request_ms_max: 500,
            ..EtcdOptions::default()
        });
        Arc::new(PersistedGuard::open(folder.join(name), Some(value.unwrap())).unwrap())
    }

    async fn until(what: &str, is_so: impl Fn() -> bool) {
        let started = std::time::Instant::now();
        while !is_so() {
            assert!(started.elapsed() < PATIENCE, "this state was not reached in time: {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_change_by_one_manager_applies_to_all_managers() {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = Etcd::require() else { return };
        let mut etcd = Etcd::start(&program, folder.path()).await.unwrap();
        // Failovers were paused when there was only one manager, without etcd.
        let alone = PersistedGuard::open(folder.path().join("one"), None).unwrap();
        alone.change(FailoverGuard::pause).await.unwrap();
        let (one, two) = (in_etcd(&etcd, folder.path(), "one"), in_etcd(&etcd, folder.path(), "two"));
        assert!(!one.is_known(), "this manager has read etcd too early");
        let followed = [&one, &two].map(|guard| {
            let guard = Arc::clone(guard);
            tokio::spawn(async move { guard.follow("orders").await })
        });
        until("manager two is paused", || two.now().is_paused()).await;

        // The change of one manager must not undo the change of the other.
        let down = |server: &str| Downtime {
            server: Some(server.to_owned()),
            from_ms: 0,
            until_ms: 9,
            reason: String::new(),
        };
        let (a, b) = tokio::join!(
            one.change(|guard| guard.add_downtime(down("db1"))),
            two.change(|guard| guard.add_downtime(down("db2")))
        );
        a.unwrap();
        b.unwrap();
        until("both managers have both downtimes", || {
            [&one, &two].iter().all(|guard| guard.now().downtimes().len() == 2)
        })
        .await;

        // If etcd does not accept a change, the change has no effect. The exception is a failover, which is
        // recorded in etcd later.
        etcd.pause().unwrap();
        let failed = two.change(FailoverGuard::resume).await.unwrap_err();
        assert!(failed.to_string().contains("etcd"), "the error does not name etcd: {failed:#}");
        assert!(two.now().is_paused());
        assert!(two.record_failover(7).await.is_err());
        assert_eq!(two.now().last_failover_ms(), Some(7));
        let after_a_restart = in_etcd(&etcd, folder.path(), "two");
        assert_eq!(
            after_a_restart.shared_state().owes_failover_ms,
            Some(7),
            "the failover is not in the file, so the next manager would not know it"
        );
        etcd.resume().unwrap();
        until("manager one reads the failover", || one.now().last_failover_ms() == Some(7)).await;
        one.change(FailoverGuard::acknowledge).await.unwrap();
        until("manager two reads that the failover was acknowledged", || {
            two.now().last_failover_ms().is_none()
        })
        .await;

        // If the clock was set back, a recorded failover blocks new failovers for the usual interval, and not
        // longer.
        one.record_failover(1_000_000).await.unwrap();
        two.begin_at(5_000);
        until("manager one reads the corrected time", || one.now().last_failover_ms() == Some(5_000)).await;
        for task in followed {
            task.abort();
        }

        // A manager that starts while etcd is unreachable does not know the shared guard, and starts with its
        // file.
        etcd.pause().unwrap();
        let again = in_etcd(&etcd, folder.path(), "two");
        assert!(!again.is_known() && again.now().downtimes().len() == 2);
        etcd.resume().unwrap();
    }
}
