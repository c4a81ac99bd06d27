//! The topology tree without real servers: the source of each replica, and servers without a source.

use tailwater_topology::failure_analysis::observer_report::Observed;
use tailwater_topology::probe_failure::ProbeFailure;
use tailwater_topology::server_state::{
    ConnectedReplica, ConnectionUsage, DurabilitySettings, IoState, Observation, ObservedGtids,
    OptionalQuery, ProbeError, ReplicaChannel, SemiSyncSource, ServerState, ThreadError, UnansweredQuery,
    WaitPoint,
};
use tailwater_topology::{
    Cluster, ClusterPlan, ListenerPlan, Member, NodeRole, ProblemCode, Promotion, RelayPlan, RelayReader,
    RelayState, RemoteRelayPlan, TargetPlan, TargetState, TopologyNode, build_tree,
};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

pub const UUIDS: [&str; 4] = [
    "00000000-0000-0000-0000-000000000000",
    "11111111-1111-1111-1111-111111111111",
    "22222222-2222-2222-2222-222222222222",
    "33333333-3333-3333-3333-333333333333",
];

pub fn gtids(text: &str) -> GtidSet {
    GtidSet::parse(Flavour::MySql, text).expect(text)
}

/// A healthy MySQL server named `db<id>`, without replicas.
pub fn look(id: u32) -> ServerState {
    ServerState {
        flavour: Flavour::MySql,
        version: "9.7.0".into(),
        server_id: id,
        uuid: Some(UUIDS[id as usize].into()),
        hostname: format!("db{id}"),
        port: 3306,
        report_host: None,
        uptime_seconds: 100,
        read_only: id != 1,
        super_read_only: id != 1,
        executed: gtids(&format!("{}:1-10", UUIDS[1])),
        purged: Some(gtids("")),
        binlog_state: None,
        log_bin: true,
        log_replica_updates: true,
        connections: ConnectionUsage::default(),
        durability: DurabilitySettings { flush_log_at_commit: 1, sync_binlog: 1 },
        semi_sync_source: None,
        semi_sync_replica: None,
        semi_sync_unavailable: None,
        missing_privilege: None,
        channels: Vec::new(),
        replicas: Vec::new(),
        dump_hosts: Vec::new(),
        unanswered: Vec::new(),
    }
}

pub fn unanswered(question: OptionalQuery) -> UnansweredQuery {
    UnansweredQuery {
        question,
        privilege: "REPLICA MONITOR",
        reason: "SHOW ALL SLAVES STATUS: denied".into(),
    }
}

/// A running channel that reads from a host. `source` is the number of the server at that host; `None` if the
/// channel never reached it.
pub fn from(host: &str, port: u16, source: Option<u32>) -> ReplicaChannel {
    ReplicaChannel {
        name: String::new(),
        source_host: host.into(),
        source_port: port,
        source_server_id: source.unwrap_or_default(),
        source_uuid: source.map(|id| UUIDS[id as usize].into()),
        io: IoState::Running,
        io_error: None,
        sql_running: true,
        sql_error: None,
        lag_seconds: Some(0),
        delay_seconds: 0,
        uses_gtids: true,
        received: gtids(""),
        received_position: ("binlog.000001".into(), 400),
        executed_position: ("binlog.000001".into(), 400),
    }
}

pub fn follows(id: u32, channel: ReplicaChannel) -> ServerState {
    ServerState { channels: vec![channel], ..look(id) }
}

pub fn seen(name: &str, look: ServerState) -> Observation {
    Observation {
        server: name.into(),
        address: format!("{name}:3306"),
        began_ms: 0,
        took_ms: 0,
        outcome: Ok(look),
        earlier: None,
    }
}

