//! Dumps unusual tables: partitions with history rows, rows that another table stores, and keys that are
//! hidden or descending.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use tailwater_dump::dump::omitted_objects::{Omission, OmissionKind};
use tailwater_dump::dump_folder::{DumpFolder, Manifest};
use tailwater_dump::{DumpOptions, DumpReport, dump};
use tailwater_sandbox::{ServerKind, require};
use tailwater_session::Connection;
use tailwater_tables::chunker::TableInfo;
use tailwater_tables::schema::{Selection, TableName};
use tailwater_tables::{BulkError, BulkProgress};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::dump_of_busy_server::{options, rows_of, start, table};

on_each_server!(
    rows_of_other_tables_are_not_dumped,
    keys_are_read_without_sorting,
    a_resumed_dump_keeps_its_selection,
    history_is_not_dumped_as_rows,
    hidden_keys_are_dumped,
);

async fn dumped(options: DumpOptions) -> Result<DumpReport, BulkError> {
    dump(options, Arc::new(BulkProgress::default()), CancellationToken::new()).await
}

/// Returns the first field of each row in a table's files, in order.
fn first_fields(folder: &Path, manifest: &Manifest, name: &str) -> Result<Vec<String>> {
    let rows = rows_of(folder, table(manifest, name)?)?.into_iter();
    let first = |row: Vec<Option<Vec<u8>>>| {
        let value = row.into_iter().next().flatten().context("the first field of a row is NULL")?;
        Ok(String::from_utf8(value)?)
    };
    let mut fields = rows.map(first).collect::<Result<Vec<_>>>()?;
    fields.sort();
    Ok(fields)
}

async fn execute_all(connection: &mut Connection, statements: &[&str]) -> Result<()> {
    for sql in statements {
        connection.execute(sql).await.with_context(|| (*sql).to_owned())?;
    }
    Ok(())
}

async fn rows_of_other_tables_are_not_dumped(kind: ServerKind) -> Result<()> {
    let Some(server) = start(kind).await? else { return Ok(()) };
    let mut connection = Connection::connect(&server.socket_options()).await?;
    let tables = [
        "CREATE DATABASE shop",
        "CREATE TABLE shop.m1 (id INT) ENGINE=MyISAM",
        "CREATE TABLE shop.m2 (id INT) ENGINE=MyISAM",
        "CREATE TABLE shop.both_of (id INT) ENGINE=MERGE UNION=(shop.m1, shop.m2) INSERT_METHOD=LAST",
        "INSERT INTO shop.m1 VALUES (1)",
        "INSERT INTO shop.m2 VALUES (2)",
    ];
    execute_all(&mut connection, &tables).await?;
    let temporary = tempfile::tempdir()?;
    let folder = temporary.path().join("dump");
    let report = dumped(options(server.connect_options(), &folder)).await?;
    let left_out = Omission { of: "shop.both_of".into(), what: OmissionKind::Rows };
    ensure!(report.left_out == [left_out], "the report of omitted contents is wrong: {:?}", report.left_out);
    let merged = table(&report.manifest, "both_of")?;
    ensure!(
        merged.finished && merged.chunks.is_empty() && report.manifest.is_complete(),
        "the MERGE table has chunks, or the dump is incomplete: {merged:?}"
    );
    ensure!(std::fs::read_to_string(folder.join(&merged.file))?.contains("UNION"));
    ensure!(first_fields(&folder, &report.manifest, "m1")? == ["1"]);
    Ok(())
}

