//! The overview: what is wrong, the clusters, the sources, the channels. Pure.

use askama::Template;
use tailwater_binlog_stats::number_format::{bytes, share};
use tailwater_daemon::api::clusters::ClusterSnapshot;
use tailwater_daemon::api::daemon_snapshot::DaemonSnapshot;
use tailwater_daemon::api::daemon_status::{DaemonStatus, LogDiskStatus, StatusProblem};
use tailwater_daemon::api::jobs::Job;
use tailwater_daemon::jobs::job_text::{counted, percent};
use tailwater_topology::TopologyNode;

use super::captured_log_view::SourceRow;
use super::channel_view::ChannelRow;
use super::chart_data::{ChartFigure, lag_chart, write_chart};
use super::cluster_graph::{
    ClusterGraph, is_in_downtime, node_health, role_label, row_id, tall_graph, wide_graph,
};
use super::display_format::{UNKNOWN, behind, lag, path_segment, uptime};
use super::failover_view::ClusterRow;
use super::page_layout::{Health, PageFrame};

/// How many running jobs the overview names.
const JOBS_NAMED_MAX: usize = 4;
/// How many servers and relays the graphs of the overview show together. Larger installations would make a
/// page that neither browsers nor people can take in; the other clusters are rows of a table.
const SERVERS_DRAWN_MAX: usize = 24;
/// How many problems the overview lists.
const PROBLEMS_LISTED_MAX: usize = 30;

/// The overview.
#[derive(Debug, Template)]
#[template(path = "page/overview.html")]
pub(super) struct Overview {
    pub(super) frame: PageFrame,
    pub(super) problems: Vec<ProblemCard>,
    /// The number of all problems. More than the list shows, if there are many.
    pub(super) problem_count: usize,
    pub(super) tiles: Vec<FigureTile>,
    /// The clusters with a graph.
    pub(super) clusters: Vec<ClusterPanel>,
    /// The clusters without a graph.
    pub(super) more_clusters: Vec<ClusterRow>,
    pub(super) sources: Vec<SourceRow>,
    pub(super) channels: Vec<ChannelRow>,
    pub(super) charts: Vec<ChartFigure>,
}

/// Something that is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProblemCard {
    pub(super) object: String,
    pub(super) code: String,
    pub(super) text: String,
    /// The parts of the remedy in turn: text, code, text, ...
    pub(super) remedy: Vec<String>,
    /// The view of the object.
    pub(super) path: String,
}

/// A figure with its label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FigureTile {
    pub(super) label: &'static str,
    pub(super) value: String,
    pub(super) note: String,
    pub(super) health: Health,
}

/// A cluster with its graph and its servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterPanel {
    pub(super) source: String,
    pub(super) path: String,
    pub(super) primary: String,
    pub(super) readiness: String,
    pub(super) readiness_health: Health,
    pub(super) wide: ClusterGraph,
    pub(super) tall: ClusterGraph,
    pub(super) servers: Vec<ServerRow>,
}

/// A server of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerRow {
    pub(super) row: String,
    pub(super) name: String,
    pub(super) role: &'static str,
    pub(super) health: Health,
    pub(super) address: String,
    pub(super) version: String,
    pub(super) reads_from: String,
    pub(super) lag: String,
    pub(super) behind: String,
    pub(super) state: String,
    pub(super) problems: Vec<String>,
}

impl Overview {
    pub(super) fn new(frame: PageFrame, status: &DaemonStatus, snapshot: &DaemonSnapshot) -> Self {
        let listed = status.problems.len().min(PROBLEMS_LISTED_MAX);
        let (drawn, more) = drawn_clusters(&snapshot.clusters);
        Self {
            frame,
            problems: problem_cards(&status.problems[..listed]),
            problem_count: status.problems.len(),
            tiles: tiles(status, &snapshot.jobs),
            clusters: drawn.into_iter().map(cluster_panel).collect(),
            more_clusters: more.into_iter().map(ClusterRow::new).collect(),
            sources: status.sources.iter().map(|source| SourceRow::new(source, snapshot)).collect(),
            channels: snapshot.channels.iter().map(ChannelRow::new).collect(),
            charts: [write_chart(snapshot), lag_chart(snapshot)].into_iter().flatten().collect(),
        }
    }
}

