//! A transaction in memory, and how much memory all of them may take.

use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use super::stream::Steps;
use crate::error::ApplyError;
use crate::transaction::Transaction;

/// Memory is counted in pieces of this many bytes.
const PERMIT_BYTES: usize = 1024;

/// A transaction and the memory it holds.
#[derive(Debug)]
pub(in crate::channel) struct Held {
    transaction: Arc<Transaction>,
    /// Of one that is streamed, its steps as they are read.
    steps: Option<Mutex<Steps>>,
    _memory: OwnedSemaphorePermit,
}

impl Held {
    pub(super) fn new(transaction: Transaction, steps: Option<Steps>, memory: OwnedSemaphorePermit) -> Self {
        Self { transaction: Arc::new(transaction), steps: steps.map(Mutex::new), _memory: memory }
    }

    /// Its steps, if it is streamed. They come only once.
    pub(in crate::channel) fn steps(&self) -> Option<&Mutex<Steps>> {
        self.steps.as_ref()
    }
}

impl Deref for Held {
    type Target = Arc<Transaction>;

    fn deref(&self) -> &Arc<Transaction> {
        &self.transaction
    }
}

/// The memory for all transactions of a channel. One that is larger than all of it takes all of it.
#[derive(Debug)]
pub(super) struct Memory {
    free: Arc<Semaphore>,
    permits_max: usize,
}

impl Memory {
    pub(super) fn new(bytes_max: usize) -> Self {
        let permits_max = (bytes_max / PERMIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(permits_max)), permits_max }
    }

    fn permits(&self, bytes: usize) -> u32 {
        let permits = bytes.div_ceil(PERMIT_BYTES).clamp(1, self.permits_max);
        u32::try_from(permits).unwrap_or(u32::MAX)
    }

    /// So many bytes, if they are free.
    pub(super) fn try_reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_many_owned(self.permits(bytes)).ok()
    }

    /// So many bytes, once they are free.
    ///
    /// # Errors
    /// [`ApplyError::Start`] if nobody needs any more.
    pub(super) async fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApplyError> {
        let acquired = Arc::clone(&self.free).acquire_many_owned(self.permits(bytes)).await;
        // The semaphore is never closed.
        acquired.map_err(|_| ApplyError::Start { reason: "its reader was stopped".to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_for_the_memory_takes_all_of_it() {
        let memory = Memory::new(10 * PERMIT_BYTES);
        let small = memory.try_reserve(1).expect("it is free");
        assert!(memory.try_reserve(usize::MAX).is_none());
        drop(small);
        let all = memory.try_reserve(usize::MAX).expect("it is free again");
        assert!(memory.try_reserve(0).is_none());
        drop(all);
        assert!(memory.try_reserve(10 * PERMIT_BYTES).is_some());
    }
}
