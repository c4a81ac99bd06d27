//! The steps of a streamed transaction on their way to the worker.

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::transaction::ApplyStep;

/// The most steps of a streamed transaction that wait to be written. Each holds one event.
const STREAMED_STEPS_MAX: usize = 256;

/// Memory of the waiting steps and the one that is being written, in bytes. After a step of this size nothing
/// is read until it is written, so there is only one such step at a time.
pub(super) const STREAMED_BYTES_MAX: usize = 4 << 20;

/// The steps of a transaction that is too large for memory.
pub(in crate::channel) type StepReceiver = mpsc::Receiver<StreamedStep>;

/// A part of a streamed transaction.
#[derive(Debug)]
pub(in crate::channel) enum StreamedStep {
    /// The next step; `done` is sent once it has run. `memory` is freed with it.
    ApplyStep { step: Box<ApplyStep>, done: Option<oneshot::Sender<()>>, memory: OwnedSemaphorePermit },
    /// The end of the transaction. Without it, the rest could not be read.
    End,
}

/// A channel for the steps of one transaction.
pub(super) fn steps() -> (mpsc::Sender<StreamedStep>, StepReceiver) {
    mpsc::channel(STREAMED_STEPS_MAX)
}
