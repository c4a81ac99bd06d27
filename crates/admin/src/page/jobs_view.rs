//! The jobs, and one job with its log and the button that cancels it. Pure.

use askama::Template;
use tailwater_binlog_stats::LocalTime;
use tailwater_binlog_stats::number_format::duration;
use tailwater_daemon::api::jobs::{Job, JobDetails, JobState};
use tailwater_daemon::jobs::job_text::{
    amount_text, has_ended_well, origin_text, percent, rate_text, result_text, state_text,
};

use super::channel_view::ActionButton;
use super::display_format::{UNKNOWN, local_time};
use super::page_layout::{Health, PageFrame};

/// All jobs.
#[derive(Debug, Template)]
#[template(path = "page/jobs.html")]
pub(super) struct JobList {
    pub(super) frame: PageFrame,
    pub(super) running: Vec<JobRow>,
    pub(super) ended: Vec<JobRow>,
}

/// One job.
#[derive(Debug, Template)]
#[template(path = "page/job.html")]
pub(super) struct JobDetail {
    pub(super) frame: PageFrame,
    pub(super) job: JobRow,
    pub(super) actions: Vec<ActionButton>,
    pub(super) facts: Vec<(&'static str, String)>,
    /// Why the job waits, and who has cancelled it.
    pub(super) notes: Vec<String>,
    /// How the job has ended, with the code of the error.
    pub(super) end: Option<(String, String)>,
    /// The time and text of each line, the newest first.
    pub(super) log: Vec<(String, String)>,
}

/// A job, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobRow {
    pub(super) id: u64,
    pub(super) path: String,
    /// `check 9`
    pub(super) name: String,
    pub(super) subject: String,
    pub(super) origin: String,
    pub(super) state: &'static str,
    pub(super) health: Health,
    pub(super) phase: String,
    /// The done part, if the total is known.
    pub(super) percent: Option<u8>,
    /// The done part as text.
    pub(super) amount: String,
    pub(super) left: String,
    pub(super) result: String,
    pub(super) started: String,
    pub(super) took: String,
}

impl JobList {
    pub(super) fn new(frame: PageFrame, jobs: &[Job]) -> Self {
        let (running, ended): (Vec<_>, Vec<_>) =
            jobs.iter().map(JobRow::new).partition(|row| row.took.is_empty());
        Self { frame, running, ended }
    }
}

impl JobRow {
    fn new(job: &Job) -> Self {
        let milliseconds = |ms: u64| duration(ms as f64 / 1000.0);
        let known = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
        Self {
            id: job.id,
            path: job_path(job.id),
            name: job_name(job),
            subject: job.subject.clone(),
            origin: origin_text(job),
            state: state_text(job),
            health: health(job),
            phase: job.progress.phase.clone(),
            percent: percent(job),
            amount: known(amount_text(job)),
            left: known(job.progress.eta_ms.map(milliseconds)),
            result: result_text(job).unwrap_or_default(),
            started: local_time(job.started_ms),
            took: job
                .ended_ms
                .map(|ended| milliseconds(ended.saturating_sub(job.started_ms)))
                .unwrap_or_default(),
        }
    }
}

/// The path of the view of a job.
pub(super) fn job_path(id: u64) -> String {
    format!("/jobs/{id}")
}

/// The kind and number of a job.
pub(super) fn job_name(job: &Job) -> String {
    format!("{} {}", job.kind.name(), job.id)
}

fn health(job: &Job) -> Health {
    match job.state {
        JobState::Running if job.progress.waiting.is_some() || job.cancellation.is_some() => Health::Degraded,
        JobState::Running => Health::Well,
        JobState::Finished if has_ended_well(job) => Health::Well,
        JobState::Finished | JobState::Cancelled => Health::Degraded,
        JobState::Failed | JobState::Lost => Health::Failed,
    }
}

impl JobDetail {
    pub(super) fn new(frame: PageFrame, JobDetails { job, log }: &JobDetails) -> Self {
        let row = JobRow::new(job);
        let is_running = job.state == JobState::Running;
        let mut facts = vec![("Works on", job.subject.clone()), ("Started by", row.origin.clone())];
        facts.push(("Started", row.started.clone()));
        if is_running {
            facts.push(("Time left", row.left.clone()));
        } else {
            facts.extend(job.ended_ms.map(|ended| ("Ended", local_time(ended))));
            facts.push(("Took", row.took.clone()));
        }
        facts.push(("Phase", row.phase.clone()));
        facts.extend(rate_text(&job.progress).map(|rate| ("Rate", rate)));
        if !row.result.is_empty() {
            facts.push(("Result", row.result.clone()));
        }
        let mut notes = Vec::new();
        if is_running {
            notes.extend(job.progress.waiting.iter().map(|reason| format!("It waits: {reason}.")));
        }
        notes.extend(job.cancellation.iter().map(|cancellation| {
            format!("{} cancelled it at {}.", cancellation.by, local_time(cancellation.at_ms))
        }));
        if is_running && !job.can_cancel {
            notes.push("It cannot be cancelled: it has no point at which it can stop safely.".to_owned());
        }
        let line = |text: &str, at_ms: u64| (LocalTime(at_ms.saturating_mul(1000)).time(), text.to_owned());
        Self {
            frame,
            actions: actions(job),
            facts,
            notes,
            end: job.message.clone().map(|message| (job.code.clone().unwrap_or_default(), message)),
            log: log.iter().rev().map(|entry| line(&entry.text, entry.at_ms)).collect(),
            job: row,
        }
    }
}

