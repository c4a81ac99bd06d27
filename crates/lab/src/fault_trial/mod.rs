//! A trial: a real primary, a relay process that captures its binlog, a workload whose clients record each
//! acknowledged commit in a ledger, and faults. The demo, the benchmarks and the fault tests use it.

mod lost_commit_check;
pub mod managed_cluster;
pub mod primary_failure;

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tailwater_log::AckMode;
use tailwater_sandbox::install::InstallProgress;
use tailwater_sandbox::replication_setup::{REPLICATION_PASSWORD, REPLICATION_USER};
use tailwater_sandbox::{
    Cache, ChildProcess, Install, ReplicaOf, ReservedPort, Server, ServerKind, ServerSpec,
};
use tailwater_session::{ConnectOptions, Endpoint, TlsMode, TlsOptions};
use tailwater_wire::Flavour;

pub use lost_commit_check::{Proof, compare_with_source, prove};

/// The name of the only source in a trial's configuration, and of its folder in the log.
pub const SOURCE_NAME: &str = "primary";

/// Durability settings of a primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialDurability {
    /// `sync_binlog=1` and `innodb_flush_log_at_trx_commit=1`.
    Full,
    /// `sync_binlog=0` and `innodb_flush_log_at_trx_commit=0`: a crash of the process loses up to a second of
    /// commits, and a crash of the machine loses more.
    Reduced,
}

impl TrialDurability {
    fn options(self) -> [String; 2] {
        let value = match self {
            Self::Full => 1,
            Self::Reduced => 0,
        };
        [format!("--sync-binlog={value}"), format!("--innodb-flush-log-at-trx-commit={value}")]
    }
}

/// The settings of a trial.
#[derive(Debug, Clone)]
pub struct TrialSpec {
    /// The kind and version of the primary.
    pub kind: ServerKind,
    /// The durability settings of the primary.
    pub durability: TrialDurability,
    /// Additional options of the primary.
    pub options: Vec<String>,
    /// When the relay acknowledges commits.
    pub ack: AckMode,
    /// The path of the `tailwater` program.
    pub program: PathBuf,
    /// An existing folder for the relay's files.
    pub folder: PathBuf,
}

/// A primary and its relay.
#[derive(Debug)]
pub struct Trial {
    /// The primary.
    pub primary: Server,
    spec: TrialSpec,
    config: PathBuf,
    /// Additional sections of the configuration.
    channels: String,
    /// Variables added to the relay's environment.
    environment: Vec<(OsString, OsString)>,
    served: ReservedPort,
    relay: Option<ChildProcess>,
    /// Whether the primary is asynchronous: its commits do not wait for an ACK.
    asynchronous: bool,
}

/// Returns the options of a primary with row events, GTIDs and full table map metadata.
pub fn primary_options(kind: ServerKind) -> Vec<String> {
    let mut options =
        vec!["--log-bin=binlog".to_owned(), "--server-id=1".into(), "--binlog-format=ROW".into()];
    if kind.flavour() == Flavour::MySql {
        options.extend(["--gtid-mode=ON".into(), "--enforce-gtid-consistency=ON".into()]);
    }
    options
}

impl Trial {
    /// Starts the primary with lossless semi-sync, and writes the relay's configuration. No commit completes
    /// before [`Trial::start_relay`].
    ///
    /// # Errors
    /// If the server cannot be started or prepared.
    pub async fn start(spec: TrialSpec) -> anyhow::Result<Self> {
        let server = ServerSpec::new(spec.kind);
        Self::start_with(spec, server).await
    }

    /// Does the same as [`Trial::start`], with a new data directory of the primary at the path `data`, for
    /// example on a disk with faults.
    ///
    /// # Errors
    /// The same as for [`Trial::start`].
    pub async fn start_with_data(spec: TrialSpec, data: &Path) -> anyhow::Result<Self> {
        let server = ServerSpec::new(spec.kind).new_data(data);
        Self::start_with(spec, server).await
    }

    async fn start_with(spec: TrialSpec, server: ServerSpec) -> anyhow::Result<Self> {
        let server = server
            .name("primary")
            .options(primary_options(spec.kind))
            .options(spec.durability.options())
            .options(spec.options.clone())
            .semi_sync_source();
        let primary = Server::start(server).await?;
        primary.create_replication_user().await?;
        let config = spec.folder.join("tailwater.toml");
        let trial = Self {
            primary,
            spec,
            config,
            channels: String::new(),
            environment: Vec::new(),
            served: ReservedPort::pick()?,
            relay: None,
            asynchronous: false,
        };
        trial.write_config(&trial.primary.address().ip().to_string(), trial.primary.port())?;
        Ok(trial)
    }

