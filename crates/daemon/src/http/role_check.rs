//! Whether a server is the primary of its cluster, or a replica that may be read. Pure: looks in, an answer out.
//!
//! The primary is the server that the log follows, and no other, whatever another says of itself: an ex-primary that comes
//! back writable is none. While the log is told to stop nobody is: that is how a failover begins.

use serde::Serialize;
use tailwater_manager::topology::{Cluster, NodeRole, ProblemCode, TopologyNode};

/// Whom the log follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedServer {
    /// The server's name in the configuration.
    pub server: String,
    /// Why nobody is the primary now, if so.
    pub held: Option<String>,
}

/// What one look at a server says that matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// How long ago the look began, in milliseconds.
    pub age_ms: u64,
    /// Whether ordinary accounts can write; or why that could not be asked.
    pub writable: Result<bool, String>,
}

/// The answer to a check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct RoleCheck {
    /// The cluster.
    pub source: String,
    /// The server that was asked about, or that is the primary.
    pub server: String,
    /// The answer.
    pub ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How far it is behind at most, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// Where the server is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// Whether clients may write to `server`; if not, why.
pub(super) fn primary(
    leader: &FollowedServer,
    server: &str,
    seen: Option<&Seen>,
    stale_after_ms: u64,
) -> Result<(), String> {
    if leader.server != server {
        return Err(format!("the log follows {}", leader.server));
    }
    if let Some(held) = &leader.held {
        return Err(held.clone());
    }
    match &fresh(seen, stale_after_ms)?.writable {
        Ok(true) => Ok(()),
        Ok(false) => Err("it is read-only".to_owned()),
        Err(reason) => Err(reason.clone()),
    }
}

fn fresh(seen: Option<&Seen>, stale_after_ms: u64) -> Result<&Seen, String> {
    let seen = seen.ok_or("it was not looked at yet")?;
    if seen.age_ms > stale_after_ms {
        return Err(format!("it was last looked at {} ms ago", seen.age_ms));
    }
    Ok(seen)
}

/// How far `server` is behind the primary, in seconds, if it may be read; or why it may not. `silent_ms` is how long the
/// relay of that name has had nothing from the primary, a heartbeat included; `None` if it never had anything.
///
/// Lags add up along the way: who reads from a server that stands still is in step with it.
pub(super) fn replica(
    cluster: &Cluster,
    server: &str,
    silent_ms: &dyn Fn(&str) -> Option<u64>,
    lag_seconds_max: u64,
) -> Result<f64, String> {
    let Some(way) = cluster.nodes.iter().find_map(|root| way_to(root, server)) else {
        return Err("it is not a server of this cluster".to_owned());
    };
    let Some((first, below)) = way.split_first() else { return Err("it is nowhere".to_owned()) };
    if first.role != NodeRole::Primary {
        return Err(match below.is_empty() {
            true => "it replicates from nothing that is known".to_owned(),
            false => format!("it replicates from {}, which is not the primary", first.name),
        });
    }
    if below.is_empty() {
        return Err("it is the primary".to_owned());
    }
    let mut lag = 0.0;
    for node in below {
        lag += lag_of(node, silent_ms).map_err(|reason| match node.name == server {
            true => reason,
            false => format!("{}, which it reads from: {reason}", node.name),
        })?;
    }
    if lag > lag_seconds_max as f64 {
        return Err(format!("it is {lag:.1} s behind, and {lag_seconds_max} are allowed"));
    }
    Ok(lag)
}

/// From the root of a tree down to a server.
fn way_to<'a>(node: &'a TopologyNode, server: &str) -> Option<Vec<&'a TopologyNode>> {
    if node.name == server && node.role != NodeRole::Relay {
        return Some(vec![node]);
    }
    let mut way = node.children.iter().find_map(|child| way_to(child, server))?;
    way.insert(0, node);
    Some(way)
}

