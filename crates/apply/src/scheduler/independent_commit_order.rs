//! Independent commit order: only transactions that share keys keep their order. This order puts transactions
//! into groups by key. While runs are faster than groups, it puts the transactions into runs, which are
//! consecutive parts of the log.

use std::collections::BTreeSet;

use super::batch_size_tuner::BatchLimits;
use super::batches_by_shared_key::KeyedBatches;
use super::source_order_batches::{AcceptedRun, LogRuns, StartedRun};
use super::transaction_batch::{BatchId, BatchTotals, Scheduled, TransactionBatch};

/// How often the scheduler checks, at most, whether the waiting batches have yielded: whether they have
/// committed a part and given back the rest. A batch that has not yielded after this many checks executes a
/// long statement or is held up itself. The other batches then stop waiting for this batch.
const CHECKS_MAX: u32 = 6;
/// Runs are used only if a batch may have at least this many transactions. With smaller batches, commits in
/// order would cost more time than runs save.
const RUN_TRANSACTIONS_MIN: usize = 64;

/// The independent commit order.
///
/// A group contains transactions that share keys, and waits only for groups with which it conflicts. But
/// groups are small. While there is more work than the workers can handle, waits cost nothing. The log is
/// then applied in [runs](super::source_order_batches). Runs are several times as large as groups, because
/// transactions that conflict with the previous run move to the end of their run.
///
/// A run that is held up holds up all later runs. In that case, the workers of the later runs commit the part
/// that need not wait, and give back the rest. These rests, the running runs, and the runs that are not
/// dispatched yet become groups.
#[derive(Debug)]
pub(super) struct IndependentOrder<T> {
    mode: Mode,
    groups: KeyedBatches<T>,
    /// The runs of the log. Empty while only groups are in use. No run is dispatched before the last group is
    /// done.
    runs: LogRuns<T>,
    /// Runs that are dispatched, and that the worker has neither finished nor given back. Their state is in
    /// `runs` or in `groups`.
    in_turn: BTreeSet<BatchId>,
    /// Whether batches that wait for their turn must commit the transactions that they have executed, and
    /// give back the others.
    can_yield: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// New transactions are added to groups.
    KeyedBatches,
    /// New transactions are added to runs of the log.
    LogRuns,
    /// The scheduler uses runs, as in [`Mode::LogRuns`]. But it dispatches no run until the workers of the
    /// running runs have given back the transactions that they have not executed. `checks` counts the checks
    /// since this mode began.
    DrainRuns { checks: u32 },
}

impl<T: Scheduled> IndependentOrder<T> {
    /// Returns an empty order. The first batch gets ID 1.
    pub fn new() -> Self {
        Self {
            mode: Mode::KeyedBatches,
            groups: KeyedBatches::new(),
            runs: LogRuns::new(),
            in_turn: BTreeSet::new(),
            can_yield: false,
        }
    }

    /// Returns whether new transactions are added to groups.
    pub fn is_grouped(&self) -> bool {
        self.mode == Mode::KeyedBatches
    }

    /// Returns whether batches that wait for their turn must commit the transactions that they have executed,
    /// and give back the others.
    pub fn can_yield(&self) -> bool {
        self.can_yield
    }

    pub fn offer(&mut self, limits: BatchLimits, payload: T) {
        match self.mode {
            Mode::KeyedBatches => self.groups.offer(limits, payload),
            Mode::LogRuns | Mode::DrainRuns { .. } => self.runs.offer(limits, payload),
        }
    }

    /// Returns whether enough workers have a next batch.
    pub fn has_enough(&self, limits: BatchLimits) -> bool {
        self.mode == Mode::KeyedBatches && self.groups.has_enough(limits)
    }

    /// Sets whether a running batch takes much longer than usual.
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
        // Let later batches also commit in part and give back the rest. The turn of this batch is never
        // announced, so they would wait for it forever. This batch may have yielded because of an earlier
        // signal, before the later batches were dispatched.
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
