//! Control of a Tailwater channel whose target may become primary. The channel itself belongs to another
//! crate.

use std::future::Future;
use std::pin::Pin;

use tailwater_wire::gtid::GtidSet;

use crate::action_executor::AckerError;
use crate::candidates::candidate_server::ChannelCopyState;

/// The result of an order to a channel, as a future: the channel's answer, or why there is no answer.
pub type ChannelFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, AckerError>> + Send + 'a>>;

/// A channel that the manager can pause and resume.
pub trait ChannelControl: Send + Sync {
    /// All transactions that the channel has applied to its target; `None` if unknown.
    fn progress(&self) -> Option<GtidSet>;
    /// Whether the target records the transactions under the GTIDs of the log (`gtid = "log"` or
    /// `"preserve"`). Only then can replicas of the target use GTIDs.
    fn keeps_gtids(&self) -> bool;
    /// Whether the channel applied everything: it has no filters and skipped no transactions. Otherwise its
    /// target is not a copy of the primary.
    fn is_whole(&self) -> bool;
    /// Returns `progress`, `keeps_gtids` and `is_whole` in one struct.
    fn state(&self) -> ChannelCopyState {
        ChannelCopyState {
            progress: self.progress(),
            keeps_gtids: self.keeps_gtids(),
            is_whole: self.is_whole(),
        }
    }
    /// Finishes the transactions in flight and stops the channel. The channel stays stopped after a restart.
    /// Returns all transactions that the channel has applied. When this call returns, the target's own
    /// GTID position contains these transactions.
    fn pause(&self) -> ChannelFuture<'_, GtidSet>;
    /// Resumes the paused channel.
    fn resume(&self) -> ChannelFuture<'_, ()>;
}
