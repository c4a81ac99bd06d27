//! Decides whether a server is the primary of its cluster, or a replica that clients may read from. A pure
//! function of a snapshot.
//!
//! The primary is the server that the log follows, whatever a server reports about itself: a former primary
//! that returns and accepts writes does not count. While the log is stopped by an order of a manager, no
//! server counts as the primary: every failover begins with such an order.

use tailwater_topology::{Cluster, NodeRole, ProblemCode, TopologyNode};

use crate::api::captures::FollowedServer;
use crate::api::cluster_servers::{RoleCheck, ServerSnapshot, WritableProbe};
use crate::api::clusters::ClusterSnapshot;
use crate::api::daemon_requests::{CommandError, CommandErrorKind};

/// The greatest lag of a replica that clients may read from, in seconds, if the check does not give a limit.
const LAG_SECONDS_MAX: u64 = 10;

/// Checks whether clients may write to a server, or to the primary of a cluster.
///
/// # Errors
/// If the configuration has no such server or source, or has several sources and the check names none.
pub fn check_primary(
    clusters: &[ClusterSnapshot],
    server: Option<&str>,
    source: Option<&str>,
) -> Result<RoleCheck, CommandError> {
    let cluster = match server {
        Some(server) => cluster_of(clusters, server, source)?,
        None => cluster_named(clusters, source)?,
    };
    let server = server.map_or(cluster.followed.server.as_str(), |server| canonical(cluster, server));
    let probe = cluster.servers.iter().find(|one| one.name == server).and_then(|one| one.probe.as_ref());
    let answer = primary(&cluster.followed, server, probe, cluster.stale_after_ms);
    Ok(role_check(cluster, server, answer.map(|()| None)))
}

/// Checks whether clients may read from a server.
///
/// # Errors
/// If the configuration has no such server.
pub fn check_replica(
    clusters: &[ClusterSnapshot],
    server: &str,
    source: Option<&str>,
    lag_seconds_max: Option<u64>,
) -> Result<RoleCheck, CommandError> {
    let cluster = cluster_of(clusters, server, source)?;
    let server = canonical(cluster, server);
    let silent_ms = |relay: &str| cluster.relay_silence_ms.get(relay).copied().flatten();
    let lag_max = lag_seconds_max.unwrap_or(LAG_SECONDS_MAX);
    let answer = replica(&cluster.view.cluster, server, &silent_ms, lag_max);
    Ok(role_check(cluster, server, answer.map(Some)))
}

fn role_check(cluster: &ClusterSnapshot, server: &str, answer: Result<Option<f64>, String>) -> RoleCheck {
    let known = cluster.servers.iter().find(|one| is_named(one, server));
    RoleCheck {
        source: cluster.source.clone(),
        server: server.to_owned(),
        ok: answer.is_ok(),
        lag_seconds: answer.as_ref().ok().copied().flatten(),
        reason: answer.err(),
        address: known.map(|known| known.address.clone()),
    }
}

/// Returns the cluster of a server.
fn cluster_of<'a>(
    clusters: &'a [ClusterSnapshot],
    server: &str,
    source: Option<&str>,
) -> Result<&'a ClusterSnapshot, CommandError> {
    let has = |cluster: &&ClusterSnapshot| {
        source.is_none_or(|source| cluster.source == source)
            && (server == cluster.source || cluster.servers.iter().any(|one| is_named(one, server)))
    };
    let unknown = || format!("the configuration has no server {server}");
    clusters.iter().find(has).ok_or_else(|| error(CommandErrorKind::UnknownName, unknown()))
}

/// Returns the cluster of a source.
fn cluster_named<'a>(
    clusters: &'a [ClusterSnapshot],
    source: Option<&str>,
) -> Result<&'a ClusterSnapshot, CommandError> {
    match (source, clusters) {
        (None, [only]) => Ok(only),
        (None, _) => Err(error(
            CommandErrorKind::Invalid,
            "there are several sources: add source=NAME to the request".to_owned(),
        )),
        (Some(source), _) => clusters.iter().find(|cluster| cluster.source == source).ok_or_else(|| {
            error(CommandErrorKind::UnknownName, "the configuration has no source of that name".to_owned())
        }),
    }
}

