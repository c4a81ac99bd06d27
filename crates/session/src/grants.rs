//! Whether the user may do what a job needs: asked before, so that the answer is a GRANT statement to run rather than
//! a refusal half-way.

use tailwater_wire::Flavour;

use crate::connection::Connection;
use crate::error::SessionError;

/// MariaDB 10.5 split REPLICATION CLIENT up; BINLOG MONITOR is the part that looks at binlogs.
const BINLOG_MONITOR_SINCE: (u16, u16, u16) = (10, 5, 2);

/// What a user is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Receive the binlog, list its files, and look at where it stands. Semi-sync needs nothing beyond.
    Capture,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Self::Capture => "capturing the binlog",
        }
    }

    /// The global privileges that the purpose needs, by the names that the server prints.
    fn privileges(self, flavour: Flavour, version: (u16, u16, u16)) -> &'static [&'static str] {
        match (self, flavour) {
            (Self::Capture, Flavour::MariaDb) if version >= BINLOG_MONITOR_SINCE => {
                &["REPLICATION SLAVE", "BINLOG MONITOR"]
            }
            (Self::Capture, Flavour::MySql | Flavour::MariaDb) => {
                &["REPLICATION SLAVE", "REPLICATION CLIENT"]
            }
        }
    }
}

/// Checks that the user of `connection` has what `purpose` needs, through roles that are active too.
///
/// # Errors
/// [`SessionError::MissingGrant`] names what is missing and the statement that grants it; the connection stays in
/// order. Anything that breaks the connection.
pub async fn check_grants(connection: &mut Connection, purpose: Purpose) -> Result<(), SessionError> {
    const DOING: &str = "looking at the user's grants";
    let needed = purpose.privileges(connection.server().flavour, connection.server().version);
    let grants = connection.query("SHOW GRANTS").await?;
    let texts = grants.rows.iter().filter_map(|row| row.get_str(0));
    let missing = missing_privileges(texts, needed);
    if missing.is_empty() {
        return Ok(());
    }
    let account = connection.query("SELECT CURRENT_USER()").await?;
    let Some(account) = account.scalar() else {
        let reason = "CURRENT_USER() gave no text".to_owned();
        return Err(SessionError::UnexpectedResult { doing: DOING, reason });
    };
    let account = quoted_account(account);
    let missing = missing.join(", ");
    Err(SessionError::MissingGrant {
        statement: format!("GRANT {missing} ON *.* TO {account}"),
        user: account,
        missing,
        purpose: purpose.name(),
    })
}

/// Which of the `needed` global privileges none of the lines of `SHOW GRANTS` gives.
fn missing_privileges<'a>(
    grants: impl Iterator<Item = &'a str>,
    needed: &'static [&'static str],
) -> Vec<&'static str> {
    let mut missing = needed.to_vec();
    for grant in grants {
        let Some((privileges, _)) =
            grant.strip_prefix("GRANT ").and_then(|grant| grant.split_once(" ON *.* TO "))
        else {
            continue;
        };
        for privilege in privileges.split(',').map(str::trim) {
            missing.retain(|needed| !privilege.eq_ignore_ascii_case(needed));
            if ["ALL PRIVILEGES", "ALL"].iter().any(|all| privilege.eq_ignore_ascii_case(all)) {
                return Vec::new();
            }
        }
    }
    missing
}

/// `user@host` as the server prints it, in the quotes that a statement needs.
fn quoted_account(account: &str) -> String {
    let (user, host) = account.rsplit_once('@').unwrap_or((account, "%"));
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    format!("{}@{}", quoted(user), quoted(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing() {
        const CAPTURE: &[&str] = &["REPLICATION SLAVE", "REPLICATION CLIENT"];
        for (grants, expected) in [
            (&["GRANT USAGE ON *.* TO `u`@`%`"][..], CAPTURE),
            (&["GRANT REPLICATION SLAVE ON *.* TO `u`@`%`"], &["REPLICATION CLIENT"]),
            (
                &["GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `u`@`%` WITH GRANT OPTION"],
                &[],
            ),
            (
                &["GRANT REPLICATION SLAVE ON *.* TO `u`@`%`", "GRANT REPLICATION CLIENT ON *.* TO `u`@`%`"],
                &[],
            ),
            (
                &[
                    "GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` IDENTIFIED BY PASSWORD '*x' WITH GRANT OPTION",
                ],
                &[],
            ),
            (&["GRANT ALL PRIVILEGES ON `d`.* TO `u`@`%`", "GRANT `role`@`%` TO `u`@`%`"], CAPTURE),
            (&[], CAPTURE),
        ] {
            assert_eq!(missing_privileges(grants.iter().copied(), CAPTURE), expected, "{grants:?}");
        }
    }

    #[test]
    fn each_server_has_its_own_names() {
        let of = |flavour, version| Purpose::Capture.privileges(flavour, version)[1];
        assert_eq!(of(Flavour::MySql, (9, 7, 1)), "REPLICATION CLIENT");
        assert_eq!(of(Flavour::MariaDb, (10, 4, 30)), "REPLICATION CLIENT");
        assert_eq!(of(Flavour::MariaDb, (10, 11, 6)), "BINLOG MONITOR");
    }

    #[test]
    fn accounts_are_quoted() {
        assert_eq!(quoted_account("o'neil@10.0.0.%"), "'o''neil'@'10.0.0.%'");
        assert_eq!(quoted_account("a@b@localhost"), "'a@b'@'localhost'");
    }
}
