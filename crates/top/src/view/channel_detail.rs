//! The selected channel in full, and its workers.

use ratatui::text::Line;
use tailwater_daemon::api::channels::{ChannelState, ChannelStatus, WorkerState, WorkerStatus};

use super::channel_list::{rate, reasons, sorted_channels};
use super::number_with_unit::{self, UNKNOWN, or_unknown};
use super::problem_list::wrapped;
use super::screen_layout::{Body, Picture};
use super::terminal_style::Tone;
use super::text_table::{Column, ColumnKind, TableCell, table};

/// The width of the names of values.
const LABEL: usize = 14;

pub(super) fn body(picture: &Picture<'_>, width: usize) -> Body {
    let channels = sorted_channels(picture.view, picture.model);
    let Some(channel) = channels.get(picture.view.selected(&channels)) else {
        return Body::scrolling(vec![Line::from("This channel does not exist any more.")]);
    };
    let mut lines = vec![Line::from(picture.style.span(Tone::Title, format!("CHANNEL {}", channel.name)))];
    for (tone, text) in reasons(picture, channel) {
        let text = wrapped(&text, "  ", width, usize::MAX).into_iter();
        lines.extend(text.map(|line| Line::from(picture.style.span(tone, line))));
    }
    for (label, text) in values(picture, channel) {
        let indent = " ".repeat(LABEL);
        lines
            .extend(wrapped(&format!("{label:LABEL$}{text}"), &indent, width, 4).into_iter().map(Line::from));
    }
    lines.push(Line::default());
    lines.extend(workers(picture, channel, width));
    Body::scrolling(lines)
}

fn values(picture: &Picture<'_>, channel: &ChannelStatus) -> Vec<(&'static str, String)> {
    let source = picture.model.state().map_or("", |state| state.source_of_channel(&channel.name));
    let state = match channel.state {
        ChannelState::Running => "running",
        ChannelState::Connecting => "connecting",
        ChannelState::Stopped => "stopped",
        ChannelState::Failed => "failed",
    };
    let delay = match channel.delay_seconds {
        0 => String::new(),
        delay => format!(", of which {} are the configured delay", number_with_unit::seconds(delay as f64)),
    };
    let rates = picture.model.channel_rates(&channel.name);
    let mut values = vec![
        ("state", format!("{state}, applies the log of {source}")),
        ("lag", or_unknown(channel.lag_seconds, number_with_unit::seconds) + &delay),
        (
            "rate",
            format!(
                "{} transactions/s, {} rows/s",
                or_unknown(rate(picture.model, channel), number_with_unit::count),
                or_unknown(rates.rows, number_with_unit::count)
            ),
        ),
        (
            "since start",
            format!(
                "{} transactions, {} rows, {} commits on the target",
                channel.transactions_total, channel.rows_total, channel.commits_total
            ),
        ),
        (
            "waiting",
            format!(
                "{} transactions, {} in memory",
                channel.waiting_transactions,
                number_with_unit::bytes(channel.buffered_bytes as f64)
            ),
        ),
        (
            "applied to",
            format!(
                "log position {}, newest GTID {}",
                known(&channel.low_watermark),
                known(&channel.newest_gtid)
            ),
        ),
        ("GTIDs", known(&channel.gtids).to_owned()),
    ];
    if channel.yields_total > 0 {
        values
            .push(("split batches", format!("{}, because an older batch had stalled", channel.yields_total)));
    }
    if let Some(reason) = &channel.gtids_unpublished_reason {
        values.push(("not published", format!("the GTIDs are not set on the target: {reason}")));
    }
    if !channel.nontransactional_tables.is_empty() {
        let tables = channel.nontransactional_tables.join(", ");
        values.push(("no rollback", format!("tables without transactions: {tables}")));
    }
    values
}

fn known(text: &str) -> &str {
    if text.is_empty() { UNKNOWN } else { text }
}

fn workers(picture: &Picture<'_>, channel: &ChannelStatus, width: usize) -> Vec<Line<'static>> {
    use ColumnKind::{Number, Text};
    if channel.worker_states.is_empty() {
        return vec![Line::from(format!("WORKERS: none is connected; {} are configured", channel.workers))];
    }
    let column = |title, kind, optional| Column { title, kind, optional };
    let columns = [
        column("WORKER", Number, 0),
        column("STATE", Text, 0),
        column("BATCH TRX", Number, 0),
        column("FOR", Number, 0),
        column("BUSY", Number, 0),
        column("TRX APPLIED", Number, 0),
        column("CONFLICTS", Number, 1),
    ];
    let rows: Vec<_> = channel
        .worker_states
        .iter()
        .enumerate()
        .map(|(number, worker)| worker_row(picture, channel, number, worker))
        .collect();
    table(&columns, &rows, None, width, picture.style)
}

fn worker_row(
    picture: &Picture<'_>,
    channel: &ChannelStatus,
    number: usize,
    worker: &WorkerStatus,
) -> Vec<TableCell> {
    let (tone, state) = match worker.state {
        WorkerState::Idle => (Tone::Minor, "idle"),
        WorkerState::Applying => (Tone::Good, "applying"),
        WorkerState::WaitingForBatch => (Tone::Warning, "waits for an earlier batch"),
        WorkerState::WaitingForLog => (Tone::Warning, "waits for the log's sync"),
    };
    let has_batch = worker.state != WorkerState::Idle;
    let of_batch = |text: String| if has_batch { text } else { UNKNOWN.to_owned() };
    let busy = picture.model.worker_busy(&channel.name, number);
    vec![
        TableCell::from((number + 1).to_string()),
        TableCell::new(tone, state),
        TableCell::from(of_batch(worker.batch_transactions.to_string())),
        TableCell::from(of_batch(number_with_unit::seconds(worker.batch_seconds))),
        TableCell::from(or_unknown(busy, |share| format!("{:.0} %", share * 100.0))),
        TableCell::from(worker.transactions_total.to_string()),
        TableCell::from(worker.conflicts_total.to_string()),
    ]
}
