//! The list of jobs, and its rules. Has no side effects and reads no clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::jobs::{
    Job, JobCancellation, JobDetails, JobEnd, JobKind, JobLogLine, JobOrigin, JobOutcome, JobProcess,
    JobProgress, JobReport, JobReportResponse, JobState,
};

/// The greatest number of running jobs.
pub(super) const RUNNING_MAX: usize = 256;

/// The greatest number of ended jobs that are kept.
pub(super) const ENDED_MAX: usize = 100;

/// The greatest number of lines of a job's log that are kept.
pub(super) const LOG_LINES_MAX: usize = 50;

/// Maximum length of a text, in bytes. Longer texts are cut.
const TEXT_BYTES_MAX: usize = 1000;

/// A job is lost if it has been silent for this time, and its process is gone.
const SILENT_WITHOUT_PROCESS: Duration = Duration::from_secs(10);

/// A job is lost if it has been silent for this time, also if its process exists or is not known.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// Why a request about a job is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JobError {
    /// The job is not in the list.
    #[error("there is no job {id}, or it ended long ago: `tailwater job list` lists the jobs")]
    Unknown {
        /// The number in the request.
        id: u64,
    },
    /// The job has ended.
    #[error("job {id} has already ended: it is {}", state.name())]
    Ended {
        /// The number of the job.
        id: u64,
        /// How the job ended.
        state: JobState,
    },
    /// The job cannot be cancelled.
    #[error("job {id} cannot be cancelled: a {} has no point at which it can stop safely", kind.name())]
    NotCancellable {
        /// The number of the job.
        id: u64,
        /// The kind of the job.
        kind: JobKind,
    },
    /// Too many jobs run.
    #[error("{RUNNING_MAX} jobs are running; end some of them, or run this command with --daemon none")]
    TooMany,
}

impl JobError {
    /// The stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "TW-JOB-0001",
            Self::Ended { .. } => "TW-JOB-0002",
            Self::NotCancellable { .. } => "TW-JOB-0003",
            Self::TooMany => "TW-JOB-0004",
        }
    }
}

/// A moment on two clocks: one that people read, and one that never steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct JobTime {
    /// Milliseconds since 1970.
    pub wall_ms: u64,
    /// Time since the daemon started.
    pub uptime: Duration,
}

/// A job that starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewJob {
    pub kind: JobKind,
    pub subject: String,
    pub origin: JobOrigin,
    pub user: String,
    pub process: Option<JobProcess>,
    pub can_cancel: bool,
}

/// The part of the registry that survives a restart of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredJobs {
    pub schema_version: u32,
    pub next_id: u64,
    /// Running and ended jobs, in the order of their end; running jobs come last.
    pub jobs: Vec<JobDetails>,
}

/// The version of [`StoredJobs`].
pub(super) const SCHEMA_VERSION: u32 = 1;

/// The jobs.
#[derive(Debug)]
pub(super) struct JobRegistry {
    next_id: u64,
    running: BTreeMap<u64, RunningJob>,
    /// The oldest end first.
    ended: VecDeque<JobDetails>,
}

#[derive(Debug)]
struct RunningJob {
    details: JobDetails,
    /// When the job last reported: time since the daemon started.
    reported: Duration,
}

impl Default for JobRegistry {
    fn default() -> Self {
        Self { next_id: 1, running: BTreeMap::new(), ended: VecDeque::new() }
    }
}

impl JobRegistry {
    /// Takes over the list of jobs from the previous process of the daemon. The daemon's own jobs ended with
    /// that process. Jobs of command lines may still run and report.
    pub fn restore(stored: StoredJobs, now: JobTime) -> Self {
        let mut registry = Self { next_id: stored.next_id.max(1), ..Self::default() };
        for mut details in stored.jobs {
            registry.next_id = registry.next_id.max(details.job.id.saturating_add(1));
            let job = &mut details.job;
            match (job.state, job.origin) {
                (JobState::Running, JobOrigin::CommandLine) if registry.running.len() < RUNNING_MAX => {
                    registry.running.insert(job.id, RunningJob { details, reported: now.uptime });
                }
                (JobState::Running, _) => {
                    job.state = JobState::Lost;
                    job.message = Some(lost_text("the daemon ended while the job ran", job.kind));
                    job.ended_ms = Some(now.wall_ms);
                    registry.keep(details);
                }
                _ => registry.keep(details),
            }
        }
        registry
    }

