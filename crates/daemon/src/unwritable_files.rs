//! Which files of the daemon in the log's folder cannot be written at present. The daemon works without them,
//! tries again by itself, and reports the fault in its log and in the status.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tracing::{info, warn};

/// A file that the daemon can work without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DaemonFile {
    /// The list of jobs.
    Jobs,
    /// The figures for charts.
    ChartHistory,
    /// The audit log.
    AuditLog,
}

impl DaemonFile {
    /// All files.
    pub const ALL: [Self; 3] = [Self::Jobs, Self::ChartHistory, Self::AuditLog];

    /// The stable code of the fault that this file cannot be written, as documented in
    /// docs/reference/errors.md.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Jobs => "TW-FILE-0001",
            Self::ChartHistory => "TW-FILE-0002",
            Self::AuditLog => "TW-FILE-0003",
        }
    }

    /// The name of the file in the log's folder.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jobs => tailwater_config::JOBS_FILE,
            Self::ChartHistory => tailwater_config::HISTORY_FILE,
            Self::AuditLog => tailwater_config::AUDIT_FILE,
        }
    }

    /// What is missing while the file cannot be written.
    const fn consequence(self) -> &'static str {
        match self {
            Self::Jobs => "if the daemon ends now, it forgets the changes of jobs since then",
            Self::ChartHistory => "the charts of the page have a gap",
            Self::AuditLog => "changes are in the daemon's messages, and are added to the file later",
        }
    }
}

/// A file that cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileFault {
    /// The file.
    pub file: DaemonFile,
    /// The reason of the system.
    pub reason: String,
}

impl FileFault {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        self.file.code()
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, reason } = self;
        write!(f, "{} cannot be written: {reason}; {}", file.name(), file.consequence())
    }
}

/// The files that cannot be written at present.
#[derive(Debug, Clone, Default)]
pub struct FileFaults(Arc<Mutex<BTreeMap<DaemonFile, String>>>);

impl FileFaults {
    /// Records the result of an attempt to write a file. The first failure and the next success are logged.
    pub fn record(&self, file: DaemonFile, result: &io::Result<()>) {
        let mut faults = self.0.lock();
        match result {
            Ok(()) => {
                if faults.remove(&file).is_some() {
                    info!(code = file.code(), "{} can be written again", file.name());
                }
            }
            Err(error) => {
                let reason = error.to_string();
                if faults.insert(file, reason.clone()).is_none() {
                    warn!(code = file.code(), "{}", FileFault { file, reason });
                }
            }
        }
    }

    /// Returns the present faults.
    pub fn list(&self) -> Vec<FileFault> {
        let fault =
            |(file, reason): (&DaemonFile, &String)| FileFault { file: *file, reason: reason.clone() };
        self.0.lock().iter().map(fault).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_lasts_until_the_file_is_written() {
        let faults = FileFaults::default();
        faults.record(DaemonFile::Jobs, &Err(io::Error::from(io::ErrorKind::StorageFull)));
        faults.record(DaemonFile::AuditLog, &Err(io::Error::other("broken")));
        faults.record(DaemonFile::AuditLog, &Ok(()));
        let list = faults.list();
        assert_eq!(list.len(), 1, "{list:?}");
        assert!(list[0].to_string().starts_with("jobs.json cannot be written: "), "{}", list[0]);
        faults.record(DaemonFile::Jobs, &Ok(()));
        assert_eq!(faults.list(), []);
    }

    #[test]
    fn every_fault_is_documented() {
        let page = include_str!("../../../docs/reference/errors.md");
        for file in DaemonFile::ALL {
            let row = format!("\n| {} | `{}`", file.code(), file.name());
            assert_eq!(page.matches(&row).count(), 1, "errors.md must have exactly one row {row:?}");
        }
        assert_eq!(page.matches("\n| TW-FILE-").count(), DaemonFile::ALL.len());
    }
}
