//! Checks with the target's own status counters that the target has changed as many rows as it received.
//!
//! A server can silently ignore the rows of an event. This happens if the server does not find the rows'
//! table among the mapped tables. It also happens if `slave_exec_mode` was set to `IDEMPOTENT` while the
//! channel runs. A `BINLOG` statement does not report how many rows it has changed, but the session's
//! `Handler_write`, `Handler_update` and `Handler_delete` do.
//!
//! Reading these counters costs a server 0.1 to 0.4 ms, because it goes through all its counters. So they are
//! not read before every commit. They are read if the batch is the first with rows of some table, or if it
//! has many rows. They are also read if the time since the last check is at least twenty times as long as
//! reading them takes. The next check also counts the rows that were committed without a check.
//!
//! On MySQL, any client's `FLUSH STATUS` resets the counters of all sessions. The check recognizes a reset by
//! `Com_select`, which each query raises by one. If a reset happens between two readings, the rows that were
//! sent between them cannot be checked.

use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;
use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;

use crate::batch::RowGroup;
use crate::error::ApplyError;
use crate::writeset::IndexId;

/// A batch of at least this many rows is always checked: applying the batch takes many times longer than
/// reading the counters.
const UNCHECKED_ROWS_MAX: u64 = 4096;

/// If there is no other reason for a check, the time since the last check must be at least this many times as
/// long as reading the counters takes.
const TIME_FRACTION: u32 = 20;

/// Counts the rows that a session sent, and compares them with the server's counters.
#[derive(Debug)]
pub(super) struct RowCount {
    /// The query for the `Handler_...` counters; `None` if the server cannot answer this query.
    query: Option<&'static str>,
    tally: RowTally,
}

/// The numbers of rows that the session sent and that the server counted.
#[derive(Debug)]
struct RowTally {
    /// The counters at the last query. `None` if a statement with an unknown effect on the counters has run
    /// since then.
    counted: Option<HandlerCounters>,
    /// Number of rows sent since the last query.
    sent: u64,
    /// Number of the rows in `sent` that are committed.
    committed: u64,
    /// Tables of which a check has counted rows at least once.
    checked_tables: FxHashSet<IndexId>,
    /// Tables that are not in `checked_tables`. Rows of these tables were sent since the last query of the
    /// counters.
    unchecked_tables: FxHashSet<IndexId>,
    checked_at: Instant,
    /// How long the last query of the counters took.
    took: Duration,
}

/// The counters that the server keeps for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HandlerCounters {
    /// Number of changed rows.
    changes: u64,
    /// Number of queries, including those of the check.
    selects: u64,
}

impl HandlerCounters {
    /// Returns the number of rows changed since the counters `before`. `None` if the counters were reset
    /// after `before` was read.
    fn since(self, before: Self) -> Option<u64> {
        if self.selects <= before.selects {
            return None;
        }
        self.changes.checked_sub(before.changes)
    }
}

impl RowCount {
    /// Returns the row count of a new session.
    pub(super) fn new(flavour: Flavour) -> Self {
        let query = match flavour {
            Flavour::MySql => {
                "SELECT SUM(IF(VARIABLE_NAME = 'Com_select', 0, VARIABLE_VALUE)), \
                 SUM(IF(VARIABLE_NAME = 'Com_select', VARIABLE_VALUE, 0)) FROM performance_schema.session_status \
                 WHERE VARIABLE_NAME IN ('Handler_write', 'Handler_update', 'Handler_delete', 'Com_select')"
            }
            Flavour::MariaDb => {
                "SELECT SUM(IF(VARIABLE_NAME = 'COM_SELECT', 0, VARIABLE_VALUE)), \
                 SUM(IF(VARIABLE_NAME = 'COM_SELECT', VARIABLE_VALUE, 0)) FROM information_schema.SESSION_STATUS \
                 WHERE VARIABLE_NAME IN ('HANDLER_WRITE', 'HANDLER_UPDATE', 'HANDLER_DELETE', 'COM_SELECT')"
            }
        };
        Self { query: Some(query), tally: RowTally::new(Instant::now()) }
    }

    /// Records that rows were sent as events.
    pub(super) fn send(&mut self, groups: &[RowGroup<'_>]) {
        for group in groups {
            let table = &group.table.target;
            self.tally.send(table.rows, group.rows.len() as u64 * table.counted_per_row());
        }
    }

    /// Records that a statement with an unknown effect on the counters ran or was rolled back.
    pub(super) fn reset(&mut self) {
        self.tally.reset();
    }

    /// Records that the sent rows have committed.
    pub(super) fn commit(&mut self) {
        self.tally.committed = self.tally.sent;
    }

    /// Returns whether a check is due before the sent rows commit.
    pub(super) fn is_due(&self) -> bool {
        self.query.is_some() && self.tally.is_due(Instant::now())
    }

    /// Reads the counters before the next statements run, unless the counters are already known.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn start_counting(&mut self, connection: &mut Connection) -> Result<(), ApplyError> {
        if self.tally.counted.is_some() {
            return Ok(());
        }
        match self.is_due() {
            true => self.tally.counted = self.read_counters(connection).await?,
            // The counters from before these rows are unknown, so the changes of these rows cannot be
            // counted.
            false => self.tally.sent = 0,
        }
        Ok(())
    }

