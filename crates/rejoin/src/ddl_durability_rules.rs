//! Decides what a DDL statement in the binlog proves about earlier commits. This matters on a server that
//! does not flush its storage engine's log at each commit.
//!
//! A storage engine that changes its own dictionary flushes its log, and with it all earlier commits. The
//! server stores other objects in files, without this flush. On MariaDB these are accounts, views, routines,
//! triggers and databases. In both flavours they also include the flags of a MyISAM table. The test
//! `crates/rejoin/tests/tables_behind_binlog_after_crash.rs` shows on real servers which statements flush.

use std::collections::HashSet;

use tailwater_wire::Flavour;

use tailwater_apply::replication_filter::{NamedObject, changed_by, outline};
use tailwater_apply::transaction_decoder::statement_classifier::{defines, is_temporary, wrapped};

/// What a DDL statement proves about earlier commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DdlEvidence {
    /// All commits before the statement are durable.
    Flushed,
    /// The statement proves nothing. It changes neither rows nor table definitions. If rows were lost before
    /// the statement, the rejoin can therefore write them again after it.
    Unrelated,
    /// What the statement proves is unknown.
    Unknown,
}

/// The InnoDB tables of a server, as pairs of database and table name.
pub(crate) type InnodbTables = HashSet<(String, String)>;

/// Classifies a DDL statement that is in the server's binlog. `database` is the default database of the
/// statement; `tables` are the present InnoDB tables of the server.
pub(crate) fn classify(flavour: Flavour, text: &[u8], database: &str, tables: &InnodbTables) -> DdlEvidence {
    if !defines(text) {
        return DdlEvidence::Unknown;
    }
    let text = wrapped(text);
    let Some(words) = outline(text) else { return DdlEvidence::Unknown };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((verb, rest)) = words.split_first() else { return DdlEvidence::Unknown };
    match *verb {
        "GRANT" | "REVOKE" | "SET" | "FLUSH" | "INSTALL" | "UNINSTALL" | "ANALYZE" | "OPTIMIZE" => {
            return DdlEvidence::Unrelated;
        }
        "CREATE" | "ALTER" | "DROP" | "RENAME" | "TRUNCATE" => {}
        _ => return DdlEvidence::Unknown,
    }
    if is_temporary(text) {
        return DdlEvidence::Unrelated;
    }
    let is_if = rest.windows(2).any(|pair| pair[0] == "IF" && matches!(pair[1], "EXISTS" | "NOT"));
    let object = rest.iter().find(|word| OBJECTS.contains(word)).copied();
    match object.or((*verb == "TRUNCATE").then_some("TABLE")) {
        Some("TABLE" | "TABLES" | "INDEX") => {}
        Some("DATABASE" | "SCHEMA") if *verb == "DROP" || rest.contains(&"REPLACE") => {
            // The dropped or changed database may contain no InnoDB table, so on MariaDB the statement may
            // not have flushed anything.
            return match flavour {
                Flavour::MySql if !is_if => DdlEvidence::Flushed,
                _ => DdlEvidence::Unknown,
            };
        }
        Some(_) => return DdlEvidence::Unrelated,
        None => return DdlEvidence::Unknown,
    }
    let is_index = object == Some("INDEX");
    let among = innodb_among(text, database, tables);
    match *verb {
        // If the object already existed, the statement did nothing. It therefore proves nothing.
        "CREATE" if is_if => DdlEvidence::Unrelated,
        "DROP" if is_if && is_index => DdlEvidence::Unrelated,
        _ if is_if => DdlEvidence::Unknown,
        // The engine of the dropped table is unknown. This does not matter on MySQL, which records tables of
        // every engine in its InnoDB dictionary.
        "DROP" if !is_index => match flavour {
            Flavour::MySql => DdlEvidence::Flushed,
            Flavour::MariaDb => DdlEvidence::Unknown,
        },
        "ALTER" if flavour == Flavour::MariaDb && !is_renaming(rest) => match alteration(rest) {
            DdlEvidence::Flushed => proof_if(among == InnodbShare::All),
            definition => definition,
        },
        // After a rename, usually no table has the old name. So it is enough if one of the statement's table
        // names is an InnoDB table now.
        "ALTER" | "RENAME" if *verb == "RENAME" || is_renaming(rest) => proof_if(among != InnodbShare::None),
        "CREATE" if !is_index && among != InnodbShare::All && !rest.contains(&"REPLACE") => {
            DdlEvidence::Unrelated
        }
        _ => proof_if(among == InnodbShare::All),
    }
}

/// Words that name the object type of a DDL statement. The first of these words in a statement is its object
/// type, because the options before it use other words.
const OBJECTS: [&str; 18] = [
    "TABLE",
    "TABLES",
    "INDEX",
    "DATABASE",
    "SCHEMA",
    "VIEW",
    "PROCEDURE",
    "FUNCTION",
    "TRIGGER",
    "EVENT",
    "PACKAGE",
    "USER",
    "ROLE",
    "SERVER",
    "RESOURCE",
    "INSTANCE",
    "LOGFILE",
    "SPATIAL_REFERENCE",
];

fn proof_if(is_proof: bool) -> DdlEvidence {
    if is_proof { DdlEvidence::Flushed } else { DdlEvidence::Unknown }
}

fn is_renaming(words: &[&str]) -> bool {
    words
        .windows(2)
        .any(|pair| pair[0] == "RENAME" && !matches!(pair[1], "COLUMN" | "INDEX" | "KEY" | "CONSTRAINT"))
}

