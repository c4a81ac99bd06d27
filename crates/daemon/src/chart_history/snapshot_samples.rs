//! Selects the figures of a snapshot that are recorded in the chart history. This module does no I/O.

use std::collections::BTreeMap;

use tailwater_chart_history::{HistoryKind, HistoryPoint, VALUES_MAX};

use crate::api::daemon_snapshot::DaemonSnapshot;
use crate::status::status_report::{is_own_relay, nodes};

/// Counters that only grow while the daemon runs, by the name of their series.
pub(super) type SampledTotals = BTreeMap<String, [u64; TOTALS]>;

/// How many counters a series has at most.
const TOTALS: usize = 5;

/// The values of one series; NaN if unknown.
type Values = [f32; VALUES_MAX];

/// Returns the values of each series, and the counters for the next call. `earlier` has the counters of the
/// last call, and the seconds since that call.
pub(super) fn samples(
    snapshot: &DaemonSnapshot,
    earlier: Option<(&SampledTotals, f64)>,
) -> (Vec<(String, Values)>, SampledTotals) {
    let mut counters = SampledTotals::new();
    let mut found = Vec::new();
    let mut rates = |series: &str, present: [u64; TOTALS]| {
        counters.insert(series.to_owned(), present);
        let earlier = earlier.and_then(|(counters, seconds)| Some((counters.get(series)?, seconds)));
        let mut rates = [f32::NAN; TOTALS];
        if let Some((before, seconds)) = earlier.filter(|(_, seconds)| *seconds > 0.0) {
            for (rate, (before, now)) in rates.iter_mut().zip(before.iter().zip(present)) {
                *rate = (now.saturating_sub(*before) as f64 / seconds) as f32;
            }
        }
        rates
    };
    for capture in &snapshot.captures {
        let series = format!("source/{}", capture.report.source);
        let log = &capture.log;
        let totals = [
            capture.event_bytes_total,
            capture.transactions_total,
            capture.acks_total,
            log.sync_counts.iter().map(|(_, count)| count).sum(),
            (log.sync_seconds_total * 1e6) as u64,
        ];
        let [bytes, transactions, acks, syncs, sync_micros] = rates(&series, totals);
        // If the log was not synced, the duration of a sync is unknown: 0 / 0 is NaN.
        let sync_seconds = sync_micros / syncs / 1e6;
        let cluster = snapshot.clusters.iter().find(|cluster| cluster.source == capture.report.source);
        let own =
            cluster.and_then(|cluster| nodes(&cluster.view.cluster).find(|(_, node)| is_own_relay(node)));
        let comparison =
            own.filter(|_| capture.report.is_streaming).and_then(|(_, node)| node.gtid_state.as_ref());
        let behind = known(comparison.map(|comparison| comparison.behind as f64));
        let heard = known(capture.report.heard_ago_ms.map(|ms| ms as f64 / 1000.0));
        found.push((series, values(&[bytes, transactions, acks, behind, heard, sync_seconds])));
    }
    for channel in &snapshot.channels {
        let status = &channel.status;
        let series = format!("channel/{}", status.name);
        let [transactions, rows, ..] =
            rates(&series, [status.transactions_total, status.rows_total, 0, 0, 0]);
        let lag = known(status.lag_seconds);
        found.push((series, values(&[lag, transactions, rows, status.buffered_bytes as f32])));
    }
    for cluster in &snapshot.clusters {
        for (_, node) in nodes(&cluster.view.cluster).filter(|(_, node)| !is_own_relay(node)) {
            let behind = node.gtid_state.as_ref().map(|comparison| comparison.behind as f64);
            let series = format!("server/{}/{}", cluster.source, node.name);
            let (lag, behind) = match node.reached {
                true => (known(node.lag_seconds), known(behind)),
                false => (f32::NAN, f32::NAN),
            };
            found.push((series, values(&[lag, behind])));
        }
    }
    (found, counters)
}

/// Returns the values of a minute, computed from the points of the minute: the mean of rates, and the maximum
/// of other values.
pub(super) fn aggregate(series: &str, points: &[HistoryPoint]) -> Values {
    let names = HistoryKind::of(series).map(HistoryKind::values).unwrap_or_default();
    let mut all = [f32::NAN; VALUES_MAX];
    for (index, name) in names.iter().enumerate() {
        let present = points.iter().map(|point| point.values[index]).filter(|value| !value.is_nan());
        all[index] = match name.ends_with("_per_second") {
            true => present.clone().sum::<f32>() / present.count() as f32,
            false => present.fold(f32::NAN, f32::max),
        };
    }
    all
}

fn known(value: Option<f64>) -> f32 {
    value.map_or(f32::NAN, |value| value as f32)
}

fn values(known: &[f32]) -> Values {
    let mut values = [f32::NAN; VALUES_MAX];
    values[..known.len()].copy_from_slice(known);
    values
}

#[cfg(test)]
mod tests {
    use tailwater_apply::channel::ChannelStatus;

    use super::*;
    use crate::api::channels::ChannelSnapshot;

    fn snapshot(transactions_total: u64, lag_seconds: Option<f64>) -> DaemonSnapshot {
        let status = ChannelStatus {
            name: "reports".to_owned(),
            transactions_total,
            lag_seconds,
            ..ChannelStatus::default()
        };
        let channels = vec![ChannelSnapshot { source: "orders".to_owned(), status }];
        DaemonSnapshot { channels, ..DaemonSnapshot::default() }
    }

    #[test]
    fn rates_need_an_earlier_sample_and_never_are_negative() {
        let (first, counters) = samples(&snapshot(100, None), None);
        assert_eq!(first[0].0, "channel/reports");
        assert!(first[0].1[..3].iter().all(|value| value.is_nan()), "the first sample has a rate: {first:?}");
        let (second, _) = samples(&snapshot(150, Some(1.5)), Some((&counters, 10.0)));
        assert_eq!(second[0].1[..3], [1.5, 5.0, 0.0]);
        let (restarted, _) = samples(&snapshot(0, None), Some((&counters, 10.0)));
        assert_eq!(restarted[0].1[1], 0.0);
    }

    #[test]
    fn a_minute_has_the_mean_rate_and_the_greatest_lag() {
        let point = |lag, rate| HistoryPoint { at_seconds: 1, values: values(&[lag, rate, f32::NAN]) };
        let minute =
            aggregate("channel/reports", &[point(1.0, 10.0), point(4.0, f32::NAN), point(2.0, 20.0)]);
        assert_eq!(minute[..2], [4.0, 15.0]);
        assert!(
            minute[2].is_nan() && minute[3].is_nan(),
            "the minute has values that no point has: {minute:?}"
        );
    }
}
