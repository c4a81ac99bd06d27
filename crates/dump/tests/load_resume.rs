//! Resumes loads whose target has changed since they were interrupted.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tailwater_dump::dump_folder::DumpCompression;
use tailwater_dump::load::{DeferIndexes, LoadOptions, LoadReport, load, tailwater_folder};
use tailwater_dump::server_copy::{CopyOptions, copy};
use tailwater_dump::{DumpOptions, dump};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::Connection;
use tailwater_tables::BulkError;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::schema::Selection;
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::server_contents::{all, ensure_equal, started};
use crate::stock_client::run_script;
use crate::test_dump_folders;

on_each_server!(
    existing_tables_keep_their_rows_and_indexes,
    dropped_tables_do_not_count_as_loaded,
    time_limits_do_not_end_a_long_load,
    index_creation_has_no_time_limit,
    rows_stored_in_other_tables_are_not_changed,
);

async fn load_into(folder: &Path, options: &LoadOptions) -> Result<LoadReport, BulkError> {
    let contents = tailwater_folder::read(folder, false)?;
    load(&contents, options, &Arc::default(), &CancellationToken::new()).await
}

fn failed(done: &Result<LoadReport, BulkError>, code: &str) -> Result<()> {
    ensure!(
        done.as_ref().is_err_and(|error| error.code() == code),
        "the load did not fail with {code}: {done:?}"
    );
    Ok(())
}

/// Returns the number of statements that the server has received and that match a pattern.
async fn statements_like(server: &Server, like: &str) -> Result<String> {
    let sql = format!("SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE '{like}'");
    Ok(server.sql(&sql).await?.concat())
}

async fn note_statements(server: &Server) -> Result<()> {
    server.sql("SET GLOBAL log_output = 'TABLE', general_log = 1; TRUNCATE TABLE mysql.general_log").await?;
    Ok(())
}

/// A load into existing tables records that the tables existed before it. When the load is resumed, it does
/// not delete their existing rows or drop their existing indexes.
async fn existing_tables_keep_their_rows_and_indexes(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) = (started(kind).await?, started(kind).await?);
    let tables = "CREATE DATABASE shop; USE shop; \
                  CREATE TABLE keyed (id INT PRIMARY KEY, t VARCHAR(20), KEY k (t)); \
                  CREATE TABLE plain (id INT PRIMARY KEY, t VARCHAR(20)) ENGINE=MyISAM;";
    let rows: Vec<_> = (0..30).map(|id| format!("({id}, 'new')")).collect();
    let rows = rows.join(",");
    source
        .sql(&format!(
            "{tables} CREATE TABLE zz (id INT); INSERT INTO keyed VALUES {rows}; INSERT INTO plain VALUES {rows}"
        ))
        .await?;
    target
        .sql(&format!(
            "{tables} INSERT INTO keyed VALUES (15, 'own'), (1000, 'own'); INSERT INTO plain VALUES (25, 'own'), (1000, 'own')"
        ))
        .await?;
    let folder = test_dump_folders::write(&source, DumpCompression::None, 10).await?;
    let folder = folder.path();
    let merged = LoadOptions {
        merge: true,
        workers: 1,
        defer_indexes: DeferIndexes::Always,
        ..LoadOptions::new(target.connect_options())
    };
    let resumed = LoadOptions { merge: false, resume: true, ..merged.clone() };

    // The first load fails while it creates tables, before it loads rows.
    let file = folder.join("shop.zz.table.sql");
    let definition = std::fs::read_to_string(&file)?;
    std::fs::write(&file, definition.replace("int", "nothing"))?;
    failed(&load_into(folder, &merged).await, "TW-BULK-0027")?;
    std::fs::write(&file, definition)?;
    note_statements(&target).await?;
    // The second load fails at a row with a duplicate key, after it has loaded some rows of both tables.
    failed(&load_into(folder, &resumed).await, "TW-BULK-0029")?;
    ensure!(
        statements_like(&target, "ALTER TABLE%DROP KEY%").await? == "0",
        "the load has dropped indexes of a table that had rows"
    );
    target.sql("DELETE FROM shop.keyed WHERE t = 'own' AND id < 1000").await?;
    // The third load fails at a duplicate key in the table without transactions. Some rows of that data file
    // are loaded, and cannot be distinguished from the older rows of the table.
    failed(&load_into(folder, &resumed).await, "TW-BULK-0029")?;
    target.sql("DELETE FROM shop.plain WHERE t = 'own' AND id < 1000").await?;
    let refused = load_into(folder, &resumed).await;
    failed(&refused, "TW-BULK-0035")?;
    let Err(BulkError::PartialLoad { table, path, forget }) = refused else {
        anyhow::bail!("the load was not refused: {refused:?}");
    };
    ensure!(table == "shop.plain", "the refusal names another table: {table}");
    let rows = std::fs::read_to_string(&path)?;
    let ids: Vec<_> = rows.lines().filter_map(|row| row.split('\t').next()).collect();
    target.sql(&format!("DELETE FROM shop.plain WHERE id IN ({}); {forget}", ids.join(","))).await?;
    load_into(folder, &resumed).await?;
    for table in ["keyed", "plain"] {
        let rows = format!("SELECT t, COUNT(*) FROM shop.{table} GROUP BY t ORDER BY t");
        ensure!(
            target.sql(&rows).await? == ["new\t30", "own\t1"],
            "the rows of the table {table} are wrong: {:?}",
            target.sql(&rows).await?
        );
    }
    ensure!(statements_like(&target, "TRUNCATE TABLE `shop`%").await? == "0");

    // Simulates the tables of an earlier version, which did not record whether tables existed before the
    // load.
    target.sql("ALTER TABLE tailwater.loads DROP COLUMN merged; DROP DATABASE shop").await?;
    load_into(folder, &LoadOptions::new(target.connect_options())).await?;
    ensure_equal(&all(&source).await?, &all(&target).await?)?;
    let noted = target.sql("SELECT merged FROM tailwater.loads").await?;
    ensure!(noted == ["0"], "expected merged = 0 for tables that the load created, found {noted:?}");
    target.sql("ALTER TABLE tailwater.loads DROP COLUMN merged").await?;
    let again =
        load_into(folder, &resumed).await.context("the load of an earlier version could not be resumed")?;
    ensure!(again.chunks_loaded == 0, "the finished load has loaded files again: {again:?}");
    Ok(())
}

