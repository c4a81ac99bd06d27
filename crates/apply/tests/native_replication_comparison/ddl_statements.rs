//! DDL statements whose effect depends on more than their text: the current database, existing objects, or
//! settings that are not logged.

use super::*;

const COMMON: &[&str] = &[
    // ALTER DATABASE without a name alters the current database of the session.
    "CREATE DATABASE one CHARACTER SET latin1",
    "CREATE DATABASE two CHARACTER SET latin1",
    "USE two",
    "CREATE TABLE here (a VARCHAR(9))",
    "USE one",
    "ALTER DATABASE CHARACTER SET latin2",
    "CREATE TABLE here (a VARCHAR(9))",
    "ALTER DATABASE two COLLATE latin1_bin",
    "CREATE TABLE `here too` LIKE two.here",
    "CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN 1",
    "CREATE DATABASE three",
    "DROP DATABASE three",
    "CREATE DATABASE three CHARACTER SET latin5",
    "USE three",
    "ALTER SCHEMA DEFAULT COLLATE latin5_bin",
    "CREATE TABLE here (a VARCHAR(9))",
    "DROP DATABASE three",
    "CREATE TABLE one.without (a INT)",
    "USE one",
    // Some of the objects in these statements do not exist.
    "CREATE TABLE gone (a INT)",
    "!DROP TABLE gone, never",
    "DROP TABLE IF EXISTS gone, never",
    "CREATE VIEW v AS SELECT 1 AS a",
    "!DROP VIEW v, never",
    "CREATE TEMPORARY TABLE passing (a INT)",
    "DROP TABLE passing",
    "CREATE TABLE mi (a INT PRIMARY KEY) ENGINE=MyISAM",
    "!INSERT INTO mi VALUES (1), (2), (1)",
    "SET SESSION binlog_format=STATEMENT",
    "!INSERT INTO mi VALUES (3), (4), (1)",
    "SET SESSION binlog_format=ROW",
    "OPTIMIZE TABLE mi",
    "ANALYZE TABLE mi, here",
    "TRUNCATE mi",
    "CREATE TABLE moved (a INT)",
    "RENAME TABLE moved TO two.moved, here TO `was here`",
];

const MYSQL: &[&str] = &[
    // These statements create and fill a table.
    "CREATE TABLE k ENGINE=InnoDB AS SELECT 1 AS a",
    "CREATE TABLE k1 COMMENT='START TRANSACTION' AS SELECT 1 AS a",
    "CREATE TABLE k2 DEFAULT CHARSET latin1 AS SELECT 'x' AS a",
    "CREATE TABLE k3 (a INT DEFAULT 3) PARTITION BY HASH (a) PARTITIONS 2 AS SELECT 1 AS a",
    "CREATE TABLE k4 (b INT PRIMARY KEY AUTO_INCREMENT) COMMENT='x' AUTO_INCREMENT=5 ROW_FORMAT=DYNAMIC \
     PARTITION BY RANGE (b) (PARTITION p0 VALUES LESS THAN (10)) SELECT 1 AS a",
    "CREATE TABLE k5 (PRIMARY KEY (a)) SELECT 1 AS a UNION SELECT 2",
    "CREATE TABLE IF NOT EXISTS k6 (n DECIMAL(9,2) GENERATED ALWAYS AS (a + 1)) IGNORE SELECT 1 AS a",
    "CREATE TABLE k7 STATS_PERSISTENT=1 AS TABLE k",
    "CREATE TABLE two.k8 SELECT a FROM k LIMIT 0",
    "CREATE TEMPORARY TABLE k9 SELECT 1 AS a",
    // The next statement switches off the check that would reject the foreign key below, because that foreign
    // key refers to a key that is not unique. The binlog does not contain this setting.
    "SET restrict_fk_on_non_standard_key=OFF",
    "CREATE TABLE fp (a INT, KEY (a))",
    "CREATE TABLE fc (a INT, FOREIGN KEY (a) REFERENCES fp (a))",
    "SET restrict_fk_on_non_standard_key=ON",
    "SET default_table_encryption=OFF",
    "CREATE DATABASE four",
    "SET sql_require_primary_key=ON",
    "CREATE TABLE keyed (a INT PRIMARY KEY)",
    "SET sql_require_primary_key=OFF, sql_generate_invisible_primary_key=ON",
    "CREATE TABLE unkeyed (a INT)",
    "INSERT INTO unkeyed VALUES (1)",
];

