//! Collects the status of the daemon from its snapshot.

use std::time::{SystemTime, UNIX_EPOCH};

use tailwater_binlog_server::StreamReaders;
use tailwater_topology::{Cluster, NodeRole, TopologyNode};

use super::status_problems::problems;
use crate::api::captures::CaptureSnapshot;
use crate::api::clusters::ClusterSnapshot;
use crate::api::daemon_snapshot::DaemonSnapshot;
use crate::api::daemon_status::{
    BinlogServerStatus, ClusterServer, ClusterStatus, DaemonStatus, LogDiskStatus, ReaderStatus, SourceStatus,
};
use crate::control_api::Control;
use crate::manager::manager_startup::OWN_RELAY;

/// Returns the status of the daemon. `log_disk` is the space of the log's disk.
pub(super) fn collect(control: &Control, log_disk: LogDiskStatus) -> DaemonStatus {
    let snapshot = control.snapshot();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let problems = problems(&snapshot, &log_disk, u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let channels = snapshot.channels.iter().map(|channel| {
        let mut status = channel.status.clone();
        // The detail may contain values of rows.
        if let Some(fault) = &mut status.fault {
            fault.detail = None;
        }
        status
    });
    DaemonStatus {
        ok: problems.is_empty(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: control.uptime().as_secs(),
        log_disk,
        sources: snapshot.captures.iter().map(|capture| source_status(capture, &snapshot)).collect(),
        binlog_servers: control
            .binlog_servers()
            .map(|(source, listen, readers)| binlog_server(source, listen, readers, &snapshot))
            .collect(),
        channels: channels.collect(),
        prefetches: snapshot.prefetches.clone(),
        clusters: snapshot.clusters.iter().map(cluster_status).collect(),
        problems,
    }
}

fn source_status(capture: &CaptureSnapshot, snapshot: &DaemonSnapshot) -> SourceStatus {
    let report = &capture.report;
    let own_relay = cluster_of(snapshot, &report.source)
        .and_then(|cluster| nodes(&cluster.view.cluster).find(|(_, node)| is_own_relay(node)));
    // If the capture does not stream, the comparison of the log with the server is out of date, so it is left
    // out.
    let comparison = own_relay.filter(|_| report.is_streaming).and_then(|(_, node)| node.gtid_state.as_ref());
    SourceStatus {
        source: report.source.clone(),
        server: capture.followed.server.clone(),
        state: capture.state.to_owned(),
        activity: report.doing.clone(),
        durable: report.durable.clone(),
        behind_transactions: comparison.map(|comparison| comparison.behind),
        heard_ago_ms: report.heard_ago_ms,
        semi_sync_in_force: capture.semi_sync_in_force,
        gtids: report.gtids.clone(),
    }
}

fn binlog_server(
    source: &str,
    listen: &str,
    readers: &StreamReaders,
    snapshot: &DaemonSnapshot,
) -> BinlogServerStatus {
    let name = |server_id: u32| {
        let cluster = cluster_of(snapshot, source)?;
        let is_it = |node: &TopologyNode| {
            node.server_id == Some(server_id) && node.reached && node.role != NodeRole::Unconfigured
        };
        nodes(&cluster.view.cluster).find(|(_, node)| is_it(node)).map(|(_, node)| node.name.clone())
    };
    let readers = readers.list().into_iter().map(|reader| ReaderStatus {
        name: name(reader.server_id),
        server_id: reader.server_id,
        peer: reader.peer.to_string(),
        sent: format!("{}:{}", reader.sent.0, reader.sent.1),
    });
    BinlogServerStatus { source: source.to_owned(), listen: listen.to_owned(), readers: readers.collect() }
}

fn cluster_status(cluster: &ClusterSnapshot) -> ClusterStatus {
    let servers = nodes(&cluster.view.cluster).filter(|(reads_from, node)| {
        // Leave out this process and the readers of its log, because the status lists them in other places.
        let is_reader = reads_from.is_some_and(is_own_relay) && node.role == NodeRole::Unconfigured;
        !is_own_relay(node) && !is_reader
    });
    ClusterStatus {
        source: cluster.source.clone(),
        primary: cluster.followed.server.clone(),
        servers: servers.map(|(reads_from, node)| cluster_server(reads_from, node)).collect(),
        manager: cluster.manager.clone(),
    }
}

fn cluster_server(reads_from: Option<&TopologyNode>, node: &TopologyNode) -> ClusterServer {
    ClusterServer {
        name: node.name.clone(),
        role: role_name(node.role).to_owned(),
        address: node.address.clone(),
        reads_from: reads_from.map(|node| node.name.clone()),
        reached: node.reached,
        writable: node.writable,
        lag_seconds: node.lag_seconds,
        behind_transactions: node.gtid_state.as_ref().map(|comparison| comparison.behind),
    }
}

/// Returns the name of a role as in the JSON of a topology.
fn role_name(role: NodeRole) -> &'static str {
    match role {
        NodeRole::Primary => "primary",
        NodeRole::Replica => "replica",
        NodeRole::Relay => "relay",
        NodeRole::Target => "target",
        NodeRole::Server => "server",
        NodeRole::Unconfigured => "seen",
    }
}

pub(super) fn cluster_of<'a>(snapshot: &'a DaemonSnapshot, source: &str) -> Option<&'a ClusterSnapshot> {
    snapshot.clusters.iter().find(|cluster| cluster.source == source)
}

/// Whether a node is the relay of this process.
pub(crate) fn is_own_relay(node: &TopologyNode) -> bool {
    node.role == NodeRole::Relay && node.name == OWN_RELAY
}

/// Returns the nodes of a cluster, each with the node that it reads from. A node comes after the node that it
/// reads from.
pub(crate) fn nodes(cluster: &Cluster) -> impl Iterator<Item = (Option<&TopologyNode>, &TopologyNode)> {
    let mut next: Vec<_> = cluster.nodes.iter().rev().map(|node| (None, node)).collect();
    std::iter::from_fn(move || {
        let (parent, node) = next.pop()?;
        next.extend(node.children.iter().rev().map(|child| (Some(node), child)));
        Some((parent, node))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_the_names_of_the_topology() -> anyhow::Result<()> {
        for role in [
            NodeRole::Primary,
            NodeRole::Replica,
            NodeRole::Relay,
            NodeRole::Target,
            NodeRole::Server,
            NodeRole::Unconfigured,
        ] {
            assert_eq!(serde_json::to_value(role)?, role_name(role));
        }
        Ok(())
    }
}
