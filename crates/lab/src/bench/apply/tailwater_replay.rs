//! Replay of a backlog by Tailwater. The daemon has default settings, and its log has the whole backlog.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, ensure};
use tailwater_apply::channel::ChannelState;
use tailwater_sandbox::{ChildProcess, SlowSync};

use super::delay_under_steady_load::SourceAckMode;
use super::replication_variant::ReplayOrder;
use super::source_backlog::{Backlog, copy_folder, wait_until};
use super::target_server::ReplayTarget;
use crate::bench::existing_binlog_capture::durable_bytes;
use crate::fault_trial::SOURCE_NAME;
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::control_socket;

const CHANNEL_NAME: &str = "replica";
/// Number of connections to the target.
const WORKERS: u32 = 4;
/// Time limit for capturing a backlog.
const PATIENCE: Duration = Duration::from_secs(300);

/// A log that has the whole backlog.
#[derive(Debug)]
pub struct CapturedLog {
    folder: PathBuf,
}

/// A daemon whose channel applies the log to the target.
#[derive(Debug)]
pub struct ApplyDaemon {
    /// The daemon's process.
    pub process: ChildProcess,
    folder: PathBuf,
}

impl CapturedLog {
    /// Captures the backlog of a source.
    ///
    /// # Errors
    /// If the daemon fails.
    pub async fn capture(backlog: &Backlog, folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.join("captured");
        std::fs::create_dir(&folder)?;
        let mut daemon = ApplyDaemon::start(
            &folder,
            &source_config(backlog, SourceAckMode::None, LogDurability::Default),
            None,
        )?;
        let logs = backlog.source.sql("SHOW BINARY LOGS").await?;
        let size = |line: &String| line.split('\t').nth(1).and_then(|size| size.parse::<u64>().ok());
        let bytes: u64 = logs.iter().filter_map(size).sum();
        let log = folder.join("log").join(SOURCE_NAME);
        wait_until("capturing the backlog", PATIENCE, async || {
            daemon.ensure_running()?;
            Ok(durable_bytes(&log) >= bytes)
        })
        .await?;
        daemon.end().await?;
        Ok(Self { folder })
    }

    /// Copies the log for one replay. The copy has no progress of an earlier replay.
    ///
    /// # Errors
    /// If the copy fails.
    pub fn copy(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let copy = folder.join(format!("apply-{:08x}", rand::random::<u32>()));
        copy_folder(&self.folder, &copy)?;
        Ok(copy)
    }
}

/// How durable the log must be before Tailwater acknowledges a commit or a channel applies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDurability {
    /// The default: durable if the source waits for ACKs, otherwise as durable as the relay log of native
    /// replication.
    Default,
    /// Durable after an fdatasync.
    Durable,
    /// As durable as the relay log of native replication.
    Received,
}

/// Starts a daemon in a folder. The daemon captures what the source commits, acknowledges it if the source
/// waits for ACKs, and applies everything to the target.
///
/// # Errors
/// If the daemon cannot be started.
pub fn follow(
    backlog: &Backlog,
    target: &ReplayTarget,
    order: ReplayOrder,
    promise: SourceAckMode,
    held: LogDurability,
    folder: &Path,
) -> anyhow::Result<ApplyDaemon> {
    let config = source_config(backlog, promise, held) + &channel_config(target, order);
    ApplyDaemon::start(folder, &config, None)
}

/// Starts a daemon in a folder that has a log. The daemon applies nothing before [`ApplyDaemon::begin`]. So
/// the measurement is comparable with native replication: the replica is also running, and has received
/// everything, before it starts to apply.
///
/// # Errors
/// If the daemon cannot be started, or ends.
pub async fn start_ready(
    backlog: &Backlog,
    target: &ReplayTarget,
    order: ReplayOrder,
    slow: Option<&SlowSync>,
    folder: &Path,
) -> anyhow::Result<ApplyDaemon> {
    let channel = channel_config(target, order) + "stopped = true\n";
    let mut daemon = ApplyDaemon::start(
        folder,
        &(source_config(backlog, SourceAckMode::None, LogDurability::Default) + &channel),
        slow,
    )?;
    wait_until("starting the daemon", PATIENCE, async || {
        daemon.ensure_running()?;
        let answer = control_socket::ask(&daemon.socket(), &ControlCommand::List);
        Ok(matches!(answer, Ok(ControlAnswer::Channels(channels)) if channels.iter().all(|it| it.state == ChannelState::Stopped)))
    })
    .await?;
    Ok(daemon)
}

