//! The state of a rejoin. It is stored in the schema `tailwater` of the rejoining server, so that an
//! interrupted rejoin can continue.

use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use crate::error::RejoinError;
use tailwater_wire::sql_quote::portable_literal;

const SCHEMA: [&str; 2] = [
    "CREATE DATABASE IF NOT EXISTS tailwater",
    "CREATE TABLE IF NOT EXISTS tailwater.rejoin (\
       only_row TINYINT UNSIGNED NOT NULL PRIMARY KEY, \
       step VARCHAR(16) CHARACTER SET ascii NOT NULL, \
       had LONGTEXT CHARACTER SET utf8mb4 NOT NULL, \
       keeps LONGTEXT CHARACTER SET utf8mb4 NOT NULL, \
       exec_mode VARCHAR(16) CHARACTER SET ascii NOT NULL, \
       noted_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP\
     ) ENGINE=InnoDB COMMENT='How far this server was brought back as a replica'",
];

/// The last completed step of a rejoin. The rejoin stores it in the same transaction as the step, or before
/// the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejoinStep {
    /// The rejoin has started, and has changed nothing yet.
    Started,
    /// The transactions that only this server had are undone.
    Undone,
    /// The lost transactions are reapplied. The server's GTIDs must still be set to [`RejoinRecord::keeps`].
    Reapplied,
    /// The server's GTIDs are set to [`RejoinRecord::keeps`].
    GtidsSet,
}

impl RejoinStep {
    fn name(self) -> &'static str {
        match self {
            Self::Started => "begun",
            Self::Undone => "undone",
            Self::Reapplied => "done_again",
            Self::GtidsSet => "counted",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Started, Self::Undone, Self::Reapplied, Self::GtidsSet]
            .into_iter()
            .find(|step| step.name() == name)
    }
}

/// The stored state of a rejoin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejoinRecord {
    /// The last completed step of the rejoin.
    pub step: RejoinStep,
    /// GTID set of the server at the start of the rejoin.
    pub had: GtidSet,
    /// GTID set that the server must have at the end of the rejoin.
    pub keeps: GtidSet,
    /// The original `slave_exec_mode` of MariaDB. The rejoin changes the global value, and restores it at the
    /// end.
    pub exec_mode: String,
}

impl RejoinRecord {
    /// Returns the SQL statement that stores this rejoin state.
    pub(crate) fn statement(&self) -> String {
        format!(
            "REPLACE INTO tailwater.rejoin (only_row, step, had, keeps, exec_mode) VALUES (1, '{}', {}, {}, {})",
            self.step.name(),
            portable_literal(&self.had.to_string()),
            portable_literal(&self.keeps.to_string()),
            portable_literal(&self.exec_mode)
        )
    }

    /// Returns how to continue on a server that has the GTID set `now`. `binlog_is_empty` is true if no event
    /// was written to the binlog since its reset.
    ///
    /// # Errors
    /// [`RejoinError::Impossible`] if another client has written to the server in the meantime: the stored
    /// state then no longer describes the server.
    pub fn resume(&self, now: &GtidSet, binlog_is_empty: bool) -> Result<RejoinResume, RejoinError> {
        let is = |set: &GtidSet| now.is_subset_of(set) && set.is_subset_of(now);
        match self.step {
            RejoinStep::Undone if is(&self.had) => Ok(RejoinResume::AfterUndo),
            // The interruption may have come after the reset of the GTIDs and before they were set again.
            RejoinStep::Reapplied if is(&self.had) || is(&self.keeps) || binlog_is_empty => {
                Ok(RejoinResume::SetGtids(self.keeps.clone()))
            }
            // The rejoin has changed nothing yet, or an earlier rejoin has completed.
            RejoinStep::Started | RejoinStep::GtidsSet => Ok(RejoinResume::FromStart),
            RejoinStep::Undone | RejoinStep::Reapplied => Err(RejoinError::Impossible {
                reason: format!(
                    "a rejoin was interrupted when the server had {}, and now it has {now}: a client has written to the server since; \
                     copy the server from scratch (--copy)",
                    self.had
                ),
            }),
        }
    }
}

/// At which step a rejoin continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RejoinResume {
    /// The rejoin continues at the start, with the plan of the repair.
    FromStart,
    /// The rejoin continues after the undo, with the transactions to reapply.
    AfterUndo,
    /// The rejoin continues at the last step: only the GTIDs must still be set.
    SetGtids(GtidSet),
}

/// Creates the table for the rejoin state. The session must not write to the binlog.
///
/// # Errors
/// Connection errors.
pub(crate) async fn create(connection: &mut Connection) -> Result<(), SessionError> {
    for statement in SCHEMA {
        connection.execute(statement).await?;
    }
    Ok(())
}

/// Reads the stored rejoin state; `None` if there is none.
///
/// # Errors
/// [`RejoinError::Session`]; [`RejoinError::Impossible`] if the stored rejoin state cannot be decoded.
pub(crate) async fn read(
    connection: &mut Connection,
    flavour: Flavour,
) -> Result<Option<RejoinRecord>, RejoinError> {
    let asked = connection.query("SELECT step, had, keeps, exec_mode FROM tailwater.rejoin").await;
    let rows = match asked {
        // ER_BAD_DB_ERROR or ER_NO_SUCH_TABLE: no rejoin was ever started on this server.
        Err(SessionError::Server { error, .. }) if matches!(error.number, 1049 | 1146) => return Ok(None),
        other => other?,
    };
    let Some(row) = rows.first() else { return Ok(None) };
    let wrong = |what: &str| RejoinError::Impossible {
        reason: format!(
            "the state of an earlier rejoin on the server (tailwater.rejoin) cannot be decoded: {what}; copy the server from scratch (--copy)"
        ),
    };
    let text = |column: usize| row.get_str(column).unwrap_or_default();
    let step = RejoinStep::parse(text(0)).ok_or_else(|| wrong(text(0)))?;
    let set =
        |column: usize| GtidSet::parse(flavour, text(column)).map_err(|error| wrong(&error.to_string()));
    Ok(Some(RejoinRecord { step, had: set(1)?, keeps: set(2)?, exec_mode: text(3).to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_rejoin_resumes_or_is_refused_and_undoes_transactions_only_once() {
        let set = |text: &str| GtidSet::parse(Flavour::MariaDb, text).expect("the GTIDs must be valid");
        let record = |step| {
            let exec_mode = "STRICT".to_owned();
            RejoinRecord { step, had: set("0-1-9"), keeps: set("0-1-7"), exec_mode }
        };
        let check = |step, now: &str| record(step).resume(&set(now), now.is_empty()).ok();
        assert_eq!(check(RejoinStep::Undone, "0-1-9"), Some(RejoinResume::AfterUndo));
        assert_eq!(check(RejoinStep::Undone, "0-1-10"), None);
        assert_eq!(check(RejoinStep::Undone, ""), None);
        for now in ["0-1-9", "0-1-7", ""] {
            assert_eq!(
                check(RejoinStep::Reapplied, now),
                Some(RejoinResume::SetGtids(set("0-1-7"))),
                "{now}"
            );
        }
        assert_eq!(check(RejoinStep::Reapplied, "0-1-8"), None);
        assert_eq!(check(RejoinStep::Started, "0-1-12"), Some(RejoinResume::FromStart));
        assert_eq!(check(RejoinStep::GtidsSet, "0-1-12"), Some(RejoinResume::FromStart));
        for step in [RejoinStep::Started, RejoinStep::Undone, RejoinStep::Reapplied, RejoinStep::GtidsSet] {
            assert_eq!(RejoinStep::parse(step.name()), Some(step));
        }
    }
}
