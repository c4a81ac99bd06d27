//! Copies databases between real servers.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tailwater_dump::load::{DeferIndexes, LoadOptions, load, tailwater_folder};
use tailwater_dump::server_copy::{CopyOptions, CopyReport, copy, dry_run};
use tailwater_sandbox::{Server, ServerKind, require};
use tailwater_session::Connection;
use tailwater_tables::BulkError;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::schema::{Selection, TableName};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::server_contents::{all, ensure_equal, started};
use crate::source_of_every_column_type::source;
use crate::{stock_client, test_dump_folders};

on_each_server!(
    everything_is_copied,
    an_interrupted_copy_keeps_finished_tables,
    a_restarted_copy_is_of_one_point_in_time,
    duplicate_rows_end_a_load,
);

fn options(source: &Server, target: &Server) -> CopyOptions {
    let load = LoadOptions {
        workers: 3,
        defer_indexes: DeferIndexes::Always,
        ..LoadOptions::new(target.connect_options())
    };
    CopyOptions::new(source.connect_options(), Selection::default(), load).chunk_bytes_max(2_000)
}

async fn run(options: &CopyOptions) -> Result<CopyReport, BulkError> {
    copy(options, &Arc::default(), &CancellationToken::new()).await
}

async fn everything_is_copied(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = source(kind).await?;
    let before = all(&source).await?;
    for inserts in [false, true] {
        let target = started(kind).await?;
        let mut options = options(&source, &target);
        options.load.inserts = inserts;
        ensure!(dry_run(&options).await?.there.is_empty());
        let report = run(&options).await?;
        ensure!(
            report.tables_before == 0 && report.load.rows > 0,
            "the copy found earlier tables, or copied no rows: {report:?}"
        );
        ensure_equal(&before, &all(&target).await?)?;
        // A second copy is refused, because the tables exist.
        ensure!(!dry_run(&options).await?.there.is_empty());
        let again = run(&options).await;
        ensure!(
            again.as_ref().is_err_and(|error| error.code() == "TW-BULK-0022"),
            "the second copy was not refused because of existing tables: {again:?}"
        );
        let waiting = target.sql("SELECT COUNT(*) FROM tailwater.load_indexes").await?;
        ensure!(waiting == ["0"], "the target still has a record of deferred indexes: {waiting:?}");
    }
    Ok(())
}

/// Starts a server with several tables and indexes, large enough to interrupt a copy.
async fn shop(kind: ServerKind) -> Result<Server> {
    let server = started(kind).await?;
    let script = "
        CREATE DATABASE shop; USE shop;
        CREATE TABLE digits (d INT PRIMARY KEY, KEY again (d));
        INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
        CREATE TABLE orders (id INT PRIMARY KEY, n INT, note VARCHAR(200), UNIQUE KEY u (n), KEY k (note));
        INSERT INTO orders SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d, -a.d - 10 * b.d - 100 * c.d - 1000 * e.d,
            REPEAT(CHAR(65 + a.d), 100) FROM digits a, digits b, digits c, digits e;
        CREATE TABLE small (id INT PRIMARY KEY, KEY again (id));
        INSERT INTO small SELECT d FROM digits;
        CREATE TABLE narrow (id INT PRIMARY KEY, KEY again (id));
        INSERT INTO narrow SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d
            FROM digits a, digits b, digits c, digits e, digits f WHERE f.d < 4;
        CREATE VIEW counted AS SELECT COUNT(*) AS n FROM orders;
    ";
    stock_client::run_script(&server, script.as_bytes())?;
    Ok(server)
}

/// Copies until all rows of one table and some rows of another table are copied, and cancels the copy.
async fn interrupted(options: &CopyOptions) -> Result<()> {
    let (progress, stop) = (Arc::new(BulkProgress::default()), CancellationToken::new());
    let watch = {
        let (progress, stop) = (Arc::clone(&progress), stop.clone());
        tokio::spawn(async move {
            while progress.figures().tables == 0 || progress.figures().chunks < 20 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            stop.cancel();
        })
    };
    let outcome = copy(options, &progress, &stop).await;
    watch.abort();
    // A copy that sets the target's GTID state cannot be resumed.
    let code = if options.load.set_gtid { "TW-BULK-0086" } else { "TW-BULK-0011" };
    ensure!(
        outcome.as_ref().is_err_and(|error| error.code() == code),
        "the copy did not end with {code}: {outcome:?}"
    );
    Ok(())
}

