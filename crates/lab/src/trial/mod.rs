//! A trial: a real primary, a relay process that captures it, a workload whose clients keep a ledger, and
//! faults. The demo, the benchmarks and the fault tests are built on it.

pub mod managed_cluster;
pub mod primary_failure;
mod proof;

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tailwater_log::AckMode;
use tailwater_sandbox::install::InstallProgress;
use tailwater_sandbox::replication::{REPLICATION_PASSWORD, REPLICATION_USER};
use tailwater_sandbox::{
    Cache, ChildProcess, Install, ReplicaOf, ReservedPort, Server, ServerKind, ServerSpec,
};
use tailwater_session::{ConnectOptions, Endpoint, TlsMode, TlsOptions};
use tailwater_wire::Flavour;

pub use proof::{Proof, compare_with_source, prove};

/// Name of the only source in a trial's configuration, and of its log folder.
pub const SOURCE_NAME: &str = "primary";

/// Durability settings of a primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialDurability {
    /// `sync_binlog=1`, `innodb_flush_log_at_trx_commit=1`.
    Full,
    /// `sync_binlog=0`, `innodb_flush_log_at_trx_commit=0`: a crash of the process loses up to a second of
    /// commits, a crash of the machine more.
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

/// Specification of a trial.
#[derive(Debug, Clone)]
pub struct TrialSpec {
    /// The primary.
    pub kind: ServerKind,
    /// Its durability settings.
    pub durability: TrialDurability,
    /// Additional server options.
    pub options: Vec<String>,
    /// When the relay acknowledges.
    pub ack: AckMode,
    /// The `tailwater` program.
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
    /// Additional configuration.
    channels: String,
    /// Variables added to the relay's environment.
    environment: Vec<(OsString, OsString)>,
    served: ReservedPort,
    relay: Option<ChildProcess>,
    /// Whether the primary is asynchronous: its commits wait for no acknowledgement.
    asynchronous: bool,
}

/// Options of a primary with row events, GTIDs and full table map metadata.
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
        let server = ServerSpec::new(spec.kind)
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

    /// Sets the address of the primary in the relay's configuration, such as that of a faulty link. Takes
    /// effect at the relay's next start.
    ///
    /// # Errors
    /// If its configuration cannot be written.
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
        let _ = writeln!(text, "server_id = 4201\nwatch_ms = 500");
        if self.asynchronous {
            text += "semi_sync = false\n";
        }
        text += &serve_config(self.serve_port());
        text += &self.channels;
        std::fs::write(&self.config, text).with_context(|| format!("write {}", self.config.display()))
    }

    /// Adds a `[[channel]]`. Takes effect at the relay's next start.
    ///
    /// # Errors
    /// If its configuration cannot be written.
    pub fn add_channel(&mut self, config: &str) -> anyhow::Result<()> {
        self.channels += config;
        self.write_config(&self.primary.address().ip().to_string(), self.primary.port())
    }

    /// Changes when the relay acknowledges. Takes effect at its next start.
    ///
    /// # Errors
    /// If its configuration cannot be written.
    pub fn set_ack(&mut self, ack: AckMode) -> anyhow::Result<()> {
        self.spec.ack = ack;
        self.write_config(&self.primary.address().ip().to_string(), self.primary.port())
    }

    /// Sets the `tailwater` program, such as another build. Takes effect at the relay's next start.
    pub fn set_program(&mut self, program: &Path) {
        program.clone_into(&mut self.spec.program);
    }

    /// Makes the primary asynchronous, and the relay use its default log durability for that. Takes effect at
    /// its next start.
    ///
    /// # Errors
    /// If its configuration cannot be written, or the primary refuses.
    pub async fn set_asynchronous(&mut self) -> anyhow::Result<()> {
        let variable = match self.spec.kind.flavour() {
            Flavour::MySql => "rpl_semi_sync_source_enabled",
            Flavour::MariaDb => "rpl_semi_sync_master_enabled",
        };
        self.primary.sql(&format!("SET GLOBAL {variable} = OFF")).await?;
        self.asynchronous = true;
        self.write_config(&self.primary.address().ip().to_string(), self.primary.port())
    }

    /// Adds environment variables of the relay, such as those of a [`tailwater_sandbox::SteppedClock`]. Takes
    /// effect at its next start.
    pub fn add_environment(&mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) {
        self.environment.extend(variables);
    }

    /// The log folder of the primary.
    pub fn log_directory(&self) -> PathBuf {
        self.spec.folder.join("log").join(SOURCE_NAME)
    }

    /// The port where the relay serves the log to the sandbox's replication account.
    pub fn serve_port(&self) -> u16 {
        self.served.number()
    }

    /// How a reader of the log connects to the relay.
    pub fn serve_options(&self) -> ConnectOptions {
        serve_options(self.serve_port())
    }

    /// A native replica of the relay, by GTIDs.
    pub fn replica_of_relay(&self) -> ReplicaOf {
        ReplicaOf::port(self.serve_port())
    }

    /// The relay's output file.
    pub fn relay_output(&self) -> PathBuf {
        self.spec.folder.join("relay.log")
    }

    /// The relay, while it runs.
    pub fn relay(&mut self) -> Option<&mut ChildProcess> {
        self.relay.as_mut()
    }

    /// Starts the relay process; see [`Trial::wait_captured`].
    ///
    /// # Errors
    /// If it cannot be started.
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
    /// If it does not run.
    pub async fn kill_relay(&mut self) -> anyhow::Result<()> {
        self.relay.take().context("the relay does not run")?.kill().await?;
        Ok(())
    }

    /// Stops the relay cleanly.
    ///
    /// # Errors
    /// If it does not run, or ends with an error; the message has the end of its output.
    pub async fn stop_relay(&mut self) -> anyhow::Result<()> {
        let relay = self.relay.take().context("the relay does not run")?;
        let status = relay.terminate(Duration::from_secs(30)).await?;
        if !status.success() {
            bail!("the relay ended with {status}: {}", self.relay_log_tail());
        }
        Ok(())
    }

    /// The last lines of the relay's output.
    pub fn relay_log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.relay_output()).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Waits until the primary's commits wait for the relay, and returns how long that took.
    ///
    /// # Errors
    /// If the relay ends, or commits do not wait for it within a minute.
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
                bail!("the primary's commits do not wait for the relay: {}", self.relay_log_tail());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts the killed primary again without semi-sync, to read what its own disk kept.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn restart_primary_alone(&mut self) -> anyhow::Result<()> {
        let mut options = primary_options(self.spec.kind);
        options.extend(self.spec.durability.options());
        options.extend(self.spec.options.clone());
        self.primary.restart(Some(options)).await?;
        Ok(())
    }
}

