//! Proves from stopped ackers that no acknowledged transaction is missing, and that the old primary can
//! acknowledge no more. Pure.
//!
//! The proof: `n` servers can acknowledge, and a commit is acknowledged to a client only after `k` of them
//! have done so. An acker acknowledges only what it holds durably, in the order of the primary's binlog. Some
//! ackers were stopped and read; suppose that fewer than `k` remain. Then at least one of the read logs
//! contains every acknowledged commit. And the next commit of the old primary waits for ever, because too few
//! ackers are left. This holds even if the old primary cannot be reached.
//!
//! - [`ack_policy_history`]: which ackers there are, and how many ACKs a commit needs, over time.
//! - [`gtid_set_serde`]: serializes GTID sets as text.
//! - [`possible_data_loss`]: what may be lost without the proof.

pub mod ack_policy_history;
pub mod gtid_set_serde;
pub mod possible_data_loss;

use std::collections::BTreeSet;
use std::fmt;

use tailwater_wire::gtid::GtidSet;

pub use ack_policy_history::{AckPolicy, AckPolicyHistory, AckRequirement, PolicyObservation, SemiSyncWait};
pub use possible_data_loss::PossibleLoss;

use crate::model::failover_action::acks_text;
use crate::safety_refusals::SafetyRefusal;

/// Default for the largest accepted time from the last observation of the primary to its last sign of life,
/// in milliseconds.
pub const PRIMARY_STATE_MAX_AGE_MS: u64 = 60_000;

/// State of an acker that was ordered to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AckerStop {
    /// The acker neither captures nor acknowledges until it is started again, even after a restart.
    Persistent,
    /// The acker does not capture now, but would resume after a restart. So its state proves nothing.
    UntilRestart,
    /// The acker could not be reached, or did not answer.
    Unknown,
    /// The acker refuses orders of this lease term, because it accepted an order of a later lease term.
    Refused {
        /// The lease term of the refused order.
        term: u64,
        /// The later lease term that the acker has seen.
        seen: u64,
    },
}

impl fmt::Display for AckerStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Persistent => f.write_str("stopped, even after a restart"),
            Self::UntilRestart => f.write_str("stopped until its restart"),
            Self::Unknown => f.write_str("not known to be stopped"),
            Self::Refused { term, seen } => f.write_str(&stale_term_text(*term, *seen)),
        }
    }
}

/// Answer of an acker that was ordered to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckerEvidence {
    /// Name of the acker, as in the [`AckPolicy`].
    pub name: String,
    /// Whether the acker acknowledges only what survives a power cut.
    pub durable: bool,
    /// Whether the acker is stopped.
    pub stop: AckerStop,
    /// All transactions that the acker's log holds **durably**, including those before its beginning. Read
    /// **after** the acker stopped. `None` if the log cannot be read.
    pub holds: Option<GtidSet>,
}

impl AckerEvidence {
    /// Returns why the acker's answer proves nothing; `None` if it counts as evidence.
    fn flaw(&self) -> Option<String> {
        let flaw = match (self.stop, self.durable, &self.holds) {
            (AckerStop::Refused { term, seen }, ..) => return Some(stale_term_text(term, seen)),
            (AckerStop::Unknown, ..) => "did not confirm that it stopped",
            (AckerStop::UntilRestart, ..) => "would capture again after a restart",
            (_, false, _) => "acknowledges before it is durable",
            (_, _, None) => "the acker's log cannot be read",
            (AckerStop::Persistent, true, Some(_)) => return None,
        };
        Some(flaw.to_owned())
    }
}

/// Returns the message for the refusal of a relay that has seen a later lease term.
pub fn stale_term_text(term: u64, seen: u64) -> String {
    format!(
        "refuses orders of term {term} of the lease, because it has accepted an order of term {seen}: etcd was created again (`tailwater manager raise-terms`), or \
         another manager holds a lease elsewhere"
    )
}

/// The evidence that [`assess_loss`] assesses.
#[derive(Debug, Clone)]
pub struct LossEvidence<'a> {
    /// Name of the old primary.
    pub primary: &'a str,
    /// Ack policies that were observed while the primary was alive; `None` if the primary was never observed.
    pub ack_policies: Option<&'a AckPolicyHistory>,
    /// Time from the last observation of the primary to its last sign of life, in milliseconds.
    pub primary_state_age_ms: u64,
    /// Largest accepted value of `primary_state_age_ms`.
    pub primary_state_max_age_ms: u64,
    /// Answers of the ackers. An acker that is missing here did not answer.
    pub ackers: &'a [AckerEvidence],
    /// Transactions that the primary had executed at its last observation. This position is always stale.
    pub last_known: Option<&'a GtidSet>,
    /// Name of a fence hook that confirmed that the old primary is off.
    pub fenced_by: Option<&'a str>,
}

