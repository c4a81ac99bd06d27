//! Pauses and resumes writes on a primary, in bounded time.
//!
//! When a server is made read-only, it first completes running writes and commits, which wait for ACKs, and
//! blocks new writes. This wait is part of the pause. If it exceeds the limit, the attempt is cancelled and
//! the server takes writes again.
//!
//! Statements that delay the pause are killed after a grace period. A commit that waits for ACKs is never
//! killed, because the kill would make the commit visible without an ACK.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tailwater_session::Connection;
use tailwater_wire::gtid::GtidSet;
use tracing::info;

use super::process_list::{self, ProcessListEntry};
use super::replication_setup::{executed, failed, run, too_long};
use super::{read_only_switch, semi_sync_source};
use crate::error::ManagerError;

const DOING: &str = "pausing writes";

/// Interval at which the process list is checked for sessions that delay the pause.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Makes the server read-only, on MySQL also for administrators. Returns what the server has executed. The
/// connection `setter` waits for the server; `other` monitors the process list, and kills statements that
/// delay the pause after `grace`.
///
/// # Errors
/// [`ManagerError::ActionTimeout`] if sessions delayed the pause for longer than `within`. The error contains
/// the number of these sessions. The server then takes writes again. The exception is an attempt to pause
/// writes that does not end: the message then says so.
pub(super) async fn hold_writes(
    setter: &mut Connection,
    other: &mut Connection,
    within: Duration,
    grace: Duration,
) -> Result<GtidSet, ManagerError> {
    let started = Instant::now();
    let ours = [setter.server().connection_id, other.server().connection_id];
    // A pending statement could make the server writable after this function has made it read-only. That
    // would create two primaries.
    read_only_switch::kill_pending_changes(other, &BTreeSet::new()).await?;
    let statement = read_only_switch::read_only(setter);
    let setting = run(setter, &statement);
    tokio::pin!(setting);
    let mut next = grace.min(within);
    let holding = loop {
        tokio::select! {
            done = &mut setting => {
                done?;
                return executed(other).await;
            }
            () = tokio::time::sleep_until((started + next).into()) => {}
        }
        let mut holding = process_list::list(other).await?;
        holding.retain(|session: &ProcessListEntry| !ours.contains(&session.id_32()));
        if started.elapsed() >= within {
            break holding;
        }
        for session in holding.iter().filter(|session| session.writes()) {
            info!(
                server = other.endpoint(),
                session = session.id,
                "killing a statement that delays the pause"
            );
            process_list::kill(other, session.id).await?;
        }
        next = (started.elapsed() + LOOK_EVERY).min(within);
    };
    // The statement that makes the server read-only was either killed, or completed at the last moment. In
    // both cases the server must be writable afterwards.
    let ended = match read_only_switch::kill_pending_changes(other, &BTreeSet::from([ours[0]])).await {
        Ok(()) => {
            read_only_switch::make_writable(other).await?;
            ""
        }
        Err(ManagerError::ActionTimeout { .. }) => ", and the attempt to pause writes does not end",
        Err(error) => return Err(error),
    };
    let waiting = holding.iter().filter(|session| session.waits_for_acks()).count();
    let writing = holding.iter().filter(|session| session.writes()).count();
    let reason = format!("{waiting} commits wait for ACKs, {writing} statements write{ended}");
    Err(too_long(other, DOING, within, reason))
}

/// Undoes [`hold_writes`]. First kills all pending statements that would make the server read-only. Before
/// the first commit is reported to a client, commits wait for at least `acks` ACKs. Returns a note for the
/// operator, if any.
///
/// # Errors
/// [`ManagerError::ActionFailed`] if commits do not wait, in which case nothing is changed, or if clients
/// cannot write afterwards; the errors of [`read_only_switch::make_writable`]; [`ManagerError::Session`].
pub(super) async fn release_writes(
    connection: &mut Connection,
    acks: u32,
) -> Result<Option<String>, ManagerError> {
    let note = semi_sync_source::restore_waiting(connection, acks).await?;
    read_only_switch::make_writable(connection).await?;
    if !read_only_switch::is_writable(connection).await? {
        return Err(failed(connection, "resuming writes", "the server is still read-only".to_owned()));
    }
    Ok(note)
}

#[cfg(test)]
mod tests {
    use anyhow::{Result, ensure};
    use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
    use tailwater_session::ConnectOptions;

    use super::*;

    #[tokio::test]
    async fn sessions_that_still_change_read_only_are_killed_on_mysql_97() -> Result<()> {
        sessions_with_pending_switches_are_killed(ServerKind::Mysql97).await
    }

    #[tokio::test]
    async fn sessions_that_still_change_read_only_are_killed_on_mariadb_1011() -> Result<()> {
        sessions_with_pending_switches_are_killed(ServerKind::Mariadb1011).await
    }

    /// A statement on a killed session must not take effect.
    async fn sessions_with_pending_switches_are_killed(kind: ServerKind) -> Result<()> {
        if require(kind).is_none() {
            return Ok(());
        }
        let server = Server::start(ServerSpec::new(kind)).await?;
        server.sql("CREATE USER app@'%' IDENTIFIED BY 'app'").await?;
        let mut setter = Connection::connect(&server.connect_options()).await?;
        let mut other = Connection::connect(&server.connect_options()).await?;
        let pending = BTreeSet::from([setter.server().connection_id]);
        // `acks` = 0 means that the number of ACKs is unknown. The server must stay read-only, because it
        // does not wait for ACKs.
        read_only_switch::make_read_only(&mut other, Duration::from_secs(60)).await?;
        ensure!(release_writes(&mut other, 0).await.is_err());
        ensure!(!read_only_switch::is_writable(&mut other).await?);
        read_only_switch::kill_pending_changes(&mut other, &pending).await?;
        release_writes(&mut other, 1).await?;
        semi_sync_source::verify_waiting(&mut other, 1).await?;
        let late = read_only_switch::read_only(&setter);
        ensure!(run(&mut setter, &late).await.is_err());
        ensure!(read_only_switch::is_writable(&mut other).await?);
        // The call must not kill its own session. It must also not kill a session of another account,
        // although the id of that session is in `pending`.
        let app = ConnectOptions { user: "app".into(), password: "app".into(), ..server.connect_options() };
        let mut app = Connection::connect(&app).await?;
        let pending = [other.server().connection_id, app.server().connection_id].into();
        read_only_switch::kill_pending_changes(&mut other, &pending).await?;
        app.ping().await?;
        other.ping().await?;
        Ok(())
    }
}