    /// Sets the address of the primary in the relay's configuration, for example the address of a faulty
    /// link. Takes effect at the relay's next start.
    ///
    /// # Errors
    /// If the configuration cannot be written.
    pub fn write_config(&self, host: &str, port: u16) -> anyhow::Result<()> {
        let account = self.primary.replication_options();
        let credentials = self.spec.folder.join("client.cnf");
        std::fs::write(
            &credentials,
            format!("[client]\nuser={}\npassword={}\n", account.user, account.password.expose()),
        )?;
        let ack = match self.spec.ack {
            _ if self.asynchronous => "",
            AckMode::Durable => "ack = \"durable\"\n",
            AckMode::Received => "ack = \"received\"\n",
        };
        let mut text = format!("[log]\ndirectory = \"log\"\n{ack}\n[[source]]\nname = \"{SOURCE_NAME}\"\n");
        let _ =
            writeln!(text, "host = \"{host}\"\nport = {port}\ndefaults_file = \"client.cnf\"\ntls = \"off\"");
        let _ = writeln!(text, "server_id = 4201\nsemi_sync_check_ms = 500");
        if self.asynchronous {
            text += "semi_sync = false\n";
        }
        text += &serve_config(self.serve_port());
        text += &self.channels;
        std::fs::write(&self.config, text).with_context(|| format!("cannot write {}", self.config.display()))
    }

    /// Adds a `[[channel]]` section. Takes effect at the relay's next start.
    ///
    /// # Errors
    /// If the configuration cannot be written.
    pub fn add_channel(&mut self, config: &str) -> anyhow::Result<()> {
        self.channels += config;
        self.write_config(&self.primary.address().ip().to_string(), self.primary.port())
    }

    /// Changes when the relay acknowledges commits. Takes effect at the relay's next start.
    ///
    /// # Errors
    /// If the configuration cannot be written.
    pub fn set_ack(&mut self, ack: AckMode) -> anyhow::Result<()> {
        self.spec.ack = ack;
        self.write_config(&self.primary.address().ip().to_string(), self.primary.port())
    }

    /// Sets the `tailwater` program, for example another build. Takes effect at the relay's next start.
    pub fn set_program(&mut self, program: &Path) {
        program.clone_into(&mut self.spec.program);
    }

    /// Turns semi-sync off on the primary, and lets the relay use its default log durability for an
    /// asynchronous source. Takes effect at the relay's next start.
    ///
    /// # Errors
    /// If the configuration cannot be written, or the primary refuses a statement.
    pub async fn set_asynchronous(&mut self) -> anyhow::Result<()> {
        let variable = match self.spec.kind.flavour() {
            Flavour::MySql => "rpl_semi_sync_source_enabled",
            Flavour::MariaDb => "rpl_semi_sync_master_enabled",
        };
        self.primary.sql(&format!("SET GLOBAL {variable} = OFF")).await?;
        self.asynchronous = true;
        self.write_config(&self.primary.address().ip().to_string(), self.primary.port())
    }

    /// Adds variables to the relay's environment, such as those of a [`tailwater_sandbox::SteppedClock`].
    /// Takes effect at the relay's next start.
    pub fn add_environment(&mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) {
        self.environment.extend(variables);
    }

    /// Returns the log folder of the primary.
    pub fn log_directory(&self) -> PathBuf {
        self.spec.folder.join("log").join(SOURCE_NAME)
    }

    /// Returns the port at which the relay serves the log to the sandbox's replication account.
    pub fn serve_port(&self) -> u16 {
        self.served.number()
    }

    /// Returns the options with which a reader of the log connects to the relay.
    pub fn serve_options(&self) -> ConnectOptions {
        serve_options(self.serve_port())
    }

    /// Returns the settings of a native replica that reads from the relay by GTIDs.
    pub fn replica_of_relay(&self) -> ReplicaOf {
        ReplicaOf::port(self.serve_port())
    }

    /// Returns the path of the relay's output file.
    pub fn relay_output(&self) -> PathBuf {
        self.spec.folder.join("relay.log")
    }

    /// Returns the relay's process while it is running.
    pub fn relay(&mut self) -> Option<&mut ChildProcess> {
        self.relay.as_mut()
    }

