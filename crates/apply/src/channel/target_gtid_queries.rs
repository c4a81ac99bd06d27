//! Reads the target's GTIDs, and sets the applied GTIDs on the target.

use std::time::Duration;

use tailwater_log::{LogHandle, LogPosition};
use tailwater_session::{Connection, SessionError, set_mariadb_slave_position};
use tailwater_wire::gtid::{Gtid, GtidSet, MariadbBinlogState, MariadbGtid, MariadbPosition};
use tailwater_wire::{Flavour, WireError};

use crate::error::ApplyError;
use tailwater_wire::sql_quote::portable_literal;

/// The target's GTIDs, in its own notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TargetGtids {
    /// The value of `gtid_executed` (MySQL) or `gtid_slave_pos` (MariaDB).
    pub(super) has: String,
    /// The GTIDs in the target's binlog: on MariaDB `gtid_binlog_state`, which includes the target's own
    /// writes.
    pub(super) logged: String,
}

/// Reads the target's GTIDs.
///
/// This function does not read MariaDB's `gtid_current_pos`, because after a local write, that variable
/// counts all lower sequence numbers of the source as applied.
///
/// # Errors
/// [`SessionError`] if the connection fails.
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

/// Returns which GTIDs of the log the target has. These are the GTIDs that the target has replicated. On a
/// former primary, they are also the GTIDs in its own binlog that the log's source has.
///
/// # Errors
/// If the server's text is not a valid set of GTIDs.
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

/// Returns GTIDs that are in the log and on the target, although the channel has not applied them; `None` if
/// there are none. `before` is the target's GTID set from the time when the channel was created.
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

/// Returns where a target with the GTIDs `has` starts in the log: at the newest segment for which the target
/// has all GTIDs of the earlier segments. The channel skips the transactions of that segment that the target
/// already has.
///
/// # Errors
/// [`ApplyError::Start`] if the target lacks transactions from before the log; [`ApplyError::Log`].
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
        _ => "unknown GTIDs, because the log starts in the middle of a binlog file".to_owned(),
    };
    Err(ApplyError::Start {
        reason: format!(
            "the target has {} and lacks {lacking}, which the log does not contain either; copy the source to the target \
             again, or start the channel with start = \"oldest\" if the target has the data under other GTIDs",
            if has.is_empty() { "no GTIDs".to_owned() } else { has.to_string() },
        ),
    })
}

/// The offset of the first event of a segment.
pub(super) const FIRST_EVENT_OFFSET: u64 = 4;

/// Sets the applied GTIDs on the target, so that native replication can continue from there.
///
/// # Errors
/// [`SessionError::Server`] if the target rejects the GTIDs, because the account lacks a privilege or
/// replication runs.
pub(super) async fn publish(connection: &mut Connection, applied: &GtidSet) -> Result<(), SessionError> {
    match (connection.server().flavour, applied) {
        (Flavour::MySql, GtidSet::MySql(applied)) => {
            // Add only the GTIDs that are not in `gtid_executed`, because `gtid_purged` can only grow and
            // rejects GTIDs that are already in `gtid_executed`.
            let sql = format!(
                "SELECT GTID_SUBTRACT({}, @@GLOBAL.gtid_executed)",
                portable_literal(&applied.to_string())
            );
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
                // If a backup blocks this statement, the channel tries again with its next transactions.
                set_mariadb_slave_position(connection, &portable_literal(&position), Duration::ZERO).await?;
            }
            Ok(())
        }
        // GTIDs of the other flavour cannot be set on this target.
        _ => Ok(()),
    }
}

/// Returns `applied` as a position. Domains of `now` that `applied` does not contain belong to other sources
/// and stay unchanged.
fn position_with(now: &str, applied: &MariadbBinlogState) -> String {
    let mut position = applied.position();
    if let Ok(now) = MariadbPosition::parse(now) {
        for gtid in now.iter().filter(|gtid| applied.last(gtid.domain).is_none()) {
            position.advance(gtid);
        }
    }
    position.to_string()
}

/// Returns the text of a GTID set, in the notation that servers of its flavour accept as a replication
/// position.
pub(super) fn text(gtids: &GtidSet) -> String {
    match gtids {
        GtidSet::MySql(set) => set.to_string(),
        GtidSet::MariaDb(state) => state.position().to_string(),
    }
}

/// Returns the start of a transaction's span in the log: the end of the transaction before it.
///
/// # Errors
/// [`ApplyError::Start`] if the log does not contain the transaction; [`ApplyError::Log`].
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
    Err(ApplyError::Start { reason: format!("the log does not contain {gtid}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_of_other_sources_stay_in_the_position() {
        let applied = MariadbBinlogState::parse("0-1-5,0-3-7").expect("the GTIDs must be valid");
        assert_eq!(position_with("", &applied), "0-3-7");
        assert_eq!(position_with("0-1-9,4-9-100", &applied), "0-3-7,4-9-100");
    }
}
