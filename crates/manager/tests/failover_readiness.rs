//! Tests the rehearsal of a failover while the primary is alive. If a safety rule would refuse the failover,
//! the rehearsal must report this rule.

use std::collections::{BTreeMap, BTreeSet};

use tailwater_manager::FailoverReadiness;
use tailwater_manager::action_executor::AckerReport;
use tailwater_manager::cluster_watch::{ClusterState, WatchedCluster};
use tailwater_manager::failover::FailoverRequest;
use tailwater_manager::failover_readiness::rehearse;
use tailwater_manager::lossless_rules::{
    AckPolicyHistory, AckerEvidence, AckerStop, PolicyObservation, SemiSyncWait,
};
use tailwater_manager::model::LeaseToken;
use tailwater_topology::failure_analysis::{AnalysisSettings, FailoverGuard, FailureCode};

use crate::failover_state_machine::{World, order, set};
use crate::topology_tree::plan;

type Reports = BTreeMap<String, Result<AckerReport, String>>;

fn world() -> World {
    World::new(&[5], &[(5, 5), (4, 4)], 1)
}

fn reports(names: &[&str], holds: u64) -> Reports {
    let report = |name: &&str| {
        let name = (*name).to_owned();
        let acker = AckerEvidence {
            name: name.clone(),
            durable: true,
            stop: AckerStop::Unknown,
            holds: Some(set(holds)),
        };
        (name, Ok(AckerReport { acker, before: set(0), term: LeaseToken(1) }))
    };
    names.iter().map(report).collect()
}

/// Returns the failover request of the model. `change` sets how the primary of the request waits for ACKs.
fn waiting(
    ackers: &[&str],
    unconfigured_replicas: u32,
    change: impl FnOnce(&mut SemiSyncWait),
) -> FailoverRequest {
    let mut waiting = SemiSyncWait {
        active: true,
        after_sync: true,
        timeout_ms: u64::MAX,
        waits_without_ackers: true,
        acks_required: 1,
        unacknowledged: 0,
        survives_restart: true,
    };
    change(&mut waiting);
    let ackers: BTreeSet<String> = ackers.iter().map(|name| (*name).to_owned()).collect();
    let holds = ackers.iter().map(|name| (name.clone(), set(9))).collect();
    let look = PolicyObservation {
        waiting: &waiting,
        ackers: &ackers,
        unconfigured_replicas,
        executed: &set(0),
        holds: &holds,
    };
    let mut ack_policies = AckPolicyHistory::begin(&look);
    ack_policies.observe(&look);
    FailoverRequest {
        ack_policies: Some(ack_policies),
        ackers: ackers.into_iter().collect(),
        ..order(&world())
    }
}

/// Checks that `rule` refuses the rehearsed failover, and that the reason contains each of `words`.
#[track_caller]
fn refused(readiness: &FailoverReadiness, rule: &str, words: &[&str]) {
    let FailoverReadiness::NotReady { rule: found, reason } = readiness else {
        panic!("the failover was not refused: {readiness}");
    };
    assert_eq!(found, rule, "{reason}");
    for word in words {
        assert!(reason.contains(word), "the reason does not contain {word:?}: {reason}");
    }
}

