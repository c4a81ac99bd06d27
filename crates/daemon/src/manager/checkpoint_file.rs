//! Where the memory of a manager lies: a file that is written while its primary is well, and read once.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tailwater_manager::cluster_watch::watch_checkpoint::{ManagerStart, StoredCheckpoint, WatchCheckpoint};
use tailwater_manager::lease::lease_task::now;
use tracing::{debug, info};

/// No memory is longer.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Names the boot of this machine: what is kept must not outlive it, since it is not synced, and clocks begin anew.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The file of one cluster, and what the relay beside the manager has been ordered.
pub struct WatchCheckpointFile {
    path: PathBuf,
    /// The highest term of the lease that it has seen.
    term: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl WatchCheckpointFile {
    /// The file at `path`.
    pub fn new(path: PathBuf, term: Box<dyn Fn() -> u64 + Send + Sync>) -> Self {
        Self { path, term }
    }

    /// What the manager before this one knew of that primary, if it counts, and how long ago it looked, in milliseconds.
    pub fn read(&self, primary: &str) -> Option<(WatchCheckpoint, u64)> {
        let bytes = match tailwater_files::read_regular(&self.path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                info!(path = %self.path.display(), "what the last manager knew cannot be read: {error}");
                return None;
            }
        };
        let marked: StoredCheckpoint = serde_json::from_slice(&bytes)
            .inspect_err(|error| {
                info!(path = %self.path.display(), "what the last manager knew is not understood: {error}");
            })
            .ok()?;
        let boot = boot()?;
        marked.for_start(&ManagerStart { primary, now_ms: now().0, boot: &boot, term: (self.term)() })
    }

    /// Keeps what is known, of a look `ago_ms` ago. It is not synced: it serves a process that comes behind this one, not a machine.
    pub fn write(&self, memory: WatchCheckpoint, ago_ms: u64) {
        let Some(boot) = boot() else { return };
        let looked_ms = now().0.saturating_sub(ago_ms);
        let marked =
            StoredCheckpoint { checkpoint: memory, probed_at_ms: looked_ms, boot, term: (self.term)() };
        let half = self.path.with_extension("half");
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let write = || -> io::Result<()> {
            fs::create_dir_all(folder)?;
            let mut file = tailwater_files::create_replacing(&half, 0o640)?;
            file.write_all(&serde_json::to_vec(&marked)?)?;
            fs::rename(&half, &self.path)
        };
        if let Err(error) = write() {
            debug!(path = %self.path.display(), "what is known of the primary is not kept: {error}");
        }
    }
}

fn boot() -> Option<String> {
    Some(fs::read_to_string(BOOT).ok()?.trim().to_owned())
}
