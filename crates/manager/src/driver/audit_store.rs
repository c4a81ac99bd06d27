//! Where the record of a run lies: written before anything is changed that it tells of.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failover::Audit;

/// A record is no longer than this.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// A record could not be stored or read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct AuditError {
    /// Which file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Keeps records.
pub trait AuditStore: Send + Sync {
    /// Keeps this one in place of what was kept of the same run. It is durable when this is back.
    ///
    /// # Errors
    /// If it is not certain to be durable.
    fn save(&self, audit: &Audit) -> Result<(), AuditError>;
}

/// Records as files of a folder: `ID.json` for programs, and `ID.txt` for people once the run is over.
#[derive(Debug, Clone)]
pub struct AuditFolder {
    path: PathBuf,
}

impl AuditFolder {
    /// The folder at `path`; made when it is needed.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The record of that run; `None` if there is none.
    ///
    /// # Errors
    /// If there is one that cannot be read.
    pub fn load(&self, id: &str) -> Result<Option<Audit>, AuditError> {
        if !is_name(id) {
            return Ok(None);
        }
        let path = self.path.join(format!("{id}.json"));
        match read(&path) {
            Ok(audit) => Ok(Some(audit)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(AuditError { path, source }),
        }
    }

    /// The names of all runs, the oldest first, if their names sort so.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&self) -> Result<Vec<String>, AuditError> {
        let error = |source| AuditError { path: self.path.clone(), source };
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(error)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let path = entry.map_err(error)?.path();
            if path.extension() == Some(OsStr::new("json")) {
                names.extend(path.file_stem().and_then(OsStr::to_str).map(str::to_owned));
            }
        }
        names.sort();
        Ok(names)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), AuditError> {
        let path = self.path.join(name);
        tailwater_files::replace(&path, bytes, 0o640).map_err(|source| AuditError { path, source })
    }
}

impl AuditStore for AuditFolder {
    fn save(&self, audit: &Audit) -> Result<(), AuditError> {
        let wrong = |source| AuditError { path: self.path.join(&audit.id), source };
        if !is_name(&audit.id) {
            return Err(wrong(io::Error::other("the name of a run has letters, digits and - only")));
        }
        fs::create_dir_all(&self.path).map_err(wrong)?;
        if audit.outcome.is_some() {
            self.put(&format!("{}.txt", audit.id), audit.to_string().as_bytes())?;
        }
        let json = serde_json::to_vec_pretty(audit).map_err(|error| wrong(error.into()))?;
        self.put(&format!("{}.json", audit.id), &json)
    }
}

/// No name leads out of the folder.
fn is_name(id: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=200).contains(&id.len()) && !id.starts_with('.') && id.chars().all(legal)
}

fn read(path: &Path) -> io::Result<Audit> {
    Ok(serde_json::from_slice(&tailwater_files::read_regular(path, RECORD_BYTES_MAX)?)?)
}
