//! Applies a log to a target of the other flavour, and to a newer version. Rows are written as SQL where row
//! events cannot be used.

use anyhow::{Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{ChannelOptions, ChannelStart};
use tailwater_apply::replication_filter::{FilterSet, Operation, Rule};
use tailwater_sandbox::ServerKind;
use tailwater_wire::Flavour;

use crate::channel_test_servers::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_rows_are_applied_to_mariadb() -> Result<()> {
    is_applied_across_flavours(ServerKind::Mysql97, ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_rows_are_applied_to_mysql() -> Result<()> {
    is_applied_across_flavours(ServerKind::Mariadb1011, ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_rows_are_applied_to_a_newer_mariadb() -> Result<()> {
    is_applied_across_flavours(ServerKind::Mariadb1011, ServerKind::Mariadb118).await
}

const DEFINITIONS: &str = "SET NAMES utf8mb4; CREATE DATABASE shop; \
    CREATE TABLE shop.t (id INT UNSIGNED PRIMARY KEY, big BIGINT UNSIGNED, tiny TINYINT, price DECIMAL(20,6), ratio DOUBLE, \
      name VARCHAR(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin UNIQUE, old VARCHAR(20) CHARACTER SET latin1, note TEXT \
      CHARACTER SET utf8mb4, raw BLOB, fixed BINARY(4), flags BIT(10), kind ENUM('a','b'), many SET('x','y','z'), day DATE, \
      at DATETIME(6), span TIME(3), y YEAR); \
    CREATE TABLE shop.keyless (a INT, b VARCHAR(10) CHARACTER SET utf8mb4); \
    CREATE TABLE shop.`straße` (id INT PRIMARY KEY, `größe` VARCHAR(10) CHARACTER SET utf8mb4); \
    CREATE TABLE shop.other (id INT PRIMARY KEY, wide BIGINT); CREATE TABLE shop.later LIKE shop.other";

/// Reads the content of the table as text that is the same on both flavours.
const CONTENT: &str = "SELECT id, big, tiny, price, ratio, HEX(name), HEX(CONVERT(old USING utf8mb4)), HEX(note), HEX(raw), \
    HEX(fixed), flags + 0, kind, many, day, at, span, y FROM shop.t ORDER BY id";

async fn is_applied_across_flavours(from: ServerKind, to: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start_pair(from, to, &["--binlog-row-metadata=FULL"], &[]).await? else {
        return Ok(());
    };
    rig.source.sql(DEFINITIONS).await?;
    rig.target.sql(DEFINITIONS).await?;
    // Because of this column, rows are written as SQL even between servers of one flavour.
    rig.target.sql("SET NAMES utf8mb4; ALTER TABLE shop.`straße` ADD `mehr` INT").await?;
    let options =
        ChannelOptions {
            start: ChannelStart::Oldest, filters: without_definitions(), ..rig.options("über")
        };
    let channel = rig.channel(options);
    rig.source
        .sql(
            "SET NAMES utf8mb4; INSERT INTO shop.t VALUES \
             (1, 18446744073709551615, -128, -123.456789, 0.1, 'é😀', 'naïve', 'it''s \\\\ \"', x'00ff27', x'01', 1023, 'b', \
              'x,z', '2024-02-29', '2024-02-29 12:34:56.123456', '-12:34:56.789', 1999), \
             (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), \
             (3, 0, 127, 0, -1e300, '', '', '', '', x'00000000', 0, 'a', '', '1000-01-01', '9999-12-31 23:59:59.999999', \
              '838:59:59', 2155); \
             INSERT INTO shop.keyless VALUES (1, 'x'), (1, 'x'), (NULL, NULL)",
        )
        .await?;
    rig.source
        .sql(
            "UPDATE shop.t SET id = 4, name = 'swapped', raw = NULL WHERE id = 1; DELETE FROM shop.t WHERE id = 2; \
             UPDATE shop.t SET at = NULL, price = 7 WHERE id = 3; DELETE FROM shop.keyless WHERE a = 1 LIMIT 1; \
             START TRANSACTION; INSERT INTO shop.t (id, name) VALUES (5, 'five'); \
             UPDATE shop.t SET name = 'six', id = 6 WHERE id = 5; INSERT INTO shop.t (id, name) VALUES (7, 'five'); COMMIT; \
             SET NAMES utf8mb4; START TRANSACTION; INSERT INTO shop.`straße` VALUES (1, 'groß'); INSERT INTO shop.t (id, name) VALUES (8, 'groß'); \
             INSERT INTO shop.`straße` VALUES (2, 'größer'); UPDATE shop.t SET name = 'größer' WHERE id = 8; COMMIT; \
             UPDATE shop.`straße` SET `größe` = 'klein' WHERE id = 1",
        )
        .await?;
    rig.wait_applied(&channel).await?;
    let street = "SET NAMES utf8mb4; SELECT id, HEX(`größe`) FROM shop.`straße` ORDER BY id";
    for content in [CONTENT, "SELECT * FROM shop.keyless ORDER BY 1, 2", street] {
        let (on_source, on_target) = (rig.source.sql(content).await?, rig.target.sql(content).await?);
        ensure!(
            on_source == on_target && on_source.len() >= 2,
            "the rows differ\nsource: {on_source:#?}\ntarget: {on_target:#?}"
        );
    }

    rejected_at_the_start(&rig, &channel).await?;
    rejected_at_the_row(&rig, &channel).await?;
    numbers_are_exact_or_rejected(&rig, &channel, to).await?;
    channel.shut_down().await;
    Ok(())
}

/// The preflight scan reports a column that the target cannot hold. It does so before the channel applies any
/// earlier transaction.
async fn rejected_at_the_start(rig: &Rig, channel: &Channel) -> Result<()> {
    let state = "SELECT COUNT(*) FROM shop.keyless; SELECT COUNT(*) FROM shop.other; \
                 SELECT worker, HEX(applied) FROM tailwater.apply_progress ORDER BY worker";
    channel.pause().await?;
    let before = rig.target.sql(state).await?;
    rig.source.sql("INSERT INTO shop.keyless VALUES (8, 'before')").await?;
    rig.source.sql("INSERT INTO shop.other VALUES (1, 4000000000)").await?;
    let gtid = rig.newest_gtid().await?;
    rig.source.sql("INSERT INTO shop.keyless VALUES (9, 'behind')").await?;
    for (change, reason) in [
        ("MODIFY wide INT", "does not fit into int"),
        ("DROP COLUMN wide", "the target's table has no such column"),
        ("ADD COLUMN wide DOUBLE", "does not fit into double"),
    ] {
        rig.target.sql(&format!("ALTER TABLE shop.other {change}")).await?;
        channel.resume(None).await?;
        let fault = rig.wait_failed(channel).await?;
        let wanted = format!("transaction {gtid}: table shop.other, column wide: ");
        ensure!(
            fault.code == "TW-APP-0004" && fault.message.starts_with(&wanted),
            "wrong fault of the channel: {fault:?}"
        );
        ensure!(
            fault.message.contains(reason) && fault.message.contains("preflight scan"),
            "wrong fault of the channel: {fault:?}"
        );
        let after = rig.target.sql(state).await?;
        ensure!(
            after == before,
            "the channel stopped at the preflight, but the target changed from {before:?} to {after:?}"
        );
    }
    // The preflight ignores rows that a filter excludes.
    let no_inserts = Rule { tables: "shop.other".into(), operations: vec![Operation::Insert] };
    let mut filters = without_definitions();
    filters.exclude.push(no_inserts);
    channel.set_filters(filters, None).await?;
    channel.resume(None).await?;
    rig.wait_applied(channel).await?;
    let applied = rig.target.sql("SELECT a FROM shop.keyless WHERE a > 7 ORDER BY a").await?;
    ensure!(applied == ["8", "9"], "wrong rows on the target: {applied:?}");
    channel.set_filters(without_definitions(), None).await.map_err(Into::into)
}

/// A column that the preflight scan cannot find stops the channel at the first row with this column. No value
/// is truncated.
async fn rejected_at_the_row(rig: &Rig, channel: &Channel) -> Result<()> {
    rig.target.sql("ALTER TABLE shop.later MODIFY wide INT").await?;
    rig.source.sql("INSERT INTO shop.later VALUES (1, 4000000000)").await?;
    let fault = rig.wait_failed(channel).await?;
    ensure!(
        fault.code == "TW-APP-0004" && fault.message.contains("shop.later, column wide"),
        "wrong fault of the channel: {fault:?}"
    );
    ensure!(!fault.message.contains("preflight scan"), "wrong fault of the channel: {fault:?}");
    ensure!(rig.target.sql("SELECT COUNT(*) FROM shop.later").await? == ["0"]);
    rig.target.sql("ALTER TABLE shop.later MODIFY wide DECIMAL(20)").await?;
    channel.resume(None).await?;
    rig.wait_applied(channel).await?;
    ensure!(rig.target.sql("SELECT wide FROM shop.later").await? == ["4000000000"]);
    Ok(())
}

/// Numbers that only one of the flavours can store are stored exactly, or rejected.
async fn numbers_are_exact_or_rejected(rig: &Rig, channel: &Channel, to: ServerKind) -> Result<()> {
    let table = "CREATE TABLE shop.exact (a INT, d DOUBLE, j JSON)";
    for server in [&rig.source, &rig.target] {
        server.sql(&format!("SET sql_log_bin=0; {table}")).await?;
    }
    // In a table without a key, a row is found by all its values.
    rig.source
        .sql(
            r#"INSERT INTO shop.exact VALUES (1, 0, '{"b":1,  "a":[1,2.50,1e22]}'), (2, 1.5, '[18446744073709551615]'), (3, 0.1, NULL)"#,
        )
        .await?;
    rig.source.sql("UPDATE shop.exact SET a = a + 10; DELETE FROM shop.exact WHERE a = 12").await?;
    rig.wait_applied(channel).await?;
    let content = "SELECT a, d, JSON_EXTRACT(j, '$.a[0]') FROM shop.exact ORDER BY a";
    let (ours, theirs) = (rig.target.sql(content).await?, rig.source.sql(content).await?);
    ensure!(ours == theirs && ours.len() == 2, "the rows differ: target {ours:?}, source {theirs:?}");

    let (change, reason) = match (rig.source.kind().flavour(), to.flavour()) {
        (Flavour::MySql, Flavour::MariaDb) => ("(4, -0e0, NULL)", "negative zero"),
        (Flavour::MariaDb, Flavour::MySql) => {
            ("(4, 0, '{\"a\": 12345678901234567890123}')", "12345678901234567890123")
        }
        // Servers of the same flavour store the same numbers.
        _ => return Ok(()),
    };
    rig.source.sql(&format!("INSERT INTO shop.exact VALUES {change}")).await?;
    let fault = rig.wait_failed(channel).await?;
    ensure!(
        fault.code == "TW-APP-0031" && fault.message.contains(reason),
        "wrong fault of the channel: {fault:?}"
    );
    ensure!(
        fault.message.contains("`shop`.`exact`") && rig.target.sql(content).await? == ours,
        "wrong fault of the channel: {fault:?}"
    );
    Ok(())
}

fn without_definitions() -> FilterSet {
    FilterSet {
        exclude: vec![Rule { tables: "*.*".into(), operations: vec![Operation::Ddl] }],
        ..FilterSet::default()
    }
}
