//! Streams by MySQL's auto-position: the client sends the set of its GTIDs.

use tailwater_wire::gtid::{GtidSet, MysqlGtidSet};

use super::{LogHistory, SkipSet, StartDecision, at_segment, empty, newest_first, unknown_beginning};
use crate::client_error::ClientError;
use tailwater_wire::binlog_event::FIRST_EVENT_OFFSET;

/// The maximum length in bytes of the GTID sets in an error message. Clients keep 512 bytes of an error, and
/// the rest of its text must fit too.
const PURGED_BYTES_MAX: usize = 290;

/// The maximum length in bytes of the list of transactions by which a client is ahead of the log.
const AHEAD_BYTES_MAX: usize = 110;

pub(super) fn by_gtids(
    has: &MysqlGtidSet,
    position: u64,
    log: &dyn LogHistory,
) -> Result<StartDecision, ClientError> {
    if position < FIRST_EVENT_OFFSET {
        return Ok(StartDecision::refuse("Client requested source to start replication from position < 4"));
    }
    let mut oldest = None;
    // Choose the newest segment for which the client has all earlier transactions. Then the stream has to
    // skip the fewest transactions.
    for segment in newest_first(log) {
        let before = log.gtids_before(segment)?.map(mysql_set).transpose()?;
        match before {
            Some(before) if has.is_superset_of(&before) => return begin(segment, &before, has, log),
            before => oldest = Some(before),
        }
    }
    Ok(match oldest {
        None => empty(log),
        Some(Some(purged)) => StartDecision::refuse(purged_message(has, &purged.subtract(has))),
        Some(None) => StartDecision::refuse(format!("{PURGED} {}", unknown_beginning(log))),
    })
}

fn begin(
    segment: u64,
    before: &MysqlGtidSet,
    has: &MysqlGtidSet,
    log: &dyn LogHistory,
) -> Result<StartDecision, ClientError> {
    let executed = mysql_set(log.gtids())?;
    // Subtract `before` too, because it may have transactions older than the log that `executed` lacks. If
    // the log began in the middle of a file, the GTID list of a later file may name such transactions.
    let ahead = own_transactions(has, log.source_uuid()).subtract(before).subtract(&executed);
    if !ahead.is_empty() {
        return Ok(StartDecision::wait(has_more(&ahead)));
    }
    let resumes = !has.subtract(before).intersect(&executed).is_empty();
    let begin = at_segment(segment, log, SkipSet::Mysql { has: has.clone(), resumes });
    Ok(begin.unwrap_or_else(|| empty(log)))
}

fn mysql_set(set: GtidSet) -> Result<MysqlGtidSet, ClientError> {
    match set {
        GtidSet::MySql(set) => Ok(set),
        GtidSet::MariaDb(_) => {
            Err(ClientError::dump("the log is of a MariaDB source, but the client sends MySQL GTIDs"))
        }
    }
}

/// Returns the client's transactions that the captured source originally committed.
fn own_transactions(has: &MysqlGtidSet, source: Option<[u8; 16]>) -> MysqlGtidSet {
    let mut own = MysqlGtidSet::new();
    let Some(source) = source else { return own };
    for (uuid, tag, interval) in has.iter_intervals().filter(|(uuid, _, _)| **uuid == source) {
        // The interval comes from a valid set, so inserting it cannot fail.
        let _ = own.insert_interval(*uuid, tag, interval);
    }
    own
}

const PURGED: &str = "Cannot replicate because the source purged required binary logs. Replicate the missing \
                      transactions from elsewhere, or provision a new replica from backup. Consider \
                      increasing the source's binary log expiration period.";

fn purged_message(has: &MysqlGtidSet, missing: &MysqlGtidSet) -> String {
    let sets = format!(
        "The GTID set sent by the replica is '{has:#}', and the missing transactions are '{missing:#}'"
    );
    match sets.len() <= PURGED_BYTES_MAX {
        true => format!("{PURGED} {sets}"),
        false => format!(
            "{PURGED} The GTID sets and the missing purged transactions are too long to print in this \
             message. For more information, please see the manual for GTID_SUBTRACT and SELECT \
             @@GLOBAL.gtid_purged here"
        ),
    }
}

fn has_more(ahead: &MysqlGtidSet) -> String {
    let ahead = ahead.to_string();
    let named = match ahead.len() <= AHEAD_BYTES_MAX {
        true => format!(": {ahead}"),
        false => String::new(),
    };
    format!(
        "Replica has more GTIDs than the source has, using the source's SERVER_UUID{named}. The source may \
         have lost transactions that were already replicated to the replica, or this log no longer \
         follows it. Replicate any transactions that the source has rolled back from the replica to the \
         source, and check the capture of this log"
    )
}
