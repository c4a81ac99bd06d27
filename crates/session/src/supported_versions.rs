//! Which versions of servers are supported: docs/reference/versions.md says the same.

use std::collections::HashSet;
use std::sync::LazyLock;

use parking_lot::Mutex;
use tailwater_wire::Flavour;
use tracing::warn;

use crate::connection::ServerInfo;
use crate::error::SessionError;
use crate::options::Endpoint;

type Version = (u16, u16, u16);

/// The release series of a family.
struct Series {
    /// Older ones are refused: they lack what everything here needs.
    refused_before: Version,
    /// Older ones, and newer ones than the last, are not tried.
    supported_from: Version,
    /// The newest series that is supported, major and minor number.
    newest: (u16, u16),
}

/// Before 5.7 there is neither JSON nor `performance_schema.replication_connection_status`.
const MYSQL: Series = Series { refused_before: (5, 7, 0), supported_from: (8, 0, 26), newest: (9, u16::MAX) };

/// Before 10.2 there is no JSON, no window function and no common table expression.
const MARIADB: Series =
    Series { refused_before: (10, 2, 0), supported_from: (10, 6, 0), newest: (12, u16::MAX) };

/// How a version relates to those that are supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionSupport {
    /// It is one of them.
    Supported,
    /// It is older, and may work.
    Older,
    /// It is newer than this Tailwater knows, and may work.
    Newer,
    /// It is too old to work.
    TooOld,
}

fn series(flavour: Flavour) -> &'static Series {
    match flavour {
        Flavour::MySql => &MYSQL,
        Flavour::MariaDb => &MARIADB,
    }
}

/// How a version relates to those that are supported.
pub fn support_of(flavour: Flavour, version: (u16, u16, u16)) -> VersionSupport {
    let series = series(flavour);
    match version {
        // A server that does not say, such as a proxy.
        (0, 0, 0) => VersionSupport::Supported,
        version if version < series.refused_before => VersionSupport::TooOld,
        version if version < series.supported_from => VersionSupport::Older,
        (major, minor, _) if (major, minor) > series.newest => VersionSupport::Newer,
        _ => VersionSupport::Supported,
    }
}

/// What is supported, for messages.
fn supported(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::MySql => "MySQL 8.0.26 to 9.x",
        Flavour::MariaDb => "MariaDB 10.6 to 12.x",
    }
}

/// Refuses a server that is too old to work.
///
/// # Errors
/// [`SessionError::ServerTooOld`].
pub(crate) fn refuse_too_old(server: &ServerInfo, endpoint: &Endpoint) -> Result<(), SessionError> {
    match support_of(server.flavour, server.version) {
        VersionSupport::TooOld => Err(SessionError::ServerTooOld {
            endpoint: endpoint.to_string(),
            server: format!("{} {}", server.flavour, server.version_text),
            supported: supported(server.flavour),
        }),
        _ => Ok(()),
    }
}

/// Says once for each server that it is not one of those that are supported.
pub(crate) fn warn_once(flavour: Flavour, version: Version, endpoint: &Endpoint) {
    static SAID: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let how = match support_of(flavour, version) {
        VersionSupport::Older => "older than",
        VersionSupport::Newer => "newer than",
        VersionSupport::Supported | VersionSupport::TooOld => return,
    };
    let (major, minor, patch) = version;
    let server = format!("{flavour} {major}.{minor}.{patch} at {endpoint}");
    if SAID.lock().insert(server.clone()) {
        warn!("{server} is {how} the supported {}: it may work, and is not tried", supported(flavour));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_placed_among_the_supported() {
        use Flavour::{MariaDb, MySql};
        for (flavour, version, expected) in [
            (MySql, (5, 6, 51), VersionSupport::TooOld),
            (MySql, (5, 7, 44), VersionSupport::Older),
            (MySql, (8, 0, 25), VersionSupport::Older),
            (MySql, (8, 0, 26), VersionSupport::Supported),
            (MySql, (8, 4, 6), VersionSupport::Supported),
            (MySql, (9, 7, 4), VersionSupport::Supported),
            (MySql, (10, 0, 0), VersionSupport::Newer),
            (MySql, (26, 7, 0), VersionSupport::Newer),
            (MySql, (2026, 7, 0), VersionSupport::Newer),
            (MariaDb, (5, 5, 68), VersionSupport::TooOld),
            (MariaDb, (10, 1, 48), VersionSupport::TooOld),
            (MariaDb, (10, 5, 29), VersionSupport::Older),
            (MariaDb, (10, 6, 0), VersionSupport::Supported),
            (MariaDb, (11, 8, 9), VersionSupport::Supported),
            (MariaDb, (12, 3, 1), VersionSupport::Supported),
            (MariaDb, (13, 0, 1), VersionSupport::Newer),
        ] {
            assert_eq!(support_of(flavour, version), expected, "{flavour} {version:?}");
        }
    }

    #[test]
    fn the_page_says_the_same() {
        let page = include_str!("../../../docs/reference/versions.md");
        for flavour in [Flavour::MySql, Flavour::MariaDb] {
            assert!(page.contains(supported(flavour)), "{flavour}");
        }
    }
}
