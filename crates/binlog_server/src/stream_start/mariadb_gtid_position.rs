//! Streams by MariaDB's GTID positions: the client sends its last GTID of each domain.

use std::collections::BTreeMap;

use tailwater_wire::gtid::{GtidSet, MariadbBinlogState, MariadbGtid};

use super::{
    LogHistory, MariadbRequest, SkipSet, StartDecision, at_segment, empty, newest_first, unknown_beginning,
};
use crate::client_error::{ClientError, quoted};

/// Which transactions of the log a MariaDB client already has, and where its stream stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MariadbSkip {
    /// The domains in which the stream starts before the client's position.
    pub domains: BTreeMap<u32, SkipDomain>,
    /// Strict mode: whether it is an error if the log lacks the client's GTID, but has earlier and later
    /// GTIDs of the same domain.
    pub strict: bool,
    /// For each domain in which the stream has not reached its stop position yet: the GTID at which it stops.
    /// `None` if the client requested no stop position.
    pub until: Option<BTreeMap<u32, MariadbGtid>>,
    /// Whether the stream leaves out the transactions with the GTIDs in `until` themselves.
    pub until_before: bool,
    /// The source's binlog state (`gtid_binlog_state`) at the start of the stream.
    pub state: MariadbBinlogState,
}

/// Which transactions of a domain are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkipDomain {
    /// The last transaction of the domain that the client has.
    pub gtid: MariadbGtid,
    /// Whether the log had no transaction of this domain when the stream started. When the stream sends the
    /// first transaction of the domain, the client's GTID must be in the log.
    pub was_empty: bool,
}

/// The highest sequence number in a domain of the transactions that the server `server_id` itself wrote.
pub(crate) fn written_by(state: &MariadbBinlogState, domain: u32, server_id: u32) -> Option<u64> {
    let mut entries = state.iter().filter(|gtid| gtid.domain == domain && gtid.server_id == server_id);
    entries.next().map(|gtid| gtid.sequence)
}

/// The error for a client whose position is not in the log.
pub(crate) fn not_in_binlog(gtid: &MariadbGtid, state: &MariadbBinlogState) -> ClientError {
    let message = format!(
        "Error: connecting slave requested to start from GTID {gtid}, which is not in the master's binlog"
    );
    ClientError::dump(match is_ahead(gtid, state) {
        true => message,
        false => format!(
            "{message}. Since the master's binlog contains GTIDs with higher sequence numbers, it probably \
             means that the slave has diverged due to executing extra erroneous transactions"
        ),
    })
}

fn is_ahead(gtid: &MariadbGtid, state: &MariadbBinlogState) -> bool {
    state.last(gtid.domain).is_none_or(|last| last.sequence < gtid.sequence)
}

pub(super) fn by_gtids(request: &MariadbRequest, log: &dyn LogHistory) -> Result<StartDecision, ClientError> {
    let state = mariadb_state(log.gtids())?;
    let (mut domains, mut until) = match check_position(request, &state) {
        Ok(checked) => checked,
        Err(outcome) => return Ok(outcome),
    };
    let mut oldest = None;
    for segment in newest_first(log) {
        let before = log.gtids_before(segment)?.map(mariadb_state).transpose()?;
        if let Some(before) = before {
            if follows_directly(&domains, &before) {
                pass_over(&before, &mut domains, &mut until);
                let skip = MariadbSkip {
                    domains,
                    strict: request.strict,
                    until,
                    until_before: request.until_before,
                    state: before,
                };
                let begin = at_segment(segment, log, SkipSet::Mariadb(Box::new(skip)));
                return Ok(begin.unwrap_or_else(|| empty(log)));
            }
            oldest = Some(Some(before));
        } else {
            oldest = Some(None);
        }
    }
    const TOO_OLD: &str = "Could not find GTID state requested by slave in any binlog files. Probably the \
                           slave state is too old and required binlog files have been purged.";
    Ok(match oldest {
        None => empty(log),
        Some(Some(before)) => StartDecision::refuse(format!(
            "{TOO_OLD} The slave has '{}', and the log begins after '{}'",
            quoted(&request.position.to_string()),
            quoted(&before.position().to_string())
        )),
        Some(None) => StartDecision::refuse(format!("{TOO_OLD} Or {}", unknown_beginning(log))),
    })
}

