//! Who could acknowledge a commit and how many had to, over time.
//!
//! The number of ACKs that a primary waits for and the ackers it has are changed while it runs. What was acknowledged under
//! an earlier setting is safe under the present one only when enough ackers of today hold it: until then the earlier
//! setting counts as well.
//!
//! The manager must note a weaker setting **before** it makes it on the server and a stronger one **after**: then what is
//! noted is never stronger than what is in force. What others change and change back between two looks shows only in the
//! server's count of unacknowledged commits. From the moment at which the first acker is told to stop nothing more is
//! noted: an acker may still make durable what it had received, and what it answers is older than what a look would see.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::GtidSet;

use super::gtid_serde;
use crate::observation::{SemiSyncSource, WaitPoint};

/// Earlier settings that are kept apart; beyond it the oldest are joined into one that is at least as strict as each.
pub const PAST_POLICIES_MAX: usize = 16;

/// A time-out of semi-sync from which on it counts as infinite, in milliseconds: a day. After a failover the old primary is
/// held by nothing but its own wait for ACKs, and is somebody's concern long before a day is over. A capture alarms only below
/// ten minutes, which outlast its own restart.
pub const TIMEOUT_MS_MIN: u64 = 86_400_000;

/// How many ACKs a commit waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AckRequirement {
    /// This many, of different ackers; not 0.
    Required(u32),
    /// None for certain: what is wrong, in words.
    NotLossless(String),
}

/// Who can ACK, and how many must.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckPolicy {
    /// The ackers that are configured, durable or not, connected or not.
    pub ackers: BTreeSet<String>,
    /// Servers that the primary counts as semi-sync replicas and that nobody configured: their ACKs count for the primary,
    /// and they can be neither stopped nor read.
    #[serde(alias = "strangers")]
    pub unconfigured_replicas: u32,
    /// How many ACKs a commit needs.
    pub acks: AckRequirement,
}

impl AckPolicy {
    /// How many of [`AckPolicy::ackers`] must be stopped and read: with `n` that can ACK and `k` that must, `n - k + 1`.
    pub fn needed(&self) -> u32 {
        let can =
            u32::try_from(self.ackers.len()).unwrap_or(u32::MAX).saturating_add(self.unconfigured_replicas);
        match self.acks {
            // Where more must ACK than can, nothing is acknowledged; one has to tell what was before.
            AckRequirement::Required(must) => can.saturating_add(1).saturating_sub(must).max(1),
            AckRequirement::NotLossless(_) => u32::MAX,
        }
    }

    /// How many of these names are ackers of it.
    pub fn count_stopped(&self, names: &BTreeSet<&str>) -> u32 {
        let count = self.ackers.iter().filter(|name| names.contains(name.as_str())).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// One that proves no more than either does.
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

/// How the primary waits, as one look saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemiSyncWait {
    /// Semi-sync is enabled and in force.
    pub active: bool,
    /// The wait comes before the commit in the engine.
    pub after_sync: bool,
    /// Time-out, in milliseconds.
    pub timeout_ms: u64,
    /// It waits, too, when there are fewer ackers than ACKs needed (`rpl_semi_sync_source_wait_no_replica`).
    pub waits_without_ackers: bool,
    /// `rpl_semi_sync_source_wait_for_replica_count`; 1 on MariaDB.
    pub acks_required: u32,
    /// Commits that were acknowledged without ACKs since the server started.
    pub unacknowledged: u64,
    /// Semi-sync is in its option file or persisted, so that it waits again after a restart.
    pub survives_restart: bool,
}

impl SemiSyncWait {
    /// What a look saw, of a primary where the plugin is loaded. Whether it waits `survives_restart` no look at its variables
    /// tells alone.
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

    /// How many ACKs a commit waits for under these settings, or why for none.
    pub fn acks(&self) -> AckRequirement {
        let mut problems = String::new();
        let mut note = |broken: bool, text: &str| {
            if broken {
                let _ = write!(problems, "{}{text}", if problems.is_empty() { "" } else { ", " });
            }
        };
        note(!self.active, "semi-sync is off or has fallen back");
        note(!self.after_sync, "the wait point is not AFTER_SYNC");
        note(self.timeout_ms < TIMEOUT_MS_MIN, "the time-out is too short");
        note(!self.waits_without_ackers, "it does not wait when there are too few ackers");
        note(self.acks_required == 0, "it needs no ACK");
        if problems.is_empty() {
            AckRequirement::Required(self.acks_required)
        } else {
            AckRequirement::NotLossless(problems)
        }
    }
}

/// One look at the primary and its ackers.
#[derive(Debug, Clone)]
pub struct PolicyObservation<'a> {
    /// How it waits.
    pub waiting: &'a SemiSyncWait,
    /// The ackers that are configured.
    pub ackers: &'a BTreeSet<String>,
    /// Semi-sync replicas that are not among them.
    pub unconfigured_replicas: u32,
    /// What the primary had executed, asked **after** `waiting`: commits under an earlier setting are in it.
    pub executed: &'a GtidSet,
    /// What each durable acker holds.
    pub holds: &'a BTreeMap<String, GtidSet>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PastPolicy {
    #[serde(alias = "regime")]
    policy: AckPolicy,
    /// All that can have been committed under it.
    #[serde(with = "gtid_serde")]
    until: GtidSet,
}

/// The setting in force, and the earlier ones that still count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckPolicyHistory {
    current: AckPolicy,
    earlier: Vec<PastPolicy>,
    unacknowledged: u64,
    #[serde(alias = "after_restart")]
    survives_restart: bool,
}

impl AckPolicyHistory {
    /// Begins with a first look. What was committed before it nobody watched: it counts as not lossless until enough
    /// ackers hold it.
    pub fn begin(look: &PolicyObservation<'_>) -> Self {
        let before = AckPolicy {
            ackers: BTreeSet::new(),
            unconfigured_replicas: 0,
            acks: AckRequirement::NotLossless("commits before the first look were not watched".to_owned()),
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

    /// Notes what a look saw.
    pub fn observe(&mut self, look: &PolicyObservation<'_>) {
        let seen = policy_of(look);
        let unacknowledged = look.waiting.unacknowledged;
        // The count begins anew when the server restarts.
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

    /// Notes a weaker setting that is about to be made; the next look confirms it.
    pub fn announce_weaker(&mut self, acks_required: u32, executed: &GtidSet) {
        let weaker = AckPolicy { acks: AckRequirement::Required(acks_required), ..self.current.clone() };
        if weaker != self.current {
            let old = std::mem::replace(&mut self.current, weaker);
            self.retire(old, executed);
        }
    }

    /// The setting in force.
    pub fn current(&self) -> &AckPolicy {
        &self.current
    }

    /// Whether the primary waits for ackers after a restart, too.
    pub fn waits_after_restart(&self) -> bool {
        self.survives_restart
    }

    /// The setting in force and every earlier one under which commits may have been acknowledged that too many
    /// ackers lack.
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
            // Positions of one server only grow, so the later is the union; of two flavours nothing is settled.
            first.until = first.until.union(&second.until).unwrap_or(second.until);
        }
    }

    /// Forgets what so many ackers of the present hold that one of them is among any that prove completeness.
    ///
    /// Where the present setting is followed by a weaker proof, it becomes an earlier one itself, and demands its own until
    /// what it covered has settled.
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
