//! Backfill: sends missing transactions to a server, from a relay's log or from another server. The server
//! first executes everything in its relay logs.

use std::time::{Duration, Instant};

use tailwater_session::Connection;
use tailwater_topology::server_state::IoState;

use super::channel_control::ChannelControl;
use super::executor_config::{ExecutorConfig, ManagedServer};
use super::relay_log_drain::drain;
use super::replication_setup::{
    ReplicationSource, executed, failed, pause, read_from, refused_by_source, status, too_long,
};
use super::required_gtids::RequiredGtids;
use crate::error::ManagerError;

const DOING: &str = "receiving missing transactions";

/// Returns when the server has received the transactions `what` from `from`.
pub(super) async fn supply(
    connection: &mut Connection,
    setup: &ExecutorConfig,
    server: &ManagedServer,
    from: &str,
    what: &str,
    patience: Duration,
) -> Result<(), ManagerError> {
    let started = Instant::now();
    let flavour = connection.server().flavour;
    let wanted = RequiredGtids::read(flavour, what)
        .ok_or_else(|| failed(connection, DOING, format!("{what:?} is not a set of {flavour} GTIDs")))?;
    if let Some(feed) = &server.feed {
        return from_channel(connection, feed.as_ref(), &wanted, patience).await;
    }
    let address = address(connection, setup, from)?;
    if !reads_from(connection, &address).await? {
        drain(connection, patience).await?;
        read_from(connection, &address, patience.saturating_sub(started.elapsed())).await?;
    }
    wait_until_received(connection, &wanted, started, patience).await
}

/// Makes a replica read from a relay's log.
pub(super) async fn repoint(
    connection: &mut Connection,
    setup: &ExecutorConfig,
    patience: Duration,
) -> Result<(), ManagerError> {
    let started = Instant::now();
    let log = setup.logs.first().ok_or_else(|| no_log(connection))?;
    if reads_from(connection, &log.address).await? {
        return Ok(());
    }
    drain(connection, patience).await?;
    read_from(connection, &log.address, patience.saturating_sub(started.elapsed())).await
}

pub(super) fn no_log(connection: &Connection) -> ManagerError {
    let reason = "no relay serves its log to replicas: configure a [[serve]]".to_owned();
    failed(connection, "starting to read from the log", reason)
}

/// Returns the address at which replicas can read from `from`, which is a relay or a server.
fn address(
    connection: &Connection,
    setup: &ExecutorConfig,
    from: &str,
) -> Result<ReplicationSource, ManagerError> {
    if let Some(log) = setup.logs.iter().find(|log| log.name == from) {
        return Ok(log.address.clone());
    }
    let giver = setup.servers.iter().find(|server| server.subject.name == from);
    let address = giver.and_then(|giver| setup.replica_account.at(giver));
    address.ok_or_else(|| {
        let reason = format!("{from} has no address that replicas can read from");
        failed(connection, DOING, reason)
    })
}

/// Whether the server replicates from that address now.
async fn reads_from(connection: &mut Connection, address: &ReplicationSource) -> Result<bool, ManagerError> {
    let channel = status(connection).await?;
    Ok(channel.is_some_and(|channel| address.is_source_of(&channel) && channel.io == IoState::Running))
}

async fn wait_until_received(
    connection: &mut Connection,
    wanted: &RequiredGtids,
    started: Instant,
    patience: Duration,
) -> Result<(), ManagerError> {
    loop {
        let Some(channel) = status(connection).await? else {
            return Err(failed(
                connection,
                DOING,
                "the replication source of the server was removed".to_owned(),
            ));
        };
        // `executed` is read after the channel status. In the other order, a transaction that is executed
        // between the two queries would be missing from both answers.
        let has = executed(connection).await?;
        let received = channel.received.union(&has).unwrap_or(has);
        if wanted.is_held_by(&received) {
            return Ok(());
        }
        refused_by_source(connection, &channel, DOING)?;
        if started.elapsed() >= patience {
            let reason = format!("the server has not received {}", wanted.missing_in(&received));
            return Err(too_long(connection, DOING, patience, reason));
        }
        pause(started).await;
    }
}

/// Waits until the channel of this server has applied the transactions. The channel reads them from the log,
/// so nothing has to be sent.
async fn from_channel(
    connection: &Connection,
    feed: &dyn ChannelControl,
    wanted: &RequiredGtids,
    patience: Duration,
) -> Result<(), ManagerError> {
    let started = Instant::now();
    loop {
        let progress = feed.progress();
        if progress.as_ref().is_some_and(|progress| wanted.is_held_by(progress)) {
            return Ok(());
        }
        if started.elapsed() >= patience {
            let missing = progress.map(|progress| wanted.missing_in(&progress));
            let reason = match missing {
                Some(missing) => format!("the channel of the server has not applied {missing}"),
                None => "the channel of the server does not report its progress".to_owned(),
            };
            return Err(too_long(connection, DOING, patience, reason));
        }
        pause(started).await;
    }
}
