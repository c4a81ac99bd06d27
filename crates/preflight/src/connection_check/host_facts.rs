//! Reads the facts about this machine that `host_rules` needs.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tailwater_config::Config;
use tailwater_daemon::control_socket::socket_of;

/// Number of syncs that are measured.
const SYNCS: usize = 30;

/// Number of bytes that the measurement writes before each sync, about as many as a small commit.
const SYNC_BYTES: usize = 4096;

/// The measurement of a disk stops when all syncs together have taken longer than this.
const SYNC_TIME_MAX: Duration = Duration::from_secs(5);

/// `f_type` of tmpfs, from statfs(2).
const TMPFS: i64 = 0x0102_1994;

/// The facts about this machine.
#[derive(Debug)]
pub(super) struct HostFacts {
    /// The folder of the log.
    pub(super) directory: PathBuf,
    /// The log's disk, or why it could not be read.
    pub(super) disk: Result<LogDiskFacts, String>,
    /// The limit of open files; `None` if there is none.
    pub(super) open_files_max: Option<u64>,
    /// The highest number of files and connections that the configuration may need at the same time.
    pub(super) open_files_needed: u64,
    /// Each address at which the daemon listens, with an error if the address cannot be used.
    pub(super) listeners: Vec<(String, SocketAddr, Option<String>)>,
    /// Whether a daemon with this configuration is running. It already uses the addresses to listen at.
    pub(super) is_daemon_running: bool,
}

/// The disk of the log.
#[derive(Debug, Clone)]
pub(super) struct LogDiskFacts {
    /// The folder whose disk was measured: the log's folder, or its nearest parent folder that exists.
    pub(super) measured: PathBuf,
    pub(super) total_bytes: u64,
    pub(super) free_bytes: u64,
    /// Whether the files are in memory only.
    pub(super) is_in_memory: bool,
    /// The time of each fdatasync, in microseconds, sorted.
    pub(super) sync_times_us: Vec<u64>,
}

/// Returns whether a daemon listens at the control socket of the configuration.
pub(super) async fn is_daemon_running(config: &Config) -> bool {
    let socket = socket_of(&config.log.directory);
    tokio::task::spawn_blocking(move || UnixStream::connect(socket).is_ok()).await.unwrap_or_default()
}

/// Reads the facts about this machine.
pub(super) async fn read(config: &Config, is_daemon_running: bool) -> HostFacts {
    let directory = config.log.directory.clone();
    let measured = directory.clone();
    let disk = tokio::task::spawn_blocking(move || disk(&measured)).await;
    let serves =
        config.serves.iter().map(|serve| (format!("serve of source {}", serve.source), serve.listen));
    let http = config.http.iter().map(|http| ("http".to_owned(), http.listen));
    let listeners = serves.chain(http).map(|(object, address)| {
        let error = TcpListener::bind(address).err().map(|error| error.to_string());
        (object, address, error)
    });
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let connections: usize = config.serves.iter().map(|serve| serve.connections_max).sum();
    let channels: usize = config.channels.iter().map(|channel| channel.workers + 4).sum();
    let servers = (config.sources.len() + config.servers.len()) * 8;
    HostFacts {
        directory,
        disk: disk.unwrap_or_else(|error| Err(error.to_string())),
        open_files_max: limit.current,
        // Each client of a binlog server has a socket and an open segment.
        open_files_needed: (connections * 2 + channels + servers + 64) as u64,
        listeners: listeners.collect(),
        is_daemon_running,
    }
}

/// Returns the folder, or its nearest parent folder that exists.
fn existing(directory: &Path) -> Option<&Path> {
    directory
        .ancestors()
        .map(|path| if path == Path::new("") { Path::new(".") } else { path })
        .find(|path| path.exists())
}

fn disk(directory: &Path) -> Result<LogDiskFacts, String> {
    let measured = existing(directory).ok_or("no parent folder of it exists")?;
    let about = |what: &str, error: &dyn std::fmt::Display| format!("{what} {}: {error}", measured.display());
    let space = rustix::fs::statvfs(measured).map_err(|error| about("read the space of", &error))?;
    let kind = rustix::fs::statfs(measured).map_err(|error| about("read the file system of", &error))?;
    let file = tempfile::Builder::new().prefix(".tailwater-check-").tempfile_in(measured);
    let mut file = file.map_err(|error| about("create a file in", &error))?;
    let mut sync_times_us = Vec::new();
    let began = Instant::now();
    while sync_times_us.len() < SYNCS && began.elapsed() < SYNC_TIME_MAX {
        file.write_all(&[0x5a; SYNC_BYTES]).map_err(|error| about("write in", &error))?;
        let before = Instant::now();
        file.as_file().sync_data().map_err(|error| about("sync a file in", &error))?;
        sync_times_us.push(u64::try_from(before.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    file.close().map_err(|error| about("remove a file in", &error))?;
    sync_times_us.sort_unstable();
    Ok(LogDiskFacts {
        measured: measured.to_owned(),
        total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        is_in_memory: kind.f_type == TMPFS,
        sync_times_us,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_does_not_exist_is_measured_around_it_and_nothing_remains() {
        let folder = tempfile::tempdir().expect("a temporary folder is created");
        let facts = disk(&folder.path().join("log/deeper")).expect("the disk is measured");
        assert_eq!(facts.measured, folder.path());
        assert_eq!(facts.sync_times_us.len(), SYNCS);
        assert!(facts.total_bytes >= facts.free_bytes && facts.total_bytes > 0);
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder is read").count(), 0);
    }
}
