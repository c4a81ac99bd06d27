//! The privileges of a connection's account on databases and tables, read from `SHOW GRANTS`.
//!
//! A server's lists (such as `information_schema`) omit, without an error, the objects that the account lacks
//! the privilege to see. Callers that need complete lists check the privileges first.

use crate::connection::Connection;
use crate::error::SessionError;
use tailwater_wire::server_version::ServerFeature;

/// The privileges of an account, including those of its active roles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserPrivileges {
    granted: Vec<PrivilegeGrant>,
    /// The partial revokes of MySQL. A partial revoke takes a privilege of a global grant away for one
    /// database.
    revoked: Vec<PrivilegeGrant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PrivilegeGrant {
    privileges: Vec<String>,
    /// The database name, with wildcards if the grant is for a database; `None` for all databases.
    schema: Option<String>,
    /// The table; `None` for all tables of the database.
    table: Option<String>,
}

impl UserPrivileges {
    /// Reads the privileges from the server.
    ///
    /// # Errors
    /// Any error breaks the connection.
    pub async fn read(connection: &mut Connection) -> Result<Self, SessionError> {
        /// `ER_OPTION_PREVENTS_STATEMENT`: the server runs with `--skip-grant-tables`, so every account has
        /// all privileges.
        const NO_GRANTS: u16 = 1290;
        let grants = match connection.query("SHOW GRANTS").await {
            Ok(grants) => grants,
            Err(SessionError::Server { error, .. }) if error.number == NO_GRANTS => {
                return Ok(Self::of(std::iter::once("GRANT ALL PRIVILEGES ON *.* TO ``@``")));
            }
            Err(error) => return Err(error),
        };
        let server = connection.server();
        // Every account has the privileges of PUBLIC. On such servers, `SHOW GRANTS` does not list them, so
        // read them separately.
        let public = match server.has(ServerFeature::PublicGrants) {
            true => match connection.query("SHOW GRANTS FOR PUBLIC").await {
                Ok(public) => public.rows,
                Err(SessionError::Server { .. }) => Vec::new(),
                Err(error) => return Err(error),
            },
            false => Vec::new(),
        };
        Ok(Self::of(grants.rows.iter().chain(&public).filter_map(|row| row.get_str(0))))
    }

    /// Parses the lines of `SHOW GRANTS`. A line that cannot be parsed grants nothing.
    fn of<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut privileges = Self::default();
        for line in lines {
            if let Some(grant) = line.strip_prefix("GRANT ").and_then(PrivilegeGrant::parse) {
                privileges.granted.push(grant);
            } else if let Some(grant) = line.strip_prefix("REVOKE ").and_then(PrivilegeGrant::parse) {
                privileges.revoked.push(grant);
            }
        }
        privileges
    }

    /// Whether the account has a global privilege that no partial revoke restricts.
    pub fn has_global(&self, privilege: &str) -> bool {
        let holds = |grant: &PrivilegeGrant| grant.schema.is_none() && grant.names(privilege);
        self.granted.iter().any(holds) && !self.revoked.iter().any(|grant| grant.names(privilege))
    }

    /// Whether the account has a global privilege on all databases except `schemas`. A partial revoke for a
    /// database in `schemas` does not matter.
    pub fn has_global_except(&self, privilege: &str, schemas: &[&str]) -> bool {
        let holds = |grant: &PrivilegeGrant| grant.schema.is_none() && grant.names(privilege);
        let is_of_these =
            |grant: &PrivilegeGrant| grant.schema.as_deref().is_some_and(|schema| schemas.contains(&schema));
        self.granted.iter().any(holds)
            && !self.revoked.iter().any(|grant| grant.names(privilege) && !is_of_these(grant))
    }

    /// Whether the account has a privilege on a whole database.
    pub fn has_on_schema(&self, privilege: &str, schema: &str) -> bool {
        let holds =
            |grant: &PrivilegeGrant| grant.table.is_none() && grant.covers(schema) && grant.names(privilege);
        self.granted.iter().any(holds) && !self.revoked.iter().any(holds)
    }

    /// Whether the account has a privilege on a whole table.
    pub fn has_on_table(&self, privilege: &str, schema: &str, table: &str) -> bool {
        let holds = |grant: &PrivilegeGrant| {
            grant.schema.as_deref() == Some(schema)
                && grant.table.as_deref() == Some(table)
                && grant.names(privilege)
        };
        self.has_on_schema(privilege, schema) || self.granted.iter().any(holds)
    }
}

impl PrivilegeGrant {
    /// Parses the text after GRANT or REVOKE. Returns `None` if it does not concern databases or tables, but
    /// for example roles or routines.
    fn parse(line: &str) -> Option<Self> {
        let (privileges, rest) = line.split_once(" ON ")?;
        let privileges = privileges.split(',').map(|privilege| privilege.trim().to_owned()).collect();
        let rest = rest.strip_prefix("TABLE ").unwrap_or(rest);
        let (schema, rest) = name(rest)?;
        let (table, rest) = name(rest.strip_prefix('.')?)?;
        (rest.starts_with(" TO ") || rest.starts_with(" FROM ")).then_some(Self { privileges, schema, table })
    }

    fn names(&self, wanted: &str) -> bool {
        let all = ["ALL PRIVILEGES", "ALL"];
        let is_it = |privilege: &String| {
            privilege.eq_ignore_ascii_case(wanted)
                || all.iter().any(|all| privilege.eq_ignore_ascii_case(all))
        };
        self.privileges.iter().any(is_it)
    }

