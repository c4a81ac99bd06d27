//! Tests of the candidate selection: a table of cases, and properties over random clusters.

use proptest::prelude::*;
use tailwater_manager::SafetyRefusal;
use tailwater_manager::candidates::{
    CandidateRanking, CandidateServer, Drawback, ExclusionReason, GtidOrigin, LogContents, ReplicationKind,
    SelectionInput, rank_candidates,
};
use tailwater_topology::cluster_config::Member;
use tailwater_topology::probe_failure::ProbeFailure;
use tailwater_topology::server_state::{
    ConnectionUsage, DurabilitySettings, IoState, Observation, ProbeError, ReplicaChannel, ServerState,
    ThreadError,
};
use tailwater_topology::{Promotion, ServerVersion};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{GtidSet, MysqlGtid};

const OLD: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const OTHER: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429562";

fn mysql(text: &str) -> GtidSet {
    let text = text.replace("old", OLD).replace("other", OTHER);
    GtidSet::parse(Flavour::MySql, &text).expect("the text must be a valid GTID set")
}

fn mariadb(text: &str) -> GtidSet {
    GtidSet::parse(Flavour::MariaDb, text).expect("the text must be a valid GTID set")
}

fn old_primary() -> GtidOrigin {
    GtidOrigin::MySql(MysqlGtid::parse(&format!("{OLD}:1")).expect("the text must be a valid GTID").uuid)
}

/// A healthy replica that has received and executed all of `text`.
fn replica(name: &str, text: &str) -> CandidateServer {
    CandidateServer {
        name: name.to_owned(),
        reached: Ok(()),
        flavour: Flavour::MySql,
        version: ServerVersion { major: 9, minor: 7, patch: 1 },
        region: None,
        promotion: Promotion::Neutral,
        feed: ReplicationKind::Native,
        received: Some(mysql(text)),
        executed: Some(mysql(text)),
        purged: Some(mysql("")),
        log_bin: true,
        log_replica_updates: true,
        durable: true,
        applier_error: None,
        semi_sync_unavailable: None,
        failed: None,
        catch_up_ms: Some(0),
    }
}

fn log(holds: &str, before: &str) -> LogContents {
    LogContents { name: "relay".to_owned(), holds: mysql(holds), before: mysql(before) }
}

fn question<'a>(log: &'a LogContents, servers: &'a [CandidateServer]) -> SelectionInput<'a> {
    SelectionInput {
        region: None,
        version: ServerVersion { major: 9, minor: 7, patch: 1 },
        origin: old_primary(),
        log,
        servers,
        across_regions: false,
        catch_up_ms_max: 10_000,
    }
}

/// Ranks the servers with a log that holds `old:1-10` from its beginning, and checks the choice.
fn check(servers: &[CandidateServer], want: Result<&str, &str>) -> CandidateRanking {
    check_with(&log("old:1-10", ""), servers, want)
}

fn check_with(log: &LogContents, servers: &[CandidateServer], want: Result<&str, &str>) -> CandidateRanking {
    let choice = rank_candidates(&question(log, servers));
    match (choice.best(None), want) {
        (Ok(best), Ok(name)) => assert_eq!(best.server, name, "{choice:#?}"),
        (Err(refusal), Err(text)) => assert!(
            refusal.to_string().contains(text),
            "the choice was refused for the wrong reason: {refusal}"
        ),
        (found, _) => panic!("the choice is {found:?} instead of {want:?}: {choice:#?}"),
    }
    choice
}

#[test]
fn servers_are_ranked_by_received_transactions_not_by_executed_ones() {
    let ahead_in_executed = replica("executed", "old:1-8");
    let ahead_in_received =
        CandidateServer { executed: Some(mysql("old:1-5")), ..replica("received", "old:1-10") };
    let choice = check(&[ahead_in_executed, ahead_in_received], Ok("received"));
    assert_eq!(choice.ranked[0].drains.as_deref(), Some(&*format!("{OLD}:6-10")));
    assert!(choice.ranked[0].backfills.is_empty());
    assert_eq!(choice.ranked[1].backfills[0].what, format!("{OLD}:9-10"));
}

#[test]
fn missing_transactions_come_from_the_log() {
    let choice = check(&[replica("a", "old:1-4")], Ok("a"));
    let supply = &choice.ranked[0].backfills[0];
    assert_eq!((supply.from.as_str(), supply.from_log), ("relay", true));
    assert_eq!(choice.ranked[0].lacks.as_deref(), Some(&*format!("{OLD}:5-10")));
}

