//! A transaction in memory, and the memory budget of a channel.

use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use super::streamed_transaction_queue::StepReceiver;
use crate::error::ApplyError;
use crate::source_transaction::Transaction;

/// The unit in which memory is reserved, in bytes.
const PERMIT_BYTES: usize = 1024;

/// Memory is reserved in pieces of this fraction of the budget. A reader that waits for memory then resumes
/// when memory for many transactions is free, and not after each transaction that frees its memory.
const RESERVE_FRACTION: usize = 16;

/// A transaction, with the memory that it holds.
#[derive(Debug)]
pub(in crate::channel) struct BudgetedTransaction {
    transaction: Arc<Transaction>,
    /// The steps of a streamed transaction, while they are read from the log.
    steps: Option<Mutex<StepReceiver>>,
    _memory: OwnedSemaphorePermit,
}

impl BudgetedTransaction {
    pub(super) fn new(
        transaction: Transaction,
        steps: Option<StepReceiver>,
        memory: OwnedSemaphorePermit,
    ) -> Self {
        Self { transaction: Arc::new(transaction), steps: steps.map(Mutex::new), _memory: memory }
    }

    /// Returns the steps of a streamed transaction. The caller can receive each step only once.
    pub(in crate::channel) fn steps(&self) -> Option<&Mutex<StepReceiver>> {
        self.steps.as_ref()
    }
}

impl Deref for BudgetedTransaction {
    type Target = Arc<Transaction>;

    fn deref(&self) -> &Arc<Transaction> {
        &self.transaction
    }
}

/// The memory for all transactions of a channel. A transaction larger than the budget takes all of it.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    free: Arc<Semaphore>,
    permits_max: usize,
    /// Memory that is already reserved for the next transactions.
    reserve: Option<OwnedSemaphorePermit>,
}

impl MemoryBudget {
    pub(super) fn new(bytes_max: usize) -> Self {
        let permits_max = (bytes_max / PERMIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(permits_max)), permits_max, reserve: None }
    }

    fn permits(&self, bytes: usize) -> u32 {
        let permits = bytes.div_ceil(PERMIT_BYTES).clamp(1, self.permits_max);
        u32::try_from(permits).unwrap_or(u32::MAX)
    }

    /// Reserves memory if it is free now.
    pub(super) fn try_reserve(&mut self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits = self.permits(bytes);
        if let Some(reserved) = self.split_reserve(permits) {
            return Some(reserved);
        }
        self.reserve = None;
        let reserve_ahead = Arc::clone(&self.free).try_acquire_many_owned(self.with_reserve(permits));
        self.reserve = Some(reserve_ahead.ok()?);
        self.split_reserve(permits)
    }

    /// Waits until memory is free, and reserves it.
    ///
    /// # Errors
    /// [`ApplyError::Start`] if the budget was closed.
    pub(super) async fn reserve(&mut self, bytes: usize) -> Result<OwnedSemaphorePermit, ApplyError> {
        if let Some(reserved) = self.try_reserve(bytes) {
            return Ok(reserved);
        }
        let permits = self.permits(bytes);
        let reserve_ahead = Arc::clone(&self.free).acquire_many_owned(self.with_reserve(permits)).await;
        self.reserve = reserve_ahead.ok();
        // This cannot happen: the semaphore is never closed.
        let stopped = || ApplyError::Start { reason: "the channel's reader was stopped".to_owned() };
        self.split_reserve(permits).ok_or_else(stopped)
    }

    fn with_reserve(&self, permits: u32) -> u32 {
        permits.max(u32::try_from(self.permits_max / RESERVE_FRACTION).unwrap_or(u32::MAX))
    }

    fn split_reserve(&mut self, permits: u32) -> Option<OwnedSemaphorePermit> {
        self.reserve.as_mut()?.split(permits as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oversized_transaction_takes_the_whole_budget() {
        let mut memory = MemoryBudget::new(10 * PERMIT_BYTES);
        let small = memory.try_reserve(1).expect("the whole budget must be free");
        assert!(memory.try_reserve(usize::MAX).is_none());
        drop(small);
        let all = memory.try_reserve(usize::MAX).expect("the budget must be free again");
        assert!(memory.try_reserve(0).is_none());
        drop(all);
        assert!(memory.try_reserve(10 * PERMIT_BYTES).is_some());
    }

    #[test]
    fn a_full_budget_waits_until_a_whole_piece_is_free() {
        let mut memory = MemoryBudget::new(RESERVE_FRACTION * 4 * PERMIT_BYTES);
        let mut taken: Vec<_> = std::iter::from_fn(|| memory.try_reserve(PERMIT_BYTES)).collect();
        assert_eq!(taken.len(), RESERVE_FRACTION * 4);
        taken.truncate(taken.len() - 3);
        assert!(memory.try_reserve(PERMIT_BYTES).is_none());
        taken.pop();
        let again: Vec<_> = std::iter::from_fn(|| memory.try_reserve(PERMIT_BYTES)).collect();
        assert_eq!(again.len(), 4);
    }
}
