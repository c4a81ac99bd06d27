//! Runs DDL statements under load. Meanwhile the test kills the applier, and a target that does not sync its
//! commits. Each statement must run exactly once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::Rng;
use tailwater_apply::channel::{ChannelOptions, GtidMode};
use tailwater_sandbox::{Server, ServerKind};
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use super::{Applier, TALLY, Tally, is_long, seeded, until};
use crate::channel_test_servers::Rig;

/// One round of DDL statements. `#` represents the number of the round. The results differ from round to
/// round.
const DEFINITIONS: &[&str] = &[
    "CREATE DATABASE d#",
    "CREATE TABLE d#.a (id INT PRIMARY KEY, t VARCHAR(20))",
    "INSERT INTO d#.a VALUES (1,'x'),(2,'y'),(3,'z')",
    "ALTER TABLE d#.a ADD COLUMN n INT NOT NULL DEFAULT 7, ADD UNIQUE u (t)",
    "UPDATE d#.a SET n=n+id",
    // The index has no name, so a second run would add a second index.
    "ALTER TABLE d#.a ADD INDEX (n)",
    "CREATE INDEX tn ON d#.a (t, n)",
    "CREATE TABLE d#.b LIKE d#.a",
    "INSERT INTO d#.b SELECT * FROM d#.a",
    "RENAME TABLE d#.a TO d#.c, d#.b TO d#.a",
    "TRUNCATE TABLE d#.c",
    "INSERT INTO d#.c VALUES (9,'9',9)",
    "CREATE VIEW d#.v AS SELECT id, n FROM d#.a",
    "CREATE OR REPLACE VIEW d#.v AS SELECT id, n+1 AS m FROM d#.a",
    "CREATE VIEW d#.w AS SELECT * FROM d#.v",
    "CREATE TRIGGER d#.g BEFORE INSERT ON d#.c FOR EACH ROW SET NEW.n = NEW.n + 100",
    "INSERT INTO d#.c VALUES (10,'10',10)",
    "CREATE PROCEDURE d#.p() UPDATE d#.c SET n=n+1",
    "CALL d#.p()",
    "CREATE EVENT d#.e ON SCHEDULE AT '2037-01-01 00:00:00' DO DELETE FROM d#.c",
    "CREATE USER 'tw#'@'%' IDENTIFIED BY 'secret'",
    "GRANT SELECT, INSERT ON d#.* TO 'tw#'@'%'",
    "REVOKE INSERT ON d#.* FROM 'tw#'@'%'",
    "DROP VIEW d#.w",
    "ALTER TABLE d#.a DROP COLUMN n",
    "CREATE TABLE d#.s AS SELECT * FROM d#.c",
    "DROP TRIGGER d#.g",
    "DROP TABLE d#.a",
    "CREATE TABLE d#.q (id INT, k INT) PARTITION BY HASH (k) PARTITIONS 3",
    "INSERT INTO d#.q VALUES (1,1),(2,2),(2,2)",
    "ALTER TABLE d#.q COALESCE PARTITION 1",
    // A second run of the EXCHANGE PARTITION below would undo the first run.
    "CREATE TABLE d#.plain (id INT, k INT)",
    "INSERT INTO d#.plain VALUES (5,0)",
    "ALTER TABLE d#.q EXCHANGE PARTITION p0 WITH TABLE d#.plain",
    "CREATE FUNCTION d#.f (x INT) RETURNS INT DETERMINISTIC RETURN x + 1",
    "CREATE TABLE d#.k (id INT PRIMARY KEY, c INT, CONSTRAINT fk# FOREIGN KEY (c) REFERENCES d#.c (id))",
    "INSERT INTO d#.k SELECT id, id FROM d#.c",
    "ALTER TABLE d#.k DROP FOREIGN KEY fk#",
    "ALTER VIEW d#.v AS SELECT id FROM d#.c",
    "ALTER DATABASE d# CHARACTER SET latin1",
    "CREATE TABLE d#.l (id INT PRIMARY KEY, t VARCHAR(9))",
    // These statements return rows.
    "OPTIMIZE TABLE d#.c",
    "ANALYZE TABLE d#.c, d#.k",
    "FLUSH TABLES",
    "ALTER USER 'tw#'@'%' IDENTIFIED BY 'other'",
    "RENAME USER 'tw#'@'%' TO 'two#'@'%'",
    "CREATE ROLE part#",
    "GRANT part# TO 'two#'@'%'",
    "FLUSH PRIVILEGES",
    "DROP ROLE part#",
    "DROP FUNCTION d#.f",
    "DROP PROCEDURE d#.p",
    "ALTER EVENT d#.e ON SCHEDULE AT '2038-01-01 00:00:00'",
    "DROP EVENT d#.e",
    "CREATE DATABASE dx#",
    "CREATE TABLE dx#.t (id INT PRIMARY KEY) SELECT id FROM d#.c",
    "CREATE TABLE dx#.u LIKE dx#.t",
    "DROP DATABASE dx#",
    "DROP TABLE IF EXISTS d#.l, d#.nobody",
];

/// DDL statements that only MariaDB has.
const OF_MARIADB: &[&str] = &[
    "CREATE SEQUENCE d#.n",
    "SELECT NEXTVAL(d#.n)",
    "CREATE OR REPLACE TABLE d#.s (id INT DEFAULT NEXTVAL(d#.n) PRIMARY KEY, t INT)",
    "INSERT INTO d#.s (t) VALUES (1),(2)",
    "ALTER SEQUENCE d#.n RESTART 50",
    "INSERT INTO d#.s (t) VALUES (3)",
];