/// The configuration with which a relay serves the log at a port of loopback.
pub fn serve_config(port: u16) -> String {
    format!(
        "\n[[serve]]\nsource = \"{SOURCE_NAME}\"\nlisten = \"127.0.0.1:{port}\"\n[[serve.user]]\nname = \
         \"{REPLICATION_USER}\"\npassword = \"{REPLICATION_PASSWORD}\"\nadmin = true\n"
    )
}

/// Connection options for such a relay.
pub fn serve_options(port: u16) -> ConnectOptions {
    let tls = TlsOptions { mode: TlsMode::Off, ..TlsOptions::default() };
    ConnectOptions::new(Endpoint::tcp("127.0.0.1", port), REPLICATION_USER)
        .password(REPLICATION_PASSWORD)
        .tls(tls)
}

/// The installed server of a kind, downloaded if it is missing; progress goes to standard error.
///
/// # Errors
/// If it is unavailable.
pub fn ensure_installed(kind: ServerKind) -> anyhow::Result<Install> {
    let cache = Cache::locate()?;
    let mut tell = |progress: InstallProgress| {
        // Byte counts arrive ten times a second and are left out; the start and the end of a download are
        // printed.
        if !matches!(progress, InstallProgress::Downloaded { .. }) {
            eprintln!("{progress}");
        }
    };
    Ok(Install::ensure(kind, &cache, &mut tell)?)
}

/// A folder for a trial's files: the given one, or a temporary one that is removed when this value is
/// dropped.
#[derive(Debug)]
pub struct TrialFolder {
    path: PathBuf,
    temporary: bool,
}

impl TrialFolder {
    /// `keep`, or a fresh temporary folder.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(keep: Option<&Path>) -> anyhow::Result<Self> {
        let (path, temporary) = match keep {
            Some(path) => (path.to_owned(), false),
            None => {
                let run = Cache::locate()?.run();
                let name = format!("trial-{}-{:08x}", std::process::id(), rand::random::<u32>());
                (run.join(name), true)
            }
        };
        std::fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self { path: path.canonicalize()?, temporary })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TrialFolder {
    fn drop(&mut self) {
        if self.temporary {
            // A folder that cannot be removed is a leftover, not a failure of the trial.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
