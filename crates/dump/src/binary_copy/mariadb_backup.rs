//! Runs `mariadb-backup`, which copies the files of a MariaDB server into a local folder. A server can then
//! use the folder as its data directory.

use std::convert::Infallible;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_session::{ConnectOptions, Connection, Endpoint, TlsMode};
use tailwater_wire::Flavour;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{BinaryCopyPosition, version_check};
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;

/// Names of the file in which `mariadb-backup` writes the binlog position. New and old versions use different
/// names.
const POINT_FILES: [&str; 3] =
    ["mariadb_backup_binlog_info", "xtrabackup_binlog_info", "mariabackup_binlog_info"];
/// Interval between two measurements of the folder's size, for the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How many of the last output lines of `mariadb-backup` an error shows.
const LINES_SHOWN: usize = 4;

/// What to back up, with which program, into which folder.
#[derive(Debug, Clone)]
pub struct BackupOptions {
    /// The server to back up; its files must be on this machine.
    pub source: ConnectOptions,
    /// The folder that becomes a data directory. It must be empty, and is created if absent.
    pub directory: PathBuf,
    /// The name of the `mariadb-backup` program, or its path.
    pub program: PathBuf,
    /// Number of threads that copy files.
    pub parallel: u16,
    /// Memory for the prepare phase of `mariadb-backup`, in bytes.
    pub memory_bytes: u64,
}

/// What a backup would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupPlan {
    /// The server's version.
    pub version: String,
    /// Estimated size of the backup in bytes.
    pub bytes_estimate: u64,
}

/// The result of a backup.
#[derive(Debug, Clone)]
pub struct BackupReport {
    /// The binlog position and GTID set of the copied data.
    pub point: BinaryCopyPosition,
    /// Size of the folder, in bytes.
    pub bytes: u64,
    /// How long the backup took.
    pub elapsed: Duration,
}

/// Checks whether the server can be backed up, and returns the plan. Changes nothing.
pub async fn plan(options: &BackupOptions) -> Result<BackupPlan, BulkError> {
    let unsupported = |reason| BulkError::BinaryUnsupported { reason };
    let mut source = Connection::connect(&options.source).await?;
    if source.server().flavour != Flavour::MariaDb {
        return Err(unsupported(format!(
            "{} is not a MariaDB server; for MySQL, --binary runs CLONE into another server",
            source.endpoint()
        )));
    }
    super::refuse_channel_target(&mut source).await?;
    let answer = source.query("SELECT VERSION(), @@datadir").await?;
    let field = |index| answer.first().and_then(|row| row.get_str(index)).unwrap_or_default().to_owned();
    let (version, data) = (field(0), PathBuf::from(field(1)));
    if !data.join("ibdata1").exists() {
        return Err(unsupported(format!(
            "the server's files are not on this machine, or this user may not see them: there is no {}; run it where the \
             server runs, as the server's user",
            data.join("ibdata1").display()
        )));
    }
    let bytes = "SELECT CAST(SUM(DATA_LENGTH + INDEX_LENGTH) AS UNSIGNED) FROM information_schema.TABLES";
    let bytes_estimate = source.query(bytes).await?.first().and_then(|row| row.get_u64(0)).unwrap_or(0);
    source.close().await;
    let program = options.program.display();
    let output = Command::new(&options.program).arg("--version").stdin(Stdio::null()).output().await;
    let output = output.map_err(|error| {
        unsupported(format!("{program} does not run: {error}; install MariaDB's backup program"))
    })?;
    let text = [output.stdout, output.stderr].concat();
    version_check::may_back_up(&String::from_utf8_lossy(&text), &version)
        .map_err(|reason| unsupported(format!("{program}: {reason}")))?;
    if std::fs::read_dir(&options.directory).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(unsupported(format!("{} is not empty", options.directory.display())));
    }
    Ok(BackupPlan { version, bytes_estimate })
}

/// Copies the server's files and prepares them. A server of the same release series can then start on the
/// folder.
///
/// # Errors
/// - [`BulkError::BinaryUnsupported`], before any change.
/// - [`BulkError::BinaryFailed`] with the last output of the program.
/// - [`BulkError::BinaryInterrupted`]; [`BulkError::File`].
pub async fn back_up(
    options: &BackupOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
) -> Result<BackupReport, BulkError> {
    let started = Instant::now();
    let plan = plan(options).await?;
    progress.expect_bytes(plan.bytes_estimate);
    let directory = &options.directory;
    let file = |action, path: &Path| {
        let path = path.to_owned();
        move |source| BulkError::File { action, path, source }
    };
    tailwater_files::create_private_folder(directory).map_err(file("make", directory))?;
    let login = login_file(&options.source).map_err(file("write", &std::env::temp_dir()))?;
    let mut copying = Command::new(&options.program);
    copying
        .arg(format!("--defaults-extra-file={}", login.path().display()))
        .arg("--backup")
        .arg(format!("--target-dir={}", directory.display()))
        .arg(format!("--parallel={}", options.parallel.max(1)));
    info!(directory = %directory.display(), "copying the server's files");
    run(copying, "copying", directory, progress, stop).await?;
    drop(login);
    /// Maximum size of the file with the binlog position, in bytes. The longest part of the file is a GTID
    /// set.
    const POINT_BYTES_MAX: u64 = 64 << 20;
    let read = |name: &&str| tailwater_files::read_regular(&directory.join(name), POINT_BYTES_MAX).ok();
    let point = POINT_FILES.iter().find_map(read).and_then(|bytes| String::from_utf8(bytes).ok());
    let mut preparing = Command::new(&options.program);
    preparing
        .arg("--prepare")
        .arg(format!("--target-dir={}", directory.display()))
        .arg(format!("--use-memory={}", options.memory_bytes));
    info!("preparing the copy: replaying the changes that were made while files were copied");
    run(preparing, "preparing", directory, progress, stop).await?;
    Ok(BackupReport {
        point: point.as_deref().and_then(version_check::point_of_backup).unwrap_or_default(),
        bytes: size_of_folder(directory),
        elapsed: started.elapsed(),
    })
}

