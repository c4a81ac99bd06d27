//! Makes the channel's account administrator of MariaDB roles while one statement grants or revokes these
//! roles.

use std::sync::Arc;

use tailwater_session::{Connection, ServerError, SessionError};
use tailwater_wire::Flavour;
use tracing::warn;

use super::account_statement_parser::RoleGrant;
use super::shared_channel_state::ChannelShared;
use super::sql_log_bin_off_connection::{ignore_refusal, unlogged_connection};
use crate::error::ApplyError;
use crate::source_transaction::Transaction;
use tailwater_wire::sql_quote::portable_literal;

/// The error `ER_ACCESS_DENIED_NO_PASSWORD_ERROR`: MariaDB's answer to a client that grants a role without
/// being its administrator.
const NOT_ADMIN: u16 = 1698;

/// A role that the channel's account administers during one statement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AdministeredRole {
    name: String,
    /// Whether the role was granted to the account before the statement.
    was_granted: bool,
}

/// The roles that the channel's account administers during one statement.
pub(super) struct TemporaryRoleAdmin {
    connection: Connection,
    gtid: String,
    /// The channel's account.
    account: String,
    grant: RoleGrant,
    roles: Vec<AdministeredRole>,
}

/// Makes the channel's account administrator of the roles that a statement grants or revokes, if `error`
/// shows that the account is not their administrator.
///
/// # Errors
/// [`ApplyError::Session`], but not if the target refuses the grant; [`ApplyError::Unsupported`] if the grant
/// could not be undone.
pub(super) async fn grant_role_admin(
    shared: &Arc<ChannelShared>,
    transaction: &Transaction,
    text: &[u8],
    error: &ServerError,
) -> Result<Option<TemporaryRoleAdmin>, ApplyError> {
    if error.number != NOT_ADMIN || shared.flavour != Flavour::MariaDb {
        return Ok(None);
    }
    let Some(grant) = RoleGrant::of(text) else { return Ok(None) };
    let mut connection = unlogged_connection(shared).await?;
    let account = connection.query("SELECT CURRENT_USER()").await?;
    let account = account.scalar().unwrap_or_default().to_owned();
    let gtid = transaction.gtid_text();
    let mut admin = TemporaryRoleAdmin { connection, gtid, account, grant, roles: Vec::new() };
    match admin.grant_admin().await {
        Ok(()) if admin.roles.is_empty() => Ok(None),
        Ok(()) => Ok(Some(admin)),
        Err(error) => {
            if !admin.roles.is_empty() {
                admin.revoke(shared, false).await?;
            }
            ignore_refusal(error).map(|()| None)
        }
    }
}

/// Selects the rows of the session's account in `mysql.roles_mapping`.
const OWN_ROLE_ROWS: &str = "Host=SUBSTRING_INDEX(CURRENT_USER(), '@', -1) AND User=LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - \
     CHAR_LENGTH(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)) - 1)";

/// Makes the server reload its privilege tables.
const RELOAD: &str = "FLUSH NO_WRITE_TO_BINLOG PRIVILEGES";

impl TemporaryRoleAdmin {
    /// Makes the account administrator of the roles that the statement names. After an error, the account may
    /// be administrator of some of these roles; `self.roles` then lists them.
    async fn grant_admin(&mut self) -> Result<(), SessionError> {
        let sql = format!(
            "SELECT u.User, COALESCE(MAX(m.Admin_option), '') FROM mysql.user u LEFT JOIN \
             (SELECT * FROM mysql.roles_mapping WHERE {OWN_ROLE_ROWS}) m ON m.Role=u.User WHERE u.is_role='Y' GROUP BY u.User"
        );
        let rows = self.connection.query(&sql).await?;
        for row in &rows.rows {
            let (role, option) = (row.get_str(0).unwrap_or_default(), row.get_str(1).unwrap_or_default());
            if option == "Y" || !self.grant.roles.iter().any(|named| named == role) {
                continue;
            }
            self.roles.push(AdministeredRole { name: role.to_owned(), was_granted: option == "N" });
            let sql = format!(
                "REPLACE INTO mysql.roles_mapping (Host, User, Role, Admin_option) SELECT \
                 SUBSTRING_INDEX(CURRENT_USER(), '@', -1), LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - \
                 CHAR_LENGTH(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)) - 1), {}, 'Y'",
                portable_literal(role)
            );
            self.connection.execute(&sql).await?;
        }
        if !self.roles.is_empty() {
            self.connection.execute(RELOAD).await?;
        }
        Ok(())
    }

