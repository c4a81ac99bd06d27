//! Lets the manager control channels of this process whose targets may become primary.

use std::collections::BTreeMap;
use std::sync::Arc;

use tailwater_apply::channel::{Channel, ChannelState, GtidMode};
use tailwater_log::LogHandle;
use tailwater_manager::action_executor::AckerError;
use tailwater_manager::actions::{ChannelControl, ChannelFuture};
use tailwater_wire::gtid::GtidSet;

/// The channels by name.
pub type ChannelControls = BTreeMap<String, Arc<dyn ChannelControl>>;

/// A channel and the log that it reads.
pub struct ApplyChannelControl {
    channel: Arc<Channel>,
    log: LogHandle,
}

impl ApplyChannelControl {
    /// Controls a channel that reads this log.
    pub fn new(channel: Arc<Channel>, log: LogHandle) -> Self {
        Self { channel, log }
    }
}

impl ChannelControl for ApplyChannelControl {
    fn progress(&self) -> Option<GtidSet> {
        let flavour = self.log.source()?.flavour;
        let status = self.channel.status();
        let status = status.borrow();
        // Until the channel has connected to its target and read the target's GTIDs, its progress is unknown.
        let is_known = status.state == ChannelState::Running || !status.gtids.is_empty();
        is_known.then(|| GtidSet::parse(flavour, &status.gtids).ok()).flatten()
    }

    fn keeps_gtids(&self) -> bool {
        self.channel.status().borrow().gtid != GtidMode::Own
    }

    fn is_whole(&self) -> bool {
        self.channel.status().borrow().is_complete
    }

    fn pause(&self) -> ChannelFuture<'_, GtidSet> {
        Box::pin(async {
            let reason = "paused by the manager: the channel's target becomes the primary";
            self.channel
                .pause_with_reason(reason)
                .await
                .map_err(|error| AckerError::Unknown(error.to_string()))?;
            let unknown = || AckerError::Unknown("the channel does not report the applied GTIDs".to_owned());
            self.progress().ok_or_else(unknown)
        })
    }

    fn resume(&self) -> ChannelFuture<'_, ()> {
        Box::pin(async {
            self.channel.resume(None).await.map_err(|error| AckerError::Unknown(error.to_string()))
        })
    }
}
