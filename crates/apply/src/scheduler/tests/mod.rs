//! What the scheduler promises, against an oracle that applies one transaction after the other.

mod cases;
mod simulation;

use super::{Batch, BatchId, CommitOrder, Options, Scheduled, Scheduler, Timing, Weight};
use crate::writeset::{Access, IndexId, Key, Writeset};

/// Options that limit nothing.
fn options(commit_order: CommitOrder) -> Options {
    Options {
        commit_order,
        workers: 4,
        batch_transactions_max: 1000,
        batch_bytes_max: 1 << 20,
        window_transactions_max: 10_000,
        window_bytes_max: 1 << 30,
    }
}

fn access(index: u32, hash: u64, shared: bool) -> Access {
    Access { key: Key { index: IndexId(index), hash }, shared }
}

fn writes(keys: &[u64]) -> Writeset {
    Writeset { accesses: keys.iter().map(|key| access(0, *key, false)).collect(), barrier: false }
}

fn barrier() -> Writeset {
    Writeset { accesses: Vec::new(), barrier: true }
}

/// A transaction by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    name: usize,
    writeset: Writeset,
    weight: Weight,
}

impl Scheduled for Named {
    fn writeset(&self) -> &Writeset {
        &self.writeset
    }

    fn weight(&self) -> Weight {
        self.weight
    }
}

/// A batch by the names of its transactions.
fn named(batch: Batch<Named>) -> Batch<usize> {
    let names = |all: Vec<Named>| all.into_iter().map(|own| own.name).collect();
    let Batch { id, first, rest, commit_after, in_turn, alone } = batch;
    Batch { id, first: names(first), rest: names(rest), commit_after, in_turn, alone }
}

const WEIGHT: Weight = Weight { bytes: 100, rows: 1 };

const TIMING: Timing = Timing { execute_us: 1000, commit_us: 1000 };
