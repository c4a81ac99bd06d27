//! Tests the guarantees of the scheduler against a simple model that applies one transaction after another.

mod commit_order_cases;
mod simulation;

use super::{
    BatchId, BatchTiming, CommitOrder, Scheduled, Scheduler, SchedulerOptions, TransactionBatch,
    TransactionWeight,
};
use crate::writeset::{Access, IndexId, Writeset, WritesetKey};

/// Returns options without effective limits.
fn options(commit_order: CommitOrder) -> SchedulerOptions {
    SchedulerOptions {
        commit_order,
        workers: 4,
        batch_transactions_max: 1000,
        batch_bytes_max: 1 << 20,
        window_transactions_max: 10_000,
        window_bytes_max: 1 << 30,
    }
}

fn access(index: u32, hash: u64, shared: bool) -> Access {
    Access { key: WritesetKey { index: IndexId(index), hash }, shared }
}

fn writes(keys: &[u64]) -> Writeset {
    Writeset { accesses: keys.iter().map(|key| access(0, *key, false)).collect(), barrier: false }
}

fn barrier() -> Writeset {
    Writeset { accesses: Vec::new(), barrier: true }
}

/// A transaction with a number as its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NumberedTransaction {
    name: usize,
    writeset: Writeset,
    weight: TransactionWeight,
}

impl Scheduled for NumberedTransaction {
    fn writeset(&self) -> &Writeset {
        &self.writeset
    }

    fn weight(&self) -> TransactionWeight {
        self.weight
    }
}

/// Returns the batch with the numbers of its transactions.
fn named(batch: TransactionBatch<NumberedTransaction>) -> TransactionBatch<usize> {
    let names = |all: Vec<NumberedTransaction>| all.into_iter().map(|own| own.name).collect();
    let TransactionBatch { id, first, rest, commit_after, in_turn, alone } = batch;
    TransactionBatch { id, first: names(first), rest: names(rest), commit_after, in_turn, alone }
}

const WEIGHT: TransactionWeight = TransactionWeight { bytes: 100, rows: 1 };

const TIMING: BatchTiming = BatchTiming { execute_us: 1000, commit_us: 1000 };