/// Splits the clusters into those with a graph and the others, both in their order. Clusters with failed or
/// degraded servers come first when there is not space for all.
fn drawn_clusters(clusters: &[ClusterSnapshot]) -> (Vec<&ClusterSnapshot>, Vec<&ClusterSnapshot>) {
    let size = |cluster: &ClusterSnapshot| -> usize {
        cluster.view.cluster.nodes.iter().map(|root| root.walk().len()).sum()
    };
    let worst = |cluster: &ClusterSnapshot| {
        let nodes = cluster.view.cluster.nodes.iter().flat_map(TopologyNode::walk);
        nodes.map(|node| node_health(cluster, node)).max()
    };
    let mut by_health: Vec<usize> = (0..clusters.len()).collect();
    by_health.sort_by_key(|&index| std::cmp::Reverse(worst(&clusters[index])));
    let (mut drawn, mut servers) = (vec![false; clusters.len()], 0);
    for index in by_health {
        servers += size(&clusters[index]);
        if servers > SERVERS_DRAWN_MAX && drawn.contains(&true) {
            break;
        }
        drawn[index] = true;
    }
    let (with_graph, without): (Vec<_>, Vec<_>) =
        clusters.iter().zip(drawn).partition(|(_, is_drawn)| *is_drawn);
    let clusters = |part: Vec<(_, bool)>| part.into_iter().map(|(cluster, _)| cluster).collect();
    (clusters(with_graph), clusters(without))
}

/// The problems, with the views of their objects.
pub(super) fn problem_cards(problems: &[StatusProblem]) -> Vec<ProblemCard> {
    let card = |problem: &StatusProblem| ProblemCard {
        object: problem.object.clone(),
        code: problem.code.clone(),
        text: problem.text.clone(),
        remedy: problem.remedy.split('`').map(str::to_owned).collect(),
        path: match problem.object.split_once(' ') {
            Some(("source", name)) => format!("/logs/{}", path_segment(name)),
            Some(("channel", name)) => format!("/channels/{}", path_segment(name)),
            Some(("cluster", name)) => format!("/failovers/{}", path_segment(name)),
            _ => String::new(),
        },
    };
    problems.iter().map(card).collect()
}

fn tiles(status: &DaemonStatus, jobs: &[Job]) -> Vec<FigureTile> {
    let streaming = status.sources.iter().filter(|source| source.state == "streaming").count();
    let running =
        status.channels.iter().filter(|channel| super::channel_view::health(channel) == Health::Well).count();
    let all = |part: usize, whole: usize| if part == whole { Health::Well } else { Health::Degraded };
    let clusters = status.clusters.iter().flat_map(|cluster| &cluster.servers);
    let (servers, reached) =
        clusters.fold((0, 0), |(all, reached), server| (all + 1, reached + usize::from(server.reached)));
    vec![
        FigureTile {
            label: "Sources streaming",
            value: format!("{streaming} of {}", status.sources.len()),
            note: "logs that receive every commit".to_owned(),
            health: all(streaming, status.sources.len()),
        },
        FigureTile {
            label: "Servers reached",
            value: format!("{reached} of {servers}"),
            note: "by the last probe".to_owned(),
            health: all(reached, servers),
        },
        FigureTile {
            label: "Channels healthy",
            value: format!("{running} of {}", status.channels.len()),
            note: "apply to their targets".to_owned(),
            health: all(running, status.channels.len()),
        },
        jobs_tile(jobs),
        disk_tile(&status.log_disk, &status.problems),
        FigureTile {
            label: "Running for",
            value: uptime(status.uptime_seconds),
            note: format!("Tailwater {}", status.version),
            health: Health::Unknown,
        },
    ]
}

/// The running jobs.
fn jobs_tile(jobs: &[Job]) -> FigureTile {
    let is_waiting = jobs.iter().any(|job| job.progress.waiting.is_some());
    let text = |job: &Job| match percent(job) {
        Some(percent) => format!("{} {percent} %", job.kind.name()),
        None => job.kind.name().to_owned(),
    };
    let note: Vec<_> = jobs.iter().take(JOBS_NAMED_MAX).map(text).collect();
    let more = if jobs.len() > JOBS_NAMED_MAX { ", …" } else { "" };
    FigureTile {
        label: "Jobs running",
        value: jobs.len().to_string(),
        note: if jobs.is_empty() {
            "dumps, loads, copies, checks".to_owned()
        } else {
            format!("{}{more}", note.join(", "))
        },
        health: match (jobs.is_empty(), is_waiting) {
            (true, _) => Health::Unknown,
            (false, true) => Health::Degraded,
            (false, false) => Health::Well,
        },
    }
}

fn disk_tile(disk: &LogDiskStatus, problems: &[StatusProblem]) -> FigureTile {
    let is_wrong = problems.iter().any(|problem| problem.object == "log disk");
    let health = if is_wrong { Health::Failed } else { Health::Well };
    let (value, note) = match (&disk.space, &disk.problem) {
        (Some(space), _) => (
            format!("{} free", bytes(space.free_bytes)),
            format!(
                "{} of {}; the logs occupy {}",
                share(space.free_bytes, space.total_bytes.max(1)),
                bytes(space.total_bytes),
                bytes(space.log_bytes)
            ),
        ),
        (None, Some(problem)) => ("unknown".to_owned(), problem.clone()),
        (None, None) => (UNKNOWN.to_owned(), "no source is configured".to_owned()),
    };
    FigureTile { label: "Log disk", value, note, health }
}

