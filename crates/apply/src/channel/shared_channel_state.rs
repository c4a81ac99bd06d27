//! State that the reader, the workers and the coordinator of a channel's run share.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tailwater_log::LogHandle;
use tailwater_wire::Flavour;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::channel_options::ChannelOptions;
use super::progress_store::Claim;
use super::source_clock::SourceTime;
use crate::applied_transactions::AppliedSet;
use crate::scheduler::BatchId;

/// The state that all tasks of a run share.
#[derive(Debug)]
pub(super) struct ChannelShared {
    pub(super) options: ChannelOptions,
    pub(super) flavour: Flavour,
    pub(super) claim: Claim,
    /// The log spans whose transactions are known to be committed.
    pub(super) applied: Mutex<AppliedSet>,
    /// The newest committed batch, among the batches that commit in turn (in the order of their IDs).
    pub(super) turn: watch::Sender<BatchId>,
    /// Batches newer than this batch must release their locks. In source order they roll back, and run again
    /// at their turn. In independent order they commit the part that waits for nothing, and return the rest.
    pub(super) yield_to: watch::Sender<Option<BatchId>>,
    /// Nontransactional tables on the target that the channel has changed since it was started.
    pub(super) nontransactional: Mutex<BTreeSet<String>>,
    /// Cancelled when the channel stops. This also ends waits that could otherwise take days.
    pub(super) stop: CancellationToken,
    /// Cancelled when a worker returns a batch without committing it. The turn of that batch never comes, so
    /// later batches stop waiting.
    pub(super) batch_returned: CancellationToken,
    /// The log. A transaction may commit on the target only if it is durable in the log.
    pub(super) log: LogHandle,
    /// The source's clock, to measure lag.
    pub(super) source_time: SourceTime,
}

impl ChannelShared {
    /// Locks the applied spans. If a thread panics while it holds the lock, the value is still valid.
    pub(super) fn applied(&self) -> parking_lot::MutexGuard<'_, AppliedSet> {
        self.applied.lock()
    }

    /// Locks the names of nontransactional tables.
    pub(super) fn nontransactional(&self) -> parking_lot::MutexGuard<'_, BTreeSet<String>> {
        self.nontransactional.lock()
    }
}
