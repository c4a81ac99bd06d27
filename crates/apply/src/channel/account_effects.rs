//! What a statement about accounts does besides what its text says, because of whose session it is.
//!
//! A server's own replication thread has an account's name from the event and no privileges to lack. A client's session is the
//! channel's account: it would be noted as the grantor, would not give a routine's creator rights to it, and may not grant a role that
//! it does not administer (MariaDB). What is done about that is the target's own affair, and not in its binlog.

use std::sync::Arc;

use tailwater_session::{Connection, ServerError, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::event::Invoker;
use tracing::debug;

use super::invoker::account_name;
use super::options::{ChannelOptions, GtidMode};
use super::sql_words::{Token, Words};
use super::text::quote;
use super::worker::Shared;
use super::writer::connect;
use crate::decode::statement::wrapped;
use crate::error::ApplyError;

/// `ER_ACCESS_DENIED_NO_PASSWORD_ERROR`: what MariaDB says to who grants a role and does not administer it.
const NOT_ADMIN: u16 = 1698;

/// Tables in `mysql` that say who has granted, and what tells their rows apart.
const GRANTOR_TABLES: [(&str, &str); 3] = [
    ("tables_priv", "Host, Db, User, Table_name"),
    ("procs_priv", "Host, Db, User, Routine_name, Routine_type"),
    ("proxies_priv", "Host, User, Proxied_host, Proxied_user"),
];

/// A session of its own, which the source's settings do not reach; it logs nothing.
async fn aside(shared: &Arc<Shared>) -> Result<Connection, ApplyError> {
    connect(&ChannelOptions { gtid: GtidMode::Log, ..shared.options.clone() }).await
}

/// What has to be done when a statement has run.
pub(super) struct AccountEffects {
    connection: Connection,
    /// As it appears in the tables: `user@host`.
    grantor: String,
    /// As a statement names it.
    account: Vec<u8>,
    /// What the channel's account has granted before by other hands, per table of [`GRANTOR_TABLES`].
    before: Vec<Vec<String>>,
    /// The routine that it makes: its kind, database and name as the statement spells them.
    routine: Option<Routine>,
}

/// A routine that a statement makes.
#[derive(Debug, PartialEq, Eq)]
struct Routine {
    kind: &'static str,
    /// With its database.
    name: Vec<u8>,
    database: String,
}

impl AccountEffects {
    /// What a statement that is about to run has besides; `None` if nothing.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn before(
        shared: &Arc<Shared>,
        text: &[u8],
        invoker: Option<&Invoker<'_>>,
    ) -> Result<Option<Self>, ApplyError> {
        let routine = routine(text);
        let Some(invoker) = invoker.filter(|_| routine.is_some() || grants(text)) else { return Ok(None) };
        let (user, host) = (String::from_utf8_lossy(invoker.user), String::from_utf8_lossy(invoker.host));
        let grantor = format!("{user}@{host}");
        let mut connection = aside(shared).await?;
        let own = connection.query("SELECT USER()").await?;
        if own.scalar() == Some(grantor.as_str()) {
            return Ok(None);
        }
        let mut before = Vec::new();
        for (table, key) in GRANTOR_TABLES {
            let sql = format!("SELECT HEX(CONCAT_WS('/', {key})) FROM mysql.{table} WHERE Grantor=USER()");
            match connection.query(&sql).await {
                Ok(rows) => before.push(
                    rows.rows.iter().map(|row| row.get_str(0).unwrap_or_default().to_owned()).collect(),
                ),
                Err(error) => {
                    // Not everybody may look; the grant itself is none the worse.
                    unless_refused(error)?;
                    before.clear();
                    break;
                }
            }
        }
        Ok(Some(Self { connection, grantor, account: account_name(invoker), before, routine }))
    }

    /// Does it.
    ///
    /// # Errors
    /// [`ApplyError::Session`] for anything but a refusal.
    pub(super) async fn carry_out(mut self) -> Result<(), ApplyError> {
        if let Some(routine) = self.routine.take() {
            self.give_to_creator(&routine).await?;
        }
        for ((table, key), before) in GRANTOR_TABLES.iter().zip(std::mem::take(&mut self.before)) {
            let kept: Vec<String> = before.iter().map(|key| quote(key)).collect();
            let kept = match kept.is_empty() {
                true => String::new(),
                false => format!(" AND HEX(CONCAT_WS('/', {key})) NOT IN ({})", kept.join(",")),
            };
            let sql = format!(
                "UPDATE mysql.{table} SET Grantor={}, Timestamp=Timestamp WHERE Grantor=USER(){kept}",
                quote(&self.grantor)
            );
            if let Err(error) = self.connection.execute(&sql).await {
                unless_refused(error)?;
            }
        }
        Ok(())
    }

    /// A routine's creator may run and alter it (`automatic_sp_privileges`).
    async fn give_to_creator(&mut self, routine: &Routine) -> Result<(), ApplyError> {
        // As `information_schema` spells it.
        let (user, host) = self.grantor.rsplit_once('@').unwrap_or((&self.grantor, ""));
        let grantee = quote(&format!("'{user}'@'{host}'"));
        let database = quote(&routine.database);
        let sql = format!(
            "SELECT @@automatic_sp_privileges=1 AND \
             (SELECT COUNT(*) FROM information_schema.user_privileges WHERE grantee={grantee}) > 0 AND \
             (SELECT COUNT(DISTINCT privilege_type) FROM (\
              SELECT privilege_type FROM information_schema.user_privileges WHERE grantee={grantee} \
              UNION SELECT privilege_type FROM information_schema.schema_privileges WHERE grantee={grantee} \
              AND {database} LIKE table_schema) held WHERE privilege_type IN ('EXECUTE', 'ALTER ROUTINE')) < 2"
        );
        if self.connection.query(&sql).await?.scalar() != Some("1") {
            return Ok(());
        }
        let grant = [
            format!("GRANT EXECUTE, ALTER ROUTINE ON {} ", routine.kind).as_bytes(),
            &routine.name,
            b" TO ",
            &self.account,
        ]
        .concat();
        if let Err(error) = self.connection.execute_bytes(&grant).await {
            unless_refused(error)?;
        }
        Ok(())
    }
}

