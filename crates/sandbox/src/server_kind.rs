//! The server versions that Tailwater is tested with.

use std::fmt;
use std::str::FromStr;

use tailwater_wire::Flavour;

/// A release series of a server that the sandbox can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServerKind {
    /// MySQL 9.7.
    Mysql97,
    /// MariaDB 10.11, the long-term release of Debian 12.
    Mariadb1011,
    /// MariaDB 11.8, the long-term release after 10.11.
    Mariadb118,
}

impl ServerKind {
    /// All kinds, in the order in which tests use them.
    pub const ALL: [Self; 3] = [Self::Mysql97, Self::Mariadb1011, Self::Mariadb118];

    /// Returns the name used on the command line and for folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mysql97 => "mysql-9.7",
            Self::Mariadb1011 => "mariadb-10.11",
            Self::Mariadb118 => "mariadb-11.8",
        }
    }

    /// Returns the family of the server.
    pub fn flavour(self) -> Flavour {
        match self {
            Self::Mysql97 => Flavour::MySql,
            Self::Mariadb1011 | Self::Mariadb118 => Flavour::MariaDb,
        }
    }

    /// Returns the major and minor version, as in `SELECT VERSION()`.
    pub fn series(self) -> &'static str {
        match self {
            Self::Mysql97 => "9.7",
            Self::Mariadb1011 => "10.11",
            Self::Mariadb118 => "11.8",
        }
    }

    /// Returns the file name of the server program.
    pub fn daemon(self) -> &'static str {
        match self.flavour() {
            Flavour::MySql => "mysqld",
            Flavour::MariaDb => "mariadbd",
        }
    }

    /// Returns the file name of the interactive client.
    pub fn client(self) -> &'static str {
        match self.flavour() {
            Flavour::MySql => "mysql",
            Flavour::MariaDb => "mariadb",
        }
    }

    /// Returns the kind for a flavour and optionally a version or its beginning (`11`, `11.8`, `11.8.3`).
    /// Without a version, `mariadb` means the MariaDB of Debian 12. `None` if the sandbox has no such server.
    pub fn choose(flavour: Flavour, version: Option<&str>) -> Option<Self> {
        let mut kinds = Self::ALL.into_iter().filter(|kind| kind.flavour() == flavour);
        match version {
            None => kinds.next(),
            Some(version) => kinds.find(|kind| {
                let series = kind.series();
                series == version
                    || version.strip_prefix(series).is_some_and(|rest| rest.starts_with('.'))
                    || series.strip_prefix(version).is_some_and(|rest| rest.starts_with('.'))
            }),
        }
    }
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mysql97 => "MySQL 9.7",
            Self::Mariadb1011 => "MariaDB 10.11",
            Self::Mariadb118 => "MariaDB 11.8",
        })
    }
}

impl FromStr for ServerKind {
    type Err = String;

    /// Parses `mysql`, `mariadb`, or either with a version, such as `mariadb-11.8`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (family, version) = match text.split_once('-') {
            Some((family, version)) => (family, Some(version)),
            None => (text, None),
        };
        let flavour = match family {
            "mysql" => Flavour::MySql,
            "mariadb" => Flavour::MariaDb,
            _ => {
                return Err(format!(
                    "unknown server {text:?}: expected mysql or mariadb, or one of {}",
                    names()
                ));
            }
        };
        Self::choose(flavour, version).ok_or_else(|| {
            format!("the sandbox has no {family} {}: expected one of {}", version.unwrap_or(""), names())
        })
    }
}

fn names() -> String {
    ServerKind::ALL.map(ServerKind::name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_family_and_version() {
        let check = |text: &str, want: Option<ServerKind>| {
            assert_eq!(text.parse().ok(), want, "{text} was parsed as a wrong server")
        };
        check("mysql", Some(ServerKind::Mysql97));
        check("mysql-9", Some(ServerKind::Mysql97));
        check("mysql-9.7.1", Some(ServerKind::Mysql97));
        check("mysql-9.70", None);
        check("mariadb", Some(ServerKind::Mariadb1011));
        check("mariadb-10", Some(ServerKind::Mariadb1011));
        check("mariadb-11", Some(ServerKind::Mariadb118));
        check("mariadb-1", None);
        check("percona", None);
        for kind in ServerKind::ALL {
            check(kind.name(), Some(kind));
        }
    }
}
