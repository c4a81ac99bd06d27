//! Runs: consecutive parts of the log, which execute in parallel and commit in order.

use std::collections::VecDeque;

use super::batch_size_tuner::BatchLimits;
pub(super) use super::source_order_conflict_index::ConflictingRuns;
use super::source_order_conflict_index::RunIndex;
use super::transaction_batch::{BatchId, BatchTotals, Scheduled, TransactionBatch, TransactionWeight};

/// The runs (consecutive parts of the log) that are not finished.
///
/// Runs are numbered without gaps, so the finished runs are all runs up to one number. A transaction is
/// deferred while an earlier run that conflicts with it is unfinished. It is also deferred if an earlier
/// transaction of the same run conflicts with it and waits for a run. The transaction waits for the latest of
/// these runs (`after`). Whether a transaction is deferred is decided when its run is dispatched.
#[derive(Debug)]
pub(super) struct LogRuns<T> {
    index: RunIndex,
    /// The run that accepts new transactions. Its number is `next_run`.
    open: LogRun<T>,
    sealed: VecDeque<LogRun<T>>,
    /// Runs that are dispatched and not finished, in order. The number of the first run is `finished` + 1.
    dispatched: VecDeque<DispatchedRun<T>>,
    finished: u64,
    next_run: u64,
    /// The batch ID of a run minus its run number.
    ids_above: u64,
}

#[derive(Debug)]
struct LogRun<T> {
    /// The transactions, each with the last run that must commit before the transaction is executed; 0 for
    /// none.
    transactions: Vec<(u64, T)>,
    weight: TransactionWeight,
    touched: ConflictingRuns,
    alone: bool,
}

#[derive(Debug)]
struct DispatchedRun<T> {
    totals: BatchTotals,
    touched: ConflictingRuns,
    alone: bool,
    done: bool,
    /// The unfinished part of this run of the log, if the worker gave it back.
    rest: Option<Vec<T>>,
}

/// All runs that were in a [`LogRuns`].
#[derive(Debug)]
pub(super) struct AcceptedRun<T> {
    /// The runs up to the last running one, in log order.
    pub started: Vec<StartedRun<T>>,
    /// The transactions after the runs of the log in `started`, in log order.
    pub waiting: Vec<T>,
}

/// A run that is dispatched and not finished.
#[derive(Debug)]
pub(super) struct StartedRun<T> {
    pub id: BatchId,
    pub totals: BatchTotals,
    pub touched: ConflictingRuns,
    /// The unfinished part of this run of the log, if its worker gave it back.
    pub rest: Option<Vec<T>>,
}

impl<T> Default for LogRun<T> {
    fn default() -> Self {
        Self {
            transactions: Vec::new(),
            weight: TransactionWeight::default(),
            touched: ConflictingRuns::default(),
            alone: false,
        }
    }
}

impl<T: Scheduled> LogRuns<T> {
    /// Returns an empty set of runs. The first batch gets ID 1.
    pub fn new() -> Self {
        Self {
            index: RunIndex::default(),
            open: LogRun::default(),
            sealed: VecDeque::new(),
            dispatched: VecDeque::new(),
            finished: 0,
            next_run: 1,
            ids_above: 0,
        }
    }

    /// Sets the ID of the first batch, if no batch is dispatched yet.
    pub fn begin_ids_with(&mut self, first: u64) {
        if self.finished == 0 && self.dispatched.is_empty() {
            self.ids_above = first - 1;
        }
    }

    pub fn offer(&mut self, limits: BatchLimits, payload: T) {
        let (writeset, weight) = (payload.writeset(), payload.weight());
        if writeset.barrier || !limits.fits(self.open.transactions.len(), self.open.weight, 1, weight) {
            self.seal();
        }
        let after = if writeset.barrier {
            // A barrier transaction runs after all earlier transactions and before all later transactions. So
            // it need not wait for a particular run of the log.
            0
        } else {
            self.index.add(&writeset.accesses, self.next_run, &mut self.open.touched)
        };
        assert!(after < self.next_run, "a run must not wait for itself or for a later run");
        let alone = writeset.barrier;
        self.open.transactions.push((after, payload));
        self.open.weight.add(weight);
        self.open.alone = alone;
        if alone || limits.is_full(self.open.transactions.len(), self.open.weight) {
            self.seal();
        }
    }

    fn seal(&mut self) {
        if !self.open.transactions.is_empty() {
            self.sealed.push_back(std::mem::take(&mut self.open));
            self.next_run += 1;
        }
    }

    pub fn next(&mut self, limits: BatchLimits) -> Option<TransactionBatch<T>> {
        if self.dispatched.front().is_some_and(|run| run.alone) {
            return None;
        }
        if self.sealed.is_empty() && self.open_is_ripe(limits) {
            self.seal();
        }
        if self.sealed.front()?.alone && !self.dispatched.is_empty() {
            return None;
        }
        let run = self.sealed.pop_front()?;
        Some(self.hand_out(run))
    }

