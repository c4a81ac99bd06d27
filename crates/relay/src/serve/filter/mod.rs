//! What of the log goes into one client's stream. Pure.
//!
//! Transactions are decided on as a whole, by their GTIDs; a skipped one need not even be read. The rules are the servers'
//! own: `Binlog_sender::skip_event` of MySQL, `send_event_to_slave` of MariaDB.

mod rewrite;

use std::collections::BTreeMap;

use tailwater_wire::event::{EventHeader, EventType};
use tailwater_wire::gtid::{Gtid, MariadbBinlogState, MariadbGtid};

pub use rewrite::{artificial_rotate, gtid_list, head, heartbeat, renamed_rotate};

use super::refusal::Refusal;
use super::start::{DumpRequest, MariadbSkip, Skip, not_in_binlog, written_by};

/// A GTID of a hole in MariaDB's binlog, in strict mode.
const ER_GTID_START_FROM_BINLOG_HOLE: u16 = 1951;

/// What becomes of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is sent.
    pub send: bool,
    /// Behind it a GTID list is sent, so that a MariaDB replica notes where it stands.
    pub list_after: bool,
    /// It is the last that the client wants.
    pub last: bool,
}

impl Verdict {
    const SEND: Self = Self { send: true, list_after: false, last: false };
    const SKIP: Self = Self { send: false, list_after: false, last: false };
}

/// Decides, for one client.
#[derive(Debug)]
pub struct Filter {
    skip: Skip,
    annotate_rows: bool,
    skip_marked: bool,
}

impl Filter {
    /// For a stream that begins with `skip`.
    pub fn new(request: &DumpRequest, skip: Skip) -> Self {
        Self { skip, annotate_rows: request.annotate_rows, skip_marked: request.skip_marked }
    }

    /// Whether the client was here before: temporary tables that it has made since must stay.
    pub fn resumes(&self) -> bool {
        match &self.skip {
            Skip::Nothing => false,
            Skip::Mysql { resumes, .. } => *resumes,
            Skip::Mariadb(skip) => !skip.domains.is_empty(),
        }
    }

    /// Whether the stream ends before its first transaction: an end that was reached already.
    pub fn is_at_its_end(&self) -> bool {
        matches!(&self.skip, Skip::Mariadb(skip) if skip.until.as_ref().is_some_and(BTreeMap::is_empty))
    }

    /// Decides on the next transaction of the log. `log_state` says what a MariaDB log holds by now.
    ///
    /// # Errors
    /// The client's position turns out to be one that the log never had.
    pub fn transaction(
        &mut self,
        gtid: Option<&Gtid>,
        log_state: impl FnOnce() -> Option<MariadbBinlogState>,
    ) -> Result<Verdict, Refusal> {
        match (&mut self.skip, gtid) {
            (Skip::Mysql { has, .. }, Some(Gtid::MySql(gtid))) if has.contains_gtid(gtid) => {
                Ok(Verdict::SKIP)
            }
            (Skip::Mariadb(skip), Some(Gtid::MariaDb(gtid))) => mariadb(skip, *gtid, log_state),
            _ => Ok(Verdict::SEND),
        }
    }

    /// Whether an event of the log goes out, one of a transaction that does or one between transactions.
    pub fn sends(&self, header: &EventHeader) -> bool {
        let unwanted_annotation =
            header.event_type == EventType::MARIADB_ANNOTATE_ROWS && !self.annotate_rows;
        let marked = self.skip_marked && header.has(EventHeader::FLAG_SKIP_REPLICATION);
        !unwanted_annotation && !marked
    }

    /// The state of a MariaDB log where the stream stands.
    pub fn mariadb_state(&self) -> Option<&MariadbBinlogState> {
        match &self.skip {
            Skip::Mariadb(skip) => Some(&skip.state),
            _ => None,
        }
    }
}

fn mariadb(
    skip: &mut MariadbSkip,
    gtid: MariadbGtid,
    log_state: impl FnOnce() -> Option<MariadbBinlogState>,
) -> Result<Verdict, Refusal> {
    skip.state.update(gtid);
    let mut verdict = Verdict::SEND;
    if let Some(domain) = skip.domains.get_mut(&gtid.domain) {
        let wanted = domain.gtid;
        if domain.was_empty {
            let state = log_state().unwrap_or_default();
            if written_by(&state, wanted.domain, wanted.server_id).is_none_or(|last| last < wanted.sequence) {
                return Err(not_in_binlog(&wanted, &state));
            }
            domain.was_empty = false;
        }
        let same_server = gtid.server_id == wanted.server_id;
        verdict.send = same_server && gtid.sequence > wanted.sequence;
        if same_server && gtid.sequence >= wanted.sequence {
            if skip.strict && gtid.sequence > wanted.sequence {
                return Err(Refusal::new(
                    ER_GTID_START_FROM_BINLOG_HOLE,
                    format!(
                        "The binlog on the master is missing the GTID {wanted} requested by the slave (even though both a \
                         prior and a subsequent sequence number does exist), and GTID strict mode is enabled"
                    ),
                ));
            }
            verdict.list_after = true;
            skip.domains.remove(&gtid.domain);
        }
    }
    if let Some(until) = &mut skip.until {
        match until.get(&gtid.domain) {
            // This domain has come to its end.
            None => verdict.send = false,
            Some(end) if end.server_id == gtid.server_id && gtid.sequence >= end.sequence => {
                verdict.send &= gtid.sequence == end.sequence && !skip.until_before;
                until.remove(&gtid.domain);
                verdict.last = until.is_empty();
            }
            Some(_) => {}
        }
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests;
