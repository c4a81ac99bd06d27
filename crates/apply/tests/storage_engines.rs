//! Applies rows of tables of every storage engine, in one batch and in one transaction.

use anyhow::{Context, Result, ensure};
use tailwater_apply::channel::{ChannelOptions, ChannelStart, GtidMode};
use tailwater_sandbox::{Server, ServerKind};
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use crate::channel_test_servers::{PATIENCE, Rig};

on_each_server!(engines_are_mixed, rows_of_a_target_without_binlog);

/// Returns the definitions of tables of all engines that accept rows. One of the tables is a MERGE table,
/// which opens other tables when it is opened.
fn tables(flavour: Flavour) -> String {
    let mut tables = String::from(
        "CREATE TABLE i1 (a INT PRIMARY KEY, v INT); CREATE TABLE i2 (a INT, v INT);
         CREATE TABLE y1 (a INT NOT NULL PRIMARY KEY, v INT) ENGINE=MyISAM;
         CREATE TABLE y2 (a INT, v INT) ENGINE=MyISAM;
         CREATE TABLE e1 (a INT NOT NULL PRIMARY KEY, v INT) ENGINE=MEMORY;
         CREATE TABLE c1 (a INT NOT NULL, v INT NOT NULL) ENGINE=CSV;
         CREATE TABLE r1 (a INT NOT NULL, v INT) ENGINE=ARCHIVE;
         CREATE TABLE b1 (a INT NOT NULL PRIMARY KEY, v INT) ENGINE=BLACKHOLE;
         CREATE TABLE p1 (a INT NOT NULL PRIMARY KEY, v INT) PARTITION BY HASH (a) PARTITIONS 3;
         CREATE TABLE t1 (a INT NOT NULL, v INT, KEY (a)) ENGINE=MyISAM;
         CREATE TABLE t2 (a INT NOT NULL, v INT, KEY (a)) ENGINE=MyISAM;
         CREATE TABLE t3 (a INT NOT NULL, v INT, KEY (a)) ENGINE=MyISAM;
         CREATE TABLE t8 (a INT NOT NULL, v INT, KEY (a)) ENGINE=MERGE UNION=(t1, t2) INSERT_METHOD=LAST;
         CREATE TABLE t9 (a INT NOT NULL, v INT, KEY (a)) ENGINE=MERGE UNION=(t3) INSERT_METHOD=FIRST;",
    );
    if flavour == Flavour::MariaDb {
        tables.push_str(
            "CREATE TABLE a1 (a INT NOT NULL PRIMARY KEY, v INT) ENGINE=Aria TRANSACTIONAL=1;
             CREATE TABLE a2 (a INT, v INT) ENGINE=Aria TRANSACTIONAL=0;
             CREATE TABLE y3 (a INT NOT NULL PRIMARY KEY, v INT) ENGINE=MyISAM PARTITION BY HASH (a) PARTITIONS 3;
             CREATE TABLE w1 (a INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING;",
        );
    }
    tables
}

const TABLES: [&str; 16] =
    ["i1", "y1", "t8", "e1", "i2", "t9", "c1", "b1", "y2", "r1", "p1", "a1", "t9", "a2", "y3", "w1"];

/// Installs the storage engines that are not built into the server.
async fn prepare(server: &Server) -> Result<()> {
    if server.kind().flavour() == Flavour::MariaDb {
        let install = "SET sql_log_bin=0; INSTALL SONAME 'ha_archive'; INSTALL SONAME 'ha_blackhole'";
        server.sql(install).await?;
    }
    Ok(())
}

/// Returns changes of all tables, one by one. On MariaDB a transaction may change tables of different
/// engines, so the changes are also made in one transaction.
fn changes(kind: ServerKind) -> String {
    let mixes = kind.flavour() == Flavour::MariaDb;
    let is_there = |table: &&&str| mixes || !["a1", "a2", "y3", "w1"].contains(*table);
    // BLACKHOLE keeps no rows, and rows of ARCHIVE cannot be changed. In a CSV table, MariaDB 10.11 does not
    // find a row that a row event names (error 1032).
    let is_fixed =
        |table: &str| ["b1", "r1"].contains(&table) || table == "c1" && kind == ServerKind::Mariadb1011;
    let mut sql = String::from(
        "INSERT INTO i1 VALUES (-1, 0); INSERT INTO t9 VALUES (-11, 0); INSERT INTO y1 VALUES (-1, 0);
         INSERT INTO t8 VALUES (-1, 1); INSERT INTO t9 VALUES (-2, 0);",
    );
    let mut number = 0;
    for around in [("", ""), ("BEGIN;", "COMMIT;")] {
        for round in 0..3 {
            sql.push_str(if mixes { around.0 } else { "" });
            for table in TABLES.iter().filter(is_there) {
                number += 1;
                sql.push_str(&format!(
                    "INSERT INTO {table} VALUES ({number}, {round}), ({}, 7);",
                    1000 + number
                ));
                if !is_fixed(table) {
                    sql.push_str(&format!("UPDATE {table} SET v = v + 1 WHERE a = {number};"));
                    sql.push_str(&format!("DELETE FROM {table} WHERE a = {};", 999 + number));
                }
            }
            sql.push_str(if mixes { around.1 } else { "" });
        }
    }
    sql
}

async fn engines_are_mixed(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    prepare(&rig.source).await?;
    prepare(&rig.target).await?;
    rig.source.sql(&format!("CREATE DATABASE mixed; USE mixed; {}", tables(kind.flavour()))).await?;
    rig.source.sql(&format!("USE mixed; {}", changes(kind))).await?;
    for (name, gtid, bytes) in [
        ("one", GtidMode::Log, 16 << 20),
        ("streamed", GtidMode::Log, 150),
        ("own", GtidMode::Own, 16 << 20),
        ("preserved", GtidMode::Preserve, 16 << 20),
    ] {
        forget_all(&rig.target).await?;
        let options = ChannelOptions { workers: 2, start: ChannelStart::Oldest, gtid, ..rig.options(name) };
        let channel = rig.channel(ChannelOptions { transaction_bytes_max: bytes, ..options });
        rig.wait_applied(&channel).await.context(name)?;
        channel.shut_down().await;
        rig.ensure_equal(&["mixed"]).await.context(name)?;
    }
    what_cannot_be_applied_once_is_rejected(&rig).await?;
    logged_rows_are_not_repeated(&rig).await?;
    engines_of_the_target(&rig).await?;
    counters_may_be_set_back(&rig).await?;
    rows_are_not_written_twice(&rig).await?;
    lost_rows_are_detected(&rig).await
}

/// BLACKHOLE tables store no rows. A target without a binlog need not log the changes of such tables, so the
/// channel ignores these changes.
async fn rows_of_a_target_without_binlog(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &["--skip-log-bin"]).await? else { return Ok(()) };
    prepare(&rig.source).await?;
    prepare(&rig.target).await?;
    let channel = rig.channel(ChannelOptions { gtid: GtidMode::Own, ..rig.options("unlogged") });
    rig.source.sql("CREATE DATABASE mixed; CREATE TABLE mixed.i1 (a INT PRIMARY KEY, v INT)").await?;
    rig.wait_applied(&channel).await?;
    rig.target.sql("ALTER TABLE mixed.i1 ENGINE=BLACKHOLE").await?;
    rig.source.sql("USE mixed; INSERT INTO i1 VALUES (1, 1); UPDATE i1 SET v = 2; DELETE FROM i1").await?;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    Ok(())
}

