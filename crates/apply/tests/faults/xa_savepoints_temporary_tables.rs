//! Applies XA transactions, savepoints, statements, temporary tables and triggers from sessions of the
//! source.

use anyhow::{Result, ensure};
use tailwater_apply::channel::{ChannelOptions, GtidMode};
use tailwater_apply::replication_filter::{FilterSet, Operation, Rule};
use tailwater_sandbox::ServerKind;
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use super::{Applier, until};
use crate::channel_test_servers::Rig;

/// Prepares XA transactions on the source. Then the source commits other transactions, the applier is killed
/// and restarted, and the source changes its event format. Finally, one XA transaction is committed and the
/// other is rolled back. Transactions longer than `bytes_max` are streamed.
async fn xa(kind: ServerKind, bytes_max: u64) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    rig.source
        .sql("CREATE DATABASE xa; CREATE TABLE xa.t (id INT PRIMARY KEY, n INT); CREATE TABLE xa.k (n INT)")
        .await?;
    let prepare = |name: &str, statement: &str| {
        format!("XA START '{name}'; {statement}; XA END '{name}'; XA PREPARE '{name}'")
    };
    let options = ChannelOptions { transaction_bytes_max: bytes_max, ..rig.options("xa") };
    let mut applier = Applier::start(options.clone(), &rig)?;
    rig.source
        .sql(&prepare("one", "INSERT INTO xa.t VALUES (1,1),(2,2); INSERT INTO xa.k VALUES (1)"))
        .await?;
    rig.source.sql(&prepare("two", "INSERT INTO xa.t VALUES (3,3); INSERT INTO xa.k VALUES (2)")).await?;
    rig.source.sql("INSERT INTO xa.t VALUES (4,4); UPDATE xa.t SET n=5 WHERE id=4").await?;
    for _ in 0..2 {
        until(&rig.target, "SELECT COUNT(*) FROM xa.t WHERE n > 4", "1").await?;
        ensure!(
            rig.target.sql("SELECT COUNT(*) FROM xa.t").await? == ["1"],
            "the prepared transaction must not be applied yet"
        );
        applier.kill();
        applier = Applier::start(options.clone(), &rig)?;
    }
    rig.source.sql("SET GLOBAL binlog_checksum=NONE").await?;
    rig.source.sql("XA COMMIT 'one'; XA ROLLBACK 'two'").await?;
    rig.source
        .sql("XA START 'x'; INSERT INTO xa.t VALUES (7,7); XA END 'x'; XA COMMIT 'x' ONE PHASE")
        .await?;
    rig.source.sql("UPDATE xa.t SET n=n+1; INSERT INTO xa.k VALUES (3)").await?;
    rig.wait_applied(&applier.channel).await?;
    rig.source.sql("SET GLOBAL binlog_checksum=CRC32").await?;
    applier.kill();
    let applier = Applier::start(options.clone(), &rig)?;
    rig.wait_applied(&applier.channel).await?;
    applier.channel.pause().await?;
    rig.ensure_equal(&["xa"]).await?;
    let left = rig.target.sql("XA RECOVER").await?;
    ensure!(left.is_empty(), "prepared XA transactions remain on the target: {left:?}");
    applier.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_applies_xa_transactions() -> Result<()> {
    xa(ServerKind::Mariadb1011, 16 << 20).await?;
    xa(ServerKind::Mariadb1011, 100).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_applies_xa_transactions() -> Result<()> {
    xa(ServerKind::Mysql97, 16 << 20).await?;
    xa(ServerKind::Mysql97, 100).await
}

/// Statements in an XA transaction are filtered when the transaction commits, as in other transactions. A
/// statement that changes unknown rows is rejected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_in_xa_transactions_are_filtered() -> Result<()> {
    let Some(rig) = Rig::start(ServerKind::Mariadb1011, &[], &[]).await? else { return Ok(()) };
    rig.source
        .sql("CREATE DATABASE xa; CREATE TABLE xa.t (id INT PRIMARY KEY); CREATE TABLE xa.u LIKE xa.t")
        .await?;
    let rows_of_u = Rule { tables: "xa.u".into(), operations: vec![Operation::Insert] };
    let filters = FilterSet { exclude: vec![rows_of_u], ..FilterSet::default() };
    let applier = Applier::start(ChannelOptions { filters, ..rig.options("xa") }, &rig)?;
    rig.source
        .sql("XA START 'rows'; INSERT INTO xa.t VALUES (1); INSERT INTO xa.u VALUES (1); XA END 'rows'; XA PREPARE 'rows'")
        .await?;
    rig.source.sql("XA COMMIT 'rows'").await?;
    rig.wait_applied(&applier.channel).await?;
    ensure!(
        rig.target.sql("SELECT COUNT(*) FROM xa.t").await? == ["1"],
        "the rows of the XA transaction are missing"
    );
    ensure!(
        rig.target.sql("SELECT COUNT(*) FROM xa.u").await? == ["0"],
        "a row of the excluded table was written"
    );
    rig.source
        .sql("SET binlog_format=STATEMENT; XA START 'text'; INSERT INTO xa.u VALUES (2); XA END 'text'; XA PREPARE 'text'")
        .await?;
    rig.source.sql("INSERT INTO xa.t VALUES (3)").await?;
    until(&rig.target, "SELECT COUNT(*) FROM xa.t", "2").await?;
    rig.source.sql("XA COMMIT 'text'").await?;
    let fault = rig.wait_failed(&applier.channel).await?;
    ensure!(
        fault.message.contains("filters and rewrites need rows"),
        "wrong fault of the channel: {fault:?}"
    );
    ensure!(
        rig.target.sql("SELECT COUNT(*) FROM xa.u").await? == ["0"],
        "a row of the rejected statement was written"
    );
    applier.end().await;
    Ok(())
}

