//! Reports a command to the daemon as a job: registers it, and sends its progress each second. Runs on its
//! own thread, so that the daemon cannot hold up the work.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tailwater_config::{CONTROL_SOCKET, Config, parse_toml};
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::api::jobs::{
    JobAnswer, JobCaller, JobEnd, JobKind, JobProgress, JobRegistration, JobReport, JobRequest, RegisteredJob,
};
use tailwater_daemon::control_socket::{ControlError, send_within, socket_of};
use tailwater_wire::printable;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::arguments::JobDaemon;

/// Interval of the reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A daemon that has sent nothing for this time is treated as hung.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// How long a command that ends waits until the daemon has received the last report.
const END_WAIT_MAX: Duration = Duration::from_millis(500);

/// Configuration file of the package. Commands without a configuration register with its daemon as jobs.
const PACKAGED_CONFIG: &str = "/etc/tailwater/tailwater.toml";

/// Error code with which a daemon answers if it does not know the job.
const UNKNOWN_JOB: &str = "TW-JOB-0001";

/// Maximum number of log lines that wait for the next report. The oldest lines are dropped first.
const LOG_LINES_MAX: usize = 50;

/// The lines that this process has logged and that were not reported yet.
static LOG_LINES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// A writer of log lines for the job of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct JobLogWriter;

impl std::io::Write for JobLogWriter {
    /// Takes a whole line: a layer of `tracing_subscriber` writes each line with one call.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let mut lines = LOG_LINES.lock();
        lines.push_back(String::from_utf8_lossy(line).trim_end().to_owned());
        let dropped = lines.len().saturating_sub(LOG_LINES_MAX);
        lines.drain(..dropped);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The daemon that lists a command.
#[derive(Debug, Clone)]
pub(super) struct JobSocket {
    path: PathBuf,
    /// Whether the user has named the daemon. If so, a missing daemon causes a warning.
    is_named: bool,
}

impl JobSocket {
    /// Returns the control socket of the daemon that lists the command as a job. `None` if no daemon lists
    /// it. `config` is the configuration of the command, if it has one.
    pub(super) fn of(daemon: &JobDaemon, config: Option<&Config>) -> Option<Self> {
        match (daemon, config) {
            (JobDaemon::None, _) => None,
            (JobDaemon::Socket(path), _) => Some(Self { path: path.clone(), is_named: true }),
            (JobDaemon::Auto, Some(config)) => {
                Some(Self { path: socket_of(&config.log.directory), is_named: false })
            }
            (JobDaemon::Auto, None) => {
                let path = packaged_log_directory(Path::new(PACKAGED_CONFIG))?.join(CONTROL_SOCKET);
                // The user did not name a daemon. So no warning is printed if there is no daemon, or if this
                // user may not connect to its socket.
                std::fs::symlink_metadata(&path).ok().map(|_| Self { path, is_named: false })
            }
        }
    }
}

/// Returns the log's folder in a configuration file; `None` if it cannot be read.
fn packaged_log_directory(config: &Path) -> Option<PathBuf> {
    let text = tailwater_files::read_user_file_text(config, 1 << 20).ok()?;
    let document: serde_json::Value = parse_toml(&text).ok()?;
    document["log"]["directory"].as_str().map(PathBuf::from)
}

/// Reports a job until it is dropped.
#[derive(Debug)]
pub(super) struct JobReporter {
    shared: Arc<ReporterShared>,
    end: Option<oneshot::Sender<JobEnd>>,
    ended: Option<oneshot::Receiver<()>>,
}

#[derive(Debug, Default)]
struct ReporterShared {
    progress: Mutex<JobProgress>,
    cancelled_by: Mutex<Option<String>>,
}

impl JobReporter {
    /// Starts to report to the daemon at `socket`, if there is one. `stop` is cancelled when an operator
    /// cancels the job.
    pub(super) fn start(
        socket: Option<JobSocket>,
        (kind, subject): (JobKind, String),
        stop: CancellationToken,
    ) -> Self {
        let shared = Arc::<ReporterShared>::default();
        let Some(socket) = socket else { return Self { shared, end: None, ended: None } };
        let (end, end_receiver) = oneshot::channel();
        let (ended_sender, ended) = oneshot::channel();
        let reported = Arc::clone(&shared);
        let registration = JobRegistration { kind, subject, can_cancel: true };
        let report = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            let mut reports =
                ReportLoop { socket, registration, shared: reported, stop, id: None, has_warned: false };
            runtime.block_on(reports.run(end_receiver));
            let _ = ended_sender.send(());
        };
        match std::thread::Builder::new().name("job-reporter".into()).spawn(report) {
            Ok(_) => Self { shared, end: Some(end), ended: Some(ended) },
            Err(error) => {
                warn!("the daemon does not list this command: {error}");
                Self { shared, end: None, ended: None }
            }
        }
    }

    /// Sets the progress for the next report.
    pub(super) fn set_progress(&self, progress: JobProgress) {
        *self.shared.progress.lock() = progress;
    }

