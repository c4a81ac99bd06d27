//! Converts `[[channel]]` sections to the options of channels.

use std::time::Duration;

use anyhow::Context;
use tailwater_apply::ChannelOptions;

use super::connect_options;
use tailwater_config::{ChannelConfig, Config};

/// Returns the options of one channel for each `[[channel]]`, with the name of its source, and whether the
/// channel stays stopped when the daemon starts.
///
/// # Errors
/// If an option file with a target's credentials cannot be read.
pub fn channels(config: &Config) -> anyhow::Result<Vec<(String, ChannelOptions, bool)>> {
    let options = |channel: &ChannelConfig| {
        let options = channel_options(channel).with_context(|| format!("channel {}", channel.name))?;
        Ok((channel.source.clone(), options, channel.stopped))
    };
    config.channels.iter().map(options).collect()
}

fn channel_options(channel: &ChannelConfig) -> anyhow::Result<ChannelOptions> {
    let target = connect_options(channel.server())?;
    Ok(ChannelOptions {
        workers: channel.workers,
        commit_order: channel.commit_order,
        gtid: channel.gtid,
        ddl_exec_mode: channel.ddl_exec_mode,
        start: channel.start,
        batch_transactions_max: channel.batch_transactions_max,
        batch_bytes_max: channel.batch_bytes_max,
        memory_bytes_max: channel.memory_bytes_max,
        transaction_bytes_max: channel.transaction_bytes_max,
        delay: Duration::from_secs(channel.delay_seconds),
        old_temporal_precision: channel.old_temporal_precision,
        filters: channel.filters.clone(),
        ..ChannelOptions::new(&channel.name, target)
    })
}
