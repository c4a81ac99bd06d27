//! The audit log: who changed what, as one JSON object in each line of `audit.log` in the log's folder.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::Serialize;
use tracing::warn;

/// When the file is larger than this, it becomes `audit.log.1`, and a new file begins.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Longer bodies of requests are cut.
const BODY_BYTES_MAX: usize = 4 << 10;

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
#[derive(Debug)]
pub(crate) struct AuditLog {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl AuditLog {
    /// The audit log in the log's folder. The file is opened at the first entry.
    pub fn new(directory: &Path) -> Self {
        Self { path: directory.join("audit.log"), file: Mutex::new(None) }
    }

    /// Appends an entry. A failure is only logged: an operator must be able to act while the disk is full.
    pub fn append(&self, entry: &AuditLogEntry<'_>) {
        let (caller, method, path, status) = (entry.caller, entry.method, entry.path, entry.status);
        tracing::info!(caller, peer = entry.peer, status, "http: {method} {path}");
        if let Err(error) = self.write(entry) {
            warn!("the audit log {} cannot be written: {error}", self.path.display());
        }
    }

    fn write(&self, entry: &AuditLogEntry<'_>) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let mut file = self.file.lock();
        let is_full =
            file.as_ref().map(File::metadata).transpose()?.is_some_and(|file| file.len() > FILE_BYTES_MAX);
        if is_full {
            std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
            *file = None;
        }
        if file.is_none() {
            *file = Some(open(&self.path)?);
        }
        // One write, so that lines are not mixed.
        file.as_mut().map_or(Ok(()), |file| file.write_all(&line))
    }
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

    #[test]
    fn a_full_file_is_kept_and_a_new_one_begins() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let log = AuditLog::new(folder.path());
        let entry = |path| AuditLogEntry {
            time: "2026-11-26T00:00:00Z".to_owned(),
            caller: "anna",
            role: "operator",
            peer: "127.0.0.1:5",
            method: "POST",
            path,
            body: "{\n}",
            status: 200,
        };
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
}
