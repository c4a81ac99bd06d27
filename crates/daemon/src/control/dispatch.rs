//! Does what is asked.

use anyhow::{Context, anyhow, bail, ensure};
use tailwater_apply::channel::{Channel, ChannelState, UntilCondition, log_reader_name};
use tailwater_log::{LogHandle, LogPosition};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{Gtid, GtidSet};

use super::{Answer, DaemonState, Request, SourceHandle};
use crate::error_chain::ErrorChain;
use crate::manager;
use crate::manager::acker::{AckerFailure, AckerOrder};
use crate::manager::requests::ManagerRequest;

pub(super) async fn obey(request: Request, controlled: &DaemonState) -> Answer {
    match &request {
        Request::Topology => return Answer::Topology(controlled.reports().0),
        // Who may open the control socket may read the log, which holds all values.
        Request::ListWithValues => return Answer::Channels(controlled.reports().1),
        _ => {}
    }
    let request = match request {
        Request::Manager(request) => return managed(request, controlled).await,
        other => other,
    };
    if let Some((source, order)) = acker_order(&request) {
        return ordered(source, &order, controlled).await;
    }
    answered(obeyed(request, controlled).await, controlled)
}

/// How the channels are now, or why not.
pub(super) fn answered(obeyed: anyhow::Result<()>, controlled: &DaemonState) -> Answer {
    match obeyed {
        Ok(()) => {
            let mut channels = controlled.reports().1;
            for fault in channels.iter_mut().filter_map(|channel| channel.fault.as_mut()) {
                fault.detail = None;
            }
            Answer::Channels(channels)
        }
        Err(error) => Answer::Failed {
            code: error.downcast_ref::<tailwater_apply::ApplyError>().map(|error| error.code().to_owned()),
            message: ErrorChain(&error).to_string(),
        },
    }
}

pub(super) async fn pause(
    name: &str,
    controlled: &DaemonState,
    paused: &mut Vec<String>,
) -> anyhow::Result<()> {
    let (channel, _) =
        controlled.channels.get(name).ok_or_else(|| anyhow!("the daemon has no channel {name:?}"))?;
    let state = channel.status().borrow().state;
    if matches!(state, ChannelState::Running | ChannelState::Connecting) {
        // Whatever comes next, it is started again.
        paused.push(name.to_owned());
        channel
            .pause_with_reason("a job that reads its target holds it, and lets it go on at its end")
            .await?;
    }
    Ok(())
}

/// What is asked of the acker of a source; nothing if something else is.
fn acker_order(request: &Request) -> Option<(&str, AckerOrder)> {
    match request {
        Request::AckerStop { source, token } => Some((source, AckerOrder::Stop { token: *token })),
        Request::AckerRead { source } => Some((source, AckerOrder::Read)),
        Request::AckerStart { source, token } => Some((source, AckerOrder::Start { token: *token })),
        Request::AckerFollow { source, token, server } => {
            Some((source, AckerOrder::Follow { token: *token, server: server.clone() }))
        }
        _ => None,
    }
}

async fn managed(request: ManagerRequest, controlled: &DaemonState) -> Answer {
    let answer = match &controlled.manager {
        Some(manager) => manager.obey(request).await,
        None => Err(anyhow!("there is no manager in this daemon: its configuration has no [manager]")),
    };
    match answer {
        Ok(answer) => Answer::Manager(answer),
        Err(error) => Answer::Failed {
            code: error
                .downcast_ref::<tailwater_manager::ManagerError>()
                .map(|error| error.code().to_owned()),
            message: ErrorChain(&error).to_string(),
        },
    }
}

async fn ordered(source: &str, order: &AckerOrder, controlled: &DaemonState) -> Answer {
    let Some(controlled) = controlled.sources.get(source) else {
        return Answer::Failed { code: None, message: format!("there is no source {source:?}") };
    };
    match manager::acker::obey(&controlled.acker, order).await {
        Ok(text) => Answer::Acker(text),
        Err(AckerFailure { code, message }) => Answer::Failed { code, message },
    }
}

