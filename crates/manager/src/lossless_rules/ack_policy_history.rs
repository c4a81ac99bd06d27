//! Ack policies over time. An ack policy says which ackers there are, and how many ACKs a commit needs.
//!
//! The number of ACKs and the set of ackers change while a primary runs. Transactions that were acknowledged
//! under an earlier policy are safe under the present one only when enough of the present ackers hold them.
//! Until then the lossless rules also apply the earlier policy.
//!
//! The manager must record a weaker policy **before** it sets it on the server, and a stronger one **after**.
//! So the recorded policy is never stronger than the one in force. If another client changes the settings and
//! reverts them between two observations, only the server's count of unacknowledged commits shows this
//! change.
//!
//! After the first acker was ordered to stop, no policy is recorded. An acker may still make received
//! transactions durable after it reported, so its report would be older than the observation of the primary.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use tailwater_topology::server_state::{SEMI_SYNC_TIMEOUT_MS_MIN, SemiSyncSource, WaitPoint};
use tailwater_wire::gtid::GtidSet;

use super::gtid_set_serde;

/// The maximum number of earlier policies in the history. If there are more, the oldest policies are merged
/// into one policy that is at least as strict as each of them.
pub const PAST_POLICIES_MAX: usize = 16;

/// How many ACKs a commit waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AckRequirement {
    /// A commit waits for this many different ackers. Never 0.
    Required(u32),
    /// Commits are not lossless; with the reasons.
    NotLossless(String),
}

/// An ack policy: which ackers can acknowledge a commit, and how many of them must.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckPolicy {
    /// All configured ackers, durable or not, connected or not.
    pub ackers: BTreeSet<String>,
    /// Number of semi-sync replicas that the primary counts and that are not configured. Their ACKs count,
    /// but the manager can neither stop nor read them.
    #[serde(alias = "strangers")]
    pub unconfigured_replicas: u32,
    /// Number of ACKs that a commit needs.
    pub acks: AckRequirement,
}

impl AckPolicy {
    /// Returns how many of [`AckPolicy::ackers`] must be stopped and read. If `n` servers can acknowledge and
    /// a commit needs `k` ACKs, this is `n - k + 1`.
    pub fn needed(&self) -> u32 {
        let can =
            u32::try_from(self.ackers.len()).unwrap_or(u32::MAX).saturating_add(self.unconfigured_replicas);
        match self.acks {
            // If a commit needs more ACKs than there are ackers, no commit is acknowledged. One acker must
            // still report the earlier transactions.
            AckRequirement::Required(must) => can.saturating_add(1).saturating_sub(must).max(1),
            AckRequirement::NotLossless(_) => u32::MAX,
        }
    }

    /// Returns how many of `names` are ackers of this policy.
    pub fn count_stopped(&self, names: &BTreeSet<&str>) -> u32 {
        let count = self.ackers.iter().filter(|name| names.contains(name.as_str())).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns a policy that proves no more than either of the two policies.
    fn weakest_of(&self, other: &Self) -> Self {
        let acks = match (&self.acks, &other.acks) {
            (AckRequirement::Required(a), AckRequirement::Required(b)) => AckRequirement::Required(*a.min(b)),
            (wrong @ AckRequirement::NotLossless(_), _) | (_, wrong) => wrong.clone(),
        };
        let ackers = self.ackers.union(&other.ackers).cloned().collect();
        Self {
            ackers,
            unconfigured_replicas: self.unconfigured_replicas.saturating_add(other.unconfigured_replicas),
            acks,
        }
    }
}

/// How the primary waits for ACKs, according to one observation. It has fewer fields than `SemiSyncSource`:
/// only those on which the lossless rules depend. So two observations are equal if they make no difference to
/// the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemiSyncWait {
    /// Whether semi-sync is enabled and in force.
    pub active: bool,
    /// Whether commits wait before the engine commits (`AFTER_SYNC`).
    pub after_sync: bool,
    /// How long a commit waits for ACKs before the server falls back to asynchronous replication, in
    /// milliseconds.
    pub timeout_ms: u64,
    /// Whether commits also wait while fewer ackers are connected than a commit needs ACKs
    /// (`rpl_semi_sync_source_wait_no_replica`).
    pub waits_without_ackers: bool,
    /// Number of ACKs that a commit needs: `rpl_semi_sync_source_wait_for_replica_count`; 1 on MariaDB.
    pub acks_required: u32,
    /// Number of commits that completed without an ACK since the server started.
    pub unacknowledged: u64,
    /// Whether semi-sync is in the option file or persisted, so that it is in force after a restart.
    pub survives_restart: bool,
}

