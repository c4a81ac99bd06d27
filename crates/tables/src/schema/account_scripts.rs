//! Reads users and roles with their privileges, as scripts.

use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tracing::warn;

use super::object_inventory::texts;
use super::sql_script::Script;
use crate::error::BulkError;
use tailwater_wire::sql_quote::string_literal;

/// System accounts, which servers create for their own use.
const SYSTEM_USERS: [&str; 5] = ["mysql.sys", "mysql.session", "mysql.infoschema", "mariadb.sys", "PUBLIC"];

/// An account, and the scripts that create it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The name of the user or role.
    pub user: String,
    /// The host part; empty for a role of MariaDB.
    pub host: String,
    /// The script that creates the account, with the hash of its password.
    pub create: Vec<u8>,
    /// The script that grants the account's privileges and sets its default roles. All accounts must exist
    /// before this script runs.
    pub grants: Vec<u8>,
}

/// Reads all accounts except the server's own. The connection must be prepared by [`super::prepare`].
///
/// # Errors
/// [`BulkError::AccountsUnavailable`] if the connection's account may not read them; [`BulkError::Session`].
pub async fn accounts(connection: &mut Connection) -> Result<Vec<Account>, BulkError> {
    let flavour = connection.server().flavour;
    let sql = match flavour {
        Flavour::MySql => {
            // Password hashes may contain any bytes, so they are printed in hexadecimal.
            connection.execute("SET SESSION print_identified_with_as_hex = 1").await?;
            "SELECT CONVERT(user USING utf8mb4), CONVERT(host USING utf8mb4), 'N' FROM mysql.user ORDER BY user, host"
        }
        Flavour::MariaDb => "SELECT user, host, is_role FROM mysql.user ORDER BY is_role DESC, user, host",
    };
    let listed = match connection.query(sql).await {
        Err(SessionError::Server { error, .. }) if [1142, 1044, 1227].contains(&error.number) => {
            return Err(BulkError::AccountsUnavailable { reason: error.to_string() });
        }
        listed => listed?,
    };
    let mut found = Vec::new();
    for [user, host, is_role] in texts(&listed)? {
        if SYSTEM_USERS.contains(&user.as_str()) {
            continue;
        }
        let name = account_name(&user, &host, is_role == "Y");
        let Some((create, granted)) = show(connection, &name, is_role == "Y").await? else {
            warn!(
                account = name,
                "account skipped, because the server does not use it (it has a host name, and skip_name_resolve is on)"
            );
            continue;
        };
        let mut grants = granted.into_iter().fold(base(), |script, grant| script.then(grant));
        if flavour == Flavour::MySql {
            let sql = format!(
                "SELECT CONVERT(default_role_user USING utf8mb4), CONVERT(default_role_host USING utf8mb4) \
                 FROM mysql.default_roles WHERE user = {} AND host = {}",
                string_literal(&user),
                string_literal(&host)
            );
            let roles = texts(&connection.query(&sql).await?)?;
            let roles: Vec<_> = roles.iter().map(|[role, host]| account_name(role, host, false)).collect();
            if !roles.is_empty() {
                grants = grants.then(format!("SET DEFAULT ROLE {} TO {name}", roles.join(", ")));
            }
        }
        let (create, grants) = (base().then(create).into_bytes(), grants.into_bytes());
        found.push(Account { user, host, create, grants });
    }
    Ok(found)
}

/// Returns the definition of an account and its grants. `None` if the server does not use the account,
/// although its privilege tables contain it.
async fn show(
    connection: &mut Connection,
    name: &str,
    is_role: bool,
) -> Result<Option<(String, Vec<String>)>, BulkError> {
    const NO_SUCH_USER: u16 = 1133;
    const NO_SUCH_GRANT: u16 = 1141;
    let mut found = Vec::new();
    let asked = if is_role { &["GRANTS FOR"][..] } else { &["GRANTS FOR", "CREATE USER"] };
    for what in asked {
        match connection.query(&format!("SHOW {what} {name}")).await {
            Err(SessionError::Server { error, .. })
                if [NO_SUCH_USER, NO_SUCH_GRANT].contains(&error.number) =>
            {
                return Ok(None);
            }
            shown => found.push(texts(&shown?)?.into_iter().map(|[text]| text).collect::<Vec<_>>()),
        }
    }
    // The default roles are left out here: such a role may not exist yet when the user is created.
    let create = match found.get(1) {
        None => format!("CREATE ROLE {name}"),
        Some(shown) => without_default_role(shown.first().map_or("", String::as_str)),
    };
    Ok(Some((create, found.swap_remove(0))))
}

fn base() -> Script {
    Script::default().then("SET NAMES utf8mb4").then("SET sql_mode = ''")
}

/// Returns the name of an account as it is written in statements.
pub fn account_name(user: &str, host: &str, is_role: bool) -> String {
    match is_role {
        true => string_literal(user),
        false => format!("{}@{}", string_literal(user), string_literal(host)),
    }
}

/// Returns MySQL's `CREATE USER` without the default roles of the user. The default roles are set after all
/// accounts exist.
fn without_default_role(create: &str) -> String {
    let Some(from) = outside_quotes(create, " DEFAULT ROLE ") else { return create.to_owned() };
    let rest = &create[from..];
    let requirement = outside_quotes(rest, " REQUIRE ").map_or("", |at| &rest[at..]);
    format!("{}{requirement}", &create[..from])
}

/// Returns the first position outside of quotes at which `text` contains `wanted`.
fn outside_quotes(text: &str, wanted: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (None, b'\'' | b'`' | b'"') => quote = Some(byte),
            (None, _) if text.as_bytes()[at..].starts_with(wanted.as_bytes()) => return Some(at),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_roles_are_removed_from_create_user() {
        let create = "CREATE USER `a DEFAULT ROLE b`@`%` IDENTIFIED WITH 'x' AS 0x41 DEFAULT ROLE `r`@`%`,`s REQUIRE t`@`%` \
                      REQUIRE NONE COMMENT 'x'";
        let want = "CREATE USER `a DEFAULT ROLE b`@`%` IDENTIFIED WITH 'x' AS 0x41 REQUIRE NONE COMMENT 'x'";
        assert_eq!(without_default_role(create), want);
        assert_eq!(without_default_role(want), want);
    }
}
