//! Creates the accounts of a dump and grants their privileges. Accounts that exist on the target are only
//! changed if the user asks for it. The account that runs the load is never changed.

use sha2::{Digest, Sha256};
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use super::ddl_script_runner;
use super::dump_contents::{AccountScripts, DumpContents};
use super::load_progress_table::LoadRecord;
use tailwater_tables::error::BulkError;
use tailwater_tables::schema::TableName;
use tailwater_tables::schema::account_scripts::account_name;
use tailwater_wire::sql_quote::string_literal;

/// Which accounts of the dump to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadAccounts {
    /// Loads no accounts.
    #[default]
    None,
    /// Creates the accounts that do not exist on the target.
    New,
    /// Replaces all accounts: drops those that exist, and creates them from the dump.
    Replace,
}

/// The result of loading accounts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountsReport {
    /// Number of accounts that were created.
    pub made: usize,
    /// Accounts that existed on the target and were left unchanged.
    pub kept: Vec<String>,
}

/// Refuses to load accounts that the target cannot create unchanged.
///
/// # Errors
/// [`BulkError::AccountsUnavailable`], [`BulkError::FlavourMismatch`]
pub(super) fn check(contents: &DumpContents, target: Flavour) -> Result<(), BulkError> {
    if contents.accounts.is_empty() {
        let reason = "the dump has no accounts: dump with --users".to_owned();
        return Err(BulkError::AccountsUnavailable { reason });
    }
    match contents.flavour == Some(target) {
        true => Ok(()),
        false => Err(BulkError::FlavourMismatch {
            what: "the accounts of the dump".into(),
            reason: "privileges and password hashes of MySQL are not valid on MariaDB, and vice versa: omit --users"
                .into(),
        }),
    }
}

/// Creates the accounts and grants their privileges.
///
/// # Errors
/// [`BulkError::DefinitionRejected`], [`BulkError::Session`]
pub(super) async fn load(
    connection: &mut Connection,
    contents: &DumpContents,
    record: &LoadRecord,
    replace: bool,
) -> Result<AccountsReport, BulkError> {
    let started = record.chunks(connection).await?;
    let own = connection.query("SELECT CURRENT_USER()").await?.scalar().unwrap_or_default().to_owned();
    let mut report = AccountsReport::default();
    let mut made = Vec::new();
    for account in &contents.accounts {
        let AccountScripts { user, host, create, .. } = account;
        let mark = mark(account);
        let ours = started.contains(&(mark.clone(), 0));
        let exists = is_there(connection, user, host).await?;
        if exists && !ours && (!replace || own == format!("{user}@{host}")) {
            report.kept.push(format!("{user}@{host}"));
            continue;
        }
        if exists && !ours {
            drop_account(connection, user, host).await?;
        }
        // The mark in the load record is written before the account is created. After a kill, the mark shows
        // that this load created the account, and that the account did not exist before.
        if !ours {
            record.record_chunk(connection, &mark, 0).await?;
        }
        if !exists || !ours {
            ddl_script_runner::create(connection, contents.files.as_ref(), create, false, false).await?;
        }
        report.made += 1;
        made.push(account);
    }
    for account in made {
        // A privilege for a table or routine that is not in the dump is skipped.
        let [table, routine] = ddl_script_runner::MISSING;
        let passed = &[table, routine, ddl_script_runner::NO_PROXY];
        ddl_script_runner::run_script_ignoring(
            connection,
            contents.files.as_ref(),
            &account.grants,
            passed,
            false,
        )
        .await?;
    }
    Ok(report)
}

/// Returns the name under which the load record marks an account as created by this load. It is not the name
/// of any table.
fn mark(account: &AccountScripts) -> TableName {
    let mut hash = Sha256::new();
    hash.update(format!("{}\0{}", account.user, account.host));
    let name: String = hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    TableName::new("", format!("account {name}"))
}

async fn is_there(connection: &mut Connection, user: &str, host: &str) -> Result<bool, BulkError> {
    let (user, host) = (string_literal(user), string_literal(host));
    let sql = format!("SELECT COUNT(*) FROM mysql.user WHERE user = {user} AND host = {host}");
    Ok(connection.query(&sql).await?.scalar() != Some("0"))
}

async fn drop_account(connection: &mut Connection, user: &str, host: &str) -> Result<(), BulkError> {
    let is_role = host.is_empty() && connection.server().flavour == Flavour::MariaDb;
    let keyword = if is_role { "ROLE" } else { "USER" };
    connection.execute(&format!("DROP {keyword} {}", account_name(user, host, is_role))).await?;
    Ok(())
}
