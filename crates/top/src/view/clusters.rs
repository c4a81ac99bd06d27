//! The clusters: servers, lag, findings and what to do, and the last failover.

use ratatui::text::Line;
use tailwater_daemon::api::clusters::ManagerSnapshot;
use tailwater_daemon::api::daemon_status::{ClusterServer, ClusterStatus, StatusProblem};

use super::number_with_unit::{self, UNKNOWN, or_unknown};
use super::problem_list::{problem, wrapped};
use super::screen_layout::{Body, Picture};
use super::terminal_style::Tone;
use super::text_table::{Column, ColumnKind, TableCell, table};
use crate::daemon_answer::DaemonAnswer;

pub(super) fn body(picture: &Picture<'_>, width: usize) -> Body {
    let Some(state) = picture.model.state() else { return Body::scrolling(Vec::new()) };
    if state.status.clusters.is_empty() {
        return Body::scrolling(vec![Line::from("This daemon has no clusters.")]);
    }
    let mut lines = Vec::new();
    for cluster in &state.status.clusters {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(cluster_lines(picture, state, cluster, width));
    }
    Body::scrolling(lines)
}

fn cluster_lines(
    picture: &Picture<'_>,
    state: &DaemonAnswer,
    cluster: &ClusterStatus,
    width: usize,
) -> Vec<Line<'static>> {
    let title = format!("CLUSTER {}: primary {}", cluster.source, cluster.primary);
    let mut lines = vec![Line::from(picture.style.span(Tone::Title, title))];
    let problems: Vec<_> = state.status.problems.iter().filter(|one| concerns(one, cluster)).collect();
    lines.extend(problems.iter().flat_map(|one| problem(one, width, usize::MAX, picture.style)));
    for text in manager_texts(cluster) {
        lines.extend(wrapped(&text, "  ", width, usize::MAX).into_iter().map(Line::from));
    }
    lines.extend(servers(picture, cluster, &problems, width));
    lines
}

/// Whether a problem is about the cluster or one of its servers.
fn concerns(problem: &StatusProblem, cluster: &ClusterStatus) -> bool {
    match problem.object.split_once(' ') {
        Some(("cluster" | "source", name)) => name == cluster.source,
        Some(("server" | "relay", name)) => cluster.servers.iter().any(|server| server.name == name),
        _ => false,
    }
}

fn manager_texts(cluster: &ClusterStatus) -> Vec<String> {
    let Some(ManagerSnapshot { report, .. }) = &cluster.manager else {
        return vec!["no manager: Tailwater does not fail this cluster over".to_owned()];
    };
    let mode = if report.automatic { "automatic" } else { "manual" };
    let mut texts = vec![
        format!("{mode} failover, lease {}", report.lease),
        format!("failover now: {}", report.readiness),
    ];
    let downtimes = report.guard.downtimes().iter().filter(|downtime| downtime.until_ms > report.now_ms);
    texts.extend(downtimes.map(|downtime| {
        let left = number_with_unit::seconds((downtime.until_ms - report.now_ms) as f64 / 1e3);
        let server = downtime.server.as_deref().unwrap_or("the whole cluster");
        format!("downtime of {server} for another {left}: no automatic failover ({})", downtime.reason)
    }));
    texts.push(match (&report.run, &report.run_end) {
        (None, _) => "last failover: none".to_owned(),
        (Some(run), None) => format!("UNDER WAY: {run}"),
        (Some(run), Some(end)) => format!("last failover: {run}: {}", end.trim_end().replace('\n', "; ")),
    });
    for finding in &report.findings {
        let age = number_with_unit::seconds(report.now_ms.saturating_sub(finding.since_ms) as f64 / 1e3);
        texts.push(format!(
            "{} of {} for {age}: the manager: {}",
            finding.code, finding.server, finding.action
        ));
    }
    texts
}

fn servers(
    picture: &Picture<'_>,
    cluster: &ClusterStatus,
    problems: &[&StatusProblem],
    width: usize,
) -> Vec<Line<'static>> {
    use ColumnKind::{Name, Number, Text};
    let column = |title, kind, optional| Column { title, kind, optional };
    let columns = [
        column("SERVER", Name, 0),
        column("ROLE", Text, 0),
        column("READS FROM", Name, 0),
        column("LAG", Number, 0),
        column("BEHIND TRX", Number, 0),
        column("WRITES", Text, 0),
        column("HEALTH", Text, 0),
        column("ADDRESS", Text, 1),
    ];
    let rows: Vec<_> = cluster.servers.iter().map(|server| server_row(server, problems)).collect();
    match rows.is_empty() {
        true => vec![Line::from("No server has been probed yet.")],
        false => table(&columns, &rows, None, width, picture.style),
    }
}

fn server_row(server: &ClusterServer, problems: &[&StatusProblem]) -> Vec<TableCell> {
    let is_member = matches!(server.role.as_str(), "primary" | "replica" | "server");
    let writes = match (is_member, server.writable) {
        (true, Some(true)) => "writable",
        (true, Some(false)) => "read-only",
        _ => UNKNOWN,
    };
    let object = format!(" {}", server.name);
    let its = problems.iter().filter(|problem| problem.object.ends_with(&object)).count();
    let health = match (server.reached, its) {
        (false, _) if server.role == "seen" => TableCell::from("not probed"),
        (false, _) => TableCell::new(Tone::Bad, "NO ANSWER"),
        (true, 0) => TableCell::new(Tone::Good, "ok"),
        (true, 1) => TableCell::new(Tone::Bad, "1 PROBLEM"),
        (true, count) => TableCell::new(Tone::Bad, format!("{count} PROBLEMS")),
    };
    vec![
        TableCell::from(&server.name),
        TableCell::from(&server.role),
        TableCell::from(server.reads_from.as_deref().unwrap_or(UNKNOWN)),
        TableCell::from(or_unknown(server.lag_seconds, number_with_unit::seconds)),
        TableCell::from(or_unknown(server.behind_transactions, |count| {
            number_with_unit::count(count as f64)
        })),
        TableCell::from(writes),
        health,
        TableCell::from(&server.address),
    ]
}