/// With `gtid = preserve`, the target logs every GTID, also the GTIDs of XA PREPARE and of skipped
/// transactions. The channel is killed after the target has logged an XA PREPARE and before the XA COMMIT.
/// Then the channel resumes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_target_logs_every_gtid() -> Result<()> {
    let Some(rig) = Rig::start(ServerKind::Mysql97, &[], &[]).await? else { return Ok(()) };
    let options = ChannelOptions { gtid: GtidMode::Preserve, ..rig.options("xa") };
    let applier = Applier::start(options.clone(), &rig)?;
    rig.source
        .sql("CREATE DATABASE xa; CREATE TABLE xa.t (id INT PRIMARY KEY, n INT); INSERT INTO xa.t VALUES (1,1)")
        .await?;
    rig.wait_applied(&applier.channel).await?;
    let mut other = Connection::connect(&rig.target.connect_options()).await?;
    other.execute("BEGIN").await?;
    other.execute("UPDATE xa.t SET n=9 WHERE id=1").await?;
    rig.source.sql("XA START 'one'; UPDATE xa.t SET n=2; XA END 'one'; XA PREPARE 'one'").await?;
    let preparing = rig.newest_gtid().await?;
    rig.source.sql("XA COMMIT 'one'").await?;
    let logged = format!("SELECT GTID_SUBSET('{preparing}', @@GLOBAL.gtid_executed)");
    until(&rig.target, &logged, "1").await?;
    applier.kill();
    other.execute("ROLLBACK").await?;
    let applier = Applier::start(options, &rig)?;
    rig.wait_applied(&applier.channel).await?;
    // Of the next transactions, one is rolled back, one contains a statement, and one is skipped by an
    // operator.
    rig.source
        .sql("XA START 'two'; UPDATE xa.t SET n=3; XA END 'two'; XA PREPARE 'two'; XA ROLLBACK 'two'")
        .await?;
    rig.source
        .sql(
            "XA START 'three'; UPDATE xa.t SET n=4; SAVEPOINT s; INSERT INTO xa.t VALUES (2,2); ROLLBACK TO s; \
             XA END 'three'; XA PREPARE 'three'; XA COMMIT 'three'",
        )
        .await?;
    rig.wait_applied(&applier.channel).await?;
    applier.channel.pause().await?;
    rig.source.sql("INSERT INTO xa.t VALUES (5,5)").await?;
    applier.channel.skip(rig.newest_gtid().await?).await?;
    applier.channel.resume(None).await?;
    rig.source.sql("INSERT INTO xa.t VALUES (6,6)").await?;
    rig.wait_applied(&applier.channel).await?;
    applier.end().await;
    let rows = rig.target.sql("SELECT id, n FROM xa.t ORDER BY id").await?;
    ensure!(rows == ["1\t4", "6\t6"], "wrong rows on the target: {rows:?}");
    let has = rig.target.sql("SELECT @@GLOBAL.gtid_executed").await?.concat();
    let lacking = format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{has}')");
    ensure!(
        rig.source.sql(&lacking).await? == [""],
        "the target lacks GTIDs of the source; the target has: {has}"
    );
    // All GTIDs must be in the target's binlog. A replica of the target could not get GTIDs that are only in
    // `gtid_purged`.
    let purged = rig.target.sql("SELECT @@GLOBAL.gtid_purged").await?;
    ensure!(purged == [""], "the target has GTIDs that its binlog does not contain: {purged:?}");
    Ok(())
}

