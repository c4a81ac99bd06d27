//! Statements of the binlog as SELECT statements.

use proptest::prelude::*;

use crate::statement_reads::{StatementSkip, may_change_definitions, select_for, shape_of};

fn select(text: &str) -> Result<String, StatementSkip> {
    select_for(text, 0, 10)
}

#[test]
fn statements_with_a_condition_become_selects() {
    for (text, expected) in [
        ("UPDATE t SET a = a + 1 WHERE id = 5", "SELECT * FROM t WHERE id = 5 LIMIT 10"),
        (
            "update `s`.t set a = 'x' where b in (1, 2) limit 3",
            "SELECT * FROM `s`.t WHERE b IN (1, 2) LIMIT 10",
        ),
        ("DELETE FROM t WHERE a < 3 ORDER BY a LIMIT 1", "SELECT * FROM t WHERE a < 3 LIMIT 10"),
        (
            "DELETE a FROM a JOIN b ON a.id = b.id WHERE b.x = 1",
            "SELECT * FROM a JOIN b ON a.id = b.id WHERE b.x = 1 LIMIT 10",
        ),
        (
            "INSERT INTO t SELECT a, b FROM u WHERE c = 'it''s'",
            "SELECT a, b FROM u WHERE c = 'it''s' LIMIT 10",
        ),
        ("REPLACE INTO t (a) SELECT a FROM u WHERE b > 1 LIMIT 2", "SELECT a FROM u WHERE b > 1 LIMIT 2"),
        (
            "INSERT INTO t SELECT COUNT(*) FROM u WHERE b = LOWER('X')",
            "SELECT COUNT(*) FROM u WHERE b = LOWER('X') LIMIT 10",
        ),
    ] {
        assert_eq!(select(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn statements_that_may_have_an_effect_are_skipped() {
    use StatementSkip::*;
    for (text, reason) in [
        ("UPDATE t SET a = 1", WholeTable),
        ("DELETE FROM t", WholeTable),
        ("INSERT INTO t SELECT * FROM u", WholeTable),
        ("INSERT INTO t VALUES (1)", InsertValues),
        ("INSERT INTO t SET a = 1", InsertValues),
        ("INSERT INTO t SELECT 1", InsertValues),
        ("CREATE TABLE t (a INT)", Kind),
        ("DROP TABLE t", Kind),
        ("TRUNCATE TABLE t", Kind),
        ("UPDATE t SET a = 1 WHERE f(b) = 1", Function),
        ("UPDATE t SET a = 1 WHERE `f`(b) = 1", Function),
        ("UPDATE t SET a = 1 WHERE s.f(b) = 1", Function),
        ("DELETE FROM t WHERE SLEEP(10)", Function),
        ("DELETE FROM t WHERE a = GET_LOCK('x', 10)", Function),
        ("DELETE FROM t WHERE a = @x", Function),
        ("DELETE FROM t WHERE a = NEXTVAL(q)", Function),
        ("INSERT INTO t SELECT a, COUNT(*) FROM u WHERE b = 1 GROUP BY a", TemporaryTable),
        ("INSERT INTO t SELECT DISTINCT a FROM u WHERE b = 1", TemporaryTable),
        ("INSERT INTO t SELECT a FROM u WHERE b = 1 ORDER BY c LIMIT 5", TemporaryTable),
        ("INSERT INTO t SELECT a FROM (SELECT a FROM u) AS v WHERE a > 1", TemporaryTable),
        ("DELETE FROM t WHERE a IN (SELECT b FROM u)", TemporaryTable),
        ("INSERT INTO t SELECT a FROM u WHERE b = 1 FOR UPDATE", Syntax),
        ("UPDATE t SET a = 1 WHERE b = 'a\\'b'", Syntax),
        ("UPDATE t SET a = 1 WHERE /*!50000 b = 1 */", Syntax),
        ("UPDATE t SET a = 1 WHERE b = 1; DROP TABLE t", Syntax),
        ("UPDATE t SET", Syntax),
    ] {
        assert_eq!(select(text), Err(reason), "{text}");
    }
    // With ANSI_QUOTES, "x" is a column.
    assert_eq!(select_for("DELETE FROM t WHERE a = \"x\"", 4, 10), Err(Syntax));
}

#[test]
fn only_data_statements_keep_the_definitions() {
    for text in ["INSERT INTO t VALUES (1)", " update t set a=1", "delete from t", "REPLACE t VALUES (1)"] {
        assert!(!may_change_definitions(Some(text)), "{text}");
    }
    for text in ["ALTER TABLE t ADD b INT", "/* x */ DROP TABLE t", ""] {
        assert!(may_change_definitions(Some(text)), "{text}");
    }
    assert!(may_change_definitions(None));
}

#[test]
fn similar_statements_have_one_shape() {
    assert_eq!(
        shape_of("SELECT * FROM t WHERE a = 5 AND b = 'x'"),
        shape_of("SELECT * FROM t WHERE a = 71 AND b = 'yz'")
    );
    assert_ne!(shape_of("SELECT * FROM t WHERE a = 5"), shape_of("SELECT * FROM u WHERE a = 5"));
}

proptest! {
    /// Whatever a binlog contains, what is sent is one SELECT without a semicolon or a lock.
    #[test]
    fn only_a_select_is_sent(
        head in prop_oneof![Just("UPDATE t SET a = 1 WHERE "), Just("DELETE FROM t WHERE "), Just("INSERT INTO t SELECT a FROM u WHERE "), Just("")],
        words in proptest::collection::vec(
            prop_oneof![
                Just("a"), Just("="), Just("1"), Just("'x'"), Just("'"), Just("\""), Just("`"), Just("("), Just(")"),
                Just(";"), Just("--"), Just("#"), Just("DROP TABLE t"), Just("INTO OUTFILE 'f'"), Just("FOR UPDATE"),
                Just("AND"), Just("SLEEP(1)"), Just("@a := 1"), Just("f(1)"), Just("UNION"), Just("SELECT"), Just("LIMIT 1"),
            ],
            0..12,
        ),
    ) {
        let text = format!("{head}{}", words.join(" "));
        if let Ok(select) = select(&text) {
            let upper = select.to_ascii_uppercase();
            prop_assert!(upper.starts_with("SELECT "), "{select}");
            let outside: String = upper.split('\'').step_by(2).collect();
            for word in ["DROP", "INTO", "OUTFILE", "FOR UPDATE", "SLEEP", "@", "F(", ";"] {
                prop_assert!(!outside.contains(word) || outside.contains('`') || outside.contains('"'), "{word} in {select}");
            }
        }
    }
}
