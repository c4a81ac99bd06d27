//! The sessions of a server: what each does, and the end of those that hold on.

use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;

use super::replication::run;
use crate::error::ManagerError;

/// There is no such session (any more).
const NO_SUCH_THREAD: u16 = 1094;

/// Begins of statements that change nothing that others see.
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

/// One session, as the process list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ProcessListEntry {
    /// As `KILL` takes it.
    pub(super) id: u64,
    pub(super) user: String,
    command: String,
    state: String,
    /// The statement, the front of it.
    pub(super) text: String,
}

impl ProcessListEntry {
    /// Its id as a server greets with it.
    pub(super) fn id_32(&self) -> u32 {
        // Cut, as there.
        u32::try_from(self.id & u64::from(u32::MAX)).unwrap_or_default()
    }

    /// Its commit waits for ACKs: it must not be ended, or it would be seen without one.
    pub(super) fn waits_for_acks(&self) -> bool {
        self.state.contains("semi-sync ACK")
    }

    /// It belongs to a client, and not to replication or the server itself.
    pub(super) fn is_clients(&self) -> bool {
        !matches!(self.user.as_str(), "system user" | "event_scheduler" | "")
            && !matches!(self.command.as_str(), "Daemon" | "Slave_IO" | "Slave_SQL" | "Slave_worker")
            && !self.command.starts_with("Binlog Dump")
    }

    /// It executes a statement that may write, and could be ended.
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

/// All sessions, this one among them.
///
/// # Errors
/// Those of the conversation.
pub(super) async fn list(connection: &mut Connection) -> Result<Vec<ProcessListEntry>, ManagerError> {
    let own = connection.server().connection_id;
    if connection.server().flavour == Flavour::MySql {
        let sessions = list_in(connection, "performance_schema").await?;
        if sessions.iter().any(|session| session.id_32() == own) {
            return Ok(sessions);
        }
        // It is switched off, and shows nobody. The other one is a lock for everybody while it is read.
    }
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

/// The sessions of clients that may hold what an applier would wait for: locks of rows, of tables, of their definitions.
///
/// That is all of them. No server tells from outside who holds what: `innodb_trx` shows how it was when nobody had read it for
/// 0.1 s, which beside a monitoring that reads it more often is long ago, and knows of no locks of definitions, which a
/// transaction holds that has only read, of no `LOCK TABLES` and no other engine; MariaDB has nothing else by default. Of this account, which is for
/// Tailwater and whose sessions look from one statement to the next, only those that it does show.
///
/// # Errors
/// Those of the conversation.
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

/// Ends a session; one that has ended by itself is as good.
///
/// # Errors
/// Those of the conversation.
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
    fn only_statements_that_write_and_hold_on_are_ended() {
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
