//! Servers that keep running after the command that started them: `tailwater sandbox up`, `list`, `stop`,
//! `kill`, `start` and `down`.
//!
//! Each server has a folder under the cache's `up` with its data, a process file, and scripts for its client
//! programs. The process file holds the process id and the start time of the process. So a later process that
//! gets the same id is never mistaken for the server.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};
use tailwater_wire::Flavour;

use crate::cache_folder::{Cache, FileLock};
use crate::child_process_lifetime::{self, Lifetime, ProcessLimits};
use crate::error::{FileContext, SandboxError};
use crate::free_port::ReservedPort;
use crate::install::{Install, InstallProgress, remove_tree};
use crate::native_replica::{ReplicaOf, start_statement};
use crate::replication_setup::{account_statements, cluster_options, manager_account_statements};
use crate::sandbox_server::blocking;
use crate::server_files_and_launch::Layout;
use crate::server_instance_folder::private_folder;
use crate::server_kind::ServerKind;
use crate::sql_via_client_program::{SqlClient, skip_tls_option};

mod tailwater_config;

const PROCESS_FILE: &str = "server.json";
const LOCK_FILE: &str = ".lock";
/// Name of the lock file that is locked while the server is being started.
const STARTING_FILE: &str = "starting";
/// Time limit of a clean shutdown in seconds. After that time the server is killed.
const STOP_SECONDS_MAX: u64 = 60;

/// Specification of the servers to start.
#[derive(Debug, Clone)]
pub struct UpSpec {
    /// Server version.
    pub kind: ServerKind,
    /// Number of servers, at least 1.
    pub count: u32,
    /// TCP port of the first server. The other servers use the next ports. `None`: free ports.
    pub port: Option<u16>,
    /// Whether to start a cluster for the manager. The first server is then a source with lossless semi-sync.
    /// The others are its replicas and do not acknowledge. Each commit waits for an ACK, for example from
    /// `tailwater run`.
    pub semi_sync: bool,
    /// Options of each server, such as `--sync-binlog=0`.
    pub options: Vec<String>,
}

/// A server that was started by [`up`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachedServer {
    /// Name of the server, such as `mysql-9.7-1`. Its folder has the same name.
    pub name: String,
    /// Name of the server version, such as `mysql-9.7`; see [`ServerKind::name`].
    pub kind: String,
    /// Version that the server reported. Empty until the server was ready.
    pub version: String,
    /// Replication role.
    pub role: DetachedRole,
    /// TCP port on 127.0.0.1.
    pub port: u16,
    /// Unix socket.
    pub socket: PathBuf,
    /// Data directory.
    pub data: PathBuf,
    /// Error log.
    pub error_log: PathBuf,
    /// Process id.
    pub pid: u32,
    /// Start time of the process, in clock ticks since boot.
    pub start_ticks: u64,
    /// Scripts that run the server's client programs, connected as the superuser.
    pub clients: Vec<PathBuf>,
    /// Additional options on the server's command line.
    #[serde(default)]
    pub options: Vec<String>,
    /// Tailwater configuration that captures and manages the server's cluster, if the server belongs to one.
    #[serde(default)]
    pub config: Option<PathBuf>,
}

/// Replication role of a detached server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DetachedRole {
    /// The server does not replicate.
    Standalone,
    /// The source. Its commits wait for an ACK.
    Source,
    /// A replica of the source.
    Replica,
}

impl DetachedServer {
    /// Whether the server's process is running. After a reboot of the machine the result is always false.
    pub fn is_running(&self) -> bool {
        child_process_lifetime::start_ticks(self.pid) == Some(self.start_ticks)
    }

    /// Returns commands to paste into a shell, each with its purpose.
    pub fn commands(&self) -> Vec<(&'static str, String)> {
        let mut commands = Vec::new();
        for path in &self.clients {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let quoted = shell_quoted(&path.to_string_lossy());
            match name {
                "mysql" | "mariadb" => commands.push(("SQL", quoted)),
                "mysqlbinlog" | "mariadb-binlog" => commands
                    .push(("binlog", format!("{quoted} --read-from-remote-server --verbose binlog.000001"))),
                _ => {}
            }
        }
        commands.push(("any client", format!("--host=127.0.0.1 --port={} --user=root", self.port)));
        commands
    }

