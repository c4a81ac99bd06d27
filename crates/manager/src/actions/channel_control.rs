//! Control of a Tailwater channel whose target may become primary. Another crate owns the channel.

use std::future::Future;
use std::pin::Pin;

use tailwater_wire::gtid::GtidSet;

use crate::action_executor::AckerError;
use crate::candidates::candidate_server::ChannelCopyState;

/// The pending answer of a channel.
pub type ChannelFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, AckerError>> + Send + 'a>>;

/// A channel that accepts orders.
pub trait ChannelControl: Send + Sync {
    /// All transactions applied to its target; `None` while unknown.
    fn progress(&self) -> Option<GtidSet>;
    /// Whether the target records them under the GTIDs of the log (`gtid = "log"` or `"preserve"`). Only then
    /// can replicas of the target use GTIDs.
    fn keeps_gtids(&self) -> bool;
    /// Whether it applied everything: no filters, no skipped transactions. Otherwise its target is not a copy
    /// of the primary.
    fn is_whole(&self) -> bool;
    /// The three values above, together.
    fn state(&self) -> ChannelCopyState {
        ChannelCopyState {
            progress: self.progress(),
            keeps_gtids: self.keeps_gtids(),
            is_whole: self.is_whole(),
        }
    }
    /// Finishes the transactions in flight and stops, over restarts too. Returns all transactions applied,
    /// which the target has in its own GTID position by then.
    fn pause(&self) -> ChannelFuture<'_, GtidSet>;
    /// Resumes.
    fn resume(&self) -> ChannelFuture<'_, ()>;
}
