//! Spans of batches that took long, for traces.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::log_reader::BudgetedTransaction;
use crate::scheduler::{BatchTiming, TransactionBatch};
use crate::trace_span_record::{self, SpanRecord};

/// A batch that takes at least this long is exported.
const SLOW: Duration = Duration::from_secs(1);

/// Exports a batch that has just committed, if it was slow.
pub(super) fn export(
    channel: &str,
    worker: usize,
    batch: &TransactionBatch<BudgetedTransaction>,
    timing: BatchTiming,
) {
    let took_us = timing.execute_us + timing.commit_us;
    if u128::from(took_us) < SLOW.as_micros() {
        return;
    }
    trace_span_record::export(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX).saturating_sub(took_us);
        let transactions = batch.first.len() + batch.rest.len();
        let first = batch.first.first().or(batch.rest.first());
        let mut span = SpanRecord::new("apply batch", start_us, took_us)
            .with("channel", channel)
            .with("worker", worker)
            .with("transactions", transactions)
            .with("first_gtid", first.map(|transaction| transaction.gtid_text()).unwrap_or_default());
        let commit_start = start_us + timing.execute_us;
        span.children = vec![
            SpanRecord::new("execute", start_us, timing.execute_us),
            SpanRecord::new("commit", commit_start, timing.commit_us),
        ];
        span
    });
}
