//! Tests of the lossless rules, one by one: what each rule refuses, what the operator can override, and which
//! loss is then reported.

use std::collections::{BTreeMap, BTreeSet};

use tailwater_manager::SafetyRefusal;
use tailwater_manager::lossless_rules::{
    AckPolicy, AckPolicyHistory, AckRequirement, AckerEvidence, AckerStop, LossEvidence, LossVerdict,
    PolicyObservation, SemiSyncWait, assess_loss,
};
use tailwater_topology::server_state::{SemiSyncSource, WaitPoint};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

fn set(last: u64) -> GtidSet {
    let text = if last == 0 { String::new() } else { format!("{UUID}:1-{last}") };
    GtidSet::parse(Flavour::MySql, &text).expect("the text must be a valid GTID set")
}

fn lossless(acks_required: u32) -> SemiSyncWait {
    SemiSyncWait {
        active: true,
        after_sync: true,
        timeout_ms: u64::MAX,
        waits_without_ackers: true,
        acks_required,
        unacknowledged: 0,
        survives_restart: true,
    }
}

fn names(ackers: &[&str]) -> BTreeSet<String> {
    ackers.iter().map(|name| (*name).to_owned()).collect()
}

/// Records one observation, in which the ackers hold the given numbers of transactions.
fn look(
    ack_policies: Option<AckPolicyHistory>,
    waiting: &SemiSyncWait,
    executed: u64,
    holds: &[(&str, u64)],
) -> AckPolicyHistory {
    let ackers = names(&holds.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let holds: BTreeMap<String, GtidSet> =
        holds.iter().map(|(name, last)| ((*name).to_owned(), set(*last))).collect();
    let look = PolicyObservation {
        waiting,
        ackers: &ackers,
        unconfigured_replicas: 0,
        executed: &set(executed),
        holds: &holds,
    };
    match ack_policies {
        None => AckPolicyHistory::begin(&look),
        Some(mut ack_policies) => {
            ack_policies.observe(&look);
            ack_policies
        }
    }
}

fn stopped(name: &str, last: u64) -> AckerEvidence {
    AckerEvidence {
        name: name.to_owned(),
        durable: true,
        stop: AckerStop::Persistent,
        holds: Some(set(last)),
    }
}

fn verdict(ack_policies: &AckPolicyHistory, ackers: &[AckerEvidence]) -> LossVerdict {
    assess_loss(&evidence(Some(ack_policies), ackers))
}

fn evidence<'a>(ack_policies: Option<&'a AckPolicyHistory>, ackers: &'a [AckerEvidence]) -> LossEvidence<'a> {
    LossEvidence {
        primary: "old",
        ack_policies,
        primary_state_age_ms: 0,
        primary_state_max_age_ms: 1000,
        ackers,
        last_known: None,
        fenced_by: None,
    }
}

fn codes(verdict: &LossVerdict) -> Vec<&'static str> {
    verdict.refusals.iter().map(SafetyRefusal::code).collect()
}

#[test]
fn the_number_of_ackers_that_must_be_stopped_follows_from_the_policy() {
    let check = |can: &[&str], must: u32, needed: u32| {
        let policy =
            AckPolicy { ackers: names(can), unconfigured_replicas: 0, acks: AckRequirement::Required(must) };
        assert_eq!(
            policy.needed(),
            needed,
            "the policy has the wrong number of ackers to stop, of {can:?} with {must} required ACKs"
        );
    };
    check(&["a"], 1, 1);
    check(&["a", "b"], 1, 2);
    check(&["a", "b"], 2, 1);
    check(&["a", "b", "c"], 2, 2);
    check(&["a", "b", "c"], 3, 1);
    // More ACKs are required than there are ackers. No commit is acknowledged then, but the earlier commits
    // must still be proven.
    check(&["a"], 2, 1);
    check(&[], 1, 1);
}

#[test]
fn the_longest_log_of_the_stopped_ackers_contains_everything() {
    let ack_policies = look(None, &lossless(2), 0, &[("a", 0), ("b", 0), ("c", 0)]);
    let complete = verdict(&ack_policies, &[stopped("a", 7), stopped("c", 9)]);
    assert!(complete.is_complete() && complete.possible_loss.is_none());
    assert_eq!((complete.holds, complete.holders), (Some(set(9)), vec!["c".to_owned()]));
    let one = verdict(&ack_policies, &[stopped("a", 7)]);
    assert_eq!(codes(&one), ["TW-MGR-0032", "TW-MGR-0033"]);
    assert!(one.blocking_refusal(false).is_some() && one.blocking_refusal(true).is_none());
    let missing = one.possible_loss.expect("the verdict must contain the possible loss");
    assert_eq!((missing.held_by, missing.grows), (vec!["b".to_owned(), "c".to_owned()], true));
    // A fence hook replaces the fencing by ackers, but not the proof of completeness.
    let one = assess_loss(&LossEvidence {
        fenced_by: Some("power"),
        ..evidence(Some(&ack_policies), &[stopped("a", 7)])
    });
    assert_eq!(codes(&one), ["TW-MGR-0032"]);
    assert!(!one.possible_loss.expect("the verdict must contain the possible loss").grows);
}

