//! Rejoins of former primaries: ahead of the log, behind the log, or with tables older than their binlog. The
//! tests use real servers and every column type.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_apply::ApplyError;
use tailwater_log::LogDir;
use tailwater_rejoin::{RejoinError, RejoinOptions, inspect, repair};
use tailwater_sandbox::ServerKind;
use tailwater_session::{Connection, TextRow};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use crate::channel_test_servers::{PATIENCE, Rig};
use crate::column_type_boundary_values::{Family, families};
use crate::tables_of_every_column_type::{BY_BINLOG, change, define, variants};

impl Rig {
    /// Returns the options for a rejoin. The source of the test rig is the former primary, and its target is
    /// the present primary.
    pub fn rejoin_options(&self, window: Duration) -> RejoinOptions {
        RejoinOptions {
            server: self.source.socket_options(),
            primary: self.target.socket_options(),
            server_id: 4202,
            window: Some(window),
            may_undo: true,
            tail_bytes_max: RejoinOptions::TAIL_BYTES_MAX,
            tail_file: self.folder.path().join("tail.binlog"),
        }
    }

    pub fn log_dir(&self) -> Result<LogDir> {
        Ok(LogDir::open_read_only(&self.folder.path().join("log"))?)
    }

    /// Captures until the log contains all transactions of the source, and then stops the capture.
    pub async fn capture_all(&mut self) -> Result<GtidSet> {
        let wanted = self.source_gtids().await?;
        let start = Instant::now();
        while self.log().gtid_set().is_none_or(|logged| !wanted.is_subset_of(&logged)) {
            ensure!(start.elapsed() < PATIENCE, "the capture did not receive {wanted} in time");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The capture stops, but the log is not deleted.
        let capture = self.capture.take().context("no capture of the source is running")?;
        capture.stop();
        capture.join()?;
        self.log_dir()?.gtid_set()?.context("the log is empty")
    }

    /// Returns all rows of the source, by table.
    async fn rows(&self, schema: &str) -> Result<BTreeMap<String, Vec<String>>> {
        let mut connection = Connection::connect(&self.source.socket_options()).await?;
        let list = format!("SELECT table_name FROM information_schema.tables WHERE table_schema='{schema}'");
        let tables = connection.query(&list).await?;
        let mut all = BTreeMap::new();
        for table in tables.rows.iter().filter_map(|row| row.get_str(0)) {
            let found = connection.query(&format!("SELECT * FROM {schema}.{table}")).await?;
            let text =
                |row: &TextRow| format!("{:?}", (0..row.len()).map(|at| row.get(at)).collect::<Vec<_>>());
            let mut rows: Vec<_> = found.rows.iter().map(text).collect();
            rows.sort();
            all.insert(table.to_owned(), rows);
        }
        ensure!(!all.is_empty(), "the database {schema} has no tables");
        Ok(all)
    }

    async fn gtids(&self) -> Result<GtidSet> {
        let flavour = self.source.kind().flavour();
        let sql = match flavour {
            Flavour::MySql => "SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', '')",
            Flavour::MariaDb => "SELECT @@GLOBAL.gtid_slave_pos",
        };
        Ok(GtidSet::parse(flavour, &self.source.sql(sql).await?.concat())?)
    }
}

/// Runs a test on both flavours.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            use tailwater_sandbox::ServerKind;

            #[tokio::test]
            async fn mysql_97() -> anyhow::Result<()> {
                super::$test(ServerKind::Mysql97).await
            }

            #[tokio::test]
            async fn mariadb_1011() -> anyhow::Result<()> {
                super::$test(ServerKind::Mariadb1011).await
            }
        }
    )*};
}

on_both!(
    rows_of_every_type_are_undone,
    lost_transactions_are_redone,
    a_rejoin_that_was_interrupted_undoes_nothing_twice,
    irreversible_transactions_are_named_and_nothing_is_changed
);

fn is_same(one: &GtidSet, other: &GtidSet) -> bool {
    one.is_subset_of(other) && other.is_subset_of(one)
}

