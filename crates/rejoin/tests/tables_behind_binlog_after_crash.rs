//! Crashes of servers that do not sync each commit. The tests show which statements flush all earlier
//! commits. They also show that a rejoin reapplies lost commits if the last statement of the former primary
//! did not flush them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_rejoin::{RejoinOptions, repair};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};

use crate::channel_test_servers::Rig;

/// Options with which the server does not sync at each commit.
const LAZY: [&str; 4] = [
    "--sync-binlog=0",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-log-at-timeout=2700",
    "--binlog-format=ROW",
];

/// Statements that prove that all earlier commits are durable. The last three statements prove it only on
/// MySQL.
const PROOFS: [&str; 15] = [
    "ALTER TABLE d.o ADD COLUMN x INT",
    "CREATE TABLE d.n (id INT PRIMARY KEY)",
    "TRUNCATE TABLE d.o",
    "CREATE TABLE d.n2 LIKE d.n",
    "ALTER TABLE d.o DROP COLUMN x",
    "ALTER TABLE d.o ADD INDEX (v)",
    "ALTER TABLE d.o ADD CONSTRAINT positive CHECK (v > -9)",
    "CREATE INDEX another ON d.o (v)",
    "DROP INDEX another ON d.o",
    "RENAME TABLE d.n2 TO d.n3",
    "ALTER TABLE d.n3 RENAME TO d.n4",
    "CREATE OR REPLACE TABLE d.n4 (id INT PRIMARY KEY, v INT)",
    "ALTER TABLE d.o COMMENT='of MySQL'",
    "DROP TABLE d.n",
    "DROP DATABASE lost",
];

fn is_long() -> bool {
    std::env::var_os("TAILWATER_LONG").is_some()
}

#[tokio::test]
async fn ddl_statements_flush_earlier_commits_on_mariadb() -> Result<()> {
    let proofs: Vec<_> = PROOFS[..12].to_vec();
    proofs_hold(ServerKind::Mariadb1011, &proofs).await
}

#[tokio::test]
async fn ddl_statements_flush_earlier_commits_on_mysql() -> Result<()> {
    // MySQL has no CREATE OR REPLACE for tables.
    let proofs: Vec<_> = PROOFS.into_iter().filter(|proof| !proof.contains("OR REPLACE")).collect();
    proofs_hold(ServerKind::Mysql97, &proofs).await
}

async fn proofs_hold(kind: ServerKind, proofs: &[&str]) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut server = Server::start(ServerSpec::new(kind).options(LAZY).option("--server-id=1")).await?;
    server
        .sql(
            "CREATE DATABASE d; CREATE DATABASE lost; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT); \
             CREATE TABLE d.o (id INT PRIMARY KEY, v INT); INSERT INTO d.o VALUES (1, 1)",
        )
        .await?;
    let count = if is_long() { proofs.len() } else { 2 };
    for statement in &proofs[..count] {
        let id = server.sql("INSERT INTO d.t (v) VALUES (1); SELECT MAX(id) FROM d.t").await?.concat();
        server.sql(statement).await.with_context(|| format!("{kind}: {statement}"))?;
        server.kill().await?;
        server.start_again().await?;
        let kept = server.sql(&format!("SELECT COUNT(*) FROM d.t WHERE id = {id}")).await?;
        ensure!(kept == ["1"], "{kind} lost commits that it made before {statement}");
    }
    Ok(())
}

/// The source executes statements that do not flush earlier commits, such as GRANT, and then loses rows in a
/// crash.
#[tokio::test]
async fn transactions_that_were_lost_before_a_grant_are_reapplied() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    let mut lost = 0;
    for _ in 0..5 {
        let Some(mut rig) = Rig::start(kind, &LAZY, &[]).await? else { return Ok(()) };
        rig.source
            .sql(
                "CREATE DATABASE views; CREATE USER somebody@localhost; CREATE DATABASE shop; \
                 CREATE TABLE shop.a (id INT PRIMARY KEY, u INT UNIQUE, t VARCHAR(20)); ALTER TABLE shop.a ADD INDEX (t)",
            )
            .await?;
        rig.source
            .sql(
                "INSERT INTO shop.a VALUES (1, 1, 'x'); GRANT SELECT ON shop.* TO somebody@localhost; \
                 UPDATE shop.a SET u = 2; CREATE VIEW views.v AS SELECT 1; INSERT INTO shop.a VALUES (2, 1, 'y'); \
                 CREATE PROCEDURE views.p() SELECT 1; UPDATE shop.a SET t = 'z' WHERE id = 1; \
                 ALTER TABLE shop.a COMMENT = 'nothing but this'; CREATE DATABASE another",
            )
            .await?;
        rig.capture_all().await?;
        let wanted = rig.source.sql("SELECT * FROM shop.a ORDER BY id").await?;
        rig.source.kill().await?;
        rig.source.start_again().await?;
        lost += usize::from(rig.source.sql("SELECT * FROM shop.a ORDER BY id").await? != wanted);
        let options = RejoinOptions { window: None, ..rig.rejoin_options(Duration::ZERO) };
        let healed = repair(&options, &rig.log_dir()?).await?;
        ensure!(
            healed.transactions_again == 4 && healed.transactions_lost == 0,
            "the repair returned a wrong report: {healed:?}"
        );
        let found = rig.source.sql("SELECT * FROM shop.a ORDER BY id").await?;
        ensure!(found == wanted, "shop.a has the rows {found:?} instead of {wanted:?}");
        // For a table in another engine than InnoDB, it is unknown what the statement flushed. The error must
        // come before anything is written.
        rig.source.sql("SET sql_log_bin=0; ALTER TABLE shop.a ENGINE=Aria; DELETE FROM shop.a").await?;
        let refused = repair(&options, &rig.log_dir()?)
            .await
            .expect_err("a rejoin must refuse a DDL statement on a table of another engine");
        ensure!(
            refused.code() == "TW-APP-0040" && refused.to_string().contains("a DDL statement"),
            "the rejoin was refused with the wrong error: {refused}"
        );
        ensure!(
            rig.source.sql("SELECT COUNT(*) FROM shop.a").await? == ["0"],
            "the refused rejoin wrote rows"
        );
        if lost > 0 {
            return Ok(());
        }
    }
    anyhow::bail!("the server lost no commit, so the test proves nothing")
}
