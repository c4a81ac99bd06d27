//! Switches a server between read-only and writable.
//!
//! A server executes such a switch only after running writes and commits, possibly later than the run waits
//! for it. Each switch therefore first ends pending switches of earlier actions.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tracing::info;

use super::process_list::{self, ProcessListEntry};
use super::replication::{pause, run, too_long};
use crate::error::ManagerError;

/// Marks the statements so that later actions find them.
const MARK: &str = "/* tailwater: whether clients write */";

/// How long killed sessions may take to disappear.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// Makes the server writable until its next restart. After that its option file counts, which should say
/// read-only.
///
/// # Errors
/// As [`kill_pending_changes`], in which case nothing is changed; those of the session.
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

/// The statement that makes the server read-only.
pub(super) fn read_only(connection: &Connection) -> String {
    let variable = match connection.server().flavour {
        Flavour::MySql => "super_read_only",
        Flavour::MariaDb => "read_only",
    };
    format!("SET GLOBAL {variable} = 1 {MARK}")
}

/// Kills all other sessions that execute a marked statement, and the sessions in `pending` of this account,
/// whose statements may not have reached the server. Returns when they have disappeared: their statements can
/// no longer take effect.
///
/// # Errors
/// [`ManagerError::ActionTimeout`] if a session does not end; those of the session.
pub(super) async fn kill_pending_changes(
    connection: &mut Connection,
    pending: &BTreeSet<u32>,
) -> Result<(), ManagerError> {
    let started = Instant::now();
    let own = connection.server().connection_id;
    loop {
        let mut holding = process_list::list(connection).await?;
        let user = holding.iter().find(|session| session.id_32() == own).map(|session| session.user.clone());
        // After a server restart another session may have the same id.
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
            let reason = format!("sessions {} may still execute a switch", ids.join(", "));
            return Err(too_long(connection, "ending pending switches", END_PATIENCE, reason));
        }
        for session in &holding {
            info!(server = connection.endpoint(), session = session.id, "ending a pending switch");
            process_list::kill(connection, session.id).await?;
        }
        // A killed session takes a moment to disappear.
        pause(started).await;
    }
}

/// Whether clients can write.
///
/// # Errors
/// Those of the session.
pub async fn is_writable(connection: &mut Connection) -> Result<bool, ManagerError> {
    let answer = connection.query("SELECT @@global.read_only").await?;
    // MariaDB 12 returns words instead of numbers.
    Ok(matches!(answer.scalar(), Some("0" | "OFF")))
}
