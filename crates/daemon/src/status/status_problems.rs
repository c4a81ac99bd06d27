//! What is wrong with the daemon, its sources, channels and clusters, and what to do.
//!
//! Planned states are not problems: a server in downtime, a channel that the configuration stops, or a
//! channel whose target is the primary.

use tailwater_apply::channel::{ChannelState, ChannelStatus};
use tailwater_binlog_stats::LocalTime;
use tailwater_topology::failure_analysis::{FailoverGuard, FailureCode};
use tailwater_topology::{NodeRole, ProblemCode, TopologyNode};

use super::disk_backup_and_drift_problems::{
    archive_problem, backup_problem, disk_problem, drift_problem, file_problem,
};
use super::status_report::{cluster_of, is_own_relay, nodes};
use crate::api::captures::CaptureSnapshot;
use crate::api::channels::ChannelSnapshot;
use crate::api::clusters::{ClusterSnapshot, FindingReport, LeaseState, ManagerSnapshot};
use crate::api::daemon_snapshot::DaemonSnapshot;
use crate::api::daemon_status::{LogDiskStatus, StatusProblem};
use crate::daemon_lifecycle::STOPPED_BY_CONFIGURATION;
use crate::manager::manager_startup::OWN_RELAY;

/// A channel is reported if its lag exceeds its configured delay by more than this, in seconds.
const LAG_SECONDS_MAX: f64 = 10.0;

const SET_UP_SEMI_SYNC: &str = "set semi-sync up on the source as in docs/how-to/capture.md";

/// Returns all problems of the disk, backups and checks, the sources, the clusters and the channels. `now_ms`
/// is the time since 1970.
pub(super) fn problems(snapshot: &DaemonSnapshot, disk: &LogDiskStatus, now_ms: u64) -> Vec<StatusProblem> {
    let mut found: Vec<StatusProblem> = disk_problem(disk).into_iter().collect();
    found.extend(snapshot.file_faults.iter().map(file_problem));
    found.extend(snapshot.backups.iter().filter_map(|backup| backup_problem(backup, now_ms)));
    found.extend(snapshot.drift_checks.iter().filter_map(|check| drift_problem(check, now_ms)));
    for capture in &snapshot.captures {
        let cluster = cluster_of(snapshot, &capture.report.source);
        source_problems(&mut found, capture, cluster);
    }
    for cluster in &snapshot.clusters {
        let capture = snapshot.captures.iter().find(|capture| capture.report.source == cluster.source);
        cluster_problems(&mut found, cluster, capture);
    }
    for channel in &snapshot.channels {
        found.extend(channel_problem(channel, snapshot));
    }
    found
}

pub(super) fn problem(
    object: impl Into<String>,
    code: impl Into<String>,
    text: impl Into<String>,
    remedy: impl Into<String>,
) -> StatusProblem {
    StatusProblem { object: object.into(), code: code.into(), text: text.into(), remedy: remedy.into() }
}

fn source_problems(
    found: &mut Vec<StatusProblem>,
    capture: &CaptureSnapshot,
    cluster: Option<&ClusterSnapshot>,
) {
    let report = &capture.report;
    let object = format!("source {}", report.source);
    let is_planned = cluster.is_some_and(|cluster| is_down_on_purpose(cluster, &capture.followed.server));
    if !report.is_streaming && !is_planned {
        let remedy = match capture.state {
            "refused" => "fix the cause, then restart `tailwater run`",
            "stopped_by_order" => {
                "the manager starts the capture again at the end of a failover; if none is in progress, see `tailwater manager status`"
            }
            "stopped" => "the daemon is stopping; start `tailwater run` again",
            _ => {
                "the capture connects again by itself: start the server, check its account and the network to the server"
            }
        };
        found.push(problem(
            object.clone(),
            ProblemCode::RelayNotStreaming.to_string(),
            &report.doing,
            remedy,
        ));
    }
    for alarm in &capture.alarms {
        let remedy = match alarm.code {
            "TW-RELAY-0105" => {
                "find out why the log did not acknowledge the commits: a restart, or a short time-out"
            }
            _ => SET_UP_SEMI_SYNC,
        };
        found.push(problem(object.clone(), alarm.code, &alarm.text, remedy));
    }
    found.extend(capture.log.archive.as_ref().and_then(|archive| archive_problem(object, archive)));
}

