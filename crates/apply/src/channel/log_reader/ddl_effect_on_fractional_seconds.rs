//! Finds out from the text of a DDL statement whether the statement may change the number of fractional
//! digits of a table's temporal columns. It does no I/O.

use crate::replication_filter::{changed_by, outline};
use crate::transaction_decoder::statement_classifier;

/// The effect of a DDL statement on the number of fractional digits of a table's temporal columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DigitEffect {
    /// The statement has no effect on the table.
    Unrelated,
    /// The statement may rebuild the table and so change the layout of its columns. Each temporal column
    /// keeps its number of fractional digits.
    KeepsDigits,
    /// The statement may change the number of fractional digits of columns, or replace the table.
    MayChangeDigits,
}

/// A DDL statement in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoggedDefinition {
    /// The databases and tables that the statement names, in lower case; `None` if they cannot be determined.
    names: Option<Vec<(String, Option<String>)>>,
    keeps_digits: bool,
    drops_database: bool,
    drops_tables: bool,
}

impl LoggedDefinition {
    /// Parses a statement that ran in `database`. Returns `None` if it only changes rows, or only a temporary
    /// table.
    pub(super) fn of(text: &[u8], database: &[u8]) -> Option<Self> {
        if !statement_classifier::defines(text) || statement_classifier::is_temporary(text) {
            return None;
        }
        let text = statement_classifier::wrapped(text);
        let database = String::from_utf8_lossy(database).to_lowercase();
        let names = changed_by(text).map(|names| {
            let fold = |name: String| name.to_lowercase();
            let names = names.into_iter();
            names
                .map(|name| (name.schema.map_or_else(|| database.clone(), fold), name.table.map(fold)))
                .collect()
        });
        let words = outline(text).unwrap_or_default();
        Some(Self {
            names,
            keeps_digits: keeps_digits(&words),
            drops_database: drops_database(&words),
            drops_tables: drops_tables(&words),
        })
    }

    /// Returns whether the statement drops the table, with its rows.
    pub(super) fn drops(&self, schema: &str, table: &str) -> bool {
        let (schema, table) = (schema.to_lowercase(), table.to_lowercase());
        self.names.iter().flatten().any(|(of, name)| match name {
            _ if *of != schema => false,
            None => self.drops_database,
            Some(name) => self.drops_tables && *name == table,
        })
    }

    /// Returns the effect of the statement on a table of the source.
    pub(super) fn effect_on(&self, schema: &str, table: &str) -> DigitEffect {
        let Some(names) = &self.names else { return DigitEffect::MayChangeDigits };
        let (schema, table) = (schema.to_lowercase(), table.to_lowercase());
        let effect = |(of, name): &(String, Option<String>)| match name {
            _ if *of != schema => DigitEffect::Unrelated,
            None if self.drops_database => DigitEffect::MayChangeDigits,
            Some(name) if *name == table && self.keeps_digits => DigitEffect::KeepsDigits,
            Some(name) if *name == table => DigitEffect::MayChangeDigits,
            None | Some(_) => DigitEffect::Unrelated,
        };
        names.iter().map(effect).max().unwrap_or(DigitEffect::Unrelated)
    }
}

/// Returns whether a statement with these words keeps the existing columns of a table that it names.
fn keeps_digits(words: &[String]) -> bool {
    const KEPT_PARTS: [&str; 6] = ["INDEX", "KEY", "PRIMARY", "FOREIGN", "CONSTRAINT", "PARTITION"];
    let mut followed = words.iter().zip(words.iter().skip(1));
    match words.first().map(String::as_str) {
        Some("TRUNCATE" | "OPTIMIZE" | "ANALYZE" | "REPAIR") => true,
        Some("ALTER") => {
            let changes = ["MODIFY", "CHANGE", "RENAME", "EXCHANGE"];
            let drops =
                |(word, next): (&String, &String)| word == "DROP" && !KEPT_PARTS.contains(&next.as_str());
            !words.iter().any(|word| changes.contains(&word.as_str())) && !followed.any(drops)
        }
        Some("CREATE" | "DROP") => {
            const OBJECTS: [&str; 6] = ["TABLE", "TABLES", "VIEW", "SEQUENCE", "INDEX", "TRIGGER"];
            let object = words.iter().find(|word| OBJECTS.contains(&word.as_str()));
            object.is_some_and(|object| object == "INDEX" || object == "TRIGGER")
        }
        _ => false,
    }
}

