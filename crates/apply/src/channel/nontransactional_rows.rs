//! Counts the rows of nontransactional tables in a transaction. A ROLLBACK does not undo these rows.

use tailwater_session::SessionError;

use crate::error::ApplyError;
use crate::target_table::TargetTable;

/// Counts the rows of nontransactional tables in the current transaction: the rows that were sent to the
/// target, and the rows that still wait to be sent.
#[derive(Debug, Default)]
pub(super) struct NontransactionalRows {
    /// Number of rows in statements that were not sent to the target yet.
    pending: usize,
    /// Number of rows that were sent to the target.
    sent: usize,
    /// Whether a statement with rows of nontransactional tables has succeeded.
    written: bool,
    /// Whether the target ignores a row that is sent a second time.
    ignored_if_repeated: bool,
    /// The table of the last row.
    table: String,
}

/// Returns the name of a table with its database, for messages.
pub(super) fn table_name(table: &TargetTable) -> String {
    format!("{}.{}", table.schema, table.table)
}

impl NontransactionalRows {
    /// Returns the counter of a new transaction. `ignored_if_repeated` states whether the target ignores a
    /// row that is sent a second time.
    pub(super) fn new(ignored_if_repeated: bool) -> Self {
        Self { ignored_if_repeated, ..Self::default() }
    }

    /// Adds rows of `table` to the next statement.
    pub(super) fn push(&mut self, table: &TargetTable, rows: usize) {
        self.pending += rows;
        self.table = table_name(table);
    }

    /// Records that all pending rows are about to be sent.
    pub(super) fn send(&mut self) {
        self.sent += std::mem::take(&mut self.pending);
    }

    /// Records that the target has written all sent rows.
    pub(super) fn succeed(&mut self) {
        self.written |= self.sent > 0;
    }

    /// Returns whether the target certainly has some of the rows.
    pub(super) fn are_written(&self) -> bool {
        self.written
    }

    /// Returns the table of the last row; `None` if there is no row.
    pub(super) fn table(&self) -> Option<&str> {
        (!self.table.is_empty()).then_some(self.table.as_str())
    }

    /// Returns whether the target may have some of the rows after `error`. If the statement of a single row
    /// fails, the target does not have that row.
    fn may_be_written(&self, error: &ApplyError) -> bool {
        let found = matches!(error, ApplyError::RowsMissing { found, .. } if *found > 0);
        // This error means that the target reported success but ignored some of the rows.
        let uncounted = matches!(error, ApplyError::RowCountMismatch { .. });
        self.written && (!self.ignored_if_repeated || uncounted) || self.sent > 1 || self.sent == 1 && found
    }

    /// Returns the error to report: [`ApplyError::PartlyWritten`] if the target may have some of the rows.
    /// Connection errors stay unchanged, because the channel retries after them without an operator.
    pub(super) fn explain(&self, gtid: &str, error: ApplyError) -> ApplyError {
        let is_of_connection =
            matches!(&error, ApplyError::Session(error) if !matches!(error, SessionError::Server { .. }));
        if is_of_connection
            || matches!(error, ApplyError::PartlyWritten { .. })
            || !self.may_be_written(&error)
        {
            return error;
        }
        ApplyError::PartlyWritten { gtid: gtid.to_owned(), table: self.table.clone(), error: Box::new(error) }
    }
}

#[cfg(test)]
mod tests {
    use tailwater_session::ServerError;

    use super::*;
    use crate::error::ApplyRetry;

    fn refusal() -> ServerError {
        ServerError { number: 1205, sql_state: "HY000".into(), message: "Lock wait timeout exceeded".into() }
    }

    fn server_error() -> ApplyError {
        let statement = Default::default();
        SessionError::Server { doing: "running a statement", statement, error: refusal() }.into()
    }

    fn rows(pending: usize, sent: usize, written: bool) -> NontransactionalRows {
        NontransactionalRows { pending, sent, written, ignored_if_repeated: false, table: "d.t".into() }
    }

    #[test]
    fn rows_that_are_already_written_are_not_sent_again() {
        for (nontransactional, is_there) in [
            (NontransactionalRows::default(), false),
            (rows(2, 0, false), false),
            (rows(0, 1, false), false),
            (rows(0, 2, false), true),
            (rows(0, 1, true), true),
            (NontransactionalRows { ignored_if_repeated: true, ..rows(0, 1, true) }, false),
        ] {
            let error = nontransactional.explain("0-1-2", server_error());
            assert_eq!(error.code() == "TW-APP-0052", is_there, "{nontransactional:?}");
            let is_later = error.retry() == ApplyRetry::Later;
            assert_eq!(is_later, !is_there, "{nontransactional:?}");
        }
        let mut nontransactional = rows(1, 0, false);
        nontransactional.succeed();
        assert!(!nontransactional.written, "rows that were not sent must not count");
        nontransactional.send();
        nontransactional.succeed();
        assert!(nontransactional.written);
    }

    #[test]
    fn every_error_but_a_connection_error_reports_written_rows() {
        let gtid = || "0-1-2".to_owned();
        let nontransactional = rows(0, 1, true);
        for error in [
            ApplyError::Rejected {
                gtid: gtid(),
                subject: "statement \"INSERT\"".into(),
                values: "INSERT INTO t VALUES (7)".to_owned().into(),
                error: Box::new(refusal()),
            },
            ApplyError::OutcomeDiffers {
                gtid: gtid(),
                statement: "statement \"DROP\" ".into(),
                number: 1051,
            },
            ApplyError::InterruptedStatement {
                gtid: gtid(),
                statement: "statement \"DROP\" ".into(),
                number: 1317,
            },
            ApplyError::SessionAccount { gtid: gtid(), statement: String::new(), reason: "it is not logged" },
            ApplyError::Unsupported { gtid: gtid(), what: "a statement".into(), reason: "of this".into() },
            ApplyError::RowsMissing { found: 0, wanted: 1, statement: "UPDATE d.t".into() },
            ApplyError::RowCountMismatch { gtid: gtid(), counted: 1, wanted: 2, is_committed: false },
            ApplyError::ReadInterrupted { gtid: gtid() },
        ] {
            let error = nontransactional.explain("0-1-2", error);
            assert_eq!((error.code(), error.retry()), ("TW-APP-0052", ApplyRetry::AfterChange), "{error}");
            let text = error.to_string();
            for wrong in ["nothing is lost", "none of these rows is committed", "is committed"] {
                assert!(!text.contains(wrong), "the error contains {wrong:?}: {text}");
            }
            assert_eq!(text.matches("0-1-2").count(), 1, "{text}");
            assert!(
                !text.contains('7') || !text.contains("VALUES"),
                "the error contains a row value: {text}"
            );
        }
        let refused = nontransactional.explain("0-1-2", server_error());
        assert_eq!(refused.server_error().map(|error| error.number), Some(1205));
        let broken = nontransactional.explain("0-1-2", SessionError::OutOfStep.into());
        assert!(broken.code().starts_with("TW-SES-"), "wrong error for the broken connection: {broken}");
        let uncounted =
            ApplyError::RowCountMismatch { gtid: gtid(), counted: 0, wanted: 1, is_committed: false };
        let nontransactional = NontransactionalRows { ignored_if_repeated: true, ..rows(0, 1, true) };
        assert_eq!(nontransactional.explain("0-1-2", uncounted).code(), "TW-APP-0052");
        let missing = ApplyError::RowsMissing { found: 2, wanted: 1, statement: "UPDATE d.t".into() };
        assert_eq!(rows(0, 1, false).explain("0-1-2", missing).code(), "TW-APP-0052");
    }
}
