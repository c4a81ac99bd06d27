//! Demotion: makes a former primary that is read-only a replica that reads from the log.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tailwater_session::Connection;
use tailwater_topology::server_state::{IoState, ReplicaChannel};
use tracing::info;

use super::replication_setup::{
    ReplicaPosition, ReplicationSource, executed, failed, pause, read_from, status,
};
use super::required_gtids::RequiredGtids;
use super::{process_list, read_only_switch, semi_sync_source};
use crate::error::ManagerError;

const DOING: &str = "becoming a replica";

/// Makes the server a replica of `log`, if all transactions that it has executed are in `has`. Kills the
/// sessions of clients: they can no longer commit, and their locks would block the applier. Clients that
/// reconnect find the server read-only.
///
/// # Errors
/// [`ManagerError::ActionFailed`] if clients can write, if the server has executed more than `has`, or if
/// commits wait for ACKs that no acker will send; the errors of [`read_from`].
pub(super) async fn demote(
    connection: &mut Connection,
    log: &ReplicationSource,
    has: &str,
    patience: Duration,
) -> Result<(), ManagerError> {
    let started = Instant::now();
    let flavour = connection.server().flavour;
    let wanted = RequiredGtids::read(flavour, has)
        .ok_or_else(|| failed(connection, DOING, format!("{has:?} is not a set of {flavour} GTIDs")))?;
    if read_only_switch::is_writable(connection).await? {
        return Err(failed(
            connection,
            DOING,
            "clients may write to this server: make it read-only first".to_owned(),
        ));
    }
    // An earlier attempt may have made the server a replica, and then failed.
    let is_done = |channel: ReplicaChannel| {
        log.is_source_of(&channel) && channel.io != IoState::Stopped && channel.sql_running
    };
    if status(connection).await?.is_some_and(is_done) {
        return Ok(());
    }
    end_clients(connection, patience).await?;
    let now = executed(connection).await?;
    if let Some(more) = wanted.lacks(&now) {
        let reason =
            format!("the server has executed {more}, which no acker acknowledged; run: tailwater rejoin");
        return Err(failed(connection, DOING, reason));
    }
    semi_sync_source::disable_source(connection, semi_sync_source::SemiSyncSides::default()).await?;
    // The replica must not request the transactions that it wrote itself as a primary.
    let log = ReplicationSource { position: ReplicaPosition::WithOwnWrites, ..log.clone() };
    read_from(connection, &log, patience.saturating_sub(started.elapsed())).await
}

/// Kills the present sessions of clients. Returns when they have disappeared, or after `patience`. Does not
/// kill sessions whose commit waits for ACKs: if such a session is killed, its client may receive an OK for a
/// commit without an ACK.
async fn end_clients(connection: &mut Connection, patience: Duration) -> Result<(), ManagerError> {
    let started = Instant::now();
    let found = process_list::blocking_candidates(connection).await?;
    let mut there: BTreeSet<u64> = found.iter().map(|session| session.id).collect();
    let mut ended = BTreeSet::new();
    info!(server = connection.endpoint(), sessions = there.len(), "ending the sessions of clients");
    while !there.is_empty() && started.elapsed() < patience {
        let now = process_list::list(connection).await?;
        let left: Vec<_> = now
            .iter()
            .filter(|session| there.contains(&session.id) && !session.waits_for_acks())
            .map(|session| session.id)
            .collect();
        for session in &left {
            if ended.insert(*session) {
                process_list::kill(connection, *session).await?;
            }
        }
        there = left.into_iter().collect();
        if !there.is_empty() {
            pause(started).await;
        }
    }
    Ok(())
}
