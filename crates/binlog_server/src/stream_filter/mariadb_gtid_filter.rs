//! While a stream is sent to a MariaDB client, tracks which transactions the client has and where the stream
//! stops. The rules are the same as in `send_event_to_slave` in `sql_repl.cc`.

use tailwater_wire::gtid::{MariadbBinlogState, MariadbGtid, MariadbGtidList};

use crate::client_error::ClientError;
use crate::stream_start::{MariadbSkip, not_in_binlog, written_by};

/// What a MariaDB client has, and where its stream stops.
#[derive(Debug)]
pub(super) struct MariadbFilter {
    skip: MariadbSkip,
    /// Whether the stream has just passed the client's position in a domain. A GTID list event must then
    /// announce this to the client.
    position_reached: bool,
    /// Whether all domains have reached their last GTID, so that the stream ends after this event group.
    ends: bool,
}

/// What is sent after an event group.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GroupEnd {
    pub list: Option<MariadbGtidList>,
    pub ends: bool,
}

impl MariadbFilter {
    pub fn new(skip: MariadbSkip) -> Self {
        let ends = skip.until.as_ref().is_some_and(|until| until.is_empty());
        // Like MariaDB, keep the binlog state from before the stream only for a client whose stream stops at
        // given GTIDs. For other clients, the GTID list has only the transactions that the stream has
        // skipped.
        let state = if skip.until.is_some() { skip.state } else { MariadbBinlogState::new() };
        Self { skip: MariadbSkip { state, ..skip }, position_reached: false, ends }
    }

    /// Whether the client may already have some of the transactions that follow in the stream.
    pub fn is_skipping(&self) -> bool {
        !self.skip.domains.is_empty()
    }

    /// Whether the stream sends all transactions from now on, and no GTID list. If so, [`Self::has`] need not
    /// be called any more.
    pub fn sends_everything(&self) -> bool {
        self.skip.domains.is_empty() && self.skip.until.is_none() && !self.position_reached && !self.ends
    }

    /// Whether to leave the transaction out of the stream, because the client has it or because it is after
    /// the GTID at which the client's stream stops. `log` returns the state of the whole log. It is used for
    /// domains that had no transaction when the stream started.
    ///
    /// # Errors
    /// If the log does not have the client's GTID. Also if the client uses strict mode and its GTID is in a
    /// hole of the log.
    pub fn has(
        &mut self,
        gtid: &MariadbGtid,
        log: &dyn Fn() -> MariadbBinlogState,
    ) -> Result<bool, ClientError> {
        self.skip.state.update(*gtid);
        let before_start = self.is_before_start(gtid, log)?;
        let past_end = self.is_past_end(gtid);
        Ok(before_start || past_end)
    }

    fn is_before_start(
        &mut self,
        gtid: &MariadbGtid,
        log: &dyn Fn() -> MariadbBinlogState,
    ) -> Result<bool, ClientError> {
        let Some(domain) = self.skip.domains.get_mut(&gtid.domain) else { return Ok(false) };
        let start = domain.gtid;
        if domain.was_empty {
            let log = log();
            let last = written_by(&log, start.domain, start.server_id);
            if last.is_none_or(|last| last < start.sequence) {
                return Err(not_in_binlog(&start, &log));
            }
            domain.was_empty = false;
        }
        if gtid.server_id != start.server_id {
            return Ok(true);
        }
        if gtid.sequence >= start.sequence {
            if self.skip.strict && gtid.sequence > start.sequence {
                return Err(ClientError::dump(format!(
                    "The binlog on the master is missing the GTID {start} requested by the slave (even \
                     though both a prior and a subsequent sequence number does exist), and GTID strict mode \
                     is enabled"
                )));
            }
            self.position_reached = true;
            self.skip.domains.remove(&gtid.domain);
        }
        Ok(gtid.sequence <= start.sequence)
    }

    fn is_past_end(&mut self, gtid: &MariadbGtid) -> bool {
        let Some(until) = &mut self.skip.until else { return false };
        let Some(last) = until.get(&gtid.domain).copied() else {
            // The stream has already passed the last GTID of this domain.
            return true;
        };
        if gtid.server_id != last.server_id || gtid.sequence < last.sequence {
            return false;
        }
        until.remove(&gtid.domain);
        self.ends = until.is_empty();
        // The GTID at which the client's stream stops may not exist in the log. In that case, leave out the
        // first later GTID of the domain.
        gtid.sequence > last.sequence || self.skip.until_before
    }

    /// Returns what to send after the event group, or the single event, that was just sent or skipped.
    pub fn end_group(&mut self) -> GroupEnd {
        let reached = std::mem::take(&mut self.position_reached);
        let list = |flags| MariadbGtidList { flags, ..self.skip.state.to_list() };
        let list = match (self.ends, reached) {
            (true, _) => Some(list(MariadbGtidList::FLAG_UNTIL_REACHED)),
            (false, true) => Some(list(0)),
            (false, false) => None,
        };
        GroupEnd { list, ends: self.ends }
    }
}