async fn rows_of_every_type_are_undone(kind: ServerKind) -> Result<()> {
    if kind == ServerKind::Mysql97
        && tailwater_sandbox::server_or_skip::is_skipped_in_ci(
            "rows_of_every_type_are_undone on MySQL",
            "rows_of_every_type_are_undone on MariaDB",
        )
    {
        return Ok(());
    }
    let options = ["--innodb-strict-mode=0", "--character-set-server=utf8mb4", "--binlog-format=ROW"];
    let Some(mut rig) = Rig::start(kind, &options, &options).await? else { return Ok(()) };
    let (flavour, families) = (kind.flavour(), families(kind));
    let mut source = Connection::connect(&rig.source.connect_options()).await?;
    define(&mut source, &families, false).await?;
    let settings =
        "SET sql_log_bin = 1, sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'";
    source.execute(settings).await?;
    for (family, variant) in tables(flavour, &families) {
        change(&mut source, &format!("{BY_BINLOG}.{}_{variant}", family.name), family, 1).await?;
    }
    let logged = rig.capture_all().await?;
    let before = rig.rows(BY_BINLOG).await?;

    change_rows(&mut source, &families).await?;
    source.close().await;
    ensure!(rig.rows(BY_BINLOG).await? != before, "the changes had no effect, so there is nothing to undo");

    let options = rig.rejoin_options(Duration::ZERO);
    let found = inspect(&options, &rig.log_dir()?).await?;
    let healed = repair(&options, &rig.log_dir()?).await?;
    ensure!(
        healed.undone == found.tail.gtids() && healed.undone.len() > 100,
        "the repair undid {} transactions, not those that only the server has",
        healed.undone.len()
    );
    ensure!(
        healed.rows_undone > 500 && healed.transactions_again == 0 && !healed.resumed,
        "the repair returned a wrong report: {healed:?}"
    );
    let after = rig.rows(BY_BINLOG).await?;
    for (table, rows) in &before {
        ensure!(
            after.get(table) == Some(rows),
            "{table} had the rows {rows:#?} before the changes, but has {:#?} after the undo",
            after.get(table)
        );
    }
    ensure!(
        is_same(&rig.gtids().await?, &logged),
        "the server has the GTIDs {} instead of {logged}",
        rig.gtids().await?
    );
    // The undone transactions must be saved as a binlog file.
    ensure!(
        std::fs::read(&options.tail_file)?.starts_with(b"\xfebin"),
        "the file of undone transactions is not a binlog file"
    );
    // A second repair must find nothing to do.
    let again = repair(&options, &rig.log_dir()?).await?;
    ensure!(
        again.undone.is_empty() && again.transactions_again == 0 && !again.resumed,
        "the second repair returned a wrong report: {again:?}"
    );
    Ok(())
}

/// Returns the tables of all families.
fn tables(flavour: Flavour, families: &[Family]) -> impl Iterator<Item = (&Family, &'static str)> {
    families.iter().flat_map(move |family| variants(flavour).iter().map(move |variant| (family, *variant)))
}

/// Changes rows of every type, first in transactions that are not compressed, then in compressed ones.
async fn change_rows(source: &mut Connection, families: &[Family]) -> Result<()> {
    let flavour = source.server().flavour;
    for (round, compressed) in [(2, "OFF"), (3, "ON")] {
        match flavour {
            Flavour::MySql => {
                source.execute(&format!("SET SESSION binlog_transaction_compression = {compressed}")).await?
            }
            Flavour::MariaDb => {
                source.execute(&format!("SET GLOBAL log_bin_compress = {compressed}")).await?
            }
        };
        for (family, variant) in tables(flavour, families) {
            let table = format!("{BY_BINLOG}.{}_{variant}", family.name);
            change(source, &table, family, round).await?;
            let names = family.written();
            for (row, name) in names.iter().enumerate() {
                let values = family.values(row);
                let sql = format!("UPDATE {table} SET {name} = {} WHERE id % 3 = {}", values[row], row % 3);
                source.execute(&sql).await.with_context(|| sql.clone())?;
            }
            source.execute(&format!("DELETE FROM {table} WHERE id % 4 = {round}")).await?;
        }
    }
    Ok(())
}

/// Tables with unique keys, so that writing one row can replace another.
const SHOP: &str = "CREATE DATABASE shop; \
    CREATE TABLE shop.a (id INT PRIMARY KEY, u INT UNIQUE, t VARCHAR(20)); \
    CREATE TABLE shop.b (id INT PRIMARY KEY, v INT, w INT AS (v * 2) STORED); \
    CREATE TABLE shop.c (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES shop.a (id)); \
    CREATE TRIGGER shop.b_ins AFTER INSERT ON shop.b FOR EACH ROW \
      INSERT INTO shop.a VALUES (NEW.id + 1000, NULL, 'by trigger')";

