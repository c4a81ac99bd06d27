//! Parses statements about accounts and routines: the accounts, the roles, the object of a grant, the created
//! routine. It does no I/O.

use super::sql_tokenizer::{SqlToken, SqlTokenizer, unquote};
use crate::transaction_decoder::statement_classifier::wrapped;

/// Returns whether a statement is a GRANT or REVOKE.
pub(super) fn grants(text: &[u8]) -> bool {
    let mut words = SqlTokenizer::new(wrapped(text));
    words.accept("GRANT") || words.accept("REVOKE")
}

/// A routine that a statement creates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Routine {
    pub(super) kind: &'static str,
    /// The routine's name without quotes. `database` is also without quotes.
    pub(super) name: String,
    pub(super) database: String,
    /// Whether the statement has `IF NOT EXISTS`.
    pub(super) unless_exists: bool,
}

/// Returns the routine that a statement creates in a session with the current database `database`.
pub(super) fn routine(text: &[u8], database: &[u8]) -> Option<Routine> {
    let mut words = SqlTokenizer::new(wrapped(text));
    words.accept("CREATE").then_some(())?;
    let mut kind = None;
    while kind.is_none() {
        match words.next()? {
            SqlToken::Word(word) if word.eq_ignore_ascii_case(b"PROCEDURE") => kind = Some("PROCEDURE"),
            SqlToken::Word(word) if word.eq_ignore_ascii_case(b"FUNCTION") => kind = Some("FUNCTION"),
            SqlToken::Word(word) if word.eq_ignore_ascii_case(b"PACKAGE") => {
                kind = Some(if words.accept("BODY") { "PACKAGE BODY" } else { "PACKAGE" });
            }
            SqlToken::Word(word)
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
    let object = words.object()?;
    let kind = kind?;
    // A function without a parameter list is a loadable function, which has no creator.
    (kind.starts_with("PACKAGE") || words.accept_mark(b'(')).then_some(())?;
    let database = object.schema.unwrap_or_else(|| String::from_utf8_lossy(database).into_owned());
    Some(Routine { kind, name: object.name, database, unless_exists })
}

/// Reads the list of accounts that comes next, and returns each as user and host.
fn accounts(words: &mut SqlTokenizer<'_>) -> Vec<(String, String)> {
    let mut accounts: Vec<(String, String)> = Vec::new();
    let mut ahead = words.clone();
    while let Some(token) = ahead.next() {
        match token {
            SqlToken::Word(word)
                if ["WITH", "IDENTIFIED"].iter().any(|end| word.eq_ignore_ascii_case(end.as_bytes())) =>
            {
                break;
            }
            SqlToken::Word(_) | SqlToken::Name => {
                let name = ahead.token_text();
                match (name.strip_prefix(b"@"), accounts.last_mut()) {
                    (Some(host), Some(account)) => account.1 = unquote(host),
                    _ => accounts.push((unquote(name), "%".to_owned())),
                }
            }
            SqlToken::Mark(_) => {}
        }
        *words = ahead.clone();
    }
    accounts
}

/// The object and accounts of a `GRANT` or `REVOKE` on a table or routine.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ObjectGrant {
    pub(super) database: String,
    pub(super) name: String,
    pub(super) accounts: Vec<(String, String)>,
}

impl ObjectGrant {
    /// Parses a statement with the current database `database`. Returns `None` for privileges on a database
    /// or the server, and for roles.
    pub(super) fn of(text: &[u8], database: &[u8]) -> Option<Self> {
        let mut words = SqlTokenizer::new(wrapped(text));
        (words.accept("GRANT") || words.accept("REVOKE")).then_some(())?;
        while !words.accept("ON") {
            words.next()?;
        }
        let kinds = ["TABLE", "FUNCTION", "PROCEDURE"];
        if !kinds.into_iter().any(|kind| words.accept(kind)) && words.accept("PACKAGE") {
            words.accept("BODY");
        }
        let object = words.object()?;
        (words.accept("TO") || words.accept("FROM")).then_some(())?;
        let database = object.schema.unwrap_or_else(|| String::from_utf8_lossy(database).into_owned());
        Some(Self { database, name: object.name, accounts: accounts(&mut words) })
    }
}

/// The roles and accounts of a `GRANT` or `REVOKE` of roles.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RoleGrant {
    is_grant: bool,
    pub(super) roles: Vec<String>,
    /// The accounts, each as user and host.
    pub(super) accounts: Vec<(String, String)>,
    /// Whether the statement has `WITH ADMIN OPTION`.
    pub(super) with_admin: bool,
}

