//! Loads that are gone on with, where what is there is not what the last one left.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tailwater_bulk::BulkError;
use tailwater_bulk::folder::Compression;
use tailwater_bulk::load::{DeferIndexes, LoadOptions, LoadReport, load, own_folder};
use tailwater_sandbox::{Server, ServerKind, require};
use tokio_util::sync::CancellationToken;

use crate::loaded::{all, ensure_equal, started};
use crate::written;

on_each_server!(tables_that_were_there_keep_what_they_had,);

async fn load_into(folder: &Path, options: &LoadOptions) -> Result<LoadReport, BulkError> {
    let contents = own_folder::read(folder, false)?;
    load(&contents, options, &Arc::default(), &CancellationToken::new()).await
}

fn failed(done: &Result<LoadReport, BulkError>, code: &str) -> Result<()> {
    ensure!(done.as_ref().is_err_and(|error| error.code() == code), "{code}: {done:?}");
    Ok(())
}

/// Statements that the server was given since, of those that are like this.
async fn given(server: &Server, like: &str) -> Result<String> {
    let sql = format!("SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE '{like}'");
    Ok(server.sql(&sql).await?.concat())
}

async fn note_statements(server: &Server) -> Result<()> {
    server.sql("SET GLOBAL log_output = 'TABLE', general_log = 1; TRUNCATE TABLE mysql.general_log").await?;
    Ok(())
}

/// A load into tables that are there is one however it is gone on with: nothing that was there is emptied, or loses its indexes.
async fn tables_that_were_there_keep_what_they_had(kind: ServerKind) -> Result<()> {
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
    let folder = written::write(&source, Compression::None, 10).await?;
    let folder = folder.path();
    let merged = LoadOptions {
        merge: true,
        workers: 1,
        defer_indexes: DeferIndexes::Always,
        ..LoadOptions::new(target.connect_options())
    };
    let resumed = LoadOptions { merge: false, resume: true, ..merged.clone() };

    // It ends before it is at the rows.
    let file = folder.join("shop.zz.table.sql");
    let definition = std::fs::read_to_string(&file)?;
    std::fs::write(&file, definition.replace("int", "nothing"))?;
    failed(&load_into(folder, &merged).await, "TW-BULK-0027")?;
    std::fs::write(&file, definition)?;
    note_statements(&target).await?;
    // And then at a row of an own key, with some rows of both tables there.
    failed(&load_into(folder, &resumed).await, "TW-BULK-0029")?;
    ensure!(
        given(&target, "ALTER TABLE%DROP KEY%").await? == "0",
        "indexes of a table with rows were dropped"
    );
    target.sql("DELETE FROM shop.keyed WHERE t = 'own' AND id < 1000").await?;
    // A file of the other table comes to such a row: some rows of it are there, which cannot be told from those of before.
    failed(&load_into(folder, &resumed).await, "TW-BULK-0029")?;
    target.sql("DELETE FROM shop.plain WHERE t = 'own' AND id < 1000").await?;
    let refused = load_into(folder, &resumed).await;
    failed(&refused, "TW-BULK-0033")?;
    let Err(BulkError::HalfLoaded { table, path, forget }) = refused else {
        anyhow::bail!("{refused:?}");
    };
    ensure!(table == "shop.plain", "{table}");
    let rows = std::fs::read_to_string(&path)?;
    let ids: Vec<_> = rows.lines().filter_map(|row| row.split('\t').next()).collect();
    target.sql(&format!("DELETE FROM shop.plain WHERE id IN ({}); {forget}", ids.join(","))).await?;
    load_into(folder, &resumed).await?;
    for table in ["keyed", "plain"] {
        let rows = format!("SELECT t, COUNT(*) FROM shop.{table} GROUP BY t ORDER BY t");
        ensure!(target.sql(&rows).await? == ["new\t30", "own\t1"], "{table}: {:?}", target.sql(&rows).await?);
    }
    ensure!(given(&target, "TRUNCATE TABLE `shop`%").await? == "0");

    // An earlier version did not note it.
    target.sql("ALTER TABLE tailwater.loads DROP COLUMN merged; DROP DATABASE shop").await?;
    load_into(folder, &LoadOptions::new(target.connect_options())).await?;
    ensure_equal(&all(&source).await?, &all(&target).await?)?;
    let noted = target.sql("SELECT merged FROM tailwater.loads").await?;
    ensure!(noted == ["0"], "{noted:?}");
    target.sql("ALTER TABLE tailwater.loads DROP COLUMN merged").await?;
    let again = load_into(folder, &resumed).await.context("of an earlier version")?;
    ensure!(again.chunks_loaded == 0, "{again:?}");
    Ok(())
}