async fn dropped_tables_do_not_count_as_loaded(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) = (started(kind).await?, started(kind).await?);
    let script = "CREATE DATABASE shop; CREATE TABLE shop.a (id INT); INSERT INTO shop.a VALUES (1), (2); \
                  CREATE TABLE shop.b (id INT); INSERT INTO shop.b VALUES (3)";
    source.sql(script).await?;
    let folder = test_dump_folders::write(&source, DumpCompression::None, 10).await?;
    let options = LoadOptions::new(target.connect_options());
    let resumed = LoadOptions { resume: true, ..options.clone() };
    load_into(folder.path(), &options).await?;
    target.sql("DROP TABLE shop.b").await?;
    let done = load_into(folder.path(), &resumed).await;
    failed(&done, "TW-BULK-0034")?;
    ensure!(done.is_err_and(|error| error.to_string().contains("shop.b")));
    target.sql("DROP DATABASE shop").await?;
    let report = load_into(folder.path(), &resumed).await?;
    ensure!(
        report.chunks_before == 0 && report.chunks_loaded == 2,
        "the resumed load has not loaded all files from scratch: {report:?}"
    );
    ensure_equal(&all(&source).await?, &all(&target).await?)?;

    // The test repeats this with a copy: a resumed copy must not count dropped tables as loaded.
    target.sql("DROP DATABASE shop").await?;
    let options = |resume| {
        let load = LoadOptions { resume, ..LoadOptions::new(target.connect_options()) };
        CopyOptions::new(source.connect_options(), Selection::default(), load)
    };
    let run = async |resume| copy(&options(resume), &Arc::default(), &CancellationToken::new()).await;
    run(false).await?;
    target.sql("DROP TABLE shop.b").await?;
    let done = run(true).await;
    ensure!(
        done.as_ref().is_err_and(|error| error.code() == "TW-BULK-0034"),
        "the copy was not refused because of dropped tables: {done:?}"
    );
    target.sql("DROP DATABASE shop").await?;
    run(true).await?;
    ensure_equal(&all(&source).await?, &all(&target).await?)
}

/// The load overrides the server's time limits for statements and idle sessions.
async fn time_limits_do_not_end_a_long_load(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let limits: &[&str] = match kind.flavour() {
        Flavour::MySql => &["--max-execution-time=600000"],
        Flavour::MariaDb => &[
            "--max-statement-time=600",
            "--idle-transaction-timeout=600",
            "--idle-write-transaction-timeout=600",
        ],
    };
    let sum = match kind.flavour() {
        Flavour::MySql => "@@SESSION.max_execution_time",
        Flavour::MariaDb => {
            "@@SESSION.max_statement_time + @@SESSION.idle_transaction_timeout + @@SESSION.idle_write_transaction_timeout"
        }
    };
    let source = started(kind).await?;
    let table = "CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, idle BIGINT, others DOUBLE);";
    source.sql(&format!("{table} INSERT INTO shop.t VALUES (1, 0, 0), (2, 0, 0)")).await?;
    let folder = test_dump_folders::write(&source, DumpCompression::None, 10).await?;
    let target =
        Server::start(ServerSpec::new(kind).option("--local-infile=1").options(limits.iter().copied()))
            .await?;
    let trigger = format!(
        "CREATE TRIGGER shop.seen BEFORE INSERT ON shop.t FOR EACH ROW SET NEW.idle = @@SESSION.wait_timeout, \
         NEW.others = {sum}"
    );
    target.sql(&format!("{table} {trigger}")).await?;
    load_into(folder.path(), &LoadOptions { merge: true, ..LoadOptions::new(target.connect_options()) })
        .await?;
    let seen = target.sql("SELECT DISTINCT idle, others FROM shop.t").await?;
    ensure!(seen == ["2147483\t0"], "the session does not have the time limits of a load: {seen:?}");
    Ok(())
}