pub fn plan(servers: &[&str]) -> ClusterPlan {
    let member =
        |name: &str| Member { name: name.into(), address: format!("{name}:3306"), ..Member::default() };
    ClusterPlan {
        name: "orders".into(),
        primary: member("db1"),
        servers: servers.iter().map(|name| member(name)).collect(),
        relay: RelayPlan {
            server_id: 4201,
            semi_sync: false,
            listeners: vec![ListenerPlan {
                address: "0.0.0.0:3307".into(),
                server_id: 4201,
                uuid: "99999999-9999-9999-9999-999999999999".into(),
            }],
            state: Some(RelayState {
                is_streaming: true,
                doing: "reading".into(),
                heard_ago_ms: Some(120),
                gtids: None,
                durable: "1:4".into(),
                alarms: Vec::new(),
                readers: Vec::new(),
            }),
        },
        ..ClusterPlan::default()
    }
}

/// Returns the whole tree as text, each node as `name(children)`.
fn drawn(cluster: &Cluster) -> String {
    fn branch(node: &TopologyNode) -> String {
        let children: Vec<_> = node.children.iter().map(branch).collect();
        if children.is_empty() { node.name.clone() } else { format!("{}({})", node.name, children.join(" ")) }
    }
    cluster.nodes.iter().map(branch).collect::<Vec<_>>().join(" ")
}

fn find<'a>(cluster: &'a Cluster, name: &str) -> &'a TopologyNode {
    let found = cluster.nodes.iter().flat_map(TopologyNode::walk).find(|node| node.name == name);
    found.unwrap_or_else(|| panic!("the tree has no node {name}: {cluster:#?}"))
}

fn problems(cluster: &Cluster, name: &str) -> Vec<ProblemCode> {
    find(cluster, name).problems.iter().map(|problem| problem.code).collect()
}

#[test]
fn replicas_are_placed_below_the_primary_the_relay_or_another_replica() {
    let mut of_relay = from("10.0.0.9", 3307, None);
    of_relay.source_uuid = Some("99999999-9999-9999-9999-999999999999".into());
    let all = [
        // The source of db2 is found by its UUID, although its address is an alias.
        seen("db2", follows(2, from("primary.example", 3306, Some(1)))),
        seen("db3", follows(3, from("db2", 3306, None))),
        seen("db0", follows(0, of_relay)),
        seen("db1", look(1)),
    ];
    let cluster = build_tree(&plan(&["db2", "db3", "db0"]), &all);
    assert_eq!(drawn(&cluster), "db1(tailwater(db0) db2(db3))");
    assert_eq!(find(&cluster, "tailwater").notes, ["durable to 1:4", "received from the primary 120 ms ago"]);
    for name in ["db1", "db2", "db3", "db0", "tailwater"] {
        assert_eq!(problems(&cluster, name), [], "{name}");
    }
    assert!(["db2", "db3", "db0"].iter().all(|name| find(&cluster, name).role == NodeRole::Replica));
}

#[test]
fn a_relay_that_listens_on_all_addresses_is_found_on_this_host() {
    let all = [seen("db2", follows(2, from("localhost", 3307, None))), seen("db1", look(1))];
    assert_eq!(drawn(&build_tree(&plan(&["db2"]), &all)), "db1(tailwater(db2))");
}

#[test]
fn replicas_are_placed_below_a_relay_on_another_machine() {
    let mut plan = plan(&["db2"]);
    let listen = |address: &str, uuid: &str| ListenerPlan {
        address: address.into(),
        server_id: 4202,
        uuid: uuid.into(),
    };
    plan.others = vec![RemoteRelayPlan {
        name: "relay2".into(),
        relay: RelayPlan {
            server_id: 4202,
            semi_sync: true,
            listeners: vec![listen("relay2:3307", "88888888-8888-8888-8888-888888888888")],
            state: None,
        },
        silent: None,
    }];
    let registered = |server_id| ConnectedReplica { server_id, host: String::new(), port: 0, uuid: None };
    let primary = ServerState { replicas: vec![registered(4201), registered(4202)], ..look(1) };
    let all = [seen("db2", follows(2, from("relay2", 3307, None))), seen("db1", primary)];
    // It is not a problem that the remote relay was not probed. The primary lists the relay as a replica.
    let cluster = build_tree(&plan, &all);
    assert_eq!(drawn(&cluster), "db1(tailwater relay2(db2))");
    assert_eq!(problems(&cluster, "relay2"), []);
    assert!(!find(&cluster, "relay2").reached);
    assert_eq!(find(&cluster, "relay2").notes, ["connected to the primary"]);

    plan.others[0].silent = Some("connection refused".into());
    assert_eq!(problems(&build_tree(&plan, &all), "relay2"), [ProblemCode::RelayNotRunning]);

    plan.others[0].silent = None;
    let state = plan.relay.state.clone();
    plan.others[0].relay.state = state.map(|state| RelayState { is_streaming: false, ..state });
    let cluster = build_tree(&plan, &all);
    assert_eq!(problems(&cluster, "relay2"), [ProblemCode::RelayNotStreaming]);
    assert_eq!(find(&cluster, "relay2").acknowledges, Some(false));
}