/// A refusal is no error of the transaction: the channel's account may be a small one.
fn unless_refused(error: SessionError) -> Result<(), ApplyError> {
    match error {
        SessionError::Server { error, .. } => {
            debug!("what a grant has besides is left out: {error}");
            Ok(())
        }
        error => Err(error.into()),
    }
}

fn grants(text: &[u8]) -> bool {
    let mut words = Words::new(wrapped(text));
    words.accept("GRANT") || words.accept("REVOKE")
}

fn routine(text: &[u8]) -> Option<Routine> {
    let text = wrapped(text);
    let mut words = Words::new(text);
    words.accept("CREATE").then_some(())?;
    let mut kind = None;
    while kind.is_none() {
        match words.next()? {
            Token::Word(word) if word.eq_ignore_ascii_case(b"PROCEDURE") => kind = Some("PROCEDURE"),
            Token::Word(word) if word.eq_ignore_ascii_case(b"FUNCTION") => kind = Some("FUNCTION"),
            Token::Word(word)
                if ["TABLE", "VIEW", "TRIGGER", "EVENT", "USER", "ROLE", "DATABASE", "SCHEMA", "INDEX"]
                    .iter()
                    .any(|other| word.eq_ignore_ascii_case(other.as_bytes())) =>
            {
                return None;
            }
            _ => {}
        }
    }
    if words.accept("IF") {
        (words.accept("NOT") && words.accept("EXISTS")).then_some(())?;
    }
    // Servers log routines with their database.
    let start = words.end;
    words.next()?;
    let database = unquoted(text.get(start..words.end)?.trim_ascii());
    words.accept_mark(b'.').then_some(())?;
    words.next()?;
    let name = text.get(start..words.end)?.trim_ascii().to_vec();
    // Without parameters it is a function of a library.
    words.accept_mark(b'(').then_some(())?;
    Some(Routine { kind: kind?, name, database })
}

fn unquoted(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    match name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) {
        Some(name) => name.replace("``", "`"),
        None => name.into_owned(),
    }
}

/// Roles that the channel's account administers for the time of one statement.
pub(super) struct LentRoles {
    connection: Connection,
    /// Each with whether it was granted to the account before.
    roles: Vec<(String, bool)>,
}

