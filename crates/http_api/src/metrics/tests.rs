//! The text of a scrape, and the reference page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use tailwater_manager::FailoverReadiness;
use tailwater_topology::{Cluster, NodeRole, ProblemCode, Promotion, TopologyNode, TopologyProblem};

use super::metric_families::{METRIC_GROUPS, MetricFamily, MetricKind};
use super::{CHANNEL_STATES, LEASE_STATES, render};
use tailwater_daemon::api::captures::{
    ArchiveProblem, CAPTURE_STATES, CaptureAlarm, CaptureLogSnapshot, CaptureSnapshot, FollowedServer,
    LogArchiveSnapshot, LogReaderSnapshot, SemiSyncAckers, WaitingSegments,
};
use tailwater_daemon::api::channels::{ChannelFault, ChannelSnapshot, ChannelState, ChannelStatus};
use tailwater_daemon::api::cluster_servers::{ServerSnapshot, WritableProbe};
use tailwater_daemon::api::clusters::{
    ClusterReport, ClusterSnapshot, ClusterView, LeaseState, ManagerSnapshot,
};
use tailwater_daemon::api::daemon_snapshot::DaemonSnapshot;
use tailwater_daemon::api::disk_backup_and_drift_snapshots::{
    BackupSnapshot, DriftCheckSnapshot, LogDiskSnapshot,
};
use tailwater_daemon::api::prefetches::{PrefetchSnapshot, PrefetchStatus};

const GTIDS: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9";

fn node(name: &str, role: NodeRole, server_id: u32, children: Vec<TopologyNode>) -> TopologyNode {
    TopologyNode {
        name: name.to_owned(),
        role,
        address: "secret:3306".to_owned(),
        reached: true,
        version: Some("secret".to_owned()),
        server_id: Some(server_id),
        writable: Some(role == NodeRole::Primary),
        lag_seconds: (role == NodeRole::Replica).then_some(2.5),
        gtids: Some(GTIDS.to_owned()),
        gtid_state: None,
        semi_sync: None,
        acknowledges: None,
        promotion: Promotion::Neutral,
        region: None,
        notes: vec!["secret".to_owned()],
        problems: Vec::new(),
        children,
    }
}

fn server(name: &str, age_ms: u64) -> ServerSnapshot {
    let probe = Some(WritableProbe { age_ms, writable: Err("secret".to_owned()) });
    ServerSnapshot { name: name.to_owned(), address: "secret:3306".to_owned(), probe }
}

/// A cluster of a primary, a replica, a server that was not probed recently, and another relay.
fn cluster(name: &str, readiness: FailoverReadiness, findings: &Value) -> ClusterSnapshot {
    let report = json!({
        "source": name, "primary": "db1", "lease": "", "automatic": true, "now_ms": 0, "findings": findings,
        "guard": { "is_paused": false, "downtimes": [], "last_failover_ms": null },
        "lease_state": LeaseState::Held { term: 7 },
    });
    let report: ClusterReport = serde_json::from_value(report).expect("a valid report");
    let report = ClusterReport { readiness, ..report };
    let mut replica = node("db2", NodeRole::Replica, 2, Vec::new());
    let text = "secret".to_owned();
    replica.problems = vec![TopologyProblem { code: ProblemCode::SqlStopped, text }; 2];
    let own =
        node("tailwater", NodeRole::Relay, 4201, vec![node("app7", NodeRole::Unconfigured, 7, Vec::new())]);
    let other = node("relay2", NodeRole::Relay, 4202, vec![replica]);
    let primary = node("db1", NodeRole::Primary, 1, vec![own, other]);
    let nodes = vec![primary, node("db3", NodeRole::Server, 3, Vec::new())];
    ClusterSnapshot {
        source: name.to_owned(),
        own: "db1".to_owned(),
        followed: FollowedServer { server: "db1".to_owned(), withheld: None },
        servers: vec![server("db1", 10), server("db2", 3_000), server("db3", 3_001)],
        stale_after_ms: 3_000,
        view: ClusterView {
            cluster: Cluster { name: name.to_owned(), nodes },
            findings: Vec::new(),
            readiness: None,
        },
        relay_silence_ms: BTreeMap::from([("tailwater".to_owned(), Some(250)), ("relay2".to_owned(), None)]),
        manager: Some(ManagerSnapshot { holds_lease: true, report }),
    }
}

