//! Decides which transactions run together, when they run, and in which order they commit. It does no I/O,
//! and uses no clock and no randomness.
//!
//! Transactions are offered in log order and grouped into batches. Each batch is one transaction on the
//! target. Two transactions that share a key, at least one of them exclusively, keep their order. Either both
//! are in one batch, in log order, or the batch of the later transaction waits for the batch of the earlier
//! transaction. What "waits" means depends on the commit order:
//! - [`CommitOrder::Source`] (`source_order_batches`): batches are consecutive runs of the log, and commit in
//!   log order. Transactions that conflict with an earlier unfinished run are deferred until that run has
//!   committed. The rest of the batch executes in parallel with that run.
//! - [`CommitOrder::Independent`] (`independent_commit_order`): batches collect transactions that share keys
//!   (`batches_by_shared_key`), and a batch waits only for batches with which it conflicts. While there is a
//!   backlog and no batch is held up, this order uses runs of the log too.
//!
//! The channel offers decoded transactions while there [is room](Scheduler::has_room), and gives the
//! [next](Scheduler::next) batch to each idle worker. It reports batches that are [done](Scheduler::done),
//! and batches that [yielded](Scheduler::can_yield), with the part that they [give
//! back](Scheduler::give_back). The worker handles rollbacks and retries: for the scheduler, a batch that is
//! retried is still running.

mod batch_conflict_index;
mod batch_size_tuner;
mod batches_by_shared_key;
mod concurrency_tuner;
mod independent_commit_order;
mod scheduler_options;
mod source_order_batches;
mod source_order_conflict_index;
mod transaction_batch;

use self::batch_size_tuner::{BatchLimits, BatchSizing};
use self::concurrency_tuner::Parallelism;
use self::independent_commit_order::IndependentOrder;
pub use self::scheduler_options::{CommitOrder, SchedulerOptions};
use self::source_order_batches::LogRuns;
use self::transaction_batch::BatchTotals;
pub use self::transaction_batch::{BatchId, BatchTiming, Scheduled, TransactionBatch, TransactionWeight};

/// The transactions of a [`Scheduler`] that are not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outstanding {
    /// Number of transactions that were offered and are not done.
    pub transactions: usize,
    /// Total size of the transactions that were offered and are not done.
    pub weight: TransactionWeight,
    /// Number of running batches.
    pub running: usize,
}

/// Groups transactions into batches; see the [module](self).
#[derive(Debug)]
pub struct Scheduler<T> {
    options: SchedulerOptions,
    sizing: BatchSizing,
    parallelism: Parallelism,
    /// The limits of a batch, from the options and the measurements.
    limits: BatchLimits,
    core: Core<T>,
    outstanding: Outstanding,
    held_up: bool,
}

#[derive(Debug)]
enum Core<T> {
    Source(Box<LogRuns<T>>),
    Independent(Box<IndependentOrder<T>>),
}

impl<T: Scheduled> Scheduler<T> {
    /// Returns an empty scheduler.
    pub fn new(options: SchedulerOptions) -> Self {
        let parallelism = Parallelism::new(options.workers);
        let mut limits = BatchSizing::default().limits(&options);
        if options.commit_order == CommitOrder::Independent {
            limits.workers = parallelism.at_a_time();
        }
        Self {
            options,
            sizing: BatchSizing::default(),
            parallelism,
            limits,
            core: match options.commit_order {
                CommitOrder::Source => Core::Source(Box::new(LogRuns::new())),
                CommitOrder::Independent => Core::Independent(Box::new(IndependentOrder::new())),
            },
            outstanding: Outstanding::default(),
            held_up: false,
        }
    }

    /// Returns whether another transaction may be offered. The window contains the transactions that were
    /// offered and have not ended. It must have room for a transaction of any size. The workers must also
    /// need more transactions.
    pub fn has_room(&self) -> bool {
        if let Core::Independent(core) = &self.core
            && core.has_enough(self.limits)
        {
            return false;
        }
        self.outstanding.transactions < self.options.window_transactions_max.max(1)
            && self.outstanding.weight.bytes < self.options.window_bytes_max.max(1)
    }

