//! The lease for managers on one machine: a lock on a file. The kernel releases the lock when the process
//! ends.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::LeaseStore;
use super::lease_validity::LeaseAnswer;
use crate::model::LeaseToken;

/// The longest content of the lock file that is accepted, in bytes.
const NOTE_BYTES_MAX: u64 = 4096;

/// Content of the lock file: the holder and its lease term.
#[derive(Debug, Default, Serialize, Deserialize)]
struct LockFileContents {
    holder: String,
    pid: u32,
    token: u64,
}

/// A lease that is a lock on a file.
#[derive(Debug)]
pub struct FileLease {
    path: PathBuf,
    holder: String,
    ttl_ms: u64,
    held: Option<(File, LeaseToken)>,
}

impl FileLease {
    /// Creates the lease for the file at `path`, in the name of `holder`. `ttl_ms` has the meaning of
    /// [`super::LeaseTimes`].
    pub fn new(path: impl Into<PathBuf>, holder: impl Into<String>, ttl_ms: u64) -> Self {
        Self { path: path.into(), holder: holder.into(), ttl_ms, held: None }
    }

    fn try_acquire(&mut self) -> io::Result<LeaseAnswer> {
        self.held = None;
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = tailwater_files::open_or_create(&self.path, tailwater_files::PRIVATE_FILE_MODE)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let note = read_note(&mut file).unwrap_or_default();
                return Ok(LeaseAnswer::HeldByOther {
                    holder: format!("{} (process {})", note.holder, note.pid),
                });
            }
            Err(error) => return Err(error.into()),
        }
        if !is_at(&file, &self.path)? {
            return Ok(LeaseAnswer::Failed {
                reason: format!("the lock file {} was replaced", self.path.display()),
            });
        }
        // If the file is unreadable, its holder was killed while it wrote the file. The new token is then the
        // time of the clock, which is higher than the old token.
        let before = read_note(&mut file).map_or(0, |note| note.token);
        let token = LeaseToken(before.saturating_add(1).max(unix_us()));
        let note = LockFileContents { holder: self.holder.clone(), pid: std::process::id(), token: token.0 };
        file.seek(SeekFrom::Start(0))?;
        file.set_len(0)?;
        file.write_all(&serde_json::to_vec(&note)?)?;
        file.sync_all()?;
        self.held = Some((file, token));
        Ok(LeaseAnswer::Granted { token, ttl_ms: self.ttl_ms })
    }

    fn try_renew(&mut self, token: LeaseToken) -> io::Result<LeaseAnswer> {
        let gone = |reason: String| Ok(LeaseAnswer::Expired { reason });
        match &self.held {
            // If the lock file was removed, another manager could create and lock a new lock file.
            Some((file, held)) if *held == token => match is_at(file, &self.path)? {
                true => Ok(LeaseAnswer::Renewed { ttl_ms: self.ttl_ms }),
                false => gone(format!("the lock file {} was removed or replaced", self.path.display())),
            },
            _ => gone("this manager does not hold the lock".to_owned()),
        }
    }
}

impl LeaseStore for FileLease {
    async fn acquire(&mut self) -> LeaseAnswer {
        self.try_acquire().unwrap_or_else(|error| failed(&self.path, &error))
    }

    async fn renew(&mut self, token: LeaseToken) -> LeaseAnswer {
        self.try_renew(token).unwrap_or_else(|error| failed(&self.path, &error))
    }

    async fn release(&mut self) {
        self.held = None;
    }
}

fn failed(path: &Path, error: &io::Error) -> LeaseAnswer {
    LeaseAnswer::Failed { reason: format!("{}: {error}", path.display()) }
}

fn read_note(file: &mut File) -> Option<LockFileContents> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(NOTE_BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Whether `path` still names the open file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((open.dev(), open.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns microseconds since 1970. So a file that is removed and created again at once still gets another
/// token.
fn unix_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().and_then(|time| u64::try_from(time.as_micros()).ok()).unwrap_or(0)
}
