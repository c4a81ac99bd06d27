//! What a statement is, from its first words.

/// What a statement means for the transaction that it stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning<'a> {
    /// Opens or ends the transaction, or an XA transaction's part of it: nothing to do.
    Frame,
    /// Begins an XA transaction.
    XaStart,
    /// Makes a point that a later `ROLLBACK TO` may go back to.
    Savepoint,
    /// Goes back to such a point: what was logged before it was changed for good in part.
    RollbackTo,
    /// Takes back what can be taken back.
    Rollback,
    /// Commits an XA transaction of this name.
    XaCommit(&'a [u8]),
    /// Rolls one back.
    XaRollback(&'a [u8]),
    /// Changes rows.
    Data,
    /// Changes anything else.
    Definition,
}

/// The words that statements begin with that change, or may change, rows and nothing else.
const DATA: [&str; 12] = [
    "INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO", "SELECT", "VALUES", "TABLE",
    "HANDLER",
];

pub(super) fn meaning(text: &[u8]) -> Meaning<'_> {
    let text = without_comments(text);
    let mut words = Words { rest: text };
    let first = words.next();
    let is = |word: &[u8], known: &str| word.eq_ignore_ascii_case(known.as_bytes());
    if is(first, "XA") {
        let second = words.next();
        let name = words.rest.trim_ascii();
        return match () {
            () if is(second, "START") || is(second, "BEGIN") => Meaning::XaStart,
            () if is(second, "COMMIT") => Meaning::XaCommit(name),
            () if is(second, "ROLLBACK") => Meaning::XaRollback(name),
            () => Meaning::Frame,
        };
    }
    match () {
        () if is(first, "BEGIN") || is(first, "COMMIT") || is(first, "RELEASE") => Meaning::Frame,
        () if is(first, "START") && is(words.next(), "TRANSACTION") => Meaning::Frame,
        () if is(first, "SAVEPOINT") => Meaning::Savepoint,
        () if is(first, "ROLLBACK") => match is(words.next(), "TO") {
            true => Meaning::RollbackTo,
            false => Meaning::Rollback,
        },
        () if DATA.iter().any(|known| is(first, known)) => Meaning::Data,
        () => Meaning::Definition,
    }
}

/// The words of a text, letters only.
struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    /// The next word; empty at the end, or where no word stands.
    fn next(&mut self) -> &'a [u8] {
        let text = self.rest.trim_ascii_start();
        let end = text.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.rest = rest;
        word
    }
}

/// The text from its first word on: without blanks, parentheses and comments in front of it. What stands in `/*! */` is
/// no comment.
fn without_comments(mut text: &[u8]) -> &[u8] {
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
    fn statements_are_known_by_their_first_words() {
        for (text, expected) in [
            ("BEGIN", Meaning::Frame),
            ("START TRANSACTION", Meaning::Frame),
            ("COMMIT", Meaning::Frame),
            ("XA END X'61',X'',1", Meaning::Frame),
            ("XA START X'61',X'',1", Meaning::XaStart),
            ("XA COMMIT X'61',X'',1", Meaning::XaCommit(b"X'61',X'',1")),
            ("XA ROLLBACK X'61',X'',1", Meaning::XaRollback(b"X'61',X'',1")),
            ("SAVEPOINT `a b`", Meaning::Savepoint),
            ("ROLLBACK TO `a b`", Meaning::RollbackTo),
            ("ROLLBACK", Meaning::Rollback),
            ("/* hint */ insert into t values (1)", Meaning::Data),
            ("-- note\n (select 1)", Meaning::Data),
            ("/*!50000 delete */ from t", Meaning::Data),
            ("# x\nwith a as (select 1) delete from t", Meaning::Data),
            ("truncate t", Meaning::Definition),
            ("CREATE TABLE t (id INT)", Meaning::Definition),
            ("/* never ends", Meaning::Definition),
            ("", Meaning::Definition),
        ] {
            assert_eq!(meaning(text.as_bytes()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[/*!M()# \n-]{0,20}[a-zA-Z ]{0,20}", bytes: Vec<u8>) {
            meaning(text.as_bytes());
            meaning(&bytes);
        }
    }
}
