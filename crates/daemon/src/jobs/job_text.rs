//! Jobs as text, for all front ends: command line, page, terminal. Pure.

use tailwater_binlog_stats::number_format::{bytes as size, grouped};

use crate::api::jobs::{Job, JobFindings, JobOrigin, JobProgress, JobState};

/// Returns the state of a job as a word. A job that was cancelled and has not ended yet is `cancelling`.
pub fn state_text(job: &Job) -> &'static str {
    match (job.state, &job.cancellation) {
        (JobState::Running, Some(_)) => "cancelling",
        (state, _) => state.name(),
    }
}

/// Returns the done part of the work in percent, from 0 to 100; `None` if the total is not known. Totals are
/// estimates, so only finished work has reached its end.
pub fn percent(job: &Job) -> Option<u8> {
    let JobProgress { tables, tables_total, rows, rows_total, bytes, bytes_total, .. } = job.progress;
    let pairs = [(bytes, bytes_total), (rows, rows_total), (tables, tables_total)];
    let (done, total) = pairs.into_iter().find(|(_, total)| *total > 0)?;
    match job.state {
        JobState::Finished => Some(100),
        _ => u8::try_from((u128::from(done) * 100 / u128::from(total)).min(100)).ok(),
    }
}

/// Returns the amount of work that is done: bytes, rows or tables, with the percentage while the job runs.
/// `None` before anything is known.
pub fn amount_text(job: &Job) -> Option<String> {
    let JobProgress { tables, tables_total, rows, rows_total, bytes, bytes_total, .. } = job.progress;
    let amount = match (bytes_total, rows, rows_total, tables_total) {
        (1.., ..) => size(bytes),
        (0, 0, 0, 0) => return None,
        (0, 0, 0, _) => return Some(format!("{tables} of {}", counted(tables_total, "table"))),
        (0, rows, ..) => counted(rows, "row"),
    };
    let total = bytes_total.max(rows_total);
    Some(match percent(job) {
        Some(percent) if job.state != JobState::Finished && total > 0 => format!("{amount} ({percent} %)"),
        _ => amount,
    })
}

