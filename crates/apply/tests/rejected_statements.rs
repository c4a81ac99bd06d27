//! Statements that the target rejects, whose database does not exist there, or that cannot run for another
//! reason.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{ChannelEdit, ChannelOptions, DdlExecMode, GtidMode};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::{Server, ServerKind};
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use crate::channel_test_servers::{PATIENCE, Rig};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_rejected_statements() -> Result<()> {
    statements(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_rejected_statements() -> Result<()> {
    statements(ServerKind::Mariadb1011).await
}

async fn statements(kind: ServerKind) -> Result<()> {
    let options = ["--binlog-row-metadata=FULL"];
    let Some(rig) = Rig::start(kind, &options, &["--innodb-lock-wait-timeout=1"]).await? else {
        return Ok(());
    };
    let channel = rig.channel(rig.options("replica"));
    rig.source
        .sql("CREATE DATABASE one; CREATE TABLE one.orders (id INT PRIMARY KEY); INSERT INTO one.orders VALUES (1)")
        .await?;
    rig.wait_applied(&channel).await?;
    a_rejected_statement(&rig, &channel, "made").await?;
    let mode = |gtid| ChannelEdit { gtid: Some(gtid), ..ChannelEdit::default() };
    channel.edit(mode(GtidMode::Preserve)).await?;
    a_rejected_statement(&rig, &channel, "logged").await?;
    channel.edit(mode(GtidMode::Log)).await?;
    a_statement_in_a_missing_database(&rig, &channel).await?;
    dropped_databases(&rig, &channel).await?;
    skipped_xa_transactions(&rig, &channel).await?;
    consecutive_skipped_transactions(&rig, &channel).await?;
    if kind.flavour() == Flavour::MariaDb {
        statements_with_their_own_settings(&rig, &channel).await?;
        nontransactional_tables_are_reported(&rig, &channel).await?;
        a_statement_with_another_result(&rig, &channel, "own").await?;
        channel.edit(mode(GtidMode::Preserve)).await?;
        a_statement_with_another_result(&rig, &channel, "kept").await?;
        channel.edit(mode(GtidMode::Log)).await?;
    }
    tables_that_differ_from_the_sources(&rig, &channel).await?;
    an_interrupted_statement(&rig, &channel).await?;
    rig.ensure_equal(&["one", "two"]).await?;
    disabled_foreign_key_checks(&rig, &channel).await?;
    channel.shut_down().await;
    if kind.flavour() == Flavour::MariaDb {
        a_commit_order_the_target_rejects(&rig).await?;
    }
    Ok(())
}

/// A rejected statement does not run while the table that prevents it exists. The statement runs once this
/// table is removed.
async fn a_rejected_statement(rig: &Rig, channel: &Channel, table: &str) -> Result<()> {
    rig.target.sql(&format!("SET sql_log_bin=0; CREATE TABLE one.{table} (stray INT)")).await?;
    rig.source.sql(&format!("CREATE TABLE one.{table} (id INT PRIMARY KEY)")).await?;
    for _ in 0..2 {
        let fault = rig.wait_failed(channel).await?;
        ensure!(
            fault.code == "TW-APP-0002" && fault.message.contains("already exists"),
            "wrong fault of the channel: {fault:?}"
        );
        channel.resume(None).await?;
    }
    rig.wait_failed(channel).await?;
    rig.target.sql(&format!("SET sql_log_bin=0; DROP TABLE one.{table}")).await?;
    channel.resume(None).await?;
    rig.source.sql(&format!("INSERT INTO one.{table} VALUES (3)")).await?;
    rig.wait_applied(channel).await
}

/// With `ddl_exec_mode = idempotent` the source's table replaces the target's table, and dropping a missing
/// table does nothing. A view is not replaced.
async fn tables_that_differ_from_the_sources(rig: &Rig, channel: &Channel) -> Result<()> {
    let set = |ddl_exec_mode, gtid| ChannelEdit {
        ddl_exec_mode: Some(ddl_exec_mode),
        gtid: Some(gtid),
        ..ChannelEdit::default()
    };
    let native = match rig.source.kind().flavour() {
        // MySQL needs two statements to replace a table, but the transaction has only one GTID.
        Flavour::MySql => &[GtidMode::Log, GtidMode::Own][..],
        Flavour::MariaDb => &[GtidMode::Log, GtidMode::Own, GtidMode::Preserve],
    };
    for gtid in native {
        channel.edit(set(DdlExecMode::Idempotent, *gtid)).await?;
        rig.source.sql("CREATE TABLE one.lost (a INT); CREATE TABLE one.lost_too (a INT)").await?;
        rig.wait_applied(channel).await?;
        rig.target
            .sql(
                "SET sql_log_bin=0; DROP TABLE one.lost; CREATE TABLE one.`replaced it` (stray INT); \
                 INSERT INTO one.`replaced it` VALUES (1); CREATE VIEW one.seen AS SELECT 1 AS a",
            )
            .await?;
        rig.source
            .sql(
                "CREATE TABLE one.`replaced it` (id INT PRIMARY KEY); INSERT INTO one.`replaced it` VALUES (2), (3); \
                 DROP TABLE one.lost, one.lost_too",
            )
            .await?;
        rig.wait_applied(channel).await?;
        ensure!(rig.target.sql("SELECT id FROM one.`replaced it` ORDER BY id").await? == ["2", "3"]);
        rig.source.sql("CREATE TABLE one.seen (a INT)").await?;
        let fault = rig.wait_failed(channel).await?;
        ensure!(fault.code == "TW-APP-0002", "wrong fault of the channel: {fault:?}");
        rig.target.sql("SET sql_log_bin=0; DROP VIEW one.seen").await?;
        channel.resume(None).await?;
        rig.source.sql("DROP TABLE one.`replaced it`; DROP TABLE one.seen").await?;
        rig.wait_applied(channel).await?;
        rig.ensure_equal(&["one"]).await?;
    }
    channel.edit(set(DdlExecMode::Strict, GtidMode::Log)).await.map_err(Into::into)
}

/// An interrupted statement took effect in part on the source, so it does not run on the target.
async fn an_interrupted_statement(rig: &Rig, channel: &Channel) -> Result<()> {
    rig.source
        .sql(
            "CREATE TABLE one.slow (id INT PRIMARY KEY) ENGINE=MyISAM; CREATE TABLE one.numbers (id INT PRIMARY KEY); \
             INSERT INTO one.numbers VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9)",
        )
        .await?;
    rig.wait_applied(channel).await?;
    let mut session = Connection::connect(&rig.source.connect_options()).await?;
    session.execute("SET SESSION binlog_format=STATEMENT").await?;
    let id = session
        .query("SELECT CONNECTION_ID()")
        .await?
        .scalar()
        .context("the query returned no connection ID")?
        .to_owned();
    let slow = tokio::spawn(async move {
        session.execute("INSERT INTO one.slow SELECT id + SLEEP(0.4) FROM one.numbers").await.map(drop)
    });
    let started = Instant::now();
    let runs =
        format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id={id} AND state='User sleep'");
    while rig.source.sql(&runs).await?.concat() == "0" {
        ensure!(started.elapsed() < PATIENCE, "no row was inserted in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The statement locks the table, so the test cannot read it. After this wait, the statement has written
    // some rows.
    tokio::time::sleep(Duration::from_millis(900)).await;
    rig.source.sql(&format!("KILL QUERY {id}")).await?;
    ensure!(slow.await?.is_err(), "the statement must be interrupted, but it completed");
    ensure!(
        rig.source.sql("SELECT COUNT(*) FROM one.slow").await?.concat() != "0",
        "the interrupted statement must have inserted some rows"
    );
    let fault = rig.wait_failed(channel).await?;
    ensure!(
        fault.code == "TW-APP-0044" && fault.message.contains("error 1317"),
        "wrong fault of the channel: {fault:?}"
    );
    ensure!(rig.target.sql("SELECT COUNT(*) FROM one.slow").await?.concat() == "0");
    channel.skip(rig.newest_gtid().await?).await?;
    rig.source.sql("DROP TABLE one.slow, one.numbers").await?;
    rig.wait_applied(channel).await
}

/// A statement failed on the source but succeeds on the target. Starting the channel again does not skip this
/// statement.
async fn a_statement_with_another_result(rig: &Rig, channel: &Channel, name: &str) -> Result<()> {
    rig.source.sql(&format!("CREATE USER {name}@localhost")).await?;
    rig.wait_applied(channel).await?;
    rig.target.sql(&format!("SET sql_log_bin=0; DROP USER {name}@localhost")).await?;
    let both = rig.source.sql(&format!("CREATE USER also_{name}@localhost, {name}@localhost")).await;
    ensure!(both.is_err(), "the statement must fail on the source");
    let gtid = rig.newest_gtid().await?;
    for _ in 0..2 {
        let fault = rig.wait_failed(channel).await?;
        ensure!(
            fault.code == "TW-APP-0045" && fault.message.contains("error 1396"),
            "wrong fault of the channel: {fault:?}"
        );
        channel.resume(None).await?;
    }
    rig.wait_failed(channel).await?;
    channel.skip(gtid).await?;
    rig.wait_applied(channel).await
}

/// A statement does not run in another database if its own database is missing. A statement that names its
/// databases does not need its default database.
async fn a_statement_in_a_missing_database(rig: &Rig, channel: &Channel) -> Result<()> {
    rig.source.sql("CREATE DATABASE two; CREATE TABLE two.orders (id INT PRIMARY KEY)").await?;
    rig.wait_applied(channel).await?;
    rig.target.sql("DROP DATABASE two").await?;
    rig.source.sql("USE one; CREATE TABLE near (id INT PRIMARY KEY)").await?;
    rig.source.sql("USE two; CREATE TABLE one.far (id INT PRIMARY KEY)").await?;
    rig.wait_applied(channel).await?;
    rig.source.sql("USE one; CREATE TABLE nearer (id INT PRIMARY KEY)").await?;
    rig.source.sql("USE two; TRUNCATE TABLE orders").await?;
    let fault = rig.wait_failed(channel).await?;
    ensure!(fault.message.contains("Unknown database 'two'"), "wrong fault of the channel: {fault:?}");
    ensure!(
        rig.target.sql("SELECT id FROM one.orders").await? == ["1"],
        "TRUNCATE ran on the table of another database"
    );
    rig.target.sql("CREATE DATABASE two; CREATE TABLE two.orders (id INT PRIMARY KEY)").await?;
    channel.resume(None).await?;
    rig.wait_applied(channel).await
}

/// After a session's current database was dropped, the session has no current database, even if a new
/// database with the same name is created.
async fn dropped_databases(rig: &Rig, channel: &Channel) -> Result<()> {
    rig.source.sql("USE two; CREATE TABLE t (id INT PRIMARY KEY); DROP DATABASE two").await?;
    rig.source.sql("CREATE DATABASE two; USE two; CREATE TABLE t (n INT PRIMARY KEY)").await?;
    rig.wait_applied(channel).await
}

/// After an operator has skipped the commit of an XA transaction, the channel does not wait for the
/// completion of its prepared part.
async fn skipped_xa_transactions(rig: &Rig, channel: &Channel) -> Result<()> {
    channel.pause().await?;
    rig.source
        .sql("XA START 'x'; INSERT INTO one.orders VALUES (50); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'")
        .await?;
    channel.skip(rig.newest_gtid().await?).await?;
    rig.source.sql("INSERT INTO one.orders VALUES (51)").await?;
    channel.resume(None).await?;
    rig.wait_applied(channel)
        .await
        .context("the channel still waits for the end of the skipped XA transaction")?;
    ensure!(rig.target.sql("SELECT id FROM one.orders ORDER BY id").await? == ["1", "51"]);
    rig.source.sql("DELETE FROM one.orders WHERE id = 51").await?;
    rig.source.sql("SET sql_log_bin=0; DELETE FROM one.orders WHERE id = 50").await?;
    rig.wait_applied(channel).await
}

/// An operator skips two transactions, and no transaction is applied between them. So there is no commit that
/// could record the skips on the target, and the channel itself must save them there.
async fn consecutive_skipped_transactions(rig: &Rig, channel: &Channel) -> Result<()> {
    let flavour = rig.source.kind().flavour();
    for table in ["first", "second"] {
        rig.target.sql(&format!("SET sql_log_bin=0; CREATE TABLE one.{table} (stray INT)")).await?;
        rig.source.sql(&format!("CREATE TABLE one.{table} (id INT PRIMARY KEY)")).await?;
        let gtid = rig.newest_gtid().await?;
        let fault = rig.wait_failed(channel).await?;
        ensure!(fault.code == "TW-APP-0002", "wrong fault of the channel: {fault:?}");
        channel.skip(gtid.clone()).await?;
        channel.resume(None).await?;
        let passed = |status: &tailwater_apply::channel::ChannelStatus| {
            tailwater_wire::gtid::GtidSet::parse(flavour, &status.gtids)
                .is_ok_and(|gtids| gtids.contains(&gtid))
        };
        let mut status = channel.status();
        let passed = tokio::time::timeout(PATIENCE, status.wait_for(passed)).await;
        passed.with_context(|| {
            format!("the channel did not skip the transaction: {:?}", channel.status().borrow().fault)
        })??;
    }
    rig.wait_applied(channel).await?;
    // The transactions stay skipped after the channel starts again.
    channel.pause().await?;
    channel.resume(None).await?;
    rig.target.sql("SET sql_log_bin=0; DROP TABLE one.first, one.second").await?;
    rig.source.sql("SET sql_log_bin=0; DROP TABLE one.first, one.second").await?;
    rig.source.sql("DELETE FROM one.orders WHERE id = -1; INSERT INTO one.orders VALUES (80)").await?;
    rig.wait_applied(channel).await
}

/// Statements that change rows under special session settings commit in one transaction with other rows.
async fn statements_with_their_own_settings(rig: &Rig, channel: &Channel) -> Result<()> {
    rig.source
        .sql(
            "SET SESSION binlog_format=STATEMENT; USE one; \
             SET STATEMENT lock_wait_timeout=5, sql_mode='' FOR INSERT INTO orders VALUES (60); \
             ANALYZE INSERT INTO orders VALUES (61); BEGIN; INSERT INTO orders VALUES (62); \
             CREATE TEMPORARY TABLE few (n INT); INSERT INTO few VALUES (63); INSERT INTO orders SELECT n FROM few; \
             DROP TEMPORARY TABLE few; COMMIT",
        )
        .await?;
    rig.wait_applied(channel).await?;
    let noted =
        "SELECT statement FROM tailwater.apply_intent WHERE statement REGEXP 'orders VALUES|TEMPORARY'";
    let noted = rig.target.sql(noted).await?;
    ensure!(
        noted.is_empty(),
        "the channel treated these statements as if they committed implicitly: {noted:?}"
    );
    Ok(())
}

async fn nontransactional_tables_are_reported(rig: &Rig, channel: &Channel) -> Result<()> {
    rig.source
        .sql("CREATE TABLE one.old (id INT PRIMARY KEY) ENGINE=MyISAM; INSERT INTO one.old VALUES (1)")
        .await?;
    rig.wait_applied(channel).await?;
    // The channel updates the nontransactional tables in its status only once a second, so wait.
    let named =
        |status: &tailwater_apply::channel::ChannelStatus| status.nontransactional_tables == ["one.old"];
    crate::channel_under_test::wait_for(channel, "name the nontransactional table in its status", named)
        .await?;
    // The search for a rejected row must not write rows to a nontransactional table.
    rig.target.sql("INSERT INTO one.old VALUES (3)").await?;
    rig.source.sql("INSERT INTO one.old VALUES (2)").await?;
    rig.wait_applied(channel).await?;
    rig.target.sql("DELETE FROM one.old WHERE id = 3").await?;
    Ok(())
}

/// Returns the number of ROLLBACK statements that the server has executed.
async fn rollbacks(server: &Server) -> Result<u64> {
    let lines = server.sql("SHOW GLOBAL STATUS LIKE 'Com_rollback'").await?;
    let count =
        lines.first().and_then(|line| line.split('\t').nth(1)).context("Com_rollback must have a value")?;
    Ok(count.parse()?)
}

/// When the channel retries rows that it writes as SQL, it must first set the session settings of these rows
/// again. Here the first attempt ends with `foreign_key_checks` off. The retry must turn the checks on again
/// before it deletes a parent row. Otherwise the target keeps the child rows, whose deletes are not in the
/// binlog.
async fn disabled_foreign_key_checks(rig: &Rig, channel: &Channel) -> Result<()> {
    rig.source
        .sql(
            "USE one; CREATE TABLE p (id INT PRIMARY KEY); CREATE TABLE q (id INT PRIMARY KEY, n INT); \
             CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE); \
             INSERT INTO p VALUES (1); INSERT INTO c VALUES (1, 1)",
        )
        .await?;
    rig.wait_applied(channel).await?;
    channel.pause().await?;
    for table in ["p", "q"] {
        rig.target.sql(&format!("ALTER TABLE one.{table} ADD COLUMN more INT")).await?;
    }
    let mut other = Connection::connect(&rig.target.connect_options()).await?;
    other.execute("BEGIN").await?;
    other.execute("INSERT INTO one.q (id) VALUES (1)").await?;
    rig.source
        .sql(
            "USE one; BEGIN; DELETE FROM p WHERE id = 1; SET foreign_key_checks=0; INSERT INTO q VALUES (1, 1); \
             SET foreign_key_checks=1; UPDATE q SET n = 2; COMMIT",
        )
        .await?;
    let before = rollbacks(&rig.target).await?;
    channel.resume(None).await?;
    let again = async {
        while rollbacks(&rig.target).await? == before {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, again).await.context("the channel did not retry in time")??;
    other.execute("ROLLBACK").await?;
    rig.wait_applied(channel).await?;
    let left = rig.target.sql("SELECT id FROM one.c").await?;
    ensure!(left.is_empty(), "the target has child rows without a parent: {left:?}");
    Ok(())
}

async fn a_commit_order_the_target_rejects(rig: &Rig) -> Result<()> {
    rig.target.sql("SET GLOBAL gtid_strict_mode=ON").await?;
    let order = CommitOrder::Independent;
    let options = ChannelOptions { gtid: GtidMode::Preserve, commit_order: order, ..rig.options("strict") };
    let channel = rig.channel(options);
    let fault = rig.wait_failed(&channel).await?;
    ensure!(
        fault.code == "TW-APP-0008" && fault.message.contains("gtid_strict_mode"),
        "wrong fault of the channel: {fault:?}"
    );
    channel.shut_down().await;
    Ok(())
}
