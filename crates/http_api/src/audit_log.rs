//! The audit log: who changed what, as one JSON object in each line of `audit.log` in the log's folder.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tailwater_config::{AUDIT_FILE, EARLIER_AUDIT_FILE};
use tailwater_daemon::unwritable_files::{DaemonFile, FileFaults};

/// When the file is larger than this, it becomes `audit.log.1`, and a new file begins.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Longer bodies of requests are cut.
const BODY_BYTES_MAX: usize = 4 << 10;
/// The greatest number of entries that wait until they can be written. Older ones are dropped, and counted.
const WAITING_MAX: usize = 1_000;
/// Interval of the attempts to write the waiting entries.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// A change that a client has requested.
#[derive(Debug, Serialize)]
pub(crate) struct AuditLogEntry<'a> {
    /// When the response was ready, in RFC 3339 notation.
    pub time: String,
    /// The name of the token, or the user of the control socket.
    pub caller: &'a str,
    /// The role of the caller.
    pub role: &'static str,
    /// The address of the client.
    pub peer: &'a str,
    /// The method of the request.
    pub method: &'a str,
    /// The path of the request.
    pub path: &'a str,
    /// The body of the request.
    pub body: &'a str,
    /// The status of the response.
    pub status: u16,
}

/// The audit log.
#[derive(Debug, Clone)]
pub(crate) struct AuditLog(Arc<AuditFile>);

#[derive(Debug)]
struct AuditFile {
    path: PathBuf,
    faults: FileFaults,
    state: Mutex<AuditState>,
}

#[derive(Debug, Default)]
struct AuditState {
    file: Option<File>,
    /// Entries that could not be written yet, the oldest first.
    waiting: VecDeque<Vec<u8>>,
    /// How many entries were dropped, because too many were waiting.
    dropped: u64,
}

impl AuditLog {
    /// The audit log in the log's folder. The file is opened at the first entry. `faults` shows whether it
    /// can be written.
    pub fn new(directory: &Path, faults: FileFaults) -> Self {
        let path = directory.join(AUDIT_FILE);
        Self(Arc::new(AuditFile { path, faults, state: Mutex::default() }))
    }

    /// Appends an entry. If it cannot be written, it waits in memory, and the request is not refused: an
    /// operator, and the manager of a failover, must be able to act while the disk is full.
    pub fn append(&self, entry: &AuditLogEntry<'_>) {
        let (caller, method, path, status) = (entry.caller, entry.method, entry.path, entry.status);
        tracing::info!(caller, peer = entry.peer, status, "http: {method} {path}");
        let Ok(line) = serde_json::to_vec(entry) else { return };
        self.write_with(Some(line));
    }

    /// Writes the waiting entries whenever that is possible again. Does not end.
    pub async fn retry_forever(self) {
        loop {
            tokio::time::sleep(RETRY_INTERVAL).await;
            let audit_log = self.clone();
            // Do not write on the runtime's own threads, because the disk may be slow.
            let _ = tokio::task::spawn_blocking(move || audit_log.write_waiting()).await;
        }
    }

    fn write_waiting(&self) {
        if !self.0.state.lock().waiting.is_empty() {
            self.write_with(None);
        }
    }

    /// Adds an entry to those that are waiting, and writes all of them.
    fn write_with(&self, line: Option<Vec<u8>>) {
        let state = &mut *self.0.state.lock();
        state.waiting.extend(line);
        if state.waiting.len() > WAITING_MAX {
            state.waiting.pop_front();
            state.dropped += 1;
        }
        let written = state.write(&self.0.path);
        if written.is_err() {
            // The next write opens the file again, so that it starts at the end of the file.
            state.file = None;
        }
        self.0.faults.record(DaemonFile::AuditLog, &written);
    }
}

impl AuditState {
    fn write(&mut self, path: &Path) -> io::Result<()> {
        if self.dropped > 0 {
            let gap = serde_json::json!({ "time": now(), "lost_entries": self.dropped });
            self.write_line(path, gap.to_string().into_bytes())?;
            self.dropped = 0;
        }
        while let Some(line) = self.waiting.front() {
            self.write_line(path, line.clone())?;
            self.waiting.pop_front();
        }
        Ok(())
    }

    fn write_line(&mut self, path: &Path, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        if self.file.is_none() {
            self.file = Some(open(path)?);
        }
        let mut length = self.file.as_ref().map_or(Ok(0), |file| file.metadata().map(|file| file.len()))?;
        if length > FILE_BYTES_MAX {
            std::fs::rename(path, path.with_file_name(EARLIER_AUDIT_FILE))?;
            self.file = Some(open(path)?);
            length = 0;
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        // One write, so that lines are not mixed. A part of a line would make the next line unreadable.
        file.write_all(&line).inspect_err(|_| {
            let _ = file.set_len(length);
        })
    }
}

/// The present time, in RFC 3339 notation.
pub(crate) fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// Opens the file, and continues after its last entry.
fn open(path: &Path) -> io::Result<File> {
    let mut file = tailwater_files::open_or_create(path, tailwater_files::PRIVATE_FILE_MODE)?;
    file.seek(SeekFrom::End(0))?;
    Ok(file)
}

/// Returns a request's body as text, cut to the length that the audit log keeps.
pub(crate) fn body_text(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(BODY_BYTES_MAX)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> AuditLogEntry<'_> {
        AuditLogEntry {
            time: "2026-11-26T00:00:00Z".to_owned(),
            caller: "anna",
            role: "operator",
            peer: "127.0.0.1:5",
            method: "POST",
            path,
            body: "{\n}",
            status: 200,
        }
    }

    #[test]
    fn a_full_file_is_kept_and_a_new_one_begins() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let log = AuditLog::new(folder.path(), FileFaults::default());
        log.append(&entry("/one"));
        File::options().append(true).open(folder.path().join("audit.log"))?.set_len(FILE_BYTES_MAX + 1)?;
        log.append(&entry("/two"));
        let text = std::fs::read_to_string(folder.path().join("audit.log"))?;
        assert!(
            text.ends_with("\n") && text.lines().count() == 1 && text.contains("\"path\":\"/two\""),
            "the new audit log must have the entry of /two and no other: {text}"
        );
        assert!(folder.path().join("audit.log.1").is_file());
        Ok(())
    }

    #[test]
    fn entries_wait_until_they_can_be_written_and_the_oldest_are_dropped() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let (path, faults) = (folder.path().join("audit.log"), FileFaults::default());
        std::fs::create_dir(&path)?;
        let log = AuditLog::new(folder.path(), faults.clone());
        for number in 0..WAITING_MAX + 3 {
            log.append(&entry(&format!("/{number}")));
        }
        anyhow::ensure!(faults.list().len() == 1, "no fault is shown: {:?}", faults.list());
        std::fs::remove_dir(&path)?;
        log.write_waiting();
        let text = std::fs::read_to_string(&path)?;
        let lines: Vec<serde_json::Value> =
            text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        anyhow::ensure!(lines.len() == WAITING_MAX + 1 && lines[0]["lost_entries"] == 3, "{}", lines[0]);
        let paths = lines[1..].iter().map(|line| line["path"].as_str().unwrap_or_default().to_owned());
        anyhow::ensure!(paths.eq((3..WAITING_MAX + 3).map(|number| format!("/{number}"))));
        anyhow::ensure!(faults.list().is_empty());
        Ok(())
    }
}
