//! Loads dumps into real servers.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tailwater_dump::dump_folder::DumpCompression;
use tailwater_dump::load::{LoadOptions, LoadReport, load, tailwater_folder};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::{BulkError, data_file_field_conversion};
use tailwater_wire::sql_quote::{qualified_name, quote_identifier};
use tokio_util::sync::CancellationToken;

use crate::server_contents::{all, ensure_equal, started};
use crate::source_of_every_column_type::source;
use crate::stock_client::{client, run_script};
use crate::{manifest_files, test_dump_folders};

on_each_server!(
    everything_is_loaded_unchanged,
    inserts_load_the_same_rows,
    the_stock_client_loads_the_files,
    an_interrupted_load_resumes,
    unsafe_loads_are_refused,
    rows_that_would_change_are_refused,
    a_load_survives_a_restart_of_the_target,
    rows_reach_a_replica_of_the_target,
);

async fn load_into(folder: &Path, options: &LoadOptions) -> Result<LoadReport, BulkError> {
    let contents = tailwater_folder::read(folder, false)?;
    load(&contents, options, &Arc::default(), &CancellationToken::new()).await
}

async fn everything_is_loaded_unchanged(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = source(kind).await?;
    let before = all(&source).await?;
    for (compression, chunk_rows) in
        [(DumpCompression::Zstd, 2), (DumpCompression::Gzip, 20), (DumpCompression::None, 1000)]
    {
        let folder = test_dump_folders::write(&source, compression, chunk_rows).await?;
        let target = started(kind).await?;
        let report = load_into(folder.path(), &LoadOptions::new(target.connect_options())).await?;
        ensure!(
            report.chunks_before == 0 && report.chunks_loaded > 15,
            "the load must load more than 15 files, none of them in an earlier load: {report:?}"
        );
        ensure_equal(&before, &all(&target).await?)?;
    }
    Ok(())
}

async fn inserts_load_the_same_rows(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = source(kind).await?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 3).await?;
    let target = Server::start(ServerSpec::new(kind).option("--local-infile=0")).await?;
    let options = LoadOptions::new(target.connect_options());
    let error = load_into(folder.path(), &options).await.err().context("the load was not refused")?;
    ensure!(
        error.code() == "TW-BULK-0032" && error.to_string().contains("--inserts"),
        "the error does not suggest --inserts: {error}"
    );
    ensure!(all(&target).await?.is_empty(), "the refused load has created tables or other objects");
    load_into(folder.path(), &LoadOptions { inserts: true, ..options }).await?;
    ensure_equal(&all(&source).await?, &all(&target).await?)
}

async fn the_stock_client_loads_the_files(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = source(kind).await?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 1000).await?;
    let target = started(kind).await?;
    let manifest = manifest_files::read_manifest(folder.path())?;
    let read = |file: &str| std::fs::read(folder.path().join(file));
    for schema in &manifest.schemas {
        run_script(&target, &read(&schema.file)?)?;
    }
    for table in &manifest.tables {
        run_script(&target, &read(&table.file)?)?;
        let mut sets = Vec::new();
        let mut list = Vec::new();
        for column in &table.columns {
            match data_file_field_conversion::stored("@field", kind.flavour(), &column.data_type) {
                None => list.push(quote_identifier(&column.name)),
                Some(_) => {
                    let field = format!("@field{}", list.len());
                    let value = data_file_field_conversion::stored(&field, kind.flavour(), &column.data_type)
                        .unwrap_or_default();
                    sets.push(format!("{} = {value}", quote_identifier(&column.name)));
                    list.push(field);
                }
            }
        }
        let set = if sets.is_empty() { String::new() } else { format!("SET {}", sets.join(", ")) };
        for chunk in &table.chunks {
            let rows = zstd::decode_all(&read(&chunk.file)?[..])?;
            let statement = format!(
                "SET NAMES utf8mb4; SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', time_zone = '+00:00', \
                 foreign_key_checks = 0; LOAD DATA LOCAL INFILE '/dev/stdin' INTO TABLE {} CHARACTER SET binary ({}) {set}",
                qualified_name(&table.schema, &table.table),
                list.join(",")
            );
            // The file reaches the client through a pipe, as with `zstd -dc FILE | client`.
            let mut command = client(&target)?;
            command.args(["--local-infile=1", "--execute", &statement]);
            let mut child = command.stdin(std::process::Stdio::piped()).spawn()?;
            let mut stdin = child.stdin.take().context("the client has no standard input")?;
            std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &rows));
            ensure!(child.wait()?.success(), "the stock client has failed to execute: {statement}");
        }
    }
    for object in &manifest.objects {
        run_script(&target, &read(&object.file)?)?;
    }
    ensure_equal(&all(&source).await?, &all(&target).await?)
}