    /// Returns whether the open run should be dispatched now although it has room for more transactions. The
    /// open run keeps growing while the maximum number of runs overlap, so that more transactions share a
    /// commit. It also keeps growing while none of its transactions could be executed yet.
    fn open_is_ripe(&self, limits: BatchLimits) -> bool {
        self.dispatched.is_empty()
            || (self.dispatched.len() < limits.overlap
                && self.open.transactions.iter().any(|(after, _)| *after <= self.finished))
    }

    fn hand_out(&mut self, run: LogRun<T>) -> TransactionBatch<T> {
        let id = self.ids_above + self.finished + self.dispatched.len() as u64 + 1;
        let totals = BatchTotals { transactions: run.transactions.len(), weight: run.weight };
        let (mut first, mut rest) = (Vec::with_capacity(run.transactions.len()), Vec::new());
        for (after, payload) in run.transactions {
            if after <= self.finished { first.push(payload) } else { rest.push(payload) }
        }
        let commit_after = (!self.dispatched.is_empty()).then(|| BatchId(id - 1));
        assert!(
            rest.is_empty() || commit_after.is_some(),
            "a deferred transaction must have a run to wait for"
        );
        let (touched, alone) = (run.touched, run.alone);
        self.dispatched.push_back(DispatchedRun { totals, touched, alone, done: false, rest: None });
        TransactionBatch { id: BatchId(id), first, rest, commit_after, in_turn: true, alone }
    }

    fn dispatched_mut(&mut self, id: BatchId) -> Option<&mut DispatchedRun<T>> {
        let place = id.0.checked_sub(self.ids_above + self.finished + 1)?;
        let run = self.dispatched.get_mut(usize::try_from(place).ok()?);
        run.filter(|run| !run.done && run.rest.is_none())
    }

    /// Stores the unfinished part of a run until all runs are [taken](Self::take). Returns the size of the
    /// finished part.
    pub fn give_back(&mut self, id: BatchId, rest: Vec<T>) -> Option<BatchTotals> {
        let run = self.dispatched_mut(id)?;
        let left = BatchTotals::of(&rest);
        run.rest = Some(rest);
        Some(std::mem::replace(&mut run.totals, left).without(left))
    }

    /// Returns whether there is no backlog: the waiting transactions would not fill a batch that is worth a
    /// commit, and hardly any batch is running.
    pub fn has_no_backlog(&self, limits: &BatchLimits) -> bool {
        let open = &self.open;
        self.sealed.is_empty()
            && self.dispatched.len() <= 1
            && !limits.is_worth_a_commit(open.transactions.len(), open.weight)
    }

    /// Returns whether the running batch must run alone.
    pub fn runs_alone(&self) -> bool {
        self.dispatched.front().is_some_and(|run| run.alone)
    }

    /// Removes and returns all runs.
    pub fn take(&mut self) -> AcceptedRun<T> {
        let Self { open, sealed, dispatched, finished, ids_above, .. } = std::mem::replace(self, Self::new());
        let ids = (ids_above + finished + 1..).map(BatchId);
        let mut started: Vec<_> = ids
            .zip(dispatched)
            .filter(|(_, run)| !run.done)
            .map(|(id, DispatchedRun { totals, touched, rest, .. })| StartedRun { id, totals, touched, rest })
            .collect();
        // All runs after the last running run were given back, so their transactions wait to be dispatched
        // again.
        let after_running =
            started.split_off(started.iter().rposition(|run| run.rest.is_none()).map_or(0, |last| last + 1));
        let mut waiting: Vec<_> = after_running.into_iter().filter_map(|run| run.rest).flatten().collect();
        let runs = sealed.into_iter().chain([open]);
        waiting.extend(runs.flat_map(|run| run.transactions).map(|(_, payload)| payload));
        AcceptedRun { started, waiting }
    }

    /// Reports that a run of the log has committed. Runs commit in order, but the reports may arrive in
    /// another order.
    pub fn done(&mut self, id: BatchId) -> Option<BatchTotals> {
        let run = self.dispatched_mut(id)?;
        run.done = true;
        let totals = run.totals;
        while self.dispatched.front().is_some_and(|run| run.done) {
            self.finished += 1;
            if let Some(run) = self.dispatched.pop_front() {
                self.index.forget(&run.touched, self.finished);
            }
        }
        Some(totals)
    }

    #[cfg(test)]
    pub fn is_clean(&self) -> bool {
        self.index.is_empty() && self.dispatched.is_empty() && self.sealed.is_empty()
    }
}
