//! What holds failovers of a cluster back, over restarts, and for all managers that share a lease: a pause that the next manager
//! did not know of would be none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::error_chain::ErrorChain;
use anyhow::Context;
use serde::Serialize;
use tailwater_manager::analysis::FailoverGuard;
use tailwater_manager::lease::EtcdValue;
use tracing::{error, info, warn};

/// How often it is looked what other managers have been told.
const LOOK: Duration = Duration::from_secs(1);

/// A thousand downtimes with long reasons have less.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A change that others were faster than is made again so often.
const TRIES_MAX: u32 = 20;

/// A guard with its file, and with its key in etcd where several managers share it. The file has what was last known then.
pub struct PersistedGuard {
    path: PathBuf,
    guard: Arc<Mutex<FailoverGuard>>,
    /// One request at a time.
    etcd: Option<tokio::sync::Mutex<EtcdValue>>,
    beside: Mutex<Beside>,
}

/// What there is to know of the key in etcd.
#[derive(Debug, Default)]
struct Beside {
    /// It has been read.
    is_read: bool,
    /// When a failover of this manager's own began that could not be noted there yet.
    owes_failover_ms: Option<u64>,
    /// When this manager began, until it has been seen to that nothing is noted as later.
    begins_at_ms: Option<u64>,
}

/// What the file has.
#[derive(Debug, Default, Serialize)]
struct Kept {
    #[serde(flatten)]
    guard: FailoverGuard,
    /// As in [`Beside`]: who begins with this file still has to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    owes_failover_ms: Option<u64>,
}

