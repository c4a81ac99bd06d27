//! The channels, and one channel with its actions. Pure.

use askama::Template;
use tailwater_binlog_stats::number_format::{bytes, grouped};
use tailwater_daemon::api::channels::{ChannelSnapshot, ChannelState, ChannelStatus};

use super::chart_data::{ChartFigure, channel_charts, channels_lag_chart};
use super::display_format::{lag, path_segment, rate};
use super::page_layout::{Health, PageFrame};

/// Beyond this lag, in seconds, a channel is degraded.
const LAG_SECONDS_MAX: f64 = 10.0;

/// All channels.
#[derive(Debug, Template)]
#[template(path = "page/channels.html")]
pub(super) struct ChannelList {
    pub(super) frame: PageFrame,
    pub(super) channels: Vec<ChannelRow>,
    pub(super) charts: Vec<ChartFigure>,
}

/// One channel.
#[derive(Debug, Template)]
#[template(path = "page/channel.html")]
pub(super) struct ChannelDetail {
    pub(super) frame: PageFrame,
    pub(super) channel: ChannelRow,
    pub(super) actions: Vec<ActionButton>,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) notes: Vec<String>,
    pub(super) gtids: String,
    /// The filters in force, as in the configuration file.
    pub(super) filters: String,
    pub(super) charts: Vec<ChartFigure>,
}

/// A button that opens the dialog of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ActionButton {
    pub(super) label: &'static str,
    pub(super) path: String,
    pub(super) id: &'static str,
    pub(super) is_dangerous: bool,
}

/// A channel, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChannelRow {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) source: String,
    pub(super) state: &'static str,
    pub(super) health: Health,
    pub(super) lag: String,
    pub(super) rate: String,
    pub(super) workers: usize,
    pub(super) applied: String,
    pub(super) newest_gtid: String,
    /// The code and the message of the last error.
    pub(super) fault: Option<(String, String)>,
    pub(super) stop_reason: Option<String>,
}

/// The health of a channel; unknown for a stopped channel, which an operator may have stopped on purpose.
pub(super) fn health(status: &ChannelStatus) -> Health {
    let allowed = LAG_SECONDS_MAX + status.delay_seconds as f64;
    match status.state {
        ChannelState::Failed => Health::Failed,
        ChannelState::Stopped => Health::Unknown,
        ChannelState::Connecting => Health::Degraded,
        ChannelState::Running if status.fault.is_some() || status.capture_problem.is_some() => {
            Health::Degraded
        }
        ChannelState::Running if status.lag_seconds.is_some_and(|lag| lag > allowed) => Health::Degraded,
        ChannelState::Running => Health::Well,
    }
}

impl ChannelRow {
    pub(super) fn new(channel: &ChannelSnapshot) -> Self {
        let status = &channel.status;
        Self {
            name: status.name.clone(),
            path: format!("/channels/{}", path_segment(&status.name)),
            source: channel.source.clone(),
            state: state_word(status.state),
            health: health(status),
            lag: lag(status.lag_seconds),
            rate: rate(status.transactions_per_second),
            workers: status.workers,
            applied: grouped(status.transactions_total),
            newest_gtid: status.newest_gtid.clone(),
            fault: status.fault.as_ref().map(|fault| (fault.code.clone(), fault.message.clone())),
            stop_reason: status.stop_reason.clone(),
        }
    }
}

fn state_word(state: ChannelState) -> &'static str {
    match state {
        ChannelState::Connecting => "connecting",
        ChannelState::Running => "running",
        ChannelState::Stopped => "stopped",
        ChannelState::Failed => "failed",
    }
}

impl ChannelDetail {
    pub(super) fn new(frame: PageFrame, channel: &ChannelSnapshot) -> Self {
        let status = &channel.status;
        let row = ChannelRow::new(channel);
        Self {
            actions: actions(status, &row.path),
            facts: vec![
                ("Source", channel.source.clone()),
                ("Workers", status.workers.to_string()),
                ("Delay", format!("{} s", status.delay_seconds)),
                ("Transactions since the start", grouped(status.transactions_total)),
                ("Rows since the start", grouped(status.rows_total)),
                ("Commits on the target", grouped(status.commits_total)),
                ("Batches split for commit order", grouped(status.yields_total)),
                ("Read, not yet applied", bytes(status.buffered_bytes)),
                ("Applied in the log up to", status.low_watermark.clone()),
                ("GTIDs on the target", format!("{:?}", status.gtid).to_lowercase()),
                ("Version of the filters", status.filter_version.to_string()),
            ],
            notes: notes(status),
            gtids: match status.gtids.is_empty() {
                true => "nothing is applied yet".to_owned(),
                false => status.gtids.clone(),
            },
            filters: match filters_text(status) {
                Some(text) if text.is_empty() => "none: every table is applied".to_owned(),
                Some(text) => text,
                None => "not known before the channel has reached its target".to_owned(),
            },
            charts: channel_charts(&status.name),
            channel: row,
            frame,
        }
    }
}

/// The filters in force, as in `[channel.filters]`; empty if there are none, absent if they are not known.
pub(super) fn filters_text(status: &ChannelStatus) -> Option<String> {
    toml::to_string(status.filters.as_ref()?).ok()
}

fn notes(status: &ChannelStatus) -> Vec<String> {
    let mut notes = Vec::new();
    notes
        .extend(status.capture_problem.iter().map(|problem| format!("The log receives nothing: {problem}.")));
    notes.extend(
        status
            .gtids_unpublished_reason
            .iter()
            .map(|reason| format!("The applied GTIDs are not set on the target: {reason}.")),
    );
    if !status.nontransactional_tables.is_empty() {
        notes.push(format!(
            "Tables without transactions, where a retry repeats rows: {}.",
            status.nontransactional_tables.join(", ")
        ));
    }
    if !status.is_complete && status.state == ChannelState::Running {
        notes.push(
            "Because of filters or skipped transactions, the target does not have all data of the source."
                .to_owned(),
        );
    }
    notes
}

fn actions(status: &ChannelStatus, path: &str) -> Vec<ActionButton> {
    let button = |label, action: &'static str, is_dangerous| ActionButton {
        label,
        path: format!("{path}/{action}"),
        id: action,
        is_dangerous,
    };
    let mut buttons = Vec::new();
    let is_stopped = matches!(status.state, ChannelState::Stopped | ChannelState::Failed);
    if is_stopped {
        buttons.push(button("Start…", "start", false));
        buttons.push(button("Start, tolerating…", "tolerate", true));
    } else {
        buttons.push(button("Stop…", "stop", false));
    }
    buttons.push(button("Skip a transaction…", "skip", true));
    if is_stopped {
        buttons.push(button("Seek…", "seek", true));
    }
    buttons.push(button("Filters…", "filter", true));
    buttons.push(button("Settings…", "set", false));
    buttons
}

impl ChannelList {
    pub(super) fn new(frame: PageFrame, channels: &[ChannelSnapshot]) -> Self {
        let names: Vec<_> = channels.iter().map(|channel| channel.status.name.as_str()).collect();
        Self {
            frame,
            channels: channels.iter().map(ChannelRow::new).collect(),
            charts: channels_lag_chart(&names).into_iter().collect(),
        }
    }
}