fn cluster_problems(
    found: &mut Vec<StatusProblem>,
    cluster: &ClusterSnapshot,
    capture: Option<&CaptureSnapshot>,
) {
    let findings: Vec<FindingReport> = match &cluster.manager {
        Some(manager) => manager.report.findings.clone(),
        None => cluster.view.findings.iter().map(FindingReport::from).collect(),
    };
    let has_alarms = capture.is_some_and(|capture| !capture.alarms.is_empty());
    let is_detached = capture.is_some_and(|capture| !capture.report.is_streaming);
    for finding in &findings {
        let code = FailureCode::named(&finding.code);
        // The problem that is reported for the source says the same as this finding, in more detail.
        let is_repeated = match code {
            Some(FailureCode::SemiSyncDegraded) => has_alarms,
            Some(FailureCode::RelayDetached) => is_detached && finding.server == OWN_RELAY,
            _ => false,
        };
        if is_repeated {
            continue;
        }
        found.push(finding_problem(finding, code, cluster));
    }
    if let Some(manager) = &cluster.manager {
        manager_problems(found, manager);
    }
    for (_, node) in nodes(&cluster.view.cluster) {
        // The problems of this process's own relay are reported for the source.
        if is_own_relay(node) || is_down_on_purpose(cluster, &node.name) {
            continue;
        }
        let covers = |code: ProblemCode| {
            findings.iter().filter(|finding| finding.server == node.name).any(|finding| {
                FailureCode::named(&finding.code).is_some_and(|failure| is_covered(code, failure))
            })
        };
        for shown in &node.problems {
            let is_alarm = has_alarms && node.role == NodeRole::Primary && is_about_semi_sync(shown.code);
            // A stopped channel is reported by `channel_problem`.
            if is_alarm || shown.code == ProblemCode::ChannelStopped || covers(shown.code) {
                continue;
            }
            found.push(problem(object_of(node), shown.code.to_string(), &shown.text, shown.code.remedy()));
        }
        let is_unknown = node.problems.is_empty()
            && !node.reached
            && !matches!(node.role, NodeRole::Unconfigured | NodeRole::Relay);
        if is_unknown && !covers(ProblemCode::NotReached) {
            let code = ProblemCode::NotReached;
            let text = "the server has not answered a probe since the daemon started";
            found.push(problem(object_of(node), code.to_string(), text, code.remedy()));
        }
    }
}

fn finding_problem(
    finding: &FindingReport,
    code: Option<FailureCode>,
    cluster: &ClusterSnapshot,
) -> StatusProblem {
    let node = nodes(&cluster.view.cluster).find(|(_, node)| node.name == finding.server);
    let object = match (code, node) {
        (Some(FailureCode::FailoverNotReady), _) => format!("cluster {}", cluster.source),
        (_, Some((_, node))) => object_of(node),
        (_, None) => format!("server {}", finding.server),
    };
    let remedy = code.map_or("see docs/reference/failure-codes.md", FailureCode::remedy);
    let remedy = match finding.action.strip_prefix("held: ") {
        Some(hold) if cluster.manager.is_some() => {
            format!("the manager does not fail over ({hold}): {remedy}")
        }
        _ => remedy.to_owned(),
    };
    problem(object, &finding.code, finding.evidence.join("; "), remedy)
}

fn manager_problems(found: &mut Vec<StatusProblem>, manager: &ManagerSnapshot) {
    let report = &manager.report;
    let object = format!("cluster {}", report.source);
    let is_held_elsewhere = matches!(report.lease_state, LeaseState::HeldByOther { .. });
    if !manager.holds_lease && !is_held_elsewhere {
        let text = format!("this manager cannot start a failover: the lease is {}", report.lease);
        found.push(problem(object.clone(), "LeaseNotHeld", text, "check etcd, or the file of the lease"));
    }
    for relay in &report.refusing {
        let remedy =
            "if etcd was created again, `tailwater manager raise-terms`; see docs/how-to/production.md";
        found.push(problem(object.clone(), "RelayRefusesManager", relay, remedy));
    }
    if let Some(reason) = &report.records_problem {
        let text = format!("a failover would be refused: {reason}");
        let remedy = "check etcd: its space (`etcdctl endpoint status`), and that this manager may write";
        found.push(problem(object.clone(), "AuditRecordsNotStorable", text, remedy));
    }
    if !report.guard_is_known {
        let text = "the manager has not read the pauses and downtimes from etcd yet, so it starts no automatic failover";
        found.push(problem(object.clone(), "GuardUnknown", text, "check etcd"));
    }
    if !report.automatic {
        return;
    }
    if report.guard.is_paused() {
        let (text, remedy) = ("automatic failover is paused", "`tailwater manager resume`");
        found.push(problem(object.clone(), "FailoverPaused", text, remedy));
    }
    if let Some(at_ms) = report.guard.last_failover_ms() {
        let at = LocalTime(at_ms.saturating_mul(1000)).date_and_time();
        let text = format!(
            "the failover at {at} holds back the next automatic failover, because no operator has acknowledged it"
        );
        let remedy = "examine the failover, then `tailwater manager acknowledge`";
        found.push(problem(object, "FailoverNotAcknowledged", text, remedy));
    }
}

