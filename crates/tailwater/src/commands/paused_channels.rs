//! Channels that wait until a dump of their target has its snapshot.

use anyhow::{Context, bail, ensure};
use tailwater_apply::channel::ChannelState;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::channel::channels_of;
use crate::cli::DumpArgs;
use tailwater_daemon::config::Config;
use tailwater_daemon::control::{Conversation, Request, socket_of};

/// Channels that stand still. Those that were running go on when this goes away: the daemon sees to it when the connection
/// ends, also that of a process that is killed.
#[derive(Debug)]
pub(super) struct Paused {
    conversation: Option<Conversation>,
    names: Vec<String>,
}

impl Paused {
    /// Stops them: all that was under way has committed then, and their target knows of it.
    ///
    /// # Errors
    /// If no daemon runs with that configuration, a channel is not one of its, or its target does not know what it has.
    pub(super) fn stop(arguments: &DumpArgs) -> anyhow::Result<Self> {
        let mut paused = Self { conversation: None, names: Vec::new() };
        let Some(config) = &arguments.config else { return Ok(paused) };
        let config = Config::load(config)?;
        let mut conversation = Conversation::open(&socket_of(&config.log.directory))?;
        for name in &arguments.pause_channel {
            let channels = channels_of(conversation.ask(&Request::Pause { channel: name.clone() })?)?;
            let channel = channels.iter().find(|channel| channel.name == *name);
            let channel = channel.with_context(|| format!("the daemon has no channel {name:?}"))?;
            ensure!(
                channel.state == ChannelState::Stopped,
                "channel {name} has failed, and its target may not know what it has: see `tailwater channel list`"
            );
            // Its target's GTIDs are what the dump says that it holds; so the target must know them.
            if let Some(reason) = &channel.gtids_unpublished_reason {
                bail!("channel {name}: its target does not know the GTIDs of what it has: {reason}");
            }
            info!(channel = name, "stands still until the snapshot is there");
            paused.names.push(name.clone());
        }
        paused.conversation = Some(conversation);
        Ok(paused)
    }

    /// Does the work, and has the channels go on when `snapshot_taken` is cancelled, or the work is done or given up.
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
        if self.conversation.take().is_some() {
            for channel in std::mem::take(&mut self.names) {
                info!(channel, "is as it was before");
            }
        }
    }
}
