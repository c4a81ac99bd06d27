//! Lets clients write to a server, and no longer.

use std::time::Duration;

use tailwater_session::Connection;
use tailwater_wire::Flavour;

use super::replication::run;
use crate::error::ManagerError;

/// Lets clients write. Only for the running server: one that restarts comes up as its option file says, which should be
/// read-only.
///
/// # Errors
/// Those of the conversation.
pub async fn make_writable(connection: &mut Connection) -> Result<(), ManagerError> {
    let statement = match connection.server().flavour {
        Flavour::MySql => "SET GLOBAL super_read_only = 0, GLOBAL read_only = 0",
        Flavour::MariaDb => "SET GLOBAL read_only = 0",
    };
    run(connection, statement).await
}

/// Lets nobody write any more, on MySQL not even administrators. A server waits for commits that are under way, but not
/// longer than `patience`: commits that wait for ACKs keep it waiting.
///
/// # Errors
/// Those of the conversation, the server's own (1205) if commits did not end in time.
pub async fn make_read_only(connection: &mut Connection, patience: Duration) -> Result<(), ManagerError> {
    let seconds = patience.as_secs().max(1);
    run(connection, &format!("SET SESSION lock_wait_timeout = {seconds}")).await?;
    run(
        connection,
        match connection.server().flavour {
            Flavour::MySql => "SET GLOBAL super_read_only = 1",
            Flavour::MariaDb => "SET GLOBAL read_only = 1",
        },
    )
    .await
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
