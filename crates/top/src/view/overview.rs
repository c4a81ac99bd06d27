//! The first screen: problems, sources, the readers of the binlog servers, and the log's disk.

use ratatui::text::Line;
use tailwater_daemon::api::captures::LogArchiveSnapshot;
use tailwater_daemon::api::daemon_status::{ReaderStatus, SourceStatus};

use super::job_list;
use super::number_with_unit::{self, UNKNOWN, or_unknown};
use super::problem_list::{problem, wrapped};
use super::screen_layout::{Body, Picture};
use super::terminal_style::Tone;
use super::text_table::{Column, ColumnKind, TableCell, table};
use crate::daemon_answer::DaemonAnswer;

/// The lines of a cause or a remedy on this screen. The list of all problems has the whole text.
const PROBLEM_LINES_MAX: usize = 2;

pub(super) fn body(picture: &Picture<'_>, width: usize, height: Option<usize>) -> Body {
    let Some(state) = picture.model.state() else { return Body::scrolling(Vec::new()) };
    let mut lines = problems(picture, state, width, height);
    lines.extend(sources(picture, state, width));
    lines.extend(readers(picture, state, width));
    lines.extend(disk(picture, state, width));
    for capture in &state.counters.captures {
        if let Some(archive) = &capture.log.archive {
            let text = format!("{}: {}", capture.report.source, archive_text(archive));
            lines.extend(labelled("ARCHIVE", &text, width, picture));
        }
    }
    if let Some(text) = job_list::summary(&state.jobs) {
        lines.extend(labelled("JOBS", &text, width, picture));
    }
    Body::scrolling(lines)
}

/// The first problems, in at most half of the height.
fn problems(
    picture: &Picture<'_>,
    state: &DaemonAnswer,
    width: usize,
    height: Option<usize>,
) -> Vec<Line<'static>> {
    let problems = &state.status.problems;
    let (lines_max, room) = match height {
        Some(height) => (PROBLEM_LINES_MAX, (height / 2).max(4)),
        None => (usize::MAX, usize::MAX),
    };
    let mut lines = Vec::new();
    for (number, one) in problems.iter().enumerate() {
        let more = problem(one, width, lines_max, picture.style);
        if number > 0 && lines.len() + more.len() > room {
            let rest = problems.len() - number;
            lines.push(Line::from(format!("  {rest} more: press Enter to see all problems in full")));
            break;
        }
        lines.extend(more);
    }
    if !lines.is_empty() {
        lines.push(Line::default());
    }
    lines
}

