//! Statements about accounts that refer to the account of their session. The event contains that account.

use super::*;

const BY_ROOT: &[&str] = &[
    "CREATE DATABASE d",
    "CREATE TABLE d.t (a INT, b INT)",
    "CREATE TABLE d.u (a INT)",
    "CREATE USER boss@localhost IDENTIFIED BY 'secret'",
    "GRANT ALL ON *.* TO boss@localhost WITH GRANT OPTION",
    "GRANT SELECT ON d.t TO boss@localhost",
    "CREATE USER worker@localhost IDENTIFIED BY 'secret'",
    "GRANT CREATE ROUTINE, CREATE VIEW, CREATE, SELECT ON d.* TO worker@localhost",
    "CREATE USER `odd``name`@localhost IDENTIFIED BY 'secret'",
    "GRANT ALL ON *.* TO `odd``name`@localhost WITH GRANT OPTION",
    "CREATE USER other@localhost, gone@localhost",
];

/// Statements of both flavours. A session of the account `boss` runs them.
const BY_BOSS: &[&str] = &[
    "GRANT SELECT ON d.t TO CURRENT_USER()",
    "GRANT INSERT (a), UPDATE (b) ON d.t TO current_user",
    "GRANT UPDATE ON d.u TO other@localhost, CURRENT_USER /* ( */ ( )",
    "GRANT DELETE ON d.* TO CURRENT_USER()",
    "REVOKE DELETE ON d.* FROM CURRENT_USER()",
    "GRANT SELECT ON d.t TO other@localhost",
    "ALTER USER CURRENT_USER() IDENTIFIED BY 'secret'",
    "ALTER USER other@localhost ACCOUNT LOCK",
    "CREATE USER `current_user`@localhost",
    "GRANT SELECT ON d.u TO `current_user`@localhost",
    "CREATE PROCEDURE d.p() SELECT 'CURRENT_USER'",
    "GRANT EXECUTE ON PROCEDURE d.p TO CURRENT_USER()",
    "CREATE DEFINER=CURRENT_USER PROCEDURE d.q() SELECT CURRENT_USER()",
    "CREATE DEFINER = CURRENT_USER() VIEW d.v AS SELECT CURRENT_USER() AS definer",
    "CREATE DEFINER = CURRENT_USER EVENT d.e ON SCHEDULE EVERY 1 DAY DO SET @a=CURRENT_USER()",
    "CREATE DEFINER=CURRENT_USER() TRIGGER d.g BEFORE INSERT ON d.t FOR EACH ROW SET NEW.a=1",
    "USE d",
    "CREATE EVENT f ON SCHEDULE EVERY 1 DAY DO SET @a=CURRENT_USER()",
    "ALTER DEFINER=CURRENT_USER EVENT f ON COMPLETION PRESERVE",
    "GRANT ALTER ON * TO CURRENT_USER()",
    "GRANT INDEX ON u TO CURRENT_USER()",
    "DROP USER gone@localhost",
];

const MARIADB_BY_BOSS: &[&str] = &[
    "GRANT USAGE ON *.* TO CURRENT_USER() IDENTIFIED BY 'secret'",
    "CREATE ROLE r1",
    "CREATE OR REPLACE ROLE r2 WITH ADMIN CURRENT_USER",
    "CREATE ROLE r3 WITH ADMIN other@localhost",
    "CREATE ROLE r4, r5",
    "GRANT r1 TO other@localhost",
    "GRANT r2 TO r1",
    "SET DEFAULT ROLE r1",
    "SET DEFAULT ROLE r1 FOR CURRENT_USER()",
    "SET ROLE r1",
    "GRANT SELECT ON d.u TO CURRENT_ROLE",
    "CREATE DEFINER=CURRENT_ROLE PROCEDURE d.of_role() SELECT 1",
    "SET STATEMENT lock_wait_timeout=5 FOR GRANT SELECT ON d.u TO CURRENT_USER()",
    "SET PASSWORD = PASSWORD('secret')",
    "CREATE ROLE r6, r7",
    "SET ROLE r6",
    "DROP ROLE CURRENT_ROLE",
    "SET ROLE r7",
    "DROP ROLE IF EXISTS r6, CURRENT_ROLE()",
];

/// Statements that name some accounts that do not exist.
const HALF_DONE: &[&str] = &[
    "CREATE USER half@localhost",
    "!CREATE USER whole@localhost, half@localhost",
    "!DROP USER half@localhost, nobody@localhost",
    "!REVOKE ALL PRIVILEGES, GRANT OPTION FROM whole@localhost, nobody@localhost",
];

const MYSQL_BY_BOSS: &[&str] = &[
    "CREATE ROLE r1, r2",
    "GRANT r1 TO CURRENT_USER()",
    "SET PASSWORD FOR CURRENT_USER() = 'secret'",
    "ALTER USER CURRENT_USER() DEFAULT ROLE ALL",
    "ALTER USER USER() IDENTIFIED BY 'secret'",
    "SET PASSWORD = 'secret'",
    "ALTER USER USER() IDENTIFIED BY 'secret' REPLACE 'secret' RETAIN CURRENT PASSWORD",
    "GRANT BACKUP_ADMIN ON *.* TO CURRENT_USER() WITH GRANT OPTION",
    "REVOKE IF EXISTS r1 FROM CURRENT_USER()",
    // If the event has the version of an older server, revoking a privilege that does not exist succeeds.
    "SET original_server_version = 80200",
    "REVOKE INDEX ON d.t FROM other@localhost",
    "GRANT INDEX ON d.t TO other@localhost",
    "SET original_server_version = 80200",
    "REVOKE INDEX, REFERENCES ON d.t FROM other@localhost",
];