fn refused() -> FailoverReadiness {
    FailoverReadiness::NotReady { rule: "TW-MGR-0032".to_owned(), reason: "no relay acknowledges".to_owned() }
}

fn capture(name: &str) -> CaptureSnapshot {
    let report = json!({
        "source": name, "is_streaming": true, "doing": "secret", "heard_ago_ms": 250, "is_mariadb": false,
        "gtids": GTIDS, "durable": "", "alarms": ["secret"],
        "readers": [{ "server_id": 2, "uuid": null, "peer": "secret:1", "sent": "secret:4" }],
    });
    let reader = |name: &str, behind_bytes| LogReaderSnapshot { name: name.to_owned(), behind_bytes };
    CaptureSnapshot {
        report: serde_json::from_value(report).expect("a valid report"),
        state: "streaming",
        followed: FollowedServer { server: "db1".to_owned(), withheld: None },
        server_id: 4201,
        semi_sync: true,
        semi_sync_in_force: Some(false),
        alarms: vec![CaptureAlarm { code: "TW-RELAY-0102", text: "secret".to_owned() }],
        fault_code: Some("TW-RELAY-0003"),
        ackers: Some(SemiSyncAckers { connected: 2, needed: 1, waiting_commits: 3 }),
        commits_without_ack_total: 4,
        log: CaptureLogSnapshot {
            segments: 2,
            bytes: 8_192,
            readers: vec![reader("channel reports", 10), reader("replica 2", 20), reader("replica 7", 30)],
            sync_counts: vec![(Some(0.001), 5), (Some(0.1), 2), (None, 1)],
            sync_seconds_total: 1.25,
            archive: Some(LogArchiveSnapshot {
                waiting: Some(WaitingSegments { segments: 3, bytes: 3_000 }),
                problem: Some(ArchiveProblem {
                    code: "TW-LOG-0014".to_owned(),
                    text: "secret".to_owned(),
                    since_ms: 0,
                }),
                ..LogArchiveSnapshot::default()
            }),
        },
        heartbeat_ms: 250,
        transactions_total: 7,
        event_bytes_total: 900,
        acks_total: 6,
        connections_total: 1,
        durable_segment: 2,
        durable_offset: 4096,
    }
}

fn channel(name: &str, source: &str) -> ChannelSnapshot {
    let fault = ChannelFault {
        code: "TW-APP-0002".to_owned(),
        message: "key 'secret'".to_owned(),
        has_detail: true,
        detail: Some("INSERT INTO t VALUES ('secret')".to_owned()),
    };
    let status = ChannelStatus {
        name: name.to_owned(),
        state: ChannelState::Failed,
        lag_seconds: Some(1.5),
        delay_seconds: 60,
        fault: Some(fault),
        gtids: GTIDS.to_owned(),
        transactions_total: 5,
        rows_total: 50,
        commits_total: 2,
        ..ChannelStatus::default()
    };
    ChannelSnapshot { source: source.to_owned(), status }
}

fn prefetch() -> PrefetchSnapshot {
    PrefetchSnapshot {
        name: "db3".to_owned(),
        source: "orders".to_owned(),
        server: "db3.internal:3306".to_owned(),
        is_of_channel: false,
        figures: PrefetchStatus {
            state: "reading".to_owned(),
            reason: Some("secret".to_owned()),
            applied: GTIDS.to_owned(),
            skipped: [("null_key".to_owned(), 3)].into(),
            hit_ratio: Some(0.5),
            gain: Some(2.5),
            ..PrefetchStatus::default()
        },
    }
}