/// Returns the rate of the work; `None` if it is not known.
pub fn rate_text(progress: &JobProgress) -> Option<String> {
    let rows = progress.rows_per_second.map(|rows| format!("{} rows/s", grouped(rows)));
    let bytes = progress.bytes_per_second.map(|bytes| format!("{}/s", size(bytes)));
    let parts: Vec<_> = rows.into_iter().chain(bytes).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Returns who or what has started a job: `anna, process 4711`, `the daemon`.
pub fn origin_text(job: &Job) -> String {
    match (job.origin, job.process) {
        (JobOrigin::Daemon, _) => "the daemon".to_owned(),
        (JobOrigin::CommandLine, Some(process)) => format!("{}, process {}", job.user, process.pid),
        (JobOrigin::CommandLine, None) => job.user.clone(),
    }
}

/// Returns in a few words how a job has ended, besides its state: `2 rows in 1 table differ`, an error code,
/// who cancelled it. `None` if there is nothing to say; [`Job::message`] has all of it.
pub fn result_text(job: &Job) -> Option<String> {
    match job.state {
        JobState::Running => None,
        JobState::Finished => job.found.as_ref().map(findings_text),
        JobState::Failed => job.code.clone(),
        JobState::Cancelled => Some(match &job.cancellation {
            Some(cancellation) => format!("by {}", cancellation.by),
            None => "by a signal".to_owned(),
        }),
        JobState::Lost => Some("no report of its end".to_owned()),
    }
}

/// Whether a job has ended without trouble: it did its work, and no difference remains.
pub fn has_ended_well(job: &Job) -> bool {
    job.state == JobState::Finished && job.found.is_none_or(|found| !found.remains)
}

/// Returns what a comparison or a repair has found.
pub fn findings_text(found: &JobFindings) -> String {
    let JobFindings { tables, rows, repaired, remains } = *found;
    let differ = |count: u64| if count == 1 { "differs" } else { "differ" };
    match (repaired, rows.saturating_sub(repaired)) {
        (0, 0) if tables > 0 => format!("{} {}", counted(tables, "table"), differ(tables)),
        (0, 0) if remains => "not everything was compared".to_owned(),
        (0, 0) => "no differences".to_owned(),
        (0, left) => format!("{} in {} {}", counted(left, "row"), counted(tables, "table"), differ(left)),
        (repaired, 0) if remains => {
            format!("{} repaired, other differences remain", counted(repaired, "row"))
        }
        (repaired, 0) => format!("{} repaired", counted(repaired, "row")),
        (repaired, left) => {
            format!("{} repaired, {} {} still", counted(repaired, "row"), counted(left, "row"), differ(left))
        }
    }
}

/// Returns a number of things, with the plural if it is not one: `1 row`, `12,000 rows`.
pub fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::jobs::{JobCancellation, JobKind};

    fn job(state: JobState, progress: JobProgress) -> Job {
        Job {
            id: 1,
            kind: JobKind::Check,
            subject: String::new(),
            origin: JobOrigin::Daemon,
            user: "daemon".to_owned(),
            process: None,
            can_cancel: true,
            state,
            progress,
            cancellation: None,
            code: None,
            message: None,
            found: None,
            started_ms: 0,
            reported_ms: 0,
            ended_ms: None,
        }
    }

    #[test]
    fn progress_is_in_bytes_rows_or_tables() {
        let rows = JobProgress { rows: 30, rows_total: 40, tables_total: 7, ..JobProgress::default() };
        let text = |state, progress: &JobProgress| {
            let job = job(state, progress.clone());
            (percent(&job), amount_text(&job).unwrap_or_default())
        };
        assert_eq!(text(JobState::Running, &rows), (Some(75), "30 rows (75 %)".to_owned()));
        // The total was an estimate.
        assert_eq!(text(JobState::Finished, &rows), (Some(100), "30 rows".to_owned()));
        assert_eq!(text(JobState::Cancelled, &rows), (Some(75), "30 rows (75 %)".to_owned()));
        let tables = JobProgress { tables: 1, tables_total: 2, ..JobProgress::default() };
        assert_eq!(text(JobState::Running, &tables), (Some(50), "1 of 2 tables".to_owned()));
        let bytes = JobProgress { bytes: 2048, bytes_total: 1024, ..JobProgress::default() };
        assert_eq!(text(JobState::Running, &bytes), (Some(100), "2.0 KiB (100 %)".to_owned()));
        let unknown = JobProgress { rows: 1, ..JobProgress::default() };
        assert_eq!(text(JobState::Running, &unknown), (None, "1 row".to_owned()));
        assert_eq!(text(JobState::Running, &JobProgress::default()), (None, String::new()));
        let huge = JobProgress { rows: u64::MAX, rows_total: u64::MAX, ..JobProgress::default() };
        assert_eq!(text(JobState::Running, &huge).0, Some(100));
    }

    #[test]
    fn a_finished_check_tells_whether_it_found_differences() {
        let found = |tables, rows, repaired, remains| JobFindings { tables, rows, repaired, remains };
        for (found, text) in [
            (found(0, 0, 0, false), "no differences"),
            (found(1, 1, 0, true), "1 row in 1 table differs"),
            (found(2, 1_234, 0, true), "1,234 rows in 2 tables differ"),
            (found(1, 0, 0, true), "1 table differs"),
            (found(0, 0, 0, true), "not everything was compared"),
            (found(1, 5, 5, false), "5 rows repaired"),
            (found(2, 5, 5, true), "5 rows repaired, other differences remain"),
            (found(1, 5, 4, true), "4 rows repaired, 1 row differs still"),
        ] {
            let job = Job { found: Some(found), ..job(JobState::Finished, JobProgress::default()) };
            assert_eq!(result_text(&job).as_deref(), Some(text));
            assert_eq!(has_ended_well(&job), !found.remains, "{found:?}");
        }
    }

    #[test]
    fn a_cancelled_job_tells_by_whom() {
        let cancelled = job(JobState::Cancelled, JobProgress::default());
        assert_eq!(result_text(&cancelled).as_deref(), Some("by a signal"));
        let cancellation = Some(JobCancellation { by: "anna".to_owned(), at_ms: 0 });
        assert_eq!(
            result_text(&Job { cancellation: cancellation.clone(), ..cancelled }).as_deref(),
            Some("by anna")
        );
        let running = Job { cancellation, ..job(JobState::Running, JobProgress::default()) };
        assert_eq!((state_text(&running), result_text(&running)), ("cancelling", None));
    }
}