#[test]
fn an_acker_counts_only_if_it_meets_all_conditions() {
    let ack_policies = look(None, &lossless(1), 0, &[("a", 0)]);
    let refused = |acker: AckerEvidence, codes_wanted: &[&str], word: &str| {
        let verdict = verdict(&ack_policies, &[acker]);
        assert_eq!(codes(&verdict), codes_wanted);
        assert!(
            verdict.refusals[0].to_string().contains(word),
            "the wrong safety rule refuses: {}",
            verdict.refusals[0]
        );
    };
    let good = stopped("a", 5);
    // An acker that is stopped persistently fences the primary, even if it proves nothing about completeness.
    refused(AckerEvidence { durable: false, ..good.clone() }, &["TW-MGR-0032"], "before it is durable");
    refused(AckerEvidence { holds: None, ..good.clone() }, &["TW-MGR-0032"], "cannot be read");
    refused(
        AckerEvidence { stop: AckerStop::UntilRestart, ..good.clone() },
        &["TW-MGR-0032", "TW-MGR-0033"],
        "after a restart",
    );
    refused(
        AckerEvidence { stop: AckerStop::Unknown, ..good.clone() },
        &["TW-MGR-0032", "TW-MGR-0033"],
        "did not confirm",
    );
    refused(
        AckerEvidence { stop: AckerStop::Refused { term: 5, seen: 4711 }, ..good.clone() },
        &["TW-MGR-0032", "TW-MGR-0033"],
        "a (refuses orders of term 5 of the lease, because it has accepted an order of term 4711",
    );
    refused(
        AckerEvidence { name: "z".to_owned(), ..good },
        &["TW-MGR-0032", "TW-MGR-0033"],
        "a (did not answer)",
    );
}

#[test]
fn a_primary_that_does_not_wait_for_acks_losslessly_proves_nothing() {
    let base = lossless(1);
    let refused = |waiting: SemiSyncWait, word: &str| {
        let verdict = verdict(&look(None, &waiting, 0, &[("a", 0)]), &[stopped("a", 5)]);
        let first = verdict.blocking_refusal(false).expect("the rules must refuse the failover").to_string();
        assert_eq!(codes(&verdict)[0], "TW-MGR-0030");
        assert!(first.contains(word), "the wrong safety rule refuses: {first}");
    };
    refused(SemiSyncWait { active: false, ..base.clone() }, "fallen back");
    refused(SemiSyncWait { after_sync: false, ..base.clone() }, "AFTER_SYNC");
    refused(SemiSyncWait { timeout_ms: 10_000, ..base.clone() }, "time-out");
    refused(SemiSyncWait { waits_without_ackers: false, ..base.clone() }, "too few ackers");
    refused(SemiSyncWait { acks_required: 0, ..base.clone() }, "no ACK");
    let forgets = SemiSyncWait { survives_restart: false, ..base };
    let verdict = verdict(&look(None, &forgets, 0, &[("a", 0)]), &[stopped("a", 5)]);
    assert_eq!(codes(&verdict), ["TW-MGR-0033"]);
}

#[test]
fn a_primary_that_was_never_or_too_long_ago_observed_is_not_verified() {
    let ackers = [stopped("a", 5)];
    let never = assess_loss(&LossEvidence { last_known: Some(&set(8)), ..evidence(None, &ackers) });
    assert_eq!(codes(&never), ["TW-MGR-0031"]);
    assert_eq!(
        never.possible_loss.expect("the verdict must contain the possible loss").known,
        Some(format!("{UUID}:6-8"))
    );
    let ack_policies = look(None, &lossless(1), 0, &[("a", 0)]);
    let late =
        assess_loss(&LossEvidence { primary_state_age_ms: 1001, ..evidence(Some(&ack_policies), &ackers) });
    assert_eq!(codes(&late), ["TW-MGR-0031"]);
}

#[test]
fn diverged_logs_are_refused_even_with_allow_data_loss() {
    let ack_policies = look(None, &lossless(1), 0, &[("a", 0), ("b", 0)]);
    let other = "4e11fa47-71ca-11e1-9e33-c80aa9429562:1";
    let strange = GtidSet::parse(Flavour::MySql, &format!("{UUID}:1-3,{other}"))
        .expect("the text must be a valid GTID set");
    let ackers = [stopped("a", 5), AckerEvidence { holds: Some(strange), ..stopped("b", 0) }];
    let verdict = verdict(&ack_policies, &ackers);
    assert_eq!(codes(&verdict), ["TW-MGR-0034"]);
    assert!(
        verdict
            .blocking_refusal(true)
            .expect("the rules must refuse the failover")
            .to_string()
            .contains(other)
    );
}