#[test]
fn each_rule_that_would_refuse_a_failover_is_reported_while_the_primary_is_alive() {
    let servers = world().look();
    let relay = reports(&["relay0"], 5);
    let ready = FailoverReadiness::Ready { server: "s0".to_owned() };
    assert_eq!(rehearse(waiting(&["relay0"], 0, |_| {}), &relay, &servers), ready);

    let not_kept = waiting(&["relay0"], 0, |waiting| waiting.survives_restart = false);
    refused(&rehearse(not_kept.clone(), &relay, &servers), "TW-MGR-0033", &["old", "option file"]);
    // With a fence hook, the settings need not survive a restart, as in a real failover.
    let fenced = FailoverRequest { fence_hooks: vec!["off".to_owned()], ..not_kept };
    assert_eq!(rehearse(fenced, &relay, &servers), ready);

    let off = waiting(&["relay0"], 0, |waiting| waiting.active = false);
    refused(&rehearse(off, &relay, &servers), "TW-MGR-0030", &["semi-sync is off"]);
    let short = waiting(&["relay0"], 0, |waiting| waiting.timeout_ms = 10_000);
    refused(&rehearse(short, &relay, &servers), "TW-MGR-0030", &["time-out"]);

    let stranger = waiting(&["relay0"], 2, |_| {});
    let words = ["2 semi-sync replicas", "rpl_semi_sync_replica_enabled", "rpl_semi_sync_slave_enabled"];
    refused(&rehearse(stranger, &relay, &servers), "TW-MGR-0032", &words);

    refused(&rehearse(waiting(&[], 0, |_| {}), &Reports::new(), &servers), "TW-MGR-0032", &["no relay"]);
    let silent: Reports = [("relay0".to_owned(), Err("connection refused".to_owned()))].into();
    let words = ["relay0 (did not answer)", "bring one of them back"];
    refused(&rehearse(waiting(&["relay0"], 0, |_| {}), &silent, &servers), "TW-MGR-0032", &words);

    let mut unfit = servers.clone();
    for server in &mut unfit {
        server.log_replica_updates = false;
    }
    let words = ["s0: log_replica_updates is off", "s1: log_replica_updates is off"];
    refused(&rehearse(waiting(&["relay0"], 0, |_| {}), &relay, &unfit), "TW-MGR-0040", &words);
    unfit[1].log_replica_updates = true;
    let second = FailoverReadiness::Ready { server: "s1".to_owned() };
    assert_eq!(rehearse(waiting(&["relay0"], 0, |_| {}), &relay, &unfit), second);
    unfit.truncate(1);
    unfit[0].reached = Err("TW-SES-0006: REPLICATION_SLAVE_ADMIN is missing".to_owned());
    let words = ["s0: the server cannot be reached: TW-SES-0006"];
    refused(&rehearse(waiting(&["relay0"], 0, |_| {}), &relay, &unfit), "TW-MGR-0040", &words);
    refused(&rehearse(waiting(&["relay0"], 0, |_| {}), &relay, &[]), "TW-MGR-0040", &["no other server"]);
}

/// An automatic failover has neither `--allow-data-loss` nor a requested server, so the rehearsal must ignore
/// both.
#[test]
fn the_rehearsal_ignores_what_only_an_operator_can_allow() {
    let (servers, relay) = (world().look(), reports(&["relay0"], 5));
    let off = waiting(&["relay0"], 0, |waiting| waiting.active = false);
    let off = FailoverRequest { allow_data_loss: true, wanted: Some("s1".to_owned()), ..off };
    refused(&rehearse(off, &relay, &servers), "TW-MGR-0030", &[]);
}

#[test]
fn a_refusal_becomes_a_finding_when_it_has_lasted_long_enough() {
    let cluster = WatchedCluster { plan: plan(&["db2"]), ..WatchedCluster::default() };
    let mut cluster_state = ClusterState::new(cluster, AnalysisSettings::default());
    let refused =
        |rule: &str| FailoverReadiness::NotReady { rule: rule.to_owned(), reason: "why".to_owned() };
    let refused_by = |cluster_state: &ClusterState, now_ms| {
        let findings = cluster_state.findings(&FailoverGuard::default(), now_ms);
        findings.into_iter().find(|one| one.code == FailureCode::FailoverNotReady).and_then(|one| one.rule)
    };
    cluster_state.set_readiness(1_000, refused("TW-MGR-0031"));
    assert_eq!(refused_by(&cluster_state, 2_000), None, "a manager that has just started knows little yet");
    cluster_state.set_readiness(3_900, refused("TW-MGR-0033"));
    assert_eq!(refused_by(&cluster_state, 3_999), None);
    assert_eq!(
        refused_by(&cluster_state, 4_000).as_deref(),
        Some("TW-MGR-0033"),
        "the time must count from the first refusal, even if it came from another rule"
    );
    cluster_state.set_readiness(5_000, FailoverReadiness::Ready { server: "db2".to_owned() });
    assert_eq!(refused_by(&cluster_state, 5_000), None);
    cluster_state
        .set_readiness(6_000, FailoverReadiness::Unknown { reason: "a failover is in progress".to_owned() });
    assert_eq!(refused_by(&cluster_state, 60_000), None);
}
