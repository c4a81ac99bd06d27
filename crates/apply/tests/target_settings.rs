//! Settings of the target, and settings in the source's statements, must not change what the channel applies.

use anyhow::{Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{ChannelOptions, GtidMode};
use tailwater_apply::replication_filter::{FilterSet, Rule};
use tailwater_sandbox::unusual_settings::{accept_odd_settings, apply_odd_settings, reset_odd_settings};
use tailwater_sandbox::{Server, ServerKind, ServerSpec};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::Gtid;

use crate::channel_test_servers::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_settings_change_nothing() -> Result<()> {
    settings(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_settings_change_nothing() -> Result<()> {
    settings(ServerKind::Mariadb1011).await
}

async fn settings(kind: ServerKind) -> Result<()> {
    let accept_odd_settings = accept_odd_settings(ServerSpec::new(kind)).options;
    let options: Vec<_> = accept_odd_settings.iter().map(String::as_str).collect();
    let Some(rig) = Rig::start(kind, &options, &options).await? else { return Ok(()) };
    rig.source
        .sql(
            "CREATE DATABASE one; CREATE TABLE one.orders (id INT PRIMARY KEY); \
             CREATE DATABASE kept; CREATE TABLE kept.audit (id INT PRIMARY KEY); INSERT INTO kept.audit VALUES (1)",
        )
        .await?;
    let channel = rig.channel(ChannelOptions { gtid: GtidMode::Preserve, ..rig.options("settings") });
    rig.wait_applied(&channel).await?;
    transactions_after_a_definition_are_logged(&rig, &channel).await?;
    if kind.flavour() == Flavour::MariaDb {
        create_select_is_rejected_under_preserve(&rig, &channel).await?;
    }
    channel.shut_down().await;
    targets_with_other_settings(&rig, kind.flavour()).await?;
    unusual_global_settings_change_nothing(&rig).await?;
    statements_are_filtered(&rig, kind.flavour()).await
}

/// Returns whether the binlog of a server contains the transaction `gtid`.
async fn is_logged(server: &Server, gtid: &Gtid) -> Result<bool> {
    let begins = match gtid {
        Gtid::MySql(gtid) => format!("GTID_NEXT= '{gtid}'"),
        Gtid::MariaDb(gtid) => format!("GTID {gtid}"),
    };
    for file in server.sql("SHOW BINARY LOGS").await? {
        let file = file.split('\t').next().unwrap_or_default().to_owned();
        let events = server.sql(&format!("SHOW BINLOG EVENTS IN '{file}'")).await?;
        if events.iter().any(|line| line.ends_with(&begins)) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn transactions_after_a_definition_are_logged(rig: &Rig, channel: &Channel) -> Result<()> {
    // Under this setting, literals are in UCS-2. The setting must not affect Tailwater's own statements.
    let odd = "SET collation_connection=ucs2_general_ci";
    rig.source.sql(&format!("{odd}; CREATE TABLE one.made (id INT PRIMARY KEY)")).await?;
    let mut gtids = vec![rig.newest_gtid().await?];
    for value in [1, 2] {
        let insert = format!(
            "SET SESSION binlog_format=STATEMENT; USE one; {odd}; INSERT INTO orders VALUES ({value})"
        );
        rig.source.sql(&insert).await?;
        gtids.push(rig.newest_gtid().await?);
    }
    rig.wait_applied(channel).await?;
    for gtid in gtids {
        ensure!(is_logged(&rig.target, &gtid).await?, "{gtid} is not in the target's binlog");
    }
    Ok(())
}

/// Under `gtid = preserve`, the rows of a `CREATE TABLE ... SELECT` would take the GTID of the source's next
/// transaction.
async fn create_select_is_rejected_under_preserve(rig: &Rig, channel: &Channel) -> Result<()> {
    rig.source
        .sql("SET SESSION binlog_format=ROW; CREATE TABLE one.filled AS SELECT id FROM one.orders")
        .await?;
    let filled = rig.newest_gtid().await?;
    let fault = rig.wait_failed(channel).await?;
    ensure!(fault.message.contains("CREATE TABLE ... SELECT"), "wrong fault of the channel: {fault:?}");
    // Do what the error message advises.
    rig.target
        .sql(
            "SET sql_log_bin=0; CREATE TABLE IF NOT EXISTS one.filled (id INT NOT NULL); \
              INSERT INTO one.filled SELECT id FROM one.orders",
        )
        .await?;
    channel.skip(filled).await?;
    channel.resume(None).await?;
    rig.source.sql("INSERT INTO one.filled VALUES (5)").await?;
    rig.wait_applied(channel).await?;
    rig.ensure_equal(&["one"]).await
}

/// The target's settings for generated primary keys and for the maximum statement time do not affect the
/// channel. Native replication ignores them too.
async fn targets_with_other_settings(rig: &Rig, flavour: Flavour) -> Result<()> {
    let (set, unset) = match flavour {
        Flavour::MySql => (
            "SET GLOBAL sql_generate_invisible_primary_key=ON, GLOBAL sql_require_primary_key=ON",
            "SET GLOBAL sql_generate_invisible_primary_key=OFF, GLOBAL sql_require_primary_key=OFF",
        ),
        Flavour::MariaDb => ("SET GLOBAL max_statement_time=0.3", "SET GLOBAL max_statement_time=0"),
    };
    rig.target.sql(set).await?;
    let channel = rig.channel(rig.options("settings"));
    rig.source
        .sql(
            "USE one; CREATE TABLE keyless (a BIGINT UNSIGNED, b BIGINT UNSIGNED); INSERT INTO keyless VALUES (1, 2); \
             SET SESSION binlog_format=STATEMENT; INSERT INTO orders SELECT 30 + SLEEP(1)",
        )
        .await?;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    rig.target.sql(unset).await?;
    let rows = rig.target.sql("SELECT a, b FROM one.keyless").await?;
    ensure!(rows == ["1\t2"], "wrong rows on the target: {rows:?}");
    rig.ensure_equal(&["one"]).await
}

/// Filters also apply to statements within other statements, and to statements that roll back to a savepoint.
async fn statements_are_filtered(rig: &Rig, flavour: Flavour) -> Result<()> {
    let filters = FilterSet { exclude: vec![Rule::from("kept.*")], ..FilterSet::default() };
    let channel = rig.channel(ChannelOptions { filters, ..rig.options("settings") });
    rig.wait_applied(&channel).await?;
    // This transaction is so large that it is streamed, and the filters also apply to its SAVEPOINT
    // statements.
    rig.source
        .sql(
            "USE one; CREATE TABLE large (id INT PRIMARY KEY, t LONGTEXT); BEGIN; SAVEPOINT a; \
             INSERT INTO large SELECT 1, REPEAT('x', 12000000); SAVEPOINT b; \
             INSERT INTO large SELECT 2, REPEAT('y', 12000000); COMMIT",
        )
        .await?;
    rig.wait_applied(&channel).await?;
    if flavour == Flavour::MariaDb {
        rig.source.sql("SET STATEMENT lock_wait_timeout=5 FOR DROP TABLE kept.audit").await?;
        rig.source
            .sql("USE kept; SET STATEMENT lock_wait_timeout=5 FOR ALTER TABLE one.orders ADD n INT")
            .await?;
        rig.source.sql("INSERT INTO one.orders VALUES (40, 1)").await?;
        rig.wait_applied(&channel).await?;
    }
    ensure!(
        rig.target.sql("SELECT id FROM kept.audit").await? == ["1"],
        "the filters must exclude DROP TABLE kept.audit"
    );
    channel.shut_down().await;
    rig.ensure_equal(&["one"]).await
}

/// Unusual settings that sessions inherit, on both servers, do not change how rows, statements and DDL are
/// applied.
async fn unusual_global_settings_change_nothing(rig: &Rig) -> Result<()> {
    rig.source
        .sql(
            "CREATE DATABASE odd; USE odd; SET SESSION binlog_format=ROW; \
             CREATE TABLE parents (id INT PRIMARY KEY, note VARCHAR(300) CHARACTER SET utf8mb4, t TIMESTAMP NULL); \
             CREATE TABLE children (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES parents (id) \
                ON DELETE CASCADE ON UPDATE CASCADE); \
             CREATE TABLE keyless (a INT, b DOUBLE, d DATE); \
             INSERT INTO parents VALUES (1, 'a\\'b', NULL), (2, '\\\\', NULL), (3, '', NULL), (4, 'd  ', NULL); \
             INSERT INTO children VALUES (1, 1), (2, 2), (3, 3); \
             INSERT INTO keyless VALUES (1, 1/3, NULL), (1, 1/3, NULL), (2, 2/3, '2024-02-29'); \
             UPDATE parents SET note = CONCAT(note, 'x'); UPDATE parents SET id = 30 WHERE id = 3; \
             DELETE FROM parents WHERE id = 2; DELETE FROM keyless WHERE a = 1; \
             ALTER TABLE parents ADD COLUMN n INT NOT NULL DEFAULT 5 FIRST; \
             SET SESSION binlog_format=STATEMENT; \
             INSERT INTO keyless SELECT n, n / 7, NULL FROM parents; UPDATE keyless SET b = b / 7; \
             CREATE VIEW seen AS SELECT CONCAT(note, 'x') AS noted FROM parents",
        )
        .await?;
    apply_odd_settings(&rig.target).await?;
    apply_odd_settings(&rig.source).await?;
    let channel = rig.channel(rig.options("settings"));
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    reset_odd_settings(&rig.target).await?;
    reset_odd_settings(&rig.source).await?;
    rig.ensure_equal(&["odd"]).await?;
    let views = rig.target.sql("SELECT noted FROM odd.seen ORDER BY 1").await?;
    ensure!(
        views == rig.source.sql("SELECT noted FROM odd.seen ORDER BY 1").await?,
        "wrong rows in the view: {views:?}"
    );
    let others = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema IN ('odd', 'tailwater') AND engine <> 'InnoDB' AND table_name <> 'apply_intent'";
    let others = rig.target.sql(others).await?;
    ensure!(others == ["0"], "{others:?} tables were created with another engine than InnoDB");
    Ok(())
}
