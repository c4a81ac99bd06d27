//! Starts, stops, kills, pauses and restarts one real server.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cache_folder::Cache;
use crate::child_process_lifetime::{self, Lifetime, ProcessLimits};
use crate::data_directory_template;
use crate::error::{FileContext, SandboxError};
use crate::free_port::ReservedPort;
use crate::install::Install;
use crate::server_files_and_launch::Layout;
use crate::server_instance_folder::InstanceFolder;
use crate::server_kind::ServerKind;
use crate::sql_via_client_program::SqlClient;

/// Time limit of a clean shutdown in seconds.
const STOP_SECONDS_MAX: u64 = 120;
/// Number of attempts to start a server. Another process may take the port after it was chosen and before the
/// server opens it.
const PORT_TRIES_MAX: u32 = 5;

/// Specification of a server.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// Server version.
    pub kind: ServerKind,
    /// Name of the server in messages.
    pub name: String,
    /// Server options, such as `--sync-binlog=0`. They come last, so they override the sandbox's options.
    pub options: Vec<String>,
    /// An existing data directory, which is not removed. `None`: a new data directory, which is removed with
    /// the server.
    pub data: Option<PathBuf>,
    /// Whether a new data directory is created at the path `data`.
    pub creates_data: bool,
    /// TCP port; `None`: a free port. The port stays the same when the server restarts.
    pub port: Option<u16>,
    /// Maximum size of a file of the server in KiB. Larger writes fail as on a full disk.
    pub file_kib_max: Option<u64>,
    /// Variables added to the server's environment, such as those of [`crate::SlowSync`].
    pub environment: Vec<(OsString, OsString)>,
}

impl ServerSpec {
    /// Specifies a server with a new data directory on a free port.
    pub fn new(kind: ServerKind) -> Self {
        Self {
            kind,
            name: kind.name().to_owned(),
            options: Vec::new(),
            data: None,
            creates_data: false,
            port: None,
            file_kib_max: None,
            environment: Vec::new(),
        }
    }

    /// Sets the name used in messages.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a server option, such as `--sync-binlog=0`.
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Adds server options.
    pub fn options(mut self, options: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// Uses an existing data directory, which is not removed with the server.
    pub fn data(mut self, data: impl Into<PathBuf>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Creates a new data directory at this path, which must not exist. It is not removed with the server.
    pub fn new_data(mut self, data: impl Into<PathBuf>) -> Self {
        self.data = Some(data.into());
        self.creates_data = true;
        self
    }

    /// Uses this TCP port.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Limits the size of each file in KiB. Larger writes fail as on a full disk.
    pub fn file_kib_max(mut self, kib: u64) -> Self {
        self.file_kib_max = Some(kib);
        self
    }

    /// Adds variables to the server's environment.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        self.environment.extend(variables);
        self
    }
}

/// A running, paused or stopped server that this process owns.
///
/// When this value is dropped, the server is killed, and its data directory is removed if it was created for
/// this server. If this process is killed, even with SIGKILL, the server is killed too. The next process that
/// starts a server removes the data.
#[derive(Debug)]
pub struct Server {
    spec: ServerSpec,
    layout: Layout,
    port: ReservedPort,
    version: String,
    child: Option<Child>,
    paused: bool,
    // This field is declared last, so that it is dropped last: the folder must outlive the server process
    // that writes to it.
    _folder: InstanceFolder,
}

impl Server {
    /// Starts a server and waits until it accepts connections. That takes one or two seconds, and longer for
    /// the first server of a version.
    ///
    /// # Errors
    /// [`SandboxError::NotInstalled`] if the server is not on this machine; [`SandboxError::EndedEarly`] with
    /// the end of the error log if the server rejects an option or the data directory.
    pub async fn start(spec: ServerSpec) -> Result<Self, SandboxError> {
        Self::start_in(&Cache::locate()?, spec).await
    }

    /// Does the same as [`Self::start`], with a given cache folder.
    ///
    /// # Errors
    /// The same as for [`Self::start`].
    pub async fn start_in(cache: &Cache, spec: ServerSpec) -> Result<Self, SandboxError> {
        let install = Install::find(spec.kind, cache)?;
        Self::start_installed(cache, install, spec).await
    }

