//! Checks an account's privileges before a job starts, so that the user sees the missing GRANT statement at
//! the start instead of a failure in the middle of the job.

use tailwater_wire::Flavour;
use tailwater_wire::server_version::ServerFeature;
use tailwater_wire::sql_quote::string_literal;

use crate::connection::Connection;
use crate::error::SessionError;

/// The purpose for which Tailwater uses an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountPurpose {
    /// Receive the binlog, list the binlog files, and read the binlog position. Semi-sync does not need a
    /// further privilege.
    Capture,
    /// Read the replication status, the registered replicas, and who reads the binlog.
    Probe,
    /// Replay row events, with the binlog on or off. The account also needs privileges on the data and on
    /// schema `tailwater`.
    Apply,
    /// Set a server's GTID position, so that native replication continues after it.
    Publish,
    /// Read a consistent snapshot on several connections. A lock is held for a short time.
    Snapshot,
    /// Block DDL during a snapshot. Only for MySQL: on MariaDB this is part of [`AccountPurpose::Snapshot`].
    BlockDdl,
    /// Copy this server to another with MySQL's clone plugin (the donor).
    CloneDonor,
    /// Receive the copy of another server with MySQL's clone plugin (the recipient).
    CloneRecipient,
    /// Make the server a primary or a replica: set replication, semi-sync and `read_only`. To load MySQL's
    /// semi-sync plugin, the account also needs INSERT on `mysql.plugin`.
    Failover,
}

/// Alternative privileges, named as in `SHOW GRANTS`. The account needs one of them.
type AlternativePrivileges = &'static [&'static str];

impl AccountPurpose {
    fn name(self) -> &'static str {
        match self {
            Self::Capture => "capturing the binlog",
            Self::Probe => "reading the replication status",
            Self::Apply => "applying row events",
            Self::Publish => "setting the server's GTID position",
            Self::Snapshot => "taking a snapshot",
            Self::BlockDdl => "blocking DDL",
            Self::CloneDonor => "being cloned",
            Self::CloneRecipient => "cloning another server",
            Self::Failover => "making the server a primary or a replica",
        }
    }

    /// The global privileges that the account needs for this purpose.
    fn privileges(self, flavour: Flavour, version: (u16, u16, u16)) -> &'static [AlternativePrivileges] {
        match (self, flavour) {
            (Self::Capture, Flavour::MariaDb)
                if ServerFeature::BinlogMonitorPrivilege.is_in(flavour, version) =>
            {
                &[&["REPLICATION SLAVE"], &["BINLOG MONITOR"]]
            }
            (Self::Capture, Flavour::MySql | Flavour::MariaDb) => {
                &[&["REPLICATION SLAVE"], &["REPLICATION CLIENT"]]
            }
            (Self::Probe, Flavour::MariaDb)
                if ServerFeature::BinlogMonitorPrivilege.is_in(flavour, version) =>
            {
                // SHOW GRANTS prints the older name of the second privilege.
                &[
                    &["BINLOG MONITOR"],
                    &["REPLICA MONITOR", "SLAVE MONITOR"],
                    &["REPLICATION MASTER ADMIN"],
                    &["PROCESS"],
                ]
            }
            (Self::Probe, Flavour::MySql | Flavour::MariaDb) => {
                &[&["REPLICATION CLIENT"], &["REPLICATION SLAVE"], &["PROCESS"]]
            }
            (Self::Snapshot, _) | (Self::BlockDdl, Flavour::MariaDb) => &[&["RELOAD"]],
            (Self::CloneDonor | Self::CloneRecipient, Flavour::MariaDb) => &[],
            (Self::CloneRecipient, Flavour::MySql) => {
                &[&["CLONE_ADMIN"], &["SYSTEM_VARIABLES_ADMIN", "SUPER"]]
            }
            // Cloning needs BACKUP_ADMIN. With SELECT, Tailwater detects tables that the clone would omit.
            (Self::CloneDonor, Flavour::MySql) => &[&["BACKUP_ADMIN"], &["SELECT"]],
            (Self::BlockDdl, Flavour::MySql) => &[&["BACKUP_ADMIN"]],
            (Self::Apply, Flavour::MySql) => &[
                &["REPLICATION_APPLIER", "BINLOG_ADMIN", "SUPER"],
                &["SESSION_VARIABLES_ADMIN", "SYSTEM_VARIABLES_ADMIN", "SUPER"],
            ],
            (Self::Publish, Flavour::MySql) => &[&["SYSTEM_VARIABLES_ADMIN", "SUPER"]],
            (Self::Failover, Flavour::MySql) => &[
                &["REPLICATION CLIENT"],
                &["REPLICATION_SLAVE_ADMIN", "SUPER"],
                &["SYSTEM_VARIABLES_ADMIN", "SUPER"],
                // Either privilege allows writes while `read_only` is on, for example to load the semi-sync
                // plugin.
                &["CONNECTION_ADMIN", "SUPER"],
                &["RELOAD"],
            ],
            (Self::Apply | Self::Publish | Self::Failover, Flavour::MariaDb)
                if !ServerFeature::BinlogMonitorPrivilege.is_in(flavour, version) =>
            {
                &[&["SUPER"]]
            }
            (Self::Apply, Flavour::MariaDb) => &[&["BINLOG REPLAY"], &["BINLOG ADMIN"]],
            (Self::Publish, Flavour::MariaDb) => &[&["REPLICATION SLAVE ADMIN"]],
            (Self::Failover, Flavour::MariaDb) => &[
                &["BINLOG MONITOR"],
                // Accept the older name of the privilege too, because SHOW GRANTS prints it.
                &["SLAVE MONITOR", "REPLICA MONITOR"],
                &["REPLICATION SLAVE ADMIN"],
                &["REPLICATION MASTER ADMIN"],
                &["READ_ONLY ADMIN"],
                &["RELOAD"],
            ],
        }
    }
}