fn actions(job: &Job) -> Vec<ActionButton> {
    let is_cancellable = job.state == JobState::Running && job.can_cancel && job.cancellation.is_none();
    let cancel = ActionButton {
        label: "Cancel…",
        path: format!("{}/cancel", job_path(job.id)),
        id: "cancel",
        is_dangerous: true,
    };
    is_cancellable.then_some(cancel).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use tailwater_daemon::api::jobs::{
        JobCancellation, JobFindings, JobKind, JobLogLine, JobOrigin, JobProcess, JobProgress,
    };

    use super::super::page_user_role::Visitor;
    use super::*;

    fn job() -> Job {
        Job {
            id: 9,
            kind: JobKind::Check,
            subject: "db2:3306 with <db1>".to_owned(),
            origin: JobOrigin::CommandLine,
            user: "anna".to_owned(),
            process: Some(JobProcess { pid: 4711, start_ticks: None }),
            can_cancel: true,
            state: JobState::Running,
            progress: JobProgress {
                phase: "checking".to_owned(),
                rows: 31,
                rows_total: 100,
                eta_ms: Some(192_000),
                ..JobProgress::default()
            },
            cancellation: None,
            code: None,
            message: None,
            found: None,
            started_ms: 1_000,
            reported_ms: 2_000,
            ended_ms: None,
        }
    }

    fn frame(is_operator: bool) -> PageFrame {
        let visitor = Visitor { name: "anna".to_owned(), is_operator, csrf_token: String::new() };
        PageFrame::new("Job", "/jobs", "/jobs/9", visitor)
    }

    fn detail(job: Job, is_operator: bool) -> String {
        let log = vec![
            JobLogLine { at_ms: 0, text: "first <line>".to_owned() },
            JobLogLine { at_ms: 1, text: "last line".to_owned() },
        ];
        JobDetail::new(frame(is_operator), &JobDetails { job, log }).render().expect("a view")
    }

    #[test]
    fn a_running_job_has_a_bar_with_its_text() {
        let list = JobList::new(frame(true), &[job()]).render().expect("a view");
        for part in [
            "value=\"31\"",
            "aria-label=\"Progress of check 9\"",
            "31 rows (31 %)",
            "3 min 12 s",
            "anna, process 4711",
            "href=\"/jobs/9\"",
            "db2:3306 with &#60;db1&#62;",
        ] {
            assert!(list.contains(part), "{part}: {list}");
        }
        let unknown = Job { progress: JobProgress::default(), ..job() };
        let list = JobList::new(frame(true), &[unknown]).render().expect("a view");
        assert!(!list.contains("<progress"), "{list}");
    }

    #[test]
    fn only_operators_cancel_and_only_what_can_be_cancelled() {
        let cancel = "id=\"action-cancel\"";
        assert!(detail(job(), true).contains(cancel));
        assert!(!detail(job(), false).contains(cancel));
        let fixed = detail(Job { can_cancel: false, ..job() }, true);
        assert!(!fixed.contains(cancel) && fixed.contains("It cannot be cancelled"), "{fixed}");
        let cancellation = Some(JobCancellation { by: "bert".to_owned(), at_ms: 0 });
        let cancelling = detail(Job { cancellation, ..job() }, true);
        assert!(!cancelling.contains(cancel) && cancelling.contains("bert cancelled it"), "{cancelling}");
        assert!(cancelling.contains("cancelling"), "{cancelling}");
        assert!(
            !detail(Job { state: JobState::Failed, ended_ms: Some(3_000), ..job() }, true).contains(cancel)
        );
    }

    #[test]
    fn a_finished_check_shows_its_differences_and_its_log() {
        let found = Some(JobFindings { tables: 1, rows: 2, repaired: 0, remains: true });
        let message = Some("compared 100 rows of 3 tables: 2 rows in 1 table differ".to_owned());
        let ended = Job { state: JobState::Finished, found, message, ended_ms: Some(61_000), ..job() };
        let html = detail(ended.clone(), true);
        for part in ["compared 100 rows of 3 tables", "first &#60;line&#62;", "1 min", "sign degraded"] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let newest = html.find("last line").zip(html.find("first "));
        assert!(newest.is_some_and(|(last, first)| last < first), "the newest line comes first: {html}");
        let list = JobList::new(frame(true), &[ended]).render().expect("a view");
        assert!(list.contains("2 rows in 1 table differ") && list.contains("Nothing runs now"), "{list}");
    }
}
