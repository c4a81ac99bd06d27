//! The jobs of this daemon, for its front ends: executes requests, finds lost jobs, and stores the list.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tailwater_apply::trace_span_record;
use tailwater_config::JOBS_FILE;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::daemon_job::DaemonJob;
use super::job_registry::{JobError, JobRegistry, JobTime, NewJob};
use super::{job_file, job_process_check, job_trace_span};
use crate::api::daemon_requests::{CommandError, CommandErrorKind};
use crate::api::jobs::{
    Job, JobAnswer, JobCaller, JobDetails, JobEnd, JobKind, JobOrigin, JobRegistration, JobReport,
    JobRequest, RegisteredJob,
};
use crate::control_api::ChangeCounter;
use crate::unwritable_files::{DaemonFile, FileFaults};

/// Interval of the search for lost jobs.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of the attempts to store the list after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// How long a change waits until it is stored. A disk that hangs delays a command for at most this time.
const STORE_WAIT_MAX: Duration = Duration::from_secs(2);

/// The jobs of this daemon.
#[derive(Debug, Clone, Default)]
pub struct JobService(Arc<JobServiceState>);

#[derive(Debug)]
struct JobServiceState {
    registry: Mutex<JobRegistry>,
    /// Tokens that end the daemon's own jobs.
    tokens: Mutex<HashMap<u64, CancellationToken>>,
    started: Instant,
    changes: ChangeCounter,
    /// Number of the newest change that must be stored, and of the newest change that is stored.
    to_store: watch::Sender<u64>,
    stored: watch::Sender<u64>,
    /// Whether the list of jobs is stored in a file.
    has_file: bool,
}

impl Default for JobServiceState {
    fn default() -> Self {
        Self {
            registry: Mutex::default(),
            tokens: Mutex::default(),
            started: Instant::now(),
            changes: ChangeCounter::default(),
            to_store: watch::Sender::default(),
            stored: watch::Sender::default(),
            has_file: false,
        }
    }
}

impl JobService {
    /// Continues with the jobs whose list is in the log's folder. Each change is counted in `changes`, and
    /// `faults` shows whether the list can be stored. Must be called within a tokio runtime.
    pub fn open(directory: &Path, changes: ChangeCounter, faults: FileFaults) -> Self {
        let path = directory.join(JOBS_FILE);
        let state = JobServiceState { changes, has_file: true, ..JobServiceState::default() };
        match job_file::read(&path) {
            Ok(Some(stored)) => {
                let now = state.now();
                *state.registry.lock() = JobRegistry::restore(stored, now);
            }
            Ok(None) => {}
            Err(error) => {
                warn!("the list of jobs {} cannot be read, and starts empty: {error}", path.display());
            }
        }
        let state = Arc::new(state);
        tokio::spawn(find_lost(Arc::downgrade(&state)));
        tokio::spawn(store(Arc::downgrade(&state), state.to_store.subscribe(), path, faults));
        Self(state)
    }

    /// Executes a request.
    ///
    /// # Errors
    /// If there is no such job, or its state does not allow the request.
    pub async fn execute(&self, request: JobRequest) -> Result<JobAnswer, CommandError> {
        let answer = match request {
            JobRequest::List => JobAnswer::List(self.0.registry.lock().all().cloned().collect()),
            JobRequest::Show { id } => {
                let details = self.0.registry.lock().get(id).cloned();
                JobAnswer::Details(Box::new(details.map_err(refused)?))
            }
            JobRequest::Register { registration, caller } => {
                let id = self.register(registration, caller).map_err(refused)?;
                // Without this wait, a daemon that dies now could give the number to another job after its
                // restart.
                self.wait_stored().await;
                JobAnswer::Registered(RegisteredJob { id })
            }
            JobRequest::Report { id, report } => {
                let response = self.report(id, *report).map_err(refused)?;
                JobAnswer::Reported(response)
            }
            JobRequest::End { id, end } => {
                let details = self.end(id, *end).map_err(refused)?;
                self.wait_stored().await;
                JobAnswer::Details(Box::new(details))
            }
            JobRequest::Cancel { id, by } => {
                let details = self.cancel(id, by).map_err(refused)?;
                JobAnswer::Details(Box::new(details))
            }
        };
        Ok(answer)
    }

    /// Returns the running jobs, the newest first.
    pub fn running(&self) -> Vec<Job> {
        self.0.registry.lock().running().cloned().collect()
    }

    /// Starts a job of the daemon itself. `token` ends the job; without it the job cannot be cancelled.
    /// Returns `None` if too many jobs run; the work is then not listed.
    pub fn start_own(
        &self,
        kind: JobKind,
        subject: String,
        token: Option<CancellationToken>,
    ) -> Option<DaemonJob> {
        let new = NewJob {
            kind,
            subject,
            origin: JobOrigin::Daemon,
            user: "daemon".to_owned(),
            process: None,
            can_cancel: token.is_some(),
        };
        let id = self.0.registry.lock().start(new, self.0.now()).ok()?;
        self.0.tokens.lock().extend(token.map(|token| (id, token)));
        self.0.changed(true);
        Some(DaemonJob::new(self.clone(), id))
    }