#[test]
fn a_server_without_a_known_source_is_a_root() {
    let refused = ProbeError { failure: ProbeFailure::Refused, message: "cannot connect".into() };
    let mut gone = seen("db3", look(3));
    gone.outcome = Err(refused);
    let all = [
        seen("db2", look(2)),
        gone,
        seen("db0", follows(0, from("elsewhere", 3306, None))),
        seen("db1", look(1)),
    ];
    let cluster = build_tree(&plan(&["db2", "db3", "db0"]), &all);
    assert_eq!(drawn(&cluster), "db1(tailwater) db2 db3 db0");
    assert_eq!(problems(&cluster, "db2"), [ProblemCode::NotReplicating]);
    assert_eq!(problems(&cluster, "db3"), [ProblemCode::NotReached]);
    assert_eq!(problems(&cluster, "db0"), [ProblemCode::UnknownSource]);
}

#[test]
fn a_replication_cycle_is_broken_without_losing_a_server() {
    let all = [
        seen("db2", follows(2, from("db3", 3306, Some(3)))),
        seen("db3", follows(3, from("db2", 3306, Some(2)))),
        seen("db1", follows(1, from("db2", 3306, Some(2)))),
    ];
    let cluster = build_tree(&plan(&["db2", "db3"]), &all);
    assert_eq!(drawn(&cluster), "db1(tailwater) db2(db3)");
    assert_eq!(problems(&cluster, "db1"), [ProblemCode::PrimaryReplicates]);
}

#[test]
fn unconfigured_replicas_are_shown_below_their_source() {
    let listed = |server_id, uuid: Option<&str>| ConnectedReplica {
        server_id,
        host: "backup".into(),
        port: 0,
        uuid: uuid.map(str::to_owned),
    };
    let mut primary = look(1);
    // The primary lists Tailwater itself, a configured replica, and a replica that is not configured.
    primary.replicas = vec![listed(4201, Some("x")), listed(2, Some(UUIDS[2])), listed(77, Some("y"))];
    primary.dump_hosts = vec!["a:1".into(), "b:2".into(), "c:3".into(), "d:4".into()];
    let mut plan = plan(&["db2"]);
    let readers = [(2, Some(UUIDS[2])), (78, None), (0, None)];
    if let Some(state) = &mut plan.relay.state {
        state.readers = readers
            .map(|(server_id, uuid)| RelayReader {
                server_id,
                uuid: uuid.map(str::to_owned),
                peer: "10.0.0.8:5000".into(),
                sent: "binlog.000001:4".into(),
            })
            .into();
    }
    let all = [seen("db2", follows(2, from("db1", 3306, Some(1)))), seen("db1", primary)];
    let cluster = build_tree(&plan, &all);
    assert_eq!(drawn(&cluster), "db1(tailwater(server_id 78 a program that reads the log) db2 server_id 77)");
    assert_eq!(find(&cluster, "server_id 77").address, "backup");
    assert_eq!(find(&cluster, "db1").notes, ["1 more connections read its binlog"]);
}