/// Starts a server with larger tables: a table with a key, a table without a key, and a table whose engine
/// has no transactions.
async fn sized_source(kind: ServerKind) -> Result<Server> {
    let server = started(kind).await?;
    let script = "
        CREATE DATABASE sized; USE sized;
        CREATE TABLE digits (d INT PRIMARY KEY);
        INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
        CREATE TABLE keyed (id INT PRIMARY KEY, t VARCHAR(200), KEY (t));
        INSERT INTO keyed SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d, REPEAT(CHAR(65 + a.d), 100)
            FROM digits a, digits b, digits c, digits e;
        CREATE TABLE keyless (a INT, t TEXT);
        INSERT INTO keyless SELECT id DIV 7, t FROM keyed;
        CREATE TABLE plain (a INT, t TEXT) ENGINE=MyISAM;
        INSERT INTO plain SELECT id DIV 7, t FROM keyed WHERE id < 1000;
        CREATE VIEW v AS SELECT COUNT(*) FROM keyed;
    ";
    run_script(&server, script.as_bytes())?;
    Ok(server)
}

async fn an_interrupted_load_resumes(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = sized_source(kind).await?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 97).await?;
    let contents = tailwater_folder::read(folder.path(), false)?;
    let target = started(kind).await?;
    let mut options = LoadOptions { workers: 3, ..LoadOptions::new(target.connect_options()) };
    // The load is interrupted before the first file is loaded, in the middle, and near the end.
    let mut before = 0;
    for stop_at in [0, 1, 20, 60, 100] {
        let progress = Arc::new(BulkProgress::default());
        let stop = CancellationToken::new();
        let watching = {
            let (progress, stop) = (progress.clone(), stop.clone());
            tokio::spawn(async move {
                while progress.figures().chunks < stop_at.max(before) {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                stop.cancel();
            })
        };
        let loaded = load(&contents, &options, &progress, &stop).await;
        watching.abort();
        ensure!(
            loaded.as_ref().is_err_and(|error| error.code() == "TW-BULK-0011"),
            "the load was not interrupted: {loaded:?}"
        );
        before = progress.figures().chunks;
        options.resume = true;
    }
    let fresh = LoadOptions { resume: false, ..options.clone() };
    let error = load_into(folder.path(), &fresh).await.err().context("the load was not refused")?;
    ensure!(
        error.code() == "TW-BULK-0023" && error.to_string().contains("--resume"),
        "the error does not suggest --resume: {error}"
    );

    let report = load_into(folder.path(), &options).await?;
    ensure!(
        report.chunks_before >= 100 && report.chunks_loaded > 0,
        "the resumed load does not continue after the finished files: {report:?}"
    );
    ensure_equal(&all(&source).await?, &all(&target).await?)?;
    // Another load with `resume` finds nothing left to load.
    let report = load_into(folder.path(), &options).await?;
    ensure!(report.chunks_loaded == 0, "a finished load has loaded files again: {report:?}");
    ensure_equal(&all(&source).await?, &all(&target).await?)
}

