//! Prepares a server for its rejoin: makes it read-only, disconnects its clients, and ends commits that wait
//! for semi-sync ACKs.

use std::time::Duration;

use tailwater_session::{ConnectOptions, Connection, QueryResult, SessionError};
use tailwater_wire::Flavour;
use tokio::time::Instant;

use crate::error::RejoinError;

/// How long the server may take to end its running commits and client connections.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval at which the process list is read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Names of the variable that enables semi-sync on a source, in all releases.
const SEMI_SYNC: [&str; 2] = ["rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled"];

/// Stops replication, sets `read_only`, and ends all client connections.
///
/// A commit may still wait for a semi-sync ACK, and the statement that sets `read_only` waits for that
/// commit. Semi-sync is switched off to end the wait, but only after the client can no longer receive the OK.
/// This OK would be wrong, because another server is already the primary and does not have the commit.
///
/// # Errors
/// [`RejoinError::Session`]; [`RejoinError::Impossible`] if clients do not disconnect in time.
pub(crate) async fn quiesce(options: &ConnectOptions) -> Result<(), RejoinError> {
    let mut connection = Connection::connect(options).await?;
    let mut setter = Connection::connect(options).await?;
    let ids = [id_of(&mut connection).await?, id_of(&mut setter).await?];
    stop_replication(&mut connection).await?;
    let mut setting = std::pin::pin!(setter.execute("SET GLOBAL read_only=1"));
    let deadline = Instant::now() + QUIESCE_TIMEOUT;
    let (mut is_blocked, mut is_set) = (false, false);
    // Ids of the connections that existed when `read_only` was set. Later connections cannot write.
    let mut before: Option<Vec<u64>> = None;
    loop {
        let list = connection.query("SHOW PROCESSLIST").await?;
        let mut clients = clients(&list, &ids);
        match &before {
            Some(before) => clients.retain(|client| before.contains(client)),
            None if is_set => before = Some(clients.clone()),
            None => {}
        }
        if is_set && clients.is_empty() {
            release_commits(&mut connection).await?;
            break;
        }
        // As long as a client can start a new write, kill no connection and leave semi-sync on. After `SET
        // read_only` is sent, a client can still start a commit until the server executes `SET read_only`.
        // With semi-sync off, that commit would get its OK without an ACK.
        if is_blocked {
            for client in &clients {
                kill(&mut connection, *client).await?;
            }
            // All client connections are killed and shut by now, so no client can receive an OK.
            release_commits(&mut connection).await?;
        }
        if Instant::now() > deadline {
            return Err(RejoinError::Impossible {
                reason: format!(
                    "the server still has {} client connections that do not end; end them, or restart the server",
                    clients.len()
                ),
            });
        }
        is_blocked = is_set || waits_for_lock(&list, ids[1]);
        tokio::select! {
            set = &mut setting, if !is_set => {
                set?;
                is_set = true;
            }
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
    if connection.server().flavour == Flavour::MySql {
        // `super_read_only` would also block this rejoin; `read_only` stays set.
        connection.execute("SET GLOBAL super_read_only=0").await?;
    }
    connection.close().await;
    Ok(())
}

async fn id_of(connection: &mut Connection) -> Result<u64, RejoinError> {
    let id = connection.query("SELECT CONNECTION_ID()").await?;
    Ok(id.first().and_then(|row| row.get_u64(0)).unwrap_or_default())
}

/// Stops replication. A former primary does not replicate, but a server whose rejoin was interrupted may
/// replicate already.
async fn stop_replication(connection: &mut Connection) -> Result<(), RejoinError> {
    let sql = match connection.server().flavour {
        Flavour::MySql => "STOP REPLICA",
        Flavour::MariaDb => "STOP ALL SLAVES",
    };
    connection.execute(sql).await?;
    Ok(())
}

/// Returns the ids of client connections except `ours`, including binlog readers. Connections that wait for a
/// semi-sync ACK come last.
///
/// In MariaDB one connection waits for the ACK of a whole commit group. If it is killed, its wait ends, and
/// those other connections of the group that are still open get an OK.
fn clients(list: &QueryResult, ours: &[u64]) -> Vec<u64> {
    let is_client = |row: &&tailwater_session::TextRow| {
        let user = row.get_str(1).unwrap_or_default();
        let command = row.get_str(4).unwrap_or_default();
        !matches!(user, "system user" | "event_scheduler") && !matches!(command, "Daemon")
    };
    let waits = |row: &tailwater_session::TextRow| {
        row.get_str(6).is_some_and(|state| state.contains("semi-sync ACK"))
    };
    let of = |row: &tailwater_session::TextRow| row.get_u64(0).map(|id| (waits(row), id));
    let mut found: Vec<_> = list.rows.iter().filter(is_client).filter_map(of).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, id)| id).filter(|id| !ours.contains(id)).collect()
}

/// Whether the connection that sets `read_only` waits for writers or commits. While it waits, no new write
/// can start. The state in the process list is "Waiting for backup lock" in MariaDB, and "Waiting for global
/// read lock" or "Waiting for commit lock" in MySQL.
fn waits_for_lock(list: &QueryResult, setter: u64) -> bool {
    let row = list.rows.iter().find(|row| row.get_u64(0) == Some(setter));
    row.and_then(|row| row.get_str(6)).is_some_and(|state| state.starts_with("Waiting for "))
}

async fn kill(connection: &mut Connection, id: u64) -> Result<(), RejoinError> {
    match connection.execute(&format!("KILL {id}")).await {
        // ER_NO_SUCH_THREAD: the connection is already closed.
        Err(SessionError::Server { error, .. }) if error.number == 1094 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// Switches semi-sync off, so that commits no longer wait for an ACK.
async fn release_commits(connection: &mut Connection) -> Result<(), RejoinError> {
    let names = SEMI_SYNC.map(|name| format!("'{name}'")).join(", ");
    let sql = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names}) AND Value IN ('ON', '1')");
    for row in connection.query(&sql).await?.rows {
        let name = row.get_str(0).unwrap_or_default();
        if SEMI_SYNC.contains(&name) {
            connection.execute(&format!("SET GLOBAL {name}=0")).await?;
        }
    }
    Ok(())
}