#[test]
fn commits_before_the_first_observation_count_until_ackers_hold_them() {
    let holds = |a, b| [("a", a), ("b", b)];
    let both = [stopped("a", 9), stopped("b", 9)];
    // Commits up to 9 were not observed, and b lacks some of these commits. One acker suffices for the proof,
    // and this could be b.
    let ack_policies = look(None, &lossless(2), 9, &holds(9, 7));
    assert_eq!(codes(&verdict(&ack_policies, &both)), ["TW-MGR-0030"]);
    let ack_policies = look(Some(ack_policies), &lossless(2), 9, &holds(9, 9));
    assert!(verdict(&ack_policies, &both[1..]).is_complete());
    // With one ACK required, both ackers must be stopped, so it suffices that one of them holds the commits.
    let ack_policies = look(None, &lossless(1), 9, &holds(9, 7));
    assert!(verdict(&ack_policies, &both).is_complete());
}

#[test]
fn commits_without_an_ack_count_until_ackers_have_caught_up() {
    let holds = |a, b| [("a", a), ("b", b)];
    let ack_policies = look(None, &lossless(2), 5, &holds(5, 5));
    let slipped = SemiSyncWait { unacknowledged: 3, ..lossless(2) };
    let ack_policies = look(Some(ack_policies), &slipped, 8, &holds(5, 8));
    let both = [stopped("a", 8), stopped("b", 8)];
    let refused = verdict(&ack_policies, &both);
    assert!(
        refused.refusals[0].to_string().contains("3 commits were acknowledged without"),
        "the wrong safety rule refuses: {:?}",
        refused.refusals
    );
    let ack_policies = look(Some(ack_policies), &slipped, 9, &holds(9, 9));
    assert!(verdict(&ack_policies, &both).is_complete());
    // The server has restarted, and its counter starts at 0 again.
    let ack_policies = look(Some(ack_policies), &lossless(2), 9, &holds(9, 9));
    assert!(verdict(&ack_policies, &both).is_complete());
}

#[test]
fn an_acker_that_was_removed_counts_until_the_others_have_caught_up() {
    let ack_policies = look(None, &lossless(1), 0, &[("a", 0), ("b", 0)]);
    let ack_policies = look(Some(ack_policies), &lossless(1), 9, &[("b", 4)]);
    let alone = [stopped("b", 4)];
    assert_eq!(codes(&verdict(&ack_policies, &alone)), ["TW-MGR-0032"]);
    let ack_policies = look(Some(ack_policies), &lossless(1), 9, &[("b", 9)]);
    assert!(verdict(&ack_policies, &[stopped("b", 9)]).is_complete());
}

#[test]
fn many_changes_of_the_policy_are_kept_in_bounded_space() {
    let mut ack_policies = look(None, &lossless(1), 0, &[("a", 0), ("b", 0), ("c", 0)]);
    for change in 0..200u64 {
        let name = format!("acker{change}");
        ack_policies = look(Some(ack_policies), &lossless(1), change + 1, &[("a", 0), (name.as_str(), 0)]);
    }
    assert!(
        ack_policies.relevant_policies().count()
            <= tailwater_manager::lossless_rules::ack_policy_history::PAST_POLICIES_MAX + 1
    );
    // The merged policy still requires all ackers of the earlier policies.
    let few = [stopped("a", 200), stopped("acker199", 200)];
    assert_eq!(codes(&verdict(&ack_policies, &few)), ["TW-MGR-0032"]);
}

#[test]
fn an_observation_of_semi_sync_is_converted() {
    let seen = SemiSyncSource {
        enabled: true,
        active: true,
        timeout_ms: u64::MAX,
        wait_point: WaitPoint::AfterSync,
        wait_no_replica: true,
        acks_needed: 2,
        clients: 3,
        waiting_sessions: 0,
        acknowledged: 9,
        unacknowledged: 0,
        survives_restart: true,
    };
    assert_eq!(SemiSyncWait::seen(&seen, true), lossless(2));
    let off = SemiSyncSource { active: false, ..seen.clone() };
    assert!(matches!(SemiSyncWait::seen(&off, true).acks(), AckRequirement::NotLossless(_)));
    let late = SemiSyncSource { wait_point: WaitPoint::AfterCommit, ..seen };
    assert!(matches!(SemiSyncWait::seen(&late, true).acks(), AckRequirement::NotLossless(_)));
}