async fn unsafe_loads_are_refused(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = sized_source(kind).await?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 2000).await?;
    let target = started(kind).await?;
    let options = LoadOptions::new(target.connect_options());
    let refused = async |code: &str| {
        let error = load_into(folder.path(), &options).await.err().context("the load was not refused")?;
        ensure!(error.code() == code, "the load was not refused with {code}: {error}");
        anyhow::Ok(())
    };

    let manifest = manifest_files::read_manifest(folder.path())?;
    let mut changed = manifest.clone();
    (changed.tables[0].finished, changed.finished_at) = (false, None);
    manifest_files::write_manifest(folder.path(), &changed)?;
    refused("TW-BULK-0025").await?;
    let mut changed = manifest.clone();
    changed.snapshots.push(manifest.snapshots[0].clone());
    let table = changed
        .tables
        .iter_mut()
        .find(|table| table.chunks.len() > 1)
        .context("no table has several chunks")?;
    table.chunks[0].written.as_mut().context("the manifest has a chunk that is not written")?.snapshot = 1;
    manifest_files::write_manifest(folder.path(), &changed)?;
    refused("TW-BULK-0026").await?;
    manifest_files::write_manifest(folder.path(), &manifest)?;
    ensure!(all(&target).await?.is_empty(), "the refused load has created tables or other objects");

    // No rows of a damaged file are loaded. After the file is restored, the load resumes.
    let table = manifest
        .tables
        .iter()
        .find(|table| table.table == "keyed")
        .context("the manifest has no table `keyed`")?;
    let file = folder.path().join(&table.chunks[3].file);
    let good = std::fs::read(&file)?;
    let rows = zstd::decode_all(&good[..])?;
    let mut wrong = rows.clone();
    *wrong.last_mut().context("the data file is empty")? = b'x';
    std::fs::write(&file, zstd::encode_all(&wrong[..], 1)?)?;
    refused("TW-BULK-0002").await?;
    std::fs::write(&file, &good[..good.len() / 2])?;
    let resumed = LoadOptions { resume: true, ..options.clone() };
    let error = load_into(folder.path(), &resumed).await.err().context("the load was not refused")?;
    ensure!(error.code() == "TW-BULK-0002", "the damaged file was not reported: {error}");
    std::fs::write(&file, &good)?;
    load_into(folder.path(), &resumed).await?;
    ensure_equal(&all(&source).await?, &all(&target).await?)?;

    // A load into existing tables requires the option `merge`. Such a load stores no row twice.
    refused("TW-BULK-0022").await?;
    let merged = LoadOptions { merge: true, ..options.clone() };
    let error = load_into(folder.path(), &merged).await.err().context("the load was not refused")?;
    ensure!(error.code() == "TW-BULK-0029", "a duplicate row was not reported: {error}");
    let rows = ["keyed", "keyless", "digits", "plain"].map(|table| format!("DELETE FROM sized.{table};"));
    target.sql(&format!("{} DROP DATABASE tailwater", rows.concat())).await?;
    load_into(folder.path(), &merged).await?;
    ensure_equal(&all(&source).await?, &all(&target).await?)
}

async fn rows_that_would_change_are_refused(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = started(kind).await?;
    run_script(
        &source,
        b"CREATE DATABASE cut; CREATE TABLE cut.t (id INT PRIMARY KEY, v VARCHAR(20), d DECIMAL(9,4)); \
        INSERT INTO cut.t VALUES (1, 'a long value', 1.2345);",
    )?;
    let folder = test_dump_folders::write(&source, DumpCompression::None, 10).await?;
    let changes = ["v VARCHAR(3), d DECIMAL(9,4)", "v VARCHAR(20), d DECIMAL(9,1)", "v INT, d DECIMAL(9,4)"];
    for (inserts, changed) in changes.iter().flat_map(|changed| [(false, changed), (true, changed)]) {
        // The record of the last load is dropped, so that each load starts from scratch.
        let sql = format!(
            "DROP DATABASE IF EXISTS tailwater; DROP TABLE cut.t; CREATE TABLE cut.t (id INT PRIMARY KEY, {changed})"
        );
        source.sql(&sql).await?;
        let options = LoadOptions { merge: true, inserts, ..LoadOptions::new(source.connect_options()) };
        let error = load_into(folder.path(), &options).await.err().context("the load was not refused")?;
        ensure!(
            error.code() == "TW-BULK-0029",
            "the table with the columns {changed}: unexpected error: {error}"
        );
        ensure!(
            source.sql("SELECT COUNT(*) FROM cut.t").await? == ["0"],
            "rows were stored in the table with the columns {changed}"
        );
    }
    Ok(())
}