fn sources(picture: &Picture<'_>, state: &DaemonAnswer, width: usize) -> Vec<Line<'static>> {
    use ColumnKind::{Name, Number, Text};
    let column = |title, kind, optional| Column { title, kind, optional };
    let columns = [
        column("SOURCE", Name, 0),
        column("SERVER", Name, 2),
        column("CAPTURE", Text, 0),
        column("DURABLE TO", Text, 0),
        column("WRITTEN/S", Number, 0),
        column("TRX/S", Number, 0),
        column("BEHIND TRX", Number, 3),
        column("HEARD AGO", Number, 0),
        column("SEMI-SYNC", Text, 0),
        column("ACKERS", Text, 4),
    ];
    let rows: Vec<_> = state.status.sources.iter().map(|source| source_row(picture, state, source)).collect();
    match rows.is_empty() {
        true => vec![Line::from("This daemon captures no source.")],
        false => table(&columns, &rows, None, width, picture.style),
    }
}

fn source_row(picture: &Picture<'_>, state: &DaemonAnswer, source: &SourceStatus) -> Vec<TableCell> {
    let rates = picture.model.source_rates(&source.source);
    let capture = match source.state.as_str() {
        "streaming" => TableCell::new(Tone::Good, "streaming"),
        other => TableCell::new(Tone::Bad, other.replace('_', " ")),
    };
    let semi_sync = match source.semi_sync_in_force {
        Some(true) => TableCell::new(Tone::Good, "in force"),
        Some(false) => TableCell::new(Tone::Bad, "NOT IN FORCE"),
        None => TableCell::from("off"),
    };
    let ackers = state.capture(&source.source).and_then(|capture| capture.ackers);
    vec![
        TableCell::from(&source.source),
        TableCell::from(&source.server),
        capture,
        TableCell::from(&source.durable),
        TableCell::from(or_unknown(rates.bytes, number_with_unit::bytes)),
        TableCell::from(or_unknown(rates.transactions, number_with_unit::count)),
        TableCell::from(or_unknown(source.behind_transactions, |count| {
            number_with_unit::count(count as f64)
        })),
        TableCell::from(
            source
                .heard_ago_ms
                .map_or_else(|| "never".to_owned(), |ms| number_with_unit::seconds(ms as f64 / 1e3)),
        ),
        semi_sync,
        TableCell::from(or_unknown(ackers, |ackers| format!("{} of {}", ackers.connected, ackers.needed))),
    ]
}

fn readers(picture: &Picture<'_>, state: &DaemonAnswer, width: usize) -> Vec<Line<'static>> {
    use ColumnKind::{Name, Number, Text};
    let column = |title, kind, optional| Column { title, kind, optional };
    let columns = [
        column("READER", Name, 0),
        column("LOG OF", Name, 0),
        column("ADDRESS", Text, 2),
        column("SENT TO", Text, 1),
        column("UNREAD", Number, 0),
        column("LAG", Number, 0),
        column("BEHIND TRX", Number, 3),
    ];
    let servers = &state.status.binlog_servers;
    let rows: Vec<_> = servers
        .iter()
        .flat_map(|server| server.readers.iter().map(|reader| reader_row(state, &server.source, reader)))
        .collect();
    if servers.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![Line::default()];
    match rows.is_empty() {
        true => lines.push(Line::from("Nothing reads from the binlog servers.")),
        false => lines.extend(table(&columns, &rows, None, width, picture.style)),
    }
    lines
}

fn reader_row(state: &DaemonAnswer, source: &str, reader: &ReaderStatus) -> Vec<TableCell> {
    let name = match (&reader.name, reader.server_id) {
        (Some(name), _) => name.clone(),
        (None, 0) => "a program".to_owned(),
        (None, id) => format!("server_id {id}"),
    };
    let log_name = format!("replica {}", reader.server_id);
    let unread = state.capture(source).and_then(|capture| {
        let stored = capture.log.readers.iter().find(|stored| stored.name == log_name)?;
        Some(stored.behind_bytes)
    });
    let clusters = state.status.clusters.iter().filter(|cluster| cluster.source == source);
    let mut servers = clusters.flat_map(|cluster| &cluster.servers);
    let server = servers.find(|server| Some(&server.name) == reader.name.as_ref());
    let (lag, behind) =
        server.map_or((None, None), |server| (server.lag_seconds, server.behind_transactions));
    vec![
        TableCell::from(name),
        TableCell::from(source),
        TableCell::from(&reader.peer),
        TableCell::from(&reader.sent),
        TableCell::from(or_unknown(unread, |bytes| number_with_unit::bytes(bytes as f64))),
        TableCell::from(or_unknown(lag, number_with_unit::seconds)),
        TableCell::from(or_unknown(behind, |count| number_with_unit::count(count as f64))),
    ]
}

fn disk(picture: &Picture<'_>, state: &DaemonAnswer, width: usize) -> Vec<Line<'static>> {
    let disk = &state.status.log_disk;
    let text = match &disk.space {
        Some(space) => {
            let full = state.counters.log_disk.full_in_seconds;
            format!(
                "log {}, {} of {} free{}; in {}",
                number_with_unit::bytes(space.log_bytes as f64),
                number_with_unit::bytes(space.free_bytes as f64),
                number_with_unit::bytes(space.total_bytes as f64),
                full.map(|full| format!(", full in {}", number_with_unit::seconds(full))).unwrap_or_default(),
                disk.directory
            )
        }
        None => format!("{}: {}", disk.directory, disk.problem.as_deref().unwrap_or(UNKNOWN)),
    };
    std::iter::once(Line::default()).chain(labelled("LOG DISK", &text, width, picture)).collect()
}

/// Returns what the archive lacks, and what the archiver does. The problems above say why it fails.
fn archive_text(archive: &LogArchiveSnapshot) -> String {
    let waiting = match archive.waiting {
        Some(waiting) if waiting.segments > 0 => {
            format!(
                "{} of segments wait ({})",
                number_with_unit::bytes(waiting.bytes as f64),
                waiting.segments
            )
        }
        Some(_) => "complete".to_owned(),
        None => "not known yet".to_owned(),
    };
    match (&archive.problem, archive.current) {
        (Some(problem), _) => format!("FAILS with {}; {waiting}", problem.code),
        (None, Some(current)) => {
            let percent = current.bytes.saturating_mul(100).checked_div(current.bytes_total).unwrap_or(0);
            let step = if current.is_read_back { "reads back" } else { "uploads" };
            format!("{step} segment {} ({percent} %); {waiting}", current.segment)
        }
        (None, None) => waiting,
    }
}

/// Returns a text in at most two lines, after a label with the style of a title.
fn labelled(label: &'static str, text: &str, width: usize, picture: &Picture<'_>) -> Vec<Line<'static>> {
    let text = format!("{label:8}  {text}");
    let mut lines: Vec<_> = wrapped(&text, "          ", width, 2).into_iter().map(Line::from).collect();
    if let Some(first) = lines.first_mut() {
        let rest = first.to_string().chars().skip(label.len()).collect::<String>();
        *first = Line::from(vec![picture.style.span(Tone::Title, label), rest.into()]);
    }
    lines
}
