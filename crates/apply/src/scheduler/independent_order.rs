//! Independent commit order: only transactions that share keys keep their order. Uses groups, or runs of the
//! log while these are faster.

use std::collections::BTreeSet;

use super::groups::KeyedBatches;
use super::runs::{AcceptedRun, LogRuns, StartedRun};
use super::sizing::BatchLimits;
use super::transaction_batch::{BatchId, BatchTotals, Scheduled, TransactionBatch};

/// Number of checks whether the waiting batches have yielded. After them the others no longer wait for those
/// that have not: these execute long statements or are held up themselves.
const CHECKS_MAX: u32 = 6;
/// With smaller batches, the cost of ordered commits outweighs the benefit of runs.
const RUN_TRANSACTIONS_MIN: usize = 64;

/// See the module.
///
/// Groups wait only where they must, but they are small. While the backlog is larger than the workers can
/// handle, waits do not matter. Then the log is applied in [runs](super::runs). They are several times as
/// large, because transactions that conflict with the previous run move to the end of a run.
///
/// A run that is held up holds up all later ones. Then their workers commit the part that need not wait, and
/// give back the rest. The rest, the running runs, and the runs that are not dispatched yet become groups.
#[derive(Debug)]
pub(super) struct IndependentOrder<T> {
    mode: Mode,
    groups: KeyedBatches<T>,
    /// Empty while only groups are in use. No run is dispatched before the last group is done.
    runs: LogRuns<T>,
    /// Dispatched runs that are neither done nor given back, in `runs` or in `groups`.
    in_turn: BTreeSet<BatchId>,
    /// Batches that wait for their turn must commit what they can and give back the rest.
    can_yield: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// New transactions go to groups.
    KeyedBatches,
    /// New transactions go to runs of the log.
    LogRuns,
    /// As [`Mode::LogRuns`], but no run is dispatched until the running ones have given back the transactions
    /// that they have not executed. Counts the checks since then.
    DrainRuns { checks: u32 },
}

impl<T: Scheduled> IndependentOrder<T> {
    /// An empty order. The first batch gets ID 1.
    pub fn new() -> Self {
        Self {
            mode: Mode::KeyedBatches,
            groups: KeyedBatches::new(),
            runs: LogRuns::new(),
            in_turn: BTreeSet::new(),
            can_yield: false,
        }
    }

    /// Whether new transactions go to groups.
    pub fn is_grouped(&self) -> bool {
        self.mode == Mode::KeyedBatches
    }

    /// Whether batches that wait for their turn must commit what they can and give back the rest.
    pub fn can_yield(&self) -> bool {
        self.can_yield
    }

    pub fn offer(&mut self, limits: BatchLimits, payload: T) {
        match self.mode {
            Mode::KeyedBatches => self.groups.offer(limits, payload),
            Mode::LogRuns | Mode::DrainRuns { .. } => self.runs.offer(limits, payload),
        }
    }

    /// Whether enough workers have a next batch.
    pub fn has_enough(&self, limits: BatchLimits) -> bool {
        self.mode == Mode::KeyedBatches && self.groups.has_enough(limits)
    }

    /// Reports whether a running batch takes much longer than usual.
    pub fn set_held_up(&mut self, limits: BatchLimits, held_up: bool) {
        match self.mode {
            Mode::LogRuns if held_up && !self.runs.runs_alone() => {
                self.mode = Mode::DrainRuns { checks: 0 };
                self.can_yield = !self.in_turn.is_empty();
            }
            Mode::DrainRuns { checks } if checks < CHECKS_MAX => {
                self.mode = Mode::DrainRuns { checks: checks + 1 }
            }
            Mode::DrainRuns { .. } => self.group(limits),
            Mode::KeyedBatches => self.can_yield |= held_up && !self.in_turn.is_empty(),
            Mode::LogRuns => {}
        }
    }

    /// Switches to groups or to runs of the log, if necessary.
    pub fn settle(&mut self, limits: BatchLimits, held_up: bool) {
        match self.mode {
            Mode::KeyedBatches if held_up || self.groups.has_adopted() => {}
            Mode::KeyedBatches => {
                if limits.transactions_max >= RUN_TRANSACTIONS_MIN && self.groups.has_enough(limits) {
                    self.mode = Mode::LogRuns;
                }
            }
            Mode::LogRuns => {
                if self.groups.is_idle() && self.runs.has_no_backlog(&limits) && !self.runs.runs_alone() {
                    self.group(limits);
                }
            }
            Mode::DrainRuns { .. } if self.in_turn.len() <= 1 => self.group(limits),
            Mode::DrainRuns { .. } => {}
        }
    }

    /// Moves all outstanding transactions to groups.
    fn group(&mut self, limits: BatchLimits) {
        self.mode = Mode::KeyedBatches;
        let AcceptedRun { started, waiting } = self.runs.take();
        for StartedRun { id, totals, touched, rest } in started {
            self.groups.adopt(id, totals, &touched);
            if let Some(rest) = rest {
                self.groups.give_back(id, rest);
            }
        }
        for payload in waiting {
            self.groups.offer(limits, payload);
        }
    }

    pub fn next(&mut self, limits: BatchLimits, held_up: bool) -> Option<TransactionBatch<T>> {
        if self.mode == Mode::KeyedBatches || !self.groups.is_idle() {
            return self.groups.next(limits, held_up);
        }
        if matches!(self.mode, Mode::DrainRuns { .. }) {
            return None;
        }
        self.runs.begin_ids_with(self.groups.next_id());
        let batch = self.runs.next(limits)?;
        self.groups.skip_ids(batch.id.0 + 1);
        self.in_turn.insert(batch.id);
        Some(batch)
    }

    pub fn done(&mut self, id: BatchId) -> Option<BatchTotals> {
        let totals = self.groups.done(id).or_else(|| self.runs.done(id))?;
        self.is_out_of_turn(id);
        Some(totals)
    }

    /// Takes back the unfinished part of a batch. Returns the size of the finished part.
    pub fn give_back(&mut self, id: BatchId, rest: Vec<T>) -> Option<BatchTotals> {
        if !self.in_turn.contains(&id) {
            return None;
        }
        // Its turn is never announced, so later batches would wait forever. It may have yielded on an old
        // signal, before they were dispatched.
        self.can_yield = true;
        if self.mode == Mode::LogRuns {
            self.mode = Mode::DrainRuns { checks: 0 };
        }
        if rest.is_empty() {
            return self.done(id);
        }
        self.is_out_of_turn(id);
        match self.mode {
            Mode::KeyedBatches => self.groups.give_back(id, rest),
            Mode::LogRuns | Mode::DrainRuns { .. } => self.runs.give_back(id, rest),
        }
    }

    fn is_out_of_turn(&mut self, id: BatchId) {
        self.in_turn.remove(&id);
        self.can_yield &= !self.in_turn.is_empty();
    }

    #[cfg(test)]
    pub fn is_clean(&self) -> bool {
        self.groups.is_clean() && self.runs.is_clean() && self.in_turn.is_empty() && !self.can_yield
    }
}
