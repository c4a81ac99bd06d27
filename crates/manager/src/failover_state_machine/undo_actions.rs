//! The undo log: how to undo the actions of a failover or switchover.

use crate::model::RunAction;

/// The actions that undo everything the failover or switchover has done so far, and the state of the undo.
#[derive(Debug, Clone, Default)]
pub struct UndoLog {
    /// The undo actions. The undo action for the latest action is first.
    entries: Vec<RunAction>,
    /// Actions that cannot be undone, and may have taken effect.
    irreversible: Vec<RunAction>,
    /// Whether an action changed something, reversible or not.
    changed: bool,
    /// Whether an undo action failed in this round.
    failed: bool,
    /// Whether this is the last round: undo actions that fail now are not repeated.
    last_round: bool,
}

impl UndoLog {
    /// Creates the undo log of a recovery, which undoes the actions of an earlier failover or switchover,
    /// with the most urgent action first. Failed undo actions are not repeated, because the caller repeats
    /// the whole recovery.
    pub(crate) fn of_earlier_run(irreversible: Vec<RunAction>) -> Self {
        Self { irreversible, last_round: true, ..Self::default() }
    }

    /// Replaces the undo actions.
    pub(crate) fn set_entries(&mut self, entries: Vec<RunAction>) {
        self.entries = entries;
    }

    /// Records that an action may have changed something.
    pub(crate) fn set_changed(&mut self) {
        self.changed = true;
    }

    /// Adds the undo action for an action that may take effect from now on.
    pub(crate) fn push(&mut self, undo: RunAction) {
        self.entries.insert(0, undo);
    }

    /// Records an action that cannot be undone.
    pub(crate) fn push_irreversible(&mut self, act: RunAction) {
        self.irreversible.push(act);
    }

    /// Removes an undo action: it was executed, or there is nothing to undo.
    pub(crate) fn remove(&mut self, undo: &RunAction) {
        self.entries.retain(|entry| entry != undo);
    }

    /// Whether the log contains this action as an undo action.
    pub(crate) fn contains(&self, act: &RunAction) -> bool {
        self.entries.contains(act)
    }

    /// Returns all undo actions.
    pub(crate) fn entries(&self) -> &[RunAction] {
        &self.entries
    }

    /// Whether an action of the failover or switchover changed something.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed
    }

    /// Returns the undo actions to execute now, of those that may be executed. A server that may be writable
    /// is made read-only first. No other undo action runs meanwhile, so the old primary stays fenced. Then
    /// the rest runs in parallel, because a server that does not answer must not delay the others.
    pub(crate) fn next_round(&self, is_executable: impl Fn(&RunAction) -> bool) -> Vec<RunAction> {
        let read_only = self.entries.iter().find(|act| matches!(act, RunAction::MakeReadOnly { .. }));
        match read_only {
            Some(act) => vec![act.clone()],
            None => self.entries.iter().filter(|act| is_executable(act)).cloned().collect(),
        }
    }

    /// Records that an undo action failed.
    pub(crate) fn record_failure(&mut self) {
        self.failed = true;
    }

    /// Ends a round of undo actions. Returns whether another round follows: after failures, the remaining
    /// undo actions are repeated once.
    pub(crate) fn end_round(&mut self, is_executable: impl Fn(&RunAction) -> bool) -> bool {
        let gives_up = self.failed && self.last_round;
        self.last_round |= std::mem::take(&mut self.failed);
        !gives_up && !self.next_round(is_executable).is_empty()
    }

    /// Takes the remaining undo actions and the irreversible actions out of the log.
    pub(crate) fn take(&mut self) -> (Vec<RunAction>, Vec<RunAction>) {
        (std::mem::take(&mut self.entries), std::mem::take(&mut self.irreversible))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(acker: &str) -> RunAction {
        RunAction::StartAcker { acker: acker.to_owned() }
    }

    #[test]
    fn a_writable_server_is_made_read_only_first_and_failures_are_repeated_once() {
        let read_only = RunAction::MakeReadOnly { server: "new".to_owned() };
        let mut log = UndoLog::default();
        for undo in [start("one"), read_only.clone(), start("two")] {
            log.push(undo);
        }
        let all = |_: &RunAction| true;
        assert_eq!(log.next_round(all), std::slice::from_ref(&read_only));
        log.remove(&read_only);
        assert!(log.end_round(all));
        assert_eq!(log.next_round(all), [start("two"), start("one")]);
        log.remove(&start("two"));
        log.record_failure();
        assert!(log.end_round(all), "the failed undo action is repeated");
        log.record_failure();
        assert!(!log.end_round(all), "once");
        assert_eq!(log.take().0, [start("one")]);
    }

    #[test]
    fn the_undo_of_an_earlier_failover_keeps_entries_that_must_not_be_executed() {
        let mut log = UndoLog::of_earlier_run(Vec::new());
        log.set_entries(vec![start("one"), start("two")]);
        let not_two = |act: &RunAction| *act != start("two");
        assert_eq!(log.next_round(not_two), [start("one")]);
        log.remove(&start("one"));
        assert!(!log.end_round(not_two));
        assert_eq!(log.take().0, [start("two")]);
    }
}
