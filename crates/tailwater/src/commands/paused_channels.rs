//! Pauses channels until a dump of their target has its snapshot.

use anyhow::{Context, bail, ensure};
use tailwater_apply::channel::ChannelState;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::channel::channels_of;
use crate::cli::DumpArgs;
use tailwater_daemon::api::commands::ControlCommand;
use tailwater_daemon::config::Config;
use tailwater_daemon::socket::{ControlConnection, socket_of};

/// Paused channels. The daemon resumes them when the connection closes, also if this process is killed.
#[derive(Debug)]
pub(super) struct PausedChannels {
    connection: Option<ControlConnection>,
    names: Vec<String>,
}

impl PausedChannels {
    /// Pauses the channels: running transactions have committed, and the target knows their GTIDs.
    ///
    /// # Errors
    /// If no daemon runs with that configuration, it has no such channel, or the target does not know its
    /// GTIDs.
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
                "channel {name} has failed, and its target may not know what it has: see `tailwater channel list`"
            );
            // The dump records the target's GTIDs, so they must match its data.
            if let Some(reason) = &channel.gtids_unpublished_reason {
                bail!("channel {name}: its target does not know the GTIDs of what it has: {reason}");
            }
            info!(channel = name, "paused until the snapshot is taken");
            paused.names.push(name.clone());
        }
        paused.connection = Some(connection);
        Ok(paused)
    }

    /// Runs the work, and resumes the channels when `snapshot_taken` is cancelled or the work ends.
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
