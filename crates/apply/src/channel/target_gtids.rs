//! What the target's own GTID position says, and telling it what was applied.

use tailwater_log::{LogHandle, LogPosition};
use tailwater_session::{Connection, SessionError};
use tailwater_wire::gtid::{Gtid, GtidSet, MariadbBinlogState, MariadbGtid, MariadbPosition};
use tailwater_wire::{Flavour, WireError};

use super::sql_literal::quote;
use crate::error::ApplyError;

/// What a target says that it has, in its own notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TargetGtids {
    /// `gtid_executed`, or `gtid_slave_pos`.
    pub(super) has: String,
    /// What else its binlog holds: MariaDB's `gtid_binlog_state`. Local writes are among it.
    pub(super) logged: String,
}

/// Asks the target what it has.
///
/// MariaDB's `gtid_current_pos` is not asked for: it counts a write that somebody made on the target itself as if all that
/// the source wrote under lower numbers were there.
///
/// # Errors
/// Anything that breaks the connection.
pub(super) async fn read_target_gtids(connection: &mut Connection) -> Result<TargetGtids, SessionError> {
    let sql = match connection.server().flavour {
        Flavour::MySql => "SELECT @@GLOBAL.gtid_executed, ''",
        Flavour::MariaDb => "SELECT @@GLOBAL.gtid_slave_pos, @@GLOBAL.gtid_binlog_state",
    };
    let rows = connection.query(sql).await?;
    let text = |column: usize| {
        let value = rows.first().and_then(|row| row.get_str(column));
        value.unwrap_or_default().replace('\n', "")
    };
    Ok(TargetGtids { has: text(0), logged: text(1) })
}

/// What the target has of the log: what it has replicated, and of its own binlog what the log's source has too, as that
/// of a former primary.
///
/// # Errors
/// Text that names no GTIDs.
pub(super) fn gtids_of_log(
    log: &LogHandle,
    target: &TargetGtids,
    flavour: Flavour,
) -> Result<GtidSet, WireError> {
    let has = GtidSet::parse(flavour, &target.has)?;
    let (Some(GtidSet::MariaDb(known)), Flavour::MariaDb) = (log.gtid_set(), flavour) else { return Ok(has) };
    let is_known = |gtid: &MariadbGtid| {
        known.iter().any(|known| {
            (known.domain, known.server_id) == (gtid.domain, gtid.server_id)
                && gtid.sequence <= known.sequence
        })
    };
    let own = MariadbBinlogState::parse(&target.logged)?;
    let own = MariadbBinlogState::from_gtids(own.iter().filter(is_known));
    has.union(&GtidSet::MariaDb(own))
}

/// What the target says that it has of the log although the channel has not applied it; `before` is what it had when the
/// channel began.
pub(super) fn unapplied_on_target(
    log: &LogHandle,
    has: &GtidSet,
    before: &GtidSet,
    applied: &GtidSet,
) -> Option<String> {
    match (has, log.gtid_set()?, before, applied) {
        (GtidSet::MySql(has), GtidSet::MySql(logged), GtidSet::MySql(before), GtidSet::MySql(applied)) => {
            let beyond = has.intersect(&logged).subtract(before).subtract(applied);
            (!beyond.is_empty()).then(|| beyond.to_string())
        }
        (
            GtidSet::MariaDb(has),
            GtidSet::MariaDb(logged),
            GtidSet::MariaDb(before),
            GtidSet::MariaDb(applied),
        ) => {
            let is_beyond = |gtid: &MariadbGtid| {
                logged.last(gtid.domain).is_some() && !before.contains(gtid) && !applied.contains(gtid)
            };
            has.position().iter().find(is_beyond).map(|gtid| gtid.to_string())
        }
        _ => None,
    }
}

/// Where in the log a target goes on that has `has`: the newest segment before which it lacks nothing. What it has of that
/// segment is to be passed over.
///
/// # Errors
/// [`ApplyError::Start`] if it lacks something that is before the log; [`ApplyError::Log`].
pub(super) fn start_after(log: &LogHandle, has: &GtidSet) -> Result<LogPosition, ApplyError> {
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
            let now = connection.query("SELECT @@GLOBAL.gtid_slave_pos").await?;
            let now = now.scalar().unwrap_or_default();
            let position = position_with(now, state);
            if now != position {
                connection.execute(&format!("SET GLOBAL gtid_slave_pos={}", quote(&position))).await?;
            }
            Ok(())
        }
        // The other family's GTIDs mean nothing to it.
        _ => Ok(()),
    }
}

/// `applied` as a position, with those domains of `now` that it does not name: they are those of other sources.
fn position_with(now: &str, applied: &MariadbBinlogState) -> String {
    let mut position = applied.position();
    if let Ok(now) = MariadbPosition::parse(now) {
        for gtid in now.iter().filter(|gtid| applied.last(gtid.domain).is_none()) {
            position.advance(gtid);
        }
    }
    position.to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_of_other_sources_keep_their_place() {
        let applied = MariadbBinlogState::parse("0-1-5,0-3-7").expect("GTIDs");
        assert_eq!(position_with("", &applied), "0-3-7");
        assert_eq!(position_with("0-1-9,4-9-100", &applied), "0-3-7,4-9-100");
    }
}