/// Returns the server's definitions of databases, tables, stored programs and accounts, without modification
/// times.
async fn defined(server: &Server) -> Result<Vec<String>> {
    let queries = [
        "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'd_' OR schema_name LIKE 'dx_' ORDER BY 1",
        "SELECT table_schema, table_name, column_name, ordinal_position, column_default, column_type, column_key \
         FROM information_schema.columns WHERE table_schema LIKE 'd_' ORDER BY 1, 2, 4",
        "SELECT table_schema, table_name, index_name, seq_in_index, column_name FROM \
         information_schema.statistics WHERE table_schema LIKE 'd_' ORDER BY 1, 2, 3, 4",
        "SELECT table_schema, table_name, view_definition FROM information_schema.views WHERE table_schema LIKE \
         'd_' ORDER BY 1, 2",
        "SELECT trigger_schema, trigger_name, action_statement FROM information_schema.triggers WHERE \
         trigger_schema LIKE 'd_' ORDER BY 1, 2",
        "SELECT routine_schema, routine_name, routine_definition FROM information_schema.routines WHERE \
         routine_schema LIKE 'd_' ORDER BY 1, 2",
        "SELECT event_schema, event_name, event_definition FROM information_schema.events WHERE event_schema \
         LIKE 'd_' ORDER BY 1, 2",
        "SELECT grantee, table_schema, privilege_type FROM information_schema.schema_privileges WHERE grantee \
         LIKE '%tw%' ORDER BY 1, 2, 3",
        "SELECT user FROM mysql.user WHERE user LIKE 'tw%' ORDER BY 1",
        "SELECT table_schema, table_name, partition_name FROM information_schema.partitions WHERE \
         table_schema LIKE 'd_' ORDER BY 1, 2, 3",
    ];
    server.sql(&queries.join(";")).await.map_err(Into::into)
}

async fn run_once(kind: ServerKind) -> Result<()> {
    let forgetful = ["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0", "--event-scheduler=OFF"];
    let Some(mut rig) = Rig::start(kind, &["--event-scheduler=OFF"], &forgetful).await? else {
        return Ok(());
    };
    let mut random = seeded(&format!("definitions, {kind}"));
    Tally::prepare(&rig.source).await?;
    let load = Tally::start(&rig.source, 2, random.random());
    let options = rig.options("definitions");
    let mut applier = Applier::start(options.clone(), &rig)?;
    let (mut appliers, mut targets) = (0, 0);
    let rounds = if is_long() { 6 } else { 1 };
    let own = if kind.flavour() == Flavour::MariaDb { OF_MARIADB } else { &[] };
    for round in 0..rounds {
        for definition in DEFINITIONS.iter().chain(own) {
            let sql = definition.replace('#', &round.to_string());
            rig.source.sql(&sql).await.with_context(|| sql.clone())?;
            match random.random_range(0..20) {
                0..=5 => {
                    tokio::time::sleep(Duration::from_millis(random.random_range(0..60))).await;
                    applier.kill();
                    appliers += 1;
                    applier = Applier::start(options.clone(), &rig)?;
                }
                // Kill only the target. The applier still has in memory the recorded intents to run DDL
                // statements that the target has lost.
                6 => {
                    rig.target.kill().await?;
                    targets += 1;
                    rig.target.start_again().await?;
                }
                _ => {}
            }
        }
    }
    let transactions = load.stop().await?;
    rig.wait_applied(&applier.channel).await?;
    applier.channel.pause().await?;
    rig.ensure_equal(TALLY).await?;
    Tally::ensure_counted(&rig.target, transactions).await?;
    for round in 0..rounds {
        rig.ensure_equal(&[&format!("d{round}")]).await?;
    }
    let (wanted, found) = (defined(&rig.source).await?, defined(&rig.target).await?);
    ensure!(wanted == found, "the definitions differ\nsource: {wanted:#?}\ntarget: {found:#?}");
    eprintln!("{kind}: {appliers} appliers and {targets} targets killed during DDL statements");
    applier.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_definitions_run_once() -> Result<()> {
    run_once(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_definitions_run_once() -> Result<()> {
    run_once(ServerKind::Mysql97).await
}

/// The target has logged a DDL statement under the source's GTID. The applier is killed before it writes its
/// progress. After the restart, the channel must not conclude from the logged GTID that native replication
/// has applied the transaction.
async fn a_logged_definition_is_not_native_replication(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let options = ChannelOptions { gtid: GtidMode::Preserve, ..rig.options("preserved") };
    let applier = Applier::start(options.clone(), &rig)?;
    rig.source.sql("CREATE DATABASE kept; CREATE TABLE kept.a (id INT PRIMARY KEY)").await?;
    rig.wait_applied(&applier.channel).await?;
    let mut other = Connection::connect(&rig.target.connect_options()).await?;
    other.execute("BEGIN").await?;
    other.query("SELECT * FROM tailwater.apply_progress FOR UPDATE").await?;
    rig.source.sql("ALTER TABLE kept.a ADD COLUMN n INT; INSERT INTO kept.a VALUES (1, 2)").await?;
    let altered = "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema='kept'";
    until(&rig.target, altered, "2").await?;
    applier.kill();
    other.execute("ROLLBACK").await?;
    let applier = Applier::start(options, &rig)?;
    rig.wait_applied(&applier.channel).await?;
    rig.ensure_equal(&["kept"]).await?;
    applier.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_logged_definition_on_mysql_is_not_native_replication() -> Result<()> {
    a_logged_definition_is_not_native_replication(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_logged_definition_on_mariadb_is_not_native_replication() -> Result<()> {
    a_logged_definition_is_not_native_replication(ServerKind::Mariadb1011).await
}