    fn folder(&self, cache: &Cache) -> PathBuf {
        cache.up().join(&self.name)
    }

    fn write(&self, folder: &Path) -> Result<(), SandboxError> {
        let path = folder.join(PROCESS_FILE);
        let temporary = folder.join("server.json.new");
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::other).on_path("write", &path)?;
        fs::write(&temporary, text).on_path("write", &temporary)?;
        fs::rename(&temporary, &path).on_path("rename", &temporary)
    }
}

/// Starts servers that keep running after this process. Downloads the server if it is not installed.
///
/// # Errors
/// [`SandboxError`] of the server that could not be started. Servers that were started before it keep
/// running; [`down`] stops them.
pub async fn up(
    cache: &Cache,
    spec: &UpSpec,
    mut progress: impl FnMut(InstallProgress) + Send + 'static,
) -> Result<Vec<DetachedServer>, SandboxError> {
    let kind = spec.kind;
    let install = {
        let cache = cache.clone();
        blocking(move || Install::ensure(kind, &cache, &mut progress)).await?
    };
    let ports = ports(spec)?;
    let mut servers: Vec<DetachedServer> = Vec::new();
    for (number, port) in ports.into_iter().enumerate() {
        let role = match (spec.semi_sync, number) {
            (false, _) => DetachedRole::Standalone,
            (true, 0) => DetachedRole::Source,
            (true, _) => DetachedRole::Replica,
        };
        let server = start_new(cache, install.clone(), role, port, &spec.options).await?;
        let client = SqlClient { install: &install, port: server.port };
        let accounts = match role {
            DetachedRole::Standalone => account_statements(),
            DetachedRole::Source | DetachedRole::Replica => {
                manager_account_statements(kind.flavour(), role == DetachedRole::Replica)
            }
        };
        client.run(&accounts).await?;
        if let (DetachedRole::Replica, Some(source)) = (role, servers.first()) {
            let change = ReplicaOf::port(source.port).change_statement(kind.flavour());
            client.run(&format!("{change}; {};", start_statement(kind.flavour()))).await?;
        }
        servers.push(server);
    }
    if spec.semi_sync {
        let config = tailwater_config::write(&servers, cache)?;
        for server in &mut servers {
            server.config = Some(config.clone());
            server.write(&server.folder(cache))?;
        }
    }
    Ok(servers)
}

/// Reserves a port for each server: the requested ports, or free ones.
fn ports(spec: &UpSpec) -> Result<Vec<ReservedPort>, SandboxError> {
    let count = spec.count.max(1);
    let Some(first) = spec.port else { return (0..count).map(|_| ReservedPort::pick()).collect() };
    let last = u32::from(first) + count - 1;
    let range = || SandboxError::PortRange { first, count };
    let last = u16::try_from(last).map_err(|_| range())?;
    (first..=last).map(ReservedPort::fixed).collect()
}

async fn start_new(
    cache: &Cache,
    install: Install,
    role: DetachedRole,
    port: ReservedPort,
    options: &[String],
) -> Result<DetachedServer, SandboxError> {
    let kind = install.kind();
    let (name, folder, _starting) = claim_name(cache, kind)?;
    let result = start_in_folder(cache, install, role, (&port, options), (&name, &folder)).await;
    if result.is_err() {
        remove_tree(&folder).on_path("remove", &folder)?;
    }
    result
}

