//! The jobs: long work of the daemon and of command lines, and how the selected one goes.

use ratatui::text::Line;
use tailwater_daemon::api::jobs::{Job, JobState};
use tailwater_daemon::jobs::job_text::{
    amount_text, has_ended_well, origin_text, percent, rate_text, result_text, state_text,
};

use super::TopView;
use super::number_with_unit::{self, or_unknown};
use super::problem_list::wrapped;
use super::screen_layout::{Body, Picture};
use super::terminal_style::Tone;
use super::text_table::{Column, ColumnKind, TableCell, cut, table};

/// The lines below the table that describe the selected job.
const SELECTED_LINES_MAX: usize = 7;

/// The steps of a bar.
const BAR_STEPS: usize = 10;

/// The longest text of a result in the table. The lines below have all of it.
const RESULT_WIDTH_MAX: usize = 28;

pub(super) fn body(picture: &Picture<'_>, width: usize, height: Option<usize>) -> Body {
    let Some(state) = picture.model.state() else { return Body::scrolling(Vec::new()) };
    let jobs = &state.jobs;
    if jobs.is_empty() {
        return Body::scrolling(vec![Line::from(
            "No jobs. A dump, load, copy, check, repair or rejoin is one.",
        )]);
    }
    let selected = selected(picture.view, jobs);
    let below = selected_lines(picture, &jobs[selected], width);
    // The title lines, and an empty line before the text of the selected job.
    let room = height.map_or(jobs.len(), |height| height.saturating_sub(below.len() + 3)).max(1);
    let first = (selected + 1).saturating_sub(room);
    let shown: Vec<_> = jobs.iter().skip(first).take(room).collect();
    let rows: Vec<_> =
        shown.iter().enumerate().map(|(number, job)| row(picture, job, first + number == selected)).collect();
    let running = jobs.iter().filter(|job| job.state == JobState::Running).count();
    let count = match (jobs.len(), shown.len()) {
        (all, shown) if shown < all => format!("JOBS {}-{} of {all}", first + 1, first + shown),
        (all, _) => format!("JOBS: {all}"),
    };
    let title = format!("{count}, {running} running");
    let mut lines = vec![Line::from(picture.style.span(Tone::Title, title))];
    lines.extend(table(&columns(), &rows, Some(selected - first), width, picture.style));
    lines.push(Line::default());
    lines.extend(below);
    Body { lines, scrolls: false }
}

/// Returns the index of the selected job; the first one if it is no longer listed.
pub(super) fn selected(view: &TopView, jobs: &[Job]) -> usize {
    jobs.iter().position(|job| Some(job.id) == view.job).unwrap_or(0)
}

/// Returns what runs now, in one line; `None` if nothing runs.
pub(super) fn summary(jobs: &[Job]) -> Option<String> {
    let running = jobs.iter().filter(|job| job.state == JobState::Running);
    let texts: Vec<_> = running
        .map(|job| {
            let percent = percent(job).map(|percent| format!(" {percent} %")).unwrap_or_default();
            format!("{} {}{percent}", job.kind.name(), job.id)
        })
        .collect();
    (!texts.is_empty()).then(|| format!("{} running: {}", texts.len(), texts.join(", ")))
}

fn columns() -> [Column; 7] {
    use ColumnKind::{Name, Number, Text};
    let column = |title, kind, optional| Column { title, kind, optional };
    [
        column("  JOB", Text, 0),
        column("STATE", Text, 0),
        column("PROGRESS OR RESULT", Text, 0),
        column("LEFT", Number, 0),
        column("AGE", Number, 1),
        column("STARTED BY", Name, 2),
        column("WORKS ON", Name, 0),
    ]
}

fn row(picture: &Picture<'_>, job: &Job, is_selected: bool) -> Vec<TableCell> {
    let tone = match job.state {
        JobState::Running if job.cancellation.is_none() => Tone::Good,
        JobState::Finished if has_ended_well(job) => Tone::Plain,
        JobState::Running | JobState::Finished | JobState::Cancelled => Tone::Warning,
        JobState::Failed | JobState::Lost => Tone::Bad,
    };
    let state = match job.state {
        JobState::Failed | JobState::Lost => state_text(job).to_uppercase(),
        JobState::Running if job.cancellation.is_none() => job.progress.phase.clone(),
        _ => state_text(job).to_owned(),
    };
    let done = match job.state {
        JobState::Running => percent(job).map(bar).or_else(|| amount_text(job)),
        _ => result_text(job).or_else(|| amount_text(job)),
    };
    let left_ms = job.progress.eta_ms.filter(|_| job.state == JobState::Running);
    let mark = if is_selected { '>' } else { ' ' };
    let now_ms = u64::try_from(picture.shown_at.wall.timestamp_millis()).unwrap_or(0);
    let seconds = |ms: u64| number_with_unit::seconds(ms as f64 / 1e3);
    vec![
        TableCell::from(format!("{mark} {} {}", job.kind.name(), job.id)),
        TableCell::new(tone, cut(&state, 12)),
        TableCell::from(cut(&or_unknown(done, |done| done), RESULT_WIDTH_MAX)),
        TableCell::from(or_unknown(left_ms, seconds)),
        TableCell::from(seconds(now_ms.saturating_sub(job.started_ms))),
        TableCell::from(origin_text(job)),
        TableCell::from(&job.subject),
    ]
}

/// Returns a bar with its figure: `[###-------]  31 %`.
fn bar(percent: u8) -> String {
    let full = usize::from(percent) * BAR_STEPS / 100;
    format!("[{}{}] {percent:3} %", "#".repeat(full), "-".repeat(BAR_STEPS.saturating_sub(full)))
}

fn selected_lines(picture: &Picture<'_>, job: &Job, width: usize) -> Vec<Line<'static>> {
    let first = format!("{} {}: {}, started by {}", job.kind.name(), job.id, job.subject, origin_text(job));
    let mut texts = vec![(Tone::Plain, 2, first)];
    let amount = amount_text(job).map(|amount| format!("{}: {amount}", job.progress.phase));
    let parts: Vec<_> = amount.into_iter().chain(rate_text(&job.progress)).collect();
    if !parts.is_empty() {
        texts.push((Tone::Plain, 1, parts.join(", ")));
    }
    if let Some(reason) = job.progress.waiting.as_ref().filter(|_| job.state == JobState::Running) {
        texts.push((Tone::Warning, 2, format!("! waits: {reason}")));
    }
    if let Some(cancellation) = job.cancellation.as_ref().filter(|_| job.state == JobState::Running) {
        texts.push((Tone::Warning, 1, format!("! cancelled by {}, and has not ended yet", cancellation.by)));
    }
    if let Some(message) = &job.message {
        let code = job.code.as_ref().map(|code| format!("{code}: ")).unwrap_or_default();
        let (tone, mark) = if has_ended_well(job) { (Tone::Plain, "") } else { (Tone::Bad, "! ") };
        texts.push((tone, 3, format!("{mark}{code}{message}")));
    }
    if job.state == JobState::Running && job.can_cancel && job.cancellation.is_none() {
        texts.push((Tone::Plain, 1, format!("  to end it: `tailwater job cancel {}`", job.id)));
    }
    let mut lines = Vec::new();
    for (tone, lines_max, text) in texts {
        let wrapped = wrapped(&text, "  ", width, lines_max).into_iter();
        lines.extend(wrapped.map(|line| Line::from(picture.style.span(tone, line))));
    }
    lines.truncate(SELECTED_LINES_MAX);
    lines
}
