//! Finds the tables that a row-changing statement names.

use super::sql_tokenizer::{ObjectName, SqlTokenizer};
use crate::transaction_decoder::statement_classifier::wrapped;

/// Returns the tables that an `INSERT`, `REPLACE`, `UPDATE`, `DELETE` or `LOAD DATA` names and may change.
/// Empty if the statement cannot be parsed. The result lacks tables that only triggers and functions change,
/// because the statement does not name them.
pub(super) fn changed_tables(text: &[u8]) -> Vec<ObjectName> {
    tables(text).unwrap_or_default()
}

fn tables(text: &[u8]) -> Option<Vec<ObjectName>> {
    let mut words = SqlTokenizer::new(wrapped(text));
    let (front, end): (&[&str], &str) = if words.accept("INSERT") || words.accept("REPLACE") {
        (&["LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO"], "")
    } else if words.accept("UPDATE") {
        (&["LOW_PRIORITY", "IGNORE"], "SET")
    } else if words.accept("DELETE") {
        (&["LOW_PRIORITY", "QUICK", "IGNORE", "FROM"], "WHERE")
    } else if words.accept("LOAD") {
        while !(words.accept("INTO") && words.accept("TABLE")) {
            words.next()?;
        }
        (&[], "")
    } else {
        return None;
    };
    while front.iter().any(|word| words.accept(word)) {}
    let mut found = vec![words.object()?];
    // The statement may name several joined tables. Some of them are only read.
    while !end.is_empty() && !words.accept(end) {
        let is_next =
            words.accept_mark(b',') || words.accept("JOIN") || words.accept("FROM") || words.accept("USING");
        match is_next.then(|| object_ahead(&mut words)).flatten() {
            Some(table) => found.push(table),
            None if words.next().is_none() => break,
            None => {}
        }
    }
    Some(found)
}

/// Returns the next object name, if one follows.
fn object_ahead(words: &mut SqlTokenizer<'_>) -> Option<ObjectName> {
    let mut ahead = words.clone();
    let object = ahead.object()?;
    *words = ahead;
    Some(object)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn changed_tables_are_found() {
        let named = |text: &str| {
            let tables = changed_tables(text.as_bytes());
            let names: Vec<String> = tables
                .into_iter()
                .map(|table| format!("{}.{}", table.schema.unwrap_or_default(), table.name))
                .collect();
            names.join(" ")
        };
        for (text, expected) in [
            ("INSERT INTO t VALUES (1)", ".t"),
            ("insert ignore `d`.`a``b` (x) select 1", "d.a`b"),
            ("/* x */ REPLACE LOW_PRIORITY INTO d.t SET a=1", "d.t"),
            ("UPDATE IGNORE t SET a=1 WHERE b=2", ".t"),
            ("UPDATE d.t AS x, u y JOIN e.v ON x.a=v.a SET x.a=1", "d.t .u e.v"),
            ("DELETE FROM t WHERE a IN (SELECT a FROM u)", ".t"),
            ("DELETE QUICK t, u FROM t JOIN u ON t.a=u.a", ".t .u .t .u"),
            ("DELETE FROM d.t USING d.t JOIN u WHERE t.a=u.a", "d.t d.t .u"),
            ("LOAD DATA INFILE 'x' IGNORE INTO TABLE `t` FIELDS TERMINATED BY ','", ".t"),
            ("SELECT 1", ""),
            ("CREATE TABLE t (a INT)", ""),
            ("INSERT", ""),
            ("UPDATE (t) SET a=1", ""),
            ("LOAD DATA INFILE 'x'", ""),
        ] {
            assert_eq!(named(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text: Vec<u8>) {
            changed_tables(&text);
            changed_tables(&[b"UPDATE ".as_slice(), &text].concat());
        }
    }
}