impl SemiSyncWait {
    /// Builds the data from an observation of a primary with the plugin loaded. `survives_restart` is a
    /// separate parameter, because the semi-sync variables do not show it.
    pub fn seen(seen: &SemiSyncSource, survives_restart: bool) -> Self {
        Self {
            active: seen.enabled && seen.active,
            after_sync: seen.wait_point == WaitPoint::AfterSync,
            timeout_ms: seen.timeout_ms,
            waits_without_ackers: seen.wait_no_replica,
            acks_required: seen.acks_needed,
            unacknowledged: seen.unacknowledged,
            survives_restart,
        }
    }

    /// Returns how many ACKs a commit waits for with these settings, or why it does not wait.
    pub fn acks(&self) -> AckRequirement {
        let mut problems = String::new();
        let mut note = |broken: bool, text: &str| {
            if broken {
                let _ = write!(problems, "{}{text}", if problems.is_empty() { "" } else { ", " });
            }
        };
        note(!self.active, "semi-sync is off or has fallen back");
        note(!self.after_sync, "the wait point is not AFTER_SYNC");
        note(self.timeout_ms < SEMI_SYNC_TIMEOUT_MS_MIN, "the time-out is too short");
        note(!self.waits_without_ackers, "the server does not wait when there are too few ackers");
        note(self.acks_required == 0, "a commit needs no ACK");
        if problems.is_empty() {
            AckRequirement::Required(self.acks_required)
        } else {
            AckRequirement::NotLossless(problems)
        }
    }
}

/// One observation of the primary and its ackers, which [`AckPolicyHistory::observe`] records.
#[derive(Debug, Clone)]
pub struct PolicyObservation<'a> {
    /// How the primary waits for ACKs.
    pub waiting: &'a SemiSyncWait,
    /// Names of the configured ackers.
    pub ackers: &'a BTreeSet<String>,
    /// Number of semi-sync replicas that are not configured ackers.
    pub unconfigured_replicas: u32,
    /// Transactions that the primary had executed. Must be queried **after** `waiting`, so that they include
    /// all commits under an earlier policy.
    pub executed: &'a GtidSet,
    /// Transactions that each durable acker holds, by acker name.
    pub holds: &'a BTreeMap<String, GtidSet>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PastPolicy {
    #[serde(alias = "regime")]
    policy: AckPolicy,
    /// All transactions that can have been committed under this policy.
    #[serde(with = "gtid_set_serde")]
    until: GtidSet,
}

/// The ack policy in force, and the earlier policies that the lossless rules still apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckPolicyHistory {
    current: AckPolicy,
    earlier: Vec<PastPolicy>,
    unacknowledged: u64,
    #[serde(alias = "after_restart")]
    survives_restart: bool,
}

impl AckPolicyHistory {
    /// Starts the history with a first observation. Earlier commits were not observed. These commits count as
    /// not lossless until enough ackers hold them.
    pub fn begin(look: &PolicyObservation<'_>) -> Self {
        let before = AckPolicy {
            ackers: BTreeSet::new(),
            unconfigured_replicas: 0,
            acks: AckRequirement::NotLossless(
                "no manager observed whether the commits before its first observation waited for ACKs"
                    .to_owned(),
            ),
        };
        let mut ack_policies = Self {
            current: policy_of(look),
            earlier: vec![PastPolicy { policy: before, until: look.executed.clone() }],
            unacknowledged: look.waiting.unacknowledged,
            survives_restart: look.waiting.survives_restart,
        };
        ack_policies.settle(look);
        ack_policies
    }

