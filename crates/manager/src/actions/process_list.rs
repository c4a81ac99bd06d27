//! Reads the process list of a server, and kills sessions.

use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;

use super::replication_setup::run;
use crate::error::ManagerError;

/// Server error ER_NO_SUCH_THREAD.
const NO_SUCH_THREAD: u16 = 1094;

/// First words of statements that change nothing that other sessions can see.
const READS: [&str; 12] = [
    "select",
    "show",
    "set",
    "explain",
    "describe",
    "desc",
    "use",
    "kill",
    "begin",
    "start transaction",
    "analyze",
    "help",
];

/// One session of the process list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ProcessListEntry {
    /// Id of the session, as `KILL` takes it.
    pub(super) id: u64,
    pub(super) user: String,
    command: String,
    state: String,
    /// The beginning of the statement that the session executes.
    pub(super) text: String,
}

impl ProcessListEntry {
    /// The connection id as the server's greeting contains it, which has only 32 bits.
    pub(super) fn id_32(&self) -> u32 {
        // The server cuts the id to 32 bits in the same way for its greeting.
        u32::try_from(self.id & u64::from(u32::MAX)).unwrap_or_default()
    }

    /// Whether the session's commit waits for ACKs. Killing the session would make the commit visible without
    /// an ACK.
    pub(super) fn waits_for_acks(&self) -> bool {
        self.state.contains("semi-sync ACK")
    }

    /// Whether the session belongs to a client, not to replication or the server itself.
    pub(super) fn is_clients(&self) -> bool {
        !matches!(self.user.as_str(), "system user" | "event_scheduler" | "")
            && !matches!(self.command.as_str(), "Daemon" | "Slave_IO" | "Slave_SQL" | "Slave_worker")
            && !self.command.starts_with("Binlog Dump")
    }

    /// Whether the session executes a statement that may write and that can safely be killed.
    pub(super) fn writes(&self) -> bool {
        let waits_for_us = ["global read lock", "backup lock", "commit lock"];
        let text = self.text.trim_start().to_ascii_lowercase();
        self.is_clients()
            && matches!(self.command.as_str(), "Query" | "Execute")
            && !self.waits_for_acks()
            && !waits_for_us.iter().any(|lock| self.state.contains(lock))
            && !READS.iter().any(|read| text.starts_with(read))
    }
}

/// Returns all sessions, including the one of this connection.
///
/// # Errors
/// [`ManagerError::Session`].
pub(super) async fn list(connection: &mut Connection) -> Result<Vec<ProcessListEntry>, ManagerError> {
    let own = connection.server().connection_id;
    if connection.server().flavour == Flavour::MySql {
        let sessions = list_in(connection, "performance_schema").await?;
        if sessions.iter().any(|session| session.id_32() == own) {
            return Ok(sessions);
        }
    }
    // On MySQL this is only reached with performance_schema off, which leaves the process list in
    // `performance_schema` empty. Reading `information_schema.processlist` locks the process list for all
    // sessions.
    list_in(connection, "information_schema").await
}

async fn list_in(connection: &mut Connection, schema: &str) -> Result<Vec<ProcessListEntry>, ManagerError> {
    let question = format!("SELECT ID, USER, COMMAND, STATE, LEFT(INFO, 200) FROM {schema}.processlist");
    let answer = connection.query(&question).await?;
    let sessions = answer.rows.iter().map(|row| {
        let text = |at: usize| row.get_str(at).unwrap_or_default().to_owned();
        ProcessListEntry {
            id: text(0).parse().unwrap_or_default(),
            user: text(1),
            command: text(2),
            state: text(3),
            text: text(4),
        }
    });
    Ok(sessions.collect())
}

/// Returns the sessions of clients that may hold row, table or metadata locks for which an applier would
/// wait.
///
/// These are nearly all client sessions, because no server shows reliably who holds which lock. `innodb_trx`
/// is a snapshot that is refreshed only after 0.1 s without a read, so frequent monitoring makes it stale. It
/// also misses other engines, `LOCK TABLES`, and metadata locks of transactions that only read. MariaDB has
/// no other source by default.
///
/// Sessions of the account that this connection uses belong to Tailwater, and hold no transaction between
/// statements. Of these, only the sessions listed in `innodb_trx` are returned.
///
/// # Errors
/// [`ManagerError::Session`].
pub(super) async fn blocking_candidates(
    connection: &mut Connection,
) -> Result<Vec<ProcessListEntry>, ManagerError> {
    let answer = connection
        .query(
            "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx \
             WHERE trx_rows_modified > 0 OR trx_rows_locked > 0 OR trx_tables_locked > 0",
        )
        .await?;
    let ids: Vec<u64> =
        answer.rows.iter().filter_map(|row| row.get_str(0)).filter_map(|id| id.parse().ok()).collect();
    let own = connection.server().connection_id;
    let mut sessions = list(connection).await?;
    let user = sessions.iter().find(|session| session.id_32() == own).map(|session| session.user.clone());
    sessions.retain(|session| {
        let is_others = user.as_ref() != Some(&session.user);
        session.is_clients() && session.id_32() != own && (is_others || ids.contains(&session.id))
    });
    Ok(sessions)
}

/// Kills a session. If the session no longer exists, that is not an error.
///
/// # Errors
/// [`ManagerError::Session`].
pub(super) async fn kill(connection: &mut Connection, id: u64) -> Result<(), ManagerError> {
    match run(connection, &format!("KILL {id}")).await {
        Err(ManagerError::Session(SessionError::Server { error, .. })) if error.number == NO_SUCH_THREAD => {
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statements_that_write_and_do_not_wait_for_acks_are_killed() {
        let writes = |command: &str, state: &str, text: &str| {
            let session = ProcessListEntry {
                id: 7,
                user: "shop".to_owned(),
                command: command.to_owned(),
                state: state.to_owned(),
                text: text.to_owned(),
            };
            session.writes()
        };
        assert!(writes("Query", "updating", "UPDATE t SET a = SLEEP(9)"));
        assert!(writes("Execute", "", "  insert into t values (1)"));
        assert!(writes("Query", "altering table", "ALTER TABLE t ADD b INT"));
        assert!(!writes("Query", "User sleep", "SELECT SLEEP(9)"));
        assert!(!writes("Sleep", "", ""));
        assert!(!writes("Query", "Waiting for semi-sync ACK from replica", "COMMIT"));
        assert!(!writes("Query", "Waiting for semi-sync ACK from slave", "insert into t values (1)"));
        assert!(!writes("Query", "Waiting for global read lock", "INSERT INTO t VALUES (1)"));
        assert!(!writes("Query", "Waiting for backup lock", "INSERT INTO t VALUES (1)"));
        assert!(!writes("Binlog Dump GTID", "Source has sent all binlog to replica", ""));
    }
}