    fn covers(&self, schema: &str) -> bool {
        self.schema.as_ref().is_none_or(|pattern| is_like(pattern.as_bytes(), schema.as_bytes()))
    }
}

/// Splits the leading name off `text`. Returns the name and the rest of the text. For a star, the name is
/// `None`.
fn name(text: &str) -> Option<(Option<String>, &str)> {
    if let Some(rest) = text.strip_prefix('*') {
        return Some((None, rest));
    }
    let Some(quoted) = text.strip_prefix('`') else {
        let end = text.find(['.', ' '])?;
        return (end > 0).then(|| (Some(text[..end].to_owned()), &text[end..]));
    };
    let mut name = String::new();
    let mut rest = quoted;
    loop {
        let (part, after) = rest.split_once('`')?;
        name.push_str(part);
        match after.strip_prefix('`') {
            Some(more) => {
                name.push('`');
                rest = more;
            }
            None => return Some((Some(name), after)),
        }
    }
}

/// Whether a name matches a LIKE pattern: `%`, `_`, and backslash as escape.
fn is_like(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut taken) = (0, 0);
    // Where to continue after a mismatch: the position after the last `%` in the pattern, and the position in
    // the name up to which the last attempt matched this `%`.
    let mut again: Option<(usize, usize)> = None;
    while taken < name.len() || at < pattern.len() {
        let (fits, length) = match &pattern[at..] {
            [b'%', ..] => {
                at += 1;
                again = Some((at, taken));
                continue;
            }
            [b'\\', literal, ..] => (name.get(taken) == Some(literal), 2),
            [b'_', ..] => (taken < name.len(), 1),
            [literal, ..] => (name.get(taken) == Some(literal), 1),
            [] => (false, 0),
        };
        if fits {
            (at, taken) = (at + length, taken + 1);
            continue;
        }
        match again {
            Some((resume, tried)) if tried < name.len() => {
                again = Some((resume, tried + 1));
                (at, taken) = (resume, tried + 1);
            }
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(lines: &[&str]) -> UserPrivileges {
        UserPrivileges::of(lines.iter().copied())
    }

    #[test]
    fn grants_apply_to_databases_and_tables() {
        let some = granted(&[
            "GRANT USAGE ON *.* TO `u`@`%`",
            "GRANT SELECT, TRIGGER ON `shop`.* TO `u`@`%`",
            "GRANT SELECT (`TRIGGER`, `a`), INSERT ON `other`.`t` TO `u`@`%` WITH GRANT OPTION",
            "GRANT TRIGGER ON `odd``na.me`.`t` TO `u`@`%`",
            "GRANT EVENT ON my_db.* TO u@localhost",
            "GRANT EXECUTE ON PROCEDURE `more`.`p` TO `u`@`%`",
            "GRANT `role`@`%` TO `u`@`%`",
            "GRANT PROXY ON ''@'%' TO 'u'@'%'",
            "GRANT TRIGGER",
        ]);
        assert!(some.has_on_schema("trigger", "shop") && some.has_on_table("TRIGGER", "shop", "any"));
        assert!(!some.has_on_schema("EVENT", "shop") && !some.has_global("SELECT"));
        assert!(!some.has_on_table("TRIGGER", "other", "t") && some.has_on_table("INSERT", "other", "t"));
        assert!(
            some.has_on_table("TRIGGER", "odd`na.me", "t") && !some.has_on_table("TRIGGER", "odd`na.me", "u")
        );
        assert!(some.has_on_schema("EVENT", "my_db") && some.has_on_schema("EVENT", "myxdb"));
        assert!(!some.has_on_schema("EXECUTE", "more"));
    }

    #[test]
    fn patterns_and_global_grants() {
        let all = granted(&["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION"]);
        assert!(
            all.has_global("TRIGGER")
                && all.has_on_schema("TRIGGER", "x")
                && all.has_on_table("TRIGGER", "x", "y")
        );
        let like = granted(&["GRANT TRIGGER ON `shop\\_%`.* TO `u`@`%`"]);
        assert!(like.has_on_schema("TRIGGER", "shop_1") && !like.has_on_schema("TRIGGER", "shops"));
        for (pattern, name, is) in [
            ("%", "", true),
            ("", "", true),
            ("", "a", false),
            ("a", "", false),
            ("a%b%c", "a-b-b-c", true),
            ("a%b%c", "a-b-b-", false),
            ("%a", "ba", true),
            ("%a", "ab", false),
            ("_", "a", true),
            ("_", "", false),
            ("\\%", "%", true),
            ("\\%", "a", false),
        ] {
            assert_eq!(is_like(pattern.as_bytes(), name.as_bytes()), is, "{pattern} {name}");
        }
        let partly = granted(&["GRANT SELECT ON *.* TO `u`@`%`", "REVOKE SELECT ON `mysql`.* FROM `u`@`%`"]);
        assert!(partly.has_on_schema("SELECT", "shop") && !partly.has_on_schema("SELECT", "mysql"));
        assert!(!partly.has_global("SELECT"));
        assert_eq!(
            granted(&["", "nonsense ON `x", "GRANT X ON `a`.`b", "GRANT X ON .b TO u"]),
            UserPrivileges::default()
        );
    }
}
