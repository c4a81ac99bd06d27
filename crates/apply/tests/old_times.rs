//! TIME, DATETIME and TIMESTAMP in the layout of before MySQL 5.6, with fractions of which the binlog says nothing.

use anyhow::{Result, ensure};
use tailwater_apply::channel::{ChannelOptions, ChannelStart};
use tailwater_sandbox::{Server, ServerKind};

use crate::support::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fractions_are_those_of_the_target() -> Result<()> {
    let Some(rig) = Rig::start(ServerKind::Mariadb1011, &[], &[]).await? else { return Ok(()) };
    rig.source.sql("CREATE DATABASE old").await?;
    make_old(&rig.source, "t").await?;
    make_old(&rig.source, "k").await?;
    make_old(&rig.source, "odd").await?;
    make_old(&rig.source, "zero").await?;
    let begin = rig.source.sql("SELECT @@GLOBAL.gtid_binlog_pos").await?.concat();
    for table in ["t", "k", "odd"] {
        rig.source.sql(&format!("USE old; SET time_zone='+00:00', sql_mode=''; {}", rows(table))).await?;
    }
    // All zero, with columns that are as long otherwise: it can be read in several ways, unless the precision is known.
    for table in ["k", "zero"] {
        let zeros =
            format!("SET sql_mode=''; INSERT INTO old.{table} VALUES (3, 0, 0, 0, 0, 0, 0, '', 0, 0)");
        rig.source.sql(&zeros).await?;
    }
    rig.target.sql(&format!("CREATE DATABASE old; SET GLOBAL gtid_slave_pos='{begin}'")).await?;
    // One table in the new layout, as servers make it today, one in the old one, and one whose precision is another.
    rig.target
        .sql(&format!(
            "USE old; CREATE TABLE t {COLUMNS}; CREATE TABLE odd {COLUMNS}; CREATE TABLE zero {COLUMNS}"
        ))
        .await?;
    rig.target.sql("ALTER TABLE old.odd MODIFY a TIME(1)").await?;
    make_old(&rig.target, "k").await?;
    let channel = rig.channel(ChannelOptions { start: ChannelStart::Target, ..rig.options("old") });
    let fault = rig.wait_failed(&channel).await?;
    ensure!(fault.code == "TW-APP-0053", "{fault:?}");
    ensure!(fault.message.contains("rows of old.odd in the event at "), "{fault:?}");
    ensure!(fault.message.contains("mysql56_temporal_format"), "{fault:?}");
    for table in ["t", "k"] {
        let rows = format!("SET time_zone='+00:00'; SELECT * FROM old.{table} WHERE id <> 3 ORDER BY id");
        let (ours, theirs) = (rig.target.sql(&rows).await?, rig.source.sql(&rows).await?);
        ensure!(ours == theirs && ours.len() == 4, "{table}: {ours:#?} {theirs:#?}");
    }
    ensure!(rig.target.sql("SELECT COUNT(*) FROM old.odd").await? == ["0"]);
    rig.target.sql("ALTER TABLE old.odd MODIFY a TIME(3)").await?;
    channel.resume(None).await?;
    let fault = rig.wait_failed(&channel).await?;
    ensure!(fault.code == "TW-APP-0053" && fault.message.contains("rows of old.zero in"), "{fault:?}");
    // The remedy where the source cannot be altered.
    rig.target.sql("DROP TABLE old.zero").await?;
    make_old(&rig.target, "zero").await?;
    channel.resume(None).await?;
    rig.wait_applied(&channel).await?;
    channel.end().await;
    rig.ensure_equal(&["old"]).await
}

const COLUMNS: &str = "(id INT PRIMARY KEY, a TIME(3), b DATETIME(6), c TIMESTAMP(2) NULL, d DATETIME, e TIME, \
                       f TIMESTAMP NULL, v VARCHAR(10), g TIME(6), h DATETIME(1))";

async fn make_old(server: &Server, table: &str) -> Result<()> {
    let make = format!(
        "SET sql_log_bin=0; SET GLOBAL mysql56_temporal_format=OFF; CREATE TABLE old.{table} {COLUMNS}; \
         SET GLOBAL mysql56_temporal_format=ON"
    );
    server.sql(&make).await?;
    Ok(())
}

fn rows(table: &str) -> String {
    let row = |id: u32, values: &str| format!("INSERT INTO {table} VALUES ({id}, {values});");
    [
        row(
            1,
            "'-12:34:56.789', '2024-02-29 12:34:56.123456', '2001-02-03 04:05:06.07', '2024-02-29 1:2:3', '838:59:59', \
             '2010-01-01', 'x', '00:00:00.000001', '2024-01-01 00:00:00.1'",
        ),
        row(2, "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"),
        row(
            4,
            "'838:59:59.999', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.99', '1000-01-01', '-838:59:59', \
             '1970-01-01 00:00:01', 'nine', '-838:59:59.999999', '9999-12-31 23:59:59.9'",
        ),
        row(5, "'00:00:00.5', '2024-02-29', '2001-02-03', '2024-02-29', '1:00', '2010-01-01', 'x', '1:00', '2024-01-01'"),
row(6, "'1:02:03.004', '2024-02-29 1:2:3', NULL, '2024-02-29', '1:00', NULL, 'six', '1:02:03.004', '2024-02-29 1:2:3.4'"),
        format!("UPDATE {table} SET a = '00:00:01.25', b = '2020-01-01 00:00:00.000001' WHERE id = 5;"),
        format!("DELETE FROM {table} WHERE id = 6;"),
    ]
    .concat()
}