    /// Records an observation.
    pub fn observe(&mut self, look: &PolicyObservation<'_>) {
        let seen = policy_of(look);
        let unacknowledged = look.waiting.unacknowledged;
        // The server's counter restarts at 0 when the server restarts.
        let grown = match unacknowledged.checked_sub(self.unacknowledged) {
            Some(grown) => grown,
            None => unacknowledged,
        };
        if grown > 0 {
            let acks =
                AckRequirement::NotLossless(format!("{grown} commits were acknowledged without an ACK"));
            self.retire(AckPolicy { acks, ..seen.clone() }, look.executed);
        }
        if seen != self.current {
            let old = std::mem::replace(&mut self.current, seen);
            self.retire(old, look.executed);
        }
        self.unacknowledged = unacknowledged;
        self.survives_restart = look.waiting.survives_restart;
        self.settle(look);
    }

    /// Records a weaker policy before it is set on the server. The next observation confirms it.
    pub fn announce_weaker(&mut self, acks_required: u32, executed: &GtidSet) {
        let weaker = AckPolicy { acks: AckRequirement::Required(acks_required), ..self.current.clone() };
        if weaker != self.current {
            let old = std::mem::replace(&mut self.current, weaker);
            self.retire(old, executed);
        }
    }

    /// Returns the policy in force.
    pub fn current(&self) -> &AckPolicy {
        &self.current
    }

    /// Whether the primary still waits for ackers after a restart.
    pub fn waits_after_restart(&self) -> bool {
        self.survives_restart
    }

    /// Returns the policy in force, and each earlier policy that still applies. An earlier policy applies as
    /// long as too many ackers lack transactions that were acknowledged under it.
    pub fn relevant_policies(&self) -> impl Iterator<Item = &AckPolicy> {
        std::iter::once(&self.current).chain(self.earlier.iter().map(|earlier| &earlier.policy))
    }

    fn retire(&mut self, policy: AckPolicy, until: &GtidSet) {
        if let Some(same) = self.earlier.iter_mut().find(|earlier| earlier.policy == policy) {
            same.until = until.clone();
            return;
        }
        self.earlier.push(PastPolicy { policy, until: until.clone() });
        if self.earlier.len() > PAST_POLICIES_MAX {
            let second = self.earlier.remove(1);
            let first = &mut self.earlier[0];
            first.policy = first.policy.weakest_of(&second.policy);
            // GTID positions of one server only grow, so the later position is also the union. If the
            // positions are of two flavours, they have no union, and the later position is kept.
            first.until = first.until.union(&second.until).unwrap_or(second.until);
        }
    }

    /// Drops each earlier policy whose transactions are held by enough present ackers: every set of ackers
    /// that proves completeness must contain an acker that holds these transactions.
    ///
    /// When a weaker policy replaces a stronger one, the stronger one becomes an earlier policy. Its own
    /// requirement applies until enough ackers hold its transactions.
    fn settle(&mut self, look: &PolicyObservation<'_>) {
        let current = &self.current;
        self.earlier.retain(|earlier| {
            let lacks = |name: &&String| {
                !look.holds.get(*name).is_some_and(|holds| earlier.until.is_subset_of(holds))
            };
            let lacking = current.ackers.iter().filter(lacks).count();
            u32::try_from(lacking).unwrap_or(u32::MAX) >= current.needed()
        });
    }
}

fn policy_of(look: &PolicyObservation<'_>) -> AckPolicy {
    AckPolicy {
        ackers: look.ackers.clone(),
        unconfigured_replicas: look.unconfigured_replicas,
        acks: look.waiting.acks(),
    }
}
