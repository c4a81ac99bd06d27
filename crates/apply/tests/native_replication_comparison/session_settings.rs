//! Session settings of the source: every collation, every `sql_mode`, and all other settings on which a
//! statement depends.

use tailwater_wire::event_printer::charset::{character_set, collation_name};

use super::*;

/// The SQL modes, including MariaDB's combined modes.
const MODES: &[&str] = &[
    "ANSI",
    "ANSI_QUOTES",
    "ALLOW_INVALID_DATES",
    "ERROR_FOR_DIVISION_BY_ZERO",
    "HIGH_NOT_PRECEDENCE",
    "IGNORE_SPACE",
    "NO_AUTO_VALUE_ON_ZERO",
    "NO_BACKSLASH_ESCAPES",
    "NO_DIR_IN_CREATE",
    "NO_ENGINE_SUBSTITUTION",
    "NO_UNSIGNED_SUBTRACTION",
    "NO_ZERO_DATE",
    "NO_ZERO_IN_DATE",
    "ONLY_FULL_GROUP_BY",
    "PAD_CHAR_TO_FULL_LENGTH",
    "PIPES_AS_CONCAT",
    "REAL_AS_FLOAT",
    "STRICT_ALL_TABLES",
    "STRICT_TRANS_TABLES",
    "TRADITIONAL",
    "",
];
const MYSQL_MODES: &[&str] = &["TIME_TRUNCATE_FRACTIONAL"];
const MARIADB_MODES: &[&str] = &[
    "ORACLE",
    "MSSQL",
    "DB2",
    "MAXDB",
    "POSTGRESQL",
    "MYSQL323",
    "MYSQL40",
    "SIMULTANEOUS_ASSIGNMENT",
    "EMPTY_STRING_IS_NULL",
    "TIME_ROUND_FRACTIONAL",
    "NO_FIELD_OPTIONS",
    "NO_KEY_OPTIONS",
    "NO_TABLE_OPTIONS",
    "IGNORE_BAD_TABLE_OPTIONS",
];

/// Returns every collation of the source, with its number, character set and name. Tailwater must know all of
/// them.
async fn collations(comparison: &Comparison) -> Result<Vec<(u32, String, String)>> {
    let sql = match comparison.flavour {
        Flavour::MySql => {
            "SELECT id, character_set_name, collation_name FROM information_schema.collations ORDER BY id"
        }
        Flavour::MariaDb => {
            "SELECT id, character_set_name, full_collation_name FROM information_schema.collation_character_set_applicability \
             ORDER BY id"
        }
    };
    let mut collations = Vec::new();
    for line in comparison.rig.source.sql(sql).await? {
        let mut fields = line.split('\t').map(str::to_owned);
        let (Some(number), Some(set), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
            anyhow::bail!("the line must have the number, character set and name of a collation: {line}");
        };
        let number = number.parse()?;
        ensure!(
            character_set(number) == Some(&*set),
            "Tailwater does not know the collation {line}: {:?}",
            character_set(number)
        );
        // MariaDB 11.8 has new names for some older collations.
        ensure!(
            collation_name(number, comparison.flavour) == Some(&*name),
            "Tailwater does not know the collation {line}: {:?}",
            collation_name(number, comparison.flavour)
        );
        collations.push((number, set, name));
    }
    Ok(collations)
}

/// Runs a statement under each collation, and a DDL statement for each character set.
async fn under_collations(comparison: &Comparison, channel: &Channel) -> Result<()> {
    comparison
        .run(
            "root",
            &[
                "CREATE DATABASE s",
                "CREATE TABLE s.t (id INT, a VARCHAR(50), b VARCHAR(50)) CHARACTER SET utf8mb4",
            ],
        )
        .await?;
    let mut session = comparison.session("root", "").await?;
    session.execute("SET SESSION binlog_format=STATEMENT").await?;
    session.execute("USE s").await?;
    let mut sets = std::collections::BTreeSet::new();
    for (number, set, name) in collations(comparison).await? {
        let is_client = !(set.starts_with("ucs2") || set.starts_with("utf16") || set.starts_with("utf32"));
        let names = match is_client && set != "binary" {
            true => format!("SET NAMES {set} COLLATE {name}"),
            false => format!("SET collation_connection={name}"),
        };
        session.execute("SET NAMES utf8mb4").await?;
        session.execute(&format!("SET time_zone='+0{}:00'", number % 10)).await?;
        session.execute(&names).await.context(names.clone())?;
        session.execute("SET @v='it is'").await?;
        let insert = format!("INSERT INTO t VALUES ({number}, CONCAT(@v, ' x'), COLLATION('a'))");
        session.execute(&insert).await.context(names.clone())?;
        if sets.insert(set) {
            let make = [
                format!(
                    "CREATE TABLE c{number} (a VARCHAR(9) DEFAULT 'x' COMMENT 'it''s', t TIMESTAMP DEFAULT '2020-01-01 00:00:00')"
                ),
                format!("CREATE VIEW v{number} AS SELECT 'x' AS a"),
                format!("CREATE PROCEDURE p{number}() SELECT 'x'"),
                format!("INSERT INTO c{number} VALUES (DEFAULT, DEFAULT), ('y', NOW())"),
            ];
            for statement in make {
                session.execute(&statement).await.with_context(|| format!("{names}: {statement}"))?;
            }
        }
    }
    comparison.wait(channel).await
}

