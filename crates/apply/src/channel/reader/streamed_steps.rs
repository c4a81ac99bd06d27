//! Sends the steps of a streamed transaction from the reader to the worker.

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::transaction::ApplyStep;

/// The maximum number of steps of a streamed transaction that wait to be written. Each step holds one event.
const STREAMED_STEPS_MAX: usize = 256;

/// The memory of the waiting steps and of the step that is being written, in bytes. After a step of this
/// size, the reader waits until it is written. So there is only one such step at a time.
pub(super) const STREAMED_BYTES_MAX: usize = 4 << 20;

/// The steps of a transaction that is too large for memory.
pub(in crate::channel) type StepReceiver = mpsc::Receiver<StreamedStep>;

/// A part of a streamed transaction.
#[derive(Debug)]
pub(in crate::channel) enum StreamedStep {
    /// The next step. `done` is sent once the step has run. `memory` is freed with it.
    ApplyStep { step: Box<ApplyStep>, done: Option<oneshot::Sender<()>>, memory: OwnedSemaphorePermit },
    /// The end of the transaction. If the receiver closes without it, the rest could not be read.
    End,
}

/// Returns the sender and the receiver for the steps of one transaction.
pub(super) fn steps() -> (mpsc::Sender<StreamedStep>, StepReceiver) {
    mpsc::channel(STREAMED_STEPS_MAX)
}