#[test]
fn a_target_that_is_also_a_configured_server_is_one_node() {
    let mut plan = plan(&["db2"]);
    plan.targets = vec![TargetPlan {
        channel: "reports".into(),
        address: "db2:3306".into(),
        state: Some(TargetState {
            doing: "failed".into(),
            is_running: false,
            lag_seconds: Some(7.5),
            stopped_because: None,
            fault: Some("TW-APP-0002: row 7".into()),
        }),
    }];
    let cluster = build_tree(&plan, &[seen("db2", look(2)), seen("db1", look(1))]);
    assert_eq!(drawn(&cluster), "db1(tailwater(db2))");
    let target = find(&cluster, "db2");
    assert_eq!((target.role, target.lag_seconds), (NodeRole::Target, Some(7.5)));
    assert_eq!(problems(&cluster, "db2"), [ProblemCode::ChannelStopped]);
}

#[test]
fn each_problem_of_a_replica_is_reported() {
    let check = |change: &dyn Fn(&mut ServerState), expected: ProblemCode| {
        let mut replica = follows(2, from("db1", 3306, Some(1)));
        change(&mut replica);
        let mut primary = look(1);
        primary.purged = Some(gtids(&format!("{}:1-5", UUIDS[1])));
        let cluster = build_tree(&plan(&["db2"]), &[seen("db2", replica), seen("db1", primary)]);
        assert_eq!(problems(&cluster, "db2"), [expected]);
    };
    let error = || Some(ThreadError { number: 1062, message: "Duplicate entry\nmore".into() });
    check(&|look| (look.read_only, look.super_read_only) = (false, false), ProblemCode::ReplicaWritable);
    check(&|look| look.log_bin = false, ProblemCode::NoBinlog);
    check(&|look| look.log_replica_updates = false, ProblemCode::NoReplicaUpdates);
    check(&|look| look.channels[0].io = IoState::Stopped, ProblemCode::IoStopped);
    check(&|look| look.channels[0].io = IoState::Connecting, ProblemCode::IoConnecting);
    check(
        &|look| (look.channels[0].sql_running, look.channels[0].sql_error) = (false, error()),
        ProblemCode::SqlStopped,
    );
    check(&|look| look.channels[0].uses_gtids = false, ProblemCode::NotByGtids);
    check(&|look| look.channels[0].lag_seconds = Some(11), ProblemCode::Lagging);
    check(&|look| look.server_id = 1, ProblemCode::SameServerId);
    check(&|look| look.version = "8.4.3".into(), ProblemCode::OlderThanSource);
    check(&|look| look.executed = gtids(&format!("{}:1-3", UUIDS[1])), ProblemCode::PurgedBeforeRead);
    check(&|look| look.executed = gtids(&format!("{}:1-10,{}:1", UUIDS[1], UUIDS[2])), ProblemCode::Errant);
    check(&|look| look.executed = gtids(&format!("{}:1-11", UUIDS[1])), ProblemCode::Ahead);
    check(&|look| look.unanswered = vec![unanswered(OptionalQuery::Replication)], ProblemCode::NotAsked);
    // The replica was probed after the primary, so it may have executed newer transactions. Compare only the
    // transactions of its last probe before the probe of the primary.
    let mut newer = follows(2, from("db1", 3306, Some(1)));
    newer.executed = gtids(&format!("{}:1-11", UUIDS[1]));
    let mut newer = Observation { began_ms: 1, ..seen("db2", newer) };
    let cluster = build_tree(&plan(&["db2"]), &[newer.clone(), seen("db1", look(1))]);
    assert_eq!(problems(&cluster, "db2"), []);
    for (executed, expected) in [("1-10", vec![]), ("1-11", vec![ProblemCode::Ahead])] {
        newer.earlier = Some(ObservedGtids {
            ended_ms: 0,
            executed: gtids(&format!("{}:{executed}", UUIDS[1])),
            binlog_state: None,
        });
        let cluster = build_tree(&plan(&["db2"]), &[newer.clone(), seen("db1", look(1))]);
        assert_eq!(problems(&cluster, "db2"), expected);
    }
    // A replica with a configured delay, and a replica that has already received what it lacks, have no
    // problem.
    let mut late = follows(2, from("db1", 3306, Some(1)));
    (late.channels[0].lag_seconds, late.channels[0].delay_seconds) = (Some(60), 60);
    late.executed = gtids(&format!("{}:1-3", UUIDS[1]));
    late.channels[0].received = gtids(&format!("{}:4-10", UUIDS[1]));
    let mut primary = look(1);
    primary.purged = Some(gtids(&format!("{}:1-5", UUIDS[1])));
    let cluster = build_tree(&plan(&["db2"]), &[seen("db2", late), seen("db1", primary)]);
    assert_eq!(problems(&cluster, "db2"), []);
    assert_eq!(find(&cluster, "db2").gtid_state.as_ref().map(|state| state.behind), Some(7));
}

