//! Writes the values of a scrape as OpenMetrics text.
//!
//! A metric family without samples is left out. An unknown value has no sample, so that no alert takes it for
//! 0.

use std::collections::BTreeSet;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tailwater_manager::FailoverReadiness;

use crate::api::captures::CaptureSnapshot;
use crate::api::channels::{ChannelSnapshot, ChannelState};
use crate::api::clusters::ClusterReport;
use crate::api::daemon_snapshot::DaemonSnapshot;

/// The media type of the text: OpenMetrics 1.0.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes the metrics of a snapshot as text.
///
/// # Errors
/// If the encoder refuses a value, for example an integer gauge above the maximum of `i64`.
pub fn render(snapshot: DaemonSnapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(MetricsCollector(snapshot)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Collects the metrics of a snapshot. Their labels contain only names and codes: no GTID, no value of a row,
/// no statement and no text of a server.
#[derive(Debug)]
struct MetricsCollector(DaemonSnapshot);

impl Collector for MetricsCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        families.version()?;
        self.encode_clusters(&mut families)?;
        self.encode_captures(&mut families)?;
        self.encode_capture_totals(&mut families)?;
        self.encode_channels(&mut families)
    }
}

impl MetricsCollector {
    fn encode_clusters(&self, families: &mut Families<'_>) -> fmt::Result {
        let managers: Vec<_> =
            self.0.clusters.iter().filter_map(|cluster| cluster.manager.as_ref()).collect();
        let reports = || managers.iter().map(|manager| &manager.report);
        families.gauge(
            "tailwater_manager_leader",
            None,
            "1 if this manager holds the lease of the cluster and may act",
            managers
                .iter()
                .map(|one| ([("cluster", one.report.source.as_str())], i64::from(one.holds_lease))),
        )?;
        let known = |report: &ClusterReport| !matches!(report.readiness, FailoverReadiness::Unknown { .. });
        families.gauge(
            "tailwater_manager_failover_readiness_known",
            None,
            "1 if it is known whether a failover would succeed now",
            reports().map(|one| ([("cluster", one.source.as_str())], i64::from(known(one)))),
        )?;
        families.gauge(
            "tailwater_manager_failover_ready",
            None,
            "1 if a failover would promote a server if the primary died now, 0 if a rule would refuse it",
            reports()
                .filter(|one| known(one))
                .map(|one| ([("cluster", one.source.as_str())], i64::from(one.readiness.rule().is_none()))),
        )?;
        families.gauge(
            "tailwater_manager_failover_refused_by",
            None,
            "1 for the safety rule that would refuse a failover now",
            reports().filter_map(|one| {
                Some(([("cluster", one.source.as_str()), ("rule", one.readiness.rule()?)], 1_i64))
            }),
        )?;
        // A set, because two samples with the same labels are not valid.
        let findings: BTreeSet<_> = reports()
            .flat_map(|one| one.findings.iter().map(|finding| (&one.source, &finding.code, &finding.server)))
            .collect();
        families.gauge(
            "tailwater_manager_findings",
            None,
            "1 for each finding of the manager",
            findings.into_iter().map(|(cluster, code, server)| {
                ([("cluster", cluster.as_str()), ("code", code), ("server", server)], 1_i64)
            }),
        )
    }

    fn encode_captures(&self, families: &mut Families<'_>) -> fmt::Result {
        let captures = &self.0.captures;
        families.gauge(
            "tailwater_capture_state",
            None,
            "1 for the present state of the capture, 0 for all other states",
            captures.iter().flat_map(|one| {
                CAPTURE_STATES.map(|state| {
                    (
                        [("source", one.report.source.as_str()), ("state", state)],
                        i64::from(one.state == state),
                    )
                })
            }),
        )?;
        families.gauge(
            "tailwater_capture_silence",
            Some(Unit::Seconds),
            "Time since an event or a heartbeat last came from the source",
            captures.iter().filter_map(|one| {
                let silence = std::time::Duration::from_millis(one.report.heard_ago_ms?);
                Some((of_source(one), silence.as_secs_f64()))
            }),
        )?;
        families.gauge(
            "tailwater_capture_semi_sync_in_force",
            None,
            "1 if commits on the source wait for this log, according to the last check of the source",
            captures.iter().filter_map(|one| Some((of_source(one), i64::from(one.semi_sync_in_force?)))),
        )?;
        families.gauge(
            "tailwater_capture_semi_sync_alarms",
            None,
            "1 for each alarm of the last check of semi-sync on the source",
            captures.iter().flat_map(|one| {
                let alarms = one.alarm_codes.iter();
                alarms.map(move |code| ([("source", one.report.source.as_str()), ("code", code)], 1_i64))
            }),
        )
    }

