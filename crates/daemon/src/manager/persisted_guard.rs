//! The guard that holds back failovers of a cluster, across restarts and for all managers that share a lease.
//! A pause would have no effect if the next manager did not know it.

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
use tailwater_topology::analysis::FailoverGuard;
use tracing::{error, info, warn};

/// Interval of reads of the shared guard.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// A thousand downtimes with long reasons take less.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Attempts of a change while other managers change the value at the same time.
const TRIES_MAX: u32 = 20;

/// A guard with its file, and with its key in etcd where several managers share it. The file then holds the
/// last known value.
pub struct PersistedGuard {
    path: PathBuf,
    guard: Arc<Mutex<FailoverGuard>>,
    /// One request at a time.
    etcd: Option<tokio::sync::Mutex<EtcdValue>>,
    shared: Mutex<SharedState>,
}

/// State of the exchange with etcd.
#[derive(Debug, Default)]
struct SharedState {
    /// The key has been read.
    is_read: bool,
    /// When a failover of this manager began that is not recorded in etcd yet.
    owes_failover_ms: Option<u64>,
    /// When this manager started, until etcd is known to hold no later time.
    begins_at_ms: Option<u64>,
}

/// The content of the file.
#[derive(Debug, Default, Serialize)]
struct GuardFile {
    #[serde(flatten)]
    guard: FailoverGuard,
    /// As in [`SharedState`]: a manager that starts with this file still has to record it in etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    owes_failover_ms: Option<u64>,
}

impl GuardFile {
    /// Not derived: a flattened [`FailoverGuard`] would ignore unknown fields, and so misspelt ones.
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
    /// Opens the guard in the file at `path`; without a file it holds nothing back. `etcd` shares it with
    /// other managers.
    ///
    /// # Errors
    /// If there is a file that cannot be read: whether failovers are paused is then unknown.
    pub fn open(path: PathBuf, etcd: Option<EtcdValue>) -> anyhow::Result<Self> {
        let GuardFile { guard, owes_failover_ms } = match tailwater_files::read_regular(&path, FILE_BYTES_MAX)
        {
            Ok(bytes) => GuardFile::parse(&bytes).with_context(|| {
                format!("{} cannot be parsed; remove it to start with an empty guard", path.display())
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => GuardFile::default(),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        let etcd = etcd.map(tokio::sync::Mutex::new);
        let shared = SharedState { owes_failover_ms, ..SharedState::default() };
        Ok(Self { path, guard: Arc::new(Mutex::new(guard)), etcd, shared: Mutex::new(shared) })
    }

    /// Notes that a manager starts at `now_ms`, by a clock that may have been set back since the guard was
    /// stored.
    pub fn begin_at(&self, now_ms: u64) {
        self.lock().begin_at(now_ms);
        self.shared_state().begins_at_ms = Some(now_ms);
    }

    /// The guard, shared with its readers.
    pub fn shared(&self) -> Arc<Mutex<FailoverGuard>> {
        Arc::clone(&self.guard)
    }

    /// Its value, as far as this manager knows.
    pub fn now(&self) -> FailoverGuard {
        self.lock().clone()
    }

    /// Whether the shared value has been read.
    pub fn is_known(&self) -> bool {
        self.etcd.is_none() || self.shared_state().is_read
    }

    /// Changes it. The change takes effect when it is durable; if the guard is shared, when etcd has it.
    ///
    /// # Errors
    /// If it cannot be stored. If etcd did not answer, the change may have taken effect.
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

    /// Records a failover that began at `at_ms`. If etcd does not answer, it is recorded there later.
    ///
    /// # Errors
    /// If it is not recorded everywhere yet.
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

    /// Reads the shared value at intervals, until it is cancelled; returns at once if the guard is not
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
                        "the shared pauses and downtimes cannot be read from etcd: {}",
                        ErrorChain(&reason)
                    );
                    is_logged = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(READ_INTERVAL).await;
        }
    }

