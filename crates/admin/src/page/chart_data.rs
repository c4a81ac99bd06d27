//! Charts of the last hour and day: which lines they have, and their points as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tailwater_chart_history::{HistoryKind, HistoryPeriod, HistoryPoint};
use tailwater_daemon::api::daemon_snapshot::DaemonSnapshot;
use tailwater_daemon::chart_history::ChartHistory;
use tailwater_topology::NodeRole;

use super::PageState;
use super::page_error::PageError;

/// The maximum number of lines of a chart. With more lines, their colours would be hard to distinguish.
const LINES_MAX: usize = 8;

/// A chart with its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChartFigure {
    pub(super) id: String,
    pub(super) title: String,
    /// How values are written: `bytes`, `byte_rate`, `rate`, `seconds`, `duration`, `count`.
    pub(super) unit: &'static str,
    pub(super) lines: Vec<ChartLine>,
}

/// A line: one value of one series of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChartLine {
    pub(super) series: String,
    pub(super) value: &'static str,
    pub(super) label: String,
}

impl ChartFigure {
    fn new(
        id: impl Into<String>,
        title: impl Into<String>,
        unit: &'static str,
        lines: Vec<ChartLine>,
    ) -> Self {
        Self { id: id.into(), title: title.into(), unit, lines }
    }

    /// The lines as the script reads them.
    pub(super) fn lines_json(&self) -> String {
        let line = |line: &ChartLine| serde_json::json!({ "query": format!("{}:{}", line.series, line.value), "label": line.label });
        serde_json::Value::Array(self.lines.iter().map(line).collect()).to_string()
    }
}

fn line(series: String, value: &'static str, label: impl Into<String>) -> ChartLine {
    ChartLine { series, value, label: label.into() }
}

/// What the sources write.
pub(super) fn write_chart(snapshot: &DaemonSnapshot) -> Option<ChartFigure> {
    let sources = snapshot.captures.iter().map(|capture| &capture.report.source);
    let lines: Vec<_> = sources
        .map(|source| line(format!("source/{source}"), "bytes_per_second", source))
        .take(LINES_MAX)
        .collect();
    (!lines.is_empty()).then(|| ChartFigure::new("chart-writes", "Written to the logs", "byte_rate", lines))
}

/// The lag of channels and replicas.
pub(super) fn lag_chart(snapshot: &DaemonSnapshot) -> Option<ChartFigure> {
    let channels = snapshot.channels.iter().map(|channel| &channel.status.name);
    let channels =
        channels.map(|name| line(format!("channel/{name}"), "lag_seconds", format!("channel {name}")));
    let nodes = snapshot.clusters.iter().flat_map(|cluster| {
        let all = cluster.view.cluster.nodes.iter().flat_map(|root| root.walk());
        all.filter(|node| node.role == NodeRole::Replica)
            .map(|node| line(format!("server/{}/{}", cluster.source, node.name), "lag_seconds", &node.name))
    });
    let lines: Vec<_> = channels.chain(nodes).take(LINES_MAX).collect();
    (!lines.is_empty())
        .then(|| ChartFigure::new("chart-lag", "Lag of channels and replicas", "seconds", lines))
}

/// The lag of channels.
pub(super) fn channels_lag_chart(channels: &[&str]) -> Option<ChartFigure> {
    let lines = channels.iter().map(|name| line(format!("channel/{name}"), "lag_seconds", *name));
    let lines: Vec<_> = lines.take(LINES_MAX).collect();
    (!lines.is_empty()).then(|| ChartFigure::new("chart-channel-lag", "Lag", "seconds", lines))
}

/// The charts of a source.
pub(super) fn source_charts(source: &str) -> Vec<ChartFigure> {
    let of = |value, label| line(format!("source/{source}"), value, label);
    vec![
        ChartFigure::new(
            "chart-bytes",
            "Written to the log",
            "byte_rate",
            vec![of("bytes_per_second", "bytes")],
        ),
        ChartFigure::new(
            "chart-transactions",
            "Transactions and ACKs",
            "rate",
            vec![of("transactions_per_second", "transactions"), of("acks_per_second", "ACKs")],
        ),
        ChartFigure::new(
            "chart-behind",
            "Transactions that the log lacks",
            "count",
            vec![of("behind_transactions", "transactions")],
        ),
        ChartFigure::new(
            "chart-sync",
            "Duration of a sync to the disk, mean",
            "duration",
            vec![of("sync_seconds", "sync")],
        ),
    ]
}