fn channel_problem(channel: &ChannelSnapshot, snapshot: &DaemonSnapshot) -> Option<StatusProblem> {
    let status = &channel.status;
    let name = &status.name;
    let object = format!("channel {name}");
    let stopped = ProblemCode::ChannelStopped.to_string();
    match (status.state, &status.fault) {
        (ChannelState::Failed, Some(fault)) => {
            let remedy = "fix the cause, then `tailwater channel start`; or leave the transaction out: `tailwater channel skip`";
            Some(problem(object, &fault.code, &fault.message, remedy))
        }
        (ChannelState::Failed, None) => {
            Some(problem(object, stopped, "the channel has failed", "`tailwater channel start`"))
        }
        (ChannelState::Connecting, Some(fault)) => {
            let remedy = "fix the cause; the channel tries again by itself";
            Some(problem(object, &fault.code, &fault.message, remedy))
        }
        (ChannelState::Connecting, None) => {
            let remedy = "wait; if the channel does not start, check its target";
            Some(problem(object, stopped, "the channel is connecting to its target", remedy))
        }
        (ChannelState::Stopped, _) => {
            let reason = status.stop_reason.as_deref().unwrap_or("the channel is stopped");
            let is_planned = reason == STOPPED_BY_CONFIGURATION || is_target_primary(channel, snapshot);
            (!is_planned).then(|| problem(object, stopped, reason, "`tailwater channel start`"))
        }
        (ChannelState::Running, _) => lag_problem(status, object),
    }
}

fn lag_problem(status: &ChannelStatus, object: String) -> Option<StatusProblem> {
    let lag = status.lag_seconds?;
    (lag > LAG_SECONDS_MAX + status.delay_seconds as f64).then(|| {
        let text = format!("the channel is {lag:.0} s behind its source");
        let remedy =
            "find what slows the target down, or use more connections: `tailwater channel set --workers`";
        problem(object, ProblemCode::Lagging.to_string(), text, remedy)
    })
}

/// Whether a channel's target is the primary of its cluster. Such a channel is stopped on purpose, because
/// the target must not apply its own transactions again.
fn is_target_primary(channel: &ChannelSnapshot, snapshot: &DaemonSnapshot) -> bool {
    cluster_of(snapshot, &channel.source).is_some_and(|cluster| {
        let all = || nodes(&cluster.view.cluster).map(|(_, node)| node);
        let primary = all().find(|node| node.role == NodeRole::Primary);
        let is_target = |node: &TopologyNode| {
            node.role == NodeRole::Target
                && node.name == channel.status.name
                && primary.is_some_and(|primary| primary.address == node.address)
        };
        all().any(is_target)
    })
}

/// Whether a downtime of the server, or of its whole cluster, is in force.
fn is_down_on_purpose(cluster: &ClusterSnapshot, server: &str) -> bool {
    let Some(ManagerSnapshot { report, .. }) = &cluster.manager else { return false };
    let guard: &FailoverGuard = &report.guard;
    guard.downtimes().iter().any(|downtime| {
        let is_its = downtime.server.as_deref().is_none_or(|of| of == server);
        is_its && (downtime.from_ms..downtime.until_ms).contains(&report.now_ms)
    })
}

fn object_of(node: &TopologyNode) -> String {
    let kind = if node.role == NodeRole::Relay { "relay" } else { "server" };
    format!("{kind} {}", node.name)
}

fn is_about_semi_sync(code: ProblemCode) -> bool {
    matches!(code, ProblemCode::SemiSyncOff | ProblemCode::SemiSyncLossy)
}