#[test]
fn a_server_is_excluded_if_no_server_can_send_what_it_lacks() {
    let log = log("old:1-10", "old:1-6");
    check_with(&log, &[replica("a", "old:1-4")], Err("the server lacks"));
    // Another replica can fill the gap if its binlog still has the transactions, but not if it has purged
    // them.
    let giver = CandidateServer { promotion: Promotion::MustNot, ..replica("giver", "old:1-10") };
    let choice = check_with(&log, &[replica("a", "old:1-4"), giver.clone()], Ok("a"));
    assert_eq!(choice.ranked[0].backfills[0].from, "giver");
    let purged = CandidateServer { purged: Some(mysql("old:1-5")), ..giver };
    check_with(&log, &[replica("a", "old:1-4"), purged], Err("the server lacks"));
}

#[test]
fn errant_transactions_exclude_a_server_and_are_listed() {
    let choice = check(&[replica("a", "old:1-10,other:1-2"), replica("b", "old:1-3")], Ok("b"));
    assert_eq!(choice.ranked[1].excluded, [ExclusionReason::Errant { gtids: format!("{OTHER}:1-2") }]);
}

#[test]
fn the_unacknowledged_end_of_the_old_primary_is_not_errant() {
    let choice = check(&[replica("a", "old:1-10"), replica("b", "old:1-11")], Ok("b"));
    assert!(choice.ranked[0].lacks.is_none());
    // The server that lacks the transaction gets it from the server that has it.
    assert_eq!(choice.ranked[1].backfills[0].from, "b");
    // If server b cannot send the transaction, the candidate lacks it. This is reported, and counts as a
    // loss.
    let mute = CandidateServer { log_replica_updates: false, ..replica("b", "old:1-11") };
    let choice = check(&[replica("a", "old:1-10"), mute], Ok("a"));
    assert_eq!(choice.ranked[0].against, [Drawback::LeavesBehind { servers: vec!["b".to_owned()] }]);
}

#[test]
fn the_configured_preference_counts_more_than_the_received_transactions() {
    let wish = |name: &str, promotion, text: &str| CandidateServer { promotion, ..replica(name, text) };
    let preferred = wish("c", Promotion::Prefer, "old:1-2");
    check(&[replica("a", "old:1-10"), preferred.clone()], Ok("c"));
    check(&[wish("a", Promotion::PreferNot, "old:1-10"), replica("b", "old:1-2")], Ok("b"));
    check(&[wish("a", Promotion::PreferNot, "old:1-10")], Ok("a"));
    check(&[wish("a", Promotion::MustNot, "old:1-10")], Err("must_not"));
    // The preference is ignored for a server that needs an hour to catch up.
    let slow = CandidateServer { catch_up_ms: Some(3_600_000), ..preferred };
    let choice = check(&[slow, replica("a", "old:1-10")], Ok("a"));
    assert!(choice.ranked[1].against.contains(&Drawback::Slow { ms: 3_600_000 }));
}

#[test]
fn a_server_without_semi_sync_is_excluded_but_can_send_missing_transactions() {
    let lack = "TW-SES-0019: user 'lead'@'%' lacks INSERT on mysql.plugin";
    let unfit = CandidateServer { semi_sync_unavailable: Some(lack.to_owned()), ..replica("a", "old:1-12") };
    check(std::slice::from_ref(&unfit), Err(lack));
    let choice = check(&[unfit, replica("b", "old:1-10")], Ok("b"));
    assert_eq!(choice.ranked[0].backfills[0].from, "a");
    assert_eq!(choice.ranked[1].excluded, [ExclusionReason::NoSemiSync { reason: lack.to_owned() }]);
    let json =
        serde_json::to_value(&choice.ranked[1].excluded).expect("the value must be serializable as JSON");
    assert_eq!(json[0]["because"], "no_semi_sync");
}

#[test]
fn a_server_in_another_region_is_chosen_only_if_that_is_allowed() {
    let log = log("old:1-10", "");
    let servers = [CandidateServer { region: Some("west".to_owned()), ..replica("a", "old:1-10") }];
    let mut asked = SelectionInput { region: Some("east"), ..question(&log, &servers) };
    assert!(rank_candidates(&asked).best(None).is_err());
    asked.across_regions = true;
    assert_eq!(
        rank_candidates(&asked)
            .best(None)
            .expect("the ranking must contain a server that can be promoted")
            .server,
        "a"
    );
}

