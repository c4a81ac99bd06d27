//! Executes the commands of clients.

use anyhow::{Context, anyhow, bail, ensure};
use tailwater_apply::channel::{Channel, ChannelState, UntilCondition, log_reader_name};
use tailwater_log::{LogHandle, LogPosition};
use tailwater_manager::ManagerError;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{Gtid, GtidSet};

use super::{Control, DaemonState, SourceHandle};
use crate::api::capture_orders::AckerOrder;
use crate::api::channels::ChannelStatus;
use crate::api::daemon_requests::{CommandError, CommandErrorKind, ControlAnswer, ControlCommand};
use crate::api::manager_requests::ManagerRequest;
use crate::error_chain::ErrorChain;
use crate::manager::local_relay_acker;
use crate::server_role_check;

pub(super) async fn execute(
    control: &Control,
    command: ControlCommand,
) -> Result<ControlAnswer, CommandError> {
    let state = &control.state;
    match command {
        ControlCommand::List => channels_after(Ok(()), control),
        // No further permission is needed: clients that may open the control socket may also read the log,
        // which contains the values of all changed rows.
        ControlCommand::ListWithValues => Ok(ControlAnswer::Channels(statuses(state))),
        ControlCommand::Topology => {
            let reports = state.captures().into_iter().map(|capture| capture.report);
            Ok(ControlAnswer::Topology(reports.collect()))
        }
        ControlCommand::Status => Ok(ControlAnswer::Status(Box::new(crate::status::of(control).await))),
        ControlCommand::Reload => control.reload().await.map(ControlAnswer::Reloaded),
        ControlCommand::Manager(request) => ask_manager(request, state).await,
        ControlCommand::Job(request) => state.jobs.execute(request).await.map(ControlAnswer::Job),
        ControlCommand::AckerStop { source, token, run } => {
            order_acker(&source, AckerOrder::Stop { token, run }, state).await
        }
        ControlCommand::AckerRead { source } => order_acker(&source, AckerOrder::Read, state).await,
        ControlCommand::AckerStart { source, token, run } => {
            order_acker(&source, AckerOrder::Start { token, run }, state).await
        }
        ControlCommand::AckerFollow { source, token, run, server } => {
            order_acker(&source, AckerOrder::Follow { token, run, server }, state).await
        }
        ControlCommand::CheckPrimary { server, source } => {
            let clusters = control.snapshot().clusters;
            server_role_check::check_primary(&clusters, server.as_deref(), source.as_deref())
                .map(ControlAnswer::Role)
        }
        ControlCommand::CheckReplica { server, source, lag_seconds_max } => {
            let clusters = control.snapshot().clusters;
            server_role_check::check_replica(&clusters, &server, source.as_deref(), lag_seconds_max)
                .map(ControlAnswer::Role)
        }
        command => channels_after(change_channel(command, state).await, control),
    }
}

/// Returns the channels after a command, without the details of faults; or why the command was not executed.
pub(super) fn channels_after(
    done: anyhow::Result<()>,
    control: &Control,
) -> Result<ControlAnswer, CommandError> {
    done.map_err(|error| {
        let code = error.downcast_ref::<tailwater_apply::ApplyError>().map(|error| error.code());
        failed(code, &error)
    })?;
    let mut channels = statuses(&control.state);
    for fault in channels.iter_mut().filter_map(|channel| channel.fault.as_mut()) {
        fault.detail = None;
    }
    Ok(ControlAnswer::Channels(channels))
}

fn statuses(state: &DaemonState) -> Vec<ChannelStatus> {
    state.channels().into_iter().map(|channel| channel.status).collect()
}

fn failed(code: Option<&str>, error: &anyhow::Error) -> CommandError {
    CommandError {
        kind: CommandErrorKind::Failed,
        code: code.map(str::to_owned),
        message: ErrorChain(error).to_string(),
    }
}

async fn ask_manager(request: ManagerRequest, state: &DaemonState) -> Result<ControlAnswer, CommandError> {
    let answer = match &state.manager {
        Some(manager) => manager.execute(request).await,
        None => Err(anyhow!("there is no manager in this daemon: its configuration has no [manager]")),
    };
    answer.map(ControlAnswer::Manager).map_err(|error| {
        let code = error.downcast_ref::<ManagerError>().map(|error| error.code());
        failed(code, &error)
    })
}

async fn order_acker(
    source: &str,
    order: AckerOrder,
    state: &DaemonState,
) -> Result<ControlAnswer, CommandError> {
    let handle = state.sources.get(source).ok_or_else(|| CommandError {
        kind: CommandErrorKind::UnknownName,
        code: None,
        message: format!("there is no source {source:?}"),
    })?;
    match local_relay_acker::execute(&handle.acker, &order).await {
        Ok(status) => Ok(ControlAnswer::Acker(status)),
        Err(failure) => {
            Err(CommandError { kind: CommandErrorKind::Failed, code: failure.code, message: failure.message })
        }
    }
}

