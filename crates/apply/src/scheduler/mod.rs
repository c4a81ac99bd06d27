//! Which transactions run together, when, and in which order they commit. Pure: no I/O, no clock, no chance.
//!
//! Transactions are offered in the order of the log and grouped into batches, each one transaction of the target. Two
//! that share a key, of which one at least changes it, keep their order: they stand in one batch in the order of the
//! log, or the batch of the later one waits for that of the earlier one. What "waits" means is the difference between
//! the two orders:
//! - [`CommitOrder::Source`] (`runs`): batches are consecutive runs of the log and commit in its order. What
//!   conflicts with an earlier run that is not finished is put off until that run has committed; the rest of the batch
//!   is executed beside it.
//! - [`CommitOrder::Independent`] (`independent_order`): batches are whatever shares keys (`groups`), and only those wait for each
//!   other that must. While there is a backlog and nothing is held up, they are runs of the log here, too.
//!
//! The driver decodes and offers while there [is room](Scheduler::has_room), gives each idle worker the
//! [next](Scheduler::next) batch, and says which are [done](Scheduler::done), or which have [given way](Scheduler::can_yield) and what
//! they [give back](Scheduler::give_back). What must be rolled back and run again is the worker's affair: to the scheduler, it still runs.

mod conflict_index;
mod groups;
mod independent_order;
mod parallelism;
mod run_index;
mod runs;
mod sizing;

use independent_order::IndependentOrder;
use parallelism::Parallelism;
use runs::LogRuns;
use sizing::{BatchLimits, BatchSizing};

use crate::writeset::Writeset;

/// The order in which transactions become visible on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommitOrder {
    /// That of the source: who sees a transaction sees all before it.
    Source,
    /// Only transactions that share a key keep their order.
    Independent,
}

/// How a [`Scheduler`] is to work. A limit of 0 counts as 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// The order of commits.
    pub commit_order: CommitOrder,
    /// How many batches the driver runs at a time.
    pub workers: usize,
    /// Transactions of the source in one batch.
    pub batch_transactions_max: usize,
    /// Bytes in one batch; a larger transaction is a batch of its own.
    pub batch_bytes_max: usize,
    /// Transactions that are offered and not done, running ones included.
    pub window_transactions_max: usize,
    /// Their bytes. Exceeded by at most one transaction.
    pub window_bytes_max: usize,
}

/// What a transaction weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionWeight {
    /// What it holds in memory, in bytes.
    pub bytes: usize,
    /// Rows that it changes.
    pub rows: usize,
}

impl TransactionWeight {
    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.rows = self.rows.saturating_add(other.rows);
    }

    fn subtract(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.rows = self.rows.saturating_sub(other.rows);
    }
}

/// What is to be known of a transaction.
pub trait Scheduled {
    /// What it touches.
    fn writeset(&self) -> &Writeset;
    /// What it weighs.
    fn weight(&self) -> TransactionWeight;
}

/// What a [`Scheduler`] holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outstanding {
    /// Transactions that are offered and not done.
    pub transactions: usize,
    /// What they weigh.
    pub weight: TransactionWeight,
    /// Batches handed out and not done.
    pub running: usize,
}

/// Names a batch, in the order in which they were handed out; never given twice by one [`Scheduler`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(pub u64);

/// How long a batch took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchTiming {
    /// Executing its statements, without waiting for [`TransactionBatch::commit_after`], in microseconds.
    pub execute_us: u64,
    /// Committing, in microseconds.
    pub commit_us: u64,
}

