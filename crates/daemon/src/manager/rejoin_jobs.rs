//! Lists automatic rejoins as jobs of the daemon, which operators can cancel.

use std::collections::BTreeMap;
use std::time::Duration;

use tailwater_rejoin::RejoinError;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::former_primary_rejoin::{FormerPrimary, RejoinReport};
use crate::api::jobs::{JobKind, JobOutcome, JobProgress};
use crate::error_chain::ErrorChain;
use crate::jobs::daemon_job::DaemonJob;
use crate::jobs::job_results::JobResult;
use crate::jobs::job_service::JobService;

/// Interval of the reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The jobs of the servers that are being rejoined. All attempts to rejoin a server belong to one job.
#[derive(Debug)]
pub(super) struct RejoinJobs {
    service: JobService,
    jobs: BTreeMap<String, RejoinJob>,
}

#[derive(Debug)]
struct RejoinJob {
    job: Option<DaemonJob>,
    cancelled: CancellationToken,
    /// How the last attempt has ended.
    last: (JobOutcome, Option<&'static str>, Option<JobResult>),
}

impl RejoinJobs {
    pub fn new(service: JobService) -> Self {
        Self { service, jobs: BTreeMap::new() }
    }

    /// Rejoins a server. Returns `None` if an operator has cancelled the rejoin. Like a rejoin that a
    /// failover interrupts, a cancelled rejoin can be resumed.
    pub async fn run(&mut self, former: &FormerPrimary) -> Option<anyhow::Result<RejoinReport>> {
        let service = self.service.clone();
        let listed = self.jobs.entry(former.server().to_owned()).or_insert_with(|| {
            let cancelled = CancellationToken::new();
            let job = service.start_own(JobKind::Rejoin, former.subject(), Some(cancelled.clone()));
            RejoinJob { job, cancelled, last: (JobOutcome::Failed, None, None) }
        });
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        let mut work = std::pin::pin!(former.run());
        loop {
            tokio::select! {
                result = &mut work => return Some(result),
                () = listed.cancelled.cancelled() => return None,
                _ = ticks.tick() => listed.report(former.progress()),
            }
        }
    }

    /// Records how an attempt has ended.
    pub fn record(&mut self, server: &str, result: &anyhow::Result<RejoinReport>) {
        let Some(listed) = self.jobs.get_mut(server) else { return };
        listed.last = match result {
            Ok(report) if report.reads_from.is_some() => {
                (JobOutcome::Finished, None, Some(JobResult::of_rejoin(report)))
            }
            Ok(report) => {
                let text = "the server's rows differ from the primary's: `tailwater rejoin` shows where";
                let found = JobResult::of_rejoin(report).found;
                (JobOutcome::Failed, None, Some(JobResult { message: text.to_owned(), found }))
            }
            Err(error) => {
                let code = error.downcast_ref::<RejoinError>().map(RejoinError::code);
                let text = ErrorChain(error).to_string();
                (JobOutcome::Failed, code, Some(JobResult::without_findings(text)))
            }
        };
        if let (JobOutcome::Failed, _, Some(result)) = &listed.last {
            listed.wait(result.message.clone());
        }
    }

    /// Records why the rejoin of a server waits.
    pub fn wait(&self, server: &str, reason: &dyn std::fmt::Display) {
        if let Some(listed) = self.jobs.get(server) {
            listed.wait(reason.to_string());
        }
    }

    /// Whether an operator has cancelled the rejoin of a server.
    pub fn is_cancelled(&self, server: &str) -> bool {
        self.jobs.get(server).is_some_and(|listed| listed.cancelled.is_cancelled())
    }

    /// Ends the job of a server that an operator has cancelled.
    pub fn end_cancelled(&mut self, source: &str, server: &str) {
        warn!(source, server, "an operator has cancelled the rejoin; `tailwater rejoin` resumes it");
        if let Some(job) = self.jobs.remove(server).and_then(|listed| listed.job) {
            let text = format!(
                "`tailwater rejoin` of {server} resumes the rejoin; the daemon also resumes it after a restart"
            );
            job.end(JobOutcome::Cancelled, None, Some(JobResult::without_findings(text)));
        }
    }

    /// Ends the job of a server with the outcome of its last attempt.
    pub fn end(&mut self, server: &str) {
        let Some(RejoinJob { job: Some(job), last: (outcome, code, result), .. }) = self.jobs.remove(server)
        else {
            return;
        };
        job.end(outcome, code, result);
    }
}

impl RejoinJob {
    fn report(&self, progress: JobProgress) {
        if let Some(job) = &self.job {
            job.report(progress);
        }
    }

    fn wait(&self, reason: String) {
        self.report(JobProgress {
            phase: "waiting".to_owned(),
            waiting: Some(reason),
            ..JobProgress::default()
        });
    }
}