/// The server must read chunks in the order of an index. If it sorted the table for each chunk, dumping a
/// large table would take days.
async fn keys_are_read_without_sorting(kind: ServerKind) -> Result<()> {
    let Some(server) = start(kind).await? else { return Ok(()) };
    let mut connection = Connection::connect(&server.socket_options()).await?;
    connection.execute("CREATE DATABASE shop").await?;
    for (number, directions) in ["a, b", "a, b DESC", "a DESC, b", "a DESC, b DESC"].iter().enumerate() {
        let create = format!("CREATE TABLE shop.t{number} (a INT, b INT, v INT, PRIMARY KEY ({directions}))");
        connection.execute(&create).await?;
        connection
            .execute(&format!("INSERT INTO shop.t{number} VALUES (1, 1, 1), (1, 2, 1), (2, 1, 1)"))
            .await?;
        let shape = TableInfo::read(&mut connection, "shop", &format!("t{number}"))
            .await?
            .context("the table does not exist")?;
        let [key] = shape.keys.as_slice() else {
            bail!("the table must have exactly one key: {:?}", shape.keys)
        };
        let explain = match kind.flavour() {
            Flavour::MySql => "EXPLAIN FORMAT=TRADITIONAL",
            Flavour::MariaDb => "EXPLAIN",
        };
        let sql =
            format!("{explain} SELECT * FROM shop.t{number} FORCE INDEX (PRIMARY) ORDER BY {}", key.order());
        let explained = connection.query(&sql).await?;
        let extra = explained.column("Extra").and_then(|column| explained.first()?.get_str(column));
        ensure!(
            !extra.unwrap_or_default().contains("filesort"),
            "the server sorts rows for a key with the directions {directions}: {extra:?}"
        );
    }
    Ok(())
}

/// `--resume` without a selection uses the selection of the interrupted dump.
async fn a_resumed_dump_keeps_its_selection(kind: ServerKind) -> Result<()> {
    let Some(server) = start(kind).await? else { return Ok(()) };
    let mut connection = Connection::connect(&server.socket_options()).await?;
    let tables = [
        "CREATE DATABASE shop",
        "CREATE TABLE shop.wanted (id INT PRIMARY KEY)",
        "CREATE TABLE shop.other (id INT PRIMARY KEY)",
        "CREATE DATABASE elsewhere",
        "CREATE TABLE elsewhere.t (id INT PRIMARY KEY)",
        "CREATE USER app@localhost",
    ];
    execute_all(&mut connection, &tables).await?;
    let temporary = tempfile::tempdir()?;
    let folder = temporary.path().join("dump");
    let selection = Selection {
        schemas: vec!["shop".into()],
        except: vec![TableName::new("shop", "other")],
        ..Selection::default()
    };
    let plain = || options(server.connect_options(), &folder);
    let first = DumpOptions { selection: selection.clone(), accounts: true, ..plain() };
    // Makes the dump look as if it had been interrupted before its last chunk.
    let manifest = dumped(first).await?.manifest;
    let lost = &table(&manifest, "wanted")?.chunks.last().context("the manifest has no chunk")?.file;
    std::fs::remove_file(folder.join(lost))?;

    let resumed = || DumpOptions { resume: true, ..plain() };
    let others = Selection { schemas: vec!["elsewhere".into()], ..Selection::default() };
    let refused = dumped(DumpOptions { selection: others, ..resumed() }).await.err();
    ensure!(
        matches!(refused, Some(BulkError::ResumeImpossible { .. })),
        "another selection was not refused: {refused:?}"
    );
    let manifest = dumped(resumed()).await?.manifest;
    let names: Vec<_> = manifest.tables.iter().map(|entry| entry.table.as_str()).collect();
    ensure!(
        names == ["wanted"] && manifest.is_complete(),
        "the resumed dump is incomplete or has the wrong tables: {names:?}"
    );
    ensure!(
        manifest.accounts.iter().any(|account| account.user == "app"),
        "the resumed dump lacks the account app: {:?}",
        manifest.accounts
    );
    ensure!(DumpFolder::read(&folder)? == manifest);
    // Specifying the same selection again is allowed.
    dumped(DumpOptions { selection, accounts: true, ..resumed() }).await?;
    Ok(())
}

