//! Stores the audit records. A record is stored before the changes that it describes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::Audit;

/// The longest record that is accepted, in bytes.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// An audit record could not be stored or read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct AuditError {
    /// Path of the audit record.
    pub path: PathBuf,
    /// The I/O error of the attempt.
    pub source: io::Error,
}

/// Storage for audit records.
pub trait AuditStore: Send + Sync {
    /// Stores the audit record of a failover or switchover in place of its previous version. On return the
    /// record is durable.
    ///
    /// # Errors
    /// If it is uncertain whether the audit record is durable.
    fn save(&self, audit: &Audit) -> Result<(), AuditError>;
}

/// A folder of audit records: `ID.json` for programs, and after the end of the failover or switchover
/// `ID.txt` for people.
#[derive(Debug, Clone)]
pub struct AuditFolder {
    path: PathBuf,
    /// The lease terms of the records that were read or stored so far. The term of a record never changes.
    terms: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl AuditFolder {
    /// Returns the folder at `path`. The folder is created when the first record is stored.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), terms: Arc::default() }
    }

    /// Returns the audit record of a failover or switchover; `None` if there is none.
    ///
    /// # Errors
    /// If the audit record cannot be read.
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

    /// Returns the ids of all failovers and switchovers in alphabetical order. If each id begins with the
    /// time at which its failover or switchover began, this is the order in time.
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

    /// Returns the ids of all failovers and switchovers, the newest first: in the order of the lease terms,
    /// and within a lease term in the order of the ids. The ids alone do not have this order. They begin with
    /// the time of a manager's clock, and the clocks of two managers may differ.
    ///
    /// A record without a lease term, of a run that was refused before it had one, or a record that cannot be
    /// read, comes directly after the record whose id precedes it.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list_newest_first(&self) -> Result<Vec<String>, AuditError> {
        let mut term = 0;
        let in_order_of_ids = self.list()?.into_iter();
        let mut runs: Vec<(u64, String)> = in_order_of_ids
            .map(|id| {
                term = self.term(&id).unwrap_or(term);
                (term, id)
            })
            .collect();
        runs.sort_unstable();
        Ok(runs.into_iter().rev().map(|(_, id)| id).collect())
    }

    /// Returns the lease term of a record; `None` if it has none yet, or cannot be read.
    fn term(&self, id: &str) -> Option<u64> {
        if let Some(term) = self.terms.lock().get(id) {
            return Some(*term);
        }
        let term = self.load(id).ok()??.token?;
        self.terms.lock().insert(id.to_owned(), term);
        Some(term)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), AuditError> {
        let path = self.path.join(name);
        tailwater_files::write_atomically(&path, bytes, 0o640).map_err(|source| AuditError { path, source })
    }
}

impl AuditStore for AuditFolder {
    fn save(&self, audit: &Audit) -> Result<(), AuditError> {
        let wrong = |source| AuditError { path: self.path.join(&audit.id), source };
        if !is_name(&audit.id) {
            return Err(wrong(io::Error::other(
                "the id of a failover or switchover may contain only letters, digits and -",
            )));
        }
        fs::create_dir_all(&self.path).map_err(wrong)?;
        if audit.outcome.is_some() {
            self.put(&format!("{}.txt", audit.id), audit.to_string().as_bytes())?;
        }
        let json = serde_json::to_vec_pretty(audit).map_err(|error| wrong(error.into()))?;
        self.put(&format!("{}.json", audit.id), &json)?;
        if let Some(term) = audit.token {
            self.terms.lock().insert(audit.id.clone(), term);
        }
        Ok(())
    }
}

/// Whether the id is a plain file name. A path in the id could otherwise lead out of the folder.
fn is_name(id: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=200).contains(&id.len()) && !id.starts_with('.') && id.chars().all(legal)
}

fn read(path: &Path) -> io::Result<Audit> {
    Ok(serde_json::from_slice(&tailwater_files::read_regular(path, RECORD_BYTES_MAX)?)?)
}