    /// Waits until the present list is stored, for a limited time.
    pub async fn wait_stored(&self) {
        if !self.0.has_file {
            return;
        }
        let wanted = *self.0.to_store.borrow();
        let mut stored = self.0.stored.subscribe();
        // If the disk takes longer, the change is stored as soon as the disk answers again.
        let _ = tokio::time::timeout(STORE_WAIT_MAX, stored.wait_for(|stored| *stored >= wanted)).await;
    }

    pub(super) fn report(
        &self,
        id: u64,
        report: JobReport,
    ) -> Result<crate::api::jobs::JobReportResponse, JobError> {
        let response = self.0.registry.lock().report(id, report, self.0.now())?;
        self.0.changed(false);
        Ok(response)
    }

    pub(super) fn end(&self, id: u64, end: JobEnd) -> Result<JobDetails, JobError> {
        let details = self.0.registry.lock().end(id, end, self.0.now())?;
        self.0.tokens.lock().remove(&id);
        let job = &details.job;
        trace_span_record::export(|| job_trace_span::of(job));
        info!(job = id, "the {} has ended: {}: {}", job.kind.name(), job.state.name(), job.subject);
        self.0.changed(true);
        Ok(details)
    }

    fn register(&self, registration: JobRegistration, caller: JobCaller) -> Result<u64, JobError> {
        let JobRegistration { kind, subject, can_cancel } = registration;
        let new = NewJob {
            kind,
            subject,
            origin: JobOrigin::CommandLine,
            user: caller.user,
            process: caller.pid.map(job_process_check::identify),
            can_cancel,
        };
        let id = self.0.registry.lock().start(new, self.0.now())?;
        self.0.changed(true);
        Ok(id)
    }

    fn cancel(&self, id: u64, by: String) -> Result<JobDetails, JobError> {
        let details = self.0.registry.lock().cancel(id, by, self.0.now())?;
        if let Some(token) = self.0.tokens.lock().get(&id) {
            token.cancel();
        }
        self.0.changed(true);
        Ok(details)
    }
}

impl JobServiceState {
    fn now(&self) -> JobTime {
        let wall_ms = u64::try_from(chrono::Utc::now().timestamp_millis()).unwrap_or(0);
        JobTime { wall_ms, uptime: self.started.elapsed() }
    }

    /// Notifies clients. Progress is not stored, because it changes each second.
    fn changed(&self, must_store: bool) {
        if must_store {
            self.to_store.send_modify(|changes| *changes += 1);
        }
        self.changes.count();
    }
}

fn refused(error: JobError) -> CommandError {
    let kind = match error {
        JobError::Unknown { .. } => CommandErrorKind::UnknownName,
        JobError::Ended { .. } | JobError::NotCancellable { .. } | JobError::TooMany => {
            CommandErrorKind::Failed
        }
    };
    CommandError { kind, code: Some(error.code().to_owned()), message: error.to_string() }
}

/// Finds lost jobs, until the service is dropped.
async fn find_lost(service: Weak<JobServiceState>) {
    loop {
        tokio::time::sleep(SEARCH_INTERVAL).await;
        let Some(service) = service.upgrade() else { return };
        let now = service.now();
        let lost = service.registry.lock().find_lost(now, job_process_check::is_running);
        for id in &lost {
            warn!(job = id, "the job is lost: its command no longer sends reports");
        }
        if !lost.is_empty() {
            service.changed(true);
        }
    }
}

/// Stores the list after each change, until the service is dropped. Changes in the meantime are stored
/// together. After a failure, the list is stored as soon as that is possible.
async fn store(
    service: Weak<JobServiceState>,
    mut to_store: watch::Receiver<u64>,
    path: PathBuf,
    faults: FileFaults,
) {
    let mut must_retry = false;
    loop {
        let retry_after = if must_retry { RETRY_INTERVAL } else { Duration::MAX };
        // An error means that the service is dropped.
        if let Ok(Err(_)) = tokio::time::timeout(retry_after, to_store.changed()).await {
            return;
        }
        let number = *to_store.borrow_and_update();
        let Some(jobs) = service.upgrade().map(|service| service.registry.lock().stored()) else { return };
        let file = path.clone();
        let written = tokio::task::spawn_blocking(move || job_file::write(&file, &jobs)).await;
        let written = written.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        faults.record(DaemonFile::Jobs, &written);
        must_retry = written.is_err();
        // The change counts as stored even after a failure, because jobs must run while the disk is full.
        let Some(service) = service.upgrade() else { return };
        service.stored.send_replace(number);
    }
}