    /// Returns what survives a restart.
    pub fn stored(&self) -> StoredJobs {
        let running = self.running.values().map(|running| running.details.clone());
        StoredJobs {
            schema_version: SCHEMA_VERSION,
            next_id: self.next_id,
            jobs: self.ended.iter().cloned().chain(running).collect(),
        }
    }

    /// Starts a job and returns its number.
    ///
    /// # Errors
    /// [`JobError::TooMany`].
    pub fn start(&mut self, new: NewJob, now: JobTime) -> Result<u64, JobError> {
        if self.running.len() >= RUNNING_MAX {
            return Err(JobError::TooMany);
        }
        let id = self.next_id;
        self.next_id += 1;
        let NewJob { kind, subject, origin, user, process, can_cancel } = new;
        let job = Job {
            id,
            kind,
            subject: bounded(subject),
            origin,
            user,
            process,
            can_cancel,
            state: JobState::Running,
            progress: JobProgress { phase: "starting".to_owned(), ..JobProgress::default() },
            cancellation: None,
            code: None,
            message: None,
            found: None,
            started_ms: now.wall_ms,
            reported_ms: now.wall_ms,
            ended_ms: None,
        };
        let details = JobDetails { job, log: Vec::new() };
        self.running.insert(id, RunningJob { details, reported: now.uptime });
        Ok(id)
    }

    /// Records the progress of a job. A job that counted as lost counts as running again.
    ///
    /// # Errors
    /// [`JobError::Unknown`], [`JobError::Ended`].
    pub fn report(
        &mut self,
        id: u64,
        report: JobReport,
        now: JobTime,
    ) -> Result<JobReportResponse, JobError> {
        let running = self.running_or_lost(id, now)?;
        running.reported = now.uptime;
        let JobDetails { job, log } = &mut running.details;
        job.reported_ms = now.wall_ms;
        job.progress = bounded_progress(report.progress);
        append(log, report.log, now);
        Ok(JobReportResponse { cancellation: job.cancellation.clone() })
    }

    /// Requests that a job ends.
    ///
    /// # Errors
    /// [`JobError::Unknown`], [`JobError::Ended`], [`JobError::NotCancellable`].
    pub fn cancel(&mut self, id: u64, by: String, now: JobTime) -> Result<JobDetails, JobError> {
        let Some(running) = self.running.get_mut(&id) else { return Err(self.not_running(id)) };
        let JobDetails { job, log } = &mut running.details;
        if !job.can_cancel {
            return Err(JobError::NotCancellable { id, kind: job.kind });
        }
        if job.cancellation.is_none() {
            append(log, vec![format!("cancel requested by {by}")], now);
            job.cancellation = Some(JobCancellation { by, at_ms: now.wall_ms });
        }
        Ok(running.details.clone())
    }

    /// Records the end of a job, even if the job counted as lost.
    ///
    /// # Errors
    /// [`JobError::Unknown`], [`JobError::Ended`].
    pub fn end(&mut self, id: u64, end: JobEnd, now: JobTime) -> Result<JobDetails, JobError> {
        self.running_or_lost(id, now)?;
        let Some(RunningJob { mut details, .. }) = self.running.remove(&id) else {
            return Err(JobError::Unknown { id });
        };
        let JobDetails { job, log } = &mut details;
        job.state = match end.outcome {
            JobOutcome::Finished => JobState::Finished,
            JobOutcome::Failed => JobState::Failed,
            JobOutcome::Cancelled => JobState::Cancelled,
        };
        job.code = end.code.map(bounded);
        job.message = end.message.map(bounded);
        job.found = end.found;
        (job.reported_ms, job.ended_ms) = (now.wall_ms, Some(now.wall_ms));
        if let Some(progress) = end.progress {
            job.progress = bounded_progress(progress);
        }
        job.progress.eta_ms = None;
        append(log, end.log, now);
        self.keep(details.clone());
        Ok(details)
    }