    fn encode_capture_totals(&self, families: &mut Families<'_>) -> fmt::Result {
        let captures = &self.0.captures;
        families.counter(
            "tailwater_capture_transactions",
            None,
            "Transactions appended to the log",
            captures.iter().map(|one| (of_source(one), one.transactions_total)),
        )?;
        families.counter(
            "tailwater_capture_event",
            Some(Unit::Bytes),
            "Bytes of events appended to the log",
            captures.iter().map(|one| (of_source(one), one.event_bytes_total)),
        )?;
        families.counter(
            "tailwater_capture_acks",
            None,
            "Semi-sync ACKs sent to the source",
            captures.iter().map(|one| (of_source(one), one.acks_total)),
        )?;
        families.counter(
            "tailwater_capture_connections",
            None,
            "Binlog streams opened from the source",
            captures.iter().map(|one| (of_source(one), one.connections_total)),
        )?;
        families.gauge(
            "tailwater_log_durable_segment",
            None,
            "Number of the segment that the durable end of the log is in, 0 for an empty log",
            captures.iter().map(|one| (of_source(one), one.durable_segment)),
        )?;
        families.gauge(
            "tailwater_log_durable_offset",
            Some(Unit::Bytes),
            "Offset of the durable end of the log in its segment",
            captures.iter().map(|one| (of_source(one), one.durable_offset)),
        )
    }

    fn encode_channels(&self, families: &mut Families<'_>) -> fmt::Result {
        let channels = &self.0.channels;
        families.gauge(
            "tailwater_apply_state",
            None,
            "1 for the present state of the channel, 0 for all other states",
            channels.iter().flat_map(|one| {
                let [channel, source] = of_channel(one);
                CHANNEL_STATES.map(|state| {
                    let is_current = channel_state(one.status.state) == state;
                    ([channel, source, ("state", state)], i64::from(is_current))
                })
            }),
        )?;
        families.gauge(
            "tailwater_apply_lag",
            Some(Unit::Seconds),
            "Age of the oldest transaction in the log that the channel has not applied, 0 if it has applied all",
            channels.iter().filter_map(|one| Some((of_channel(one), one.status.lag_seconds?))),
        )?;
        families.gauge(
            "tailwater_apply_fault",
            None,
            "1 for the error that stopped the channel, or after which the channel tries again",
            channels.iter().filter_map(|one| {
                let [channel, source] = of_channel(one);
                let code = one.status.fault.as_ref()?.code.as_str();
                Some(([channel, source, ("code", code)], 1_i64))
            }),
        )?;
        families.counter(
            "tailwater_apply_transactions",
            None,
            "Transactions applied to the target",
            channels.iter().map(|one| (of_channel(one), one.status.transactions_total)),
        )?;
        families.counter(
            "tailwater_apply_rows",
            None,
            "Rows applied to the target",
            channels.iter().map(|one| (of_channel(one), one.status.rows_total)),
        )?;
        families.counter(
            "tailwater_apply_commits",
            None,
            "Commits on the target, each of one or more transactions of the source",
            channels.iter().map(|one| (of_channel(one), one.status.commits_total)),
        )
    }
}

fn of_source(capture: &CaptureSnapshot) -> Labels<'_, 1> {
    [("source", capture.report.source.as_str())]
}

