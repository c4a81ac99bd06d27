//! The checkpoint of a manager: a file that the manager writes while its primary is healthy, and that the
//! next manager process reads.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tailwater_manager::cluster_watch::watch_checkpoint::{ManagerStart, StoredCheckpoint, WatchCheckpoint};
use tailwater_manager::lease::lease_renewal::now;
use tracing::{debug, info};

/// The greatest size of a checkpoint file, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Identifies the boot of this machine. A checkpoint from an earlier boot is not valid: the file is not
/// synced to disk, and the clocks start again.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The checkpoint file of one cluster.
pub struct WatchCheckpointFile {
    path: PathBuf,
    /// Returns the highest lease term of all orders that this daemon's relay has received.
    term: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl WatchCheckpointFile {
    /// The checkpoint file at `path`.
    pub fn new(path: PathBuf, term: Box<dyn Fn() -> u64 + Send + Sync>) -> Self {
        Self { path, term }
    }

    /// Returns the checkpoint that the previous manager process wrote for this primary, if it is valid, and
    /// the age in milliseconds of the probe that it is based on.
    pub fn read(&self, primary: &str) -> Option<(WatchCheckpoint, u64)> {
        let bytes = match tailwater_files::read_regular(&self.path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                info!(path = %self.path.display(), "the checkpoint of the previous manager cannot be read: {error}");
                return None;
            }
        };
        let stored: StoredCheckpoint = serde_json::from_slice(&bytes)
            .inspect_err(|error| {
                info!(path = %self.path.display(), "the checkpoint of the previous manager cannot be parsed: {error}");
            })
            .ok()?;
        let boot = boot()?;
        stored.for_start(&ManagerStart { primary, now_ms: now().0, boot: &boot, term: (self.term)() })
    }

    /// Writes a checkpoint that is based on a probe made `ago_ms` ago. The file is not synced to disk,
    /// because it is only used after a restart of the process, not after a restart of the machine.
    pub fn write(&self, checkpoint: WatchCheckpoint, ago_ms: u64) {
        let Some(boot) = boot() else { return };
        let probed_at_ms = now().0.saturating_sub(ago_ms);
        let stored = StoredCheckpoint { checkpoint, probed_at_ms, boot, term: (self.term)() };
        let temporary = self.path.with_extension("half");
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let write = || -> io::Result<()> {
            fs::create_dir_all(folder)?;
            let mut file = tailwater_files::create_replacing(&temporary, 0o640)?;
            file.write_all(&serde_json::to_vec(&stored)?)?;
            fs::rename(&temporary, &self.path)
        };
        if let Err(error) = write() {
            debug!(path = %self.path.display(), "the checkpoint cannot be written: {error}");
        }
    }
}

fn boot() -> Option<String> {
    Some(fs::read_to_string(BOOT).ok()?.trim().to_owned())
}
