//! The failovers of all clusters, and one cluster with its manager's report, actions and history. Pure.

use askama::Template;
use tailwater_daemon::api::clusters::{ClusterReport, ClusterSnapshot, FindingReport};
use tailwater_daemon::api::manager_requests::RunSummary;
use tailwater_manager::FailoverReadiness;
use tailwater_topology::failure_analysis::{Downtime, FailureCode};

use super::channel_view::ActionButton;
use super::display_format::{UNKNOWN, local_time, millis, path_segment, run_time};
use super::overview_view::{ClusterPanel, cluster_panel};
use super::page_layout::{Health, PageFrame};

/// All clusters.
#[derive(Debug, Template)]
#[template(path = "page/failovers.html")]
pub(super) struct ClusterList {
    pub(super) frame: PageFrame,
    pub(super) clusters: Vec<ClusterRow>,
}

/// A cluster, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterRow {
    pub(super) source: String,
    pub(super) path: String,
    pub(super) primary: String,
    pub(super) servers: usize,
    pub(super) automatic: String,
    pub(super) readiness: String,
    pub(super) health: Health,
    pub(super) findings: usize,
    pub(super) last_run: String,
}

/// One cluster.
#[derive(Debug, Template)]
#[template(path = "page/failover.html")]
pub(super) struct ClusterDetail {
    pub(super) frame: PageFrame,
    pub(super) cluster: ClusterPanel,
    /// Absent without a manager.
    pub(super) manager: Option<ManagerPanel>,
    pub(super) runs: Vec<RunRow>,
    /// Why the history is not known.
    pub(super) history_failure: Option<String>,
}

/// What the manager reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ManagerPanel {
    /// With a sign where a fact is good or bad.
    pub(super) facts: Vec<(&'static str, String, Option<Health>)>,
    pub(super) findings: Vec<FindingCard>,
    pub(super) downtimes: Vec<DowntimeRow>,
    pub(super) actions: Vec<ActionButton>,
    /// The run in progress, with its path.
    pub(super) running: Option<(String, String)>,
}

/// A failure that the manager sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FindingCard {
    pub(super) code: String,
    pub(super) server: String,
    pub(super) since: String,
    pub(super) evidence: Vec<String>,
    pub(super) action: String,
    pub(super) remedy: &'static str,
}

/// A downtime that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DowntimeRow {
    pub(super) server: String,
    pub(super) until: String,
    pub(super) reason: String,
}

/// A failover or switchover, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunRow {
    pub(super) path: String,
    pub(super) at: String,
    pub(super) kind: String,
    pub(super) primary: String,
    pub(super) outcome: String,
    pub(super) health: Health,
    pub(super) end: String,
    pub(super) took: String,
    pub(super) pause: String,
}

/// Whether a failover would succeed now, in words.
pub(super) fn readiness_text(cluster: &ClusterSnapshot) -> (String, Health) {
    match &cluster.view.readiness {
        None => ("no manager in this daemon".to_owned(), Health::Unknown),
        Some(FailoverReadiness::Ready { server }) => {
            (format!("ready: a failover would promote {server}"), Health::Well)
        }
        Some(FailoverReadiness::NotReady { rule, reason }) => {
            (format!("not ready: {rule}: {reason}"), Health::Failed)
        }
        Some(FailoverReadiness::Unknown { reason }) => (format!("not known: {reason}"), Health::Unknown),
    }
}

impl ClusterRow {
    pub(super) fn new(cluster: &ClusterSnapshot) -> Self {
        let report = cluster.manager.as_ref().map(|manager| &manager.report);
        let (readiness, health) = readiness_text(cluster);
        let servers = cluster.view.cluster.nodes.iter().map(|root| root.walk().len()).sum();
        Self {
            source: cluster.source.clone(),
            path: format!("/failovers/{}", path_segment(&cluster.source)),
            primary: cluster.followed.server.clone(),
            servers,
            automatic: report.map_or_else(|| "no manager".to_owned(), |report| automatic_text(report).0),
            readiness,
            health,
            findings: report.map_or(cluster.view.findings.len(), |report| report.findings.len()),
            last_run: report
                .and_then(|report| report.run.clone())
                .map_or_else(|| UNKNOWN.to_owned(), |run| run_time(&run)),
        }
    }
}

fn automatic_text(report: &ClusterReport) -> (String, Health) {
    match (report.automatic, report.guard.is_paused()) {
        (false, _) => ("off: an operator starts failovers".to_owned(), Health::Unknown),
        (true, true) => ("paused".to_owned(), Health::Degraded),
        (true, false) => ("on".to_owned(), Health::Well),
    }
}

impl ClusterDetail {
    pub(super) fn new(
        frame: PageFrame,
        cluster: &ClusterSnapshot,
        history: Result<Vec<RunSummary>, String>,
    ) -> Self {
        let (runs, history_failure) = match history {
            Ok(runs) => (runs, None),
            Err(reason) => (Vec::new(), cluster.manager.is_some().then_some(reason)),
        };
        Self {
            frame,
            cluster: cluster_panel(cluster),
            manager: cluster
                .manager
                .as_ref()
                .map(|manager| ManagerPanel::new(manager.holds_lease, &manager.report)),
            runs: runs.iter().map(|run| run_row(&cluster.source, run)).collect(),
            history_failure,
        }
    }
}