/// The state that a refused query would show is unknown. An unknown state counts neither as good nor as bad.
#[test]
fn the_state_that_a_refused_query_would_show_is_unknown() {
    let blind = |id: u32| {
        let questions = [
            OptionalQuery::Replication,
            OptionalQuery::Replicas,
            OptionalQuery::DumpThreads,
            OptionalQuery::SemiSyncPersistence,
            OptionalQuery::Sessions,
        ];
        ServerState { unanswered: questions.map(unanswered).into(), ..look(id) }
    };
    let cluster = build_tree(&plan(&["db2"]), &[seen("db2", blind(2)), seen("db1", blind(1))]);
    // The queries about replication were denied. The reported problem must say this, and must not claim that
    // the server does not replicate.
    assert_eq!(problems(&cluster, "db2"), [ProblemCode::NotAsked]);
    let node = find(&cluster, "db2");
    assert_eq!((node.role, node.lag_seconds), (NodeRole::Server, None));
    let text = &node.problems[0].text;
    for word in ["from where it replicates is not known", "REPLICA MONITOR", "tailwater grants", "denied"] {
        assert!(text.contains(word), "the problem does not contain {word:?}: {text}");
    }
    // On a primary from which Tailwater only captures, nothing depends on these queries. So the primary has
    // no problem.
    assert_eq!(problems(&cluster, "db1"), []);
    assert!(
        find(&cluster, "db1").notes.iter().any(|note| note.contains("needs")),
        "the note on the lacking privilege is missing: {cluster:#?}"
    );

    // If one of several channels reports no lag, its lag may be the largest.
    let mut two = follows(2, from("db1", 3306, Some(1)));
    two.channels.push(ReplicaChannel { lag_seconds: None, name: "b".into(), ..from("db1", 3306, Some(1)) });
    let cluster = build_tree(&plan(&["db2"]), &[seen("db2", two), seen("db1", look(1))]);
    assert_eq!(find(&cluster, "db2").lag_seconds, None);
}

/// The lag of a channel that does not apply is unknown, not 0. The problem contains the channel's own reason.
#[test]
fn a_stopped_channel_has_no_lag() {
    let mut plan = plan(&[]);
    let because = "the channel's target is the primary that the log follows now";
    let state = TargetState {
        doing: "stopped".into(),
        lag_seconds: None,
        stopped_because: Some(because.into()),
        ..TargetState::default()
    };
    plan.targets = vec![TargetPlan { channel: "c".into(), address: "db9:3306".into(), state: Some(state) }];
    let cluster = build_tree(&plan, &[seen("db1", look(1))]);
    let node = find(&cluster, "c");
    assert_eq!(node.lag_seconds, None);
    assert!(
        node.problems[0].text.contains(because),
        "the tree shows the wrong problems: {:?}",
        node.problems
    );
    assert!(
        !node.problems[0].text.contains("told to stop"),
        "the tree shows the wrong problems: {:?}",
        node.problems
    );
}

#[test]
fn missing_semi_sync_is_a_problem_only_for_candidates() {
    let mut replica = follows(2, from("db1", 3306, Some(1)));
    replica.semi_sync_unavailable = Some("TW-SES-0019: run: GRANT".to_owned());
    let reported = |semi_sync: bool, promotion: Promotion| {
        let mut plan = plan(&["db2"]);
        plan.relay.semi_sync = semi_sync;
        plan.servers[0].promotion = promotion;
        problems(&build_tree(&plan, &[seen("db2", replica.clone()), seen("db1", look(1))]), "db2")
    };
    assert_eq!(reported(true, Promotion::Neutral), [ProblemCode::NoSemiSync]);
    assert_eq!(reported(true, Promotion::MustNot), []);
    assert_eq!(reported(false, Promotion::Neutral), []);
}