#[test]
fn an_older_server_is_preferred_if_it_could_not_replicate_from_a_newer_one() {
    let older = CandidateServer {
        version: ServerVersion { major: 8, minor: 4, patch: 9 },
        ..replica("b", "old:1-10")
    };
    let choice = check(&[replica("a", "old:1-10"), older], Ok("b"));
    assert!(matches!(choice.ranked[1].against[..], [Drawback::CannotFollow { .. }]));
    let patch = CandidateServer {
        version: ServerVersion { major: 9, minor: 7, patch: 0 },
        ..replica("b", "old:1-9")
    };
    check(&[replica("a", "old:1-10"), patch], Ok("a"));
}

#[test]
fn a_server_that_cannot_be_a_source_is_excluded_with_the_reason() {
    let base = || replica("a", "old:1-10");
    check(&[CandidateServer { log_bin: false, ..base() }], Err("log_bin is off"));
    check(&[CandidateServer { log_replica_updates: false, ..base() }], Err("log_replica_updates is off"));
    check(&[CandidateServer { reached: Err("timed out".to_owned()), ..base() }], Err("timed out"));
    check(&[CandidateServer { received: None, ..base() }], Err("are unknown"));
    check(&[CandidateServer { flavour: Flavour::MariaDb, ..base() }], Err("other flavour"));
    check(&[CandidateServer { applier_error: Some("1062".to_owned()), ..base() }], Err("cannot be executed"));
    check(&[], Err("no other server"));
}

#[test]
fn durability_and_then_lag_decide_between_equal_servers() {
    let lax = CandidateServer { durable: false, ..replica("a", "old:1-10") };
    let behind = CandidateServer { catch_up_ms: Some(900), ..replica("b", "old:1-10") };
    check(&[lax.clone(), behind.clone()], Ok("b"));
    check(&[lax, behind, replica("c", "old:1-10")], Ok("c"));
}

#[test]
fn the_target_of_a_channel_does_not_need_log_replica_updates() {
    let target = CandidateServer {
        feed: ReplicationKind::Channel,
        log_replica_updates: false,
        ..replica("a", "old:1-7")
    };
    let choice = check(&[target], Ok("a"));
    assert_eq!(choice.ranked[0].backfills[0].what, format!("{OLD}:8-10"));
}

#[test]
fn a_channel_target_that_is_no_copy_or_has_its_own_gtids_cannot_become_primary() {
    for (feed, because) in [
        (ReplicationKind::ChannelOwnGtids, ExclusionReason::OwnGtids),
        (ReplicationKind::PartialChannel, ExclusionReason::Partial),
    ] {
        let targets = [CandidateServer { feed, ..replica("a", "old:1-10") }, replica("b", "old:1-10")];
        let choice = check(&targets, Ok("b"));
        assert_eq!(choice.ranked[1].excluded, [because]);
    }
}

#[test]
fn a_requested_server_is_promoted_or_refused() {
    let servers = [
        replica("a", "old:1-10"),
        CandidateServer { promotion: Promotion::MustNot, ..replica("b", "old:1-10") },
    ];
    let choice = check(&servers, Ok("a"));
    assert!(
        matches!(choice.best(Some("b")), Err(SafetyRefusal::CandidateUnfit { server, .. }) if server == "b")
    );
    assert!(matches!(choice.best(Some("c")), Err(SafetyRefusal::CandidateUnfit { .. })));
    assert_eq!(
        choice.best(Some("a")).expect("the ranking must allow the promotion of the server").server,
        "a"
    );
}

#[test]
fn mariadb_transactions_are_attributed_by_server_id() {
    let log = LogContents { name: "relay".to_owned(), holds: mariadb("0-1-10"), before: mariadb("") };
    let of = |name: &str, text: &str| CandidateServer {
        flavour: Flavour::MariaDb,
        received: Some(mariadb(text)),
        executed: Some(mariadb(text)),
        purged: Some(mariadb("")),
        ..replica(name, "")
    };
    let servers = [of("ahead", "0-1-11"), of("errant", "0-1-10,0-7-11"), of("behind", "0-1-8")];
    let choice =
        rank_candidates(&SelectionInput { origin: GtidOrigin::MariaDb(1), ..question(&log, &servers) });
    let order: Vec<_> = choice.ranked.iter().map(|one| one.server.as_str()).collect();
    assert_eq!(order, ["ahead", "behind", "errant"]);
    assert!(
        matches!(&choice.ranked[2].excluded[..], [ExclusionReason::Errant { gtids }] if gtids == "0-7-11")
    );
}

