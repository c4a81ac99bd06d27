//! What the target's own GTID position says, and telling it what was applied.

use tailwater_log::{LogHandle, LogPosition};
use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{Gtid, GtidSet};

use super::text::quote;
use crate::error::ApplyError;

/// What the target has, by its own word, in its own notation.
///
/// # Errors
/// Anything that breaks the connection.
pub(super) async fn target_position(connection: &mut Connection) -> Result<String, SessionError> {
    let sql = match connection.server().flavour {
        Flavour::MySql => "SELECT @@GLOBAL.gtid_executed",
        Flavour::MariaDb => "SELECT @@GLOBAL.gtid_current_pos",
    };
    Ok(connection.query(sql).await?.scalar().unwrap_or_default().replace('\n', ""))
}

/// Where in the log a target goes on that has `has`: the newest segment before which it lacks nothing. What it has of that
/// segment is to be passed over.
///
/// # Errors
/// [`ApplyError::Start`] if it lacks something that is before the log; [`ApplyError::Log`].
pub(super) fn start_behind(log: &LogHandle, has: &GtidSet) -> Result<LogPosition, ApplyError> {
    let segments = log.segments();
    for segment in segments.iter().rev() {
        let before = log.gtids_before(segment.number)?;
        if before.is_some_and(|before| before.is_subset_of(has)) {
            return Ok(LogPosition { segment: segment.number, offset: FIRST_EVENT_OFFSET });
        }
    }
    let Some(oldest) = segments.first() else { return Ok(LogPosition::ZERO) };
    let before = log.gtids_before(oldest.number)?;
    let lacking = match before.map(|before| before.subtract(has)).transpose() {
        Ok(Some(difference)) => difference.to_string(),
        _ => "what the log cannot name, because it began in the middle of a binlog file".to_owned(),
    };
    Err(ApplyError::Start {
        reason: format!(
            "the target has {}, and lacks {lacking}, which the log does not hold either; copy the target anew, or begin \
             with start = \"oldest\" if it has the data under other GTIDs",
            if has.is_empty() { "no GTIDs".to_owned() } else { has.to_string() },
        ),
    })
}

/// Offset of the first event of a segment.
pub(super) const FIRST_EVENT_OFFSET: u64 = 4;

/// Tells the target what was applied, so that native replication can go on from there.
///
/// # Errors
/// [`SessionError::Server`] if the target does not take it, because the user may not, or replication runs.
pub(super) async fn publish(connection: &mut Connection, applied: &GtidSet) -> Result<(), SessionError> {
    match (connection.server().flavour, applied) {
        (Flavour::MySql, GtidSet::MySql(applied)) => {
            // gtid_purged only grows, and takes nothing that is in gtid_executed already.
            let sql =
                format!("SELECT GTID_SUBTRACT({}, @@GLOBAL.gtid_executed)", quote(&applied.to_string()));
            let new = connection.query(&sql).await?.scalar().unwrap_or_default().replace('\n', "");
            if !new.is_empty() {
                connection.execute(&format!("SET GLOBAL gtid_purged='+{new}'")).await?;
            }
            Ok(())
        }
        (Flavour::MariaDb, GtidSet::MariaDb(state)) => {
            let position = state.position().to_string();
            let now = connection.query("SELECT @@GLOBAL.gtid_slave_pos").await?;
            if now.scalar() != Some(&position) {
                connection.execute(&format!("SET GLOBAL gtid_slave_pos={}", quote(&position))).await?;
            }
            Ok(())
        }
        // The other family's GTIDs mean nothing to it.
        _ => Ok(()),
    }
}

/// A set in its flavour's notation, as the servers take it for a position.
pub(super) fn text(gtids: &GtidSet) -> String {
    match gtids {
        GtidSet::MySql(set) => set.to_string(),
        GtidSet::MariaDb(state) => state.position().to_string(),
    }
}

/// Where the span of a transaction of the log begins: at the end of the transaction before it.
///
/// # Errors
/// [`ApplyError::Start`] if the log does not hold it; [`ApplyError::Log`].
pub(super) fn position_of(log: &LogHandle, gtid: &Gtid) -> Result<LogPosition, ApplyError> {
    let segments = log.segments();
    for (index, segment) in segments.iter().enumerate().rev() {
        let before = log.gtids_before(segment.number)?;
        if index > 0 && before.is_some_and(|before| before.contains(gtid)) {
            continue;
        }
        let mut start = LogPosition { segment: segment.number, offset: FIRST_EVENT_OFFSET };
        let mut reader = log.reader(start)?;
        while let Some(entry) = reader.try_next()? {
            if entry.gtid.as_ref() == Some(gtid) {
                return Ok(start);
            }
            if entry.is_transaction() {
                start = entry.end();
            }
        }
    }
    Err(ApplyError::Start { reason: format!("the log does not hold {gtid}") })
}