    /// Adds the next transaction of the log.
    pub fn offer(&mut self, payload: T) {
        let limits = self.limits;
        self.outstanding.transactions += 1;
        self.outstanding.weight.add(payload.weight());
        match &mut self.core {
            Core::Source(core) => core.offer(limits, payload),
            Core::Independent(core) => core.offer(limits, payload),
        }
    }

    /// Sets whether a running batch takes much longer than usual (is held up). In independent order,
    /// transactions that do not conflict with the held-up batch then stop waiting for it.
    pub fn set_held_up(&mut self, held_up: bool) {
        self.held_up = held_up;
        if let Core::Independent(core) = &mut self.core {
            core.set_held_up(self.limits, held_up);
        }
    }

    /// Returns whether a batch that has executed `first` and waits for its turn may commit `first` and [give
    /// back](Self::give_back) the rest.
    pub fn can_yield(&self) -> bool {
        matches!(&self.core, Core::Independent(core) if core.can_yield())
    }

    /// Returns the next batch for an idle worker; `None` if no batch may run now.
    #[allow(clippy::should_implement_trait)] // Not an iterator: it may return a batch after `None`.
    pub fn next(&mut self) -> Option<TransactionBatch<T>> {
        let limits = self.limits;
        if let Core::Independent(core) = &mut self.core {
            core.settle(limits, self.held_up);
            // While a batch is held up there is no limit, because several batches may wait for the same lock.
            if core.is_grouped() && !self.held_up && self.outstanding.running >= self.parallelism.at_a_time()
            {
                return None;
            }
        }
        let batch = match &mut self.core {
            Core::Source(core) => core.next(limits),
            Core::Independent(core) => core.next(limits, self.held_up),
        };
        self.outstanding.running += usize::from(batch.is_some());
        batch
    }

    /// Reports that a batch has committed. Ignored if the batch is not running, because its end was already
    /// reported.
    pub fn done(&mut self, id: BatchId, timing: BatchTiming) {
        let totals = match &mut self.core {
            Core::Source(core) => core.done(id),
            Core::Independent(core) => core.done(id),
        };
        if let Some(totals) = totals {
            self.has_ended(totals, timing);
        }
    }

    /// Reports that a batch [yielded](Self::can_yield) and committed all transactions but `rest`. `rest` is
    /// in the order of the batch, and is dispatched again in another batch. A batch may still yield just
    /// after [`Scheduler::can_yield`] became false.
    pub fn give_back(&mut self, id: BatchId, timing: BatchTiming, rest: Vec<T>) {
        if let Core::Independent(core) = &mut self.core
            && let Some(totals) = core.give_back(id, rest)
        {
            self.has_ended(totals, timing);
        }
    }

    fn has_ended(&mut self, totals: BatchTotals, timing: BatchTiming) {
        if totals.transactions > 0 {
            let rows = totals.weight.rows.max(totals.transactions);
            self.sizing.record(rows, timing);
            let is_bounded = !self.held_up && self.outstanding.running <= self.parallelism.at_a_time();
            if matches!(&self.core, Core::Independent(core) if core.is_grouped() && is_bounded) {
                self.parallelism.record(self.outstanding.running, rows, timing);
            }
        }
        self.limits = self.sizing.limits(&self.options);
        if self.options.commit_order == CommitOrder::Independent {
            self.limits.workers = self.parallelism.at_a_time();
        }
        self.outstanding.running -= 1;
        self.outstanding.transactions -= totals.transactions;
        self.outstanding.weight.subtract(totals.weight);
    }

    /// Returns whether no transaction is outstanding.
    pub fn is_idle(&self) -> bool {
        self.outstanding.transactions == 0
    }

    /// Returns how much work is not done.
    pub fn outstanding(&self) -> Outstanding {
        self.outstanding
    }

    /// Returns whether the scheduler has removed all state of finished transactions.
    #[cfg(test)]
    fn is_clean(&self) -> bool {
        match &self.core {
            Core::Source(core) => core.is_clean(),
            Core::Independent(core) => core.is_clean(),
        }
    }
}

#[cfg(test)]
mod tests;