async fn lost_transactions_are_redone(kind: ServerKind) -> Result<()> {
    let options = ["--binlog-format=ROW"];
    let Some(mut rig) = Rig::start(kind, &options, &options).await? else { return Ok(()) };
    rig.source.sql(SHOP).await?;
    rig.source
        .sql("INSERT INTO shop.a VALUES (1, 1, 'x'), (2, 2, 'y'), (3, 3, 'z'); INSERT INTO shop.b (id, v) VALUES (1, 1)")
        .await?;
    let early = rig.source_gtids().await?;
    let kept = rig.rows("shop").await?;
    // Unique values move from one row to another.
    rig.source
        .sql(
            "UPDATE shop.a SET u = NULL WHERE id = 1; UPDATE shop.a SET u = 1 WHERE id = 2; \
             INSERT INTO shop.c VALUES (1, 2); UPDATE shop.a SET id = 4 WHERE id = 3; DELETE FROM shop.b WHERE id = 1; \
             INSERT INTO shop.b (id, v) VALUES (2, 5), (3, 6)",
        )
        .await?;
    let logged = rig.capture_all().await?;
    let wanted = rig.rows("shop").await?;

    // Delete the rows without logging. The tables then lack transactions that the binlog has, as after a
    // crash.
    let lose = "SET sql_log_bin=0; SET foreign_key_checks=0; DELETE FROM shop.c; DELETE FROM shop.a; DELETE FROM shop.b; \
                DROP TRIGGER shop.b_ins; \
                INSERT INTO shop.a VALUES (1, 1, 'x'), (2, 2, 'y'), (3, 3, 'z'), (1001, NULL, 'by trigger'); \
                INSERT INTO shop.b (id, v) VALUES (1, 1); \
                CREATE TRIGGER shop.b_ins AFTER INSERT ON shop.b FOR EACH ROW \
                  INSERT INTO shop.a VALUES (NEW.id + 1000, NULL, 'by trigger')";
    rig.source.sql(lose).await?;
    ensure!(rig.rows("shop").await? == kept, "{:?}", rig.rows("shop").await?);
    let options = rig.rejoin_options(Duration::from_secs(3600));
    let healed = repair(&options, &rig.log_dir()?).await?;
    ensure!(
        healed.transactions_again >= 6 && healed.transactions_lost == 0,
        "the repair returned a wrong report: {healed:?}"
    );
    ensure!(rig.rows("shop").await? == wanted, "{:?}", rig.rows("shop").await?);
    ensure!(is_same(&rig.source_gtids().await?.union(&rig.gtids().await?)?, &logged));

    // Now the binlog lacks the transactions too.
    let forget = match kind.flavour() {
        Flavour::MySql => format!("RESET BINARY LOGS AND GTIDS; SET GLOBAL gtid_purged='{early}'"),
        Flavour::MariaDb => format!(
            "RESET MASTER; SET GLOBAL gtid_binlog_state='{early}'; SET GLOBAL gtid_slave_pos='{early}'"
        ),
    };
    rig.source.sql(&format!("{lose}; {forget}")).await?;
    let found = inspect(&options, &rig.log_dir()?).await?;
    ensure!(found.redo.lost == 6, "the plan has the wrong number of lost transactions: {:?}", found.redo);
    // Transactions that the binlog lacks must be reapplied even if the options say that the tables match the
    // binlog.
    let certain = rig.rejoin_options(Duration::ZERO);
    let healed = repair(&certain, &rig.log_dir()?).await?;
    ensure!(
        healed.transactions_again == 6 && healed.transactions_lost == 6,
        "the repair returned a wrong report: {healed:?}"
    );
    ensure!(rig.rows("shop").await? == wanted, "{:?}", rig.rows("shop").await?);
    ensure!(
        is_same(&rig.gtids().await?, &logged),
        "the server has the GTIDs {} instead of {logged}",
        rig.gtids().await?
    );
    Ok(())
}

