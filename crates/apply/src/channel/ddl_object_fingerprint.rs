//! Fingerprints of the objects that a statement may change. A changed fingerprint shows that a statement that
//! commits implicitly has run.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;
use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;

use crate::source_transaction::Statement;
use crate::transaction_decoder::statement_classifier::{without_comments, wrapped};
use tailwater_wire::sql_quote::portable_literal;

/// The seed of the hash. It must not change: fingerprints are stored on the target and compared after a
/// restart.
const SEED: u64 = 0x7461_696c_7761_7465;

/// The errors of a server whose system tables are missing or damaged.
const BROKEN_CATALOGUE_ERRORS: [u16; 12] =
    [1033, 1034, 1146, 1194, 1459, 1545, 1547, 1548, 1549, 1558, 1728, 1805];

/// Returns the databases that `statement` may change: its default database, and each word of the text that
/// could be a database name.
fn candidate_databases(statement: &Statement) -> BTreeSet<String> {
    const WORDS_MAX: usize = 4096;
    let mut names = BTreeSet::new();
    names.insert(String::from_utf8_lossy(&statement.database).into_owned());
    let text = String::from_utf8_lossy(&statement.text);
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == '-';
    for word in
        text.split(|c: char| !is_part(c)).filter(|word| (1..=64).contains(&word.len())).take(WORDS_MAX)
    {
        names.insert(word.to_owned());
    }
    // InnoDB's own tables name a database by its directory.
    let files: Vec<String> = names.iter().map(|name| file_name(name)).collect();
    names.extend(files);
    names
}

/// Returns a database's directory name: characters other than letters, digits and underscores become `@` and
/// their code.
fn file_name(name: &str) -> String {
    let mut file = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            ' '..='~' if !c.is_ascii_alphanumeric() && c != '_' => {
                file.push_str(&format!("@{:04x}", u32::from(c)))
            }
            _ => file.push(c),
        }
    }
    file
}

/// A query for definitions in `information_schema`.
struct DefinitionQuery {
    select: &'static str,
    /// The column with the database name.
    column: &'static str,
    /// Another column of the queried table that also has the database name. If the query's condition uses
    /// this column, MariaDB opens only the tables of that database.
    lookup: Option<&'static str>,
}

/// The queries for all kinds of objects. Their order must not change: fingerprints are stored on the target
/// and compared after a restart.
const DEFINITION_QUERIES: [DefinitionQuery; 10] = [
    DefinitionQuery {
        select: "SELECT schema_name, default_character_set_name, default_collation_name FROM information_schema.schemata",
        column: "schema_name",
        lookup: None,
    },
    DefinitionQuery {
        select: "SELECT table_schema, table_name, table_type, engine, row_format, table_collation, create_options, \
         table_comment FROM information_schema.tables",
        column: "table_schema",
        lookup: Some("table_schema"),
    },
    DefinitionQuery {
        select: "SELECT table_schema, table_name, column_name, ordinal_position, column_default, is_nullable, \
         column_type, collation_name, extra, column_comment, generation_expression FROM \
         information_schema.columns",
        column: "table_schema",
        lookup: Some("table_schema"),
    },
    DefinitionQuery {
        select: "SELECT table_schema, table_name, index_name, seq_in_index, column_name, sub_part, non_unique, \
         index_type, index_comment FROM information_schema.statistics",
        column: "table_schema",
        lookup: Some("table_schema"),
    },
    DefinitionQuery {
        select: "SELECT constraint_schema, table_name, constraint_name, constraint_type FROM \
         information_schema.table_constraints",
        column: "constraint_schema",
        lookup: Some("table_schema"),
    },
    DefinitionQuery {
        select: "SELECT table_schema, table_name, partition_name, subpartition_name, partition_method, \
         partition_expression, partition_description FROM information_schema.partitions",
        column: "table_schema",
        lookup: Some("table_schema"),
    },
    DefinitionQuery {
        select: "SELECT table_schema, table_name, view_definition FROM information_schema.views",
        column: "table_schema",
        lookup: Some("table_schema"),
    },
    DefinitionQuery {
        select: "SELECT trigger_schema, trigger_name, event_manipulation, event_object_table, action_order, \
         action_statement, action_timing FROM information_schema.triggers",
        column: "trigger_schema",
        lookup: Some("event_object_schema"),
    },
    DefinitionQuery {
        select: "SELECT routine_schema, routine_name, routine_type, routine_definition, routine_comment, definer FROM \
         information_schema.routines",
        column: "routine_schema",
        lookup: None,
    },
    DefinitionQuery {
        select: "SELECT event_schema, event_name, event_definition, status, interval_value, interval_field, execute_at \
         FROM information_schema.events",
        column: "event_schema",
        lookup: None,
    },
];

