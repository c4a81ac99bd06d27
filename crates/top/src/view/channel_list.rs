//! The channels, and what is wrong with the selected one.

use ratatui::text::Line;
use tailwater_daemon::api::channels::{ChannelState, ChannelStatus, WorkerState};

use super::number_with_unit::{self, or_unknown};
use super::problem_list::wrapped;
use super::screen_layout::{Body, Picture};
use super::terminal_style::Tone;
use super::text_table::{Column, ColumnKind, TableCell, table};
use super::{ChannelSort, TopView};
use crate::model::AnswerHistory;

/// The lines below the table that describe the selected channel.
const SELECTED_LINES_MAX: usize = 6;

/// Returns the channels in the order of the view.
pub(super) fn sorted_channels<'m>(view: &TopView, model: &'m AnswerHistory) -> Vec<&'m ChannelStatus> {
    let Some(state) = model.state() else { return Vec::new() };
    let mut channels: Vec<&ChannelStatus> = state.status.channels.iter().collect();
    match view.sort {
        ChannelSort::Name => {}
        ChannelSort::Lag => channels.sort_by(|one, other| urgency(other).total_cmp(&urgency(one))),
        ChannelSort::Rate => {
            let rate = |channel: &ChannelStatus| rate(model, channel).unwrap_or(0.0);
            channels.sort_by(|one, other| rate(other).total_cmp(&rate(one)));
        }
    }
    channels
}

/// The sort key of a channel: its lag, or a greater number if the channel does not run.
fn urgency(channel: &ChannelStatus) -> f64 {
    match channel.state {
        ChannelState::Failed => f64::INFINITY,
        ChannelState::Stopped => f64::MAX,
        ChannelState::Connecting => f64::MAX / 2.0,
        ChannelState::Running => channel.lag_seconds.unwrap_or(0.0),
    }
}

/// Transactions per second, by the counters. The channel's own rate is used until there are two answers.
pub(super) fn rate(model: &AnswerHistory, channel: &ChannelStatus) -> Option<f64> {
    let own = Some(channel.transactions_per_second).filter(|_| channel.state == ChannelState::Running);
    model.channel_rates(&channel.name).transactions.or(own)
}

/// Returns the state as a word, and how it looks.
pub(super) fn state_cell(channel: &ChannelStatus) -> TableCell {
    match channel.state {
        ChannelState::Running => TableCell::new(Tone::Good, "running"),
        ChannelState::Connecting => TableCell::new(Tone::Warning, "connecting"),
        ChannelState::Stopped => TableCell::new(Tone::Warning, "STOPPED"),
        ChannelState::Failed => TableCell::new(Tone::Bad, "FAILED"),
    }
}

pub(super) fn body(picture: &Picture<'_>, width: usize, height: Option<usize>) -> Body {
    let channels = sorted_channels(picture.view, picture.model);
    if channels.is_empty() {
        return Body::scrolling(vec![Line::from(
            "This daemon has no channels. A channel applies the log to a server.",
        )]);
    }
    let selected = picture.view.selected(&channels);
    let below = selected_lines(picture, channels[selected], width);
    // The title lines, and an empty line before the text of the selected channel.
    let room = height.map_or(channels.len(), |height| height.saturating_sub(below.len() + 3)).max(1);
    let first = (selected + 1).saturating_sub(room);
    let shown: Vec<_> = channels.iter().skip(first).take(room).collect();
    let rows: Vec<_> =
        shown.iter().enumerate().map(|(number, one)| row(picture, one, first + number == selected)).collect();
    let count = match (channels.len(), shown.len()) {
        (all, shown) if shown < all => format!("CHANNELS {}-{} of {all}", first + 1, first + shown),
        (all, _) => format!("CHANNELS: {all}"),
    };
    let title = format!("{count}, sorted by {}", picture.view.sort.title());
    let mut lines = vec![Line::from(picture.style.span(Tone::Title, title))];
    lines.extend(table(&columns(), &rows, Some(selected - first), width, picture.style));
    lines.push(Line::default());
    lines.extend(below);
    Body { lines, scrolls: false }
}

