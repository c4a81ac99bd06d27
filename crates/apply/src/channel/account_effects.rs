//! What a statement about accounts does besides what its text says, because of whose session it is.
//!
//! A server's own replication thread has an account's name from the event and no privileges to lack. A client's session is the
//! channel's account: it would be noted as the grantor, would not give a routine's creator rights to it, and may not grant a role that
//! it does not administer (MariaDB). What is done about that is the target's own affair, and not in its binlog.

use std::sync::Arc;

use tailwater_session::{Connection, ServerError, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::event::Invoker;
use tracing::{debug, warn};

use super::changed_tables::unquoted;
use super::invoker::account_name;
use super::options::{ChannelOptions, GtidMode};
use super::sql_words::{Token, Words};
use super::text::quote;
use super::worker::Shared;
use super::writer::connect;
use crate::decode::statement::wrapped;
use crate::error::ApplyError;
use crate::transaction::Transaction;

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
    /// What the statement grants on. Of this the grantor is the statement's, whoever granted it before.
    granted: Option<Granted>,
    /// The routine that it makes: its kind, database and name as the statement spells them.
    routine: Option<Routine>,
}

/// A routine that a statement makes.
#[derive(Debug, PartialEq, Eq)]
struct Routine {
    kind: &'static str,
    /// Without quotes, as is its database.
    name: String,
    database: String,
    /// `IF NOT EXISTS`
    unless_exists: bool,
}