/// These statements run on both flavours. MariaDB logs some of these statements as statements, and MySQL logs
/// rows instead.
const SESSIONS: &str = "
    CREATE DATABASE mix; USE mix;
    CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, n INT, d DATETIME(6), r DOUBLE, s VARCHAR(50),
        h INT GENERATED ALWAYS AS (n + 1) STORED);
    CREATE DATABASE virtual_columns; CREATE TABLE virtual_columns.v (id INT PRIMARY KEY, n INT,
        g INT GENERATED ALWAYS AS (n * 2) VIRTUAL, KEY (g));
    INSERT INTO virtual_columns.v (id, n) VALUES (1,1),(2,2),(3,3); UPDATE virtual_columns.v SET n=7 WHERE g=4;
    DELETE FROM virtual_columns.v WHERE g=2;
    CREATE TABLE audit (what VARCHAR(20), id INT);
    CREATE TABLE nokey (a INT, b VARCHAR(10));
    CREATE TRIGGER ti AFTER INSERT ON t FOR EACH ROW INSERT INTO audit VALUES ('insert', NEW.id);
    CREATE TRIGGER tu BEFORE UPDATE ON t FOR EACH ROW SET NEW.s = CONCAT(COALESCE(NEW.s, ''), '+');
    CREATE TABLE parent (id INT PRIMARY KEY); CREATE TABLE child (id INT PRIMARY KEY, p INT,
        FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL ON UPDATE CASCADE);
    INSERT INTO parent VALUES (1),(2),(3); INSERT INTO child VALUES (1,1),(2,2),(3,3),(4,3);
    UPDATE parent SET id=id+10 WHERE id=2; DELETE FROM parent WHERE id=3;
    INSERT INTO t (n, s) VALUES (1,'a'),(2,'b'),(3,'c');
    BEGIN; INSERT INTO t (n) VALUES (4); SAVEPOINT one; INSERT INTO t (n) VALUES (5); UPDATE t SET n=9 WHERE id=1;
    ROLLBACK TO one; INSERT INTO t (n) VALUES (6); SAVEPOINT two; DELETE FROM t WHERE id=2; RELEASE SAVEPOINT two;
    COMMIT;
    INSERT INTO nokey VALUES (1,'x'),(1,'x'),(1,'x'),(NULL,NULL),(NULL,NULL);
    DELETE FROM nokey WHERE a=1 LIMIT 2; UPDATE nokey SET b='y' WHERE a IS NULL LIMIT 1;
    CREATE TEMPORARY TABLE tmp (n INT); INSERT INTO tmp VALUES (70),(80); INSERT INTO t (n) SELECT n FROM tmp;
    REPLACE INTO t (id, n) VALUES (1, 100); INSERT INTO t (id, n) VALUES (1, 5) ON DUPLICATE KEY UPDATE n=n+7;
";

const STATEMENTS: &str = "
    SET SESSION binlog_format=STATEMENT; USE mix;
    SET TIMESTAMP=1600000000; UPDATE t SET d=NOW(), s='now' WHERE id=1; SET TIMESTAMP=DEFAULT;
    SET @v = 'it''s', @n = 4; INSERT INTO t (n, s) VALUES (@n, @v);
    INSERT INTO t (n, s) VALUES (LAST_INSERT_ID(), 'last'); UPDATE t SET r=RAND(3) WHERE id=1;
    SET sql_mode='ANSI_QUOTES,PIPES_AS_CONCAT'; INSERT INTO t (n, s) VALUES (1, 'a' || 'b'); SET sql_mode=DEFAULT;
    SET time_zone='+05:00'; UPDATE t SET d=FROM_UNIXTIME(1234567890) WHERE id=3; SET time_zone=DEFAULT;
    CREATE TEMPORARY TABLE tmp (n INT); INSERT INTO tmp VALUES (1),(2); INSERT INTO t (n) SELECT n+1000 FROM tmp;
    BEGIN; UPDATE t SET n=n+1 WHERE id=1; SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; INSERT INTO nokey VALUES (5,'s');
    COMMIT; DROP TEMPORARY TABLE tmp;
    SET SESSION binlog_format=MIXED; INSERT INTO t (n, s) VALUES (1, UUID()); UPDATE t SET n=n*2;
    SET NAMES latin1; INSERT INTO t (n, s) VALUES (3, _utf8mb4 x'c3a9'); SET NAMES utf8mb4;
    INSERT INTO nokey SELECT n, 'z' FROM t; SET foreign_key_checks=0; INSERT INTO child VALUES (9, 99);
    SET foreign_key_checks=1; SET SESSION binlog_format=ROW; INSERT INTO t (n) VALUES (12345);
";

async fn mixed(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let channel = rig.channel(rig.options("mixed"));
    rig.source.sql(SESSIONS).await?;
    if kind.flavour() == Flavour::MariaDb {
        rig.source.sql(STATEMENTS).await?;
    }
    rig.source.sql("INSERT INTO mix.t (n) VALUES (77); DELETE FROM mix.t WHERE n=4").await?;
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    rig.ensure_equal(&["mix"]).await?;
    let rows = "SELECT * FROM virtual_columns.v ORDER BY id; SELECT id FROM virtual_columns.v FORCE INDEX (g) WHERE g=14";
    ensure!(
        rig.source.sql(rows).await? == rig.target.sql(rows).await?,
        "the virtual columns of the target differ from the source"
    );
    channel.shut_down().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn features_of_mariadb_sessions_are_applied() -> Result<()> {
    mixed(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn features_of_mysql_sessions_are_applied() -> Result<()> {
    mixed(ServerKind::Mysql97).await
}