/// Returns the GRANT statement for a purpose, with the privilege names of a current server. The caller must
/// quote `account` as SQL requires.
pub fn grant_statement(purpose: AccountPurpose, flavour: Flavour, account: &str) -> String {
    let newest = (u16::MAX, 0, 0);
    let privileges = purpose.privileges(flavour, newest).iter().filter_map(|needed| needed.first().copied());
    format!("GRANT {} ON *.* TO {account}", privileges.collect::<Vec<_>>().join(", "))
}

/// Checks that the account of `connection` has the privileges of `purpose`. Privileges of its active roles
/// count.
///
/// # Errors
/// [`SessionError::MissingGrant`] with the missing privileges and the GRANT statement; the connection stays
/// usable. Any error that breaks the connection.
pub async fn check_privileges(
    connection: &mut Connection,
    purpose: AccountPurpose,
) -> Result<(), SessionError> {
    let needed = purpose.privileges(connection.server().flavour, connection.server().version);
    let grants = connection.query("SHOW GRANTS").await?;
    let texts = grants.rows.iter().filter_map(|row| row.get_str(0));
    let missing = missing_privileges(texts, needed);
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    let user = own_account(connection).await?;
    let statement = format!("GRANT {missing} ON *.* TO {user}");
    Err(SessionError::MissingGrant { user, missing, purpose: purpose.name(), statement })
}

/// Checks that the account of `connection` has the privilege to load a MySQL plugin: INSERT on the table
/// `mysql.plugin`. [`AccountPurpose::Failover`] needs this privilege if semi-sync is not loaded.
///
/// # Errors
/// The same as for [`check_privileges`].
pub async fn check_plugin_privilege(connection: &mut Connection) -> Result<(), SessionError> {
    let grants = connection.query("SHOW GRANTS").await?;
    if may_load_plugins(grants.rows.iter().filter_map(|row| row.get_str(0))) {
        return Ok(());
    }
    let user = own_account(connection).await?;
    let statement = format!("GRANT INSERT ON mysql.plugin TO {user}");
    let missing = "INSERT on mysql.plugin".to_owned();
    Err(SessionError::MissingGrant { user, missing, purpose: "loading semi-sync", statement })
}

/// The account of a connection, quoted for use in a statement.
async fn own_account(connection: &mut Connection) -> Result<String, SessionError> {
    const DOING: &str = "reading the user's grants";
    let account = connection.query("SELECT CURRENT_USER()").await?;
    let Some(account) = account.scalar() else {
        let reason = "CURRENT_USER() did not return a text".to_owned();
        return Err(SessionError::UnexpectedResult { doing: DOING, reason });
    };
    Ok(quoted_account(account))
}

/// Whether the lines of `SHOW GRANTS` probably grant INSERT on `mysql.plugin`. Three kinds of grants count: a
/// global grant that is not revoked for the schema `mysql`; a grant on the schema `mysql` or on a
/// schema pattern with `%`; a grant on the table.
fn may_load_plugins<'a>(grants: impl Iterator<Item = &'a str>) -> bool {
    let (mut everywhere, mut revoked) = (false, false);
    for grant in grants {
        let Some((verb, (privileges, rest))) =
            grant.split_once(' ').and_then(|(verb, rest)| Some((verb, rest.split_once(" ON ")?)))
        else {
            continue;
        };
        let gives = |privilege: &str| {
            ["INSERT", "ALL", "ALL PRIVILEGES"].iter().any(|wanted| privilege.eq_ignore_ascii_case(wanted))
        };
        if !privileges.split(',').map(str::trim).any(gives) {
            continue;
        }
        let object = rest.split([' ']).next().unwrap_or_default().replace('`', "");
        match (verb, object.as_str()) {
            ("GRANT", "*.*") => everywhere = true,
            ("REVOKE", "mysql.*") => revoked = true,
            ("GRANT", "mysql.plugin" | "mysql.*") => return true,
            ("GRANT", pattern) if pattern.ends_with(".*") && pattern.contains('%') => return true,
            _ => {}
        }
    }
    everywhere && !revoked
}

