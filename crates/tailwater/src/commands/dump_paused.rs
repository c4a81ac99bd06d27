//! Channels that wait until a dump of their target has its snapshot.

use anyhow::{Context, bail, ensure};
use tailwater_apply::channel::ChannelState;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::channel::told;
use crate::cli::DumpArgs;
use crate::config::Config;
use crate::control::Request;

/// Channels that were running, and stand still. They go on when this goes away.
#[derive(Debug)]
pub(super) struct Paused {
    config: Option<Config>,
    names: Vec<String>,
}

impl Paused {
    /// Stops them: all that was under way has committed then, and their target knows of it.
    ///
    /// # Errors
    /// If no daemon runs with that configuration, or a channel is not one of its.
    pub(super) fn stop(arguments: &DumpArgs) -> anyhow::Result<Self> {
        let mut paused = Self { config: None, names: Vec::new() };
        let Some(config) = &arguments.config else { return Ok(paused) };
        let config = Config::load(config)?;
        let channels = told(&config, &Request::List)?;
        paused.config = Some(config);
        for name in &arguments.pause_channel {
            let channel = channels.iter().find(|channel| channel.name == *name);
            let channel = channel.with_context(|| format!("the daemon has no channel {name:?}"))?;
            let running = [ChannelState::Running, ChannelState::Connecting].contains(&channel.state);
            ensure!(
                running || channel.state == ChannelState::Stopped,
                "channel {name} has failed, and its target may not know what it has: see `tailwater channel list`"
            );
            if running {
                // Whatever comes next, it is started again.
                paused.names.push(name.clone());
                paused.tell(&Request::Stop { channel: name.clone() })?;
                paused.refuse_untold(name)?;
                info!(channel = name, "stopped until the snapshot is there");
            }
        }
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

    /// Its target's GTIDs are what the dump says that it holds; so the target must know them.
    fn refuse_untold(&self, name: &str) -> anyhow::Result<()> {
        let Some(config) = &self.config else { return Ok(()) };
        let channels = told(config, &Request::List)?;
        let channel = channels.iter().find(|channel| channel.name == name);
        let channel = channel.with_context(|| format!("the daemon has no channel {name:?} any more"))?;
        if let Some(reason) = &channel.gtids_untold {
            bail!("channel {name}: its target does not know the GTIDs of what it has: {reason}");
        }
        Ok(())
    }

    fn tell(&self, request: &Request) -> anyhow::Result<()> {
        if let Some(config) = &self.config {
            told(config, request)?;
        }
        Ok(())
    }

    fn go_on(&mut self) {
        for channel in std::mem::take(&mut self.names) {
            let start = Request::Start { channel: channel.clone(), until_gtid: None, until_time_us: None };
            match self.tell(&start) {
                Ok(()) => info!(channel, "goes on"),
                Err(error) => {
                    warn!(
                        channel,
                        "stands still: `tailwater channel start {channel}` has it go on: {error:#}"
                    );
                }
            }
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.go_on();
    }
}
