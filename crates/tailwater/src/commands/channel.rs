//! `tailwater channel`: shows and controls the channels of a running daemon.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use tailwater_apply::channel::{ChannelEdit, ChannelState, ChannelStatus};
use tailwater_apply::replication_filter::FilterSet;
use tailwater_wire::printable;

use crate::arguments::{ChannelCommand, ConfigFile, Output};
use crate::exit_codes::Exit;
use tailwater_config::{Config, parse_toml};
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::control_socket::{ask, socket_of};

/// Runs `tailwater channel ...`: sends the request to the daemon, then prints the state of the channels.
///
/// # Errors
/// If no daemon runs with that configuration, or the daemon refuses the request.
pub fn channel(command: ChannelCommand, output: Output, show_values: bool) -> anyhow::Result<Exit> {
    if let ChannelCommand::Add(arguments) = &command {
        return super::on_runtime(super::channel_add::add(arguments, output));
    }
    let planned = plan(&command);
    let (file, only, request) = request(command)?;
    let config = file.load()?;
    if let Some(name) = &only
        && !config.channels.iter().any(|channel| channel.name == *name)
    {
        let known: Vec<_> = config.channels.iter().map(|channel| channel.name.as_str()).collect();
        bail!("unknown channel {name:?}; the configuration has: {}", known.join(", "));
    }
    if let Some(plan) = planned {
        match output {
            Output::Json => println!("{}", serde_json::json!({ "done": false, "plan": plan })),
            Output::Text => println!("{plan}\nnothing was changed: repeat with --yes"),
        }
        return Ok(Exit::Done);
    }
    let mut channels = send(&config, &request)?;
    if show_values {
        channels = send(&config, &ControlCommand::ListWithValues)?;
    }
    print(&channels, only.as_deref(), output)
}

/// Sends a request to the daemon, and returns the state of the channels after it.
///
/// # Errors
/// If no daemon runs with that configuration, or it refuses the request.
pub(super) fn send(config: &Config, request: &ControlCommand) -> anyhow::Result<Vec<ChannelStatus>> {
    channels_of(ask(&socket_of(&config.log.directory), request)?)
}

/// Returns the channels in the daemon's answer.
///
/// # Errors
/// If the daemon reports a failure.
pub(super) fn channels_of(answer: ControlAnswer) -> anyhow::Result<Vec<ChannelStatus>> {
    match answer {
        ControlAnswer::Channels(channels) => Ok(channels),
        ControlAnswer::Failed { code, message } => {
            bail!("{}{message}", code.map(|code| format!("{code}: ")).unwrap_or_default())
        }
        _ => bail!("unexpected answer of the daemon, which may run another version of Tailwater"),
    }
}

/// Prints all channels, or only the channel named `only`.
///
/// # Errors
/// If a channel cannot be written as JSON.
pub(super) fn print(channels: &[ChannelStatus], only: Option<&str>, output: Output) -> anyhow::Result<Exit> {
    let shown = channels.iter().filter(|channel| only.is_none_or(|only| only == channel.name));
    match output {
        Output::Json => {
            for channel in shown {
                println!("{}", serde_json::to_string(channel)?);
            }
        }
        Output::Text => print!("{}", table(shown)),
    }
    Ok(Exit::Done)
}

type ChannelRequest = (ConfigFile, Option<String>, ControlCommand);

fn request(command: ChannelCommand) -> anyhow::Result<ChannelRequest> {
    Ok(match command {
        ChannelCommand::Add(_) => bail!("`channel add` cannot be sent to the daemon as a single request"),
        ChannelCommand::List(file) => (file, None, ControlCommand::List),
        ChannelCommand::Start { channel, idempotent_once, idempotent_until, .. }
            if idempotent_once || idempotent_until.is_some() =>
        {
            let until_gtid = idempotent_until;
            let request = ControlCommand::Tolerate { channel: channel.name.clone(), until_gtid };
            (channel.file, Some(channel.name), request)
        }
        ChannelCommand::Start { channel, until_gtid, until_time, .. } => {
            let until_time_us = until_time.map(|moment| moment.0);
            let name = channel.name.clone();
            let request = ControlCommand::Start { channel: channel.name, until_gtid, until_time_us };
            (channel.file, Some(name), request)
        }
        ChannelCommand::Stop(channel) => {
            let request = ControlCommand::Stop { channel: channel.name.clone() };
            (channel.file, Some(channel.name), request)
        }
        ChannelCommand::Skip { channel, gtid, .. } => {
            let request = ControlCommand::Skip { channel: channel.name.clone(), gtid };
            (channel.file, Some(channel.name), request)
        }
        ChannelCommand::Seek { channel, gtids, .. } => {
            let request = ControlCommand::Seek { channel: channel.name.clone(), gtids };
            (channel.file, Some(channel.name), request)
        }
        ChannelCommand::Filter { channel, filters, from_gtid } => {
            let filters = read_filters(&filters)?;
            let request = ControlCommand::Filter { channel: channel.name.clone(), filters, from_gtid };
            (channel.file, Some(channel.name), request)
        }
        ChannelCommand::Set { channel, edit } => {
            let edit = ChannelEdit {
                workers: edit.workers,
                batch_transactions_max: edit.batch_transactions_max,
                batch_bytes_max: edit.batch_bytes_max,
                commit_order: edit.commit_order.map(Into::into),
                gtid: edit.gtid.map(Into::into),
                ddl_exec_mode: edit.ddl_exec_mode.map(Into::into),
                delay_seconds: edit.delay_seconds,
            };
            if edit == ChannelEdit::default() {
                bail!("no setting was given: see `tailwater channel set --help`");
            }
            let request = ControlCommand::Set { channel: channel.name.clone(), edit };
            (channel.file, Some(channel.name), request)
        }
    })
}