/// Returns the query for the table IDs. If two tables with the same definition swap names, only their IDs
/// change.
fn table_id_query(flavour: Flavour) -> DefinitionQuery {
    DefinitionQuery {
        select: match flavour {
            Flavour::MySql => "SELECT name, table_id FROM information_schema.innodb_tables",
            Flavour::MariaDb => "SELECT name, table_id FROM information_schema.innodb_sys_tables",
        },
        column: "SUBSTRING_INDEX(name, '/', 1)",
        lookup: None,
    }
}

/// The state of the objects that a statement may change, as a checksum.
#[derive(Debug)]
pub(super) struct Fingerprint {
    pub(super) text: String,
    /// Whether the account cannot read the table IDs. The fingerprint then does not change if two tables swap
    /// names.
    pub(super) lacks_numbers: bool,
}

/// Returns a fingerprint of all objects in the databases that `statement` may change. The fingerprint does
/// not cover objects that the account may not see.
///
/// # Errors
/// Any error that breaks the connection.
pub(super) async fn fingerprint(
    connection: &mut Connection,
    statement: &Statement,
    flavour: Flavour,
) -> Result<Fingerprint, SessionError> {
    let mut lacks_numbers = false;
    let names: Vec<String> =
        candidate_databases(statement).iter().map(|name| portable_literal(name)).collect();
    let names = names.join(",");
    // On MariaDB, use a separate query for each database. For a single database, MariaDB opens only the
    // tables of that database. For a list of databases, it opens the tables of every database on the server.
    let databases = match flavour {
        Flavour::MySql => None,
        Flavour::MariaDb => Some(existing_databases(connection, &names).await?),
    };
    let mut hasher = FixedState::with_seed(SEED).build_hasher();
    for DefinitionQuery { select, column, lookup } in
        DEFINITION_QUERIES.into_iter().chain([table_id_query(flavour)])
    {
        let questions = match databases.as_ref().zip(lookup) {
            // The server may compare names case-insensitively, so the query also compares them as bytes.
            Some((databases, lookup)) => databases
                .iter()
                .map(|name| format!("{select} WHERE {lookup} = {name} AND BINARY {column} = {name}"))
                .collect(),
            None => vec![format!("{select} WHERE {column} IN ({names}) ORDER BY 1,2")],
        };
        let mut sum = Some(0_u64);
        for sql in questions {
            match sum_of_rows(connection, &sql).await {
                Ok(of_one) => sum = sum.map(|sum| sum.wrapping_add(of_one)),
                // The account may lack the privilege for InnoDB's own tables. MySQL reports that only when
                // the query reads rows.
                Err(SessionError::Server { error, .. }) if matches!(error.number, 1044 | 1142 | 1227) => {
                    (sum, lacks_numbers) = (None, true);
                }
                // A damaged system table is not an error here, because the statement may repair this table or
                // may not need it.
                Err(SessionError::Server { error, .. })
                    if BROKEN_CATALOGUE_ERRORS.contains(&error.number) =>
                {
                    sum = sum.map(|sum| sum.wrapping_add(u64::from(error.number)));
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(sum) = sum {
            hasher.write_u64(sum);
        }
    }
    Ok(Fingerprint { text: format!("{:016x}", hasher.finish()), lacks_numbers })
}

/// Returns which of the quoted `names` are databases on the server, quoted and in the server's spelling.
async fn existing_databases(connection: &mut Connection, names: &str) -> Result<Vec<String>, SessionError> {
    let sql = format!("SELECT schema_name FROM information_schema.schemata WHERE schema_name IN ({names})");
    let answer = connection.query(&sql).await?;
    Ok(answer.rows.iter().filter_map(|row| row.get_str(0)).map(portable_literal).collect())
}

/// Returns whether a statement may swap tables, so that a second run would undo the first. Returns true also
/// if this is uncertain: a rename of more than two tables may be circular.
pub(super) fn may_swap(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(without_comments(wrapped(text)));
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let is = |word: &str, other: &str| word.eq_ignore_ascii_case(other);
    match words.next() {
        Some(word) if is(word, "RENAME") => text.matches(',').count() > 1,
        Some(word) if is(word, "ALTER") => {
            words.any(|word| is(word, "EXCHANGE")) && words.next().is_some_and(|word| is(word, "PARTITION"))
        }
        _ => false,
    }
}

/// If the DROP statement `text` drops several tables, returns a statement that drops only the tables that
/// still exist. An interrupted DROP may already have dropped some of the tables.
pub(super) fn rest_of_drop(text: &[u8]) -> Option<Vec<u8>> {
    let statement = without_comments(wrapped(text));
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic();
    let word = |from: usize| {
        let rest = statement.get(from..).unwrap_or_default();
        let start = from + rest.iter().position(is_letter).unwrap_or(rest.len());
        let rest = statement.get(start..).unwrap_or_default();
        let end = start + rest.iter().position(|byte| !is_letter(byte)).unwrap_or(rest.len());
        (statement.get(start..end).unwrap_or_default(), end)
    };
    let is = |word: &[u8], known: &str| word.eq_ignore_ascii_case(known.as_bytes());
    let (drop, end) = word(0);
    let (table, end) = if is(drop, "DROP") { word(end) } else { return None };
    if !(is(table, "TABLE") || is(table, "TABLES")) || !statement.contains(&b',') {
        return None;
    }
    let (head, rest) = statement.split_at(end);
    if rest.trim_ascii_start().get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"IF ")) {
        return Some(statement.to_vec());
    }
    Some([head, b" IF EXISTS", rest].concat())
}

/// Returns a checksum of the rows that does not depend on their order.
async fn sum_of_rows(connection: &mut Connection, sql: &str) -> Result<u64, SessionError> {
    let mut rows = connection.query_stream(sql).await?;
    let mut sum = 0u64;
    while let Some(row) = rows.next().await? {
        let mut row_hasher = FixedState::with_seed(SEED).build_hasher();
        for index in 0..row.len() {
            let value = row.get(index);
            row_hasher.write_u64(value.map_or(u64::MAX, |value| value.len() as u64));
            row_hasher.write(value.unwrap_or_default());
        }
        sum = sum.wrapping_add(row_hasher.finish());
    }
    Ok(sum)
}

/// Returns whether a statement fails with this error when it runs a second time: an object already exists, or
/// no longer exists.
pub(super) fn is_already_done(number: u16) -> bool {
    matches!(
        number,
        1007 | 1008
            | 1050
            | 1051
            | 1060
            | 1061
            | 1068
            | 1091
            | 1141
            | 1147
            | 1304
            | 1305
            | 1359
            | 1360
            | 1396
            | 1403
            | 1517
            | 1537
            | 1539
            | 1826
            | 3822
            | 4091
            | 4092
            | 4163
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_also_matched_by_directory_name() {
        assert_eq!(file_name("my-db$1_x"), "my@002ddb@00241_x");
        assert_eq!(file_name("plain"), "plain");
    }

    #[test]
    fn remaining_tables_can_be_dropped() {
        let rest = |text: &str| {
            rest_of_drop(text.as_bytes()).map(|text| String::from_utf8_lossy(&text).into_owned())
        };
        for (text, expected) in [
            (
                "DROP TABLE `a`,`b` /* generated by server */",
                Some("DROP TABLE IF EXISTS `a`,`b` /* generated by server */"),
            ),
            ("/* x */ drop tables d.if, d.b", Some("drop tables IF EXISTS d.if, d.b")),
            ("DROP TABLE IF EXISTS a, b", Some("DROP TABLE IF EXISTS a, b")),
            ("DROP TABLE a", None),
            ("DROP TEMPORARY TABLE a, b", None),
            ("ALTER TABLE a DROP n, DROP m", None),
            ("DROP", None),
            ("", None),
        ] {
            assert_eq!(rest(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn statements_that_may_swap_tables_are_recognized() {
        let may = |text: &str| may_swap(text.as_bytes());
        for text in [
            "RENAME TABLE a TO x, b TO a, x TO b",
            "rename tables d.a to d.x, d.b to d.a, d.x to d.b",
            "ALTER TABLE q EXCHANGE PARTITION p0 WITH TABLE plain",
            "alter table `q`\nexchange\tpartition `p0` with table `plain` without validation",
            "/* nightly */ ALTER TABLE q EXCHANGE PARTITION p0 WITH TABLE plain",
        ] {
            assert!(may(text), "the statement must count as a swap of tables: {text}");
        }
        for text in [
            "RENAME TABLE a TO old, new TO a",
            "ALTER TABLE exchange_rates ADD COLUMN n INT, DROP COLUMN m, ADD KEY (n)",
            "DROP TABLE a",
            "CREATE TABLE a (x INT, y INT, z INT)",
            "RENAME TABLE `unfinished",
            "",
        ] {
            assert!(!may(text), "the statement must not count as a swap of tables: {text}");
        }
    }
}