async fn obeyed(request: Request, controlled: &DaemonState) -> anyhow::Result<()> {
    let find = |name: &str| {
        let known = || controlled.channels.keys().cloned().collect::<Vec<_>>().join(", ");
        controlled
            .channels
            .get(name)
            .map(|(channel, log)| (channel, log.source().map_or(Flavour::MySql, |source| source.flavour)))
            .ok_or_else(|| anyhow!("there is no channel {name:?}; there are: {}", known()))
    };
    match request {
        Request::List
        | Request::ListWithValues
        | Request::Topology
        | Request::Manager(_)
        | Request::AckerStop { .. }
        | Request::AckerRead { .. }
        | Request::AckerStart { .. }
        | Request::AckerFollow { .. } => {}
        Request::Start { channel, until_gtid, until_time_us } => {
            let (channel, flavour) = find(&channel)?;
            refuse_if_it_leads(channel, controlled)?;
            let until = match (until_gtid, until_time_us) {
                (Some(gtid), None) => Some(UntilCondition::Gtid(Gtid::parse(flavour, &gtid)?)),
                (None, Some(time)) => Some(UntilCondition::TimeUs(time)),
                (None, None) => None,
                _ => bail!("give a GTID or a time, not both"),
            };
            channel.resume(until).await?;
        }
        Request::Tolerate { channel, until_gtid } => {
            let (channel, flavour) = find(&channel)?;
            refuse_if_it_leads(channel, controlled)?;
            let until = until_gtid.map(|gtid| Gtid::parse(flavour, &gtid)).transpose()?;
            channel.tolerate(until).await?;
        }
        Request::Stop { channel } => find(&channel)?.0.pause().await?,
        Request::Pause { .. } => bail!("a pause is of a connection"),
        Request::Skip { channel, gtid } => {
            let (channel, flavour) = find(&channel)?;
            channel.skip(Gtid::parse(flavour, &gtid)?).await?;
        }
        Request::Seek { channel, gtids } => {
            let (channel, flavour) = find(&channel)?;
            channel.seek(GtidSet::parse(flavour, &gtids)?).await?;
        }
        Request::Filter { channel, filters, from_gtid } => {
            let (channel, flavour) = find(&channel)?;
            let from = from_gtid.map(|gtid| Gtid::parse(flavour, &gtid)).transpose()?;
            channel.set_filters(filters, from).await?;
        }
        Request::Hold { channel } => {
            find(&channel)?;
            if let Some((channel, log)) = controlled.channels.get(&channel) {
                hold(channel, log)?;
            }
        }
        Request::Set { channel, edit } => find(&channel)?.0.edit(edit).await?,
    }
    Ok(())
}

/// A target that has become the primary would get its own commits once more.
fn refuse_if_it_leads(channel: &Channel, controlled: &DaemonState) -> anyhow::Result<()> {
    let name = channel.name();
    let reads = |source: &&SourceHandle| {
        source.log.persistent_readers().iter().any(|reader| reader.name == log_reader_name(name))
    };
    let leads = controlled
        .sources
        .values()
        .filter(reads)
        .filter_map(|source| source.status.followed_server())
        .any(|followed| followed.endpoint == *channel.target());
    ensure!(!leads, "channel {name}: its target is the primary now, and would get its own commits once more");
    Ok(())
}

/// Has the log remember a channel that is to begin behind what the source has now.
///
/// # Errors
/// If it runs, or the log could not say later what the target lacks.
fn hold(channel: &Channel, log: &LogHandle) -> anyhow::Result<()> {
    let name = channel.name();
    let state = channel.status().borrow().state;
    ensure!(
        matches!(state, ChannelState::Stopped | ChannelState::Failed),
        "channel {name} runs; a channel whose target is to be provisioned has stopped = true in the configuration"
    );
    let newest = log.segments().last().map(|segment| segment.number);
    let newest =
        newest.context("the log is empty: nothing was captured yet; try again when it follows its source")?;
    ensure!(
        log.gtids_before(newest)?.is_some(),
        "the log began in the middle of a binlog file, and cannot say what is before it: wait for the source's next file"
    );
    let reader = log_reader_name(name);
    if !log.persistent_readers().iter().any(|known| known.name == reader) {
        drop(log.register_persistent_reader(&reader, LogPosition { segment: newest, offset: 4 }));
    }
    Ok(())
}
