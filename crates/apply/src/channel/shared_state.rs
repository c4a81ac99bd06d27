//! State that the reader, the workers and the coordinator of a channel's run share.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tailwater_log::LogHandle;
use tailwater_wire::Flavour;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::options::ChannelOptions;
use super::source_time::SourceTime;
use super::store::Claim;
use crate::progress::AppliedSet;
use crate::scheduler::BatchId;

/// The shared state of a run.
#[derive(Debug)]
pub(super) struct ChannelShared {
    pub(super) options: ChannelOptions,
    pub(super) flavour: Flavour,
    pub(super) claim: Claim,
    /// The spans that are known to be committed.
    pub(super) applied: Mutex<AppliedSet>,
    /// The newest committed batch, of the batches that commit one after the other.
    pub(super) turn: watch::Sender<BatchId>,
    /// Batches after this one release their locks. In source order they roll back until their turn. In
    /// independent order they commit the part that waits for nothing and return the rest.
    pub(super) yield_to: watch::Sender<Option<BatchId>>,
    /// Tables on the target without transactions that had rows in this run.
    pub(super) nontransactional: Mutex<BTreeSet<String>>,
    /// Cancelled when the run stops. Waits that may take days then end.
    pub(super) stop: CancellationToken,
    /// Cancelled when a batch is returned. Its turn never comes, so later batches stop waiting.
    pub(super) batch_returned: CancellationToken,
    /// The log, whose durability limits what may be committed.
    pub(super) log: LogHandle,
    /// The clock by which lag is measured.
    pub(super) source_time: SourceTime,
}

impl ChannelShared {
    /// Locks the applied spans. A thread that panics while it holds the lock leaves a valid value.
    pub(super) fn applied(&self) -> parking_lot::MutexGuard<'_, AppliedSet> {
        self.applied.lock()
    }

    /// Locks the names of nontransactional tables.
    pub(super) fn nontransactional(&self) -> parking_lot::MutexGuard<'_, BTreeSet<String>> {
        self.nontransactional.lock()
    }
}