/// What is proven about possible loss, and which safety rules refuse.
#[derive(Debug, Clone, PartialEq)]
pub struct LossVerdict {
    /// The rules that refuse, in the order of their codes; empty if everything is proven.
    pub refusals: Vec<SafetyRefusal>,
    /// All transactions that the read ackers hold. If [`LossVerdict::is_complete`], these include everything
    /// that was acknowledged.
    pub holds: Option<GtidSet>,
    /// Names of the ackers that hold all of these transactions.
    pub holders: Vec<String>,
    /// What may be lost if the failover or switchover continues without the proof.
    pub possible_loss: Option<PossibleLoss>,
}

impl LossVerdict {
    /// Whether [`LossVerdict::holds`] contains every acknowledged transaction, now and in the future.
    pub fn is_complete(&self) -> bool {
        self.refusals.is_empty()
    }

    /// Returns the safety rule that refuses to continue, if any.
    pub fn blocking_refusal(&self, allow_data_loss: bool) -> Option<&SafetyRefusal> {
        self.refusals.iter().find(|refusal| !(allow_data_loss && refusal.is_overridable()))
    }
}

/// Determines from the evidence what is proven and which safety rules refuse.
pub fn assess_loss(evidence: &LossEvidence<'_>) -> LossVerdict {
    let mut refusals = Vec::new();
    refusals.extend(not_verified(evidence));
    let good: Vec<&AckerEvidence> = evidence.ackers.iter().filter(|acker| acker.flaw().is_none()).collect();
    let names: BTreeSet<&str> = good.iter().map(|acker| acker.name.as_str()).collect();
    if let Some(ack_policies) = evidence.ack_policies {
        refusals.extend(incomplete(evidence, ack_policies, &names));
        refusals.extend(unfenced(evidence, ack_policies));
    }
    let (holds, holders) = match longest(&good) {
        Ok((holds, holders)) => (holds, holders),
        Err(refusal) => {
            refusals.push(refusal);
            (None, Vec::new())
        }
    };
    refusals.sort_by_key(SafetyRefusal::code);
    let possible_loss =
        (!refusals.is_empty()).then(|| PossibleLoss::of(evidence, holds.as_ref(), &names, &refusals));
    LossVerdict { refusals, holds, holders, possible_loss }
}

fn not_verified(evidence: &LossEvidence<'_>) -> Option<SafetyRefusal> {
    let refuse = |reason| Some(SafetyRefusal::NotVerified { primary: evidence.primary.to_owned(), reason });
    match evidence.ack_policies {
        None => refuse("no manager has ever observed the primary".to_owned()),
        Some(_) if evidence.primary_state_age_ms > evidence.primary_state_max_age_ms => refuse(format!(
            "the last observation of the primary was {} ms before its last sign of life, and at most {} ms are allowed",
            evidence.primary_state_age_ms, evidence.primary_state_max_age_ms
        )),
        Some(_) => None,
    }
}

/// Checks the safety rule for completeness, under the present policy and under all earlier policies that
/// still count.
fn incomplete(
    evidence: &LossEvidence<'_>,
    ack_policies: &AckPolicyHistory,
    good: &BTreeSet<&str>,
) -> Option<SafetyRefusal> {
    let mut worst: Option<SafetyRefusal> = None;
    for policy in ack_policies.relevant_policies() {
        if let AckRequirement::NotLossless(problems) = &policy.acks {
            return Some(SafetyRefusal::NotLossless {
                primary: evidence.primary.to_owned(),
                problems: problems.clone(),
            });
        }
        let stopped = policy.count_stopped(good);
        let needed = policy.needed();
        if stopped < needed && worst.is_none() {
            let missing = missing_ackers(evidence, policy, good);
            worst = Some(SafetyRefusal::TooFewAckers { stopped, needed, missing });
        }
    }
    worst
}