/// An observation of a replica that has executed `executed` and received `received`.
fn look_at(executed: &str, received: &str, sql_error: Option<ThreadError>) -> Observation {
    let channel = ReplicaChannel {
        name: String::new(),
        source_host: "127.0.0.1".to_owned(),
        source_port: 3306,
        source_server_id: 1,
        source_uuid: Some(OLD.to_owned()),
        io: IoState::Running,
        io_error: None,
        sql_running: sql_error.is_none(),
        sql_error,
        lag_seconds: Some(2),
        delay_seconds: 0,
        uses_gtids: true,
        received: mysql(received),
        received_position: (String::new(), 0),
        executed_position: (String::new(), 0),
    };
    let look = ServerState {
        flavour: Flavour::MySql,
        version: "9.7.1-lts".to_owned(),
        server_id: 2,
        uuid: None,
        hostname: String::new(),
        port: 3306,
        report_host: None,
        uptime_seconds: 1,
        read_only: true,
        super_read_only: true,
        executed: mysql(executed),
        purged: Some(mysql("")),
        binlog_state: None,
        log_bin: true,
        log_replica_updates: true,
        connections: ConnectionUsage::default(),
        durability: DurabilitySettings { flush_log_at_commit: 1, sync_binlog: 1 },
        semi_sync_source: None,
        semi_sync_replica: None,
        semi_sync_unavailable: None,
        channels: vec![channel],
        replicas: Vec::new(),
        dump_hosts: Vec::new(),
        missing_privilege: None,
        unanswered: Vec::new(),
    };
    Observation {
        server: "a".to_owned(),
        address: String::new(),
        began_ms: 0,
        took_ms: 1,
        outcome: Ok(look),
        earlier: None,
    }
}

#[test]
fn an_observation_is_converted_to_a_candidate() {
    let member = Member { name: "a".to_owned(), promotion: Promotion::Prefer, ..Member::default() };
    let version = ServerVersion { major: 9, minor: 7, patch: 0 };
    let seen = |look: &Observation, progress: Option<&GtidSet>| {
        CandidateServer::seen(&member, look, progress, Flavour::MySql, version)
    };
    let server = seen(&look_at("old:1-5", "old:4-9", None), None);
    assert_eq!((server.received.clone(), server.catch_up_ms), (Some(mysql("old:1-9")), Some(2000)));
    assert_eq!(
        (server.version.patch, server.promotion, server.feed),
        (1, Promotion::Prefer, ReplicationKind::Native)
    );
    let choice = check(&[server], Ok("a"));
    assert_eq!(choice.ranked[0].drains.as_deref(), Some(&*format!("{OLD}:6-9")));
    // The account lacks the privilege to read the replication status. So it is unknown whether the relay logs
    // contain more than the server has executed.
    let mut blind = look_at("old:1-5", "", None);
    if let Ok(look) = &mut blind.outcome {
        look.channels.clear();
        look.unanswered = vec![crate::topology_tree::unanswered(
            tailwater_topology::server_state::OptionalQuery::Replication,
        )];
    }
    let blind = seen(&blind, None);
    assert_eq!(blind.received, None);
    assert!(
        check(&[blind], Err("received transactions are unknown")).ranked[0]
            .excluded
            .contains(&ExclusionReason::Unknown)
    );
    let mut powerless = look_at("old:1-9", "old:4-9", None);
    if let Ok(look) = &mut powerless.outcome {
        look.missing_privilege = Some("SUPER is missing".to_owned());
    }
    assert!(seen(&powerless, None).reached.is_err_and(|reason| reason.contains("SUPER")));
    let caught_up = seen(&look_at("old:1-9", "old:4-9", None), None);
    assert_eq!(caught_up.catch_up_ms, Some(0));
    let error = ThreadError { number: 1062, message: "duplicate".to_owned() };
    check(&[seen(&look_at("old:1-5", "old:4-9", Some(error)), None)], Err("1062 duplicate"));
    // The GTIDs of a channel target itself show nothing. The progress of the channel shows which
    // transactions the target has.
    let target = seen(&look_at("other:1-5", "", None), Some(&mysql("old:1-7")));
    assert_eq!((target.feed, target.executed.clone()), (ReplicationKind::Channel, Some(mysql("old:1-7"))));
    check(&[target], Ok("a"));
    let unreached = ProbeError { failure: ProbeFailure::TimedOut, message: "timed out".to_owned() };
    let silent = Observation { outcome: Err(unreached), ..look_at("", "", None) };
    check(&[seen(&silent, None)], Err("timed out"));
}