async fn start_in_folder(
    cache: &Cache,
    install: Install,
    role: DetachedRole,
    (port, options): (&ReservedPort, &[String]),
    (name, folder): (&str, &Path),
) -> Result<DetachedServer, SandboxError> {
    let kind = install.kind();
    let layout = {
        let (cache, folder) = (cache.clone(), folder.to_owned());
        blocking(move || Layout::prepare(install, &cache, &folder, None)).await?
    };
    let mut lines = vec!["local-infile=1".to_owned()];
    match role {
        DetachedRole::Standalone => {}
        DetachedRole::Source => lines.extend(cluster_options(kind.flavour(), true)),
        DetachedRole::Replica => lines.extend(cluster_options(kind.flavour(), false)),
    }
    // The operator may edit this file. Its settings are kept when the server restarts.
    fs::write(&layout.option_file, format!("[mysqld]\n{}\n", lines.join("\n")))
        .on_path("write", &layout.option_file)?;
    let mut child = layout.launch(port.number(), options, Lifetime::Detached, ProcessLimits::default())?;
    let mut server = DetachedServer {
        name: name.to_owned(),
        kind: kind.name().to_owned(),
        version: String::new(),
        role,
        port: port.number(),
        socket: layout.socket.clone(),
        data: layout.data.clone(),
        error_log: layout.error_log.clone(),
        pid: child.id(),
        start_ticks: child_process_lifetime::start_ticks(child.id()).unwrap_or_default(),
        clients: Vec::new(),
        options: options.to_vec(),
        config: None,
    };
    // The process file is written before anything else can fail, so that `down` always finds the server.
    let finish = async {
        server.write(folder)?;
        server.version = layout.wait_ready(name, &mut child, port.number()).await?;
        server.clients = write_clients(&layout.install, folder, port.number())?;
        server.write(folder)
    };
    match finish.await {
        Ok(()) => Ok(server),
        Err(error) => {
            end_child(&mut child);
            Err(error)
        }
    }
}

fn end_child(child: &mut Child) {
    // An error means that the process has already ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// Creates the folder with the lowest free number, and acquires the lock that marks the folder as in use.
fn claim_name(cache: &Cache, kind: ServerKind) -> Result<(String, PathBuf, FileLock), SandboxError> {
    let up = cache.up();
    private_folder(&up)?;
    let _lock = FileLock::acquire(&up.join(LOCK_FILE), || {})?;
    remove_unfinished(&up)?;
    let mut number = 1_u32;
    loop {
        let name = format!("{}-{number}", kind.name());
        let folder = up.join(&name);
        if !folder.exists() {
            private_folder(&folder)?;
            let starting = FileLock::acquire(&folder.join(STARTING_FILE), || {})?;
            return Ok((name, folder, starting));
        }
        number += 1;
    }
}

/// Removes folders of servers whose start was killed before the process file was written. The caller holds
/// the lock of `up`.
fn remove_unfinished(up: &Path) -> Result<(), SandboxError> {
    for entry in fs::read_dir(up).on_path("list", up)?.flatten() {
        let folder = entry.path();
        if folder.is_dir()
            && !folder.join(PROCESS_FILE).exists()
            && FileLock::try_acquire(&folder.join(STARTING_FILE))?.is_some()
        {
            crate::server_instance_folder::remove_folder(&folder)?;
        }
    }
    Ok(())
}

/// Writes a script for each client program. The scripts connect as the superuser.
fn write_clients(install: &Install, folder: &Path, port: u16) -> Result<Vec<PathBuf>, SandboxError> {
    let names: &[&str] = match install.kind().flavour() {
        Flavour::MySql => &["mysql", "mysqlbinlog", "mysqldump"],
        Flavour::MariaDb => &["mariadb", "mariadb-binlog", "mariadb-dump"],
    };
    let mut paths = Vec::new();
    for name in names {
        // Some installations do not have all client programs.
        let Ok(command) = install.tool(name) else { continue };
        let mut script = String::from("#!/bin/sh\nexec");
        for word in std::iter::once(command.get_program()).chain(command.get_args()) {
            script.push(' ');
            script.push_str(&shell_quoted(&word.to_string_lossy()));
        }
        script.push_str(&format!(" --no-defaults --host=127.0.0.1 --port={port} --user=root"));
        if let Some(option) = skip_tls_option(install.kind().flavour()) {
            script.push_str(&format!(" {option}"));
        }
        script.push_str(" \"$@\"\n");
        let path = folder.join(name);
        let file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o755).open(&path);
        file.and_then(|mut file| file.write_all(script.as_bytes())).on_path("write", &path)?;
        paths.push(path);
    }
    Ok(paths)
}