/// Returns the names of the ackers that do not count, each with the reason.
fn missing_ackers(evidence: &LossEvidence<'_>, policy: &AckPolicy, good: &BTreeSet<&str>) -> String {
    let mut words: Vec<String> = policy
        .ackers
        .iter()
        .filter(|name| !good.contains(name.as_str()))
        .map(|name| {
            let answer = evidence.ackers.iter().find(|acker| acker.name == **name);
            let flaw = match answer {
                Some(answer) => answer.flaw().unwrap_or_default(),
                None => "did not answer".to_owned(),
            };
            format!("{name} ({flaw})")
        })
        .collect();
    let back = if words.is_empty() { "" } else { "; bring one of them back" };
    if policy.unconfigured_replicas > 0 {
        words.push(unconfigured_text(policy.unconfigured_replicas));
    }
    if words.is_empty() {
        words.push(
            "no relay acknowledges: set semi_sync = true on the [[source]], or configure a [[relay]]"
                .to_owned(),
        );
    }
    format!("{}{back}", words.join(", "))
}

/// Returns a message about unconfigured semi-sync replicas, and what to do about them.
fn unconfigured_text(count: u32) -> String {
    let replicas = if count == 1 { "1 semi-sync replica" } else { &format!("{count} semi-sync replicas") };
    format!(
        "{replicas} of the primary without a [[relay]] section: set rpl_semi_sync_replica_enabled (MariaDB: \
         rpl_semi_sync_slave_enabled) = OFF there, and stop and start its replication"
    )
}

/// Checks the safety rule for fencing. A persistently stopped acker sends no ACKs, even if its log is
/// unreadable or not durable.
fn unfenced(evidence: &LossEvidence<'_>, ack_policies: &AckPolicyHistory) -> Option<SafetyRefusal> {
    if evidence.fenced_by.is_some() {
        return None;
    }
    let refuse = |reason| Some(SafetyRefusal::Unfenced { primary: evidence.primary.to_owned(), reason });
    let policy = ack_policies.current();
    let AckRequirement::Required(acks) = &policy.acks else {
        return refuse("the primary did not wait for ackers".to_owned());
    };
    if !ack_policies.waits_after_restart() {
        return refuse(
            "after a restart the primary would not wait for ackers: semi-sync is not known to be in the primary's option file (on MySQL, SET PERSIST \
             is enough; see docs/how-to/capture.md)"
                .to_owned(),
        );
    }
    let stopped = |name: &str| {
        evidence.ackers.iter().any(|acker| acker.name == name && acker.stop == AckerStop::Persistent)
    };
    let left: Vec<&str> = policy.ackers.iter().map(String::as_str).filter(|name| !stopped(name)).collect();
    let left_count =
        u32::try_from(left.len()).unwrap_or(u32::MAX).saturating_add(policy.unconfigured_replicas);
    if left_count < *acks {
        return None;
    }
    let mut names = left.join(", ");
    if policy.unconfigured_replicas > 0 {
        names = format!(
            "{names}{}{} that are not configured",
            if names.is_empty() { "" } else { ", " },
            policy.unconfigured_replicas
        );
    }
    let left = if left_count == 1 { "1 acker is".to_owned() } else { format!("{left_count} ackers are") };
    refuse(format!("the primary needs {}, and {left} not stopped: {names}", acks_text(*acks)))
}

/// Returns the log that contains all other logs. If the histories of the logs have not diverged, there is
/// such a log, because all logs are then prefixes of the same binlog.
fn longest(good: &[&AckerEvidence]) -> Result<(Option<GtidSet>, Vec<String>), SafetyRefusal> {
    let logs: Vec<(&str, &GtidSet)> =
        good.iter().filter_map(|acker| Some((acker.name.as_str(), acker.holds.as_ref()?))).collect();
    let Some(mut best) = logs.first().copied() else { return Ok((None, Vec::new())) };
    for log in &logs {
        if best.1.is_subset_of(log.1) {
            best = *log;
        } else if !log.1.is_subset_of(best.1) {
            return Err(diverged(best, *log));
        }
    }
    let holders = logs.iter().filter(|log| best.1.is_subset_of(log.1)).map(|log| log.0.to_owned());
    Ok((Some(best.1.clone()), holders.collect()))
}

fn diverged(one: (&str, &GtidSet), other: (&str, &GtidSet)) -> SafetyRefusal {
    let alone = |a: &GtidSet, b: &GtidSet| match a.subtract(b) {
        Ok(difference) => difference.to_string(),
        Err(_) => a.to_string(),
    };
    SafetyRefusal::Diverged {
        one: one.0.to_owned(),
        other: other.0.to_owned(),
        detail: format!("{} has {}, {} has {}", one.0, alone(one.1, other.1), other.0, alone(other.1, one.1)),
    }
}
