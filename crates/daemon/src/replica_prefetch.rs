//! Starts the prefetches of the configuration: beside native replicas, and for the targets of channels.

use std::sync::Arc;

use anyhow::Context;
use tailwater_apply::Channel;
use tailwater_config::{ChannelConfig, PrefetchConfig, PrefetchMode};
use tailwater_log::{LogHandle, LogPosition};
use tailwater_prefetch::gain_feedback::FeedbackLimits;
use tailwater_prefetch::read_window::WindowLimits;
use tailwater_prefetch::slow_query_cache::SlowQueryLimits;
use tailwater_prefetch::{PrefetchFigures, PrefetchOptions, PrefetchProgress, PrefetchSource, segment_place};
use tokio_util::sync::CancellationToken;

use crate::api::prefetches::PrefetchSnapshot;
use crate::options_from_config::connect_options;

/// A prefetch that runs in this process. It ends when this value is dropped.
#[derive(Debug)]
pub struct RunningPrefetch {
    name: String,
    source: String,
    server: String,
    is_of_channel: bool,
    figures: Arc<PrefetchFigures>,
    stop: CancellationToken,
}

impl RunningPrefetch {
    /// Starts the prefetch of a `[[prefetch]]`; `None` if it is off. Must be called within a runtime.
    ///
    /// # Errors
    /// If the option file with the replica's credentials cannot be read.
    pub(crate) fn of_replica(config: &PrefetchConfig, log: &LogHandle) -> anyhow::Result<Option<Self>> {
        if config.mode == PrefetchMode::Off {
            return Ok(None);
        }
        let options = replica_options(config, log.clone())?;
        Ok(Some(Self::start(&config.name, &config.source, false, options)))
    }

    /// Starts the prefetch of a channel's target; `None` if it is off. Must be called within a runtime.
    ///
    /// # Errors
    /// If the option file with the target's credentials cannot be read.
    pub(crate) fn of_channel(
        config: &ChannelConfig,
        channel: &Arc<Channel>,
        log: &LogHandle,
    ) -> anyhow::Result<Option<Self>> {
        if config.prefetch == PrefetchMode::Off {
            return Ok(None);
        }
        let target = connect_options(config.server()).with_context(|| format!("channel {}", config.name))?;
        let status = channel.status();
        let position = move || log_position(&status.borrow().low_watermark).map(segment_place);
        let options = PrefetchOptions {
            progress: PrefetchProgress::Channel(Arc::new(position)),
            feedback: feedback(config.prefetch),
            ..PrefetchOptions::new(target, PrefetchSource::Log(log.clone()))
        };
        Ok(Some(Self::start(&config.name, &config.source, true, options)))
    }

    fn start(name: &str, source: &str, is_of_channel: bool, options: PrefetchOptions) -> Self {
        let (figures, stop) = (Arc::<PrefetchFigures>::default(), CancellationToken::new());
        let server = options.replica.endpoint.to_string();
        tokio::spawn(tailwater_prefetch::run(options, Arc::clone(&figures), stop.clone()));
        let (name, source) = (name.to_owned(), source.to_owned());
        Self { name, source, server, is_of_channel, figures, stop }
    }

    /// The prefetch with its figures.
    pub(crate) fn snapshot(&self) -> PrefetchSnapshot {
        PrefetchSnapshot {
            name: self.name.clone(),
            source: self.source.clone(),
            server: self.server.clone(),
            is_of_channel: self.is_of_channel,
            figures: self.figures.status(),
        }
    }
}

impl Drop for RunningPrefetch {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Checks what a `[[prefetch]]` names, without a connection.
///
/// # Errors
/// If the option file with the replica's credentials, or a file for TLS, cannot be read.
pub(crate) fn check(config: &PrefetchConfig) -> anyhow::Result<()> {
    let of_prefetch = || format!("prefetch {}", config.name);
    let replica = connect_options(config.server()).with_context(of_prefetch)?;
    replica.tls.check().with_context(of_prefetch)
}

fn replica_options(config: &PrefetchConfig, log: LogHandle) -> anyhow::Result<PrefetchOptions> {
    let replica = connect_options(config.server()).with_context(|| format!("prefetch {}", config.name))?;
    Ok(PrefetchOptions {
        progress: PrefetchProgress::Replication(config.channel.clone()),
        connections: config.connections,
        window: WindowLimits {
            seconds_min: config.ahead_seconds_min,
            bytes_min: config.ahead_bytes_min,
            seconds_max: config.ahead_seconds_max,
            bytes_max: config.ahead_bytes_max,
        },
        slow: SlowQueryLimits {
            rows_max: config.slow_rows_max,
            keep_seconds: config.slow_keep_seconds,
            ..SlowQueryLimits::default()
        },
        feedback: feedback(config.mode),
        resource_group: config.resource_group.clone(),
        ..PrefetchOptions::new(replica, PrefetchSource::Log(log))
    })
}

fn feedback(mode: PrefetchMode) -> Option<FeedbackLimits> {
    (mode == PrefetchMode::Auto).then(FeedbackLimits::default)
}

/// Parses a position of the log, such as `12:48213344`. `None` if the channel has none yet.
fn log_position(text: &str) -> Option<LogPosition> {
    let (segment, offset) = text.split_once(':')?;
    Some(LogPosition { segment: segment.parse().ok()?, offset: offset.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_channels_are_parsed() {
        assert_eq!(log_position("12:345"), Some(LogPosition { segment: 12, offset: 345 }));
        assert_eq!(log_position(""), None);
    }

    #[test]
    fn only_auto_measures() {
        assert!(feedback(PrefetchMode::Auto).is_some() && feedback(PrefetchMode::On).is_none());
    }
}
