//! If a selected object is missing, or the account cannot see it, the command fails before any work begins.
//! It never reports success.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tailwater_check::table_check::CheckOptions;
use tailwater_check::table_check::target_catch_up_wait::SyncMethod;
use tailwater_dump::dump_folder::DumpFolder;
use tailwater_dump::load::tailwater_folder;
use tailwater_dump::{DumpOptions, DumpReport, dump};
use tailwater_sandbox::{Server, ServerKind, require, shared};
use tailwater_session::ConnectOptions;
use tailwater_tables::BulkError;
use tailwater_tables::schema::{Selection, TableName};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::server_contents::started;
use crate::table_check::run;

on_each_server!(hidden_objects_are_an_error, a_damaged_manifest_is_refused);

async fn dumped(options: DumpOptions) -> Result<DumpReport, BulkError> {
    dump(options, Arc::default(), CancellationToken::new()).await
}

fn options_of_user(server: &Server, user: &str) -> ConnectOptions {
    let mut connect = server.connect_options();
    connect.user = user.into();
    connect
}

fn selection(schemas: &[&str], tables: &[(&str, &str)], except: &[(&str, &str)]) -> Selection {
    let named =
        |names: &[(&str, &str)]| names.iter().map(|(schema, name)| TableName::new(*schema, *name)).collect();
    let schemas = schemas.iter().map(|&name| name.to_owned()).collect();
    Selection { schemas, tables: named(tables), except: named(except) }
}

/// The accounts range from an account without privileges to one with enough privileges. Other tests use the
/// same server.
async fn hidden_objects_are_an_error(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let routines = match kind.flavour() {
        Flavour::MySql => "GRANT SHOW_ROUTINE ON *.* TO seen_all",
        Flavour::MariaDb => "GRANT SELECT ON mysql.proc TO seen_all",
    };
    server
        .sql(&format!(
            "CREATE DATABASE seen; CREATE TABLE seen.t (id INT PRIMARY KEY); CREATE TABLE seen.u (id INT PRIMARY KEY);
             CREATE DATABASE hidden; CREATE TABLE hidden.t (id INT PRIMARY KEY);
             CREATE USER seen_none; CREATE USER seen_rows; CREATE USER seen_all; CREATE USER seen_table;
             GRANT SELECT, LOCK TABLES ON seen.* TO seen_rows;
             GRANT SELECT, LOCK TABLES, SHOW VIEW, TRIGGER, EVENT ON `s__n`.* TO seen_all; {routines};
             GRANT SELECT ON seen.t TO seen_table; GRANT LOCK TABLES ON seen.* TO seen_table"
        ))
        .await?;
    let temporary = tempfile::tempdir()?;
    let attempt = async |user: &str, selection: Selection, folder: &str| {
        let options = DumpOptions::new(options_of_user(&server, user), temporary.path().join(folder));
        dumped(DumpOptions { selection, connections: 1, ..options }).await
    };
    let error = async |user: &str, selection: Selection| {
        let refused = attempt(user, selection, "refused").await;
        let folder = temporary.path().join("refused");
        ensure!(!folder.exists(), "as user {user}, the refused dump created its folder");
        Ok::<_, anyhow::Error>(
            refused.err().with_context(|| format!("as user {user}, the dump was not refused"))?.to_string(),
        )
    };
    let everything = Selection::default;
    ensure!(error("seen_none", everything()).await?.contains("does not see all of the databases"));
    ensure!(error("seen_none", selection(&["seen"], &[], &[])).await?.contains("database seen"));
    ensure!(error("seen_all", everything()).await?.contains("SELECT ON *.*"));
    let lacking = error("seen_rows", selection(&["seen"], &[], &[])).await?;
    ensure!(
        lacking.contains("database seen") && lacking.contains("TRIGGER, EVENT"),
        "the error does not name the database and the missing privileges: {lacking}"
    );
    // The advice names --table, because the user has already named the database.
    ensure!(
        lacking.ends_with("Grant it, or name its tables with --table"),
        "the error does not advise to use --table: {lacking}"
    );
    ensure!(error("seen_table", selection(&["seen"], &[], &[])).await?.contains("database seen"));
    ensure!(error("seen_all", selection(&["seen", "hidden"], &[], &[])).await?.contains("database hidden"));
    ensure!(
        error("seen_all", selection(&["seen"], &[], &[("seen", "t"), ("seen", "u")]))
            .await?
            .contains("nothing is selected")
    );
    // The refused command has left no folder. So the same command with the correct name can use that folder.
    ensure!(error("root", selection(&["sene"], &[], &[])).await?.contains("no database sene"));
    let whole = attempt("seen_all", selection(&["seen"], &[], &[]), "refused").await?;
    ensure!(whole.manifest.tables.len() == 2, "the dump must have two tables: {:?}", whole.manifest);
    let named = attempt("seen_table", selection(&[], &[("seen", "t")], &[]), "named").await?;
    ensure!(named.manifest.tables.len() == 1);

    let target = started(kind).await?;
    target
        .sql(
            "CREATE DATABASE seen; CREATE TABLE seen.t (id INT PRIMARY KEY); CREATE TABLE seen.u (id INT PRIMARY KEY);
             CREATE USER seen_none; CREATE USER seen_all; GRANT SELECT ON seen.* TO seen_all; CREATE USER seen_table;
             GRANT SELECT ON seen.t TO seen_table",
        )
        .await?;
    checks_that_see_nothing(&server, &target).await?;
    server
        .sql("DROP DATABASE seen; DROP DATABASE hidden; DROP USER seen_none, seen_rows, seen_all, seen_table")
        .await?;
    Ok(())
}