/// Quotes a word for a shell.
fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:+,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns the servers that [`up`] started and [`down`] did not stop, sorted by name. Servers whose process
/// has ended are included.
///
/// # Errors
/// [`SandboxError::File`] if a process file cannot be read.
pub fn list(cache: &Cache) -> Result<Vec<DetachedServer>, SandboxError> {
    let up = cache.up();
    let entries = match fs::read_dir(&up) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.on_path("list", &up)?,
    };
    let mut servers = Vec::new();
    for entry in entries.flatten() {
        let note = entry.path().join(PROCESS_FILE);
        match fs::read(&note) {
            Ok(text) => {
                let server: DetachedServer =
                    serde_json::from_slice(&text).map_err(std::io::Error::from).on_path("read", &note)?;
                servers.push(server);
            }
            // This entry is a lock file, or the folder of a server that is being started.
            Err(_) => continue,
        }
    }
    servers.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(servers)
}

/// Returns the servers with these names; all servers if no name is given.
fn select(
    cache: &Cache,
    names: &[String],
    action: &'static str,
) -> Result<Vec<DetachedServer>, SandboxError> {
    let mut servers = list(cache)?;
    if let Some(name) = names.iter().find(|name| !servers.iter().any(|server| server.name == **name)) {
        return Err(SandboxError::WrongState { name: name.clone(), state: "unknown", action });
    }
    if !names.is_empty() {
        servers.retain(|server| names.contains(&server.name));
    }
    Ok(servers)
}

/// Stops all servers, or the named ones, and keeps their data for [`start`]. Returns the servers that were
/// stopped.
///
/// # Errors
/// [`SandboxError::WrongState`] if a name is unknown or its server does not run. Then no server was stopped.
pub async fn stop(
    cache: &Cache,
    names: &[String],
    how: StopMode,
) -> Result<Vec<DetachedServer>, SandboxError> {
    let mut servers = select(cache, names, "stop it")?;
    match servers.iter().find(|server| !server.is_running()) {
        Some(server) if !names.is_empty() => {
            let name = server.name.clone();
            return Err(SandboxError::WrongState { name, state: "not running", action: "stop it" });
        }
        _ => servers.retain(DetachedServer::is_running),
    }
    end(&servers, how).await;
    Ok(servers)
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// SIGTERM for a clean shutdown. SIGKILL if that takes too long.
    Shutdown,
    /// SIGKILL, as in a crash.
    Kill,
}