    /// Checks the rows that were sent and whose statements have run.
    ///
    /// # Errors
    /// [`ApplyError::RowCountMismatch`]; [`ApplyError::Session`].
    pub(super) async fn check(&mut self, connection: &mut Connection) -> Result<(), ApplyError> {
        if self.tally.counted.is_none() {
            return Ok(());
        }
        match self.read_counters(connection).await? {
            Some(now) => self.tally.check(now, Instant::now()),
            None => Ok(()),
        }
    }

    async fn read_counters(
        &mut self,
        connection: &mut Connection,
    ) -> Result<Option<HandlerCounters>, ApplyError> {
        let Some(query) = self.query else { return Ok(None) };
        let started = Instant::now();
        // If the server returns no counters, do not ask it again. A MySQL server without the performance
        // schema returns no row, and other servers may reject the query.
        let count = match connection.query(query).await {
            Ok(answer) => answer.first().and_then(|row| {
                let number = |at| row.get_str(at).and_then(whole);
                Some(HandlerCounters { changes: number(0)?, selects: number(1)? })
            }),
            Err(SessionError::Server { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        if count.is_none() {
            self.query = None;
        }
        self.tally.took = started.elapsed();
        Ok(count)
    }
}

impl RowTally {
    fn new(now: Instant) -> Self {
        Self {
            counted: None,
            sent: 0,
            committed: 0,
            checked_tables: FxHashSet::default(),
            unchecked_tables: FxHashSet::default(),
            checked_at: now,
            took: Duration::ZERO,
        }
    }

    fn send(&mut self, rows_of: IndexId, changes: u64) {
        self.sent += changes;
        if !self.checked_tables.contains(&rows_of) {
            self.unchecked_tables.insert(rows_of);
        }
    }

    fn reset(&mut self) {
        (self.counted, self.sent, self.committed) = (None, 0, 0);
    }

    fn is_due(&self, now: Instant) -> bool {
        let uncommitted = self.sent - self.committed;
        // If the counters from before the rows are unknown, reading them costs a second query.
        let queries = if self.counted.is_none() { 2 } else { 1 };
        let took = self.took.saturating_mul(queries);
        uncommitted > 0
            && (!self.unchecked_tables.is_empty()
                || uncommitted >= UNCHECKED_ROWS_MAX
                || now.saturating_duration_since(self.checked_at) >= took.saturating_mul(TIME_FRACTION))
    }

    /// Compares the number of sent rows with the server's counters.
    fn check(&mut self, counted: HandlerCounters, now: Instant) -> Result<(), ApplyError> {
        let Some(before) = self.counted else { return Ok(()) };
        self.checked_at = now;
        let wanted = self.sent;
        let changes = counted.since(before).unwrap_or(wanted);
        if changes < wanted {
            let is_committed = self.committed > 0;
            self.reset();
            return Err(ApplyError::RowCountMismatch {
                gtid: String::new(),
                counted: changes,
                wanted,
                is_committed,
            });
        }
        self.checked_tables.extend(self.unchecked_tables.drain());
        (self.counted, self.sent, self.committed) = (Some(counted), 0, 0);
        Ok(())
    }
}

/// Parses a sum of counters. Servers return a floating-point number, because `SUM` is applied to counters
/// stored as text.
fn whole(sum: &str) -> Option<u64> {
    match sum.parse::<u64>() {
        Ok(sum) => Some(sum),
        // Counts are far below 2^53, so the conversion is exact.
        Err(_) => sum.parse::<f64>().ok().filter(|sum| *sum >= 0.0).map(|sum| sum as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_counted_after_the_counters_were_reset() {
        let before = HandlerCounters { changes: 10, selects: 3 };
        let since = |changes, selects| HandlerCounters { changes, selects }.since(before);
        assert_eq!([since(12, 4), since(10, 4), since(2, 4)], [Some(2), Some(0), None]);
        assert_eq!(
            [since(12, 1), since(10, 3)],
            [None, None],
            "if `selects` has not increased, the counters must count as reset"
        );
    }

    #[test]
    fn rows_are_counted_after_enough_time() {
        let started = Instant::now();
        let at = |ms| started + Duration::from_millis(ms);
        let counted = |changes, selects| HandlerCounters { changes, selects };
        let table = IndexId(7);
        let mut tally = RowTally::new(started);
        tally.send(table, 1);
        assert!(tally.is_due(at(0)), "the first rows of a table must be checked");
        (tally.counted, tally.took) = (Some(counted(0, 1)), Duration::from_millis(1));
        tally.check(counted(1, 2), at(0)).unwrap();
        tally.reset();
        // A statement with an unknown effect ran, so the starting counters must be read again.
        tally.send(table, 1);
        assert!(!tally.is_due(at(39)));
        assert!(tally.is_due(at(40)));
        tally.counted = Some(counted(5, 3));
        assert!(tally.is_due(at(40)), "reading the starting counters must not count as a check");
        let missing = tally.check(counted(5, 4), at(40)).unwrap_err();
        assert!(matches!(
            missing,
            ApplyError::RowCountMismatch { counted: 0, wanted: 1, is_committed: false, .. }
        ));
        tally.send(table, 1);
        assert!(!tally.is_due(at(79)) && tally.is_due(at(80)));
    }

    #[test]
    fn sums_are_parsed() {
        assert_eq!([whole("17"), whole("17.0"), whole("1.2e3")], [Some(17), Some(17), Some(1200)]);
        assert_eq!([whole(""), whole("-1"), whole("x")], [None, None, None]);
    }
}