async fn change_channel(command: ControlCommand, state: &DaemonState) -> anyhow::Result<()> {
    let find = |name: &str| {
        let known = || state.channels.keys().cloned().collect::<Vec<_>>().join(", ");
        state
            .channels
            .get(name)
            .map(|(channel, log)| (channel, log.source().map_or(Flavour::MySql, |source| source.flavour)))
            .ok_or_else(|| anyhow!("there is no channel {name:?}; the channels are: {}", known()))
    };
    match command {
        ControlCommand::Start { channel, until_gtid, until_time_us } => {
            let (channel, flavour) = find(&channel)?;
            refuse_if_target_is_primary(channel, state)?;
            let until = match (until_gtid, until_time_us) {
                (Some(gtid), None) => Some(UntilCondition::Gtid(Gtid::parse(flavour, &gtid)?)),
                (None, Some(time)) => Some(UntilCondition::TimeUs(time)),
                (None, None) => None,
                _ => bail!("give a GTID or a time, not both"),
            };
            channel.resume(until).await?;
        }
        ControlCommand::Tolerate { channel, until_gtid } => {
            let (channel, flavour) = find(&channel)?;
            refuse_if_target_is_primary(channel, state)?;
            let until = until_gtid.map(|gtid| Gtid::parse(flavour, &gtid)).transpose()?;
            channel.tolerate(until).await?;
        }
        ControlCommand::Stop { channel } => find(&channel)?.0.pause().await?,
        ControlCommand::Skip { channel, gtid } => {
            let (channel, flavour) = find(&channel)?;
            channel.skip(Gtid::parse(flavour, &gtid)?).await?;
        }
        ControlCommand::Seek { channel, gtids } => {
            let (channel, flavour) = find(&channel)?;
            channel.seek(GtidSet::parse(flavour, &gtids)?).await?;
        }
        ControlCommand::Filter { channel, filters, from_gtid } => {
            let (channel, flavour) = find(&channel)?;
            let from = from_gtid.map(|gtid| Gtid::parse(flavour, &gtid)).transpose()?;
            channel.set_filters(filters, from).await?;
        }
        ControlCommand::Hold { channel } => {
            find(&channel)?;
            if let Some((channel, log)) = state.channels.get(&channel) {
                hold(channel, log)?;
            }
        }
        ControlCommand::Set { channel, edit } => find(&channel)?.0.edit(edit).await?,
        ControlCommand::Pause { .. } => {
            bail!(
                "a channel can be paused only over a connection: the pause lasts until the connection closes"
            )
        }
        _ => bail!("the command is not about a channel"),
    }
    Ok(())
}

/// Refuses to start a channel whose target has become the primary, because the target would receive its own
/// commits again.
fn refuse_if_target_is_primary(channel: &Channel, state: &DaemonState) -> anyhow::Result<()> {
    let name = channel.name();
    let reads = |source: &&SourceHandle| {
        source.log.persistent_readers().iter().any(|reader| reader.name == log_reader_name(name))
    };
    let is_primary = state
        .sources
        .values()
        .filter(reads)
        .filter_map(|source| source.status.followed_server())
        .any(|followed| followed.endpoint == *channel.target());
    ensure!(
        !is_primary,
        "channel {name}: its target is the primary now, and would receive its own commits again"
    );
    Ok(())
}

/// Keeps new transactions in the log for a channel whose target will be provisioned from the present state of
/// the source.
///
/// # Errors
/// If the channel is running, if the log is empty, or if the GTIDs before the newest segment are unknown: the
/// log could then not determine which transactions the target lacks.
fn hold(channel: &Channel, log: &LogHandle) -> anyhow::Result<()> {
    let name = channel.name();
    let state = channel.status().borrow().state;
    ensure!(
        matches!(state, ChannelState::Stopped | ChannelState::Failed),
        "channel {name} is running; before its target is provisioned, set stopped = true for the channel in the configuration"
    );
    let newest = log.segments().last().map(|segment| segment.number);
    let newest = newest.context(
        "the log is empty: nothing was captured yet; try again when the capture is streaming from its source",
    )?;
    ensure!(
        log.gtids_before(newest)?.is_some(),
        "the log starts in the middle of a binlog file, so the GTIDs before it are not known: wait for the source's next file"
    );
    let reader = log_reader_name(name);
    if !log.persistent_readers().iter().any(|known| known.name == reader) {
        drop(log.register_persistent_reader(&reader, LogPosition { segment: newest, offset: 4 }));
    }
    Ok(())
}
