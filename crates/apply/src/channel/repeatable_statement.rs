//! Recognizes statements that can run twice without harm. If such a statement may have run before a crash,
//! the channel runs it again.

use super::sql_tokenizer::{SqlToken, SqlTokenizer};
use crate::transaction_decoder::statement_classifier::wrapped;

/// The result of running a statement a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RerunResult {
    /// The second run fails with an error that shows that the first run took effect
    /// ([`is_already_done`](super::ddl_object_fingerprint::is_already_done)).
    AlreadyDone,
    /// The second run succeeds and changes nothing, but the target logs it again.
    Unchanged,
}

/// Returns the result of a second run of a statement that creates, drops or empties one object. `None` for
/// other statements, and if a second run may change something.
pub(super) fn rerun_result(text: &[u8]) -> Option<RerunResult> {
    let mut words = SqlTokenizer::new(wrapped(text));
    if words.accept("TRUNCATE") {
        words.accept("TABLE");
        words.object()?;
        return Some(RerunResult::Unchanged);
    }
    let drops = words.accept("DROP");
    if !drops {
        words.accept("CREATE").then_some(())?;
        skip_attributes(&mut words)?;
    }
    words.accept("TEMPORARY");
    // Statements about routines, users and roles have side effects, so they are not in this list.
    ["TABLE", "VIEW", "DATABASE", "SCHEMA", "TRIGGER", "EVENT", "SEQUENCE"]
        .into_iter()
        .any(|kind| words.accept(kind))
        .then_some(())?;
    let checks = words.accept("IF");
    if checks {
        ((drops || words.accept("NOT")) && words.accept("EXISTS")).then_some(())?;
    }
    words.object()?;
    if drops && words.accept_mark(b',') {
        return None;
    }
    Some(if checks { RerunResult::Unchanged } else { RerunResult::AlreadyDone })
}

/// The errors after which a statement may have taken effect: `EE_WRITE`, `EE_DISK_FULL`, `ER_DISK_FULL`,
/// `ER_ERROR_ON_WRITE`, `ER_SERVER_SHUTDOWN`, `ER_QUERY_INTERRUPTED`, `ER_BINLOG_LOGGING_IMPOSSIBLE`,
/// `ER_CONNECTION_KILLED`, `ER_STATEMENT_TIMEOUT`, `ER_QUERY_TIMEOUT`. Most of these errors occur when the
/// server writes the binlog, after the statement itself has run.
const UNCERTAIN_ERRORS: [u16; 10] = [3, 20, 1021, 1026, 1053, 1317, 1598, 1927, 1969, 3024];

/// Returns whether a statement that failed with this error may have taken effect.
pub(super) fn may_have_run(number: u16) -> bool {
    UNCERTAIN_ERRORS.contains(&number)
}

/// Skips the clauses between `CREATE` and `VIEW`, `TRIGGER` or `EVENT`.
fn skip_attributes(words: &mut SqlTokenizer<'_>) -> Option<()> {
    loop {
        if words.accept("ALGORITHM") {
            words.accept_mark(b'=');
            words.next()?;
        } else if words.accept("DEFINER") {
            words.accept_mark(b'=');
            words.next()?;
            words.accept_call();
            let mut ahead = words.clone();
            if ahead.next() == Some(SqlToken::Name) && ahead.token_text().starts_with(b"@") {
                *words = ahead;
            }
        } else if words.accept("SQL") {
            words.accept("SECURITY").then_some(())?;
            words.next()?;
        } else {
            return Some(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::ddl_object_fingerprint::is_already_done;

    #[test]
    fn no_error_is_both_uncertain_and_already_done() {
        // A statement that fails with one of these errors has done nothing.
        for number in [1005, 1142, 1205, 1213] {
            assert!(
                !may_have_run(number) && !is_already_done(number),
                "a statement that failed with error {number} must count as not executed"
            );
        }
        for number in UNCERTAIN_ERRORS {
            assert!(
                may_have_run(number) && !is_already_done(number),
                "a statement that failed with error {number} must count as possibly executed"
            );
        }
    }

    #[test]
    fn statements_that_can_run_twice_are_recognized() {
        for (text, expected) in [
            ("CREATE TABLE t (a INT, b INT)", Some(RerunResult::AlreadyDone)),
            ("/* x */ create temporary table `d`.`t` (a int)", Some(RerunResult::AlreadyDone)),
            ("CREATE TABLE t AS SELECT 1 AS a", Some(RerunResult::AlreadyDone)),
            ("CREATE TABLE IF NOT EXISTS t (a INT)", Some(RerunResult::Unchanged)),
            ("CREATE DATABASE d", Some(RerunResult::AlreadyDone)),
            ("CREATE SCHEMA IF NOT EXISTS d", Some(RerunResult::Unchanged)),
            (
                "CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`localhost` SQL SECURITY DEFINER VIEW v AS SELECT 1",
                Some(RerunResult::AlreadyDone),
            ),
            (
                "CREATE DEFINER=root@localhost TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET @a=1",
                Some(RerunResult::AlreadyDone),
            ),
            (
                "CREATE DEFINER=CURRENT_USER() EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
                Some(RerunResult::AlreadyDone),
            ),
            ("CREATE SEQUENCE s", Some(RerunResult::AlreadyDone)),
            ("DROP TABLE `t` /* generated by server */", Some(RerunResult::AlreadyDone)),
            ("DROP TABLE IF EXISTS `t`", Some(RerunResult::Unchanged)),
            ("DROP VIEW v", Some(RerunResult::AlreadyDone)),
            ("TRUNCATE t", Some(RerunResult::Unchanged)),
            ("truncate table d.t", Some(RerunResult::Unchanged)),
            // A second run may have an effect that the first run did not have.
            ("CREATE OR REPLACE TABLE t (a INT)", None),
            ("DROP TABLE a, b", None),
            ("DROP TABLE IF EXISTS a, b", None),
            ("ALTER TABLE t ADD COLUMN a INT", None),
            ("RENAME TABLE a TO b", None),
            // These statements have side effects.
            ("CREATE DEFINER=a@b PROCEDURE p() SELECT 1", None),
            ("CREATE FUNCTION IF NOT EXISTS f() RETURNS INT RETURN 1", None),
            ("CREATE USER u", None),
            ("DROP ROLE r", None),
            ("CREATE INDEX i ON t (a)", None),
            ("CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (DATABASE 'x')", None),
            ("CREATE TABLE", None),
            ("", None),
        ] {
            assert_eq!(rerun_result(text.as_bytes()), expected, "{text}");
        }
    }
}