    /// Finds jobs of command lines that have been silent for too long, and returns their numbers.
    /// `is_running` tells whether a process exists.
    pub fn find_lost(&mut self, now: JobTime, is_running: impl Fn(JobProcess) -> bool) -> Vec<u64> {
        let reason = |running: &RunningJob| {
            let silent = now.uptime.saturating_sub(running.reported);
            match running.details.job.process {
                _ if running.details.job.origin == JobOrigin::Daemon => None,
                Some(process) if silent >= SILENT_WITHOUT_PROCESS && !is_running(process) => {
                    Some(format!("process {} has ended without reporting a result", process.pid))
                }
                _ if silent >= SILENT_MAX => {
                    Some(format!("no report for {} s: is the process of the job stopped?", silent.as_secs()))
                }
                _ => None,
            }
        };
        let lost: Vec<_> =
            self.running.iter().filter_map(|(id, running)| Some((*id, reason(running)?))).collect();
        for (id, reason) in &lost {
            let Some(RunningJob { mut details, .. }) = self.running.remove(id) else { continue };
            details.job.state = JobState::Lost;
            details.job.message = Some(lost_text(reason, details.job.kind));
            details.job.ended_ms = Some(now.wall_ms);
            details.job.progress.eta_ms = None;
            self.keep(details);
        }
        lost.into_iter().map(|(id, _)| id).collect()
    }

    /// Returns a job.
    ///
    /// # Errors
    /// [`JobError::Unknown`].
    pub fn get(&self, id: u64) -> Result<&JobDetails, JobError> {
        let ended = || self.ended.iter().find(|details| details.job.id == id);
        let running = self.running.get(&id).map(|running| &running.details);
        running.or_else(ended).ok_or(JobError::Unknown { id })
    }

    /// Returns the running jobs, the newest first.
    pub fn running(&self) -> impl Iterator<Item = &Job> {
        self.running.values().rev().map(|running| &running.details.job)
    }

    /// Returns the running jobs, then the ended ones, each with the newest first.
    pub fn all(&self) -> impl Iterator<Item = &Job> {
        self.running().chain(self.ended.iter().rev().map(|details| &details.job))
    }

    fn keep(&mut self, details: JobDetails) {
        self.ended.push_back(details);
        while self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
    }

    fn not_running(&self, id: u64) -> JobError {
        match self.get(id) {
            Ok(details) => JobError::Ended { id, state: details.job.state },
            Err(unknown) => unknown,
        }
    }

    /// Returns a running job. A report proves that a job that counted as lost still runs.
    fn running_or_lost(&mut self, id: u64, now: JobTime) -> Result<&mut RunningJob, JobError> {
        let is_lost = |details: &JobDetails| details.job.id == id && details.job.state == JobState::Lost;
        if let Some(index) = self.ended.iter().position(is_lost)
            && let Some(mut details) = self.ended.remove(index)
        {
            let job = &mut details.job;
            (job.state, job.message, job.ended_ms) = (JobState::Running, None, None);
            self.running.insert(id, RunningJob { details, reported: now.uptime });
        }
        if !self.running.contains_key(&id) {
            return Err(self.not_running(id));
        }
        self.running.get_mut(&id).ok_or(JobError::Unknown { id })
    }
}

/// Returns why a job is lost, and how its work can continue.
fn lost_text(reason: &str, kind: JobKind) -> String {
    format!("{reason}; {}", kind.after_interruption())
}

fn append(log: &mut Vec<JobLogLine>, lines: Vec<String>, now: JobTime) {
    let skipped = lines.len().saturating_sub(LOG_LINES_MAX);
    let new = lines.into_iter().skip(skipped);
    log.extend(new.map(|text| JobLogLine { at_ms: now.wall_ms, text: bounded(text) }));
    log.drain(..log.len().saturating_sub(LOG_LINES_MAX));
}

fn bounded(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

fn bounded_progress(progress: JobProgress) -> JobProgress {
    JobProgress { phase: bounded(progress.phase), waiting: progress.waiting.map(bounded), ..progress }
}

#[cfg(test)]
mod tests;