impl AccountEffects {
    /// What a statement that is about to run has besides; `None` if nothing.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn before(
        shared: &Arc<Shared>,
        text: &[u8],
        database: &[u8],
        invoker: Option<&Invoker<'_>>,
    ) -> Result<Option<Self>, ApplyError> {
        let Some(mut effects) = Self::of(shared, text, database, invoker).await? else { return Ok(None) };
        // MariaDB gives it to whoever runs that, too.
        let is_passed_over =
            |routine: &mut Routine| routine.unless_exists && shared.flavour == Flavour::MySql;
        if let Some(routine) = effects.routine.take_if(is_passed_over)
            && !effects.is_there(&routine).await?
        {
            effects.routine = Some(routine);
        }
        Ok(Some(effects))
    }

    /// What a statement that has run has besides. Who has granted before is not known: of a grant, all looks like before.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn after(
        shared: &Arc<Shared>,
        text: &[u8],
        database: &[u8],
        invoker: Option<&Invoker<'_>>,
    ) -> Result<Option<Self>, ApplyError> {
        Self::of(shared, text, database, invoker).await
    }

    async fn of(
        shared: &Arc<Shared>,
        text: &[u8],
        database: &[u8],
        invoker: Option<&Invoker<'_>>,
    ) -> Result<Option<Self>, ApplyError> {
        let routine = routine(text, database);
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
        let granted = Granted::of(text, database);
        Ok(Some(Self { connection, grantor, account: account_name(invoker), before, granted, routine }))
    }

    /// Does it; of a statement that has ended with an error, `has_run` is false, and it has made no routine.
    ///
    /// # Errors
    /// [`ApplyError::Session`] for anything but a refusal.
    pub(super) async fn carry_out(mut self, has_run: bool) -> Result<(), ApplyError> {
        if let Some(routine) = self.routine.take_if(|_| has_run) {
            self.give_to_creator(&routine).await?;
        }
        for ((table, key), before) in GRANTOR_TABLES.iter().zip(std::mem::take(&mut self.before)) {
            let kept: Vec<String> = before.iter().map(|key| quote(key)).collect();
            let granted = self.granted.as_ref().and_then(|granted| granted.condition(table));
            let kept = match kept.is_empty() {
                true => String::new(),
                false => format!(
                    " AND (HEX(CONCAT_WS('/', {key})) NOT IN ({}){})",
                    kept.join(","),
                    granted.map(|granted| format!(" OR {granted}")).unwrap_or_default()
                ),
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

    /// Whether the target has a routine of that name: `CREATE ... IF NOT EXISTS` then does nothing.
    async fn is_there(&mut self, routine: &Routine) -> Result<bool, ApplyError> {
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.routines WHERE routine_type='{}' AND routine_schema={} AND routine_name={}",
            routine.kind,
            quote(&routine.database),
            quote(&routine.name)
        );
        Ok(self.connection.query(&sql).await?.scalar() != Some("0"))
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
        let identifier = |name: &str| format!("`{}`", name.replace('`', "``"));
        let (database, name) = (identifier(&routine.database), identifier(&routine.name));
        let on = format!("GRANT EXECUTE, ALTER ROUTINE ON {} {database}.{name} TO ", routine.kind);
        let grant = [on.as_bytes(), &self.account].concat();
        // Older MariaDB knows packages in this mode only.
        let is_package = routine.kind.starts_with("PACKAGE");
        if is_package {
            self.connection.execute("SET SESSION sql_mode='ORACLE'").await?;
        }
        let granted = self.connection.execute_bytes(&grant).await;
        if is_package {
            self.connection.execute("SET SESSION sql_mode=''").await?;
        }
        if let Err(error) = granted {
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

/// The routine that a statement makes whose session is in `database`.
fn routine(text: &[u8], database: &[u8]) -> Option<Routine> {
    let mut words = Words::new(wrapped(text));
    words.accept("CREATE").then_some(())?;
    let mut kind = None;
    while kind.is_none() {
        match words.next()? {
            Token::Word(word) if word.eq_ignore_ascii_case(b"PROCEDURE") => kind = Some("PROCEDURE"),
            Token::Word(word) if word.eq_ignore_ascii_case(b"FUNCTION") => kind = Some("FUNCTION"),
            Token::Word(word) if word.eq_ignore_ascii_case(b"PACKAGE") => {
                kind = Some(if words.accept("BODY") { "PACKAGE BODY" } else { "PACKAGE" });
            }
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
    let unless_exists = words.accept("IF");
    if unless_exists {
        (words.accept("NOT") && words.accept("EXISTS")).then_some(())?;
    }
    words.next()?;
    let mut database = String::from_utf8_lossy(database).into_owned();
    let mut name = unquoted(words.token_text());
    if words.accept_mark(b'.') {
        words.next()?;
        database = std::mem::replace(&mut name, unquoted(words.token_text()));
    }
    let kind = kind?;
    // Without parameters it is a function of a library.
    (kind.starts_with("PACKAGE") || words.accept_mark(b'(')).then_some(())?;
    Some(Routine { kind, name, database, unless_exists })
}

/// The accounts of a list that follows: user and host.
fn accounts(words: &mut Words<'_>) -> Vec<(String, String)> {
    let mut accounts: Vec<(String, String)> = Vec::new();
    let mut ahead = words.clone();
    while let Some(token) = ahead.next() {
        match token {
            Token::Word(word)
                if ["WITH", "IDENTIFIED"].iter().any(|end| word.eq_ignore_ascii_case(end.as_bytes())) =>
            {
                break;
            }
            Token::Word(_) | Token::Name => {
                let name = ahead.token_text();
                match (name.strip_prefix(b"@"), accounts.last_mut()) {
                    (Some(host), Some(account)) => account.1 = unquoted(host),
                    _ => accounts.push((unquoted(name), "%".to_owned())),
                }
            }
            Token::Mark(_) => {}
        }
        *words = ahead.clone();
    }
    accounts
}

/// What a `GRANT` or `REVOKE` of privileges on a table or routine names.
#[derive(Debug, PartialEq, Eq)]
struct Granted {
    database: String,
    name: String,
    accounts: Vec<(String, String)>,
}

impl Granted {
    /// In a session that is in `database`; `None` of privileges on a whole database or server, and of roles.
    fn of(text: &[u8], database: &[u8]) -> Option<Self> {
        let mut words = Words::new(wrapped(text));
        (words.accept("GRANT") || words.accept("REVOKE")).then_some(())?;
        while !words.accept("ON") {
            words.next()?;
        }
        let kinds = ["TABLE", "FUNCTION", "PROCEDURE"];
        if !kinds.into_iter().any(|kind| words.accept(kind)) && words.accept("PACKAGE") {
            words.accept("BODY");
        }
        let mut database = String::from_utf8_lossy(database).into_owned();
        let mut name = object_name(&mut words)?;
        if words.accept_mark(b'.') {
            database = std::mem::replace(&mut name, object_name(&mut words)?);
        }
        (words.accept("TO") || words.accept("FROM")).then_some(())?;
        Some(Self { database, name, accounts: accounts(&mut words) })
    }

    /// What finds the rows about it in a table of [`GRANTOR_TABLES`].
    fn condition(&self, table: &str) -> Option<String> {
        let name = match table {
            "tables_priv" => "Table_name",
            "procs_priv" => "Routine_name",
            _ => return None,
        };
        let accounts: Vec<String> =
            self.accounts.iter().map(|(user, host)| format!("({},{})", quote(user), quote(host))).collect();
        (!accounts.is_empty()).then(|| {
            format!(
                "Db={} AND {name}={} AND (User, Host) IN ({})",
                quote(&self.database),
                quote(&self.name),
                accounts.join(",")
            )
        })
    }
}

/// A name that is none of `*`.
fn object_name(words: &mut Words<'_>) -> Option<String> {
    match words.next()? {
        Token::Mark(_) => None,
        Token::Word(_) | Token::Name => Some(unquoted(words.token_text())),
    }
}

/// What a `GRANT` or `REVOKE` of roles names.
#[derive(Debug, Default, PartialEq, Eq)]
struct RoleGrant {
    is_grant: bool,
    roles: Vec<String>,
    /// User and host.
    accounts: Vec<(String, String)>,
    /// `WITH ADMIN OPTION`
    with_admin: bool,
}

impl RoleGrant {
    fn of(text: &[u8]) -> Option<Self> {
        let mut words = Words::new(wrapped(text));
        let is_grant = words.accept("GRANT");
        (is_grant || words.accept("REVOKE")).then_some(())?;
        let mut ahead = words.clone();
        if ahead.accept("ADMIN") && ahead.accept("OPTION") && ahead.accept("FOR") {
            words = ahead;
        }
        let mut grant = Self { is_grant, ..Self::default() };
        loop {
            match words.next()? {
                Token::Word(word) if word.eq_ignore_ascii_case(if is_grant { b"TO" } else { b"FROM" }) => {
                    break;
                }
                Token::Word(_) | Token::Name => grant.roles.push(unquoted(words.token_text())),
                Token::Mark(_) => {}
            }
        }
        grant.accounts = accounts(&mut words);
        grant.with_admin = words.accept("WITH") && words.accept("ADMIN");
        Some(grant)
    }

    /// Whether it grants the roles to `account`.
    fn gives_to(&self, account: &str) -> bool {
        let Some((own_user, own_host)) = account.rsplit_once('@') else { return false };
        self.is_grant
            && self
                .accounts
                .iter()
                .any(|(user, host)| user == own_user && host.eq_ignore_ascii_case(own_host))
    }
}

/// A role that the channel's account administers for the time of one statement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LentRole {
    name: String,
    /// It was granted to the account before.
    was_granted: bool,
}

/// Roles that the channel's account administers for the time of one statement.
pub(super) struct LentRoles {
    connection: Connection,
    gtid: String,
    /// The channel's account.
    account: String,
    grant: RoleGrant,
    roles: Vec<LentRole>,
}

/// Has the channel's account administer the roles that a statement grants or revokes, if that is what `error` says that it lacks.
///
/// # Errors
/// [`ApplyError::Session`] for anything but a refusal; [`ApplyError::Unsupported`] if what was lent could not be taken back.
pub(super) async fn lend_roles(
    shared: &Arc<Shared>,
    transaction: &Transaction,
    text: &[u8],
    error: &ServerError,
) -> Result<Option<LentRoles>, ApplyError> {
    if error.number != NOT_ADMIN || shared.flavour != Flavour::MariaDb {
        return Ok(None);
    }
    let Some(grant) = RoleGrant::of(text) else { return Ok(None) };
    let mut connection = aside(shared).await?;
    let account = connection.query("SELECT CURRENT_USER()").await?;
    let account = account.scalar().unwrap_or_default().to_owned();
    let gtid = transaction.gtid_text();
    let mut lent = LentRoles { connection, gtid, account, grant, roles: Vec::new() };
    match lent.lend().await {
        Ok(()) if lent.roles.is_empty() => Ok(None),
        Ok(()) => Ok(Some(lent)),
        Err(error) => {
            if !lent.roles.is_empty() {
                lent.take_back(shared, false).await?;
            }
            unless_refused(error).map(|()| None)
        }
    }
}

/// The account of the session in the columns of `mysql.roles_mapping`.
const OWN_ROLES: &str = "Host=SUBSTRING_INDEX(CURRENT_USER(), '@', -1) AND User=LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - \
     CHAR_LENGTH(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)) - 1)";

/// Makes the server read its tables again.
const RELOAD: &str = "FLUSH NO_WRITE_TO_BINLOG PRIVILEGES";

impl LentRoles {
    /// Lends the roles that the grant names; after an error, those in `roles` may be lent.
    async fn lend(&mut self) -> Result<(), SessionError> {
        let sql = format!(
            "SELECT u.User, COALESCE(MAX(m.Admin_option), '') FROM mysql.user u LEFT JOIN \
             (SELECT * FROM mysql.roles_mapping WHERE {OWN_ROLES}) m ON m.Role=u.User WHERE u.is_role='Y' GROUP BY u.User"
        );
        let rows = self.connection.query(&sql).await?;
        for row in &rows.rows {
            let (role, option) = (row.get_str(0).unwrap_or_default(), row.get_str(1).unwrap_or_default());
            if option == "Y" || !self.grant.roles.iter().any(|named| named == role) {
                continue;
            }
            self.roles.push(LentRole { name: role.to_owned(), was_granted: option == "N" });
            let sql = format!(
                "REPLACE INTO mysql.roles_mapping (Host, User, Role, Admin_option) SELECT \
                 SUBSTRING_INDEX(CURRENT_USER(), '@', -1), LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - \
                 CHAR_LENGTH(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)) - 1), {}, 'Y'",
                quote(role)
            );
            self.connection.execute(&sql).await?;
        }
        if !self.roles.is_empty() {
            self.connection.execute(RELOAD).await?;
        }
        Ok(())
    }

    /// Has the account be what it was, and what the statement has made of it if that `has_run`.
    ///
    /// # Errors
    /// [`ApplyError::Unsupported`], which names roles and account, if the target refuses it or cannot be reached.
    pub(super) async fn take_back(mut self, shared: &Arc<Shared>, has_run: bool) -> Result<(), ApplyError> {
        let statements = take_back_statements(&self.roles, &self.grant, &self.account, has_run);
        let mut first = run_all(&mut self.connection, &statements).await;
        if let Err(error) = &first
            && error.server_error().is_none()
            && let Ok(mut connection) = aside(shared).await
        {
            // All of them may be done twice.
            first = run_all(&mut connection, &statements).await;
        }
        first.map_err(|error| self.not_taken_back(&error))
    }

    fn not_taken_back(&self, error: &SessionError) -> ApplyError {
        let roles: Vec<&str> = self.roles.iter().map(|role| role.name.as_str()).collect();
        let (roles, account) = (roles.join(", "), &self.account);
        warn!(account, roles, "the channel's account may still administer roles that it was lent: {error}");
        ApplyError::Unsupported {
            gtid: self.gtid.clone(),
            what: "a statement that grants or revokes a role".to_owned(),
            reason: format!(
                "for its time the channel's account {account} was made administrator of {roles} on the target, and that \
                 could not be undone: {error}; for each of them run `REVOKE ADMIN OPTION FOR role FROM {account}` there, then \
                 start the channel"
            ),
        }
    }
}

/// What has the account be what it was.
fn take_back_statements(roles: &[LentRole], grant: &RoleGrant, account: &str, has_run: bool) -> Vec<String> {
    let gives = has_run && grant.gives_to(account);
    let mut statements = Vec::new();
    for role in roles {
        let name = quote(&role.name);
        match (gives, role.was_granted) {
            // It is to stay administrator.
            (true, _) if grant.with_admin => {}
            (true, _) | (false, true) => statements.push(format!(
                "UPDATE mysql.roles_mapping SET Admin_option='N' WHERE {OWN_ROLES} AND Role={name}"
            )),
            (false, false) => {
                statements.push(format!("DELETE FROM mysql.roles_mapping WHERE {OWN_ROLES} AND Role={name}"))
            }
        }
    }
    statements.push(RELOAD.to_owned());
    statements
}

/// Runs all of them, whatever becomes of one; the first error.
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
    fn roles_are_whole_names() {
        let grant = |text: &str| RoleGrant::of(text.as_bytes()).unwrap_or_default();
        assert_eq!(grant("GRANT r1, `r``2` TO x@h").roles, ["r1", "r`2"]);
        assert_eq!(grant("REVOKE ADMIN OPTION FOR admin FROM r").roles, ["admin"]);
        assert_eq!(grant("SET STATEMENT lock_wait_timeout=5 FOR GRANT admin TO x").roles, ["admin"]);
        assert!(!grant("GRANT 'reader' TO r").roles.contains(&"r".to_owned()));
        let both = grant("GRANT r TO a@'h', b, \"c\"@h WITH ADMIN OPTION");
        let accounts: Vec<String> =
            both.accounts.iter().map(|(user, host)| format!("{user}@{host}")).collect();
        assert_eq!((accounts, both.with_admin), (vec!["a@h".into(), "b@%".into(), "c@h".into()], true));
        assert!(both.gives_to("a@H") && both.gives_to("b@%") && !both.gives_to("a@%"));
        assert!(!grant("REVOKE r FROM a").gives_to("a@%"));
        assert_eq!(RoleGrant::of(b"CREATE ROLE r"), None);
    }

    #[test]
    fn what_the_statement_grants_to_the_channel_stays() {
        let taken = |text: &str, was_granted: bool, has_run: bool| {
            let roles = [LentRole { name: "r".into(), was_granted }];
            let statements =
                take_back_statements(&roles, &RoleGrant::of(text.as_bytes()).unwrap(), "tail@%", has_run);
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

    #[test]
    fn what_is_granted_on_is_known() {
        let condition = |text: &str, table: &str| {
            Granted::of(text.as_bytes(), b"in").and_then(|granted| granted.condition(table))
        };
        let tables = |text: &str| condition(text, "tables_priv").unwrap_or_default();
        assert_eq!(
            tables(
                "GRANT SELECT (a, b), INSERT ON `d`.`t` TO 'x'@'h', y IDENTIFIED BY 'z' WITH GRANT OPTION"
            ),
            "Db='d' AND Table_name='t' AND (User, Host) IN (('x','h'),('y','%'))"
        );
        assert_eq!(
            tables("REVOKE SELECT ON TABLE t FROM x@h"),
            "Db='in' AND Table_name='t' AND (User, Host) IN (('x','h'))"
        );
        assert_eq!(
            condition("GRANT EXECUTE ON PROCEDURE d.p TO x@h", "procs_priv").unwrap_or_default(),
            "Db='d' AND Routine_name='p' AND (User, Host) IN (('x','h'))"
        );
        for text in
            ["GRANT SELECT ON d.* TO x", "GRANT SELECT ON *.* TO x", "GRANT r TO x", "CREATE TABLE t (a INT)"]
        {
            assert_eq!(tables(text), "", "{text}");
        }
    }

    #[test]
    fn routines_are_known_with_their_databases() {
        let named = |text: &str| {
            routine(text.as_bytes(), b"in")
                .map(|found| format!("{} {} {}", found.kind, found.database, found.name))
        };
        for (text, expected) in [
            ("CREATE DEFINER=`a`@`b` PROCEDURE `d`.`p`()\nSELECT 1", Some("PROCEDURE d p")),
            (
                "CREATE OR REPLACE DEFINER=`a`@`b` FUNCTION `d``1`.f(a INT) RETURNS INT RETURN 1",
                Some("FUNCTION d`1 f"),
            ),
            ("CREATE PROCEDURE IF NOT EXISTS d.`p`() SELECT 1", Some("PROCEDURE d p")),
            (r#"CREATE DEFINER="a"@"b" PROCEDURE "d"."p""q"() AS BEGIN NULL; END"#, Some("PROCEDURE d p\"q")),
            ("CREATE OR REPLACE PACKAGE `d`.`k` AS PROCEDURE p(); END", Some("PACKAGE d k")),
            (
                r#"CREATE PACKAGE BODY IF NOT EXISTS "d"."k" AS PROCEDURE p() AS BEGIN NULL; END; END"#,
                Some("PACKAGE BODY d k"),
            ),
            ("CREATE FUNCTION `f`() RETURNS INT RETURN 1", Some("FUNCTION in f")),
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