    /// Returns who has cancelled the job over the API.
    pub(super) fn cancelled_by(&self) -> Option<String> {
        self.shared.cancelled_by.lock().clone()
    }

    /// Reports the end of the job, and waits up to [`END_WAIT_MAX`] until the daemon has received the report.
    pub(super) async fn end(mut self, end: JobEnd) {
        let (Some(sender), Some(ended)) = (self.end.take(), self.ended.take()) else { return };
        if sender.send(end).is_ok() {
            // If the daemon does not get the report, it notices by itself that this process has ended.
            let _ = tokio::time::timeout(END_WAIT_MAX, ended).await;
        }
    }
}

/// The thread that reports.
struct ReportLoop {
    socket: JobSocket,
    registration: JobRegistration,
    shared: Arc<ReporterShared>,
    stop: CancellationToken,
    /// The number of the job, once it is registered.
    id: Option<u64>,
    has_warned: bool,
}

impl ReportLoop {
    async fn run(&mut self, mut end: oneshot::Receiver<JobEnd>) {
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                end = &mut end => {
                    // If no end was sent, the command has panicked. The daemon notices that the process has
                    // ended.
                    if let Ok(end) = end {
                        self.report_end(end).await;
                    }
                    return;
                }
                _ = ticks.tick() => self.report().await,
            }
        }
    }

    async fn register(&mut self) -> Option<u64> {
        if self.id.is_none() {
            let registration = self.registration.clone();
            let request = JobRequest::Register { registration, caller: JobCaller::default() };
            if let Some(JobAnswer::Registered(RegisteredJob { id })) = self.send(request).await {
                debug!(job = id, "the daemon lists this command");
                self.id = Some(id);
            }
        }
        self.id
    }

    async fn report(&mut self) {
        let Some(id) = self.register().await else { return };
        let (progress, log) = (self.shared.progress.lock().clone(), take_log());
        let report = Box::new(JobReport { progress, log });
        let answer = self.send(JobRequest::Report { id, report }).await;
        let Some(JobAnswer::Reported(response)) = answer else { return };
        if let Some(cancellation) = response.cancellation
            && !self.stop.is_cancelled()
        {
            let by = printable(&cancellation.by).to_string();
            warn!(job = id, "cancelled by {by}");
            *self.shared.cancelled_by.lock() = Some(by);
            self.stop.cancel();
        }
    }

    async fn report_end(&mut self, mut end: JobEnd) {
        let Some(id) = self.register().await else { return };
        end.log = take_log();
        self.send(JobRequest::End { id, end: Box::new(end) }).await;
    }

    /// Sends a request. Failed requests do not stop the work; only the first one causes a warning.
    async fn send(&mut self, request: JobRequest) -> Option<JobAnswer> {
        let problem = match send_within(&self.socket.path, &ControlCommand::Job(request), SILENCE_MAX).await {
            Ok(ControlAnswer::Job(answer)) => return Some(answer),
            Ok(ControlAnswer::Failed { code, message }) => {
                if code.as_deref() == Some(UNKNOWN_JOB) {
                    // The daemon has lost its list of jobs. The next report registers the job again.
                    self.id = None;
                    return None;
                }
                code.map(|code| format!("{code}: {message}")).unwrap_or(message)
            }
            Ok(_) => "unexpected answer of the daemon, which may run another version of Tailwater".to_owned(),
            Err(error) => {
                let is_absent = matches!(error.downcast_ref(), Some(ControlError::NoDaemon { .. }));
                if is_absent && !self.socket.is_named && self.id.is_none() {
                    debug!("no daemon lists this command: {error:#}");
                    return None;
                }
                match error.downcast_ref::<ControlError>() {
                    Some(known) => format!("{}: {error:#}", known.code()),
                    None => format!("{error:#}"),
                }
            }
        };
        if !self.has_warned {
            self.has_warned = true;
            warn!("the daemon does not list the progress of this command: {}", printable(&problem));
        }
        None
    }
}

fn take_log() -> Vec<String> {
    LOG_LINES.lock().drain(..).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_in_the_log_folder_of_the_configuration() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("tailwater.toml");
        std::fs::write(&path, "[log]\ndirectory = \"/srv/log\"\n[[source]]\nname = \"unfinished\"\n")?;
        assert_eq!(packaged_log_directory(&path), Some(PathBuf::from("/srv/log")));
        std::fs::write(&path, "[log\n")?;
        assert_eq!(packaged_log_directory(&path), None);
        assert_eq!(packaged_log_directory(&folder.path().join("absent")), None);
        Ok(())
    }

    #[test]
    fn the_log_of_a_job_is_bounded() -> std::io::Result<()> {
        for line in 0..LOG_LINES_MAX + 5 {
            std::io::Write::write_all(&mut JobLogWriter, format!("line {line}\n").as_bytes())?;
        }
        let lines = take_log();
        assert_eq!((lines.len(), lines.first().map(String::as_str)), (LOG_LINES_MAX, Some("line 5")));
        Ok(())
    }
}
