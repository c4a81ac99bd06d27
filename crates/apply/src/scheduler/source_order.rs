//! Runs of the log that execute beside each other and commit one behind the other.

use std::collections::VecDeque;

use super::run_index::{RunIndex, Touched};
use super::sizing::Limits;
use super::{Batch, BatchId, Ended, Weight};
use crate::writeset::Writeset;

/// See the module.
///
/// Runs are numbered without gaps, so what is finished is a number: all runs up to it. A transaction is put off while a
/// run that it conflicts with, or that one of its own run conflicts with which stands before it and conflicts with it,
/// is not finished; of those the last one decides (`after`). It is looked at when the run is handed out, not before.
#[derive(Debug)]
pub(super) struct SourceOrder<T> {
    index: RunIndex,
    /// Takes what is offered. Its number is `next_run`.
    open: Run<T>,
    sealed: VecDeque<Run<T>>,
    /// Handed out and not finished, in order; the first is the one behind `finished`.
    handed: VecDeque<Handed>,
    finished: u64,
    next_run: u64,
}

#[derive(Debug)]
struct Run<T> {
    /// Each with the last run before this one that must have committed before it is executed; 0 for none.
    transactions: Vec<(u64, T)>,
    weight: Weight,
    touched: Touched,
    alone: bool,
}

#[derive(Debug)]
struct Handed {
    ended: Ended,
    touched: Touched,
    alone: bool,
    done: bool,
}

impl<T> Default for Run<T> {
    fn default() -> Self {
        Self {
            transactions: Vec::new(),
            weight: Weight::default(),
            touched: Touched::default(),
            alone: false,
        }
    }
}

impl<T> SourceOrder<T> {
    /// One whose first run has the number 1.
    pub fn new() -> Self {
        Self {
            index: RunIndex::default(),
            open: Run::default(),
            sealed: VecDeque::new(),
            handed: VecDeque::new(),
            finished: 0,
            next_run: 1,
        }
    }

    pub fn offer(&mut self, limits: Limits, writeset: &Writeset, weight: Weight, payload: T) {
        if writeset.barrier || !limits.fits(self.open.transactions.len(), self.open.weight, 1, weight) {
            self.seal();
        }
        let after = if writeset.barrier {
            // It runs when all before it is finished, and all behind it when it is.
            0
        } else {
            self.index.add(&writeset.accesses, self.next_run, &mut self.open.touched)
        };
        assert!(after < self.next_run, "a run waits for itself or a later one");
        self.open.transactions.push((after, payload));
        self.open.weight.add(weight);
        self.open.alone = writeset.barrier;
        if writeset.barrier || limits.is_full(self.open.transactions.len(), self.open.weight) {
            self.seal();
        }
    }

    fn seal(&mut self) {
        if !self.open.transactions.is_empty() {
            self.sealed.push_back(std::mem::take(&mut self.open));
            self.next_run += 1;
        }
    }

    pub fn next(&mut self, limits: Limits) -> Option<Batch<T>> {
        if self.handed.front().is_some_and(|run| run.alone) {
            return None;
        }
        if self.sealed.is_empty() && self.open_is_ripe(limits) {
            self.seal();
        }
        if self.sealed.front()?.alone && !self.handed.is_empty() {
            return None;
        }
        let run = self.sealed.pop_front()?;
        Some(self.hand_out(run))
    }

    /// Whether a run that could take more is to be handed out. While as many run as can overlap, it rather grows, so that
    /// more share its commit; and while none of its transactions could be executed before that.
    fn open_is_ripe(&self, limits: Limits) -> bool {
        self.handed.is_empty()
            || (self.handed.len() < limits.overlap
                && self.open.transactions.iter().any(|(after, _)| *after <= self.finished))
    }

    fn hand_out(&mut self, run: Run<T>) -> Batch<T> {
        let id = self.finished + self.handed.len() as u64 + 1;
        let ended = Ended { transactions: run.transactions.len(), weight: run.weight };
        let (mut first, mut rest) = (Vec::with_capacity(run.transactions.len()), Vec::new());
        for (after, payload) in run.transactions {
            if after <= self.finished { first.push(payload) } else { rest.push(payload) }
        }
        let commit_after = (!self.handed.is_empty()).then(|| BatchId(id - 1));
        assert!(rest.is_empty() || commit_after.is_some(), "nothing is put off without a run to wait for");
        self.handed.push_back(Handed { ended, touched: run.touched, alone: run.alone, done: false });
        Batch { id: BatchId(id), first, rest, commit_after, alone: run.alone }
    }

    /// Commits come in order; word of them need not.
    pub fn done(&mut self, id: BatchId) -> Option<Ended> {
        let place = id.0.checked_sub(self.finished + 1).and_then(|place| usize::try_from(place).ok())?;
        let run = self.handed.get_mut(place).filter(|run| !run.done)?;
        run.done = true;
        let ended = run.ended;
        while self.handed.front().is_some_and(|run| run.done) {
            self.finished += 1;
            if let Some(run) = self.handed.pop_front() {
                self.index.forget(&run.touched, self.finished);
            }
        }
        Some(ended)
    }

    #[cfg(test)]
    pub fn is_clean(&self) -> bool {
        self.index.is_empty()
    }
}