impl ManagerPanel {
    fn new(holds_lease: bool, report: &ClusterReport) -> Self {
        let lease_health = if holds_lease { Health::Well } else { Health::Degraded };
        let (automatic, automatic_health) = automatic_text(report);
        let mut facts = vec![
            ("Lease", report.lease.clone(), Some(lease_health)),
            ("Automatic failover", automatic, Some(automatic_health)),
        ];
        if let Some(at_ms) = report.guard.last_failover_ms() {
            facts.push((
                "Last failover",
                format!("{}, not acknowledged", local_time(at_ms)),
                Some(Health::Degraded),
            ));
        }
        if !report.guard_is_known {
            facts.push(("Pause and downtimes", "not read from etcd yet".to_owned(), Some(Health::Degraded)));
        }
        let lossless = report.lossless.clone().unwrap_or_else(|| "the primary was never probed".to_owned());
        facts.push(("Acknowledged commits", lossless, None));
        if let Some(waits) = report.waits_after_restart {
            let (text, health) = match waits {
                true => ("yes", Health::Well),
                false => ("no: only a fence hook makes a failover safe", Health::Degraded),
            };
            facts.push(("Commits wait for ACKs after a restart", text.to_owned(), Some(health)));
        }
        facts.extend(
            report
                .refusing
                .iter()
                .map(|relay| ("A relay refuses orders", relay.clone(), Some(Health::Failed))),
        );
        facts.extend(
            report
                .records_problem
                .iter()
                .map(|problem| ("A failover would be refused", problem.clone(), Some(Health::Failed))),
        );
        let now_ms = report.now_ms;
        let lasting = report.guard.downtimes().iter().filter(|downtime| downtime.until_ms > now_ms);
        Self {
            facts,
            findings: report.findings.iter().map(finding_card).collect(),
            downtimes: lasting.map(downtime_row).collect(),
            actions: actions(report),
            running: report
                .run
                .as_ref()
                .filter(|_| report.run_end.is_none())
                .map(|id| (id.clone(), run_path(&report.source, id))),
        }
    }
}

/// The path of the view of a failover or switchover.
pub(super) fn run_path(source: &str, id: &str) -> String {
    format!("/failovers/{}/runs/{}", path_segment(source), path_segment(id))
}

fn finding_card(finding: &FindingReport) -> FindingCard {
    FindingCard {
        code: finding.code.clone(),
        server: finding.server.clone(),
        since: local_time(finding.since_ms),
        evidence: finding.evidence.clone(),
        action: finding.action.clone(),
        remedy: FailureCode::named(&finding.code)
            .map_or("see docs/reference/failure-codes.md", FailureCode::remedy),
    }
}

fn downtime_row(downtime: &Downtime) -> DowntimeRow {
    DowntimeRow {
        server: downtime.server.clone().unwrap_or_else(|| "the whole cluster".to_owned()),
        until: local_time(downtime.until_ms),
        reason: downtime.reason.clone(),
    }
}

fn actions(report: &ClusterReport) -> Vec<ActionButton> {
    let button = |label, action: &'static str, is_dangerous| ActionButton {
        label,
        path: format!("/failovers/{}/{action}", path_segment(&report.source)),
        id: action,
        is_dangerous,
    };
    let mut buttons = vec![
        button("Dry run…", "dry-run", false),
        button("Switchover…", "switchover", true),
        button("Failover…", "failover", true),
    ];
    buttons.push(match report.guard.is_paused() {
        true => button("Resume automatic failover…", "resume", false),
        false => button("Pause automatic failover…", "pause", false),
    });
    if report.guard.last_failover_ms().is_some() {
        buttons.push(button("Acknowledge the failover…", "acknowledge", false));
    }
    buttons.push(button("Downtime…", "downtime", false));
    buttons
}

fn run_row(source: &str, run: &RunSummary) -> RunRow {
    RunRow {
        path: run_path(source, &run.id),
        at: run_time(&run.id),
        kind: kind_text(run),
        primary: match &run.promoted {
            Some(promoted) => format!("{} → {promoted}", run.primary),
            None => run.primary.clone(),
        },
        outcome: run.outcome.clone(),
        health: outcome_health(&run.outcome),
        end: run.end.clone(),
        took: millis(run.took_ms),
        pause: run.pause_ms.map_or_else(|| UNKNOWN.to_owned(), millis),
    }
}

/// Returns the kind in words, such as `failover`, `dry run of a switchover` or `recovery of a failover`.
pub(super) fn kind_text(run: &RunSummary) -> String {
    match (run.dry_run, &run.resumes) {
        (true, _) => format!("dry run of a {}", run.kind),
        (false, Some(_)) => format!("recovery of a {}", run.kind),
        (false, None) => run.kind.to_string(),
    }
}

/// How well a failover or switchover ended.
pub(super) fn outcome_health(outcome: &str) -> Health {
    match outcome {
        "promoted" | "planned" => Health::Well,
        "unchanged" | "undone" => Health::Degraded,
        "unfinished" => Health::Unknown,
        _ => Health::Failed,
    }
}