async fn a_rejoin_that_was_interrupted_undoes_nothing_twice(kind: ServerKind) -> Result<()> {
    let options = ["--binlog-format=ROW"];
    let Some(mut rig) = Rig::start(kind, &options, &options).await? else { return Ok(()) };
    rig.source.sql(SHOP).await?;
    rig.source.sql("INSERT INTO shop.a VALUES (1, 1, 'x'); INSERT INTO shop.c VALUES (1, 1)").await?;
    let logged = rig.capture_all().await?;
    let wanted = rig.rows("shop").await?;
    rig.source.sql("INSERT INTO shop.b (id, v) VALUES (7, 7)").await?;

    // The step after the undo fails, because a table is missing.
    rig.source.sql("SET sql_log_bin=0; RENAME TABLE shop.c TO shop.away").await?;
    let options = rig.rejoin_options(Duration::from_secs(3600));
    let failed =
        repair(&options, &rig.log_dir()?).await.expect_err("a repair must fail if a table is missing");
    ensure!(
        matches!(failed, RejoinError::Apply(ApplyError::MissingTable { .. })),
        "the repair failed with the wrong error: {failed}"
    );
    ensure!(
        rig.source.sql("SELECT COUNT(*) FROM shop.b").await? == ["0"],
        "the failed repair did not undo the transaction"
    );
    let mode = "SELECT @@GLOBAL.slave_exec_mode";
    if kind.flavour() == Flavour::MariaDb {
        ensure!(
            rig.source.sql(mode).await? == ["STRICT"],
            "the global variable `slave_exec_mode` is not restored"
        );
    }
    // A second undo of the transactions would delete this row.
    rig.source
        .sql("SET sql_log_bin=0; RENAME TABLE shop.away TO shop.c; SET GLOBAL read_only=0; INSERT INTO shop.b (id, v) VALUES (7, 8)")
        .await?;
    let healed = repair(&options, &rig.log_dir()?).await?;
    ensure!(
        healed.resumed && healed.undone.is_empty() && healed.transactions_again == 2,
        "the repair returned a wrong report: {healed:?}"
    );
    ensure!(
        rig.source.sql("SELECT v FROM shop.b WHERE id = 7").await? == ["8"],
        "the transaction was undone a second time"
    );
    rig.source.sql("SET sql_log_bin=0; DELETE FROM shop.b; DELETE FROM shop.a WHERE id > 1000").await?;
    ensure!(rig.rows("shop").await? == wanted);
    ensure!(
        is_same(&rig.gtids().await?, &logged),
        "the server has the GTIDs {} instead of {logged}",
        rig.gtids().await?
    );

    // The stored state says that the rejoin was interrupted after the undo. Then another client writes to the
    // server.
    let note = "UPDATE tailwater.rejoin SET step = 'undone'";
    rig.source
        .sql(&format!(
            "SET sql_log_bin=0; {note}; SET sql_log_bin=1; INSERT INTO shop.b (id, v) VALUES (9, 9); \
             INSERT INTO shop.b (id, v) VALUES (10, 9)"
        ))
        .await?;
    let refused = repair(&options, &rig.log_dir()?)
        .await
        .expect_err("a rejoin must be refused after a client has written");
    ensure!(
        refused.code() == "TW-APP-0041"
            && refused.to_string().contains("a client has written to the server since"),
        "the rejoin was refused with the wrong error: {refused}"
    );
    Ok(())
}

async fn irreversible_transactions_are_named_and_nothing_is_changed(kind: ServerKind) -> Result<()> {
    let options = ["--binlog-format=ROW"];
    let Some(mut rig) = Rig::start(kind, &options, &options).await? else { return Ok(()) };
    rig.source
        .sql(
            "CREATE DATABASE shop; CREATE TABLE shop.p (id INT PRIMARY KEY); CREATE TABLE shop.k (v INT); \
             CREATE TABLE shop.c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES shop.p (id) ON DELETE CASCADE); \
             INSERT INTO shop.p VALUES (1), (2); INSERT INTO shop.c VALUES (1, 1)",
        )
        .await?;
    rig.capture_all().await?;
    let state = match kind.flavour() {
        Flavour::MySql => "SELECT @@GLOBAL.gtid_executed",
        Flavour::MariaDb => "SELECT @@GLOBAL.gtid_binlog_state",
    };
    let start = rig.source.sql(state).await?.concat();
    let mut options = rig.rejoin_options(Duration::ZERO);
    let mut cases = vec![
        ("CREATE TABLE shop.new (id INT)", "CREATE TABLE shop.new"),
        ("SET SESSION binlog_row_image=MINIMAL; DELETE FROM shop.c", "without column p"),
        ("INSERT INTO shop.k VALUES (1)", "shop.k has no primary key"),
    ];
    if kind.flavour() == Flavour::MariaDb {
        cases.push(("DELETE FROM shop.p WHERE id = 1", "foreign keys cascade"));
    }
    for (statement, expected) in cases {
        rig.source.sql(statement).await?;
        options.window = expected.contains("no primary key").then_some(Duration::from_secs(1));
        options.window.get_or_insert(Duration::ZERO);
        let rows = rig.rows("shop").await?;
        let refused = repair(&options, &rig.log_dir()?).await.expect_err(statement);
        ensure!(
            refused.code() == "TW-APP-0040" && refused.to_string().contains(expected),
            "the rejoin was refused with the wrong error: {refused}"
        );
        ensure!(
            refused.to_string().contains("--copy"),
            "the rejoin was refused with the wrong error: {refused}"
        );
        ensure!(rig.rows("shop").await? == rows, "the refused repair changed rows");
        // Restore the settings from before the refused rejoin.
        rig.source.sql("SET GLOBAL read_only=0").await?;
        let forget = match kind.flavour() {
            Flavour::MySql => format!("RESET BINARY LOGS AND GTIDS; SET GLOBAL gtid_purged='{start}'"),
            Flavour::MariaDb => format!("RESET MASTER; SET GLOBAL gtid_binlog_state='{start}'"),
        };
        rig.source.sql(&forget).await?;
    }
    let itself = RejoinOptions { primary: rig.source.socket_options(), ..options };
    let refused =
        inspect(&itself, &rig.log_dir()?).await.expect_err("a rejoin of the current primary must be refused");
    ensure!(
        refused.to_string().contains("the current primary"),
        "the rejoin was refused with the wrong error: {refused}"
    );
    Ok(())
}