const BY_ODD: &[&str] = &[
    "GRANT SELECT ON d.u TO CURRENT_USER()",
    "CREATE EVENT d.odd ON SCHEDULE EVERY 1 DAY DO SELECT 1",
    "REVOKE ALL PRIVILEGES, GRANT OPTION FROM CURRENT_USER()",
];

const BY_WORKER: &[&str] = &[
    "CREATE PROCEDURE d.own() SELECT 1",
    "CREATE FUNCTION d.own() RETURNS INT DETERMINISTIC RETURN 1",
    "USE d",
    "CREATE PROCEDURE dropped() SELECT 1",
    "DROP PROCEDURE dropped",
    "CREATE PROCEDURE kept() SELECT 1",
    "CREATE PROCEDURE IF NOT EXISTS d.own() SELECT 2",
    "CREATE PROCEDURE IF NOT EXISTS d.also_own() SELECT 2",
    "CREATE VIEW d.w AS SELECT * FROM d.t",
];

const MARIADB_BY_WORKER: &[&str] = &[
    "USE d",
    "SET sql_mode=ORACLE",
    "CREATE PROCEDURE \"d\".\"quo\"\"ted\" AS BEGIN SELECT 1; END",
    "CREATE FUNCTION in_d RETURN INT AS BEGIN RETURN 1; END",
    "CREATE PACKAGE k AS PROCEDURE p; END",
    "CREATE PACKAGE BODY k AS PROCEDURE p AS BEGIN NULL; END; END",
];

/// Returns queries for all account information, except about the channel's own account and about definers.
fn shown(flavour: Flavour) -> Vec<String> {
    let tables: &[&str] = match flavour {
        Flavour::MySql => &[
            "user",
            "db",
            "tables_priv",
            "columns_priv",
            "procs_priv",
            "proxies_priv",
            "role_edges:TO_USER",
            "default_roles",
            "global_grants",
            "password_history",
        ],
        Flavour::MariaDb => &[
            "global_priv",
            "db",
            "tables_priv",
            "columns_priv",
            "procs_priv",
            "proxies_priv",
            "roles_mapping",
        ],
    };
    let tables = tables.iter().map(|table| {
        let (table, user) = table.split_once(':').unwrap_or((table, "user"));
        // The time column of these tables is left out: a replica records the time at which it applied the
        // statement.
        let columns = match table {
            "tables_priv" => "host, db, user, table_name, grantor, table_priv, column_priv",
            "procs_priv" => "host, db, user, routine_name, routine_type, grantor, proc_priv",
            _ => "*",
        };
        format!(
            "SELECT {columns} FROM mysql.{table} WHERE {user} NOT IN ('{CHANNEL_USER}', 'root', 'mysql', 'mariadb.sys', 'tailwater', \
             'mysql.sys', 'mysql.session', 'mysql.infoschema')"
        )
    });
    let definers = [
        "SELECT routine_schema, routine_name, routine_definition, definer FROM information_schema.routines WHERE routine_schema='d'",
        "SELECT table_name, view_definition, definer FROM information_schema.views WHERE table_schema='d'",
        "SELECT event_name, event_definition, definer, status FROM information_schema.events WHERE event_schema='d'",
        "SELECT trigger_name, action_statement, definer FROM information_schema.triggers WHERE trigger_schema='d'",
    ];
    tables.chain(definers.iter().map(|query| (*query).to_owned())).collect()
}

/// Compares the target with the native replica after statements that refer to the session's account, or whose
/// effects depend on that account.
pub(super) async fn run(comparison: &Comparison, channel: &Channel) -> Result<()> {
    comparison.run("root", BY_ROOT).await?;
    comparison.run("boss", BY_BOSS).await?;
    match comparison.flavour {
        Flavour::MySql => comparison.run("boss", MYSQL_BY_BOSS).await?,
        Flavour::MariaDb => comparison.run("boss", MARIADB_BY_BOSS).await?,
    }
    comparison.run("root", HALF_DONE).await?;
    comparison.run("odd`name", BY_ODD).await?;
    comparison.run("worker", BY_WORKER).await?;
    comparison.run("root", &["CREATE PROCEDURE d.of_root() SELECT 1"]).await?;
    comparison.run("worker", &["CREATE PROCEDURE IF NOT EXISTS d.of_root() SELECT 2"]).await?;
    if comparison.flavour == Flavour::MariaDb {
        comparison.run("worker", MARIADB_BY_WORKER).await?;
    }
    comparison.run("boss", &["RENAME USER CURRENT_USER() TO renamed@'%'"]).await?;
    comparison.wait(channel).await?;
    comparison.ensure_same(&shown(comparison.flavour)).await?;
    if comparison.flavour == Flavour::MariaDb {
        let lent = format!("SELECT role FROM mysql.roles_mapping WHERE user='{CHANNEL_USER}'");
        let lent = comparison.rig.target.sql(&lent).await?;
        ensure!(
            lent.is_empty(),
            "the channel's account has kept roles that it received for one statement: {lent:?}"
        );
    }
    Ok(())
}