/// A snapshot with a sample of every metric, and with texts that must not be exposed.
fn all() -> DaemonSnapshot {
    let findings = json!([{
        "code": "FailoverNotReady", "server": "db1", "since_ms": 0, "evidence": ["secret"], "action": "secret",
    }]);
    let backup = BackupSnapshot {
        name: "nightly".to_owned(),
        age_seconds_max: 93_600,
        dumps: 3,
        newest_ms: Some(1_790_000_000_500),
        problem: Some("secret".to_owned()),
    };
    let check = DriftCheckSnapshot {
        name: "db2".to_owned(),
        age_seconds_max: 3_600,
        finished_ms: Some(1_790_000_000_000),
        differences: Some(2),
        problem: None,
    };
    DaemonSnapshot {
        clusters: vec![cluster("orders", refused(), &findings)],
        captures: vec![capture("orders")],
        channels: vec![channel("reports", "orders")],
        prefetches: vec![prefetch()],
        log_disk: LogDiskSnapshot { space: Some((1 << 40, 1 << 39)), full_in_seconds: Some(3_600.5) },
        backups: vec![backup],
        drift_checks: vec![check],
        jobs: Vec::new(),
        file_faults: Vec::new(),
    }
}

fn text(snapshot: DaemonSnapshot) -> String {
    render(snapshot).expect("the metrics can be encoded")
}