/// A cluster with its graph and its servers.
pub(super) fn cluster_panel(cluster: &ClusterSnapshot) -> ClusterPanel {
    let mut servers = Vec::new();
    for root in &cluster.view.cluster.nodes {
        add_rows(&mut servers, cluster, None, root);
    }
    let (readiness, readiness_health) = super::failover_view::readiness_text(cluster);
    ClusterPanel {
        source: cluster.source.clone(),
        path: format!("/failovers/{}", path_segment(&cluster.source)),
        primary: cluster.followed.server.clone(),
        readiness,
        readiness_health,
        wide: wide_graph(cluster),
        tall: tall_graph(cluster),
        servers,
    }
}

fn add_rows(
    rows: &mut Vec<ServerRow>,
    cluster: &ClusterSnapshot,
    reads_from: Option<&str>,
    node: &TopologyNode,
) {
    let mut state: Vec<String> = Vec::new();
    if is_in_downtime(cluster, node) {
        state.push("in downtime".to_owned());
    }
    match (node.reached, node.writable) {
        (false, _) => state.push("not reached".to_owned()),
        (true, Some(true)) => state.push("writable".to_owned()),
        (true, Some(false)) => state.push("read-only".to_owned()),
        (true, None) => {}
    }
    if let Some(semi_sync) = &node.semi_sync {
        let needed = semi_sync.acks_needed;
        state.push(match semi_sync.active {
            true => format!("semi-sync: {} of {}", counted(needed.into(), "ACK"), semi_sync.clients),
            false => "semi-sync off".to_owned(),
        });
        if semi_sync.waiting_sessions > 0 {
            let waits = if semi_sync.waiting_sessions == 1 { "waits" } else { "wait" };
            state.push(format!("{} {waits}", counted(semi_sync.waiting_sessions, "commit")));
        }
    }
    if node.acknowledges == Some(true) {
        state.push("acknowledges".to_owned());
    }
    state.extend(node.region.iter().map(|region| format!("region {region}")));
    rows.push(ServerRow {
        row: row_id(&cluster.source, &node.name),
        name: node.name.clone(),
        role: role_label(node.role),
        health: node_health(cluster, node),
        address: node.address.clone(),
        version: node.version.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
        reads_from: reads_from.unwrap_or(UNKNOWN).to_owned(),
        lag: lag(node.lag_seconds.filter(|_| node.reached)),
        behind: behind(node.gtid_state.as_ref().filter(|_| node.reached).map(|state| state.behind)),
        state: state.join(", "),
        problems: node.problems.iter().map(|problem| format!("{}: {}", problem.code, problem.text)).collect(),
    });
    for child in &node.children {
        add_rows(rows, cluster, Some(&node.name), child);
    }
}

#[cfg(test)]
mod tests {
    use tailwater_topology::{NodeRole, ProblemCode, TopologyProblem};

    use super::super::cluster_graph::tests::{cluster, node};
    use super::*;

    #[test]
    fn large_installations_show_the_graphs_of_clusters_with_problems_first() {
        let healthy = |number: usize| {
            let replicas =
                (2..=4).map(|replica| node(&format!("db{replica}"), NodeRole::Replica, Vec::new()));
            let mut cluster = cluster(vec![node("db1", NodeRole::Primary, replicas.collect())]);
            cluster.source = format!("s{number}");
            cluster
        };
        let mut clusters: Vec<_> = (0..50).map(healthy).collect();
        let names = |clusters: &[&ClusterSnapshot]| -> Vec<String> {
            clusters.iter().map(|cluster| cluster.source.clone()).collect()
        };
        let (drawn, more) = drawn_clusters(&clusters);
        assert_eq!(names(&drawn), ["s0", "s1", "s2", "s3", "s4", "s5"]);
        assert_eq!((more.len(), more[0].source.as_str()), (44, "s6"));

        for (index, code) in [(40, ProblemCode::Lagging), (45, ProblemCode::SqlStopped)] {
            let replica = &mut clusters[index].view.cluster.nodes[0].children[0];
            replica.problems.push(TopologyProblem { code, text: "because".to_owned() });
        }
        assert_eq!(names(&drawn_clusters(&clusters).0), ["s0", "s1", "s2", "s3", "s40", "s45"]);

        let replicas = (2..=60).map(|replica| node(&format!("db{replica}"), NodeRole::Replica, Vec::new()));
        let large = cluster(vec![node("db1", NodeRole::Primary, replicas.collect())]);
        assert_eq!(drawn_clusters(&[large]).0.len(), 1, "a cluster is drawn, however large it is");
    }
}
