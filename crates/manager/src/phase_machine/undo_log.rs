//! How to undo the actions of a run.

use crate::model::RunAction;

/// Actions that undo everything so far, and the state of the undo.
#[derive(Debug, Clone, Default)]
pub struct UndoLog {
    /// The latest action first.
    entries: Vec<RunAction>,
    /// Actions that cannot be undone, and may have taken effect.
    irreversible: Vec<RunAction>,
    /// An action changed something, reversible or not.
    changed: bool,
    /// An undo action failed in this round.
    failed: bool,
    /// Failed undo actions are not repeated any more.
    last_round: bool,
}

impl UndoLog {
    /// The log of a run that undoes the actions of an earlier one, most urgent first. The caller repeats the
    /// whole run, so failed undo actions are not repeated.
    pub(crate) fn of_earlier_run(irreversible: Vec<RunAction>) -> Self {
        Self { irreversible, last_round: true, ..Self::default() }
    }

    /// Replaces the entries.
    pub(crate) fn set_entries(&mut self, entries: Vec<RunAction>) {
        self.entries = entries;
    }

    /// Records that an action may change something.
    pub(crate) fn set_changed(&mut self) {
        self.changed = true;
    }

    /// Records how to undo an action that may take effect now.
    pub(crate) fn push(&mut self, undo: RunAction) {
        self.entries.insert(0, undo);
    }

    /// Records an action that cannot be undone.
    pub(crate) fn push_irreversible(&mut self, act: RunAction) {
        self.irreversible.push(act);
    }

    /// Removes an entry: it is undone, or there is nothing to undo.
    pub(crate) fn remove(&mut self, undo: &RunAction) {
        self.entries.retain(|entry| entry != undo);
    }

    /// Whether an action is an entry, and so an undo action.
    pub(crate) fn contains(&self, act: &RunAction) -> bool {
        self.entries.contains(act)
    }

    /// All entries.
    pub(crate) fn entries(&self) -> &[RunAction] {
        &self.entries
    }

    /// Whether an action changed something.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed
    }

    /// The undo actions to execute now, of those that may be executed. A server that may be writable is made
    /// read-only first, alone, while the other primary stays fenced. The rest runs in parallel: a server that
    /// does not answer must not delay the others.
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

    /// Ends a round of undo actions. Returns whether another follows: after failures the rest is repeated
    /// once.
    pub(crate) fn end_round(&mut self, is_executable: impl Fn(&RunAction) -> bool) -> bool {
        let gives_up = self.failed && self.last_round;
        self.last_round |= std::mem::take(&mut self.failed);
        !gives_up && !self.next_round(is_executable).is_empty()
    }

    /// The remaining entries and the irreversible actions.
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
        assert!(log.end_round(all), "the other one is repeated");
        log.record_failure();
        assert!(!log.end_round(all), "once");
        assert_eq!(log.take().0, [start("one")]);
    }

    #[test]
    fn the_undo_of_an_earlier_run_leaves_what_must_not_be_executed() {
        let mut log = UndoLog::of_earlier_run(Vec::new());
        log.set_entries(vec![start("one"), start("two")]);
        let not_two = |act: &RunAction| *act != start("two");
        assert_eq!(log.next_round(not_two), [start("one")]);
        log.remove(&start("one"));
        assert!(!log.end_round(not_two));
        assert_eq!(log.take().0, [start("two")]);
    }
}