async fn history_is_not_dumped_as_rows(kind: ServerKind) -> Result<()> {
    if kind.flavour() == Flavour::MySql || require(kind).is_none() {
        return Ok(());
    }
    let Some(server) = start(kind).await? else { return Ok(()) };
    let mut connection = Connection::connect(&server.socket_options()).await?;
    let tables = [
        "CREATE DATABASE shop",
        "CREATE TABLE shop.parted (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING \
         PARTITION BY SYSTEM_TIME (PARTITION past HISTORY, PARTITION now CURRENT)",
        "CREATE TABLE shop.plain (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
    ];
    execute_all(&mut connection, &tables).await?;
    for table in ["parted", "plain"] {
        connection.execute(&format!("INSERT INTO shop.{table} VALUES (1,1), (2,1), (3,1)")).await?;
        connection.execute(&format!("UPDATE shop.{table} SET v = 2 WHERE id = 1")).await?;
        connection.execute(&format!("DELETE FROM shop.{table} WHERE id = 2")).await?;
    }
    let temporary = tempfile::tempdir()?;
    let folder = temporary.path().join("dump");
    let report = dumped(options(server.connect_options(), &folder)).await?;
    for table in ["parted", "plain"] {
        let ids = first_fields(&folder, &report.manifest, table)?;
        ensure!(ids == ["1", "3"], "expected the rows 1 and 3 in the dump of {table}, found {ids:?}");
        let left_out = Omission { of: format!("shop.{table}"), what: OmissionKind::History };
        ensure!(
            report.left_out.contains(&left_out),
            "the report does not name the omitted history: {:?}",
            report.left_out
        );
    }
    // Since MariaDB 11.5, a sequence may be unsigned, with values above the signed limit.
    if kind == ServerKind::Mariadb118 {
        connection.execute("CREATE SEQUENCE shop.wide AS BIGINT UNSIGNED").await?;
        connection.execute("DO SETVAL(shop.wide, 18446744073709551000, 0)").await?;
        let again = temporary.path().join("again");
        let report = dumped(options(server.connect_options(), &again)).await?;
        let sequence = report.manifest.objects.iter().find(|object| object.name == "wide");
        let script =
            std::fs::read_to_string(again.join(&sequence.context("the manifest has no sequence")?.file))?;
        ensure!(
            script.contains("SETVAL(`wide`, 18446744073709551000, 0, 0)"),
            "the script does not set the value of the sequence: {script}"
        );
    }
    Ok(())
}

async fn hidden_keys_are_dumped(kind: ServerKind) -> Result<()> {
    if kind.flavour() == Flavour::MariaDb {
        return Ok(());
    }
    let Some(server) = start(kind).await? else { return Ok(()) };
    let mut connection = Connection::connect(&server.socket_options()).await?;
    let settings = [
        "SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF",
        // The chunker reads estimates from EXPLAIN in the traditional format. With the hypergraph optimizer,
        // EXPLAIN returns nothing in that format.
        "SET GLOBAL optimizer_switch = 'hypergraph_optimizer=on'",
        "SET SESSION sql_generate_invisible_primary_key = ON",
        "CREATE DATABASE shop",
        "CREATE TABLE shop.hidden (a BIGINT UNSIGNED, b BIGINT UNSIGNED)",
        "CREATE TABLE shop.sparse (id BIGINT PRIMARY KEY)",
        "INSERT INTO shop.hidden VALUES (7, 8), (9, 10)",
        "INSERT INTO shop.sparse WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900) \
         SELECT i * 1000000 FROM n",
        "ANALYZE TABLE shop.sparse",
    ];
    execute_all(&mut connection, &settings).await?;
    let temporary = tempfile::tempdir()?;
    let folder = temporary.path().join("dump");
    let small = DumpOptions { chunk_rows_max: 100, ..options(server.connect_options(), &folder) };
    let manifest = dumped(small).await?.manifest;
    let hidden = table(&manifest, "hidden")?;
    let columns: Vec<_> = hidden.columns.iter().map(|column| column.name.as_str()).collect();
    ensure!(columns == ["my_row_id", "a", "b"], "the dump has the wrong columns: {columns:?}");
    ensure!(std::fs::read_to_string(folder.join(&hidden.file))?.contains("`my_row_id`"));
    ensure!(first_fields(&folder, &manifest, "hidden")? == ["1", "2"]);
    let sparse = table(&manifest, "sparse")?;
    ensure!(
        sparse.rows == 900 && sparse.chunks.len() > 3,
        "the table was dumped in only {} chunks",
        sparse.chunks.len()
    );
    Ok(())
}