async fn an_interrupted_copy_keeps_finished_tables(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) = (shop(kind).await?, started(kind).await?);
    let mut options = options(&source, &target);
    interrupted(&options).await?;
    let again = run(&options).await;
    ensure!(
        again.as_ref().is_err_and(|error| error.code() == "TW-BULK-0023"),
        "a new copy without `resume` was not refused: {again:?}"
    );
    // The tables that the interrupted copy finished have an earlier point in time. So a resumed copy with
    // `set_gtid` is refused.
    options.load.resume = true;
    options.load.set_gtid = true;
    let refused = run(&options).await;
    ensure!(
        refused.as_ref().is_err_and(|error| error.code() == "TW-BULK-0031"),
        "the resumed copy with `set_gtid` was not refused: {refused:?}"
    );
    options.load.set_gtid = false;
    let finished =
        "SELECT table_name FROM tailwater.load_chunks WHERE chunk = 4294967295 AND schema_name = 'shop'";
    let finished = target.sql(finished).await?;
    target.sql("SET GLOBAL log_output = 'TABLE', general_log = 1").await?;
    let report = run(&options).await?;
    ensure!(
        (1..4).contains(&report.tables_before),
        "the resumed copy did not keep the finished tables: {report:?}"
    );
    ensure!(
        finished.len() as u64 == report.tables_before,
        "the number of finished tables is wrong: {finished:?}"
    );
    let dropped = "SELECT argument FROM mysql.general_log WHERE argument LIKE 'ALTER TABLE%DROP KEY%'";
    let dropped = target.sql(dropped).await?;
    // The resumed copy drops indexes only of tables that it copies from scratch.
    let is_finished = |sql: &String| finished.iter().any(|table| sql.contains(&format!("`{table}`")));
    ensure!(
        !dropped.is_empty() && !dropped.iter().any(is_finished),
        "the resumed copy has dropped indexes of finished tables: {finished:?}: {dropped:?}"
    );
    ensure_equal(&all(&source).await?, &all(&target).await?)?;
    // A later copy with `set_gtid` is refused, because the rows of the finished copy are older than its
    // snapshot.
    source.sql("INSERT INTO shop.digits VALUES (10)").await?;
    options.load.set_gtid = true;
    let refused = run(&options).await;
    ensure!(
        refused.as_ref().is_err_and(|error| error.code() == "TW-BULK-0031"),
        "the later copy with `set_gtid` was not refused: {refused:?}"
    );
    Ok(())
}