impl Kept {
    /// Not derived: a flattened [`FailoverGuard`] would pass over every field that is not known, a misspelt one among them.
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
    /// The guard in the file at `path`; one that holds nothing back if there is no file. Shared with other managers by `etcd`.
    ///
    /// # Errors
    /// If there is a file that cannot be read: nobody knows then whether failovers are paused.
    pub fn open(path: PathBuf, etcd: Option<EtcdValue>) -> anyhow::Result<Self> {
        let Kept { guard, owes_failover_ms } = match tailwater_files::read_regular(&path, FILE_BYTES_MAX) {
            Ok(bytes) => Kept::parse(&bytes)
                .with_context(|| format!("{} is not understood; remove it to begin anew", path.display()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        let etcd = etcd.map(tokio::sync::Mutex::new);
        let beside = Beside { owes_failover_ms, ..Beside::default() };
        Ok(Self { path, guard: Arc::new(Mutex::new(guard)), etcd, beside: Mutex::new(beside) })
    }

    /// A manager begins at `now_ms`, by a clock that may have been set back since the guard was kept.
    pub fn begin_at(&self, now_ms: u64) {
        self.lock().begin_at(now_ms);
        self.beside().begins_at_ms = Some(now_ms);
    }

    /// The guard, as it is asked.
    pub fn shared(&self) -> Arc<Mutex<FailoverGuard>> {
        Arc::clone(&self.guard)
    }

    /// What it is now, as far as this manager knows.
    pub fn now(&self) -> FailoverGuard {
        self.lock().clone()
    }

    /// Whether it is known what holds failovers back: what other managers were told has been read.
    pub fn is_known(&self) -> bool {
        self.etcd.is_none() || self.beside().is_read
    }

    /// Changes it; the change counts once it is durable, and where it is shared once etcd has it.
    ///
    /// # Errors
    /// If it cannot be stored; it may be all the same where it is shared, if etcd did not answer.
    pub async fn change(&self, change: impl Fn(&mut FailoverGuard)) -> anyhow::Result<()> {
        let changed = match &self.etcd {
            None => {
                let mut changed = self.now();
                change(&mut changed);
                changed
            }
            Some(etcd) => self.change_in(&mut *etcd.lock().await, change).await?,
        };
        self.keep(changed)
    }

    /// Notes that a failover has begun at `at_ms`. Where etcd does not answer it is noted there as soon as it does.
    ///
    /// # Errors
    /// If it is not noted everywhere.
    pub async fn failed_over(&self, at_ms: u64) -> anyhow::Result<()> {
        let noted = self.change(|guard| guard.failed_over(at_ms)).await;
        if noted.is_err() {
            let mut guard = self.now();
            guard.failed_over(at_ms);
            self.beside().owes_failover_ms = self.etcd.as_ref().map(|_| at_ms);
            self.keep(guard)?;
        }
        noted
    }

    /// Takes over what other managers are told, for as long as it runs; at once over if it is not shared.
    pub async fn follow(&self, source: &str) {
        let Some(etcd) = &self.etcd else { return };
        let mut is_told = false;
        loop {
            match self.look(&mut *etcd.lock().await).await {
                Ok(()) => is_told = false,
                Err(reason) if !is_told => {
                    warn!(source, "what holds failovers back cannot be asked: {}", ErrorChain(&reason));
                    is_told = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn look(&self, etcd: &mut EtcdValue) -> anyhow::Result<()> {
        let (owed_ms, begins_at_ms) = {
            let beside = self.beside();
            (beside.owes_failover_ms, beside.begins_at_ms)
        };
        let read = etcd.read().await?;
        // What one was told before there were several stands in its file.
        let only_here = read.bytes.is_none() && self.now() != FailoverGuard::default();
        let guard = self.understood(read.bytes.as_deref())?;
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
        let mut beside = self.beside();
        beside.is_read = true;
        beside.begins_at_ms = None;
        let is_told = beside.owes_failover_ms == owed_ms;
        if is_told {
            beside.owes_failover_ms = None;
        }
        drop(beside);
        if guard == self.now() {
            return if owed_ms.is_some() && is_told { self.keep(guard) } else { Ok(()) };
        }
        info!(path = %self.path.display(), "another manager was told what holds failovers back, or no longer does");
        self.keep(guard)
    }

    /// Changes what stands in etcd, whatever others change meanwhile.
    async fn change_in(
        &self,
        etcd: &mut EtcdValue,
        change: impl Fn(&mut FailoverGuard),
    ) -> anyhow::Result<FailoverGuard> {
        for _ in 0..TRIES_MAX {
            let read = etcd.read().await?;
            let mut guard = self.understood(read.bytes.as_deref())?;
            change(&mut guard);
            let bytes = serde_json::to_vec(&guard)?;
            // Another member may have been asked because the first was slow, and had done it all the same.
            if etcd.replace(read.revision, &bytes).await?.is_some()
                || etcd.read().await?.bytes.as_deref() == Some(bytes.as_slice())
            {
                return Ok(guard);
            }
        }
        anyhow::bail!("others change it all the time; {TRIES_MAX} tries came too late")
    }

    /// What stands in etcd; what this manager knows if nothing does.
    fn understood(&self, bytes: Option<&[u8]>) -> anyhow::Result<FailoverGuard> {
        let Some(bytes) = bytes else { return Ok(self.now()) };
        serde_json::from_slice(bytes)
            .context("the guard in etcd is not understood; remove its key to begin anew")
    }

    /// On disk, and then in force.
    fn keep(&self, guard: FailoverGuard) -> anyhow::Result<()> {
        let kept = Kept { guard, owes_failover_ms: self.beside().owes_failover_ms };
        let bytes = serde_json::to_vec_pretty(&kept)?;
        let guard = kept.guard;
        let kept = replace(&self.path, &bytes).with_context(|| format!("write {}", self.path.display()));
        match kept {
            // Etcd has it: the file is only what a manager begins with.
            Err(reason) if self.etcd.is_some() => error!("{}", ErrorChain(&reason)),
            kept => kept?,
        }
        *self.lock() = guard;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, FailoverGuard> {
        self.guard.lock()
    }

    fn beside(&self) -> MutexGuard<'_, Beside> {
        self.beside.lock()
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    tailwater_files::write_atomically(path, bytes, 0o640)
}

#[cfg(test)]
mod tests {
    use tailwater_manager::analysis::Downtime;
    use tailwater_manager::lease::EtcdOptions;
    use tailwater_sandbox::etcd::Etcd;

    use super::*;

    /// Only reached when something is wrong.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_pause_outlives_a_restart_and_what_cannot_be_read_is_no_permission() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manager").join("orders.guard");
        let kept = PersistedGuard::open(path.clone(), None).unwrap();
        assert!(!kept.now().is_paused() && kept.is_known());
        kept.change(FailoverGuard::pause).await.unwrap();
        kept.failed_over(7).await.unwrap();
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
            assert!(refused.is_err_and(|error| error.to_string().contains("not understood")), "{wrong}");
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
            assert!(begun.elapsed() < PATIENCE, "not so: {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn what_one_manager_is_told_counts_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = Etcd::require() else { return };
        let mut etcd = Etcd::start(&program, folder.path()).await.unwrap();
        // It was told before there were several.
        let alone = PersistedGuard::open(folder.path().join("one"), None).unwrap();
        alone.change(FailoverGuard::pause).await.unwrap();
        let (one, two) = (in_etcd(&etcd, folder.path(), "one"), in_etcd(&etcd, folder.path(), "two"));
        assert!(!one.is_known(), "nobody has asked yet");
        let followed = [&one, &two].map(|guard| {
            let guard = Arc::clone(guard);
            tokio::spawn(async move { guard.follow("orders").await })
        });
        until("two is paused", || two.now().is_paused()).await;

        // None undoes what the other did meanwhile.
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

        // What cannot be told does not count, but for a failover, which is told later.
        etcd.pause().unwrap();
        let failed = two.change(FailoverGuard::resume).await.unwrap_err();
        assert!(failed.to_string().contains("etcd"), "{failed:#}");
        assert!(two.now().is_paused());
        assert!(two.failed_over(7).await.is_err());
        assert_eq!(two.now().last_failover_ms(), Some(7));
        let after_a_restart = in_etcd(&etcd, folder.path(), "two");
        assert_eq!(after_a_restart.beside().owes_failover_ms, Some(7), "whoever takes over would not know");
        etcd.resume().unwrap();
        until("one hears of the failover", || one.now().last_failover_ms() == Some(7)).await;
        one.change(FailoverGuard::acknowledge).await.unwrap();
        until("two hears that it was looked at", || two.now().last_failover_ms().is_none()).await;

        // A clock that was set back since holds nothing back for longer.
        one.failed_over(1_000_000).await.unwrap();
        two.begin_at(5_000);
        until("one hears what two made of it", || one.now().last_failover_ms() == Some(5_000)).await;
        for task in followed {
            task.abort();
        }

        // Another that begins while etcd is away knows nothing yet, and what it was told last.
        etcd.pause().unwrap();
        let again = in_etcd(&etcd, folder.path(), "two");
        assert!(!again.is_known() && again.now().downtimes().len() == 2);
        etcd.resume().unwrap();
    }
}