    /// Starts the relay process. [`Trial::wait_captured`] waits until the relay captures.
    ///
    /// # Errors
    /// If the relay cannot be started.
    pub fn start_relay(&mut self) -> anyhow::Result<()> {
        let arguments = ["run".as_ref(), "-c".as_ref(), self.config.as_os_str()];
        let environment = self.environment.iter().cloned();
        let output = self.relay_output();
        self.relay = Some(ChildProcess::start_with(&self.spec.program, arguments, environment, &output)?);
        Ok(())
    }

    /// Kills the relay (SIGKILL).
    ///
    /// # Errors
    /// If the relay is not running.
    pub async fn kill_relay(&mut self) -> anyhow::Result<()> {
        self.relay.take().context("the relay is not running")?.kill().await?;
        Ok(())
    }

    /// Stops the relay cleanly.
    ///
    /// # Errors
    /// If the relay is not running, or ends with an error; the message has the end of its output.
    pub async fn stop_relay(&mut self) -> anyhow::Result<()> {
        let relay = self.relay.take().context("the relay is not running")?;
        let status = relay.terminate(Duration::from_secs(30)).await?;
        if !status.success() {
            bail!("the relay ended with {status}: {}", self.relay_log_tail());
        }
        Ok(())
    }

    /// Returns the last lines of the relay's output.
    pub fn relay_log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.relay_output()).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Waits until commits on the primary wait for the relay's ACK, and returns how long that took.
    ///
    /// # Errors
    /// If the relay ends, or commits do not wait for the relay within a minute.
    pub async fn wait_captured(&mut self) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        loop {
            let status = self.primary.semi_sync_status().await?;
            if status.on && status.replicas > 0 {
                return Ok(begin.elapsed());
            }
            if !self.relay.as_mut().is_some_and(ChildProcess::is_running) {
                bail!("the relay ended: {}", self.relay_log_tail());
            }
            if begin.elapsed() > Duration::from_secs(60) {
                bail!("commits on the primary do not wait for the relay: {}", self.relay_log_tail());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts the killed primary again without semi-sync, to read which commits its own disk has kept.
    ///
    /// # Errors
    /// If the primary does not start.
    pub async fn restart_primary_alone(&mut self) -> anyhow::Result<()> {
        let mut options = primary_options(self.spec.kind);
        options.extend(self.spec.durability.options());
        options.extend(self.spec.options.clone());
        self.primary.restart(Some(options)).await?;
        Ok(())
    }
}

/// Returns the configuration with which a relay serves the log at a port of loopback.
pub fn serve_config(port: u16) -> String {
    format!(
        "\n[[serve]]\nsource = \"{SOURCE_NAME}\"\nlisten = \"127.0.0.1:{port}\"\n[[serve.user]]\nname = \
         \"{REPLICATION_USER}\"\npassword = \"{REPLICATION_PASSWORD}\"\nadmin = true\n"
    )
}

/// Returns the options to connect to a relay that serves the log at this port.
pub fn serve_options(port: u16) -> ConnectOptions {
    let tls = TlsOptions { mode: TlsMode::Off, ..TlsOptions::default() };
    ConnectOptions::new(Endpoint::tcp("127.0.0.1", port), REPLICATION_USER)
        .password(REPLICATION_PASSWORD)
        .tls(tls)
}

/// Returns the installed server of a kind. Downloads the server if it is missing, and prints the progress on
/// standard error.
///
/// # Errors
/// If the server is not available.
pub fn ensure_installed(kind: ServerKind) -> anyhow::Result<Install> {
    let cache = Cache::locate()?;
    let mut tell = |progress: InstallProgress| {
        // Byte counts arrive ten times a second and are not printed. Only the start and the end of a download
        // are printed.
        if !matches!(progress, InstallProgress::Downloaded { .. }) {
            eprintln!("{progress}");
        }
    };
    Ok(Install::ensure(kind, &cache, &mut tell)?)
}

/// A folder for the files of a trial: the given folder, or a temporary folder that is removed when this value
/// is dropped.
#[derive(Debug)]
pub struct TrialFolder {
    path: PathBuf,
    temporary: bool,
}

impl TrialFolder {
    /// Uses the folder `keep`, or creates a temporary folder if `keep` is `None`.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn new(keep: Option<&Path>) -> anyhow::Result<Self> {
        let (path, temporary) = match keep {
            Some(path) => (path.to_owned(), false),
            None => {
                let run = Cache::locate()?.run();
                let name = format!("trial-{}-{:08x}", std::process::id(), rand::random::<u32>());
                (run.join(name), true)
            }
        };
        std::fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { path: path.canonicalize()?, temporary })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TrialFolder {
    fn drop(&mut self) {
        if self.temporary {
            // An error is ignored: a folder that cannot be removed is not a failure of the trial.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
