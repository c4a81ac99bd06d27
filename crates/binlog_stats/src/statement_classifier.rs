//! Classifies a statement by its first words.

use tailwater_wire::sql_redaction::private_statement;

/// The kind of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatementKind {
    /// The statement starts or ends a transaction, or sets or releases a savepoint.
    Control,
    /// The statement changes the schema, accounts, or the server.
    Ddl,
    /// The statement changes rows.
    Data,
}

/// The maximum length of a statement's text that is stored, in bytes.
const TEXT_BYTES_MAX: usize = 200;

const CONTROL: [&str; 6] = ["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA"];
const DATA: [&str; 9] = ["INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO", "SELECT"];

/// The kind of a statement. `text` is the beginning of the statement.
pub(crate) fn kind(text: &[u8]) -> StatementKind {
    let text = without_comments(text);
    let word = text.split(|byte| !byte.is_ascii_alphabetic()).next().unwrap_or_default();
    let is_one_of = |words: &[&str]| words.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()));
    match () {
        () if is_one_of(&CONTROL) => StatementKind::Control,
        () if is_one_of(&DATA) => StatementKind::Data,
        () => StatementKind::Ddl,
    }
}

/// The statement in the form that is shown: its beginning, on one line, without passwords.
pub(crate) fn shown(text: &[u8]) -> String {
    private_statement(text, TEXT_BYTES_MAX)
}

/// The text from its first word on, without comments before it.
fn without_comments(mut text: &[u8]) -> &[u8] {
    loop {
        text = text.trim_ascii_start();
        // Do not skip `/*! */`: servers execute the text in such a comment.
        let end = match text {
            [b'/', b'*', b'!', rest @ ..] | [b'/', b'*', b'M', b'!', rest @ ..] => {
                let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                text = &rest[digits..];
                continue;
            }
            [b'/', b'*', ..] => text.windows(2).position(|pair| pair == b"*/").map(|at| at + 2),
            [b'-', b'-', ..] | [b'#', ..] => text.iter().position(|byte| *byte == b'\n').map(|at| at + 1),
            _ => return text,
        };
        match end {
            Some(end) => text = &text[end..],
            None => return &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{StatementKind, kind, shown};

    #[test]
    fn statements_are_classified_by_their_first_word() {
        for (text, expected) in [
            ("BEGIN", StatementKind::Control),
            ("ROLLBACK TO `one`", StatementKind::Control),
            ("XA START X'61'", StatementKind::Control),
            ("insert into t values (1)", StatementKind::Data),
            ("/* app */ -- x\n UPDATE t SET a = 1", StatementKind::Data),
            ("/*!40000 ALTER TABLE t DISABLE KEYS */", StatementKind::Ddl),
            ("/*M!100301 CREATE TABLE t (a INT) */", StatementKind::Ddl),
            ("TRUNCATE t", StatementKind::Ddl),
            ("# only a comment", StatementKind::Ddl),
        ] {
            assert_eq!(kind(text.as_bytes()), expected, "wrong kind of statement: {text}");
        }
    }

    #[test]
    fn a_displayed_statement_is_short_and_has_no_secret() {
        assert_eq!(shown(b"CREATE  TABLE t\n(a INT)"), "CREATE TABLE t (a INT)");
        for secret in [
            "CREATE USER u IDENTIFIED BY 'abc'",
            "CREATE USER u IDENTIFIED WITH x AS 'abc'",
            "SET PASSWORD FOR u='abc'",
            "SET PASSWORD='abc'",
        ] {
            assert!(
                !shown(secret.as_bytes()).contains("abc"),
                "the secret is shown: {}",
                shown(secret.as_bytes())
            );
        }
        let long = shown(format!("ALTER TABLE t {}", "ä".repeat(900)).as_bytes());
        assert!(long.len() <= 204 && long.ends_with(" ..."), "the statement is not shortened: {long}");
    }
}