/// Whether a finding of the manager about a server says the same as a problem of that server in the topology
/// tree.
fn is_covered(problem: ProblemCode, finding: FailureCode) -> bool {
    use ProblemCode as Problem;
    match finding {
        FailureCode::DeadPrimary
        | FailureCode::UnreachablePrimary
        | FailureCode::DeadReplica
        | FailureCode::DeadRelay => matches!(problem, Problem::NotReached | Problem::RelayNotRunning),
        FailureCode::RelayDetached => problem == Problem::RelayNotStreaming,
        FailureCode::PrimaryReadOnlyOrFull => problem == Problem::PrimaryReadOnly,
        FailureCode::SemiSyncBlocked => problem == Problem::SemiSyncTooFew,
        FailureCode::SemiSyncDegraded => is_about_semi_sync(problem) || problem == Problem::SemiSyncTooFew,
        FailureCode::ReplicaStopped => {
            matches!(problem, Problem::IoStopped | Problem::IoConnecting | Problem::SqlStopped)
        }
        FailureCode::ReplicaLagging => problem == Problem::Lagging,
        FailureCode::OutOfConnections => problem == Problem::NotReached,
        FailureCode::SplitBrainSuspected | FailureCode::RewoundPrimary | FailureCode::FailoverNotReady => {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};
    use tailwater_manager::FailoverReadiness;
    use tailwater_topology::{Cluster, Promotion, TopologyProblem};

    use super::*;
    use crate::api::captures::{CaptureAlarm, CaptureLogSnapshot, FollowedServer};
    use crate::api::channels::ChannelFault;
    use crate::api::clusters::{ClusterReport, ClusterView};
    use crate::api::daemon_status::DiskSpace;

    fn node(name: &str, role: NodeRole, address: &str) -> TopologyNode {
        TopologyNode {
            name: name.into(),
            role,
            address: address.into(),
            reached: true,
            version: None,
            server_id: None,
            writable: None,
            lag_seconds: None,
            gtids: None,
            gtid_state: None,
            semi_sync: None,
            acknowledges: None,
            promotion: Promotion::Neutral,
            region: None,
            notes: Vec::new(),
            problems: Vec::new(),
            children: Vec::new(),
        }
    }

    fn with(mut node: TopologyNode, code: ProblemCode) -> TopologyNode {
        node.problems.push(TopologyProblem { code, text: format!("{code} is its problem") });
        node
    }

    /// Returns a snapshot without problems: a primary with a replica, a streaming capture, and a channel
    /// without lag.
    fn healthy() -> DaemonSnapshot {
        let followed = FollowedServer { server: "db1".into(), withheld: None };
        let report = json!({
            "source": "orders", "is_streaming": true, "doing": "reading", "heard_ago_ms": 100, "is_mariadb": false,
            "gtids": null, "durable": "1:4", "alarms": [], "readers": [],
        });
        let capture = CaptureSnapshot {
            report: serde_json::from_value(report).expect("a report"),
            state: "streaming",
            followed: followed.clone(),
            server_id: 4201,
            semi_sync: true,
            semi_sync_in_force: Some(true),
            alarms: Vec::new(),
            fault_code: None,
            ackers: None,
            commits_without_ack_total: 0,
            log: CaptureLogSnapshot::default(),
            heartbeat_ms: 250,
            transactions_total: 0,
            event_bytes_total: 0,
            acks_total: 0,
            connections_total: 1,
            durable_segment: 1,
            durable_offset: 4,
        };
        let status = ChannelStatus {
            name: "reports".into(),
            state: ChannelState::Running,
            lag_seconds: Some(0.0),
            ..ChannelStatus::default()
        };
        let mut primary = node("db1", NodeRole::Primary, "db1:3306");
        primary.children =
            vec![node("tailwater", NodeRole::Relay, ""), node("db2", NodeRole::Replica, "db2:3306")];
        let target = node("reports", NodeRole::Target, "db4:3306");
        let nodes = vec![primary, target];
        let cluster = ClusterSnapshot {
            source: "orders".into(),
            own: "db1".into(),
            followed,
            servers: Vec::new(),
            stale_after_ms: 3_000,
            view: ClusterView {
                cluster: Cluster { name: "orders".into(), nodes },
                findings: Vec::new(),
                readiness: None,
            },
            relay_silence_ms: BTreeMap::new(),
            manager: Some(manager(&json!([]), &json!({}))),
        };
        DaemonSnapshot {
            captures: vec![capture],
            channels: vec![ChannelSnapshot { source: "orders".into(), status }],
            clusters: vec![cluster],
            ..DaemonSnapshot::default()
        }
    }

    fn manager(findings: &Value, guard: &Value) -> ManagerSnapshot {
        let mut full = json!({ "is_paused": false, "downtimes": [], "last_failover_ms": null });
        for (key, value) in guard.as_object().expect("an object") {
            full[key] = value.clone();
        }
        let report = json!({
            "source": "orders", "primary": "db1", "lease": "held, term 1", "automatic": true, "now_ms": 1_000,
            "guard_is_known": true, "guard": full, "findings": findings,
            "readiness": FailoverReadiness::Ready { server: "db2".into() },
        });
        let report: ClusterReport = serde_json::from_value(report).expect("a report");
        ManagerSnapshot { holds_lease: true, report }
    }

    fn finding(code: FailureCode, server: &str) -> Value {
        json!({
            "code": code.to_string(), "server": server, "since_ms": 0, "evidence": ["seen"], "action": "alarm",
        })
    }

    fn disk() -> LogDiskStatus {
        let space = DiskSpace { total_bytes: 1 << 40, free_bytes: 1 << 39, log_bytes: 0 };
        LogDiskStatus { directory: "/log".into(), space: Some(space), problem: None }
    }

    /// Returns the object and the code of each problem, as `OBJECT CODE`.
    fn found(snapshot: &DaemonSnapshot) -> Vec<String> {
        let found = problems(snapshot, &disk(), 10_000_000);
        for one in &found {
            assert!(
                !one.text.is_empty() && !one.remedy.is_empty(),
                "a problem has no text or no remedy: {one:?}"
            );
        }
        found.into_iter().map(|one| format!("{} {}", one.object, one.code)).collect()
    }

    fn changed(change: impl Fn(&mut DaemonSnapshot)) -> Vec<String> {
        let mut snapshot = healthy();
        change(&mut snapshot);
        found(&snapshot)
    }

    fn replica(snapshot: &mut DaemonSnapshot) -> &mut TopologyNode {
        &mut snapshot.clusters[0].view.cluster.nodes[0].children[1]
    }

    #[test]
    fn a_healthy_daemon_has_no_problem() {
        assert_eq!(found(&healthy()), [""; 0]);
        assert_eq!(found(&DaemonSnapshot::default()), [""; 0]);
    }

    #[test]
    fn sources_that_do_not_stream_are_reported() {
        let stop = |snapshot: &mut DaemonSnapshot, state: &'static str| {
            snapshot.captures[0].report.is_streaming = false;
            snapshot.captures[0].state = state;
        };
        for state in ["connecting", "waiting", "refused", "stopped_by_order", "stopped"] {
            assert_eq!(changed(|snapshot| stop(snapshot, state)), ["source orders RelayNotStreaming"]);
        }
        let detached = changed(|snapshot| {
            stop(snapshot, "waiting");
            let findings = json!([finding(FailureCode::RelayDetached, "tailwater")]);
            snapshot.clusters[0].manager = Some(manager(&findings, &json!({})));
        });
        assert_eq!(detached, ["source orders RelayNotStreaming"], "the detached relay must be reported once");
        let planned = json!({
            "downtimes": [{ "server": "db1", "from_ms": 0, "until_ms": 2_000, "reason": "" }],
        });
        let planned = changed(|snapshot| {
            stop(snapshot, "waiting");
            snapshot.clusters[0].manager = Some(manager(&json!([]), &planned));
        });
        assert_eq!(planned, [""; 0]);
    }

    #[test]
    fn semi_sync_is_reported_once() {
        let alarmed = changed(|snapshot| {
            let capture = &mut snapshot.captures[0];
            capture.alarms = vec![
                CaptureAlarm { code: "TW-RELAY-0104", text: "the time-out is short".into() },
                CaptureAlarm { code: "TW-RELAY-0102", text: "semi-sync has fallen back".into() },
            ];
            let cluster = &mut snapshot.clusters[0];
            let primary = cluster.view.cluster.nodes[0].clone();
            cluster.view.cluster.nodes[0] = with(primary, ProblemCode::SemiSyncOff);
            let findings = json!([finding(FailureCode::SemiSyncDegraded, "db1")]);
            cluster.manager = Some(manager(&findings, &json!({})));
        });
        assert_eq!(alarmed, ["source orders TW-RELAY-0104", "source orders TW-RELAY-0102"]);
    }

    #[test]
    fn a_finding_replaces_the_problems_that_it_covers() {
        let alone =
            changed(|snapshot| *replica(snapshot) = with(replica(snapshot).clone(), ProblemCode::SqlStopped));
        assert_eq!(alone, ["server db2 SqlStopped"]);
        let both = changed(|snapshot| {
            *replica(snapshot) = with(replica(snapshot).clone(), ProblemCode::SqlStopped);
            *replica(snapshot) = with(replica(snapshot).clone(), ProblemCode::Errant);
            let findings = json!([finding(FailureCode::ReplicaStopped, "db2")]);
            snapshot.clusters[0].manager = Some(manager(&findings, &json!({})));
        });
        assert_eq!(both, ["server db2 ReplicaStopped", "server db2 Errant"]);
        let never_probed = changed(|snapshot| replica(snapshot).reached = false);
        assert_eq!(never_probed, ["server db2 NotReached"]);
    }

    #[test]
    fn what_holds_back_failovers_is_reported() {
        let guarded = |guard: Value| {
            changed(move |snapshot| snapshot.clusters[0].manager = Some(manager(&json!([]), &guard)))
        };
        assert_eq!(guarded(json!({ "is_paused": true })), ["cluster orders FailoverPaused"]);
        assert_eq!(guarded(json!({ "last_failover_ms": 5 })), ["cluster orders FailoverNotAcknowledged"]);
        let manual = changed(|snapshot| {
            let mut manager = manager(&json!([]), &json!({ "is_paused": true, "last_failover_ms": 5 }));
            manager.report.automatic = false;
            snapshot.clusters[0].manager = Some(manager);
        });
        assert_eq!(manual, [""; 0]);
        let lease = |state: LeaseState| {
            changed(move |snapshot| {
                let manager = snapshot.clusters[0].manager.as_mut().expect("a manager");
                (manager.holds_lease, manager.report.lease) = (false, state.to_string());
                manager.report.lease_state = state.clone();
            })
        };
        assert_eq!(lease(LeaseState::HeldByOther { holder: "relay2".into() }), [""; 0]);
        // The state of the lease decides, not its text. If the lease store does not answer, the text of the
        // error may look as if another manager held the lease.
        let reason = "relay2 holds the lease";
        assert_eq!(lease(LeaseState::NotHeld { reason: reason.into() }), ["cluster orders LeaseNotHeld"]);
        let refusing = changed(|snapshot| {
            let manager = snapshot.clusters[0].manager.as_mut().expect("a manager");
            manager.report.refusing = vec!["relay2 refuses orders of term 1".into()];
            manager.report.records_problem = Some("etcd has no space".into());
            manager.report.guard_is_known = false;
        });
        let expected = ["RelayRefusesManager", "AuditRecordsNotStorable", "GuardUnknown"];
        assert_eq!(refusing, expected.map(|code| format!("cluster orders {code}")));
        let not_ready = json!([finding(FailureCode::FailoverNotReady, "db1")]);
        let not_ready =
            changed(|snapshot| snapshot.clusters[0].manager = Some(manager(&not_ready, &json!({}))));
        assert_eq!(not_ready, ["cluster orders FailoverNotReady"]);
    }

    #[test]
    fn channels_that_do_not_apply_are_reported() {
        let channel = |change: &dyn Fn(&mut ChannelStatus)| {
            changed(|snapshot| change(&mut snapshot.channels[0].status))
        };
        let fault = ChannelFault {
            code: "TW-APP-0002".into(),
            message: "refused".into(),
            has_detail: false,
            detail: None,
        };
        for state in [ChannelState::Failed, ChannelState::Connecting] {
            let failed = channel(&|status| (status.state, status.fault) = (state, Some(fault.clone())));
            assert_eq!(failed, ["channel reports TW-APP-0002"]);
            assert_eq!(channel(&|status| status.state = state), ["channel reports ChannelStopped"]);
        }
        let stopped = |reason: &str| {
            let reason = Some(reason.to_owned());
            channel(&|status| (status.state, status.stop_reason) = (ChannelState::Stopped, reason.clone()))
        };
        assert_eq!(stopped("an operator stopped the channel"), ["channel reports ChannelStopped"]);
        assert_eq!(stopped(STOPPED_BY_CONFIGURATION), [""; 0]);
        let lagging =
            |lag, delay| channel(&|status| (status.lag_seconds, status.delay_seconds) = (Some(lag), delay));
        assert_eq!(lagging(10.5, 0), ["channel reports Lagging"]);
        assert_eq!(lagging(10.5, 1), [""; 0]);
        let is_primary = changed(|snapshot| {
            snapshot.channels[0].status.state = ChannelState::Stopped;
            snapshot.clusters[0].view.cluster.nodes[1].address = "db1:3306".into();
        });
        assert_eq!(is_primary, [""; 0]);
    }
}
