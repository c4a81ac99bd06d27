//! Sends the steps of a streamed transaction from the reader to the worker.

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::source_transaction::ApplyStep;

/// The maximum number of steps of a streamed transaction that wait to be written. Each step holds one event.
const STREAMED_STEPS_MAX: usize = 256;

/// The memory budget for the waiting steps and the step that is being written, in bytes. A step of this size
/// takes the whole budget, so the reader waits until that step is written.
pub(super) const STREAMED_BYTES_MAX: usize = 4 << 20;

/// The steps of a transaction that is too large for memory.
pub(in crate::channel) type StepReceiver = mpsc::Receiver<StreamedStep>;

/// A part of a streamed transaction.
#[derive(Debug)]
pub(in crate::channel) enum StreamedStep {
    /// The next step. The worker sends a message on `done` once the step has run. `memory` is freed together
    /// with the step.
    ApplyStep { step: Box<ApplyStep>, done: Option<oneshot::Sender<()>>, memory: OwnedSemaphorePermit },
    /// The end of the transaction. If the queue of steps closes without `End`, the reader could not read the
    /// rest of the transaction.
    End,
}

/// Returns the sender and the receiver for the steps of one transaction.
pub(super) fn steps() -> (mpsc::Sender<StreamedStep>, StepReceiver) {
    mpsc::channel(STREAMED_STEPS_MAX)
}