/// A temporary option file with the login, which only this user can read. On the command line, the password
/// would be visible to all users.
fn login_file(source: &ConnectOptions) -> std::io::Result<tempfile::NamedTempFile> {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut text = format!("[client]\nuser={}\n", quoted(&source.user));
    if !source.password.expose().is_empty() {
        text += &format!("password={}\n", quoted(source.password.expose()));
    }
    text += &match &source.endpoint {
        Endpoint::Unix { path } => format!("socket={}\n", quoted(&path.display().to_string())),
        Endpoint::Tcp { host, port } => format!("protocol=tcp\nhost={}\nport={port}\n", quoted(host)),
    };
    text += match (&source.endpoint, source.tls.mode) {
        (Endpoint::Unix { .. }, _) | (_, TlsMode::Off) => "loose-skip-ssl\n",
        (_, TlsMode::Preferred) => "loose-disable-ssl-verify-server-cert\n",
        (_, TlsMode::Required) => "ssl\nloose-disable-ssl-verify-server-cert\n",
        (_, TlsMode::VerifyCa | TlsMode::VerifyFull) => "ssl\nssl-verify-server-cert\n",
    };
    let files =
        [("ssl-ca", &source.tls.ca), ("ssl-cert", &source.tls.certificate), ("ssl-key", &source.tls.key)];
    for (name, path) in files {
        if let Some(path) = path {
            text += &format!("{name}={}\n", quoted(&path.display().to_string()));
        }
    }
    let mut file = tempfile::Builder::new().prefix("tailwater-").suffix(".cnf").tempfile()?;
    file.write_all(text.as_bytes())?;
    file.flush()?;
    Ok(file)
}

/// Runs `mariadb-backup`. Its output goes to a file outside the data directory.
async fn run(
    mut command: Command,
    what: &str,
    directory: &Path,
    progress: &BulkProgress,
    stop: &CancellationToken,
) -> Result<(), BulkError> {
    let messages = tempfile::tempfile().and_then(|file| Ok((file.try_clone()?, file)));
    let (messages, to_read) = messages.map_err(|source| BulkError::File {
        action: "create a file in",
        path: std::env::temp_dir(),
        source,
    })?;
    let left = || format!("{} has an incomplete copy; remove it before you try again", directory.display());
    let failed = |reason: String| BulkError::BinaryFailed {
        what: format!("mariadb-backup, {what},"),
        reason,
        left: left(),
    };
    let spawned =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages).kill_on_drop(true).spawn();
    let mut child = spawned.map_err(|error| failed(error.to_string()))?;
    let watch = watch(directory, progress);
    let status = tokio::select! {
        status = child.wait() => status.map_err(|error| failed(error.to_string()))?,
        never = watch => match never {},
        () = stop.cancelled() => {
            // The program is stopped before the error is returned, so that it no longer holds locks on the
            // server.
            let _ = child.kill().await;
            return Err(BulkError::BinaryInterrupted { left: left() });
        }
    };
    if status.success() {
        return Ok(());
    }
    Err(failed(format!("{status}: {}", last_lines(to_read))))
}

/// Reports the size of the folder until the caller drops the future.
async fn watch(directory: &Path, progress: &BulkProgress) -> Infallible {
    let mut shown = 0;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let bytes = size_of_folder(directory);
        progress.rows(0, bytes.saturating_sub(shown));
        shown = shown.max(bytes);
    }
}

fn last_lines(mut file: std::fs::File) -> String {
    use std::io::{Read, Seek, SeekFrom};
    const TAIL_BYTES: u64 = 8 << 10;
    let mut text = Vec::new();
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let read = file
        .seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))
        .and_then(|_| file.read_to_end(&mut text));
    if read.is_err() {
        return "the output of the program cannot be read".into();
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join(" | ")
}

/// Returns the size of all files in a folder and its subfolders. Files that are removed in the meantime do
/// not count.
fn size_of_folder(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size_of_folder(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