async fn checks_that_see_nothing(on_source: &Server, on_target: &Server) -> Result<()> {
    let compare = async |source: &str, target: &str, selection: Selection| {
        let mut options =
            CheckOptions::new(options_of_user(on_source, source), options_of_user(on_target, target));
        options.selection = selection;
        options.sync_method = Some(SyncMethod::None);
        run(&options).await
    };
    for (source, target, selection) in [
        ("seen_none", "seen_none", Selection::default()),
        ("seen_all", "seen_all", Selection::default()),
        ("seen_all", "seen_none", selection(&["seen"], &[], &[])),
        ("seen_table", "seen_table", selection(&["seen"], &[], &[])),
        ("seen_all", "seen_all", selection(&["seen"], &[], &[("seen", "t"), ("seen", "u")])),
    ] {
        let report = compare(source, target, selection.clone()).await;
        let code = report.as_ref().map_err(BulkError::code).err();
        ensure!(
            matches!(code, Some("TW-BULK-0104" | "TW-BULK-0105" | "TW-BULK-0020")),
            "the check from {source} to {target} of {selection:?} was not refused: {report:?}"
        );
    }
    let seen = compare("seen_all", "seen_all", selection(&["seen"], &[], &[])).await?;
    ensure!(seen.tables == 2 && seen.is_equal(), "the check must report two equal tables: {seen:?}");
    let seen = compare("seen_table", "seen_table", selection(&[], &[("seen", "t")], &[])).await?;
    ensure!(seen.tables == 1 && seen.is_equal(), "the check must report the named table as equal: {seen:?}");
    Ok(())
}

/// The manifest is damaged or was edited, and is refused. Earlier versions loaded each of these dumps without
/// its rows.
async fn a_damaged_manifest_is_refused(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    server.sql("CREATE DATABASE edited; CREATE TABLE edited.t (id INT PRIMARY KEY); INSERT INTO edited.t VALUES (1), (2)").await?;
    let temporary = tempfile::tempdir()?;
    let selection = selection(&["edited"], &[], &[]);
    let options = DumpOptions { selection, ..DumpOptions::new(server.connect_options(), temporary.path()) };
    dumped(options).await?;
    server.sql("DROP DATABASE edited").await?;
    let path = temporary.path().join("manifest.json");
    let sound = std::fs::read_to_string(&path)?;
    ensure!(tailwater_folder::read(temporary.path(), false)?.rows() == 2);
    // The manifest of this version has a checksum. The manifest of an older version has none.
    let at = sound.rfind(",\n  \"crc32\"").context("the manifest has no checksum")?;
    let older = format!("{}\n}}\n", &sound[..at]);
    std::fs::write(&path, &older)?;
    ensure!(tailwater_folder::read(temporary.path(), false)?.rows() == 2);
    let no_tables = |text: &str| -> Result<String> {
        let mut json: serde_json::Value = serde_json::from_str(text)?;
        json["tables"] = serde_json::json!([]);
        Ok(serde_json::to_string_pretty(&json)?)
    };
    let no_chunks = |text: &str| -> Result<String> {
        let mut json: serde_json::Value = serde_json::from_str(text)?;
        json["tables"][0]["chunks"] = serde_json::json!([]);
        Ok(serde_json::to_string_pretty(&json)?)
    };
    for text in [&sound, &older] {
        for edited in [
            text.replacen("\"crc32\": ", "\"crc3r\": ", 1),
            text.replacen("\"rows\": 2,\n          \"bytes\"", "\"rows\": -1,\n          \"bytes\"", 1),
            text.replacen("\"rows\": 2,\n          \"bytes\"", "\"rows\": \"abc\",\n          \"bytes\"", 1),
            text.replacen("\"rows\": 2,\n          \"bytes\"", "\"bytes\"", 1),
            no_tables(text)?,
            no_chunks(text)?,
        ] {
            ensure!(edited != **text, "the manifest does not contain the text to change: {text}");
            std::fs::write(&path, &edited)?;
            let refused = tailwater_folder::read(temporary.path(), false).err().context(edited)?;
            ensure!(
                refused.code() == "TW-BULK-0002" && refused.to_string().contains("manifest.json"),
                "the edited manifest was not reported as damaged: {refused}"
            );
        }
    }
    std::fs::write(&path, &sound)?;
    ensure!(DumpFolder::read(temporary.path())?.is_complete());
    Ok(())
}