fn error(kind: CommandErrorKind, message: String) -> CommandError {
    CommandError { kind, code: None, message }
}

/// Returns the name under which a server is probed. The source's name represents the source's own server.
fn canonical<'a>(cluster: &'a ClusterSnapshot, server: &'a str) -> &'a str {
    if server == cluster.source { &cluster.own } else { server }
}

/// Whether the snapshot is of the server with this name. In snapshots, the target of a channel has the name
/// `channel NAME` if it has no `[[server]]` section.
fn is_named(one: &ServerSnapshot, server: &str) -> bool {
    one.name == server || one.name.strip_prefix("channel ") == Some(server)
}

/// Returns whether clients may write to `server`, or the reason why clients may not write to it.
fn primary(
    followed: &FollowedServer,
    server: &str,
    probe: Option<&WritableProbe>,
    stale_after_ms: u64,
) -> Result<(), String> {
    if followed.server != server {
        return Err(format!("the log follows {}", followed.server));
    }
    if let Some(reason) = &followed.withheld {
        return Err(reason.clone());
    }
    match &fresh(probe, stale_after_ms)?.writable {
        Ok(true) => Ok(()),
        Ok(false) => Err("the server is read-only".to_owned()),
        Err(reason) => Err(reason.clone()),
    }
}

fn fresh(probe: Option<&WritableProbe>, stale_after_ms: u64) -> Result<&WritableProbe, String> {
    let probe = probe.ok_or("the server has not been probed yet")?;
    if probe.age_ms > stale_after_ms {
        return Err(format!("the last probe of the server began {} ms ago", probe.age_ms));
    }
    Ok(probe)
}

/// Returns the lag of `server` in seconds if clients may read from it, or the reason why clients may not read
/// from it. `silent_ms` returns the milliseconds since a relay last received something from the primary,
/// heartbeats included; `None` if the relay never received anything.
///
/// The lags along the path from the primary are added up. A replica of a stopped replica would otherwise show
/// no lag.
fn replica(
    cluster: &Cluster,
    server: &str,
    silent_ms: &dyn Fn(&str) -> Option<u64>,
    lag_seconds_max: u64,
) -> Result<f64, String> {
    let Some(path) = cluster.nodes.iter().find_map(|root| path_to(root, server)) else {
        return Err("no server of this cluster has this name".to_owned());
    };
    let Some((first, below)) = path.split_first() else {
        return Err("the server is not in the topology tree".to_owned());
    };
    if first.role != NodeRole::Primary {
        return Err(match below.is_empty() {
            true => "the server replicates from no server of the configuration".to_owned(),
            false => format!("the server replicates from {}, which is not the primary", first.name),
        });
    }
    if below.is_empty() {
        return Err("the server is the primary".to_owned());
    }
    let mut lag = 0.0;
    for node in below {
        lag += lag_of(node, silent_ms).map_err(|reason| match node.name == server {
            true => reason,
            false => format!("{}, which the server replicates from: {reason}", node.name),
        })?;
    }
    if lag > lag_seconds_max as f64 {
        return Err(format!(
            "the lag of the server is {lag:.1} s, and at most {lag_seconds_max} s are allowed"
        ));
    }
    Ok(lag)
}

/// Returns the nodes from the root of a tree down to a server.
fn path_to<'a>(node: &'a TopologyNode, server: &str) -> Option<Vec<&'a TopologyNode>> {
    if node.name == server && node.role != NodeRole::Relay {
        return Some(vec![node]);
    }
    let mut path = node.children.iter().find_map(|child| path_to(child, server))?;
    path.insert(0, node);
    Some(path)
}