fn mariadb_state(set: GtidSet) -> Result<MariadbBinlogState, ClientError> {
    match set {
        GtidSet::MariaDb(state) => Ok(state),
        GtidSet::MySql(_) => {
            Err(ClientError::dump("the log is of a MySQL source, but the client sends MariaDB GTIDs"))
        }
    }
}

type PositionCheck = (BTreeMap<u32, SkipDomain>, Option<BTreeMap<u32, MariadbGtid>>);

/// Checks that each of the client's GTIDs is in the log or may still be captured
/// (`check_slave_start_position`). A server also checks the client's GTIDs against its own replica position
/// (`gtid_slave_pos`); the log has no such position.
fn check_position(
    request: &MariadbRequest,
    state: &MariadbBinlogState,
) -> Result<PositionCheck, StartDecision> {
    let mut domains = BTreeMap::new();
    let mut until: Option<BTreeMap<u32, MariadbGtid>> =
        request.until.as_ref().map(|until| until.iter().map(|gtid| (gtid.domain, gtid)).collect());
    let has = |gtid: &MariadbGtid| {
        written_by(state, gtid.domain, gtid.server_id).is_some_and(|last| last >= gtid.sequence)
    };
    for gtid in request.position.iter() {
        let last = state.last(gtid.domain);
        domains.insert(gtid.domain, SkipDomain { gtid, was_empty: last.is_none() });
        if has(&gtid) || last.is_none() {
            continue;
        }
        if request.ignore_duplicates && is_ahead(&gtid, state) {
            continue;
        }
        if let Some(until) = &mut until
            && until.get(&gtid.domain).is_none_or(has)
        {
            // In this domain the client's stop position is before its start position. So the stream has
            // nothing of this domain.
            until.remove(&gtid.domain);
            continue;
        }
        let refusal = not_in_binlog(&gtid, state);
        return Err(match is_ahead(&gtid, state) {
            true => StartDecision::Wait(refusal),
            false => StartDecision::Refuse(refusal),
        });
    }
    Ok((domains, until))
}

/// Whether all transactions that the client lacks come after the binlog state `before`. This is the rule of
/// MariaDB's function `contains_all_slave_gtid`.
fn follows_directly(domains: &BTreeMap<u32, SkipDomain>, before: &MariadbBinlogState) -> bool {
    before.iter().all(|past| {
        let Some(SkipDomain { gtid, .. }) = domains.get(&past.domain) else {
            // The client has no transaction of this domain, so it needs the domain from its beginning.
            return false;
        };
        // Sequence numbers of different servers cannot be compared. If the server is the same, the client's
        // GTID must be the last GTID of the domain or a later one.
        gtid.server_id != past.server_id
            || gtid.sequence > past.sequence
            || (gtid.sequence == past.sequence && before.last(past.domain) == Some(past))
    })
}

/// Removes the domains that need no check while the stream is sent. In such a domain the stream has nothing
/// to skip for the client, or starts after the stop position.
fn pass_over(
    before: &MariadbBinlogState,
    domains: &mut BTreeMap<u32, SkipDomain>,
    until: &mut Option<BTreeMap<u32, MariadbGtid>>,
) {
    for past in before.iter() {
        if domains.get(&past.domain).is_some_and(|domain| domain.gtid == past) {
            domains.remove(&past.domain);
        }
        if let Some(until) = until
            && until
                .get(&past.domain)
                .is_some_and(|last| last.server_id == past.server_id && last.sequence <= past.sequence)
        {
            until.remove(&past.domain);
        }
    }
}
