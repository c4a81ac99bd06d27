//! Formats jobs as text. This module does no I/O.

use std::fmt::Write;

use comfy_table::{Table, presets};
use tailwater_binlog_stats::LocalTime;
use tailwater_binlog_stats::number_format::duration;
use tailwater_daemon::api::jobs::{Job, JobDetails, JobState};
use tailwater_daemon::jobs::job_text::{amount_text, origin_text, rate_text, result_text, state_text};
use tailwater_wire::printable;

/// Returns a table of jobs.
pub(super) fn table_text(jobs: &[Job]) -> String {
    if jobs.is_empty() {
        return "no jobs\n".to_owned();
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["ID", "KIND", "STATE", "PROGRESS", "LEFT", "RESULT", "STARTED", "WHAT"]);
    for job in jobs {
        let row = [
            job.id.to_string(),
            job.kind.name().to_owned(),
            state_text(job).to_owned(),
            or_dash(amount_text(job)),
            left_text(job),
            or_dash(result_text(job)),
            moment(job.started_ms),
            job.subject.clone(),
        ];
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    format!("{}\n", table.trim_fmt())
}

/// Returns everything about one job.
pub(super) fn details_text(details: &JobDetails) -> String {
    let JobDetails { job, log } = details;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<10}{}", printable(value));
    };
    line("job", &format!("{}, {}", job.id, job.kind.name()));
    line("of", &job.subject);
    line("state", state_text(job));
    line("phase", &job.progress.phase);
    line("progress", &or_dash(amount_text(job)));
    if let Some(rate) = rate_text(&job.progress) {
        line("rate", &rate);
    }
    if job.state == JobState::Running {
        line("left", &left_text(job));
    }
    if let Some(reason) = &job.progress.waiting {
        line("waiting", reason);
    }
    line("started", &format!("{} by {}", moment(job.started_ms), origin_text(job)));
    if job.state == JobState::Running && !job.can_cancel {
        line("cancel", "not possible");
    }
    if let Some(cancellation) = &job.cancellation {
        line("cancelled", &format!("{} by {}", moment(cancellation.at_ms), cancellation.by));
    }
    if let Some(ended_ms) = job.ended_ms {
        let seconds = ended_ms.saturating_sub(job.started_ms) as f64 / 1000.0;
        line("ended", &format!("{}, after {}", moment(ended_ms), duration(seconds)));
    }
    if let Some(result) = result_text(job) {
        line("result", &result);
    }
    let code = job.code.as_ref().map(|code| format!("{code}: ")).unwrap_or_default();
    if let Some(message) = &job.message {
        line("message", &format!("{code}{message}"));
    }
    if !log.is_empty() {
        text.push_str("log\n");
    }
    for entry in log {
        let time = LocalTime(entry.at_ms.saturating_mul(1000)).time();
        let _ = writeln!(text, "  {time} {}", printable(&entry.text));
    }
    text
}

fn left_text(job: &Job) -> String {
    match job.progress.eta_ms {
        Some(ms) if job.state == JobState::Running => duration(ms as f64 / 1000.0),
        _ => "-".to_owned(),
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn moment(ms: u64) -> String {
    LocalTime(ms.saturating_mul(1000)).date_and_time()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_daemon::api::jobs::{
        JobCancellation, JobFindings, JobKind, JobLogLine, JobOrigin, JobProgress,
    };

    fn job() -> Job {
        Job {
            id: 7,
            kind: JobKind::Dump,
            subject: "db1:3306 to /backup\n".to_owned(),
            origin: JobOrigin::CommandLine,
            user: "anna".to_owned(),
            process: None,
            can_cancel: true,
            state: JobState::Running,
            progress: JobProgress {
                phase: "dumping".to_owned(),
                rows: 1_500,
                rows_total: 3_000,
                rows_per_second: Some(100),
                eta_ms: Some(15_000),
                ..JobProgress::default()
            },
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
    fn a_job_is_one_line_of_the_list() {
        assert_eq!(table_text(&[]), "no jobs\n");
        let text = table_text(&[job()]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "the list must have exactly two lines: {text}");
        for part in ["7", "dump", "running", "1,500 rows (50 %)", "15", "db1:3306 to /backup\\n"] {
            assert!(lines[1].contains(part), "the line lacks {part:?}: {text}");
        }
    }

    #[test]
    fn differences_are_in_the_list_and_in_the_details() {
        let found = Some(JobFindings { tables: 1, rows: 2, repaired: 0, remains: true });
        let message = Some("compared 9 rows of 1 table: 2 rows in 1 table differ".to_owned());
        let job = Job { state: JobState::Finished, found, message, ended_ms: Some(2_000), ..job() };
        let list = table_text(std::slice::from_ref(&job));
        assert!(list.contains("finished") && list.contains("2 rows in 1 table differ"), "{list}");
        let text = details_text(&JobDetails { job, log: Vec::new() });
        for part in ["result    2 rows in 1 table differ", "message   compared 9 rows"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn details_tell_who_has_cancelled_the_job() {
        let cancellation = JobCancellation { by: "bert".to_owned(), at_ms: 1000 };
        let job = Job {
            state: JobState::Cancelled,
            cancellation: Some(cancellation),
            message: Some("cancelled by bert: kept".to_owned()),
            ended_ms: Some(2_000),
            ..job()
        };
        let log = vec![JobLogLine { at_ms: 1000, text: "line\u{1b}[31m".to_owned() }];
        let text = details_text(&JobDetails { job, log });
        for part in
            ["state     cancelled", "by bert", "message   cancelled by bert: kept", "log\n", "100 rows/s"]
        {
            assert!(text.contains(part), "the details lack {part:?}: {text}");
        }
        assert!(
            !text.contains('\u{1b}') && !text.contains("\nleft"),
            "the details have an escape code or a remaining time: {text}"
        );
    }
}
