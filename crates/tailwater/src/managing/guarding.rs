//! What holds failovers of a cluster back, over restarts: a pause that a restart forgot would be none.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use tailwater_manager::analysis::Guard;

/// A guard with its file.
#[derive(Debug)]
pub struct KeptGuard {
    path: PathBuf,
    guard: Arc<Mutex<Guard>>,
}

impl KeptGuard {
    /// The guard in the file at `path`; one that holds nothing back if there is no file.
    ///
    /// # Errors
    /// If there is a file that cannot be read: nobody knows then whether failovers are paused.
    pub fn open(path: PathBuf) -> anyhow::Result<Self> {
        let guard = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is not understood; remove it to begin anew", path.display()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Guard::default(),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        Ok(Self { path, guard: Arc::new(Mutex::new(guard)) })
    }

    /// The guard, as it is asked.
    pub fn shared(&self) -> Arc<Mutex<Guard>> {
        Arc::clone(&self.guard)
    }

    /// What it is now.
    pub fn now(&self) -> Guard {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes it; the change counts once it is durable.
    ///
    /// # Errors
    /// If it cannot be stored.
    pub fn change(&self, change: impl FnOnce(&mut Guard)) -> anyhow::Result<()> {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = guard.clone();
        change(&mut changed);
        let bytes = serde_json::to_vec_pretty(&changed)?;
        replace(&self.path, &bytes).with_context(|| format!("write {}", self.path.display()))?;
        *guard = changed;
        Ok(())
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let half = path.with_extension("half");
    let mut file = File::create(&half)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&half, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_outlives_a_restart_and_what_cannot_be_read_is_no_permission() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manager").join("orders.guard");
        let kept = KeptGuard::open(path.clone()).unwrap();
        assert!(!kept.now().is_paused());
        kept.change(Guard::pause).unwrap();
        kept.change(|guard| guard.failed_over(7)).unwrap();
        let again = KeptGuard::open(path.clone()).unwrap();
        assert_eq!(again.now(), kept.now());
        assert!(again.now().is_paused());
        assert_eq!(again.now().last_failover_ms(), Some(7));
        fs::write(&path, "{").unwrap();
        assert!(KeptGuard::open(path).is_err_and(|error| error.to_string().contains("not understood")));
    }
}