/// Runs DDL statements and row changes as statements under each SQL mode, one by one and in one transaction.
async fn under_modes(comparison: &Comparison, channel: &Channel) -> Result<()> {
    let of_flavour = match comparison.flavour {
        Flavour::MySql => MYSQL_MODES,
        Flavour::MariaDb => MARIADB_MODES,
    };
    let mut session = comparison.session("root", "").await?;
    session.execute("SET SESSION binlog_format=STATEMENT").await?;
    session.execute("CREATE DATABASE m").await?;
    session.execute("USE m").await?;
    for (number, mode) in MODES.iter().chain(of_flavour).enumerate() {
        let set = format!("SET sql_mode='{mode}'");
        if session.execute(&set).await.is_err() {
            continue;
        }
        let statements = [
            format!("CREATE TABLE m{number} (a INT, b VARCHAR(9) DEFAULT '\\\\')"),
            format!("CREATE TABLE n{number} (a INT)"),
            "START TRANSACTION".to_owned(),
            format!("INSERT INTO m{number} VALUES (1, 'x')"),
            format!("UPDATE m{number} SET b='y'"),
            "COMMIT".to_owned(),
            format!("CREATE VIEW v{number} AS SELECT a FROM m{number}"),
            format!("DROP TABLE n{number}"),
        ];
        for statement in statements {
            session.execute(&statement).await.with_context(|| format!("{set}: {statement}"))?;
        }
    }
    comparison.wait(channel).await
}

/// MariaDB 11.3 and later: tests every collation as the default of its character set.
async fn under_default_collations(comparison: &Comparison, channel: &Channel) -> Result<()> {
    let mut session = comparison.session("root", "").await?;
    session.execute("SET SESSION binlog_format=STATEMENT").await?;
    for (number, set, name) in collations(comparison).await? {
        let setting = format!("SET character_set_collations='{set}={name}'");
        if session.execute(&setting).await.is_ok() {
            session.execute(&format!("INSERT INTO s.t VALUES ({number}, 'y', 'z')")).await?;
            if number % 50 == 8 {
                session
                    .execute(&format!("CREATE TABLE s.d{number} (a VARCHAR(9)) CHARACTER SET {set}"))
                    .await?;
            }
        }
    }
    comparison.wait(channel).await
}

/// Statements that run under session settings other than collations and SQL modes. The result of the
/// statements depends on the settings, or the settings could change the meaning of Tailwater's own
/// statements.
const OTHERS: &[&str] = &[
    "CREATE DATABASE o",
    "USE o",
    "SET SESSION binlog_format=STATEMENT",
    "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(99))",
    "SET auto_increment_increment=7, auto_increment_offset=3",
    "INSERT INTO t (a) VALUES ('x'), ('y')",
    "SET lc_time_names='de_DE', time_zone='-03:30', TIMESTAMP=1500000000",
    "INSERT INTO t (a) SELECT CONCAT(MONTHNAME(NOW()), NOW())",
    "SET autocommit=0",
    "INSERT INTO t (a) VALUES ('no autocommit')",
    "COMMIT",
    "CREATE TABLE u (a INT)",
    "SET autocommit=1, completion_type=CHAIN, sql_auto_is_null=1, unique_checks=0, foreign_key_checks=0",
    "INSERT INTO t (a) VALUES ('chained')",
    "COMMIT",
    "SET completion_type=DEFAULT, sql_auto_is_null=0, unique_checks=1, foreign_key_checks=1, sql_safe_updates=1, sql_select_limit=1",
    "INSERT INTO t (a) VALUES ('limited'), ('not limited')",
    "SET lock_wait_timeout=1, innodb_lock_wait_timeout=1, wait_timeout=100, sql_warnings=1, max_sort_length=4",
    "CREATE TABLE w (a INT)",
    "SET @bin=X'00FF', @int=-5, @real=1.5e0, @dec=1.25, @nul=NULL, @u=18446744073709551615",
    "INSERT INTO t (a) VALUES (CONCAT_WS('/', HEX(@bin), @int, @real, @dec, @nul, @u))",
    "INSERT INTO t (a) VALUES (LAST_INSERT_ID())",
];

pub(super) async fn run(comparison: &Comparison, channel: &Channel) -> Result<()> {
    under_collations(comparison, channel).await?;
    comparison.ensure_same_databases(&["s"]).await?;
    under_modes(comparison, channel).await?;
    comparison.ensure_same_databases(&["m"]).await?;
    comparison.run("root", OTHERS).await?;
    comparison.wait(channel).await?;
    comparison.ensure_same_databases(&["o"]).await?;
    if comparison.rig.source.sql("SHOW VARIABLES LIKE 'character_set_collations'").await?.is_empty() {
        return Ok(());
    }
    under_default_collations(comparison, channel).await?;
    comparison.ensure_same_databases(&["s"]).await
}
