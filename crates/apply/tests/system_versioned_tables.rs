//! System-versioned tables (MariaDB) whose columns differ on the target, so that their rows are written as
//! SQL. The history must be the same as on a native replica with the same columns.

use anyhow::{Context, Result, ensure};
use tailwater_apply::channel::{ChannelOptions, ChannelStart};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::{Server, ServerKind};
use tailwater_wire::Flavour;

use crate::channel_test_servers::{PATIENCE, Rig, spec};

on_each_server!(history_is_that_of_a_native_replica, deleted_history_of_partitions_is_refused);

/// The tables. On servers with wider columns, `INT` is replaced with a wider type.
const TABLES: &str = "
    CREATE TABLE keyed (id INT PRIMARY KEY, v INT, b LONGTEXT) WITH SYSTEM VERSIONING;
    CREATE TABLE two (a INT, b INT, v INT, PRIMARY KEY (a, b)) WITH SYSTEM VERSIONING;
    CREATE TABLE keyless (a INT, v INT) WITH SYSTEM VERSIONING;
    CREATE TABLE partly (id INT PRIMARY KEY, v INT, u INT WITHOUT SYSTEM VERSIONING) WITH SYSTEM VERSIONING;
    CREATE TABLE own (id INT PRIMARY KEY, v INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START,
        e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING;";

/// A table that has one more column only on the target.
const ADDED: &str = "CREATE TABLE added (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING;";

/// The changes of the tables.
///
/// With NOBLOB images, the source logs a history row without its unchanged BLOB, and a native replica then
/// stores NULL in the BLOB. So with NOBLOB images, each update of the workload changes the BLOB.
const WORKLOAD: &str = "
    SET timestamp=1700000000.123456;
    INSERT INTO keyed VALUES (1, 1, 'x'), (2, 2, 'y'), (3, 3, NULL);
    SET timestamp=1700000001.654321;
    UPDATE keyed SET v = 5 WHERE id = 1;
    UPDATE keyed SET v = v + 1;
    SET timestamp=1700000002.5;
    DELETE FROM keyed WHERE id = 2;
    INSERT INTO keyed VALUES (1, 9, 'z'), (4, 4, 'd'), (3, 1, 'z') ON DUPLICATE KEY UPDATE v = 9;
    REPLACE INTO keyed VALUES (3, 4, 'c');
    SET timestamp=1700000003.999999;
    REPLACE INTO keyed VALUES (3, 5, 'c');
    UPDATE keyed SET id = 11 WHERE id = 1;
    INSERT INTO keyed VALUES (7, 7, ''); DELETE FROM keyed WHERE id = 7;
    INSERT INTO keyed VALUES (7, 8, ''); DELETE FROM keyed WHERE id = 7;
    SET timestamp=1600000000;
    UPDATE keyed SET v = 0 WHERE id = 11;
    DELETE FROM keyed WHERE id = 4;
    SET timestamp=DEFAULT;
    UPDATE keyed SET b = REPEAT('long', 1500000) WHERE id = 11;
    UPDATE keyed SET b = 'short' WHERE id = 11;
    BEGIN; INSERT INTO two VALUES (1, 1, 1), (1, 2, 2), (2, 1, 3); UPDATE two SET v = v + 1 WHERE a = 1;
        UPDATE two SET v = v + 1; UPDATE two SET b = 5 WHERE b = 2; DELETE FROM two WHERE a = 2; COMMIT;
    INSERT INTO two VALUES (2, 1, 8); DELETE FROM two;
    INSERT INTO keyless VALUES (1, 1), (1, 1), (2, 2), (NULL, NULL);
    INSERT INTO keyless VALUES (1, 1), (2, 2);
    UPDATE keyless SET v = 7 WHERE a = 1 LIMIT 2;
    UPDATE keyless SET v = v + 1;
    DELETE FROM keyless WHERE a IS NULL; DELETE FROM keyless WHERE a = 2 LIMIT 1; DELETE FROM keyless LIMIT 2;
    INSERT INTO partly VALUES (1, 1, 1), (2, 2, 2); UPDATE partly SET u = 5; UPDATE partly SET v = 6, u = 6 WHERE id = 1;
    SET binlog_row_image = MINIMAL;
    UPDATE partly SET u = 7; UPDATE partly SET v = 8 WHERE id = 2; DELETE FROM partly WHERE id = 1;
    UPDATE keyed SET v = 20 WHERE id = 3; UPDATE keyless SET v = 30;
    SET binlog_row_image = NOBLOB;
    UPDATE keyed SET v = 21, b = 'new' WHERE id = 3; UPDATE keyed SET b = 'newer' WHERE id = 3;
    SET binlog_row_image = FULL;
    INSERT INTO own (id, v) VALUES (1, 1), (2, 2); UPDATE own SET v = 3; DELETE FROM own WHERE id = 2;
    SET system_versioning_insert_history = 1;
    INSERT INTO keyed (id, v, b, row_start, row_end) VALUES (1, 0, 'h', '2001-01-01', '2002-01-01 00:00:00.000001'),
        (1, 0, 'h', '2002-02-01', '2002-03-01');
    INSERT INTO keyed (id, v, b, row_start) VALUES (50, 1, 'now', '2003-01-01');
    INSERT INTO keyless (a, v, row_start, row_end) VALUES (5, 5, '2001-01-01', '2002-01-01'),
        (5, 5, '2001-01-01', '2002-01-01'), (6, 6, '2001-01-01', '2003-01-01');
    SET system_versioning_insert_history = 0;
    DELETE HISTORY FROM keyless BEFORE SYSTEM_TIME '2002-06-01';
    INSERT INTO added VALUES (1, 1), (2, 2); UPDATE added SET v = v + 5; DELETE FROM added WHERE id = 2;";

/// Reads the rows with their history.
const CONTENTS: [&str; 5] = [
    "SELECT id, v, MD5(b), row_start, row_end FROM keyed FOR SYSTEM_TIME ALL ORDER BY 1, 4, 5",
    "SELECT a, b, v, row_start, row_end FROM two FOR SYSTEM_TIME ALL ORDER BY 1, 2, 4, 5",
    "SELECT a, v, row_start, row_end FROM keyless FOR SYSTEM_TIME ALL ORDER BY 1, 2, 3, 4",
    "SELECT id, v, u, row_start, row_end FROM partly FOR SYSTEM_TIME ALL ORDER BY 1, 4, 5",
    "SELECT id, v, s, e FROM own FOR SYSTEM_TIME ALL ORDER BY 1, 3, 4",
];
const ADDED_CONTENTS: &str =
    "SELECT id, v, row_start, row_end FROM added FOR SYSTEM_TIME ALL ORDER BY 1, 3, 4";

async fn create(server: &Server, tables: &str) -> Result<()> {
    let sql = format!("SET sql_log_bin=0; CREATE OR REPLACE DATABASE versioned; USE versioned; {tables}");
    server.sql(&sql).await?;
    Ok(())
}

async fn contents(server: &Server, query: &str) -> Result<Vec<String>> {
    Ok(server.sql(&format!("USE versioned; {query}")).await?)
}

/// Applies the log from its start to empty tables with wider columns.
async fn replay(rig: &Rig, name: &str, change: impl FnOnce(&mut ChannelOptions)) -> Result<()> {
    let added = ADDED.replace("v INT", "v INT, x INT DEFAULT 7");
    create(&rig.target, &format!("{}{added}", TABLES.replace("INT", "BIGINT"))).await?;
    let mut options = rig.options(name);
    options.start = ChannelStart::Oldest;
    change(&mut options);
    let channel = rig.channel(options);
    rig.wait_applied(&channel).await.with_context(|| name.to_owned())?;
    channel.shut_down().await;
    Ok(())
}

async fn history_is_that_of_a_native_replica(kind: ServerKind) -> Result<()> {
    if kind.flavour() == Flavour::MySql {
        return Ok(());
    }
    let options = ["--binlog-row-metadata=FULL", "--binlog-format=ROW"];
    let Some(rig) = Rig::start(kind, &options, &options).await? else { return Ok(()) };
    let native = Server::start(spec(kind, 3).option("--slave-type-conversions=ALL_NON_LOSSY")).await?;
    create(&rig.source, &format!("{TABLES}{ADDED}")).await?;
    create(&native, &format!("{}{ADDED}", TABLES.replace("INT", "BIGINT"))).await?;
    native.replicate_from(&rig.source).await?;
    rig.source.sql(&format!("USE versioned; {WORKLOAD}")).await?;
    let gtids = rig.source_gtids().await?.to_string();
    ensure!(
        native.wait_for_gtids(&gtids, PATIENCE).await?,
        "the native replica does not catch up: {:?}",
        native.replica_status().await?
    );

    let newest = rig.newest_gtid().await?;
    for name in ["large batches", "streamed", "small batches", "tolerant"] {
        replay(&rig, name, |options| match name {
            "streamed" => options.transaction_bytes_max = 150,
            "small batches" => {
                options.commit_order = CommitOrder::Independent;
                options.batch_transactions_max = 2;
            }
            "tolerant" => options.tolerate_until = Some(newest.clone()),
            _ => options.commit_order = CommitOrder::Source,
        })
        .await?;
        for query in CONTENTS.iter().chain(&[ADDED_CONTENTS]) {
            let (on_target, on_native) =
                (contents(&rig.target, query).await?, contents(&native, query).await?);
            ensure!(!on_native.is_empty(), "the native replica has no rows for the query: {query}");
            ensure!(
                on_target == on_native,
                "channel {name}: the results of {query} differ\ntarget: {on_target:#?}\nnative replica: {on_native:#?}"
            );
        }
        ensure!(contents(&rig.target, "SELECT DISTINCT x FROM added FOR SYSTEM_TIME ALL").await? == ["7"]);
    }
    Ok(())
}

async fn deleted_history_of_partitions_is_refused(kind: ServerKind) -> Result<()> {
    if kind.flavour() == Flavour::MySql {
        return Ok(());
    }
    let options = ["--binlog-row-metadata=FULL", "--binlog-format=ROW"];
    let Some(rig) = Rig::start(kind, &options, &options).await? else { return Ok(()) };
    let table = "CREATE TABLE parted (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING \
                 PARTITION BY HASH (id) PARTITIONS 2;";
    create(&rig.source, table).await?;
    create(&rig.target, &table.replace("v INT", "v BIGINT")).await?;
    let channel = rig.channel(rig.options("parted"));
    rig.source
        .sql("USE versioned; INSERT INTO parted VALUES (1, 1), (2, 1); UPDATE parted SET v = 2; DELETE HISTORY FROM parted PARTITION (p0)")
        .await?;
    let fault = rig.wait_failed(&channel).await?;
    ensure!(
        fault.code == "TW-APP-0031" && fault.message.contains("DELETE HISTORY"),
        "wrong fault of the channel: {fault:?}"
    );
    rig.target.sql("SET sql_log_bin=0; DELETE HISTORY FROM versioned.parted PARTITION (p0)").await?;
    channel.skip(rig.newest_gtid().await?).await?;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    let query = "SELECT id, v, row_start, row_end FROM parted FOR SYSTEM_TIME ALL ORDER BY 1, 3";
    ensure!(contents(&rig.source, query).await? == contents(&rig.target, query).await?);
    Ok(())
}
