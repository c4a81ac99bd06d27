//! Makes a server read-only or writable.
//!
//! A server changes `read_only` only after the running writes and commits have ended. By then, the failover
//! or switchover may have stopped waiting for the statement. Before this module sends a statement, it
//! therefore kills the sessions whose earlier statements are still pending.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tracing::info;

use super::process_list::{self, ProcessListEntry};
use super::replication_setup::{pause, run, too_long};
use crate::error::ManagerError;

/// A comment in each statement that changes `read_only`. Later actions find the statement in the process list
/// by this comment.
const MARK: &str = "/* tailwater: whether clients write */";

/// How long killed sessions may take to disappear from the process list.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// Makes the server writable until its next restart. After a restart, the server reads `read_only` from its
/// option file, which should contain it.
///
/// # Errors
/// As [`kill_pending_changes`], in which case nothing is changed; [`ManagerError::Session`].
pub async fn make_writable(connection: &mut Connection) -> Result<(), ManagerError> {
    kill_pending_changes(connection, &BTreeSet::new()).await?;
    let settings = match connection.server().flavour {
        Flavour::MySql => "GLOBAL super_read_only = 0, GLOBAL read_only = 0",
        Flavour::MariaDb => "GLOBAL read_only = 0",
    };
    run(connection, &format!("SET {settings} {MARK}")).await
}

/// Makes the server read-only, on MySQL also for administrators. The server waits up to `patience` for
/// running commits, including those that wait for ACKs.
///
/// # Errors
/// As [`make_writable`]; the server's error 1205 if commits did not end in time.
pub async fn make_read_only(connection: &mut Connection, patience: Duration) -> Result<(), ManagerError> {
    kill_pending_changes(connection, &BTreeSet::new()).await?;
    let seconds = patience.as_secs().max(1);
    run(connection, &format!("SET SESSION lock_wait_timeout = {seconds}")).await?;
    run(connection, &read_only(connection)).await
}

/// Returns the statement that makes the server read-only.
pub(super) fn read_only(connection: &Connection) -> String {
    let variable = match connection.server().flavour {
        Flavour::MySql => "super_read_only",
        Flavour::MariaDb => "read_only",
    };
    format!("SET GLOBAL {variable} = 1 {MARK}")
}

/// Kills all other sessions that execute a statement with the comment [`MARK`]. Also kills the sessions of
/// this account with an id in `pending`, whose statements may not have reached the server yet. Returns when
/// the killed sessions have disappeared: then their statements can no longer take effect.
///
/// # Errors
/// [`ManagerError::ActionTimeout`] if a session does not disappear; [`ManagerError::Session`].
pub(super) async fn kill_pending_changes(
    connection: &mut Connection,
    pending: &BTreeSet<u32>,
) -> Result<(), ManagerError> {
    let started = Instant::now();
    let own = connection.server().connection_id;
    loop {
        let mut holding = process_list::list(connection).await?;
        let user = holding.iter().find(|session| session.id_32() == own).map(|session| session.user.clone());
        // After a restart of the server, a session of another account may have one of the ids in `pending`.
        let is_ours = |session: &ProcessListEntry| user.as_ref().is_none_or(|user| session.user == *user);
        holding.retain(|session| {
            let is_pending = pending.contains(&session.id_32()) && is_ours(session);
            session.id_32() != own && (is_pending || session.text.contains(MARK))
        });
        if holding.is_empty() {
            return Ok(());
        }
        if started.elapsed() >= END_PATIENCE {
            let ids: Vec<String> = holding.iter().map(|session| session.id.to_string()).collect();
            let reason = format!("sessions {} may still change read_only", ids.join(", "));
            return Err(too_long(connection, "killing pending changes of read_only", END_PATIENCE, reason));
        }
        for session in &holding {
            info!(
                server = connection.endpoint(),
                session = session.id,
                "killing a pending change of read_only"
            );
            process_list::kill(connection, session.id).await?;
        }
        // A killed session disappears only after a moment.
        pause(started).await;
    }
}

/// Whether clients can write.
///
/// # Errors
/// [`ManagerError::Session`].
pub async fn is_writable(connection: &mut Connection) -> Result<bool, ManagerError> {
    let answer = connection.query("SELECT @@global.read_only").await?;
    // MariaDB 12 returns words instead of numbers.
    Ok(matches!(answer.scalar(), Some("0" | "OFF")))
}