fn of_channel(channel: &ChannelSnapshot) -> Labels<'_, 2> {
    [("channel", channel.status.name.as_str()), ("source", channel.source.as_str())]
}

/// The names of all states of a capture.
pub const CAPTURE_STATES: [&str; 6] =
    ["connecting", "streaming", "waiting", "refused", "stopped_by_order", "stopped"];

/// The names of all states of a channel.
pub const CHANNEL_STATES: [&str; 4] = ["connecting", "running", "stopped", "failed"];

fn channel_state(state: ChannelState) -> &'static str {
    match state {
        ChannelState::Connecting => "connecting",
        ChannelState::Running => "running",
        ChannelState::Stopped => "stopped",
        ChannelState::Failed => "failed",
    }
}

/// The labels of a sample, by name.
type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

/// Writes metric families one after the other.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn version(&mut self) -> fmt::Result {
        let help = "Version of the daemon.";
        let family = self.0.encode_descriptor("tailwater_build", help, None, MetricType::Info)?;
        Info::new([("version", env!("CARGO_PKG_VERSION"))]).encode(family)
    }

    /// Writes a gauge. `help` has no full stop at the end.
    fn gauge<'l, const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &'static str,
        unit: Option<Unit>,
        help: &str,
        samples: impl Iterator<Item = (Labels<'l, N>, V)>,
    ) -> fmt::Result {
        let samples = samples.map(|(labels, value)| (labels, ConstGauge::new(value)));
        self.family(name, unit, help, MetricType::Gauge, samples)
    }

    /// Writes a counter. The encoder appends `_total` to `name`.
    fn counter<'l, const N: usize, V: EncodeCounterValue>(
        &mut self,
        name: &'static str,
        unit: Option<Unit>,
        help: &str,
        samples: impl Iterator<Item = (Labels<'l, N>, V)>,
    ) -> fmt::Result {
        let samples = samples.map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.family(name, unit, help, MetricType::Counter, samples)
    }

    fn family<'l, const N: usize, M: EncodeMetric>(
        &mut self,
        name: &'static str,
        unit: Option<Unit>,
        help: &str,
        metric_type: MetricType,
        samples: impl Iterator<Item = (Labels<'l, N>, M)>,
    ) -> fmt::Result {
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, &format!("{help}."), unit.as_ref(), metric_type)?;
        for (labels, metric) in samples {
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};
    use tailwater_topology::Cluster;

    use super::*;
    use crate::api::captures::FollowedServer;
    use crate::api::channels::{ChannelFault, ChannelStatus};
    use crate::api::clusters::{ClusterSnapshot, ClusterView, ManagerSnapshot};

    fn cluster(name: &str, readiness: FailoverReadiness, findings: &Value) -> ClusterSnapshot {
        let report = json!({
            "source": name, "primary": "db1", "lease": "", "automatic": true, "now_ms": 0, "findings": findings,
            "guard": { "is_paused": false, "downtimes": [], "last_failover_ms": null },
        });
        let report: ClusterReport = serde_json::from_value(report).expect("a valid report");
        let report = ClusterReport { readiness, ..report };
        ClusterSnapshot {
            source: name.to_owned(),
            own: "db1".to_owned(),
            followed: FollowedServer { server: "db1".to_owned(), withheld: None },
            servers: Vec::new(),
            stale_after_ms: 0,
            view: ClusterView {
                cluster: Cluster { name: name.to_owned(), nodes: Vec::new() },
                findings: Vec::new(),
                readiness: None,
            },
            relay_silence_ms: BTreeMap::new(),
            manager: Some(ManagerSnapshot { holds_lease: true, report }),
        }
    }

    fn refused() -> FailoverReadiness {
        FailoverReadiness::NotReady {
            rule: "TW-MGR-0032".to_owned(),
            reason: "no relay acknowledges".to_owned(),
        }
    }

    /// A snapshot with one sample of every metric family, and with texts that must not be exposed.
    fn all() -> DaemonSnapshot {
        let findings = json!([{
            "code": "FailoverNotReady", "server": "db1", "since_ms": 0, "evidence": ["secret"], "action": "secret",
        }]);
        let report = json!({
            "source": "orders", "is_streaming": true, "doing": "secret", "heard_ago_ms": 250, "is_mariadb": false,
            "gtids": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9", "durable": "", "alarms": ["secret"], "readers": [],
        });
        let capture = CaptureSnapshot {
            report: serde_json::from_value(report).expect("a valid report"),
            state: "streaming",
            followed: FollowedServer { server: "db1".to_owned(), withheld: None },
            server_id: 4201,
            semi_sync: true,
            semi_sync_in_force: Some(false),
            alarm_codes: BTreeSet::from(["TW-RELAY-0102"]),
            heartbeat_ms: 250,
            transactions_total: 7,
            event_bytes_total: 900,
            acks_total: 6,
            connections_total: 1,
            durable_segment: 2,
            durable_offset: 4096,
        };
        let status = ChannelStatus {
            name: "reports".to_owned(),
            state: ChannelState::Failed,
            lag_seconds: Some(1.5),
            fault: Some(ChannelFault {
                code: "TW-APP-0002".to_owned(),
                message: "key 'secret'".to_owned(),
                has_detail: true,
                detail: Some("INSERT INTO t VALUES ('secret')".to_owned()),
            }),
            gtids: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9".to_owned(),
            transactions_total: 5,
            rows_total: 50,
            commits_total: 2,
            ..ChannelStatus::default()
        };
        DaemonSnapshot {
            clusters: vec![cluster("orders", refused(), &findings)],
            captures: vec![capture],
            channels: vec![ChannelSnapshot { source: "orders".to_owned(), status }],
        }
    }

    #[test]
    fn every_state_of_captures_and_channels_is_listed() {
        let channels =
            [ChannelState::Connecting, ChannelState::Running, ChannelState::Stopped, ChannelState::Failed];
        assert_eq!(channels.map(channel_state), CHANNEL_STATES);
    }

    #[test]
    fn only_names_and_codes_are_in_the_metrics() {
        let text = render(all()).expect("the metrics can be encoded");
        assert!(text.contains("TW-APP-0002"), "{text}");
        assert!(!text.contains("secret") && !text.contains("3e11fa47"), "{text}");
    }

    fn samples(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !line.starts_with('#')).collect()
    }

    #[test]
    fn every_family_is_written_with_its_type_and_unit() {
        let text = render(all()).expect("the metrics can be encoded");
        for block in [
            "# HELP tailwater_build Version of the daemon.\n# TYPE tailwater_build info\ntailwater_build_info{version=\"",
            "# TYPE tailwater_manager_leader gauge\ntailwater_manager_leader{cluster=\"orders\"} 1\n",
            "tailwater_manager_failover_readiness_known{cluster=\"orders\"} 1\n",
            "tailwater_manager_failover_ready{cluster=\"orders\"} 0\n",
            "tailwater_manager_failover_refused_by{cluster=\"orders\",rule=\"TW-MGR-0032\"} 1\n",
            "tailwater_manager_findings{cluster=\"orders\",code=\"FailoverNotReady\",server=\"db1\"} 1\n",
            "tailwater_capture_state{source=\"orders\",state=\"connecting\"} 0\n\
             tailwater_capture_state{source=\"orders\",state=\"streaming\"} 1\n",
            "# TYPE tailwater_capture_silence_seconds gauge\n\
             # UNIT tailwater_capture_silence_seconds seconds\n\
             tailwater_capture_silence_seconds{source=\"orders\"} 0.25\n",
            "tailwater_capture_semi_sync_in_force{source=\"orders\"} 0\n",
            "tailwater_capture_semi_sync_alarms{source=\"orders\",code=\"TW-RELAY-0102\"} 1\n",
            "tailwater_capture_transactions_total{source=\"orders\"} 7\n",
            "# TYPE tailwater_capture_event_bytes counter\n\
             # UNIT tailwater_capture_event_bytes bytes\n\
             tailwater_capture_event_bytes_total{source=\"orders\"} 900\n",
            "tailwater_log_durable_segment{source=\"orders\"} 2\n",
            "tailwater_log_durable_offset_bytes{source=\"orders\"} 4096\n",
            "tailwater_apply_state{channel=\"reports\",source=\"orders\",state=\"failed\"} 1\n",
            "tailwater_apply_lag_seconds{channel=\"reports\",source=\"orders\"} 1.5\n",
            "tailwater_apply_fault{channel=\"reports\",source=\"orders\",code=\"TW-APP-0002\"} 1\n",
            "tailwater_apply_rows_total{channel=\"reports\",source=\"orders\"} 50\n",
        ] {
            assert!(text.contains(block), "{block}\nis not in\n{text}");
        }
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        assert!(
            !text.contains("no relay acknowledges"),
            "the reason may repeat the text of a server: {text}"
        );
    }

    #[test]
    fn unknown_values_have_no_sample() {
        let mut snapshot = all();
        let unknown =
            FailoverReadiness::Unknown { reason: "not every server has been probed yet".to_owned() };
        let ready = FailoverReadiness::Ready { server: "db2".to_owned() };
        snapshot.clusters = vec![cluster("a", unknown, &json!([])), cluster("b", ready, &json!([]))];
        snapshot.captures[0].report.heard_ago_ms = None;
        snapshot.captures[0].semi_sync_in_force = None;
        snapshot.channels[0].status.lag_seconds = None;
        snapshot.channels[0].status.fault = None;
        let text = render(snapshot).expect("the metrics can be encoded");
        let of_readiness: Vec<_> =
            samples(&text).into_iter().filter(|sample| sample.contains("_failover_")).collect();
        assert_eq!(
            of_readiness,
            [
                "tailwater_manager_failover_readiness_known{cluster=\"a\"} 0",
                "tailwater_manager_failover_readiness_known{cluster=\"b\"} 1",
                "tailwater_manager_failover_ready{cluster=\"b\"} 1",
            ]
        );
        for absent in ["silence", "in_force", "apply_lag", "apply_fault", "findings"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        let text = render(DaemonSnapshot {
            clusters: vec![cluster("a\"b\\c\nd", refused(), &json!([]))],
            ..DaemonSnapshot::default()
        });
        let text = text.expect("the metrics can be encoded");
        assert!(text.contains(r#"tailwater_manager_leader{cluster="a\"b\\c\nd"} 1"#), "{text}");
    }

    /// Compares the name, type and labels of each family in the tables of the reference page with those in
    /// the text.
    #[test]
    fn the_reference_page_has_each_metric() {
        let page = include_str!("../../../../docs/reference/metrics.md");
        let text = render(all()).expect("the metrics can be encoded");
        let mut expected = BTreeSet::new();
        let mut family = ("", "");
        for line in text.lines() {
            if let Some(described) = line.strip_prefix("# TYPE ") {
                family = described.split_once(' ').expect("a # TYPE line has a name and a type");
            } else if !line.starts_with('#') {
                let (name, rest) = line.split_once('{').expect("the sample has labels");
                let (labels, _) = rest.rsplit_once('}').expect("the sample has a value");
                let labels = labels.split("\",").map(|label| label.split('=').next().unwrap_or_default());
                let labels: Vec<_> = labels.map(|label| format!("`{label}`")).collect();
                assert!(name.starts_with(family.0), "{line}");
                expected.insert(format!("| `{name}` | {} | {} | ", family.1, labels.join(", ")));
            }
        }
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `tailwater_")).collect();
        for row in &expected {
            let found = rows.iter().filter(|found| found.starts_with(row.as_str())).count();
            assert_eq!(found, 1, "the row {row} is missing in docs/reference/metrics.md");
        }
        assert_eq!(rows.len(), expected.len(), "the page has metrics that are not in the code: {rows:#?}");
        for state in CAPTURE_STATES.iter().chain(&CHANNEL_STATES) {
            assert!(page.contains(&format!("`{state}`")), "{state}");
        }
    }
}