fn lag_of(node: &TopologyNode, silent_ms: &dyn Fn(&str) -> Option<u64>) -> Result<f64, String> {
    if let Some(problem) = node.problems.iter().find(|problem| is_standstill(problem.code)) {
        // A relay that does not stream is as far behind as it has heard nothing.
        if node.role != NodeRole::Relay || problem.code == ProblemCode::RelayNotRunning {
            return Err(format!("{}: {}", problem.code, problem.text));
        }
        let silent = silent_ms(&node.name).ok_or("the log has had nothing from the primary yet")?;
        return Ok(silent as f64 / 1000.0);
    }
    match (node.role, node.lag_seconds) {
        (NodeRole::Relay, _) if !node.reached => Err("it was not asked yet".to_owned()),
        (NodeRole::Relay, _) => Ok(0.0),
        (_, Some(lag)) => Ok(lag),
        (_, None) => Err("it does not say how far it is behind".to_owned()),
    }
}

/// Whether something keeps a node from getting what its source has.
fn is_standstill(code: ProblemCode) -> bool {
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
    use tailwater_manager::topology::{
        ClusterPlan, Member, Promotion, RelayPlan, RelayState, TargetPlan, TargetState, TopologyProblem,
        build_tree,
    };

    use super::*;

    /// What hangs below a relay on another machine is as good as that relay.
    #[test]
    fn another_relay_is_not_taken_on_trust() {
        let below = node("db2", NodeRole::Replica, Some(1.0), Vec::new());
        let relay = node("relay2", NodeRole::Relay, None, vec![below]);
        let tree = |relay: TopologyNode| led(vec![node("db1", NodeRole::Primary, None, vec![relay])]);
        let silent = |name: &str| Some(if name == "relay2" { 9_000 } else { 0 });
        assert_eq!(replica(&tree(relay.clone()), "db2", &silent, 5), Ok(1.0));
        let cut_off = troubled(relay.clone(), ProblemCode::RelayNotStreaming);
        says(replica(&tree(cut_off), "db2", &silent, 5), "10.0 s behind");
        let dead = troubled(relay.clone(), ProblemCode::RelayNotRunning);
        says(replica(&tree(dead), "db2", &silent, 5), "relay2, which it reads from");
        says(replica(&tree(TopologyNode { reached: false, ..relay }), "db2", &silent, 5), "not asked yet");
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

    fn says(verdict: Result<f64, String>, expected: &str) {
        assert!(verdict.as_ref().is_err_and(|reason| reason.contains(expected)), "{verdict:?}");
    }

    #[test]
    fn the_primary_is_whom_the_log_follows_and_no_other() {
        let leader = FollowedServer { server: "db1".to_owned(), held: None };
        let seen = |age_ms, writable| Some(Seen { age_ms, writable });
        let check = |leader: &FollowedServer, server: &str, seen: Option<Seen>| {
            primary(leader, server, seen.as_ref(), 3_000).err().unwrap_or_default()
        };
        assert_eq!(check(&leader, "db1", seen(3_000, Ok(true))), "");
        assert_eq!(check(&leader, "db2", seen(0, Ok(true))), "the log follows db1");
        assert_eq!(check(&leader, "db1", seen(0, Ok(false))), "it is read-only");
        assert_eq!(check(&leader, "db1", seen(0, Err("refused".to_owned()))), "refused");
        assert_eq!(check(&leader, "db1", seen(3_001, Ok(true))), "it was last looked at 3001 ms ago");
        assert_eq!(check(&leader, "db1", None), "it was not looked at yet");
        let held = FollowedServer { held: Some("the log is told to stop".to_owned()), ..leader };
        assert_eq!(check(&held, "db1", seen(0, Ok(true))), "the log is told to stop");
    }

    proptest! {
        /// Whatever servers say of themselves, at most one of a cluster is written to.
        #[test]
        fn never_two_primaries(
            follows in 0usize..4,
            held in any::<bool>(),
            looks in prop::collection::vec((0u64..6_000, prop::option::of(any::<bool>())), 4),
        ) {
            let leader = FollowedServer { server: format!("db{follows}"), held: held.then(|| "held".to_owned()) };
            let written: Vec<usize> = (0..4).filter(|index| {
                let (age_ms, writable) = looks[*index];
                let seen = Seen { age_ms, writable: writable.ok_or_else(|| "refused".to_owned()) };
                primary(&leader, &format!("db{index}"), Some(&seen), 3_000).is_ok()
            }).collect();
            prop_assert!(written.len() <= 1);
            prop_assert!(written.iter().all(|index| *index == follows && !held));
        }
    }

    #[test]
    fn lags_add_up_on_the_way_down() {
        let below = node("db3", NodeRole::Replica, Some(2.0), Vec::new());
        let middle = node("db2", NodeRole::Replica, Some(3.0), vec![below]);
        let target = node("reports", NodeRole::Target, Some(1.0), Vec::new());
        let relay = node("tailwater", NodeRole::Relay, None, vec![middle, target]);
        let tree = led(vec![node("db1", NodeRole::Primary, None, vec![relay.clone()])]);
        assert_eq!(replica(&tree, "db2", &|_| Some(0), 5), Ok(3.0));
        assert_eq!(replica(&tree, "db3", &|_| Some(0), 5), Ok(5.0));
        assert_eq!(replica(&tree, "reports", &|_| Some(0), 1), Ok(1.0));
        says(replica(&tree, "db3", &|_| Some(0), 4), "5.0 s behind");
        says(replica(&tree, "db1", &|_| Some(0), 5), "it is the primary");
        says(replica(&tree, "db9", &|_| Some(0), 5), "not a server of this cluster");
        says(replica(&tree, "tailwater", &|_| Some(0), 5), "not a server of this cluster");

        // A log that does not stream: nobody below it can know.
        let silent = led(vec![node(
            "db1",
            NodeRole::Primary,
            None,
            vec![troubled(relay.clone(), ProblemCode::RelayNotStreaming)],
        )]);
        assert_eq!(replica(&silent, "db2", &|_| Some(1_500), 5), Ok(4.5));
        says(replica(&silent, "db2", &|_| Some(2_500), 5), "5.5 s behind");
        says(replica(&silent, "db2", &|_| None, 5), "nothing from the primary");
    }

    #[test]
    fn who_stands_still_is_not_read_nor_who_reads_from_him() {
        let below = node("db3", NodeRole::Replica, Some(0.0), Vec::new());
        for code in [ProblemCode::SqlStopped, ProblemCode::IoConnecting, ProblemCode::NotReached] {
            let middle = troubled(node("db2", NodeRole::Replica, Some(0.0), vec![below.clone()]), code);
            let tree = led(vec![node("db1", NodeRole::Primary, None, vec![middle])]);
            says(replica(&tree, "db2", &|_| Some(0), 5), &code.to_string());
            says(replica(&tree, "db3", &|_| Some(0), 5), "db2, which it reads from");
        }
        let quiet = node("db2", NodeRole::Replica, None, Vec::new());
        says(
            replica(&led(vec![node("db1", NodeRole::Primary, None, vec![quiet])]), "db2", &|_| Some(0), 5),
            "does not say",
        );
        // Below the ex-primary it is in step with what nobody writes to any more.
        let stray = node("old", NodeRole::Server, None, vec![below]);
        let tree = led(vec![node("db1", NodeRole::Primary, None, Vec::new()), stray]);
        says(replica(&tree, "db3", &|_| Some(0), 5), "it replicates from old, which is not the primary");
        says(replica(&tree, "old", &|_| Some(0), 5), "replicates from nothing");
    }

    /// What the tree says of a target, and of servers that nobody reached, is what is judged here.
    #[test]
    fn a_real_tree_is_judged() {
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
        says(replica(&build_tree(&plan(true), &[]), "db2", &|_| Some(0), 5), "replicates from nothing");
    }
}