    /// Reads the shared value, and records there what is owed.
    async fn exchange(&self, etcd: &mut EtcdValue) -> anyhow::Result<()> {
        let (owed_ms, begins_at_ms) = {
            let shared = self.shared_state();
            (shared.owes_failover_ms, shared.begins_at_ms)
        };
        let read = etcd.read().await?;
        // The file of a single manager holds the requests from before there were several.
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

    /// Changes the value in etcd, also while others change it.
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
            // The request may have been sent to a second member because the first was slow, and both carried
            // it out.
            if etcd.replace(read.revision, &bytes).await?.is_some()
                || etcd.read().await?.bytes.as_deref() == Some(bytes.as_slice())
            {
                return Ok(guard);
            }
        }
        anyhow::bail!("other managers changed the guard in etcd during each of {TRIES_MAX} attempts")
    }

    /// The value in etcd; the known one if there is none.
    fn parse(&self, bytes: Option<&[u8]>) -> anyhow::Result<FailoverGuard> {
        let Some(bytes) = bytes else { return Ok(self.now()) };
        serde_json::from_slice(bytes)
            .context("the guard in etcd cannot be parsed; remove its key to start with an empty guard")
    }

    /// Stores it on disk, and then makes it effective.
    fn store(&self, guard: FailoverGuard) -> anyhow::Result<()> {
        let file = GuardFile { guard, owes_failover_ms: self.shared_state().owes_failover_ms };
        let bytes = serde_json::to_vec_pretty(&file)?;
        let guard = file.guard;
        let stored = replace(&self.path, &bytes).with_context(|| format!("write {}", self.path.display()));
        match stored {
            // Etcd has it: the file is only the initial value of a manager.
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
    use tailwater_sandbox::etcd::Etcd;
    use tailwater_topology::analysis::Downtime;

    use super::*;

    /// Only reached when something is wrong.
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
        assert_eq!(again.now().last_failover_ms(), Some(5), "the clock was set back");
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
            assert!(refused.is_err_and(|error| error.to_string().contains("cannot be parsed")), "{wrong}");
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
        let begun = std::time::Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "timed out: {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_change_of_one_manager_applies_to_all() {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = Etcd::require() else { return };
        let mut etcd = Etcd::start(&program, folder.path()).await.unwrap();
        // It was paused before there were several managers.
        let alone = PersistedGuard::open(folder.path().join("one"), None).unwrap();
        alone.change(FailoverGuard::pause).await.unwrap();
        let (one, two) = (in_etcd(&etcd, folder.path(), "one"), in_etcd(&etcd, folder.path(), "two"));
        assert!(!one.is_known(), "etcd was not read yet");
        let followed = [&one, &two].map(|guard| {
            let guard = Arc::clone(guard);
            tokio::spawn(async move { guard.follow("orders").await })
        });
        until("two is paused", || two.now().is_paused()).await;

        // Neither undoes the change of the other.
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
        until("both have both", || [&one, &two].iter().all(|guard| guard.now().downtimes().len() == 2)).await;

        // A change that etcd does not take has no effect, except for a failover, which is recorded later.
        etcd.pause().unwrap();
        let failed = two.change(FailoverGuard::resume).await.unwrap_err();
        assert!(failed.to_string().contains("etcd"), "{failed:#}");
        assert!(two.now().is_paused());
        assert!(two.record_failover(7).await.is_err());
        assert_eq!(two.now().last_failover_ms(), Some(7));
        let after_a_restart = in_etcd(&etcd, folder.path(), "two");
        assert_eq!(
            after_a_restart.shared_state().owes_failover_ms,
            Some(7),
            "the next manager would not know"
        );
        etcd.resume().unwrap();
        until("one reads the failover", || one.now().last_failover_ms() == Some(7)).await;
        one.change(FailoverGuard::acknowledge).await.unwrap();
        until("two reads that it was acknowledged", || two.now().last_failover_ms().is_none()).await;

        // After the clock was set back, a recorded failover blocks new ones for the usual interval, not
        // longer.
        one.record_failover(1_000_000).await.unwrap();
        two.begin_at(5_000);
        until("one reads the corrected time", || one.now().last_failover_ms() == Some(5_000)).await;
        for task in followed {
            task.abort();
        }

        // A manager that starts while etcd is away has not read the guard, and starts with its file.
        etcd.pause().unwrap();
        let again = in_etcd(&etcd, folder.path(), "two");
        assert!(!again.is_known() && again.now().downtimes().len() == 2);
        etcd.resume().unwrap();
    }
}
