//! Lets clients write to a server, and no longer.
//!
//! Who is told to may do it later than anybody waits for: a server waits for statements that write, and for commits. So whoever
//! changes it ends first what was told before.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tracing::info;

use super::process_list::{self, ProcessListEntry};
use super::replication::{pause, run, too_long};
use crate::error::ManagerError;

/// Marks the statements by which those who come later find them.
const MARK: &str = "/* tailwater: whether clients write */";

/// For the end of sessions that were ended.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// Lets clients write. Only for the running server: one that restarts comes up as its option file says, which should be
/// read-only.
///
/// # Errors
/// As [`kill_pending_changes`], and nothing is changed then; those of the conversation.
pub async fn make_writable(connection: &mut Connection) -> Result<(), ManagerError> {
    kill_pending_changes(connection, &BTreeSet::new()).await?;
    let settings = match connection.server().flavour {
        Flavour::MySql => "GLOBAL super_read_only = 0, GLOBAL read_only = 0",
        Flavour::MariaDb => "GLOBAL read_only = 0",
    };
    run(connection, &format!("SET {settings} {MARK}")).await
}

/// Lets nobody write any more, on MySQL not even administrators. A server waits for commits that are under way, but not
/// longer than `patience`: commits that wait for ACKs keep it waiting.
///
/// # Errors
/// As [`make_writable`]; the server's own (1205) if commits did not end in time.
pub async fn make_read_only(connection: &mut Connection, patience: Duration) -> Result<(), ManagerError> {
    kill_pending_changes(connection, &BTreeSet::new()).await?;
    let seconds = patience.as_secs().max(1);
    run(connection, &format!("SET SESSION lock_wait_timeout = {seconds}")).await?;
    run(connection, &read_only(connection)).await
}

/// The statement after which nobody writes any more.
pub(super) fn read_only(connection: &Connection) -> String {
    let variable = match connection.server().flavour {
        Flavour::MySql => "super_read_only",
        Flavour::MariaDb => "read_only",
    };
    format!("SET GLOBAL {variable} = 1 {MARK}")
}

/// Ends all other sessions that execute one of these statements, whoever told them, and those of this account among `told`:
/// what those were told may be on the way and nowhere to be seen. Is back when they are gone, and so is what they were told.
///
/// # Errors
/// [`ManagerError::ActionTimeout`] if one does not end; those of the conversation.
pub(super) async fn kill_pending_changes(
    connection: &mut Connection,
    told: &BTreeSet<u32>,
) -> Result<(), ManagerError> {
    let begun = Instant::now();
    let own = connection.server().connection_id;
    loop {
        let mut holding = process_list::list(connection).await?;
        let user = holding.iter().find(|session| session.id_32() == own).map(|session| session.user.clone());
        // After a restart of the server somebody else may have the number.
        let is_ours = |session: &ProcessListEntry| user.as_ref().is_none_or(|user| session.user == *user);
        holding.retain(|session| {
            let is_told = told.contains(&session.id_32()) && is_ours(session);
            session.id_32() != own && (is_told || session.text.contains(MARK))
        });
        if holding.is_empty() {
            return Ok(());
        }
        if begun.elapsed() >= END_PATIENCE {
            let ids: Vec<String> = holding.iter().map(|session| session.id.to_string()).collect();
            let reason = format!("sessions {} were told something that they may do yet", ids.join(", "));
            return Err(too_long(connection, "ending sessions that were told before", END_PATIENCE, reason));
        }
        for session in &holding {
            info!(server = connection.endpoint(), session = session.id, "ending what was told before");
            process_list::kill(connection, session.id).await?;
        }
        // One that ends has yet to find out.
        pause(begun).await;
    }
}

/// Whether clients can write.
///
/// # Errors
/// Those of the conversation.
pub async fn is_writable(connection: &mut Connection) -> Result<bool, ManagerError> {
    let answer = connection.query("SELECT @@global.read_only").await?;
    // MariaDB 12 has words for it.
    Ok(matches!(answer.scalar(), Some("0" | "OFF")))
}