async fn end(servers: &[DetachedServer], how: StopMode) {
    // All servers are stopped in parallel, because each may take seconds to flush its pages. During the
    // shutdown, replicas and sources do not wait for each other.
    let first = match how {
        StopMode::Shutdown => Signal::TERM,
        StopMode::Kill => Signal::KILL,
    };
    for server in servers {
        signal(server, first);
    }
    let deadline = Instant::now() + Duration::from_secs(STOP_SECONDS_MAX);
    for server in servers {
        while server.is_running() {
            if Instant::now() >= deadline {
                signal(server, Signal::KILL);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Starts all servers, or the named ones, whose process has ended. The restarted servers use their previous
/// data, ports and options.
///
/// # Errors
/// [`SandboxError::WrongState`] if a name is unknown or its server is running; [`SandboxError::PortTaken`].
pub async fn start(cache: &Cache, names: &[String]) -> Result<Vec<DetachedServer>, SandboxError> {
    let mut servers = select(cache, names, "start it")?;
    match servers.iter().find(|server| server.is_running()) {
        Some(server) if !names.is_empty() => {
            let name = server.name.clone();
            return Err(SandboxError::WrongState { name, state: "running", action: "start it" });
        }
        _ => servers.retain(|server| !server.is_running()),
    }
    for server in &mut servers {
        start_again(cache, server).await?;
    }
    Ok(servers)
}

async fn start_again(cache: &Cache, server: &mut DetachedServer) -> Result<(), SandboxError> {
    let folder = server.folder(cache);
    let _starting = FileLock::acquire(&folder.join(STARTING_FILE), || {})?;
    let kind: ServerKind = server.kind.parse().map_err(|reason: String| SandboxError::File {
        action: "understand",
        path: folder.join(PROCESS_FILE),
        source: std::io::Error::other(reason),
    })?;
    let install = Install::find(kind, cache)?;
    let port = ReservedPort::fixed(server.port)?;
    let layout = {
        let (cache, folder, data) = (cache.clone(), folder.clone(), server.data.clone());
        blocking(move || Layout::prepare(install, &cache, &folder, Some(&data))).await?
    };
    let mut child =
        layout.launch(port.number(), &server.options, Lifetime::Detached, ProcessLimits::default())?;
    server.pid = child.id();
    server.start_ticks = child_process_lifetime::start_ticks(child.id()).unwrap_or_default();
    let finish = async {
        server.write(&folder)?;
        server.version = layout.wait_ready(&server.name, &mut child, port.number()).await?;
        server.write(&folder)
    };
    let finished = finish.await;
    if finished.is_err() {
        end_child(&mut child);
    }
    finished
}

/// Stops all servers, or the named ones, and deletes their data. Returns the servers that were stopped.
///
/// # Errors
/// [`SandboxError::WrongState`] if a name is unknown. Then no server was stopped.
pub async fn down(cache: &Cache, names: &[String]) -> Result<Vec<DetachedServer>, SandboxError> {
    let servers = select(cache, names, "end it")?;
    end(&servers, StopMode::Shutdown).await;
    for server in &servers {
        crate::server_instance_folder::remove_folder(&server.folder(cache))?;
    }
    if cache.up().is_dir() {
        let _lock = FileLock::acquire(&cache.up().join(LOCK_FILE), || {})?;
        remove_unfinished(&cache.up())?;
    }
    Ok(servers)
}

/// Sends a signal to the server's process, and never to another process with the same id.
fn signal(server: &DetachedServer, signal: Signal) {
    let pid = i32::try_from(server.pid).ok().and_then(Pid::from_raw);
    let handle = pid.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    let Some(handle) = handle else { return };
    // The process is checked after its handle was opened, because an open handle never refers to another
    // process.
    if server.is_running() {
        // An error means that the process has just ended.
        let _ = rustix::process::pidfd_send_signal(&handle, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_quoting_preserves_words() {
        let check = |word: &str, want: &str| assert_eq!(shell_quoted(word), want);
        check("/a/b-c_1.2", "/a/b-c_1.2");
        check("", "''");
        check("a b", "'a b'");
        check("it's", r"'it'\''s'");
        check("$HOME", "'$HOME'");
    }

    #[tokio::test]
    async fn a_process_that_reused_a_server_id_is_not_signalled() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let cache = Cache::at(folder.path());
        let mut stranger = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let ticks = child_process_lifetime::start_ticks(stranger.id()).expect("start time");
        let server = DetachedServer {
            name: "mysql-9.7-1".to_owned(),
            kind: "mysql-9.7".to_owned(),
            version: String::new(),
            role: DetachedRole::Standalone,
            port: 1,
            socket: PathBuf::new(),
            data: PathBuf::new(),
            error_log: PathBuf::new(),
            pid: stranger.id(),
            // The process file names an earlier process that had the same id.
            start_ticks: ticks - 1,
            clients: Vec::new(),
            options: Vec::new(),
            config: None,
        };
        let own = server.folder(&cache);
        private_folder(&own).expect("folder");
        server.write(&own).expect("process file");
        // This is the folder of a server whose start was killed before `up` wrote the process file.
        let unfinished = cache.up().join("mysql-9.7-2");
        private_folder(&unfinished.join("data")).expect("folder");
        assert_eq!(list(&cache).expect("list"), std::slice::from_ref(&server));
        assert!(!server.is_running());
        assert!(down(&cache, &["other".to_owned()]).await.is_err());
        assert_eq!(down(&cache, &[]).await.expect("down"), [server]);
        assert!(!own.exists() && !unfinished.exists());
        assert!(stranger.try_wait().expect("wait").is_none(), "an unrelated process was killed");
        stranger.kill().expect("kill");
        stranger.wait().expect("wait");
    }
}