    async fn start_installed(
        cache: &Cache,
        install: Install,
        spec: ServerSpec,
    ) -> Result<Self, SandboxError> {
        let (given, creates_data) = (spec.data.clone(), spec.creates_data);
        let environment = spec.environment.clone();
        let (folder, layout) = {
            let cache = cache.clone();
            blocking(move || {
                let folder = InstanceFolder::create(&cache)?;
                if let Some(data) = given.as_ref().filter(|_| creates_data) {
                    data_directory_template::copy_to(&install, &cache, data)?;
                }
                let mut layout = Layout::prepare(install, &cache, folder.path(), given.as_deref())?;
                layout.environment = environment;
                Ok((folder, layout))
            })
            .await?
        };
        let mut server = Self {
            port: Self::choose_port(&spec)?,
            spec,
            layout,
            version: String::new(),
            child: None,
            paused: false,
            _folder: folder,
        };
        let mut tries = 1;
        loop {
            match server.run().await {
                Err(SandboxError::EndedEarly { tail, .. })
                    if server.spec.port.is_none()
                        && tries < PORT_TRIES_MAX
                        && tail.contains("ddress already in use") =>
                {
                    tries += 1;
                    server.port = ReservedPort::pick()?;
                }
                result => return result.map(|()| server),
            }
        }
    }

    fn choose_port(spec: &ServerSpec) -> Result<ReservedPort, SandboxError> {
        match spec.port {
            None => ReservedPort::pick(),
            Some(number) => ReservedPort::claim(number).ok_or(SandboxError::NoFreePort { tries: 1 }),
        }
    }

    /// Starts the process and waits until it is ready.
    async fn run(&mut self) -> Result<(), SandboxError> {
        let limits = ProcessLimits { file_kib_max: self.spec.file_kib_max };
        let port = self.port.number();
        let child = self.layout.launch(port, &self.spec.options, Lifetime::WithOwner, limits)?;
        let child = self.child.insert(child);
        self.paused = false;
        match self.layout.wait_ready(&self.spec.name, child, port).await {
            Ok(version) => {
                self.version = version;
                Ok(())
            }
            Err(error) => {
                self.kill_now();
                Err(error)
            }
        }
    }

    /// Starts the server again after [`Self::stop`], [`Self::kill`] or a crash, with the same data, port and
    /// options.
    ///
    /// # Errors
    /// [`SandboxError::WrongState`] if the server is running; otherwise the same as for
    /// [`Self::start`].
    pub async fn start_again(&mut self) -> Result<(), SandboxError> {
        if self.is_running() {
            return Err(self.wrong_state("running", "start it again"));
        }
        self.child = None;
        self.run().await
    }

    /// Shuts the server down cleanly, and waits until it has ended.
    ///
    /// # Errors
    /// [`SandboxError::TimedOut`] if the server does not end in time. In that case it keeps running.
    pub async fn stop(&mut self) -> Result<(), SandboxError> {
        if self.paused {
            self.resume()?;
        }
        let Some(child) = &mut self.child else { return Ok(()) };
        let deadline = Instant::now() + Duration::from_secs(STOP_SECONDS_MAX);
        if child.try_wait().on_path("wait for", &self.layout.pid_file)?.is_none() {
            child_process_lifetime::signal(child.id(), Signal::TERM)
                .on_path("signal", &self.layout.pid_file)?;
        }
        let ended = child_process_lifetime::wait_until(child, deadline)
            .await
            .on_path("wait for", &self.layout.pid_file)?;
        if ended.is_none() {
            return Err(self.layout.timed_out(&self.spec.name, "stopped", STOP_SECONDS_MAX));
        }
        self.child = None;
        Ok(())
    }

    /// Kills the server with SIGKILL, even if it is paused, and waits until it has ended, as after a crash.
    ///
    /// # Errors
    /// [`SandboxError::WrongState`] if the server is not running.
    pub async fn kill(&mut self) -> Result<(), SandboxError> {
        if !self.is_running() {
            return Err(self.wrong_state("not running", "kill it"));
        }
        self.kill_if_running().await
    }

    /// Kills the server as [`kill`](Self::kill) does. A server that has already ended by itself, for example
    /// because its disk is full, is not an error.
    ///
    /// # Errors
    /// [`SandboxError`] if the server cannot be signalled or does not end.
    pub async fn kill_if_running(&mut self) -> Result<(), SandboxError> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        self.paused = false;
        child.kill().on_path("kill", &self.layout.pid_file)?;
        // The kernel first frees the process's memory, which takes some time for a large server.
        let deadline = Instant::now() + Duration::from_secs(STOP_SECONDS_MAX);
        let ended = child_process_lifetime::wait_until(&mut child, deadline)
            .await
            .on_path("wait for", &self.layout.pid_file)?;
        match ended {
            Some(_) => Ok(()),
            None => {
                self.child = Some(child);
                Err(self.layout.timed_out(&self.spec.name, "gone", STOP_SECONDS_MAX))
            }
        }
    }

