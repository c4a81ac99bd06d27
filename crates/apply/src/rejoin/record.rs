//! What a rejoin notes on the server it is about, in schema `tailwater`, so that one that was killed is gone on with.

use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use crate::channel::sql_literal::quote;
use crate::error::ApplyError;

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

/// How far it is. Each is noted with what it says, in one transaction, or before what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejoinStep {
    /// It has begun, and nothing is done yet.
    Begun,
    /// What only this server had is undone.
    Undone,
    /// What it had lost is done again; its GTIDs are to become `keeps`.
    DoneAgain,
    /// Its GTIDs are `keeps`.
    Counted,
}

impl RejoinStep {
    fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Undone => "undone",
            Self::DoneAgain => "done_again",
            Self::Counted => "counted",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Begun, Self::Undone, Self::DoneAgain, Self::Counted]
            .into_iter()
            .find(|step| step.name() == name)
    }
}

/// What was noted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejoinRecord {
    /// How far it was.
    pub step: RejoinStep,
    /// The server's GTIDs when it began.
    pub had: GtidSet,
    /// What its GTIDs are to be.
    pub keeps: GtidSet,
    /// MariaDB's `slave_exec_mode` as it was before; it is set for all of the server meanwhile.
    pub exec_mode: String,
}

impl RejoinRecord {
    /// The statement that notes it.
    pub(super) fn statement(&self) -> String {
        format!(
            "REPLACE INTO tailwater.rejoin (only_row, step, had, keeps, exec_mode) VALUES (1, '{}', {}, {}, {})",
            self.step.name(),
            quote(&self.had.to_string()),
            quote(&self.keeps.to_string()),
            quote(&self.exec_mode)
        )
    }

    /// What to do with a server that was on its way, and has `now`. `binlog_is_empty` if it has written nothing since its
    /// binlog was removed.
    ///
    /// # Errors
    /// [`ApplyError::Rejoin`] if the server has written since: then what was noted is not about what is there.
    pub fn go_on(&self, now: &GtidSet, binlog_is_empty: bool) -> Result<RejoinResume, ApplyError> {
        let is = |set: &GtidSet| now.is_subset_of(set) && set.is_subset_of(now);
        match self.step {
            RejoinStep::Undone if is(&self.had) => Ok(RejoinResume::BehindUndoing),
            // They may have been forgotten, and not yet set.
            RejoinStep::DoneAgain if is(&self.had) || is(&self.keeps) || binlog_is_empty => {
                Ok(RejoinResume::Count(self.keeps.clone()))
            }
            // Nothing was done, or an earlier rejoin came to its end.
            RejoinStep::Begun | RejoinStep::Counted => Ok(RejoinResume::Anew),
            RejoinStep::Undone | RejoinStep::DoneAgain => Err(ApplyError::Rejoin {
                reason: format!(
                    "a rejoin was interrupted when the server had {}, and now it has {now}: it was written to since; \
                     copy the server from scratch (--copy)",
                    self.had
                ),
            }),
        }
    }
}

/// Where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RejoinResume {
    /// At the beginning.
    Anew,
    /// What only the server had is undone already.
    BehindUndoing,
    /// All is done but for its GTIDs.
    Count(GtidSet),
}

/// Makes the table. The session logs nothing.
///
/// # Errors
/// Anything that breaks the connection.
pub(super) async fn create(connection: &mut Connection) -> Result<(), SessionError> {
    for statement in SCHEMA {
        connection.execute(statement).await?;
    }
    Ok(())
}

/// What was noted; `None` if nothing ever was.
///
/// # Errors
/// [`ApplyError::Session`]; [`ApplyError::Rejoin`] if it is not understood.
pub(super) async fn read(
    connection: &mut Connection,
    flavour: Flavour,
) -> Result<Option<RejoinRecord>, ApplyError> {
    let asked = connection.query("SELECT step, had, keeps, exec_mode FROM tailwater.rejoin").await;
    let rows = match asked {
        // ER_BAD_DB_ERROR, ER_NO_SUCH_TABLE
        Err(SessionError::Server { error, .. }) if matches!(error.number, 1049 | 1146) => return Ok(None),
        other => other?,
    };
    let Some(row) = rows.first() else { return Ok(None) };
    let wrong = |what: &str| ApplyError::Rejoin {
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
    fn an_interrupted_rejoin_is_gone_on_with_or_refused_and_never_undone_twice() {
        let set = |text: &str| GtidSet::parse(Flavour::MariaDb, text).expect("GTIDs");
        let record = |step| {
            let exec_mode = "STRICT".to_owned();
            RejoinRecord { step, had: set("0-1-9"), keeps: set("0-1-7"), exec_mode }
        };
        let check = |step, now: &str| record(step).go_on(&set(now), now.is_empty()).ok();
        assert_eq!(check(RejoinStep::Undone, "0-1-9"), Some(RejoinResume::BehindUndoing));
        assert_eq!(check(RejoinStep::Undone, "0-1-10"), None);
        assert_eq!(check(RejoinStep::Undone, ""), None);
        for now in ["0-1-9", "0-1-7", ""] {
            assert_eq!(check(RejoinStep::DoneAgain, now), Some(RejoinResume::Count(set("0-1-7"))), "{now}");
        }
        assert_eq!(check(RejoinStep::DoneAgain, "0-1-8"), None);
        assert_eq!(check(RejoinStep::Begun, "0-1-12"), Some(RejoinResume::Anew));
        assert_eq!(check(RejoinStep::Counted, "0-1-12"), Some(RejoinResume::Anew));
        for step in [RejoinStep::Begun, RejoinStep::Undone, RejoinStep::DoneAgain, RejoinStep::Counted] {
            assert_eq!(RejoinStep::parse(step.name()), Some(step));
        }
    }
}
