//! Servers that are fed by a channel of Tailwater, which another room owns.

use std::future::Future;
use std::pin::Pin;

use tailwater_wire::gtid::GtidSet;

use crate::action_executor::AckerError;
use crate::candidates::candidate_server::ChannelCopyState;

/// The answer of a channel, later.
pub type ChannelFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, AckerError>> + Send + 'a>>;

/// A channel that can be told what to do.
pub trait ChannelControl: Send + Sync {
    /// All that it has brought to its target so far; `None` while that is not known.
    fn progress(&self) -> Option<GtidSet>;
    /// Whether what it brings stands on the target under the GTIDs of the log (`gtid = "log"` or `"preserve"`): only then can
    /// anybody go on behind the target by GTIDs.
    fn keeps_gtids(&self) -> bool;
    /// Whether it brought everything: no filters, nothing left out. Otherwise its target is no copy of the primary.
    fn is_whole(&self) -> bool;
    /// All three together.
    fn state(&self) -> ChannelCopyState {
        ChannelCopyState {
            progress: self.progress(),
            keeps_gtids: self.keeps_gtids(),
            is_whole: self.is_whole(),
        }
    }
    /// Ends what is under way and stops; a restart does not start it again. Tells all that it has brought, which the target
    /// knows as its own GTID position by then.
    fn pause(&self) -> ChannelFuture<'_, GtidSet>;
    /// Goes on.
    fn resume(&self) -> ChannelFuture<'_, ()>;
}
