//! The plan of the benchmark: workloads, sizes, conditions and numbers of repeats.

use crate::arguments::ApplyWorkload;
use crate::fault_trial::TrialDurability;

/// The conditions of a replay. They are the same for every contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// The durability of the target's commits.
    pub durability: TrialDurability,
    /// Whether every fsync of the target takes [`super::SYNC_DELAY`] longer.
    pub slow_fsync: bool,
}

impl Conditions {
    /// Full durability, on a disk without added delay.
    pub const FULL: Self = Self { durability: TrialDurability::Full, slow_fsync: false };
    const RELAXED: Self = Self { durability: TrialDurability::Reduced, slow_fsync: false };
    const SLOW: Self = Self { durability: TrialDurability::Full, slow_fsync: true };

    /// Returns the name of the durability in a report.
    pub fn durability_name(self) -> &'static str {
        match self.durability {
            TrialDurability::Full => "full",
            TrialDurability::Reduced => "relaxed",
        }
    }
}

/// A backlog that is replayed under some conditions.
#[derive(Debug, Clone, Copy)]
pub struct PlannedWorkload {
    /// The workload that writes the backlog.
    pub workload: ApplyWorkload,
    /// Number of rows in all tables before the backlog.
    pub rows: u32,
    /// Number of transactions in the backlog.
    pub transactions: u32,
    /// The conditions under which the backlog is replayed.
    pub conditions: &'static [ReplayCondition],
}

/// One condition under which a backlog is replayed.
#[derive(Debug, Clone, Copy)]
pub struct ReplayCondition {
    /// The durability and the disk.
    pub conditions: Conditions,
    /// The number of replays by each contender (native replication or Tailwater). The contenders take turns.
    pub repeats: usize,
    /// The number of settings of native replication that replay the whole backlog: those that were fastest on
    /// a slice of the backlog. If it is 0, no setting is tried on a slice.
    pub natives: usize,
    /// Whether single-threaded native replication also replays the whole backlog.
    pub single: bool,
}

/// The plan of the whole benchmark.
#[derive(Debug, Clone)]
pub struct ApplyPlan {
    /// The workloads, in order.
    pub workloads: Vec<PlannedWorkload>,
    /// The duration of each measurement of a steady stream, in seconds.
    pub steady_seconds: u64,
    /// The number of measurements at half load.
    pub steady_repeats: usize,
    /// Whether only a few native settings are tried.
    pub quick: bool,
}

const fn condition(conditions: Conditions, repeats: usize, natives: usize, single: bool) -> ReplayCondition {
    ReplayCondition { conditions, repeats, natives, single }
}

/// The workload of the headline figure. It is measured most often, because the project's goals refer to it.
pub const HEADLINE: ApplyWorkload = ApplyWorkload::OltpWriteOnly;

const HEADLINE_CONDITIONS: &[ReplayCondition] =
    &[condition(Conditions::FULL, 3, 2, true), condition(Conditions::RELAXED, 2, 1, false)];
const OTHER_CONDITIONS: &[ReplayCondition] =
    &[condition(Conditions::FULL, 2, 1, false), condition(Conditions::RELAXED, 1, 1, false)];
const SLOW_CONDITIONS: &[ReplayCondition] = &[condition(Conditions::SLOW, 1, 1, true)];
const QUICK_HEADLINE_CONDITIONS: &[ReplayCondition] = &[condition(Conditions::FULL, 1, 2, true)];
const QUICK_SLOW_CONDITIONS: &[ReplayCondition] = &[condition(Conditions::SLOW, 1, 0, true)];
const QUICK_CONDITIONS: &[ReplayCondition] = &[condition(Conditions::FULL, 1, 1, false)];

/// Returns three numbers: rows before the backlog, transactions in the backlog, and transactions in the
/// backlog for slow syncs (0: not measured). A quick run has fewer.
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
    /// Plans all workloads, or only the workload `only`. `transactions_wanted` replaces the length of each
    /// backlog.
    pub fn new(only: Option<ApplyWorkload>, quick: bool, transactions_wanted: Option<u32>) -> Self {
        let (rows_divisor, transactions_divisor) = if quick { (4, 6) } else { (1, 1) };
        let mut planned = Vec::new();
        let workloads =
            ApplyWorkload::ALL.into_iter().filter(|workload| only.is_none_or(|only| only == *workload));
        for workload in workloads {
            let (rows, transactions, slow_transactions) = size(workload);
            let headline = workload == HEADLINE;
            let rows = rows / rows_divisor;
            let conditions = match (headline, quick) {
                (true, false) => HEADLINE_CONDITIONS,
                (false, false) => OTHER_CONDITIONS,
                (true, true) => QUICK_HEADLINE_CONDITIONS,
                (false, true) => QUICK_CONDITIONS,
            };
            let transactions = transactions_wanted.unwrap_or(transactions / transactions_divisor);
            planned.push(PlannedWorkload { workload, rows, transactions, conditions });
            if slow_transactions > 0 && (headline || !quick) {
                let transactions = slow_transactions / rows_divisor;
                let conditions = if quick { QUICK_SLOW_CONDITIONS } else { SLOW_CONDITIONS };
                planned.push(PlannedWorkload { workload, rows, transactions, conditions });
            }
        }
        let (steady_seconds, steady_repeats) = if quick { (4, 1) } else { (8, 3) };
        Self { workloads: planned, steady_seconds, steady_repeats, quick }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_measured_at_full_durability_and_the_headline_workload_under_all_conditions() {
        for quick in [false, true] {
            let plan = ApplyPlan::new(None, quick, None);
            for workload in ApplyWorkload::ALL {
                let conditions: Vec<_> = plan
                    .workloads
                    .iter()
                    .filter(|planned| planned.workload == workload)
                    .flat_map(|planned| planned.conditions)
                    .map(|condition| condition.conditions)
                    .collect();
                assert!(
                    conditions.contains(&Conditions::FULL),
                    "{workload:?} is not measured at full durability"
                );
                if workload == HEADLINE {
                    assert_eq!(conditions.contains(&Conditions::RELAXED), !quick);
                    assert!(conditions.contains(&Conditions::SLOW));
                }
            }
            let one = ApplyPlan::new(Some(ApplyWorkload::WideRows), quick, None);
            assert!(one.workloads.len() == 1 && one.workloads[0].transactions >= 1_000);
        }
    }
}