/// Describes what a command that requires `--yes` would do. Returns `None` for other commands.
fn plan(command: &ChannelCommand) -> Option<String> {
    match command {
        ChannelCommand::Skip { channel, gtid, yes: false } => Some(format!(
            "{gtid} would never be applied by channel {}; if the channel has failed, it would start again",
            channel.name
        )),
        ChannelCommand::Seek { channel, gtids, yes: false } => {
            Some(format!("channel {} would resume as if exactly {gtids:?} were applied", channel.name))
        }
        _ => None,
    }
}

/// Reads filters in the format of `[channel.filters]` from a TOML file. `-` means standard input.
fn read_filters(path: &Path) -> anyhow::Result<FilterSet> {
    let text = match path.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?,
        _ => tailwater_files::read_user_file_text(path, 64 << 20)
            .with_context(|| format!("cannot read {}", path.display()))?,
    };
    parse_toml(&text).map_err(|reason| anyhow!("{}: {reason}", path.display()))
}

/// Formats one line for each channel, followed by the errors of the channel.
fn table<'a>(channels: impl Iterator<Item = &'a ChannelStatus>) -> String {
    let mut text = format!(
        "{:<16} {:<10} {:>9} {:>10} {:>12} {:>7} {}\n",
        "CHANNEL", "STATE", "LAG", "TRX/S", "APPLIED", "WORKERS", "NEWEST"
    );
    for channel in channels {
        let state = match channel.state {
            ChannelState::Connecting => "connecting",
            ChannelState::Running => "running",
            ChannelState::Stopped => "stopped",
            ChannelState::Failed => "failed",
        };
        text.push_str(&format!(
            "{:<16} {:<10} {:>9} {:>10.0} {:>12} {:>7} {}\n",
            channel.name,
            state,
            channel.lag_seconds.map_or_else(|| "-".to_owned(), |lag| format!("{lag:.1}s")),
            channel.transactions_per_second,
            channel.transactions_total,
            channel.workers,
            channel.newest_gtid,
        ));
        if let Some(fault) = &channel.fault {
            text.push_str(&format!("  {}: {}\n", fault.code, printable(&fault.message)));
            match &fault.detail {
                Some(detail) => text.push_str(&format!("  with values: {}\n", printable(detail))),
                None if fault.has_detail => {
                    text.push_str(
                        "  (row values are hidden; `tailwater channel list --show-values` shows them)\n",
                    );
                }
                None => {}
            }
        }
        if let Some(because) = &channel.stop_reason {
            text.push_str(&format!("  stopped: {because}\n"));
        }
        if let Some(trouble) = &channel.capture_problem {
            text.push_str(&format!(
                "  the lag is measured against the log, but the capture is not adding to the log: \
                 {trouble}\n"
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_apply::channel::ChannelFault;

    #[test]
    fn an_error_is_listed_below_its_channel() {
        let fault = ChannelFault {
            code: "TW-APP-0002".into(),
            message: "row 7\nrunning".into(),
            has_detail: true,
            detail: None,
        };
        let status = ChannelStatus {
            name: "replica".into(),
            state: ChannelState::Failed,
            fault: Some(fault),
            ..ChannelStatus::default()
        };
        let text = table([status].iter());
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[1].starts_with("replica") && lines[1].contains("failed"),
            "the channel is not listed as failed: {text}"
        );
        assert_eq!(lines[2], "  TW-APP-0002: row 7\\nrunning");
        assert!(lines[3].contains("--show-values"), "the option --show-values is not mentioned: {text}");
        assert_eq!(lines[1].split_whitespace().nth(2), Some("-"), "the lag is not shown as unknown: {text}");
        let running = ChannelStatus {
            state: ChannelState::Running,
            lag_seconds: Some(0.0),
            capture_problem: Some("connecting".into()),
            ..ChannelStatus::default()
        };
        let text = table([running].iter());
        assert!(
            text.contains(" 0.0s ")
                && text.contains("measured against the log")
                && text.contains("connecting"),
            "the lag or the problem of the capture is not shown: {text}"
        );
    }
}