prop_compose! {
    fn any_server()(
        received in 0u64..14,
        executed in 0u64..14,
        purged in 0u64..14,
        errant in prop::bool::weighted(0.2),
        promotion in prop::sample::select(vec![
            Promotion::Prefer, Promotion::Neutral, Promotion::PreferNot, Promotion::MustNot,
        ]),
        reached in prop::bool::weighted(0.8),
        log_replica_updates in prop::bool::weighted(0.8),
        durable in any::<bool>(),
        stopped in prop::bool::weighted(0.1),
        minor in 6u16..8,
        catch_up_ms in prop::option::of(0u64..20_000),
    ) -> CandidateServer {
        let upto = |last: u64| mysql(&if last == 0 { String::new() } else { format!("old:1-{last}") });
        let executed = executed.min(received);
        let mut text = if received == 0 { String::new() } else { format!("old:1-{received}") };
        if errant {
            text.push_str(",other:1");
        }
        CandidateServer {
            reached: if reached { Ok(()) } else { Err("timed out".to_owned()) },
            version: ServerVersion { major: 9, minor, patch: 0 },
            promotion,
            received: Some(mysql(&text)),
            executed: Some(upto(executed)),
            purged: Some(upto(purged.min(executed))),
            log_replica_updates,
            durable,
            applier_error: stopped.then(|| "1062".to_owned()),
            catch_up_ms,
            ..replica("", "")
        }
    }
}

proptest! {
    /// The candidate can get everything that the log has, from servers that can send it. An excluded server
    /// is never chosen. The order of the servers does not affect the ranking.
    #[test]
    fn the_chosen_server_can_get_all_transactions_and_is_never_an_excluded_one(
        mut servers in prop::collection::vec(any_server(), 0..5),
        before in 0u64..10,
        turn in 0usize..5,
    ) {
        for (index, server) in servers.iter_mut().enumerate() {
            server.name = format!("s{index}");
        }
        let before = if before == 0 { String::new() } else { format!("old:1-{before}") };
        let log = log("old:1-10", &before);
        let choice = rank_candidates(&question(&log, &servers));
        let mut turned = servers.clone();
        turned.rotate_left(turn.min(servers.len()));
        turned.reverse();
        prop_assert_eq!(&rank_candidates(&question(&log, &turned)), &choice);
        let by_name = |name: &str| {
            servers.iter().find(|server| server.name == name).expect("a ranked server has an unknown name")
        };
        for assessment in choice.ranked.iter().filter(|one| one.is_candidate()) {
            let server = by_name(&assessment.server);
            prop_assert!(server.promotion != Promotion::MustNot && server.reached.is_ok());
            let received = server.received.clone().expect("the received transactions must be known");
            prop_assert!(
                !received.to_string().contains(OTHER),
                "the candidate has errant transactions: {received}"
            );
            let mut has = received.clone();
            for supply in &assessment.backfills {
                if supply.from_log {
                    prop_assert!(log.before.is_subset_of(&received), "the log lacks what the server needs");
                    prop_assert!(mysql(&supply.what).is_subset_of(&log.holds));
                } else {
                    let giver = by_name(&supply.from);
                    prop_assert!(giver.reached.is_ok() && giver.log_replica_updates && giver.applier_error.is_none());
                    prop_assert!(
                        giver.purged.as_ref().expect("the purged GTIDs must be known").is_subset_of(&received),
                        "the sender has purged transactions that the server lacks"
                    );
                    prop_assert!(mysql(&supply.what).is_subset_of(
                        giver.received.as_ref().expect("the received transactions must be known")
                    ));
                }
                has = has.union(&mysql(&supply.what)).expect("both GTID sets must have the same flavour");
            }
            prop_assert!(log.holds.is_subset_of(&has), "{} cannot get all transactions: {has}", assessment.server);
        }
        // If at least one server has no reason against it, a server must be chosen.
        let fit = servers.iter().any(|server| {
            server.reached.is_ok() && server.promotion != Promotion::MustNot && server.log_replica_updates
                && server.applier_error.is_none()
                && log.before.is_subset_of(server.received.as_ref().expect("the GTIDs must be known"))
                && !server.received.as_ref().expect("the GTIDs must be known").to_string().contains(OTHER)
        });
        prop_assert!(!fit || choice.best(None).is_ok());
    }
}