fn samples(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn only_names_and_codes_are_in_the_metrics() {
    let text = text(all());
    assert!(text.contains("TW-APP-0002"), "the metrics lack the error code of the channel: {text}");
    for hidden in ["secret", "3e11fa47", "no relay acknowledges", "app7"] {
        assert!(!text.contains(hidden), "the metrics contain {hidden:?}: {text}");
    }
}

#[test]
fn values_are_written_with_their_type_unit_and_labels() {
    let text = text(all());
    for block in [
        "# HELP tailwater_build The version of the daemon.\n# TYPE tailwater_build info\ntailwater_build_info{version=\"",
        "# TYPE tailwater_manager_leader gauge\ntailwater_manager_leader{cluster=\"orders\"} 1\n",
        "tailwater_manager_lease{cluster=\"orders\",state=\"held\"} 1\n\
         tailwater_manager_lease{cluster=\"orders\",state=\"held_by_other\"} 0\n",
        "tailwater_manager_failover_ready{cluster=\"orders\"} 0\n",
        "tailwater_manager_failover_refused_by{cluster=\"orders\",rule=\"TW-MGR-0032\"} 1\n",
        "tailwater_manager_findings{cluster=\"orders\",code=\"FailoverNotReady\",server=\"db1\"} 1\n",
        "tailwater_capture_state{source=\"orders\",state=\"connecting\"} 0\n\
         tailwater_capture_state{source=\"orders\",state=\"streaming\"} 1\n",
        "tailwater_capture_fault{source=\"orders\",code=\"TW-RELAY-0003\"} 1\n",
        "# TYPE tailwater_capture_silence_seconds gauge\n\
         # UNIT tailwater_capture_silence_seconds seconds\n\
         tailwater_capture_silence_seconds{source=\"orders\"} 0.25\n",
        "tailwater_capture_semi_sync_alarms{source=\"orders\",code=\"TW-RELAY-0102\"} 1\n",
        "tailwater_capture_semi_sync_ackers{source=\"orders\"} 2\n",
        "tailwater_capture_commits_without_ack_total{source=\"orders\"} 4\n",
        "# TYPE tailwater_capture_event_bytes counter\n\
         # UNIT tailwater_capture_event_bytes bytes\n\
         tailwater_capture_event_bytes_total{source=\"orders\"} 900\n",
        "# TYPE tailwater_log_sync_seconds histogram\n\
         # UNIT tailwater_log_sync_seconds seconds\n\
         tailwater_log_sync_seconds_sum{source=\"orders\"} 1.25\n\
         tailwater_log_sync_seconds_count{source=\"orders\"} 8\n\
         tailwater_log_sync_seconds_bucket{le=\"0.001\",source=\"orders\"} 5\n\
         tailwater_log_sync_seconds_bucket{le=\"0.1\",source=\"orders\"} 7\n\
         tailwater_log_sync_seconds_bucket{le=\"+Inf\",source=\"orders\"} 8\n",
        "tailwater_log_reader_behind_bytes{source=\"orders\",reader=\"channel reports\"} 10\n\
         tailwater_log_reader_behind_bytes{source=\"orders\",reader=\"db2\"} 20\n# ",
        "\ntailwater_log_archive_waiting_bytes{source=\"orders\"} 3000\n",
        "\ntailwater_log_archive_fault{source=\"orders\",code=\"TW-LOG-0014\"} 1\n",
        "\ntailwater_log_disk_free_bytes 549755813888\n",
        "tailwater_apply_lag_seconds{channel=\"reports\",source=\"orders\"} 1.5\n",
        "tailwater_topology_server_up{cluster=\"orders\",server=\"db1\"} 1\n\
         tailwater_topology_server_up{cluster=\"orders\",server=\"db2\"} 1\n# ",
        "tailwater_topology_server_problems{cluster=\"orders\",server=\"db2\",code=\"SqlStopped\"} 1\n# ",
        "tailwater_topology_relay_up{cluster=\"orders\",relay=\"relay2\"} 1\n# ",
        "tailwater_backup_newest_timestamp_seconds{backup=\"nightly\"} 1790000000.5\n",
        "tailwater_check_differences{check=\"db2\"} 2\n",
    ] {
        assert!(text.contains(block), "the metrics lack the lines\n{block}\nin\n{text}");
    }
    assert!(text.ends_with("\n# EOF\n"), "the metrics do not end with # EOF: {text}");
}

#[test]
fn unknown_values_have_no_sample() {
    let mut snapshot = all();
    let unknown = FailoverReadiness::Unknown { reason: "not every server has been probed yet".to_owned() };
    let ready = FailoverReadiness::Ready { server: "db2".to_owned() };
    snapshot.clusters = vec![cluster("a", unknown, &json!([])), cluster("b", ready, &json!([]))];
    let capture = &mut snapshot.captures[0];
    (capture.report.heard_ago_ms, capture.semi_sync_in_force, capture.ackers) = (None, None, None);
    capture.fault_code = None;
    capture.log.archive = None;
    snapshot.channels[0].status.lag_seconds = None;
    snapshot.channels[0].status.fault = None;
    snapshot.log_disk = LogDiskSnapshot::default();
    (snapshot.backups[0].newest_ms, snapshot.drift_checks[0].differences) = (None, None);
    snapshot.drift_checks[0].finished_ms = None;
    let text = text(snapshot);
    let of_readiness: Vec<_> =
        samples(&text).into_iter().filter(|sample| sample.contains("_failover_read")).collect();
    assert_eq!(
        of_readiness,
        [
            "tailwater_manager_failover_readiness_known{cluster=\"a\"} 0",
            "tailwater_manager_failover_readiness_known{cluster=\"b\"} 1",
            "tailwater_manager_failover_ready{cluster=\"b\"} 1",
        ]
    );
    for absent in [
        "capture_silence",
        "in_force",
        "ackers",
        "_fault",
        "apply_lag",
        "findings",
        "log_disk",
        "newest_timestamp",
        "differences",
        "check_finished",
    ] {
        assert!(!text.contains(absent), "the metrics contain {absent:?}: {text}");
    }
}

#[test]
fn labels_are_escaped() {
    let clusters = vec![cluster("a\"b\\c\nd", refused(), &json!([]))];
    let text = text(DaemonSnapshot { clusters, ..DaemonSnapshot::default() });
    assert!(
        text.contains(r#"tailwater_manager_leader{cluster="a\"b\\c\nd"} 1"#),
        "the label value is not escaped: {text}"
    );
}

/// Compares the names, types and labels of the text with the list of all metrics.
#[test]
fn every_metric_is_listed_and_written() {
    let text = text(all());
    let mut written = BTreeMap::new();
    let mut family = ("", "");
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            family = described.split_once(' ').expect("a # TYPE line has a name and a type");
        } else if !line.starts_with('#') {
            let (name, rest) = line.split_once(['{', ' ']).expect("a sample has a value");
            assert!(name.starts_with(family.0), "the sample belongs to another metric: {line}");
            let labels = rest.rsplit_once('}').map_or("", |(labels, _)| labels);
            let labels = labels.split("\",").map(|label| label.split('=').next().unwrap_or_default());
            let labels: BTreeSet<_> = labels.filter(|name| !["le", ""].contains(name)).collect();
            written.insert(family.0, (family.1, labels));
        }
    }
    let all: Vec<_> = METRIC_GROUPS.iter().flat_map(|group| group.families).collect();
    for family in &all {
        let (kind, labels) =
            written.remove(family.name).unwrap_or_else(|| panic!("{} is not written", family.name));
        assert_eq!(
            (kind, labels),
            (kind_name(family), family.labels.iter().copied().collect()),
            "{}",
            family.name
        );
        assert!(
            family.name.starts_with("tailwater_") && !family.help.ends_with('.'),
            "{} does not begin with tailwater_, or its help ends with a full stop",
            family.name
        );
    }
    assert!(written.is_empty(), "these metrics are not in METRIC_GROUPS: {written:?}");
}

