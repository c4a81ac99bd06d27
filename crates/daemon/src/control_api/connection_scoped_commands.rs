//! Commands whose effect lasts until a connection ends.

use std::sync::Arc;

use anyhow::anyhow;
use tailwater_apply::channel::ChannelState;
use tracing::warn;

use super::{Control, command_dispatch};
use crate::api::daemon_requests::{CommandError, ControlAnswer, ControlCommand};

/// The commands of one connection. The channels that it paused are started again by
/// [`ControlSession::close`].
#[derive(Debug)]
pub struct ControlSession {
    control: Arc<Control>,
    paused: Vec<String>,
}

impl ControlSession {
    pub(super) fn new(control: Arc<Control>) -> Self {
        Self { control, paused: Vec::new() }
    }

    /// Executes a command, also [`ControlCommand::Pause`].
    ///
    /// # Errors
    /// The errors of [`Control::execute`].
    pub async fn execute(&mut self, command: ControlCommand) -> Result<ControlAnswer, CommandError> {
        match command {
            ControlCommand::Pause { channel } => {
                let paused = self.pause(&channel).await;
                command_dispatch::channels_after(paused, &self.control)
            }
            command => self.control.execute(command).await,
        }
    }

    async fn pause(&mut self, name: &str) -> anyhow::Result<()> {
        let channel = self.control.state().channels.get(name);
        let (channel, _) = channel.ok_or_else(|| anyhow!("the daemon has no channel {name:?}"))?;
        let state = channel.status().borrow().state;
        if matches!(state, ChannelState::Running | ChannelState::Connecting) {
            // The channel is recorded before it is paused, so that it is started again even if the pause
            // fails halfway.
            self.paused.push(name.to_owned());
            channel
                .pause_with_reason("paused by a job that reads the target; starts again when the job ends")
                .await?;
        }
        Ok(())
    }

    /// Starts the channels that this session has paused.
    pub async fn close(self) {
        for name in self.paused {
            let Some((channel, _)) = self.control.state().channels.get(&name) else { continue };
            if let Err(error) = channel.resume(None).await {
                warn!(
                    channel = name,
                    "the channel, which a job had paused, cannot be started again: {error}"
                );
            }
        }
    }
}
