//! Replaces DDL statements that the target rejects because its tables differ from the source's.

use tailwater_wire::Flavour;

use super::sql_tokenizer::{SqlToken, SqlTokenizer};
use crate::transaction_decoder::statement_classifier::wrapped;

/// What to do with a `CREATE TABLE` if the table already exists on the target, and with a `DROP TABLE` if it
/// does not exist.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum DdlExecMode {
    /// The channel stops at the statement.
    #[default]
    Strict,
    /// As in MariaDB's replication with `slave_ddl_exec_mode=IDEMPOTENT`: a created table replaces the
    /// existing one, and dropping a missing table does nothing.
    Idempotent,
}

/// The error `ER_TABLE_EXISTS_ERROR`.
pub(super) const TABLE_EXISTS: u16 = 1050;

/// Returns the statements that replace the table or sequence that `text` creates; empty for other statements.
pub(super) fn replacement_statements(text: &[u8], target: Flavour) -> Vec<Vec<u8>> {
    try_replacement(text, target).unwrap_or_default()
}

fn try_replacement(text: &[u8], target: Flavour) -> Option<Vec<Vec<u8>>> {
    let statement = wrapped(text);
    let mut words = SqlTokenizer::new(statement);
    words.accept("CREATE").then_some(())?;
    // A SET STATEMENT clause must stay at the start of the statement.
    let (head, rest) = text.split_at_checked(text.len() - statement.len() + words.end)?;
    let temporary = words.accept("TEMPORARY");
    let kind = ["TABLE", "SEQUENCE"].into_iter().find(|kind| words.accept(kind))?;
    if target == Flavour::MariaDb {
        // Use a single statement, because the target must log it under one GTID.
        return (!words.accept("IF")).then(|| vec![[head, b" OR REPLACE", rest].concat()]);
    }
    let name = match words.clone().next()? {
        SqlToken::Word(word) if word.eq_ignore_ascii_case(b"IF") => return None,
        _ => {
            let start = words.end;
            words.object()?;
            statement.get(start..words.end)?
        }
    };
    let drop = if temporary { format!("DROP TEMPORARY {kind}") } else { format!("DROP {kind}") };
    Some(vec![[drop.as_bytes(), name].concat(), text.to_vec()])
}

/// Returns whether a statement drops tables or sequences.
pub(super) fn drops_tables(text: &[u8]) -> bool {
    let mut words = SqlTokenizer::new(wrapped(text));
    let drops = words.accept("DROP");
    words.accept("TEMPORARY");
    drops && ["TABLE", "TABLES", "SEQUENCE"].into_iter().any(|kind| words.accept(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replacement_statements(text: &str, target: Flavour) -> Vec<String> {
        let statements = super::replacement_statements(text.as_bytes(), target);
        statements.into_iter().map(|text| String::from_utf8(text).unwrap()).collect()
    }

    #[test]
    fn created_tables_replace_existing_ones() {
        for (text, mariadb, mysql) in [
            (
                "CREATE TABLE t (a INT)",
                vec!["CREATE OR REPLACE TABLE t (a INT)"],
                vec!["DROP TABLE t", "CREATE TABLE t (a INT)"],
            ),
            (
                "/* x */ create temporary table `d`. `t` (a int)",
                vec!["/* x */ create OR REPLACE temporary table `d`. `t` (a int)"],
                vec!["DROP TEMPORARY TABLE `d`. `t`", "/* x */ create temporary table `d`. `t` (a int)"],
            ),
            (
                "CREATE SEQUENCE s",
                vec!["CREATE OR REPLACE SEQUENCE s"],
                vec!["DROP SEQUENCE s", "CREATE SEQUENCE s"],
            ),
            (
                "SET STATEMENT sql_mode='' FOR CREATE TABLE t (a INT)",
                vec!["SET STATEMENT sql_mode='' FOR CREATE OR REPLACE TABLE t (a INT)"],
                vec!["DROP TABLE t", "SET STATEMENT sql_mode='' FOR CREATE TABLE t (a INT)"],
            ),
            ("CREATE TABLE IF NOT EXISTS t (a INT)", vec![], vec![]),
            ("CREATE OR REPLACE TABLE t (a INT)", vec![], vec![]),
            ("CREATE VIEW v AS SELECT 1", vec![], vec![]),
            ("ALTER TABLE t RENAME u", vec![], vec![]),
            ("CREATE TABLE", vec!["CREATE OR REPLACE TABLE"], vec![]),
        ] {
            assert_eq!(replacement_statements(text, Flavour::MariaDb), mariadb, "{text}");
            assert_eq!(replacement_statements(text, Flavour::MySql), mysql, "{text}");
        }
    }

    #[test]
    fn table_drops_are_recognized() {
        for text in ["DROP TABLE t", "drop tables a, b", "/* x */ DROP TEMPORARY TABLE t", "DROP SEQUENCE s"]
        {
            assert!(drops_tables(text.as_bytes()), "the statement must count as DROP TABLE: {text}");
        }
        for text in ["DROP VIEW v", "DROP DATABASE d", "CREATE TABLE t (a INT)", "ALTER TABLE t DROP a"] {
            assert!(!drops_tables(text.as_bytes()), "the statement must not count as DROP TABLE: {text}");
        }
    }
}
