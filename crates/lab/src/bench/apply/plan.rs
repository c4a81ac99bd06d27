//! What is measured: which workloads, how big, under which conditions, and how often.

use crate::args::ApplyWorkload;
use crate::trial::TrialDurability;

/// Under which conditions a backlog is replayed; the same for every contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// What the target promises of its own disk at a commit.
    pub durability: TrialDurability,
    /// Whether every fsync of the target lasts [`super::SYNC_DELAY`] longer.
    pub slow_sync: bool,
}

impl Conditions {
    /// Everything synced, on the disk as it is.
    pub const FULL: Self = Self { durability: TrialDurability::Full, slow_sync: false };
    const RELAXED: Self = Self { durability: TrialDurability::Reduced, slow_sync: false };
    const SLOW: Self = Self { durability: TrialDurability::Full, slow_sync: true };

    /// In a report's setting.
    pub fn durability_name(self) -> &'static str {
        match self.durability {
            TrialDurability::Full => "full",
            TrialDurability::Reduced => "relaxed",
        }
    }
}

/// A backlog, replayed under some conditions.
#[derive(Debug, Clone, Copy)]
pub struct PlannedWorkload {
    /// What the backlog is made of.
    pub workload: ApplyWorkload,
    /// Rows in the tables before it, in all of them together.
    pub rows: u32,
    /// Transactions in it.
    pub transactions: u32,
    /// How it is replayed: under which conditions, and how often by each contender.
    pub scenes: &'static [Scene],
}

/// One condition of an act.
#[derive(Debug, Clone, Copy)]
pub struct Scene {
    /// The condition.
    pub conditions: Conditions,
    /// Replays by each contender, which take turns.
    pub repeats: usize,
    /// How many of the native settings are measured in full: those that were best on a slice each. With 0 none is tried on
    /// a slice.
    pub natives: usize,
    /// Whether native replication with a single thread is among those measured in full.
    pub single: bool,
}

/// The whole of a benchmark.
#[derive(Debug, Clone)]
pub struct ApplyPlan {
    /// In their order.
    pub acts: Vec<PlannedWorkload>,
    /// For how many seconds the delay of a steady stream is measured each time, and how often at half load.
    pub steady_seconds: u64,
    /// See there.
    pub steady_repeats: usize,
    /// Whether only few of the native settings are tried.
    pub quick: bool,
}

const fn scene(conditions: Conditions, repeats: usize, natives: usize, single: bool) -> Scene {
    Scene { conditions, repeats, natives, single }
}

/// The headline's workload: where the goals are set, so it is measured most.
pub const HEADLINE: ApplyWorkload = ApplyWorkload::OltpWriteOnly;

const HEADLINE_SCENES: &[Scene] =
    &[scene(Conditions::FULL, 3, 2, true), scene(Conditions::RELAXED, 2, 1, false)];
const OTHER_SCENES: &[Scene] =
    &[scene(Conditions::FULL, 2, 1, false), scene(Conditions::RELAXED, 1, 1, false)];
const SLOW_SCENES: &[Scene] = &[scene(Conditions::SLOW, 1, 1, true)];
const QUICK_HEADLINE_SCENES: &[Scene] = &[scene(Conditions::FULL, 1, 2, true)];
const QUICK_SLOW_SCENES: &[Scene] = &[scene(Conditions::SLOW, 1, 0, true)];
const QUICK_SCENES: &[Scene] = &[scene(Conditions::FULL, 1, 1, false)];

/// Rows before, transactions, and transactions where every fsync is slow (0: not measured). A quick run has a part of
/// them.
fn size(workload: ApplyWorkload) -> (u32, u32, u32) {
    match workload {
        ApplyWorkload::OltpWriteOnly => (250_000, 85_000, 6_000),
        ApplyWorkload::OltpInsert => (100_000, 50_000, 0),
        ApplyWorkload::UpdateHotRows => (10_000, 30_000, 0),
        ApplyWorkload::WideRows => (5_000, 8_000, 0),
        ApplyWorkload::SecondaryIndexes => (100_000, 25_000, 0),
        ApplyWorkload::SmallTransactions => (200_000, 60_000, 6_000),
        ApplyWorkload::Statements => (10_000, 6_000, 0),
    }
}

impl ApplyPlan {
    /// All workloads, or one; with backlogs of another length, if that is wanted.
    pub fn new(only: Option<ApplyWorkload>, quick: bool, transactions_wanted: Option<u32>) -> Self {
        let (rows_divisor, transactions_divisor) = if quick { (4, 6) } else { (1, 1) };
        let mut acts = Vec::new();
        let workloads =
            ApplyWorkload::ALL.into_iter().filter(|workload| only.is_none_or(|only| only == *workload));
        for workload in workloads {
            let (rows, transactions, slow_transactions) = size(workload);
            let headline = workload == HEADLINE;
            let rows = rows / rows_divisor;
            let scenes = match (headline, quick) {
                (true, false) => HEADLINE_SCENES,
                (false, false) => OTHER_SCENES,
                (true, true) => QUICK_HEADLINE_SCENES,
                (false, true) => QUICK_SCENES,
            };
            let transactions = transactions_wanted.unwrap_or(transactions / transactions_divisor);
            acts.push(PlannedWorkload { workload, rows, transactions, scenes });
            if slow_transactions > 0 && (headline || !quick) {
                let transactions = slow_transactions / rows_divisor;
                let scenes = if quick { QUICK_SLOW_SCENES } else { SLOW_SCENES };
                acts.push(PlannedWorkload { workload, rows, transactions, scenes });
            }
        }
        let (steady_seconds, steady_repeats) = if quick { (4, 1) } else { (8, 3) };
        Self { acts, steady_seconds, steady_repeats, quick }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_measured_at_full_durability_and_the_headline_under_all_conditions() {
        for quick in [false, true] {
            let plan = ApplyPlan::new(None, quick, None);
            for workload in ApplyWorkload::ALL {
                let scenes: Vec<_> = plan
                    .acts
                    .iter()
                    .filter(|act| act.workload == workload)
                    .flat_map(|act| act.scenes)
                    .map(|scene| scene.conditions)
                    .collect();
                assert!(scenes.contains(&Conditions::FULL), "{workload:?}");
                if workload == HEADLINE {
                    assert_eq!(scenes.contains(&Conditions::RELAXED), !quick);
                    assert!(scenes.contains(&Conditions::SLOW));
                }
            }
            let one = ApplyPlan::new(Some(ApplyWorkload::WideRows), quick, None);
            assert!(one.acts.len() == 1 && one.acts[0].transactions >= 1_000);
        }
    }
}
