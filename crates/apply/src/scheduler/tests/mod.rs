//! What the scheduler promises, against an oracle that applies one transaction after the other.

mod cases;
mod simulation;

use super::{BatchId, CommitOrder, Options, Scheduler, Timing, Weight};
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

const WEIGHT: Weight = Weight { bytes: 100, rows: 1 };

const TIMING: Timing = Timing { execute_us: 1000, commit_us: 1000 };
