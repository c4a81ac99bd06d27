//! Estimates how long the plan of a dry run would take.

use super::failover_request::ExpectedDurations;
use crate::model::RunAction;

/// Returns the expected duration of the actions, in milliseconds. `drain_ms` is the expected duration of a
/// drain, if it is known.
pub(super) fn expected_duration_ms(
    acts: &[RunAction],
    expected: &ExpectedDurations,
    drain_ms: Option<u64>,
) -> u64 {
    let mut total_ms = 0u64;
    let mut rest = acts;
    while let Some(act) = rest.first() {
        // Parallel actions of one kind together take as long as a single action of this kind.
        let is_parallel = matches!(
            act,
            RunAction::StopAcker { .. } | RunAction::RepointAcker { .. } | RunAction::RepointReplica { .. }
        );
        let is_same = |other: &&RunAction| std::mem::discriminant(*other) == std::mem::discriminant(act);
        let count = if is_parallel { rest.iter().take_while(is_same).count() } else { 1 };
        let is_drain = matches!(act, RunAction::DrainRelayLog { .. });
        let act_ms = drain_ms.filter(|_| is_drain).unwrap_or_else(|| expected.of(act));
        total_ms = total_ms.saturating_add(act_ms);
        rest = &rest[count..];
    }
    total_ms
}