fn source_config(backlog: &Backlog, promise: SourceAckMode, held: LogDurability) -> String {
    let ack = match held {
        LogDurability::Default => "",
        LogDurability::Durable => "ack = \"durable\"\n",
        LogDurability::Received => "ack = \"received\"\n",
    };
    format!(
        "[log]\ndirectory = \"log\"\n{ack}\n[[source]]\nname = \"{SOURCE_NAME}\"\nhost = \"127.0.0.1\"\nport = {}\n\
         defaults_file = \"source.cnf\"\ntls = \"off\"\nserver_id = 4203\nsemi_sync = {}\nstart = \"oldest\"\n",
        backlog.source.port(),
        promise == SourceAckMode::Lossless
    )
}

fn channel_config(target: &ReplayTarget, order: ReplayOrder) -> String {
    format!(
        "\n[[channel]]\nname = \"{CHANNEL_NAME}\"\nsource = \"{SOURCE_NAME}\"\nsocket = \"{}\"\ndefaults_file = \"target.cnf\"\n\
         workers = {WORKERS}\ncommit_order = \"{}\"\ngtid = \"log\"\n",
        target.server.socket().display(),
        order.name()
    )
}

impl ApplyDaemon {
    fn start(folder: &Path, config: &str, slow: Option<&SlowSync>) -> anyhow::Result<Self> {
        use tailwater_sandbox::replication_setup::{REPLICATION_PASSWORD, REPLICATION_USER};
        std::fs::write(
            folder.join("source.cnf"),
            format!("[client]\nuser={REPLICATION_USER}\npassword={REPLICATION_PASSWORD}\n"),
        )?;
        std::fs::write(folder.join("target.cnf"), "[client]\nuser=root\n")?;
        let path = folder.join("tailwater.toml");
        std::fs::write(&path, config)?;
        let arguments = ["run".as_ref(), "-c".as_ref(), path.as_os_str()];
        let environment = slow.map(SlowSync::environment);
        let output = folder.join("daemon.log");
        let process = ChildProcess::start_with(std::env::current_exe()?, arguments, environment, &output)?;
        Ok(Self { process, folder: folder.to_owned() })
    }

    fn socket(&self) -> PathBuf {
        control_socket::socket_of(&self.folder.join("log"))
    }

    /// Starts the channel.
    ///
    /// # Errors
    /// If the daemon refuses the command.
    pub fn begin(&self) -> anyhow::Result<()> {
        let channel = CHANNEL_NAME.to_owned();
        let start = ControlCommand::Start { channel, until_gtid: None, until_time_us: None };
        match control_socket::ask(&self.socket(), &start)? {
            ControlAnswer::Failed { message, .. } => bail!("the channel did not start: {message}"),
            _ => Ok(()),
        }
    }

    /// Fails if the daemon has ended, or if its channel has stopped with an error. In the second case the
    /// daemon itself continues.
    ///
    /// # Errors
    /// If the daemon has ended or reports an error. The error has the last lines of the daemon's output.
    pub fn ensure_running(&mut self) -> anyhow::Result<()> {
        let running = self.process.is_running();
        let words = output_tail(&self.folder);
        ensure!(running, "the daemon has ended: {words}");
        ensure!(!words.contains("\"level\":\"ERROR\""), "the daemon reports an error: {words}");
        Ok(())
    }

    /// Stops the daemon cleanly.
    ///
    /// # Errors
    /// If the daemon ends with an error. The error has the last lines of the daemon's output.
    pub async fn end(self) -> anyhow::Result<()> {
        let Self { process, folder } = self;
        let status = process.terminate(Duration::from_secs(30)).await?;
        ensure!(status.success(), "the daemon ended with {status}: {}", output_tail(&folder));
        Ok(())
    }
}

/// Returns the last lines of a daemon's output.
fn output_tail(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join("daemon.log")).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