async fn a_restarted_copy_is_of_one_point_in_time(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) = (shop(kind).await?, started(kind).await?);
    let objects = |n: u32| {
        let sequence = match kind.flavour() {
            Flavour::MySql => String::new(),
            Flavour::MariaDb => format!("CREATE SEQUENCE shop.s INCREMENT BY {n};"),
        };
        format!(
            "CREATE OR REPLACE VIEW shop.counted AS SELECT {n} AS n; {sequence} \
             CREATE FUNCTION shop.f() RETURNS INT DETERMINISTIC RETURN {n}; CREATE PROCEDURE shop.p() DO {n}; \
             CREATE EVENT shop.e ON SCHEDULE EVERY {n} YEAR DO DO {n};"
        )
    };
    let passing = "CREATE TABLE shop.passing (id INT); INSERT INTO shop.passing VALUES (1);";
    source.sql(&format!("{passing} {}", objects(3))).await?;
    let mut options = options(&source, &target);
    // A copy for a channel uses these load options.
    (options.load.set_gtid, options.load.binlog) = (true, false);
    interrupted(&options).await?;
    let mut connection = Connection::connect(&source.connect_options()).await?;
    connection.execute("DELETE FROM shop.small WHERE id > 3").await?;
    let suggests_restart = |done: &Result<CopyReport, BulkError>, code: &str| {
        let is_expected = |text: &str| text.contains("--restart") && !text.contains("--resume");
        done.as_ref().is_err_and(|error| error.code() == code && is_expected(&error.to_string()))
    };
    let again = run(&options).await;
    ensure!(suggests_restart(&again, "TW-BULK-0023"), "the error does not suggest --restart: {again:?}");
    options.restart = true;
    // The target rejects a view. So the copy fails after it has loaded all rows.
    let broken = "CREATE TABLE shop.gone (id INT); CREATE VIEW shop.of_gone AS SELECT id FROM shop.gone; DROP TABLE shop.gone";
    source.sql(broken).await?;
    let refused = run(&options).await;
    ensure!(suggests_restart(&refused, "TW-BULK-0027"), "the error does not suggest --restart: {refused:?}");
    // The failed copy has loaded all rows. They are older than the GTID state that a resumed copy would set,
    // so the resumed copy is refused.
    let mut resumed = options.clone();
    (resumed.load.resume, resumed.restart) = (true, false);
    let refused = run(&resumed).await;
    ensure!(
        refused.as_ref().is_err_and(|error| error.code() == "TW-BULK-0031"),
        "the copy was not refused because of older rows: {refused:?}"
    );
    // All other objects must be copied as they are now on the source.
    let sequence = if kind.flavour() == Flavour::MariaDb { "DROP SEQUENCE shop.s;" } else { "" };
    let dropped = "DROP VIEW shop.of_gone; DROP TABLE shop.passing; DROP FUNCTION shop.f; DROP PROCEDURE shop.p; DROP EVENT shop.e;";
    source.sql(&format!("{dropped} {sequence} {}", objects(4))).await?;
    let report = run(&options).await?;
    ensure!(report.tables_before == 0, "the restarted copy has kept tables: {report:?}");
    ensure_equal(&all(&source).await?, &all(&target).await?)?;
    // This copy has finished, so a restart must not drop its tables.
    let again = run(&options).await;
    ensure!(
        again.as_ref().is_err_and(|error| error.code() == "TW-BULK-0022"),
        "the copy with `restart` was not refused because of existing tables: {again:?}"
    );
    Ok(())
}

async fn duplicate_rows_end_a_load(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) = (shop(kind).await?, started(kind).await?);
    let folder =
        test_dump_folders::write(&source, tailwater_dump::dump_folder::DumpCompression::None, 500).await?;
    let file = folder.path().join("shop.orders.table.sql");
    let definition = std::fs::read_to_string(&file)?;
    ensure!(definition.contains("  KEY `k`"), "the dumped definition has no index `k`: {definition}");
    std::fs::write(&file, definition.replace("  KEY `k`", "  UNIQUE KEY `k`"))?;
    let contents = tailwater_folder::read(folder.path(), false)?;
    let mut options =
        LoadOptions { defer_indexes: DeferIndexes::Always, ..LoadOptions::new(target.connect_options()) };
    let refused = load(&contents, &options, &Arc::default(), &CancellationToken::new()).await;
    ensure!(
        refused.as_ref().is_err_and(|error| error.code() == "TW-BULK-0060"),
        "the duplicate rows were not reported: {refused:?}"
    );
    // After the duplicate rows are deleted, the load resumes and only creates the indexes.
    target.sql("DELETE FROM shop.orders WHERE id >= 10").await?;
    options.resume = true;
    let report = load(&contents, &options, &Arc::default(), &CancellationToken::new()).await?;
    ensure!(report.chunks_before > 0, "the resumed load has loaded the rows again: {report:?}");
    let mut connection = Connection::connect(&target.connect_options()).await?;
    let shown = connection.query("SHOW CREATE TABLE shop.orders").await?;
    let table = shown.first().and_then(|row| row.get_str(1)).context("SHOW CREATE TABLE returned no row")?;
    let name = TableName::new("shop", "orders");
    ensure!(
        table.contains("UNIQUE KEY `u`") && table.contains("UNIQUE KEY `k`"),
        "{name} does not have both unique indexes: {table}"
    );
    Ok(())
}
