//! A job that the daemon itself runs.

use super::job_results::JobResult;
use super::job_service::JobService;
use crate::api::jobs::{JobEnd, JobOutcome, JobProgress, JobReport};

/// A job of the daemon. If it is dropped without an end, the job has failed.
#[derive(Debug)]
pub struct DaemonJob {
    service: JobService,
    id: u64,
    is_ended: bool,
}

impl DaemonJob {
    pub(super) fn new(service: JobService, id: u64) -> Self {
        Self { service, id, is_ended: false }
    }

    /// Reports the progress.
    pub fn report(&self, progress: JobProgress) {
        // A report fails only after the end of the job.
        let _ = self.service.report(self.id, JobReport { progress, log: Vec::new() });
    }

    /// Ends the job. `result` has the error, or what was done and found.
    pub fn end(mut self, outcome: JobOutcome, code: Option<&str>, result: Option<JobResult>) {
        self.set_end(outcome, code, result);
    }

    fn set_end(&mut self, outcome: JobOutcome, code: Option<&str>, result: Option<JobResult>) {
        self.is_ended = true;
        let found = result.as_ref().and_then(|result| result.found);
        let end = JobEnd {
            outcome,
            code: code.map(str::to_owned),
            message: result.map(|result| result.message),
            found,
            progress: None,
            log: Vec::new(),
        };
        let _ = self.service.end(self.id, end);
    }
}

impl Drop for DaemonJob {
    fn drop(&mut self) {
        if !self.is_ended {
            self.set_end(JobOutcome::Failed, None, Some(JobResult::without_findings("interrupted")));
        }
    }
}
