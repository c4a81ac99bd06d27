//! Tests that users and roles of real servers are dumped and loaded.

use std::os::unix::fs::PermissionsExt;

use anyhow::{Result, ensure};
use tailwater_dump::load::account_creation::LoadAccounts;
use tailwater_dump::load::{LoadOptions, LoadReport, load, tailwater_folder};
use tailwater_dump::{DumpOptions, dump};
use tailwater_sandbox::{Server, ServerKind, require};
use tailwater_tables::BulkError;
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::server_contents::started;
use crate::stock_client::run_script;

on_each_server!(accounts_are_loaded_and_existing_accounts_stay);

const ACCOUNTS: &str = "
    CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, v INT); CREATE TABLE shop.left_out (id INT);
    CREATE ROLE reader; GRANT SELECT ON shop.* TO reader;
    CREATE USER 'it''s me'@'10.%' IDENTIFIED BY 'a secret'; GRANT reader TO 'it''s me'@'10.%';
    GRANT INSERT (v), SELECT (id) ON shop.t TO 'it''s me'@'10.%' WITH GRANT OPTION;
    GRANT SELECT ON shop.left_out TO 'it''s me'@'10.%'; GRANT UPDATE ON shop.t TO 'it''s me'@'10.%';
    CREATE USER 'taken'@'%' IDENTIFIED BY 'one';
";

/// Returns the definitions and grants of the test's accounts on a server.
async fn account_definitions(server: &Server, accounts: &[&str]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for account in accounts {
        all.extend(server.sql(&format!("SHOW GRANTS FOR {account}")).await?);
        if *account != "reader" || server.kind().flavour() == Flavour::MySql {
            all.extend(server.sql(&format!("SHOW CREATE USER {account}")).await?);
        }
    }
    Ok(all)
}

async fn load_with(
    folder: &std::path::Path,
    target: &Server,
    accounts: LoadAccounts,
    merge: bool,
) -> Result<LoadReport, BulkError> {
    let options = LoadOptions { accounts, merge, ..LoadOptions::new(target.connect_options()) };
    load(
        &tailwater_folder::read(folder, false)?,
        &options,
        &std::sync::Arc::default(),
        &CancellationToken::new(),
    )
    .await
}

async fn accounts_are_loaded_and_existing_accounts_stay(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = started(kind).await?;
    run_script(&source, ACCOUNTS.as_bytes())?;
    let default_role = match kind.flavour() {
        Flavour::MySql => "SET DEFAULT ROLE reader TO 'it''s me'@'10.%'",
        Flavour::MariaDb => "SET DEFAULT ROLE reader FOR 'it''s me'@'10.%'",
    };
    source.sql(default_role).await?;
    let folder = tempfile::tempdir()?;
    let mut options =
        DumpOptions { accounts: true, ..DumpOptions::new(source.connect_options(), folder.path()) };
    options.selection.except = vec![tailwater_tables::schema::TableName::new("shop", "left_out")];
    let report = dump(options, std::sync::Arc::default(), CancellationToken::new()).await?;
    let accounts = &report.manifest.accounts;
    ensure!(
        accounts.iter().any(|account| account.user == "it's me"),
        "the dump lacks an account: {accounts:?}"
    );
    ensure!(
        !accounts.iter().any(|account| account.user.starts_with("mysql.") || account.user == "mariadb.sys")
    );
    for account in accounts {
        for file in [&account.file, &account.grants_file] {
            let mode = std::fs::metadata(folder.path().join(file))?.permissions().mode();
            ensure!(mode & 0o777 == 0o600, "other users can read {file}: its mode is {mode:o}");
        }
    }

    let target = started(kind).await?;
    run_script(&target, b"CREATE USER 'taken'@'%' IDENTIFIED BY 'another'")?;
    let taken = account_definitions(&target, &["taken"]).await?;
    let report = load_with(folder.path(), &target, LoadAccounts::New, false).await?;
    let done = report.accounts.unwrap_or_default();
    ensure!(
        done.made == 2 && done.kept.iter().any(|name| name == "taken@%"),
        "the report of the accounts is wrong: {done:?}"
    );
    ensure!(account_definitions(&target, &["taken"]).await? == taken);
    let left_out =
        |lines: Vec<String>| lines.into_iter().filter(|line| !line.contains("left_out")).collect::<Vec<_>>();
    let wanted = left_out(account_definitions(&source, &["'it''s me'@'10.%'", "reader"]).await?);
    let arrived = account_definitions(&target, &["'it''s me'@'10.%'", "reader"]).await?;
    ensure!(arrived == wanted, "the accounts on the target are\n{arrived:#?}\ninstead of\n{wanted:#?}");

    // Existing accounts are only replaced if the user requests that. The load never replaces the account that
    // runs it.
    target.sql("DROP DATABASE tailwater").await?;
    let report = load_with(folder.path(), &target, LoadAccounts::Replace, true).await?;
    let done = report.accounts.unwrap_or_default();
    ensure!(
        done.kept.len() == 1 && done.kept[0].starts_with("root@"),
        "the load did not keep exactly the expected accounts: {done:?}"
    );
    ensure!(
        account_definitions(&target, &["taken"]).await? == account_definitions(&source, &["taken"]).await?
    );
    ensure!(
        account_definitions(&target, &["'it''s me'@'10.%'"]).await?
            == left_out(account_definitions(&source, &["'it''s me'@'10.%'"]).await?)
    );

    let without = crate::test_dump_folders::write(&source, Default::default(), 10).await?;
    let refused = load_with(without.path(), &target, LoadAccounts::New, true).await;
    ensure!(
        matches!(refused, Err(BulkError::AccountsUnavailable { .. })),
        "a dump without accounts was not refused: {refused:?}"
    );
    Ok(())
}