fn columns() -> [Column; 10] {
    use ColumnKind::{Name, Number, Text};
    let column = |title, kind, optional| Column { title, kind, optional };
    [
        column("  CHANNEL", Name, 0),
        column("SOURCE", Name, 3),
        column("STATE", Text, 0),
        column("LAG", Number, 0),
        column("TRX/S", Number, 0),
        column("ROWS/S", Number, 0),
        column("BUSY", Text, 0),
        column("WAITING", Number, 0),
        column("BUFFERED", Number, 2),
        column("ERROR", Text, 0),
    ]
}

fn row(picture: &Picture<'_>, channel: &ChannelStatus, is_selected: bool) -> Vec<TableCell> {
    let source = picture.model.state().map_or("", |state| state.source_of_channel(&channel.name));
    let busy = channel.worker_states.iter().filter(|worker| worker.state != WorkerState::Idle).count();
    let is_running = channel.state == ChannelState::Running;
    let if_running = |text: String| if is_running { text } else { number_with_unit::UNKNOWN.to_owned() };
    vec![
        TableCell::from(format!("{} {}", if is_selected { '>' } else { ' ' }, channel.name)),
        TableCell::from(source),
        state_cell(channel),
        TableCell::from(or_unknown(channel.lag_seconds, number_with_unit::seconds)),
        TableCell::from(or_unknown(rate(picture.model, channel), number_with_unit::count)),
        TableCell::from(or_unknown(picture.model.channel_rates(&channel.name).rows, number_with_unit::count)),
        TableCell::from(if_running(format!("{busy} of {}", channel.workers))),
        TableCell::from(if_running(number_with_unit::count(channel.waiting_transactions as f64))),
        TableCell::from(number_with_unit::bytes(channel.buffered_bytes as f64)),
        TableCell::new(Tone::Bad, channel.fault.as_ref().map_or("", |fault| &fault.code)),
    ]
}

fn selected_lines(picture: &Picture<'_>, channel: &ChannelStatus, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let newest = Some(channel.newest_gtid.as_str()).filter(|gtid| !gtid.is_empty());
    let applied = format!("{}: newest applied GTID {}", channel.name, newest.unwrap_or("none yet"));
    lines.extend(wrapped(&applied, "  ", width, 1).into_iter().map(Line::from));
    for (tone, text) in reasons(picture, channel) {
        let wrapped = wrapped(&text, "  ", width, 3).into_iter();
        lines.extend(wrapped.map(|line| Line::from(picture.style.span(tone, line))));
    }
    lines.truncate(SELECTED_LINES_MAX);
    lines
}

/// Returns why the channel does not do what it should, and what to do.
pub(super) fn reasons(picture: &Picture<'_>, channel: &ChannelStatus) -> Vec<(Tone, String)> {
    let mut reasons = Vec::new();
    if let Some(fault) = &channel.fault {
        reasons.push((Tone::Bad, format!("! {}: {}", fault.code, fault.message)));
    }
    if let Some(reason) = &channel.stop_reason {
        reasons.push((Tone::Warning, format!("! stopped: {reason}")));
    }
    if let Some(problem) = &channel.capture_problem {
        reasons.push((Tone::Warning, format!("! the source is not captured: {problem}")));
    }
    let object = format!("channel {}", channel.name);
    let problems = picture.model.state().into_iter().flat_map(|state| &state.status.problems);
    for problem in problems.filter(|problem| problem.object == object) {
        if reasons.is_empty() {
            reasons.push((Tone::Bad, format!("! {}: {}", problem.code, problem.text)));
        }
        reasons.push((Tone::Plain, format!("  what to do: {}", problem.remedy)));
    }
    reasons
}