async fn a_load_survives_a_restart_of_the_target(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = sized_source(kind).await?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 97).await?;
    let contents = tailwater_folder::read(folder.path(), false)?;
    let mut target = started(kind).await?;
    let options = LoadOptions::new(target.connect_options());
    let progress = Arc::new(BulkProgress::default());
    let loading = {
        let (contents, options, progress) = (contents.clone(), options.clone(), progress.clone());
        tokio::spawn(async move { load(&contents, &options, &progress, &CancellationToken::new()).await })
    };
    while progress.figures().chunks < 20 {
        ensure!(!loading.is_finished(), "the load ended before the target restarted: {:?}", loading.await);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    target.kill().await?;
    target.start_again().await?;
    // The load may have finished before the restart of the target. Otherwise its error must be temporary.
    match loading.await? {
        Ok(_) => {}
        Err(error) => {
            let text = error.to_string();
            ensure!(
                !text.is_empty() && error.code() != "TW-BULK-0029",
                "the load failed for another reason than the restart: {} {text}",
                error.code()
            );
            load(
                &contents,
                &LoadOptions { resume: true, ..options },
                &Arc::default(),
                &CancellationToken::new(),
            )
            .await?;
        }
    }
    let (mut before, mut after) = (all(&source).await?, all(&target).await?);
    // After a crash of the server, the rows of a table without transactions are undefined, so they are not
    // compared.
    for all in [&mut before, &mut after] {
        all.remove("rows of sized.plain");
    }
    ensure_equal(&before, &after)
}

/// With every load method, the target writes all loaded rows to its own binlog.
async fn rows_reach_a_replica_of_the_target(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let spec = |id: &str| ServerSpec::new(kind).options(["--local-infile=1", "--log-bin", id]);
    let target = Server::start(spec("--server-id=21")).await?;
    let replica = Server::start(spec("--server-id=22")).await?;
    replica.replicate_from(&target).await?;
    let sums = "SELECT COUNT(*), SUM(id), SUM(CRC32(CONCAT_WS('#', id, n, b))) FROM logged.t";
    for format in ["MIXED", "ROW"] {
        target.sql(&format!("SET GLOBAL binlog_format = '{format}'")).await?;
        let rows: Vec<_> =
            (0..500).map(|id| format!("({id}, {}, REPEAT(CHAR({id} % 256), 40))", id * 7)).collect();
        let script = format!(
            "CREATE DATABASE logged; CREATE TABLE logged.t (id INT PRIMARY KEY, n BIGINT, b BLOB);
             INSERT INTO logged.t VALUES {};",
            rows.join(",")
        );
        run_script(&target, script.as_bytes())?;
        let wanted = target.sql(sums).await?;
        let folder = test_dump_folders::write(&target, DumpCompression::None, 200).await?;
        target.sql("DROP DATABASE logged").await?;
        load_into(folder.path(), &LoadOptions::new(target.connect_options())).await?;
        ensure!(
            target.sql(sums).await? == wanted,
            "{format}: the target does not have the rows of the source"
        );
        target.sql("INSERT INTO logged.t VALUES (1000, 1, 'last')").await?;
        let wanted = target.sql(sums).await?;
        let mut found = Vec::new();
        for _ in 0..3000 {
            found = replica.sql(sums).await.unwrap_or_default();
            if found == wanted {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        ensure!(found == wanted, "{format}: the replica has the checksums {found:?} instead of {wanted:?}");
        target.sql("DROP DATABASE logged; DROP DATABASE tailwater").await?;
    }
    Ok(())
}