/// Has the channel's account administer the roles that a statement grants or revokes, if that is what `error` says that it lacks.
///
/// # Errors
/// [`ApplyError::Session`] for anything but a refusal.
pub(super) async fn lend_roles(
    shared: &Arc<Shared>,
    text: &[u8],
    error: &ServerError,
) -> Result<Option<LentRoles>, ApplyError> {
    if error.number != NOT_ADMIN || shared.flavour != Flavour::MariaDb || !grants(text) {
        return Ok(None);
    }
    let mut connection = aside(shared).await?;
    match LentRoles::lend(&mut connection, text).await {
        Ok(roles) if roles.is_empty() => Ok(None),
        Ok(roles) => Ok(Some(LentRoles { connection, roles })),
        Err(error) => unless_refused(error).map(|()| None),
    }
}

/// The account of the session in the columns of `mysql.roles_mapping`.
const OWN_ROLES: &str = "Host=SUBSTRING_INDEX(CURRENT_USER(), '@', -1) AND User=LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - \
     CHAR_LENGTH(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)) - 1)";

/// Makes the server read its tables again.
const RELOAD: &str = "FLUSH NO_WRITE_TO_BINLOG PRIVILEGES";

impl LentRoles {
    async fn lend(connection: &mut Connection, text: &[u8]) -> Result<Vec<(String, bool)>, SessionError> {
        let sql = format!(
            "SELECT u.User, COALESCE(MAX(m.Admin_option), '') FROM mysql.user u LEFT JOIN \
             (SELECT * FROM mysql.roles_mapping WHERE {OWN_ROLES}) m ON m.Role=u.User WHERE u.is_role='Y' GROUP BY u.User"
        );
        let rows = connection.query(&sql).await?;
        let mut roles = Vec::new();
        for row in &rows.rows {
            let (role, option) = (row.get_str(0).unwrap_or_default(), row.get_str(1).unwrap_or_default());
            let is_named =
                text.windows(role.len().max(1)).any(|part| part.eq_ignore_ascii_case(role.as_bytes()));
            if is_named && option != "Y" {
                roles.push((role.to_owned(), option == "N"));
            }
        }
        for (role, _) in &roles {
            let sql = format!(
                "REPLACE INTO mysql.roles_mapping (Host, User, Role, Admin_option) SELECT \
                 SUBSTRING_INDEX(CURRENT_USER(), '@', -1), LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - \
                 CHAR_LENGTH(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)) - 1), {}, 'Y'",
                quote(role)
            );
            connection.execute(&sql).await?;
        }
        if !roles.is_empty() {
            connection.execute(RELOAD).await?;
        }
        Ok(roles)
    }

    /// Has the account be what it was.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn take_back(mut self) -> Result<(), ApplyError> {
        for (role, was_granted) in &self.roles {
            let role = quote(role);
            let sql = match was_granted {
                true => format!(
                    "UPDATE mysql.roles_mapping SET Admin_option='N' WHERE {OWN_ROLES} AND Role={role}"
                ),
                false => format!("DELETE FROM mysql.roles_mapping WHERE {OWN_ROLES} AND Role={role}"),
            };
            self.connection.execute(&sql).await?;
        }
        self.connection.execute(RELOAD).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routines_are_known_with_their_databases() {
        let named = |text: &str| {
            routine(text.as_bytes()).map(|found| {
                format!("{} {} {}", found.kind, found.database, String::from_utf8_lossy(&found.name))
            })
        };
        for (text, expected) in [
            ("CREATE DEFINER=`a`@`b` PROCEDURE `d`.`p`()\nSELECT 1", Some("PROCEDURE d `d`.`p`")),
            (
                "CREATE OR REPLACE DEFINER=`a`@`b` FUNCTION `d``1`.f(a INT) RETURNS INT RETURN 1",
                Some("FUNCTION d`1 `d``1`.f"),
            ),
            ("CREATE PROCEDURE IF NOT EXISTS d.`p`() SELECT 1", Some("PROCEDURE d d.`p`")),
            ("CREATE FUNCTION f RETURNS STRING SONAME 'f.so'", None),
            ("CREATE TABLE `procedure` (a INT)", None),
            ("CREATE DEFINER=a@b EVENT e ON SCHEDULE EVERY 1 DAY DO CREATE PROCEDURE d.p() SELECT 1", None),
            ("DROP PROCEDURE d.p", None),
            ("CREATE", None),
        ] {
            assert_eq!(named(text).as_deref(), expected, "{text}");
        }
    }
}
