//! Pauses the channels that write to a server until a dump of that server has taken its snapshot.

use anyhow::{Context, bail, ensure};
use tailwater_apply::channel::ChannelState;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::channel::channels_of;
use crate::arguments::DumpArgs;
use tailwater_config::Config;
use tailwater_daemon::api::daemon_requests::ControlCommand;
use tailwater_daemon::control_socket::{ControlConnection, socket_of};

/// Channels that this command has paused. The daemon resumes them when this command's connection to it
/// closes, even if the process is killed.
#[derive(Debug)]
pub(super) struct PausedChannels {
    connection: Option<ControlConnection>,
    names: Vec<String>,
}

impl PausedChannels {
    /// Pauses the channels. When it returns, their running transactions have committed, and their GTIDs are
    /// published to the target.
    ///
    /// # Errors
    /// If no daemon runs with that configuration, the daemon has no such channel, or the GTIDs of a channel
    /// are not published to its target.
    pub(super) fn stop(arguments: &DumpArgs) -> anyhow::Result<Self> {
        let mut paused = Self { connection: None, names: Vec::new() };
        let Some(config) = &arguments.config else { return Ok(paused) };
        let config = Config::load(config)?;
        let mut connection = ControlConnection::open(&socket_of(&config.log.directory))?;
        for name in &arguments.pause_channel {
            let channels = channels_of(connection.ask(&ControlCommand::Pause { channel: name.clone() })?)?;
            let channel = channels.iter().find(|channel| channel.name == *name);
            let channel = channel.with_context(|| format!("the daemon has no channel {name:?}"))?;
            ensure!(
                channel.state == ChannelState::Stopped,
                "channel {name} has failed, so its target's GTIDs may not match the data: see `tailwater channel list`"
            );
            // The dump records the target's GTIDs, so they must match the target's data.
            if let Some(reason) = &channel.gtids_unpublished_reason {
                bail!("channel {name}: the applied GTIDs are not published to its target: {reason}");
            }
            info!(channel = name, "paused until the snapshot is taken");
            paused.names.push(name.clone());
        }
        paused.connection = Some(connection);
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
        if self.connection.take().is_some() {
            for channel in std::mem::take(&mut self.names) {
                info!(channel, "resumed");
            }
        }
    }
}