    /// Returns the server options, including those for semi-sync.
    pub fn options(&self) -> &[String] {
        &self.spec.options
    }

    /// Replaces all server options. Takes effect at the next start.
    pub fn set_options(&mut self, options: Vec<String>) {
        self.spec.options = options;
    }

    /// Changes the maximum file size in KiB; `None` removes the limit. Takes effect at the next start.
    pub fn set_file_kib_max(&mut self, kib: Option<u64>) {
        self.spec.file_kib_max = kib;
    }

    /// Stops the server cleanly and starts it again. If `options` are given, they replace those of
    /// [`Self::options`].
    ///
    /// # Errors
    /// The same as for [`Self::stop`] and [`Self::start`].
    pub async fn restart(&mut self, options: Option<Vec<String>>) -> Result<(), SandboxError> {
        self.stop().await?;
        if let Some(options) = options {
            self.set_options(options);
        }
        self.run().await
    }

    /// Freezes the server with SIGSTOP. Its connections stay open and get no answer.
    ///
    /// # Errors
    /// [`SandboxError::WrongState`] if the server is not running.
    pub fn pause(&mut self) -> Result<(), SandboxError> {
        self.signal_running(Signal::STOP, "pause it")?;
        self.paused = true;
        Ok(())
    }

    /// Resumes a paused server with SIGCONT.
    ///
    /// # Errors
    /// [`SandboxError::WrongState`] if the server is not running.
    pub fn resume(&mut self) -> Result<(), SandboxError> {
        self.signal_running(Signal::CONT, "resume it")?;
        self.paused = false;
        Ok(())
    }

    fn signal_running(&mut self, signal: Signal, action: &'static str) -> Result<(), SandboxError> {
        // A child that was not waited for keeps its process id, so the signal cannot reach another process.
        match self.pid().filter(|_| self.is_running()) {
            Some(pid) => child_process_lifetime::signal(pid, signal).on_path("signal", &self.layout.pid_file),
            None => Err(self.wrong_state("not running", action)),
        }
    }

    fn wrong_state(&self, state: &'static str, action: &'static str) -> SandboxError {
        SandboxError::WrongState { name: self.spec.name.clone(), state, action }
    }

    /// Whether the server process exists, paused or not.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Returns the process id; `None` if the server was stopped or killed.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns the CPU time that the process has used so far, user and system time together; `None` if the
    /// server was stopped or killed.
    pub fn cpu_time(&self) -> Option<Duration> {
        child_process_lifetime::cpu_time(self.pid()?)
    }

    /// Returns the kind of the server.
    pub fn kind(&self) -> ServerKind {
        self.spec.kind
    }

    /// Returns the name used in messages.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the version reported at the last start, such as `10.11.18-MariaDB-0+deb12u1-log`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the TCP address.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))
    }

    /// Returns the path of the Unix socket.
    pub fn socket(&self) -> &Path {
        &self.layout.socket
    }

    /// Returns the data directory. It also contains the binlogs.
    pub fn data(&self) -> &Path {
        &self.layout.data
    }

    /// Returns the error log, which begins at the first start.
    pub fn error_log(&self) -> &Path {
        &self.layout.error_log
    }

    /// Returns the installation of this server.
    pub fn install(&self) -> &Install {
        &self.layout.install
    }

    /// Returns a command for one of the server's client programs, without arguments; see [`Install::tool`].
    ///
    /// # Errors
    /// [`SandboxError::NotInstalled`] if there is no such program.
    pub fn tool(&self, name: &str) -> Result<Command, SandboxError> {
        self.layout.install.tool(name)
    }

    /// Runs SQL statements as the superuser with the server's own client program. Returns the rows as text
    /// with columns separated by tabs. Inside values, a tab is `\t`, a line break is `\n` and a backslash is
    /// `\\`; null is `NULL`.
    ///
    /// Each call starts a process, so use it only for setup and checks. The call does not depend on
    /// Tailwater's implementation of the protocol.
    ///
    /// # Errors
    /// [`SandboxError::Client`] with the server's message.
    pub async fn sql(&self, statements: &str) -> Result<Vec<String>, SandboxError> {
        self.sql_client().run(statements).await
    }

    pub(crate) fn sql_client(&self) -> SqlClient<'_> {
        SqlClient { install: &self.layout.install, port: self.port() }
    }

    fn kill_now(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error means that the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill_now();
    }
}

/// Runs blocking file operations outside the runtime's threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> Result<T, SandboxError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