#[test]
fn each_problem_of_the_primary_is_reported() {
    let healthy = SemiSyncSource {
        enabled: true,
        active: true,
        timeout_ms: 2_000_000_000,
        wait_point: WaitPoint::AfterSync,
        wait_no_replica: true,
        acks_needed: 1,
        clients: 1,
        waiting_sessions: 0,
        acknowledged: 0,
        unacknowledged: 0,
        survives_restart: true,
    };
    let check = |change: &dyn Fn(&mut ServerState, &mut SemiSyncSource), expected: &[ProblemCode]| {
        let (mut primary, mut semi_sync) = (look(1), healthy.clone());
        change(&mut primary, &mut semi_sync);
        primary.semi_sync_source = Some(semi_sync);
        let mut plan = plan(&[]);
        plan.relay.semi_sync = true;
        let cluster = build_tree(&plan, &[seen("db1", primary)]);
        assert_eq!(problems(&cluster, "db1"), expected);
    };
    check(&|_, _| {}, &[]);
    check(&|look, _| look.read_only = true, &[ProblemCode::PrimaryReadOnly]);
    check(&|look, _| look.durability.sync_binlog = 0, &[ProblemCode::NotDurable]);
    check(&|_, semi_sync| semi_sync.enabled = false, &[ProblemCode::SemiSyncOff]);
    check(&|_, semi_sync| semi_sync.active = false, &[ProblemCode::SemiSyncOff]);
    check(&|_, semi_sync| semi_sync.clients = 0, &[ProblemCode::SemiSyncTooFew]);
    check(&|_, semi_sync| semi_sync.timeout_ms = 10_000, &[ProblemCode::SemiSyncLossy]);
    check(&|_, semi_sync| semi_sync.wait_no_replica = false, &[ProblemCode::SemiSyncLossy]);
    check(&|_, semi_sync| semi_sync.wait_point = WaitPoint::AfterCommit, &[ProblemCode::SemiSyncLossy]);
}

#[test]
fn a_replica_reports_the_state_of_its_source_as_far_as_it_knows() {
    let says = |channel: &ReplicaChannel, before: Option<&ReplicaChannel>| match Observed::of_channel(
        before, channel, 9,
    ) {
        None => "nothing".to_owned(),
        Some(Observed::Streaming { heard_ms, .. }) => format!("streaming {heard_ms:?}"),
        Some(Observed::StreamLost(failure)) => format!("lost: {failure}"),
        Some(other) => panic!("unexpected observation: {other:?}"),
    };
    let running = from("db1", 3306, Some(1));
    let more = ReplicaChannel { received_position: ("binlog.000001".into(), 500), ..running.clone() };
    assert_eq!(says(&running, None), "streaming None");
    assert_eq!(says(&running, Some(&running)), "streaming None");
    assert_eq!(says(&more, Some(&running)), "streaming Some(9)");
    let connecting = |number, message: &str| ReplicaChannel {
        io: IoState::Connecting,
        io_error: Some(ThreadError { number, message: message.into() }),
        ..running.clone()
    };
    assert_eq!(
        says(&connecting(2003, "Can't connect to MySQL server on 'db1' (111)"), None),
        "lost: connection refused"
    );
    assert_eq!(
        says(&connecting(2003, "Can't connect to MySQL server on 'db1' (113)"), None),
        "lost: no route"
    );
    assert_eq!(says(&connecting(2013, "Lost connection"), None), "lost: connection broke");
    assert_eq!(says(&connecting(1045, "Access denied"), None), "lost: access denied");
    assert_eq!(says(&ReplicaChannel { io: IoState::Stopped, ..running.clone() }, None), "nothing");
}