impl RoleGrant {
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let mut words = SqlTokenizer::new(wrapped(text));
        let is_grant = words.accept("GRANT");
        (is_grant || words.accept("REVOKE")).then_some(())?;
        let mut ahead = words.clone();
        if ahead.accept("ADMIN") && ahead.accept("OPTION") && ahead.accept("FOR") {
            words = ahead;
        }
        let mut grant = Self { is_grant, ..Self::default() };
        loop {
            match words.next()? {
                SqlToken::Word(word) if word.eq_ignore_ascii_case(if is_grant { b"TO" } else { b"FROM" }) => {
                    break;
                }
                SqlToken::Word(_) | SqlToken::Name => grant.roles.push(unquote(words.token_text())),
                SqlToken::Mark(_) => {}
            }
        }
        grant.accounts = accounts(&mut words);
        grant.with_admin = words.accept("WITH") && words.accept("ADMIN");
        Some(grant)
    }

    /// Returns whether the statement grants the roles to `account`.
    pub(super) fn grants_to(&self, account: &str) -> bool {
        let Some((own_user, own_host)) = account.rsplit_once('@') else { return false };
        self.is_grant
            && self
                .accounts
                .iter()
                .any(|(user, host)| user == own_user && host.eq_ignore_ascii_case(own_host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_names_are_parsed_completely() {
        let grant = |text: &str| RoleGrant::of(text.as_bytes()).unwrap_or_default();
        assert_eq!(grant("GRANT r1, `r``2` TO x@h").roles, ["r1", "r`2"]);
        assert_eq!(grant("REVOKE ADMIN OPTION FOR admin FROM r").roles, ["admin"]);
        assert_eq!(grant("SET STATEMENT lock_wait_timeout=5 FOR GRANT admin TO x").roles, ["admin"]);
        assert!(!grant("GRANT 'reader' TO r").roles.contains(&"r".to_owned()));
        let both = grant("GRANT r TO a@'h', b, \"c\"@h WITH ADMIN OPTION");
        let accounts: Vec<String> =
            both.accounts.iter().map(|(user, host)| format!("{user}@{host}")).collect();
        assert_eq!((accounts, both.with_admin), (vec!["a@h".into(), "b@%".into(), "c@h".into()], true));
        assert!(both.grants_to("a@H") && both.grants_to("b@%") && !both.grants_to("a@%"));
        assert!(!grant("REVOKE r FROM a").grants_to("a@%"));
        assert_eq!(RoleGrant::of(b"CREATE ROLE r"), None);
    }

    #[test]
    fn grant_objects_are_parsed() {
        let granted = |text: &str| {
            let granted = ObjectGrant::of(text.as_bytes(), b"in")?;
            let accounts: Vec<String> =
                granted.accounts.iter().map(|(user, host)| format!("{user}@{host}")).collect();
            Some(format!("{}.{} {}", granted.database, granted.name, accounts.join(" ")))
        };
        for (text, expected) in [
            (
                "GRANT SELECT (a, b), INSERT ON `d`.`t` TO 'x'@'h', y IDENTIFIED BY 'z' WITH GRANT OPTION",
                Some("d.t x@h y@%"),
            ),
            ("REVOKE SELECT ON TABLE t FROM x@h", Some("in.t x@h")),
            ("GRANT EXECUTE ON PROCEDURE d.p TO x@h", Some("d.p x@h")),
            ("GRANT SELECT ON d.* TO x", None),
            ("GRANT SELECT ON *.* TO x", None),
            ("GRANT r TO x", None),
            ("CREATE TABLE t (a INT)", None),
        ] {
            assert_eq!(granted(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn created_routines_are_parsed_with_their_databases() {
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