    /// Restores the roles that the account had before the statement. If the statement `has_run`, the account
    /// also keeps what the statement gave it.
    ///
    /// # Errors
    /// [`ApplyError::Unsupported`], with the roles and the account, if the target refuses the change or the
    /// connection to the target fails.
    pub(super) async fn revoke(
        mut self,
        shared: &Arc<ChannelShared>,
        has_run: bool,
    ) -> Result<(), ApplyError> {
        let statements = revoke_statements(&self.roles, &self.grant, &self.account, has_run);
        let mut first = run_all(&mut self.connection, &statements).await;
        if let Err(error) = &first
            && error.server_error().is_none()
            && let Ok(mut connection) = unlogged_connection(shared).await
        {
            // It does no harm to run these statements twice, so run all of them again after an error.
            first = run_all(&mut connection, &statements).await;
        }
        first.map_err(|error| self.revoke_error(&error))
    }

    fn revoke_error(&self, error: &SessionError) -> ApplyError {
        let roles: Vec<&str> = self.roles.iter().map(|role| role.name.as_str()).collect();
        let (roles, account) = (roles.join(", "), &self.account);
        warn!(
            account,
            roles,
            "the channel's account may still administer roles that it received for one statement: {error}"
        );
        ApplyError::Unsupported {
            gtid: self.gtid.clone(),
            what: "a statement that grants or revokes a role".to_owned(),
            reason: format!(
                "for this statement the channel's account {account} was made administrator of {roles} on the target, and that \
                 could not be undone: {error}; for each of them run `REVOKE ADMIN OPTION FOR role FROM {account}` there, then \
                 start the channel"
            ),
        }
    }
}

/// Returns the statements that restore the account's roles.
fn revoke_statements(
    roles: &[AdministeredRole],
    grant: &RoleGrant,
    account: &str,
    has_run: bool,
) -> Vec<String> {
    let gives = has_run && grant.grants_to(account);
    let mut statements = Vec::new();
    for role in roles {
        let name = portable_literal(&role.name);
        match (gives, role.was_granted) {
            // The source's statement itself makes the account administrator of the role, so the account stays
            // administrator.
            (true, _) if grant.with_admin => {}
            (true, _) | (false, true) => statements.push(format!(
                "UPDATE mysql.roles_mapping SET Admin_option='N' WHERE {OWN_ROLE_ROWS} AND Role={name}"
            )),
            (false, false) => statements
                .push(format!("DELETE FROM mysql.roles_mapping WHERE {OWN_ROLE_ROWS} AND Role={name}")),
        }
    }
    statements.push(RELOAD.to_owned());
    statements
}

/// Runs all statements, even if one fails. Returns the first error.
async fn run_all(connection: &mut Connection, statements: &[String]) -> Result<(), SessionError> {
    let mut first = Ok(());
    for statement in statements {
        let result = connection.execute(statement).await;
        first = first.and(result.map(drop));
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_that_the_statement_grants_to_the_channel_are_kept() {
        let taken = |text: &str, was_granted: bool, has_run: bool| {
            let roles = [AdministeredRole { name: "r".into(), was_granted }];
            let statements =
                revoke_statements(&roles, &RoleGrant::of(text.as_bytes()).unwrap(), "tail@%", has_run);
            let words: Vec<_> =
                statements.iter().map(|statement| statement.split(' ').next().unwrap().to_owned()).collect();
            words.join(" ")
        };
        assert_eq!(taken("GRANT r TO x", false, true), "DELETE FLUSH");
        assert_eq!(taken("GRANT r TO x", true, true), "UPDATE FLUSH");
        assert_eq!(taken("GRANT r TO x, tail", false, true), "UPDATE FLUSH");
        assert_eq!(taken("GRANT r TO tail WITH ADMIN OPTION", false, true), "FLUSH");
        assert_eq!(taken("GRANT r TO tail WITH ADMIN OPTION", false, false), "DELETE FLUSH");
        assert_eq!(taken("REVOKE r FROM tail", false, true), "DELETE FLUSH");
    }
}