/// The charts of a channel.
pub(super) fn channel_charts(channel: &str) -> Vec<ChartFigure> {
    let of = |value, label| line(format!("channel/{channel}"), value, label);
    vec![
        ChartFigure::new("chart-lag", "Lag", "seconds", vec![of("lag_seconds", "lag")]),
        ChartFigure::new(
            "chart-rate",
            "Applied",
            "rate",
            vec![of("transactions_per_second", "transactions"), of("rows_per_second", "rows")],
        ),
        ChartFigure::new(
            "chart-buffer",
            "Read, not yet applied",
            "bytes",
            vec![of("buffered_bytes", "bytes")],
        ),
    ]
}

pub(super) fn routes() -> Router<PageState> {
    Router::new().route("/charts", get(chart))
}

#[derive(Debug, Deserialize)]
struct ChartQuery {
    /// The lines, each `SERIES:VALUE`, separated by `|`.
    lines: String,
    #[serde(default)]
    period: HistoryPeriod,
}

/// The points of a chart, as uPlot takes them: one array of times, then one of values for each line.
#[derive(Debug, Default, PartialEq, Serialize)]
struct ChartPoints {
    from: u64,
    to: u64,
    times: Vec<u64>,
    lines: Vec<Vec<Option<f32>>>,
}

async fn chart(
    State(state): State<PageState>,
    Query(query): Query<ChartQuery>,
) -> Result<Response, PageError> {
    let Some(history) = state.control.state().history.clone() else {
        return Err(PageError::failed(
            "The file with the history cannot be opened; the daemon's log says why.",
        ));
    };
    let read = tokio::task::spawn_blocking(move || points(&history, &query)).await;
    let points = read.map_err(|error| PageError::failed(error.to_string()))?;
    Ok(Json(points.map_err(|error| PageError::failed(format!("The history cannot be read: {error}")))?)
        .into_response())
}

fn points(history: &Arc<ChartHistory>, query: &ChartQuery) -> std::io::Result<ChartPoints> {
    let mut lines = Vec::new();
    for text in query.lines.split('|').take(LINES_MAX) {
        let found = text.rsplit_once(':').and_then(|(series, value)| {
            let index = HistoryKind::of(series)?.values().iter().position(|name| *name == value)?;
            Some((series, index))
        });
        lines.push(match found {
            Some((series, index)) => {
                let points = history.points(series, query.period)?;
                points.iter().map(|point| value_at(point, index)).collect()
            }
            None => Vec::new(),
        });
    }
    let now = u64::try_from(chrono::Utc::now().timestamp()).unwrap_or_default();
    Ok(aligned(&lines, now.saturating_sub(query.period.seconds()), now, query.period.step_seconds()))
}

fn value_at(point: &HistoryPoint, index: usize) -> (u64, f32) {
    (point.at_seconds, point.values[index])
}

/// Puts lines over the same times. A line has a gap where a point is missing or not known.
fn aligned(lines: &[Vec<(u64, f32)>], from: u64, to: u64, step: u64) -> ChartPoints {
    // Series that are recorded together have the same time, or times in the same step.
    let mut rows: BTreeMap<u64, Vec<Option<f32>>> = BTreeMap::new();
    for (index, line) in lines.iter().enumerate() {
        for (at, value) in line {
            let row = rows.entry(at / step * step).or_insert_with(|| vec![None; lines.len()]);
            row[index] = value.is_finite().then_some(*value);
        }
    }
    // Where nothing was recorded, there is a row without values, so that no line is drawn across.
    let times: Vec<u64> = rows.keys().copied().collect();
    for pair in times.windows(2) {
        if pair[1] - pair[0] > 3 * step {
            rows.insert(pair[0] + step, vec![None; lines.len()]);
        }
    }
    ChartPoints {
        from,
        to,
        times: rows.keys().copied().collect(),
        lines: (0..lines.len()).map(|index| rows.values().map(|row| row[index]).collect()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_share_their_times_and_keep_their_gaps() {
        let one = vec![(100, 1.0), (110, 2.0), (200, 3.0)];
        let other = vec![(111, 5.0), (200, f32::NAN)];
        let points = aligned(&[one, other, Vec::new()], 0, 300, 10);
        assert_eq!(points.times, [100, 110, 120, 200]);
        assert_eq!(points.lines[0], [Some(1.0), Some(2.0), None, Some(3.0)]);
        assert_eq!(points.lines[1], [None, Some(5.0), None, None]);
        assert_eq!(points.lines[2], [None; 4]);
    }
}
