//! The names of the daemon's own files in the log's folder.

/// The name of the control socket in the log's folder.
pub const CONTROL_SOCKET: &str = "control.sock";

/// The name of the file in the log's folder that one daemon locks. The file remains when the daemon ends,
/// because only the lock counts.
pub const DAEMON_LOCK: &str = "daemon.lock";

/// The name of the file in the log's folder that lists the jobs.
pub const JOBS_FILE: &str = "jobs.json";

/// The name of the file in the log's folder with the figures for charts.
pub const HISTORY_FILE: &str = "history.ring";

/// The name of the audit log in the log's folder.
pub const AUDIT_FILE: &str = "audit.log";

/// The name of the earlier part of the audit log.
pub const EARLIER_AUDIT_FILE: &str = "audit.log.1";

/// Names of the daemon's files in the log's folder. No source may have one of these names.
const OWN_NAMES: [&str; 8] = [
    CONTROL_SOCKET,
    DAEMON_LOCK,
    JOBS_FILE,
    HISTORY_FILE,
    AUDIT_FILE,
    EARLIER_AUDIT_FILE,
    "manager",
    "rejoin",
];

/// Returns what kind of file Tailwater itself keeps under this name in the log's folder, if any. A source
/// cannot have such a name.
pub(crate) fn own_file(name: &str) -> Option<&'static str> {
    /// Suffixes of the files in `manager/` that belong to a source's cluster.
    const ENDINGS: [&str; 4] = [".guard", ".seen", ".lease", ".lock"];
    let lower = name.to_ascii_lowercase();
    if OWN_NAMES.contains(&lower.as_str()) {
        return Some("a file or folder");
    }
    ENDINGS.iter().any(|ending| lower.ends_with(ending)).then_some("a file of the manager")
}