const MARIADB: &[&str] = &[
    // `filename` is the only character set with characters of up to five bytes.
    "CREATE TABLE fn (a CHAR(60) CHARACTER SET filename, b VARCHAR(20) CHARACTER SET filename)",
    "INSERT INTO fn VALUES ('a-b', 'c d')",
    "CREATE TABLE k AS SELECT 1 AS a",
    "CREATE OR REPLACE TABLE k COMMENT='x' PARTITION BY HASH (a) PARTITIONS 2 AS SELECT 2 AS a",
    // MariaDB leaves a duplicate row in the table `long_unique` if the table is altered under READ COMMITTED.
    "CREATE TABLE long_unique (a VARCHAR(7961)) CHARACTER SET latin1",
    "INSERT INTO long_unique VALUES ('f'), ('o'), ('o')",
    "ALTER IGNORE TABLE long_unique ADD UNIQUE INDEX (a)",
    "CREATE SEQUENCE s1",
    "!DROP SEQUENCE s1, never",
    "SET check_constraint_checks=OFF",
    "CREATE TABLE checked (a INT CHECK (a > 0))",
    "SET SESSION binlog_format=STATEMENT",
    "INSERT INTO checked VALUES (-1)",
    "SET SESSION binlog_format=ROW, check_constraint_checks=ON",
    "SET sql_if_exists=ON",
    "DROP TABLE never",
    "ALTER TABLE k ADD COLUMN b INT",
    "SET sql_if_exists=OFF",
    "SET explicit_defaults_for_timestamp=OFF",
    "CREATE TABLE stamped (a TIMESTAMP, b TIMESTAMP)",
    "SET explicit_defaults_for_timestamp=ON",
    "CREATE TABLE stamped2 (a TIMESTAMP, b TIMESTAMP)",
    "CREATE PROCEDURE p() SELECT 1",
    "UPDATE mysql.proc SET comment='changed' WHERE db='one' AND name='p'",
    // The next tables are system-versioned, so they have a history.
    "SET TIMESTAMP=1700000000.25",
    "CREATE TABLE vt (a INT PRIMARY KEY, b INT) WITH SYSTEM VERSIONING",
    "INSERT INTO vt VALUES (1, 1), (2, 2)",
    "SET TIMESTAMP=1700000001.5",
    "UPDATE vt SET b=3 WHERE a=1",
    "DELETE FROM vt WHERE a=2",
    "SET system_versioning_alter_history=KEEP",
    "ALTER TABLE vt ADD COLUMN y INT DEFAULT 5",
    "ALTER TABLE vt DROP COLUMN b",
    "ALTER TABLE vt MODIFY y BIGINT, ADD KEY (y)",
    "CREATE TABLE vp (a INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, \
     PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME (PARTITION h HISTORY, PARTITION c CURRENT)",
    "INSERT INTO vp (a) VALUES (1)",
    "UPDATE vp SET a=2",
    "ALTER TABLE vp ADD COLUMN z INT",
    "ALTER TABLE vt CHANGE y yy BIGINT",
    "ALTER TABLE vt ADD COLUMN u INT WITHOUT SYSTEM VERSIONING",
    "UPDATE vt SET u=1",
    "DELETE HISTORY FROM vt BEFORE SYSTEM_TIME '2000-01-01'",
    "SET system_versioning_alter_history=ERROR",
    "SET TIMESTAMP=DEFAULT",
    "CREATE TABLE app (id INT, s DATE, e DATE, PERIOD FOR p (s, e))",
    "INSERT INTO app VALUES (1, '2000-01-01', '2001-01-01')",
    "UPDATE app FOR PORTION OF p FROM '2000-02-01' TO '2000-03-01' SET id=2",
    "SET SESSION binlog_format=STATEMENT",
    "DELETE FROM app FOR PORTION OF p FROM '2000-06-01' TO '2000-07-01'",
    "SET SESSION binlog_format=ROW",
];

/// Statements for MariaDB 10.11 and later.
const MARIADB_HISTORY: &[&str] = &[
    "USE one",
    "SET system_versioning_insert_history=ON",
    "SET SESSION binlog_format=STATEMENT",
    "CREATE TABLE vh (a INT) WITH SYSTEM VERSIONING",
    "INSERT INTO vh (a, row_start, row_end) VALUES (1, '2000-01-01', '2001-01-01')",
];

pub(super) async fn run(comparison: &Comparison, channel: &Channel) -> Result<()> {
    comparison.run("root", COMMON).await?;
    match comparison.flavour {
        Flavour::MySql => comparison.run("root", &[&["USE one"], MYSQL].concat()).await?,
        Flavour::MariaDb => {
            comparison.run("root", &[&["USE one"], MARIADB].concat()).await?;
            comparison.run("root", MARIADB_HISTORY).await?;
        }
    }
    comparison.wait(channel).await?;
    comparison.ensure_same_databases(&["one", "two", "three", "four"]).await?;
    if comparison.flavour == Flavour::MariaDb {
        let history =
            ["vt", "vh"].map(|table| format!("SELECT *, row_end FROM one.{table} FOR SYSTEM_TIME ALL"));
        comparison.ensure_same(&history).await?;
        comparison.ensure_same(&["SELECT comment FROM mysql.proc WHERE db='one'".to_owned()]).await?;
    }
    Ok(())
}
