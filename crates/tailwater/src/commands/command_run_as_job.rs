//! Long work of a command: shows its progress, ends it at a signal, and reports it to the daemon as a job.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tailwater_daemon::api::jobs::{JobEnd, JobKind, JobOutcome, JobProgress};
use tailwater_daemon::jobs::job_results::JobResult;
use tailwater_daemon::jobs::progress_of;
use tailwater_tables::BulkError;
use tailwater_tables::progress_counters::BulkProgress;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::job_report_to_daemon::{JobReporter, JobSocket};
use super::progress_display::{JsonOutput, ProgressDisplay};
use super::progress_text::ProgressLine;
use crate::arguments::Output;

/// Time between two updates of the progress.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// Long work of a command.
#[derive(Debug)]
pub(super) struct JobRun {
    /// What the command does, as text: `dumping`.
    doing: &'static str,
    output: Output,
    json_output: JsonOutput,
    /// The counters of the work.
    pub(super) progress: Arc<BulkProgress>,
    /// Cancelled by SIGTERM, SIGINT, and by an operator who cancels the job.
    pub(super) stop: CancellationToken,
    reporter: Mutex<Option<JobReporter>>,
}

/// An error that ends a job.
pub(super) trait JobFailure {
    /// Returns the stable code, and the text without row values.
    fn code_and_text(&self) -> (Option<&'static str>, String);
}

impl JobFailure for BulkError {
    fn code_and_text(&self) -> (Option<&'static str>, String) {
        (Some(self.code()), self.to_string())
    }
}

impl JobFailure for anyhow::Error {
    fn code_and_text(&self) -> (Option<&'static str>, String) {
        (super::code_of_error(self), tailwater_daemon::error_chain::ErrorChain(self).to_string())
    }
}

impl JobRun {
    /// Starts the work. `subject` names what the work is about, without secrets.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub(super) fn start(
        (doing, kind, subject): (&'static str, JobKind, String),
        socket: Option<JobSocket>,
        output: Output,
    ) -> io::Result<Self> {
        let stop = stop_on_signal()?;
        let reporter = JobReporter::start(socket, (kind, subject), stop.clone());
        Ok(Self {
            doing,
            output,
            json_output: JsonOutput::Stdout,
            progress: Arc::default(),
            stop,
            reporter: Mutex::new(Some(reporter)),
        })
    }

    /// Writes JSON lines of the progress to standard error, because the results are on standard output.
    pub(super) fn with_json_to_stderr(self) -> Self {
        Self { json_output: JsonOutput::Stderr, ..self }
    }

    /// Runs `work` and shows its progress. `result` tells what the finished work has done.
    ///
    /// # Errors
    /// Errors of the work, or if the output cannot be written.
    pub(super) async fn show<T, E: JobFailure>(
        &self,
        work: impl Future<Output = Result<T, E>>,
        result: impl FnOnce(&T) -> JobResult,
    ) -> anyhow::Result<Result<T, E>> {
        let mut display = ProgressDisplay::new(self.doing, self.output, self.json_output)?;
        let mut line = ProgressLine::default();
        let update = |elapsed: Option<Duration>| {
            if let Some(elapsed) = elapsed {
                line = display.update(&self.progress, elapsed)?;
            }
            Ok(job_progress(self.doing, &line, &self.progress))
        };
        let done = self.watch(work, update, result).await?;
        display.finish();
        Ok(done)
    }

    /// Runs `work`, and reports the progress that `update` returns. `update` gets the time since the start of
    /// the work. After the end of the work, `update` gets `None` and must show nothing more. `result`
    /// returns what the finished work has done.
    ///
    /// # Errors
    /// Errors of the work, or of `update`.
    pub(super) async fn watch<T, E: JobFailure>(
        &self,
        work: impl Future<Output = Result<T, E>>,
        mut update: impl FnMut(Option<Duration>) -> anyhow::Result<JobProgress>,
        result: impl FnOnce(&T) -> JobResult,
    ) -> anyhow::Result<Result<T, E>> {
        let started = Instant::now();
        let mut ticks = tokio::time::interval(UPDATE_INTERVAL);
        let mut work = std::pin::pin!(work);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                _ = ticks.tick() => {}
            }
            let progress = update(Some(started.elapsed()))?;
            if let Some(reporter) = self.reporter.lock().as_ref() {
                reporter.set_progress(progress);
            }
        };
        let reporter = self.reporter.lock().take();
        if let Some(reporter) = reporter {
            let progress = update(None)?;
            let end =
                JobEnd { progress: Some(progress), ..self.end_of(&done, reporter.cancelled_by(), result) };
            reporter.end(end).await;
        }
        Ok(done)
    }

    fn end_of<T, E: JobFailure>(
        &self,
        done: &Result<T, E>,
        cancelled_by: Option<String>,
        result: impl FnOnce(&T) -> JobResult,
    ) -> JobEnd {
        let end = |outcome, code: Option<&str>, message| JobEnd {
            outcome,
            code: code.map(str::to_owned),
            message,
            found: None,
            progress: None,
            log: Vec::new(),
        };
        match done {
            Ok(done) => {
                let JobResult { message, found } = result(done);
                JobEnd { found, ..end(JobOutcome::Finished, None, Some(message)) }
            }
            Err(error) => match (error.code_and_text(), cancelled_by) {
                ((_, text), Some(by)) => {
                    end(JobOutcome::Cancelled, None, Some(format!("cancelled by {by}: {text}")))
                }
                ((_, text), None) if self.stop.is_cancelled() => {
                    end(JobOutcome::Cancelled, None, Some(format!("ended by a signal: {text}")))
                }
                ((code, text), None) => end(JobOutcome::Failed, code, Some(text)),
            },
        }
    }
}

/// Returns a token that SIGTERM and SIGINT cancel.
///
/// # Errors
/// If the signal handlers cannot be installed.
fn stop_on_signal() -> io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopping.cancel();
    });
    Ok(stop)
}

/// Returns the progress as the daemon lists it.
fn job_progress(doing: &str, line: &ProgressLine, progress: &BulkProgress) -> JobProgress {
    let figures = progress.figures();
    let is_preparing = line.bar.is_none() && figures.rows == 0 && figures.bytes == 0;
    let milliseconds = |left: Duration| u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    JobProgress {
        rows_per_second: line.rows_per_second,
        bytes_per_second: line.bytes_per_second,
        eta_ms: line.left.map(milliseconds),
        ..progress_of(if is_preparing { "preparing" } else { doing }, progress)
    }
}
