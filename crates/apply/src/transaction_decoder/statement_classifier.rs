//! Classifies a statement by its first words.

/// The role of a statement in its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementClass<'a> {
    /// Starts or ends the transaction, or a part of an XA transaction. The decoder ignores it.
    Frame,
    /// Starts an XA transaction.
    XaStart,
    /// Sets a savepoint for a later `ROLLBACK TO`.
    Savepoint,
    /// Rolls back to a savepoint. The server does not undo changes of nontransactional tables.
    RollbackTo,
    /// Rolls back the transaction. The server does not undo changes of nontransactional tables.
    Rollback,
    /// Commits the XA transaction with this XID.
    XaCommit(&'a [u8]),
    /// Rolls back the XA transaction with this XID.
    XaRollback(&'a [u8]),
    /// Changes only rows.
    Data,
    /// Any other change, such as DDL.
    Definition,
}

/// The first words of statements that can change only rows.
const DATA: [&str; 12] = [
    "INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO", "SELECT", "VALUES", "TABLE",
    "HANDLER",
];

pub(super) fn meaning(text: &[u8]) -> StatementClass<'_> {
    let text = without_comments(wrapped(text));
    let mut words = LeadingWords { rest: text };
    let first = words.next();
    let is = |word: &[u8], known: &str| word.eq_ignore_ascii_case(known.as_bytes());
    if is(first, "XA") {
        let second = words.next();
        let name = words.rest.trim_ascii();
        return match () {
            () if is(second, "START") || is(second, "BEGIN") => StatementClass::XaStart,
            () if is(second, "COMMIT") => StatementClass::XaCommit(name),
            () if is(second, "ROLLBACK") => StatementClass::XaRollback(name),
            () => StatementClass::Frame,
        };
    }
    match () {
        () if is(first, "BEGIN") || is(first, "COMMIT") || is(first, "RELEASE") => StatementClass::Frame,
        () if is(first, "START") && is(words.next(), "TRANSACTION") => StatementClass::Frame,
        () if is(first, "SAVEPOINT") => StatementClass::Savepoint,
        () if is(first, "ROLLBACK") => match is(words.next(), "TO") {
            true => StatementClass::RollbackTo,
            false => StatementClass::Rollback,
        },
        () if DATA.iter().any(|known| is(first, known)) => StatementClass::Data,
        () => StatementClass::Definition,
    }
}

/// Returns whether a statement can change anything but rows.
pub fn defines(text: &[u8]) -> bool {
    meaning(text) == StatementClass::Definition
}

/// Returns whether a statement only sets a savepoint, or rolls back to one.
pub(crate) fn moves_within(text: &[u8]) -> bool {
    matches!(meaning(text), StatementClass::Savepoint | StatementClass::RollbackTo | StatementClass::Rollback)
}

/// Returns the inner statement of MariaDB's `SET STATEMENT ... FOR` or `ANALYZE`; for other statements the
/// text itself. The result is a suffix of the text.
pub fn wrapped(text: &[u8]) -> &[u8] {
    let text = without_comments(text);
    let is = |word: &[u8], known: &str| word.eq_ignore_ascii_case(known.as_bytes());
    let mut words = LeadingWords { rest: text };
    let first = words.next();
    let within = match () {
        () if is(first, "SET") && is(words.next(), "STATEMENT") => behind_settings(words.rest),
        () if is(first, "ANALYZE") => analyzed(words.rest),
        () => None,
    };
    within.unwrap_or(text)
}

/// Returns the text after `FOR` in `SET STATEMENT a=1, b='for' FOR statement`. `text` starts after the first
/// two words.
fn behind_settings(text: &[u8]) -> Option<&[u8]> {
    let is_part =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'@') || byte >= 0x80;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let rest = text.get(at..)?;
        at += match byte {
            b'\'' | b'"' | b'`' => quoted_bytes(rest, byte),
            _ if is_part(byte) => {
                let end = rest.iter().position(|byte| !is_part(*byte)).unwrap_or(rest.len());
                if rest.get(..end)?.eq_ignore_ascii_case(b"FOR") {
                    return rest.get(end..);
                }
                end
            }
            _ => 1,
        };
    }
    None
}

/// Returns the length of the quoted string at the start of `text`, including the quotes.
fn quoted_bytes(text: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        at += match byte {
            b'\\' if quote != b'`' => 2,
            _ if byte == quote => return at + 1,
            _ => 1,
        };
    }
    text.len()
}

/// Returns the inner statement of `ANALYZE [FORMAT=JSON] statement`; `None` for `ANALYZE TABLE`. `text`
/// starts after the first word.
fn analyzed(text: &[u8]) -> Option<&[u8]> {
    let is = |word: &[u8], known: &str| word.eq_ignore_ascii_case(known.as_bytes());
    let mut words = LeadingWords { rest: text };
    let mut statement = text;
    let mut first = words.next();
    if is(first, "FORMAT") {
        let rest = words.rest.trim_ascii_start().strip_prefix(b"=")?;
        words = LeadingWords { rest };
        // Skip the word after `=`, which is the format: JSON or TRADITIONAL.
        words.next();
        statement = words.rest;
        first = words.next();
    }
    let counts =
        ["TABLE", "TABLES", "LOCAL", "NO", "NO_WRITE_TO_BINLOG"].iter().any(|known| is(first, known));
    (!counts && !first.is_empty()).then_some(statement)
}