/// Another session locks the table, so the creation of an index takes longer than the time limit for a
/// statement. The load must wait.
async fn index_creation_has_no_time_limit(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    const ANSWER_SECONDS: u64 = 3;
    let (source, target) = (started(kind).await?, started(kind).await?);
    let rows: Vec<_> = (0..5000).map(|id| format!("({id}, {id})")).collect();
    let script = format!(
        "CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, n INT, KEY k (n)); \
         INSERT INTO shop.t VALUES {}",
        rows.join(",")
    );
    run_script(&source, script.as_bytes())?;
    let folder = test_dump_folders::write(&source, DumpCompression::None, 50).await?;
    let contents = tailwater_folder::read(folder.path(), false)?;
    let options = LoadOptions {
        workers: 1,
        defer_indexes: DeferIndexes::Always,
        answer_max: std::time::Duration::from_secs(ANSWER_SECONDS),
        ..LoadOptions::new(target.connect_options())
    };
    let progress = Arc::new(BulkProgress::default());
    let loading = {
        let progress = Arc::clone(&progress);
        tokio::spawn(async move { load(&contents, &options, &progress, &CancellationToken::new()).await })
    };
    let mut reader = Connection::connect(&target.connect_options()).await?;
    while progress.figures().chunks == 0 {
        ensure!(!loading.is_finished(), "the load ended before the index was created: {:?}", loading.await);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    reader.execute("START TRANSACTION").await?;
    reader.query("SELECT COUNT(*) FROM shop.t").await?;
    let waits = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'ALTER TABLE%ADD KEY%' AND time > {}",
        2 * ANSWER_SECONDS
    );
    let mut other = Connection::connect(&target.connect_options()).await?;
    while other.query(&waits).await?.scalar() != Some("1") {
        ensure!(!loading.is_finished(), "the load ended before the index was created: {:?}", loading.await);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    reader.execute("COMMIT").await?;
    loading.await??;
    ensure_equal(&all(&source).await?, &all(&target).await?)
}

/// Loads into a MERGE table, whose rows are stored in other tables. If the load emptied or filled the table,
/// it would change the other tables.
async fn rows_stored_in_other_tables_are_not_changed(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) = (started(kind).await?, started(kind).await?);
    let parts = "CREATE DATABASE parts; CREATE TABLE parts.a (id INT) ENGINE=MyISAM; INSERT INTO parts.a VALUES (1), (2); \
                 CREATE TABLE parts.b (id INT) ENGINE=MyISAM; INSERT INTO parts.b VALUES (3);";
    let whole = "ENGINE=MERGE UNION=(parts.a, parts.b) INSERT_METHOD=LAST";
    let other = "CREATE TABLE shop.u (id INT); INSERT INTO shop.u VALUES (4);";
    source
        .sql(&format!(
            "{parts} CREATE DATABASE shop; {other} CREATE TABLE shop.t (id INT); INSERT INTO shop.t VALUES (1), (2), (3)"
        ))
        .await?;
    target.sql(parts).await?;
    // The dump has rows that were read through a MERGE table.
    let folder = tempfile::tempdir()?;
    let selection = Selection { schemas: vec!["shop".into()], ..Selection::default() };
    let options = DumpOptions {
        selection: selection.clone(),
        ..DumpOptions::new(source.connect_options(), folder.path())
    };
    dump(options, Arc::default(), CancellationToken::new()).await?;
    let file = folder.path().join("shop.t.table.sql");
    let definition = std::fs::read_to_string(&file)?;
    std::fs::write(&file, definition.replace("ENGINE=InnoDB", whole))?;
    load_into(folder.path(), &LoadOptions::new(target.connect_options())).await?;
    let sums = "SELECT COUNT(*) FROM parts.a; SELECT COUNT(*) FROM parts.b; SELECT COUNT(*) FROM shop.t; SELECT id FROM shop.u";
    ensure!(
        target.sql(sums).await? == ["2", "1", "3", "4"],
        "the load has changed the other tables: {:?}",
        target.sql(sums).await?
    );

    // A copy must not write to a MERGE table either.
    target.sql("DROP DATABASE shop").await?;
    source.sql(&format!("DROP TABLE shop.t; CREATE TABLE shop.t (id INT) {whole}")).await?;
    let options =
        CopyOptions::new(source.connect_options(), selection, LoadOptions::new(target.connect_options()));
    copy(&options, &Arc::default(), &CancellationToken::new()).await?;
    ensure!(
        target.sql(sums).await? == ["2", "1", "3", "4"],
        "the copy has changed the other tables: {:?}",
        target.sql(sums).await?
    );
    Ok(())
}
