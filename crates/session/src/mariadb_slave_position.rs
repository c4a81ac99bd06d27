//! Sets `gtid_slave_pos` of a MariaDB server.
//!
//! `SET GLOBAL gtid_slave_pos` holds the server's replication mutex (`LOCK_active_mi`) while it waits for a
//! backup lock, by default for a day. A backup that holds this lock and asks for the replication status, as
//! mariadb-backup does, waits for the mutex: a deadlock that the server does not detect. All commits wait
//! until this deadlock ends. So the statement waits for at most one second, and is repeated.

use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::error::SessionError;

/// How long callers wait for a running backup to end before they give up the change of `gtid_slave_pos`.
pub const BACKUP_LOCK_WAIT_MAX: Duration = Duration::from_secs(60);

/// `ER_LOCK_WAIT_TIMEOUT`
const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// Pause between two attempts, in which a backup gets the mutex.
const PAUSE: Duration = Duration::from_millis(200);

/// Sets `gtid_slave_pos` to `position`, which is an SQL literal. Tries for at most `patience`, and at least
/// once.
///
/// # Errors
/// [`SessionError::Server`] if the server rejects the position, or if a backup holds its lock for longer than
/// `patience`.
pub async fn set_mariadb_slave_position(
    connection: &mut Connection,
    position: &str,
    patience: Duration,
) -> Result<(), SessionError> {
    let before = connection.query("SELECT @@SESSION.lock_wait_timeout").await?;
    let before = before.scalar().unwrap_or("86400").to_owned();
    connection.execute("SET SESSION lock_wait_timeout=1").await?;
    let result = set_repeatedly(connection, position, patience).await;
    // After another error the connection cannot be used any more.
    if matches!(result, Ok(()) | Err(SessionError::Server { .. })) {
        connection.execute(&format!("SET SESSION lock_wait_timeout={before}")).await?;
    }
    result
}

async fn set_repeatedly(
    connection: &mut Connection,
    position: &str,
    patience: Duration,
) -> Result<(), SessionError> {
    let started = Instant::now();
    loop {
        match connection.execute(&format!("SET GLOBAL gtid_slave_pos={position}")).await {
            Err(SessionError::Server { error, .. })
                if error.number == LOCK_WAIT_TIMEOUT && started.elapsed() < patience =>
            {
                tokio::time::sleep(PAUSE).await;
            }
            result => return result.map(|_| ()),
        }
    }
}