/// Transactions that commit together.
#[derive(Debug, PartialEq, Eq)]
pub struct TransactionBatch<T> {
    /// Its name.
    pub id: BatchId,
    /// To be executed at once, in the order of the log.
    pub first: Vec<T>,
    /// To be executed behind `first` and once `commit_after` has committed, in the order of the log. None of `first`
    /// conflicts with one of `rest` that stands before it in the log.
    pub rest: Vec<T>,
    /// The batch that must have committed before this one commits, unless it [gives way](Scheduler::can_yield).
    pub commit_after: Option<BatchId>,
    /// Another may have to commit after it.
    pub in_turn: bool,
    /// A barrier: the only transaction, and nothing else runs meanwhile.
    pub alone: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Scheduler<T> {
    options: SchedulerOptions,
    sizing: BatchSizing,
    parallelism: Parallelism,
    /// What comes of them.
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

/// What a core knows of a batch that has ended.
#[derive(Debug, Clone, Copy)]
struct BatchTotals {
    transactions: usize,
    weight: TransactionWeight,
}

impl BatchTotals {
    fn of<T: Scheduled>(payloads: &[T]) -> Self {
        let mut weight = TransactionWeight::default();
        payloads.iter().for_each(|payload| weight.add(payload.weight()));
        Self { transactions: payloads.len(), weight }
    }

    fn without(mut self, other: Self) -> Self {
        self.transactions -= other.transactions;
        self.weight.subtract(other.weight);
        self
    }
}

impl<T: Scheduled> Scheduler<T> {
    /// One that holds nothing.
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

    /// Whether another transaction may be offered: the window is not full, whatever the next one weighs, and there is use for
    /// more.
    pub fn has_room(&self) -> bool {
        if let Core::Independent(core) = &self.core
            && core.has_enough(self.limits)
        {
            return false;
        }
        self.outstanding.transactions < self.options.window_transactions_max.max(1)
            && self.outstanding.weight.bytes < self.options.window_bytes_max.max(1)
    }

    /// Takes the next transaction of the log.
    pub fn offer(&mut self, payload: T) {
        let limits = self.limits;
        self.outstanding.transactions += 1;
        self.outstanding.weight.add(payload.weight());
        match &mut self.core {
            Core::Source(core) => core.offer(limits, payload),
            Core::Independent(core) => core.offer(limits, payload),
        }
    }

    /// Says whether a batch that runs takes much longer than batches usually do. In independent order nothing that need not wait
    /// for it does so any more.
    pub fn set_held_up(&mut self, held_up: bool) {
        self.held_up = held_up;
        if let Core::Independent(core) = &mut self.core {
            core.set_held_up(self.limits, held_up);
        }
    }

    /// Whether batches that have executed `first` and wait for their turn are to commit that and to [give
    /// back](Self::give_back) the rest.
    pub fn can_yield(&self) -> bool {
        matches!(&self.core, Core::Independent(core) if core.can_yield())
    }

    /// A batch for an idle worker; `None` if nothing may run now.
    #[allow(clippy::should_implement_trait)] // No iterator: it goes on after `None`.
    pub fn next(&mut self) -> Option<TransactionBatch<T>> {
        let limits = self.limits;
        if let Core::Independent(core) = &mut self.core {
            core.settle(limits, self.held_up);
            // There is no bound while something is held up: several may wait for the same lock.
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

    /// Says that a batch that was handed out has committed. One that does not run, as it was said to be done before, is
    /// ignored.
    pub fn done(&mut self, id: BatchId, timing: BatchTiming) {
        let ended = match &mut self.core {
            Core::Source(core) => core.done(id),
            Core::Independent(core) => core.done(id),
        };
        if let Some(ended) = ended {
            self.has_ended(ended, timing);
        }
    }

    /// Says that a batch has [given way](Self::can_yield) and committed all but `rest`, which is in its order. `rest` comes again
    /// in another batch. Word that nothing is held up any more may have come too late for it.
    pub fn give_back(&mut self, id: BatchId, timing: BatchTiming, rest: Vec<T>) {
        if let Core::Independent(core) = &mut self.core
            && let Some(ended) = core.give_back(id, rest)
        {
            self.has_ended(ended, timing);
        }
    }

    fn has_ended(&mut self, ended: BatchTotals, timing: BatchTiming) {
        if ended.transactions > 0 {
            let rows = ended.weight.rows.max(ended.transactions);
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
        self.outstanding.transactions -= ended.transactions;
        self.outstanding.weight.subtract(ended.weight);
    }

    /// Whether it holds nothing, and nothing runs.
    pub fn is_idle(&self) -> bool {
        self.outstanding.transactions == 0
    }

    /// What it holds.
    pub fn outstanding(&self) -> Outstanding {
        self.outstanding
    }

    /// Whether nothing is left behind of what is done.
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