fn kind_name(family: &MetricFamily) -> &'static str {
    match family.kind {
        MetricKind::Gauge => "gauge",
        MetricKind::Counter => "counter",
        MetricKind::Histogram => "histogram",
        MetricKind::Info => "info",
    }
}

/// The tables of the reference page come from the list of metrics. `TAILWATER_BLESS=1` writes them.
#[test]
fn the_reference_page_is_that_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(&path).expect("the page can be read");
    let mut expected = page.clone();
    for group in METRIC_GROUPS {
        let (begin, end) = (format!("<!-- metrics: {} -->\n", group.name), "<!-- end -->\n");
        let (before, rest) = expected.split_once(&begin).unwrap_or_else(|| panic!("{begin} is missing"));
        let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("{begin} has no end"));
        expected = format!("{before}{begin}{}{end}{after}", table(group.families));
    }
    assert_eq!(
        page.matches("<!-- metrics: ").count(),
        METRIC_GROUPS.len(),
        "a table of the page has no group"
    );
    if std::env::var_os("TAILWATER_BLESS").is_some() {
        std::fs::write(&path, &expected).expect("the page can be written");
    } else {
        assert!(
            page == expected,
            "docs/reference/metrics.md differs from the code: run this test with TAILWATER_BLESS=1"
        );
    }
    for state in CAPTURE_STATES.iter().chain(&CHANNEL_STATES).chain(&LEASE_STATES) {
        assert!(expected.contains(&format!("`{state}`")), "the page does not list the state {state}");
    }
}

fn table(families: &[&MetricFamily]) -> String {
    let mut table = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for family in families {
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let details = if family.details.is_empty() { String::new() } else { format!(". {}", family.details) };
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {}{details} |",
            family.sample_name(),
            kind_name(family),
            labels.join(", "),
            family.help
        );
    }
    table
}

/// Prints how long a scrape of 50 sources with four servers each takes. The goal is 20 ms for a release.
#[test]
fn duration_of_a_large_scrape() {
    let snapshot = || {
        let names: Vec<_> = (0..50).map(|number| format!("source{number:02}")).collect();
        let findings = json!([{
            "code": "ReplicaLagging", "server": "db2", "since_ms": 0, "evidence": ["lag"], "action": "none",
        }]);
        DaemonSnapshot {
            clusters: names
                .iter()
                .map(|name| {
                    let mut cluster = cluster(name, refused(), &findings);
                    cluster.view.cluster.nodes.push(node("db4", NodeRole::Replica, 4, Vec::new()));
                    cluster.servers = ["db1", "db2", "db3", "db4"].map(|name| server(name, 10)).to_vec();
                    cluster
                })
                .collect(),
            captures: names.iter().map(|name| capture(name)).collect(),
            channels: names.iter().map(|name| channel(name, name)).collect(),
            ..all()
        }
    };
    let runs = 20;
    let snapshots: Vec<_> = (0..runs).map(|_| snapshot()).collect();
    let started = Instant::now();
    let length = snapshots.into_iter().map(|snapshot| text(snapshot).len()).max();
    let each = started.elapsed() / runs;
    println!("a scrape of 50 sources with 4 servers each: {each:?}, {length:?} bytes");
    assert!(length > Some(100_000), "the metrics have only {length:?} bytes");
}