/// The global privileges in `needed` that no line of `SHOW GRANTS` grants.
fn missing_privileges<'a>(
    grants: impl Iterator<Item = &'a str>,
    needed: &'static [AlternativePrivileges],
) -> Vec<&'static str> {
    let mut missing = needed.to_vec();
    for grant in grants {
        let Some((privileges, _)) =
            grant.strip_prefix("GRANT ").and_then(|grant| grant.split_once(" ON *.* TO "))
        else {
            continue;
        };
        for privilege in privileges.split(',').map(str::trim) {
            missing.retain(|needed| !needed.iter().any(|needed| privilege.eq_ignore_ascii_case(needed)));
            if ["ALL PRIVILEGES", "ALL"].iter().any(|all| privilege.eq_ignore_ascii_case(all)) {
                return Vec::new();
            }
        }
    }
    missing.iter().filter_map(|needed| needed.first().copied()).collect()
}

/// Quotes `user@host` for use in a statement.
fn quoted_account(account: &str) -> String {
    let (user, host) = account.rsplit_once('@').unwrap_or((account, "%"));
    format!("{}@{}", string_literal(user), string_literal(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_privileges_are_found() {
        const NEEDED: &[AlternativePrivileges] = &[&["REPLICATION SLAVE"], &["REPLICATION CLIENT", "SUPER"]];
        const CAPTURE: &[&str] = &["REPLICATION SLAVE", "REPLICATION CLIENT"];
        for (grants, expected) in [
            (&["GRANT USAGE ON *.* TO `u`@`%`"][..], CAPTURE),
            (&["GRANT REPLICATION SLAVE ON *.* TO `u`@`%`"], &["REPLICATION CLIENT"]),
            (&["GRANT SUPER ON *.* TO `u`@`%`"], &["REPLICATION SLAVE"]),
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
            assert_eq!(
                missing_privileges(grants.iter().copied(), NEEDED),
                expected,
                "the check returned the wrong result for these grants: {grants:?}"
            );
        }
    }

    #[test]
    fn the_privilege_to_load_plugins_is_found() {
        for (grants, expected) in [
            (&["GRANT USAGE ON *.* TO `u`@`%`"][..], false),
            (&["GRANT SELECT, INSERT, UPDATE ON *.* TO `root`@`localhost` WITH GRANT OPTION"], true),
            (&["GRANT ALL PRIVILEGES ON *.* TO `u`@`%`"], true),
            (&["GRANT USAGE ON *.* TO `u`@`%`", "GRANT INSERT ON `mysql`.`plugin` TO `u`@`%`"], true),
            (&["GRANT SELECT, INSERT ON `mysql`.* TO `u`@`%`"], true),
            (&["GRANT INSERT ON `my%`.* TO `u`@`%`"], true),
            (&["GRANT INSERT ON `shop`.* TO `u`@`%`", "GRANT SELECT ON `mysql`.* TO `u`@`%`"], false),
            (&["GRANT INSERT ON *.* TO `u`@`%`", "REVOKE INSERT, UPDATE ON `mysql`.* FROM `u`@`%`"], false),
            (
                &[
                    "GRANT INSERT ON *.* TO `u`@`%`",
                    "REVOKE INSERT ON `mysql`.* FROM `u`@`%`",
                    "GRANT INSERT ON `mysql`.`plugin` TO `u`@`%`",
                ],
                true,
            ),
            (&["GRANT `role`@`%` TO `u`@`%`", "GRANT SYSTEM_VARIABLES_ADMIN ON *.* TO `u`@`%`"], false),
            (&[], false),
        ] {
            assert_eq!(
                may_load_plugins(grants.iter().copied()),
                expected,
                "the check returned the wrong result for these grants: {grants:?}"
            );
        }
    }

    #[test]
    fn privilege_names_depend_on_the_server() {
        let of = |flavour, version| AccountPurpose::Capture.privileges(flavour, version)[1][0];
        assert_eq!(of(Flavour::MySql, (9, 7, 1)), "REPLICATION CLIENT");
        assert_eq!(of(Flavour::MariaDb, (10, 4, 30)), "REPLICATION CLIENT");
        assert_eq!(of(Flavour::MariaDb, (10, 11, 6)), "BINLOG MONITOR");
        assert_eq!(
            grant_statement(AccountPurpose::Apply, Flavour::MySql, "'u'@'%'"),
            "GRANT REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN ON *.* TO 'u'@'%'"
        );
    }

    #[test]
    fn accounts_are_quoted() {
        assert_eq!(quoted_account("o'neil@10.0.0.%"), "'o''neil'@'10.0.0.%'");
        assert_eq!(quoted_account("a@b@localhost"), "'a@b'@'localhost'");
    }
}