/// Classifies an `ALTER TABLE` of an InnoDB table on MariaDB. If the statement changes only a comment or a
/// default, or nothing at all, the engine is not involved.
fn alteration(words: &[&str]) -> DdlEvidence {
    let follows = |clause: &str, but: &[&str]| {
        words.windows(2).any(|pair| pair[0] == clause && !but.contains(&pair[1]))
    };
    if follows("ADD", &[]) || follows("DROP", &["DEFAULT"]) {
        return DdlEvidence::Flushed;
    }
    const REBUILDS: [&str; 12] = [
        "MODIFY",
        "CHANGE",
        "RENAME",
        "ENGINE",
        "CONVERT",
        "FORCE",
        "ORDER",
        "REMOVE",
        "PARTITION",
        "EXCHANGE",
        "IMPORT",
        "DISCARD",
    ];
    match words.iter().any(|word| REBUILDS.contains(word)) {
        true => DdlEvidence::Unknown,
        false => DdlEvidence::Unrelated,
    }
}

/// Returns whether all, some or none of the tables that a statement changes are InnoDB tables now.
fn innodb_among(text: &[u8], database: &str, tables: &InnodbTables) -> InnodbShare {
    let named = changed_by(text).unwrap_or_default();
    let is_there = |named: &NamedObject| {
        let schema = named.schema.as_deref().unwrap_or(database).to_lowercase();
        named.table.as_ref().is_some_and(|table| tables.contains(&(schema, table.to_lowercase())))
    };
    match named.iter().filter(|named| is_there(named)).count() {
        0 => InnodbShare::None,
        count if count < named.len() => InnodbShare::Some,
        _ => InnodbShare::All,
    }
}

/// Whether all, some or none of the tables of a statement are InnoDB tables; see [`innodb_among`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InnodbShare {
    None,
    Some,
    All,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(flavour: Flavour, text: &str) -> DdlEvidence {
        let tables = ["t", "u", "renamed"].map(|table| ("d".to_owned(), table.to_owned()));
        classify(flavour, text.as_bytes(), "d", &HashSet::from(tables))
    }

    #[test]
    fn statements_that_flush_the_engine_log_are_proofs() {
        for text in [
            "CREATE TABLE t (id INT)",
            "create table D.T like u",
            "TRUNCATE t",
            "ALTER TABLE t ADD COLUMN c INT COMMENT 'x', COMMENT='y'",
            "ALTER TABLE `t` DROP COLUMN c",
            "ALTER TABLE t ADD CHECK (a > 1)",
            "ALTER TABLE gone RENAME TO renamed",
            "RENAME TABLE gone TO renamed",
            "CREATE UNIQUE INDEX i ON t (c)",
            "DROP INDEX i ON t",
            "SET STATEMENT max_statement_time=1 FOR CREATE TABLE t (id INT)",
        ] {
            assert_eq!(judged(Flavour::MariaDb, text), DdlEvidence::Flushed, "{text}");
        }
        for text in [
            "DROP TABLE gone",
            "DROP DATABASE gone",
            "ALTER TABLE t COMMENT='x'",
            "ALTER TABLE t MODIFY c INT",
        ] {
            assert_eq!(judged(Flavour::MySql, text), DdlEvidence::Flushed, "{text}");
        }
    }

    #[test]
    fn statements_that_change_no_rows_or_table_definitions_prove_nothing() {
        for flavour in [Flavour::MySql, Flavour::MariaDb] {
            for text in [
                "GRANT SELECT ON d.t TO u",
                "/* x */ REVOKE ALL ON *.* FROM u",
                "CREATE USER u IDENTIFIED BY 'x'",
                "SET PASSWORD FOR u = 'x'",
                "CREATE OR REPLACE DEFINER=`a`@`b` VIEW v AS SELECT * FROM t",
                "CREATE DEFINER=root@localhost PROCEDURE p() BEGIN ALTER TABLE t ADD c INT; END",
                "DROP TRIGGER g",
                "ALTER EVENT e DISABLE",
                "CREATE DATABASE x",
                "FLUSH PRIVILEGES",
                "CREATE TABLE IF NOT EXISTS t (id INT)",
                "CREATE TABLE other (id INT) ENGINE=MyISAM",
                "DROP TEMPORARY TABLE IF EXISTS x",
            ] {
                assert_eq!(judged(flavour, text), DdlEvidence::Unrelated, "{text}");
            }
        }
        for text in ["ALTER TABLE t COMMENT='ADD'", "ALTER TABLE t ALTER COLUMN c DROP DEFAULT"] {
            assert_eq!(judged(Flavour::MariaDb, text), DdlEvidence::Unrelated, "{text}");
        }
    }

    #[test]
    fn statements_with_an_uncertain_effect_are_unknown() {
        for text in [
            "DROP TABLE gone",
            "DROP TABLE IF EXISTS gone",
            "DROP DATABASE gone",
            "ALTER TABLE t MODIFY c INT",
            "ALTER TABLE t CHANGE c c INT COMMENT 'x'",
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS c INT",
            "ALTER TABLE other ADD COLUMN c INT",
            "TRUNCATE TABLE other",
            "RENAME TABLE gone TO away",
            "CREATE OR REPLACE TABLE other (id INT)",
            "CREATE SEQUENCE s",
            "INSERT INTO t VALUES (1)",
            "ALTER TABLE t COMMENT='no end",
            "",
        ] {
            assert_eq!(judged(Flavour::MariaDb, text), DdlEvidence::Unknown, "{text}");
        }
    }
}