/// Returns whether a statement creates or drops a temporary table.
pub fn is_temporary(text: &[u8]) -> bool {
    let mut words = LeadingWords { rest: without_comments(wrapped(text)) };
    let is = |word: &[u8], known: &str| word.eq_ignore_ascii_case(known.as_bytes());
    let first = words.next();
    if !is(first, "CREATE") && !is(first, "DROP") {
        return false;
    }
    let mut second = words.next();
    if is(second, "OR") && is(words.next(), "REPLACE") {
        second = words.next();
    }
    is(second, "TEMPORARY")
}

/// Iterates over the words at the start of a text. Here a word consists of letters only.
struct LeadingWords<'a> {
    rest: &'a [u8],
}

impl<'a> LeadingWords<'a> {
    /// Returns the next word. Empty at the end, or if the text does not continue with a word.
    fn next(&mut self) -> &'a [u8] {
        let text = self.rest.trim_ascii_start();
        let end = text.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.rest = rest;
        word
    }
}

/// Returns the text from its first word on, without the spaces, parentheses and comments before that word. An
/// executable comment (`/*!`) does not count as a comment.
pub(crate) fn without_comments(mut text: &[u8]) -> &[u8] {
    loop {
        text = text.trim_ascii_start();
        let end =
            |end: &[u8]| text.windows(end.len()).position(|window| window == end).map(|at| at + end.len());
        let skipped = match text {
            [b'(', ..] => Some(1),
            [b'/', b'*', b'!' | b'M', ..] => Some(
                text.iter()
                    .skip(2)
                    .position(|byte| byte.is_ascii_whitespace() || *byte == b'*')
                    .map_or(text.len(), |at| at + 2),
            ),
            [b'*', b'/', ..] => Some(2),
            [b'/', b'*', ..] => end(b"*/"),
            [b'-', b'-', ..] | [b'#', ..] => end(b"\n"),
            _ => return text,
        };
        match skipped {
            Some(skipped) => text = text.get(skipped..).unwrap_or_default(),
            None => return text,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statements_are_classified_by_their_first_words() {
        for (text, expected) in [
            ("BEGIN", StatementClass::Frame),
            ("START TRANSACTION", StatementClass::Frame),
            ("COMMIT", StatementClass::Frame),
            ("XA END X'61',X'',1", StatementClass::Frame),
            ("XA START X'61',X'',1", StatementClass::XaStart),
            ("XA COMMIT X'61',X'',1", StatementClass::XaCommit(b"X'61',X'',1")),
            ("XA ROLLBACK X'61',X'',1", StatementClass::XaRollback(b"X'61',X'',1")),
            ("SAVEPOINT `a b`", StatementClass::Savepoint),
            ("ROLLBACK TO `a b`", StatementClass::RollbackTo),
            ("ROLLBACK", StatementClass::Rollback),
            ("/* hint */ insert into t values (1)", StatementClass::Data),
            ("-- note\n (select 1)", StatementClass::Data),
            ("/*!50000 delete */ from t", StatementClass::Data),
            ("# x\nwith a as (select 1) delete from t", StatementClass::Data),
            (
                "SET STATEMENT max_statement_time=10, sql_mode='FOR' FOR insert into t values (1)",
                StatementClass::Data,
            ),
            ("set statement a='it''s \\' for' for\n/* x */ UPDATE t SET n=1", StatementClass::Data),
            ("SET STATEMENT lock_wait_timeout=1 FOR ALTER TABLE t ADD n INT", StatementClass::Definition),
            ("SET STATEMENT forever=1", StatementClass::Definition),
            ("ANALYZE UPDATE t SET n=1", StatementClass::Data),
            ("ANALYZE FORMAT=JSON DELETE FROM t", StatementClass::Data),
            ("ANALYZE TABLE t", StatementClass::Definition),
            ("ANALYZE NO_WRITE_TO_BINLOG TABLE t", StatementClass::Definition),
            ("SET PASSWORD FOR u = 'x'", StatementClass::Definition),
            ("truncate t", StatementClass::Definition),
            ("CREATE TABLE t (id INT)", StatementClass::Definition),
            ("/* never ends", StatementClass::Definition),
            ("", StatementClass::Definition),
        ] {
            assert_eq!(meaning(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn temporary_tables_are_recognized() {
        for (text, temporary) in [
            ("CREATE TEMPORARY TABLE t (id INT)", true),
            ("create or replace temporary table t (id INT)", true),
            ("DROP TEMPORARY TABLE IF EXISTS `t` /* generated by server */", true),
            ("CREATE TABLE temporary (id INT)", false),
            ("ALTER TABLE t ADD n INT", false),
            ("", false),
        ] {
            assert_eq!(is_temporary(text.as_bytes()), temporary, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[/*!M()# \n-]{0,20}[a-zA-Z ]{0,20}", bytes: Vec<u8>) {
            for text in [text.as_bytes(), &bytes] {
                meaning(text);
                is_temporary(text);
            }
        }
    }
}