fn lag_of(node: &TopologyNode, silent_ms: &dyn Fn(&str) -> Option<u64>) -> Result<f64, String> {
    if let Some(problem) = node.problems.iter().find(|problem| is_stopped(problem.code)) {
        // If a relay is not streaming, its lag is the time since it last received something.
        if node.role != NodeRole::Relay || problem.code == ProblemCode::RelayNotRunning {
            return Err(format!("{}: {}", problem.code, problem.text));
        }
        let silent = silent_ms(&node.name).ok_or("the log has received nothing from the primary yet")?;
        return Ok(silent as f64 / 1000.0);
    }
    match (node.role, node.lag_seconds) {
        (NodeRole::Relay, _) if !node.reached => Err("the relay has not been probed yet".to_owned()),
        (NodeRole::Relay, _) => Ok(0.0),
        (_, Some(lag)) => Ok(lag),
        (_, None) => Err("the server does not report its lag".to_owned()),
    }
}

/// Whether a problem stops a node from receiving or applying the changes of its source.
fn is_stopped(code: ProblemCode) -> bool {
    match code {
        ProblemCode::NotReached
        | ProblemCode::IoStopped
        | ProblemCode::IoConnecting
        | ProblemCode::SqlStopped
        | ProblemCode::NotReplicating
        | ProblemCode::UnknownSource
        | ProblemCode::OtherFlavour
        | ProblemCode::RelayNotRunning
        | ProblemCode::RelayNotStreaming
        | ProblemCode::ChannelStopped => true,
        ProblemCode::PrimaryReadOnly
        | ProblemCode::ReplicaWritable
        | ProblemCode::Lagging
        | ProblemCode::Errant
        | ProblemCode::Ahead
        | ProblemCode::PurgedBeforeRead
        | ProblemCode::NotByGtids
        | ProblemCode::NoReplicaUpdates
        | ProblemCode::NoBinlog
        | ProblemCode::NotDurable
        | ProblemCode::NoSemiSync
        | ProblemCode::SemiSyncOff
        | ProblemCode::SemiSyncTooFew
        | ProblemCode::SemiSyncLossy
        | ProblemCode::SameServerId
        | ProblemCode::OlderThanSource
        | ProblemCode::PrimaryReplicates
        | ProblemCode::NotAsked => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tailwater_topology::{
        ClusterPlan, Member, Promotion, RelayPlan, RelayState, TargetPlan, TargetState, TopologyProblem,
        build_tree,
    };

    use super::*;

    /// A replica of a relay on another machine lags at least as much as that relay.
    #[test]
    fn the_lag_of_a_remote_relay_counts() {
        let below = node("db2", NodeRole::Replica, Some(1.0), Vec::new());
        let relay = node("relay2", NodeRole::Relay, None, vec![below]);
        let tree = |relay: TopologyNode| led(vec![node("db1", NodeRole::Primary, None, vec![relay])]);
        let silent = |name: &str| Some(if name == "relay2" { 9_000 } else { 0 });
        assert_eq!(replica(&tree(relay.clone()), "db2", &silent, 5), Ok(1.0));
        let cut_off = troubled(relay.clone(), ProblemCode::RelayNotStreaming);
        says(replica(&tree(cut_off), "db2", &silent, 5), "the lag of the server is 10.0 s");
        let dead = troubled(relay.clone(), ProblemCode::RelayNotRunning);
        says(replica(&tree(dead), "db2", &silent, 5), "relay2, which the server replicates from");
        says(
            replica(&tree(TopologyNode { reached: false, ..relay }), "db2", &silent, 5),
            "not been probed yet",
        );
    }

    fn node(
        name: &str,
        role: NodeRole,
        lag_seconds: Option<f64>,
        children: Vec<TopologyNode>,
    ) -> TopologyNode {
        TopologyNode {
            name: name.to_owned(),
            role,
            address: String::new(),
            reached: true,
            version: None,
            server_id: None,
            writable: None,
            lag_seconds,
            gtids: None,
            gtid_state: None,
            semi_sync: None,
            acknowledges: None,
            promotion: Promotion::Neutral,
            region: None,
            notes: Vec::new(),
            problems: Vec::new(),
            children,
        }
    }

    fn troubled(mut node: TopologyNode, code: ProblemCode) -> TopologyNode {
        node.problems.push(TopologyProblem { code, text: "why".to_owned() });
        node
    }

    fn led(nodes: Vec<TopologyNode>) -> Cluster {
        Cluster { name: "orders".to_owned(), nodes }
    }

    fn says(answer: Result<f64, String>, expected: &str) {
        assert!(
            answer.as_ref().is_err_and(|reason| reason.contains(expected)),
            "expected {expected:?}, but the answer is {answer:?}"
        );
    }

    #[test]
    fn the_primary_is_the_server_that_the_log_follows_and_no_other() {
        let followed = FollowedServer { server: "db1".to_owned(), withheld: None };
        let seen = |age_ms, writable| Some(WritableProbe { age_ms, writable });
        let check = |followed: &FollowedServer, server: &str, probe: Option<WritableProbe>| {
            primary(followed, server, probe.as_ref(), 3_000).err().unwrap_or_default()
        };
        assert_eq!(check(&followed, "db1", seen(3_000, Ok(true))), "");
        assert_eq!(check(&followed, "db2", seen(0, Ok(true))), "the log follows db1");
        assert_eq!(check(&followed, "db1", seen(0, Ok(false))), "the server is read-only");
        assert_eq!(check(&followed, "db1", seen(0, Err("refused".to_owned()))), "refused");
        assert_eq!(
            check(&followed, "db1", seen(3_001, Ok(true))),
            "the last probe of the server began 3001 ms ago"
        );
        assert_eq!(check(&followed, "db1", None), "the server has not been probed yet");
        let stopped = FollowedServer { withheld: Some("the log is stopped".to_owned()), ..followed };
        assert_eq!(check(&stopped, "db1", seen(0, Ok(true))), "the log is stopped");
    }

    proptest! {
        /// Whatever servers report about themselves, clients may write to at most one server of a cluster.
        #[test]
        fn clients_may_write_to_one_server_at_most(
            follows in 0usize..4,
            stopped in any::<bool>(),
            probes in prop::collection::vec((0u64..6_000, prop::option::of(any::<bool>())), 4),
        ) {
            let followed = FollowedServer { server: format!("db{follows}"), withheld: stopped.then(|| "stopped".to_owned()) };
            let written: Vec<usize> = (0..4).filter(|index| {
                let (age_ms, writable) = probes[*index];
                let probe = WritableProbe { age_ms, writable: writable.ok_or_else(|| "refused".to_owned()) };
                primary(&followed, &format!("db{index}"), Some(&probe), 3_000).is_ok()
            }).collect();
            prop_assert!(written.len() <= 1);
            prop_assert!(written.iter().all(|index| *index == follows && !stopped));
        }
    }

    #[test]
    fn lags_along_the_path_are_added_up() {
        let below = node("db3", NodeRole::Replica, Some(2.0), Vec::new());
        let middle = node("db2", NodeRole::Replica, Some(3.0), vec![below]);
        let target = node("reports", NodeRole::Target, Some(1.0), Vec::new());
        let relay = node("tailwater", NodeRole::Relay, None, vec![middle, target]);
        let tree = led(vec![node("db1", NodeRole::Primary, None, vec![relay.clone()])]);
        assert_eq!(replica(&tree, "db2", &|_| Some(0), 5), Ok(3.0));
        assert_eq!(replica(&tree, "db3", &|_| Some(0), 5), Ok(5.0));
        assert_eq!(replica(&tree, "reports", &|_| Some(0), 1), Ok(1.0));
        says(replica(&tree, "db3", &|_| Some(0), 4), "the lag of the server is 5.0 s");
        says(replica(&tree, "db1", &|_| Some(0), 5), "the server is the primary");
        says(replica(&tree, "db9", &|_| Some(0), 5), "no server of this cluster has this name");
        says(replica(&tree, "tailwater", &|_| Some(0), 5), "no server of this cluster has this name");

        // The relay does not stream, so the replicas that read from it cannot know their lag.
        let silent = led(vec![node(
            "db1",
            NodeRole::Primary,
            None,
            vec![troubled(relay.clone(), ProblemCode::RelayNotStreaming)],
        )]);
        assert_eq!(replica(&silent, "db2", &|_| Some(1_500), 5), Ok(4.5));
        says(replica(&silent, "db2", &|_| Some(2_500), 5), "the lag of the server is 5.5 s");
        says(replica(&silent, "db2", &|_| None, 5), "nothing from the primary");
    }

    #[test]
    fn a_stopped_replica_and_the_replicas_below_it_are_refused() {
        let below = node("db3", NodeRole::Replica, Some(0.0), Vec::new());
        for code in [ProblemCode::SqlStopped, ProblemCode::IoConnecting, ProblemCode::NotReached] {
            let middle = troubled(node("db2", NodeRole::Replica, Some(0.0), vec![below.clone()]), code);
            let tree = led(vec![node("db1", NodeRole::Primary, None, vec![middle])]);
            says(replica(&tree, "db2", &|_| Some(0), 5), &code.to_string());
            says(replica(&tree, "db3", &|_| Some(0), 5), "db2, which the server replicates from");
        }
        let quiet = node("db2", NodeRole::Replica, None, Vec::new());
        says(
            replica(&led(vec![node("db1", NodeRole::Primary, None, vec![quiet])]), "db2", &|_| Some(0), 5),
            "does not report its lag",
        );
        // The server `old` is a former primary, to which clients do not write any more. It has a replica.
        let stray = node("old", NodeRole::Server, None, vec![below]);
        let tree = led(vec![node("db1", NodeRole::Primary, None, Vec::new()), stray]);
        says(
            replica(&tree, "db3", &|_| Some(0), 5),
            "the server replicates from old, which is not the primary",
        );
        says(replica(&tree, "old", &|_| Some(0), 5), "replicates from no server of the configuration");
    }

    /// Checks a tree that has the target of a channel, and a server that was not reached.
    #[test]
    fn a_tree_of_the_manager_is_checked() {
        let plan = |is_running| ClusterPlan {
            name: "orders".to_owned(),
            primary: Member { name: "db1".to_owned(), address: "db1:3306".to_owned(), ..Member::default() },
            servers: vec![Member {
                name: "db2".to_owned(),
                address: "db2:3306".to_owned(),
                ..Member::default()
            }],
            relay: RelayPlan {
                state: Some(RelayState {
                    is_streaming: true,
                    doing: String::new(),
                    heard_ago_ms: Some(0),
                    gtids: None,
                    durable: String::new(),
                    alarms: Vec::new(),
                    readers: Vec::new(),
                }),
                ..RelayPlan::default()
            },
            targets: vec![TargetPlan {
                channel: "reports".to_owned(),
                address: "db3:3306".to_owned(),
                state: Some(TargetState { is_running, lag_seconds: Some(2.5), ..TargetState::default() }),
            }],
            ..ClusterPlan::default()
        };
        assert_eq!(replica(&build_tree(&plan(true), &[]), "reports", &|_| Some(0), 5), Ok(2.5));
        says(replica(&build_tree(&plan(false), &[]), "reports", &|_| Some(0), 5), "ChannelStopped");
        says(
            replica(&build_tree(&plan(true), &[]), "db2", &|_| Some(0), 5),
            "replicates from no server of the configuration",
        );
    }
}