/// A MyISAM row is written, and the channel is interrupted before it writes its progress.
async fn rows_are_not_written_twice(rig: &Rig) -> Result<()> {
    let channel = rig.channel(rig.options("otherwise"));
    rig.wait_applied(&channel).await?;
    let mut holder = Connection::connect(&rig.target.connect_options()).await?;
    holder.execute("LOCK TABLES tailwater.apply_progress READ, tailwater.apply_channel READ").await?;
    rig.source.sql("INSERT INTO mixed.y2 VALUES (99, 1)").await?;
    let gtid = rig.newest_gtid().await?;
    let there = "SELECT COUNT(*) FROM mixed.y2 WHERE a = 99";
    let waiting = "SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'";
    let started = std::time::Instant::now();
    while rig.target.sql(there).await? != ["1"] || rig.target.sql(waiting).await?.is_empty() {
        ensure!(started.elapsed() < PATIENCE, "no statement of the channel waits for the table lock");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for id in rig.target.sql(waiting).await? {
        rig.target.sql(&format!("KILL QUERY {id}")).await?;
    }
    let fault = rig.wait_failed(&channel).await;
    holder.execute("UNLOCK TABLES").await?;
    let fault = fault?;
    ensure!(
        fault.code == "TW-APP-0052" && fault.message.contains("mixed.y2"),
        "wrong fault of the channel: {fault:?}"
    );
    channel.skip(gtid).await?;
    rig.wait_applied(&channel).await?;
    ensure!(rig.target.sql(there).await? == ["1"], "the MyISAM row was written twice");
    channel.shut_down().await;
    Ok(())
}

/// A channel checks with the counters of its sessions that the target changed all rows. `FLUSH STATUS` resets
/// the counters of all sessions. The channel must continue after such a reset.
async fn counters_may_be_set_back(rig: &Rig) -> Result<()> {
    let channel = rig.channel(ChannelOptions { workers: 1, ..rig.options("otherwise") });
    rig.source.sql("INSERT INTO mixed.p1 VALUES (600, 1), (601, 1), (602, 1)").await?;
    rig.wait_applied(&channel).await?;
    for table in ["set_back_1", "set_back_2"] {
        rig.target.sql("FLUSH NO_WRITE_TO_BINLOG STATUS").await?;
        // The first rows of a table are always checked.
        rig.source
            .sql(&format!(
                "CREATE TABLE mixed.{table} (a INT PRIMARY KEY); INSERT INTO mixed.{table} VALUES (1), (2)"
            ))
            .await?;
        rig.wait_applied(&channel).await?;
        let rows = format!("SELECT COUNT(*) FROM mixed.{table}");
        ensure!(rig.target.sql(&rows).await? == ["2"], "wrong number of rows in the table: {table}");
    }
    channel.shut_down().await;
    Ok(())
}

/// Two tables have other engines on the target than on the source. One of these engines keeps no rows.
async fn engines_of_the_target(rig: &Rig) -> Result<()> {
    let channel = rig.channel(rig.options("otherwise"));
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    rig.target
        .sql(
            "SET sql_log_bin=0; DELETE FROM mixed.i1; ALTER TABLE mixed.i1 ENGINE=BLACKHOLE; \
             ALTER TABLE mixed.i2 ENGINE=ARCHIVE",
        )
        .await?;
    channel.resume(None).await?;
    rig.source
        .sql(
            "USE mixed; INSERT INTO i1 VALUES (500, 1), (501, 1); UPDATE i1 SET v = 2 WHERE a = 500; \
             INSERT INTO i2 VALUES (500, 1); DELETE FROM i1 WHERE a = 501; INSERT INTO p1 VALUES (500, 1)",
        )
        .await?;
    rig.wait_applied(&channel).await?;
    let rows = "SELECT COUNT(*) FROM mixed.i2 WHERE a = 500; SELECT COUNT(*) FROM mixed.p1 WHERE a = 500";
    ensure!(rig.target.sql(rows).await? == ["1", "1"]);
    // Rows of an ARCHIVE table cannot be updated.
    rig.source.sql("UPDATE mixed.i2 SET v = 2 WHERE a = 500").await?;
    let fault = rig.wait_failed(&channel).await?;
    ensure!(
        fault.code == "TW-APP-0002" && fault.message.contains("mixed.i2: the target rejected it"),
        "wrong fault of the channel: {fault:?}"
    );
    rig.target.sql("SET sql_log_bin=0; ALTER TABLE mixed.i2 ENGINE=InnoDB").await?;
    channel.resume(None).await?;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    let back = "SET sql_log_bin=0; ALTER TABLE mixed.i1 ENGINE=InnoDB; INSERT INTO mixed.i1 VALUES (-1, 0)";
    rig.target.sql(back).await?;
    Ok(())
}

/// Resets the binlog and GTIDs of a target, and removes the progress of all channels.
async fn forget_all(target: &Server) -> Result<()> {
    target.sql("SET sql_log_bin=0; DROP DATABASE IF EXISTS mixed").await?;
    let reset = match target.kind().flavour() {
        Flavour::MySql => "RESET BINARY LOGS AND GTIDS",
        Flavour::MariaDb => "RESET MASTER; SET GLOBAL gtid_slave_pos=''",
    };
    target.sql(reset).await?;
    Ok(())
}

/// Both tables are transactional on the source, and one of them is not transactional on the target. The rows
/// of both tables are in one transaction under one GTID.
async fn what_cannot_be_applied_once_is_rejected(rig: &Rig) -> Result<()> {
    rig.target.sql("SET sql_log_bin=0; ALTER TABLE mixed.i2 ENGINE=MyISAM").await?;
    let channel = rig.channel(ChannelOptions { gtid: GtidMode::Preserve, ..rig.options("preserved") });
    let both = "BEGIN; INSERT INTO mixed.i2 VALUES (77, 1); INSERT INTO mixed.i1 VALUES (77, 1); COMMIT";
    rig.source.sql(both).await?;
    let fault = rig.wait_failed(&channel).await?;
    ensure!(
        fault.code == "TW-APP-0050" && fault.message.contains("mixed.i2"),
        "wrong fault of the channel: {fault:?}"
    );
    let rows = "SELECT COUNT(*) FROM mixed.i2 WHERE a = 77; SELECT COUNT(*) FROM mixed.i1 WHERE a = 77";
    ensure!(rig.target.sql(rows).await? == ["0", "0"], "a part of the rejected transaction was written");
    rig.target.sql("SET sql_log_bin=0; ALTER TABLE mixed.i2 ENGINE=InnoDB").await?;
    channel.resume(None).await?;
    rig.wait_applied(&channel).await?;
    // These statements change the nontransactional table.
    for statement in [
        "INSERT INTO y2 VALUES (78, 1)",
        "UPDATE mixed.`i1` JOIN y2 ON i1.a=y2.a SET y2.v = 2 WHERE y2.a = 78",
    ] {
        rig.source.sql(&format!("USE mixed; SET SESSION binlog_format=STATEMENT; {statement}")).await?;
        let fault = rig.wait_failed(&channel).await?;
        ensure!(
            fault.code == "TW-APP-0050" && fault.message.contains("mixed.y2"),
            "wrong fault of the channel: {fault:?}"
        );
        ensure!(
            rig.target.sql("SELECT COUNT(*) FROM mixed.y2 WHERE a = 78").await? == ["0"],
            "the row of the rejected statement was written"
        );
        channel.skip(rig.newest_gtid().await?).await?;
    }
    // A temporary table belongs to the session, so it does not matter that it is nontransactional.
    let own = "USE mixed; SET SESSION binlog_format=STATEMENT; CREATE TEMPORARY TABLE passing (a INT) ENGINE=MyISAM; \
               INSERT INTO passing VALUES (79); INSERT INTO i1 SELECT a, 1 FROM passing";
    rig.source.sql(own).await?;
    rig.wait_applied(&channel).await?;
    rig.source.sql("DELETE FROM mixed.y2 WHERE a = 78").await?;
    let fault = rig.wait_failed(&channel).await?;
    ensure!(fault.code == "TW-APP-0002", "wrong fault of the channel: {fault:?}");
    channel.skip(rig.newest_gtid().await?).await?;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    rig.ensure_equal(&["mixed"]).await
}

/// The target has logged a MyISAM row under the source's GTID. The channel is interrupted before it writes
/// its progress.
async fn logged_rows_are_not_repeated(rig: &Rig) -> Result<()> {
    let channel = rig.channel(ChannelOptions { gtid: GtidMode::Preserve, ..rig.options("preserved") });
    rig.wait_applied(&channel).await?;
    let mut holder = Connection::connect(&rig.target.connect_options()).await?;
    holder.execute("LOCK TABLES tailwater.apply_progress READ, tailwater.apply_channel READ").await?;
    rig.source.sql("INSERT INTO mixed.y2 VALUES (88, 1)").await?;
    let there = "SELECT COUNT(*) FROM mixed.y2 WHERE a = 88";
    let started = std::time::Instant::now();
    while rig.target.sql(there).await? != ["1"] {
        ensure!(started.elapsed() < PATIENCE, "the MyISAM row was not written");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let waiting = "SELECT id FROM information_schema.processlist WHERE info LIKE 'REPLACE INTO tailwater%' OR state LIKE 'Waiting for table%'";
    while rig.target.sql(waiting).await?.is_empty() {
        ensure!(started.elapsed() < PATIENCE, "no statement of the channel waits for the table lock");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for id in rig.target.sql(waiting).await? {
        rig.target.sql(&format!("KILL {id}")).await?;
    }
    holder.execute("UNLOCK TABLES").await?;
    if rig.target.kind().flavour() == Flavour::MySql {
        rig.wait_applied(&channel).await?;
        ensure!(rig.target.sql(there).await? == ["1"], "the MyISAM row was written twice");
    }
    channel.shut_down().await;
    Ok(())
}

/// An operator changes a setting while the channel runs, so that the target ignores missing rows without an
/// error. The channel must detect this.
async fn lost_rows_are_detected(rig: &Rig) -> Result<()> {
    let channel = rig.channel(rig.options("otherwise"));
    rig.wait_applied(&channel).await?;
    rig.target.sql("SET sql_log_bin=0; DELETE FROM mixed.i1 WHERE a = -1").await?;
    rig.target.sql("SET GLOBAL slave_exec_mode='IDEMPOTENT'").await?;
    rig.source.sql("UPDATE mixed.i1 SET v = 99 WHERE a = -1").await?;
    let fault = rig.wait_failed(&channel).await;
    rig.target.sql("SET GLOBAL slave_exec_mode='STRICT'").await?;
    let fault = fault?;
    // A MySQL session has its own setting (`rbr_exec_mode`), so the server reports the missing row.
    let code = if rig.target.kind().flavour() == Flavour::MySql { "TW-APP-0002" } else { "TW-APP-0051" };
    ensure!(fault.code == code, "wrong fault of the channel: {fault:?}");
    channel.shut_down().await;
    Ok(())
}