fn drops_tables(words: &[String]) -> bool {
    let is_table = |word: &String| word == "TABLE" || word == "TABLES";
    words.first().is_some_and(|word| word == "DROP") && words.get(1).is_some_and(is_table)
}

fn drops_database(words: &[String]) -> bool {
    let database = |word: &String| word == "DATABASE" || word == "SCHEMA";
    words.first().is_some_and(|word| word == "DROP") && words.get(1).is_some_and(database)
        // CREATE OR REPLACE DATABASE also drops the database.
        || words.first().is_some_and(|word| word == "CREATE") && words.iter().take(4).any(database) && words.iter().take(4).any(|word| word == "REPLACE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statements_that_certainly_keep_digits_count_as_such() {
        use DigitEffect::{KeepsDigits, MayChangeDigits, Unrelated};
        for (text, expected) in [
            ("ALTER TABLE t FORCE", KeepsDigits),
            ("ALTER TABLE S.T ADD COLUMN b TIME(2), ADD KEY (b)", KeepsDigits),
            ("SET STATEMENT max_statement_time=1 FOR ALTER TABLE t ENGINE=InnoDB", KeepsDigits),
            ("ALTER TABLE t DROP PARTITION p1", KeepsDigits),
            ("ALTER TABLE t DROP KEY k, DROP FOREIGN KEY f", KeepsDigits),
            ("OPTIMIZE TABLE t", KeepsDigits),
            ("TRUNCATE t", KeepsDigits),
            ("CREATE INDEX i ON t (a)", KeepsDigits),
            ("DROP INDEX i ON t", KeepsDigits),
            ("CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET @a = 1", KeepsDigits),
            ("ALTER TABLE t MODIFY a TIME(2)", MayChangeDigits),
            ("alter table `t` change a b time(2)", MayChangeDigits),
            ("ALTER TABLE t DROP a, ADD a TIME(2)", MayChangeDigits),
            ("ALTER TABLE t DROP `key`", MayChangeDigits),
            ("ALTER TABLE u RENAME TO t", MayChangeDigits),
            ("ALTER TABLE u EXCHANGE PARTITION p WITH TABLE t", MayChangeDigits),
            ("RENAME TABLE t TO v, u TO t", MayChangeDigits),
            ("DROP TABLE IF EXISTS u, t", MayChangeDigits),
            ("CREATE TABLE t (a TIME(2))", MayChangeDigits),
            ("CREATE OR REPLACE TABLE t LIKE u", MayChangeDigits),
            ("DROP DATABASE s", MayChangeDigits),
            ("CREATE OR REPLACE DATABASE s", MayChangeDigits),
            ("CREATE SOMETHING NEW", MayChangeDigits),
            ("CREATE DATABASE s", Unrelated),
            ("CREATE PROCEDURE s.p() SELECT 1", Unrelated),
            ("ALTER TABLE u MODIFY a TIME(2)", Unrelated),
            ("ALTER TABLE other.t MODIFY a TIME(2)", Unrelated),
            ("GRANT SELECT ON s.t TO a", Unrelated),
        ] {
            let definition = LoggedDefinition::of(text.as_bytes(), b"s").expect(text);
            assert_eq!(definition.effect_on("s", "t"), expected, "{text}");
        }
        for (text, drops) in [
            ("DROP TABLE IF EXISTS u, t", true),
            ("DROP TABLE `S`.`T` /* generated by server */", true),
            ("DROP DATABASE IF EXISTS s", true),
            ("CREATE OR REPLACE DATABASE s", true),
            ("DROP TABLE u", false),
            ("DROP TABLE other.t", false),
            ("DROP INDEX i ON t", false),
            ("ALTER TABLE t DROP a", false),
            ("CREATE OR REPLACE TABLE t LIKE u", false),
            ("RENAME TABLE t TO v", false),
            ("CREATE SOMETHING NEW", false),
        ] {
            let definition = LoggedDefinition::of(text.as_bytes(), b"s").expect(text);
            assert_eq!(definition.drops("s", "t"), drops, "{text}");
        }
        for text in ["INSERT INTO t VALUES (1)", "CREATE TEMPORARY TABLE t (a TIME)", "COMMIT"] {
            assert_eq!(LoggedDefinition::of(text.as_bytes(), b"s"), None, "{text}");
        }
    }
}
