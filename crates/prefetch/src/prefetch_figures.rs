//! Counters and state of a running prefetch.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The figures of a prefetch, as status, API and metrics show them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PrefetchStatus {
    /// `reading`, `too_near`, `asleep` (too far ahead), `measuring` (a turn without prefetch), `stopped` (it
    /// does not pay), `connecting` or `failed`.
    pub state: String,
    /// Why it is stopped, or what failed last.
    pub reason: Option<String>,
    /// The applied position of the replica.
    pub applied: String,
    /// Events of the binlog that were read.
    pub events: u64,
    /// Transactions of the binlog that were read.
    pub transactions: u64,
    /// Rows of transactions that the replica has applied since the start.
    pub rows_applied: u64,
    /// SELECT statements that were sent.
    pub queries: u64,
    /// Index entries that these read.
    pub keys: u64,
    /// Keys and statements that were not read, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Queries that were slow.
    pub slow: u64,
    /// Queries that failed.
    pub failed: u64,
    /// Queries whose transaction was applied before they ended.
    pub late: u64,
    /// Seconds of commit time ahead of the applied position.
    pub seconds_ahead: u64,
    /// Bytes of the binlog ahead of the applied position.
    pub bytes_ahead: u64,
    /// The share of queries that ended before their transaction was applied; `None` without queries.
    pub hit_ratio: Option<f64>,
    /// Applied rows per second with prefetch, divided by those without; `None` if not measured.
    pub gain: Option<f64>,
    /// Reads from disk per applied row without prefetch; `None` if not measured.
    pub reads_per_row: Option<f64>,
}

/// The live figures. Several tasks update them.
#[derive(Debug, Default)]
pub struct PrefetchFigures {
    pub(crate) events: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) rows_applied: AtomicU64,
    pub(crate) queries: AtomicU64,
    pub(crate) keys: AtomicU64,
    pub(crate) slow: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) in_time: AtomicU64,
    /// The end of the newest applied transaction, in bytes of the stream.
    pub(crate) applied_bytes: AtomicU64,
    skipped: Mutex<BTreeMap<&'static str, u64>>,
    state: Mutex<StateFigures>,
}

/// The part of the status that changes as a whole.
#[derive(Debug, Clone, Default)]
pub(crate) struct StateFigures {
    pub(crate) state: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) applied: String,
    pub(crate) seconds_ahead: u64,
    pub(crate) bytes_ahead: u64,
    pub(crate) gain: Option<f64>,
    pub(crate) reads_per_row: Option<f64>,
}

impl PrefetchFigures {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn skip(&self, reason: &'static str, count: u64) {
        if count > 0 {
            *self.skipped.lock().entry(reason).or_default() += count;
        }
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut StateFigures)) {
        change(&mut self.state.lock());
    }

    /// The current figures.
    pub fn status(&self) -> PrefetchStatus {
        let state = self.state.lock().clone();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (late, in_time) = (get(&self.late), get(&self.in_time));
        PrefetchStatus {
            state: match state.state {
                "" => "connecting".to_owned(),
                state => state.to_owned(),
            },
            reason: state.reason,
            applied: state.applied,
            events: get(&self.events),
            transactions: get(&self.transactions),
            rows_applied: get(&self.rows_applied),
            queries: get(&self.queries),
            keys: get(&self.keys),
            skipped: self
                .skipped
                .lock()
                .iter()
                .map(|(reason, count)| ((*reason).to_owned(), *count))
                .collect(),
            slow: get(&self.slow),
            failed: get(&self.failed),
            late,
            seconds_ahead: state.seconds_ahead,
            bytes_ahead: state.bytes_ahead,
            hit_ratio: (late + in_time > 0).then(|| in_time as f64 / (late + in_time) as f64),
            gain: state.gain,
            reads_per_row: state.reads_per_row,
        }
    }
}
