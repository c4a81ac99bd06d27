//! Pauses the channels that write to a server until a dump of that server has taken its snapshot.

use anyhow::{bail, ensure};
use tailwater_apply::channel::ChannelState;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::arguments::DumpArgs;
use tailwater_config::Config;
use tailwater_daemon::control_socket::{PausedChannel, pause_channel, socket_of};

/// Channels that this command has paused. The daemon resumes them when the connections close, even if this
/// process is killed.
#[derive(Debug, Default)]
pub(super) struct PausedChannels(Vec<PausedChannel>);

impl PausedChannels {
    /// Pauses the channels. When it returns, their running transactions have committed, and their GTIDs are
    /// published to the target.
    ///
    /// # Errors
    /// If no daemon runs with that configuration, the daemon has no such channel, or the GTIDs of a channel
    /// are not published to its target.
    pub(super) async fn stop(arguments: &DumpArgs) -> anyhow::Result<Self> {
        let mut paused = Self::default();
        let Some(config) = &arguments.config else { return Ok(paused) };
        let socket = socket_of(&Config::load(config)?.log.directory);
        for name in &arguments.pause_channel {
            let channel = pause_channel(&socket, name).await?;
            ensure!(
                channel.status.state == ChannelState::Stopped,
                "channel {name} has failed, so its target's GTIDs may not match the data: see `tailwater channel list`"
            );
            // The dump records the target's GTIDs, so they must match the target's data.
            if let Some(reason) = &channel.status.gtids_unpublished_reason {
                bail!("channel {name}: the applied GTIDs are not published to its target: {reason}");
            }
            info!(channel = name, "the channel is paused until the snapshot is taken");
            paused.0.push(channel);
        }
        Ok(paused)
    }

    /// Runs `work`. Resumes the channels when `snapshot_taken` is cancelled or the work ends.
    pub(super) async fn until<T>(
        mut self,
        snapshot_taken: &CancellationToken,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            done = &mut work => return done,
            () = snapshot_taken.cancelled() => self.go_on(),
        }
        work.await
    }

    fn go_on(&mut self) {
        for channel in self.0.drain(..) {
            info!(channel = channel.status.name, "resumed");
        }
    }
}
