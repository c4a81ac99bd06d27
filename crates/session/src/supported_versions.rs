//! The supported server versions, as documented in docs/reference/versions.md.

use std::collections::HashSet;
use std::sync::LazyLock;

use parking_lot::Mutex;
use tailwater_wire::Flavour;
use tracing::warn;

use crate::connection::ServerInfo;
use crate::connection_options::Endpoint;
use crate::error::SessionError;

type VersionNumbers = (u16, u16, u16);

/// The supported versions of one flavour.
struct SupportedRange {
    /// Tailwater refuses versions before this version, because they lack features that it needs.
    refused_before: VersionNumbers,
    /// Tailwater is not tested with versions before this version. It is also not tested with release series
    /// after `newest`.
    supported_from: VersionNumbers,
    /// The newest supported release series: major and minor number.
    newest: (u16, u16),
}

/// MySQL before 5.7 has neither JSON nor `performance_schema.replication_connection_status`.
const MYSQL: SupportedRange =
    SupportedRange { refused_before: (5, 7, 0), supported_from: (8, 0, 26), newest: (9, u16::MAX) };

/// MariaDB before 10.2 has no JSON, no window functions and no common table expressions.
const MARIADB: SupportedRange =
    SupportedRange { refused_before: (10, 2, 0), supported_from: (10, 6, 0), newest: (12, u16::MAX) };

/// Whether a server version is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionSupport {
    /// The version is supported.
    Supported,
    /// The version is older than the supported ones; Tailwater may work with it.
    Older,
    /// The version is newer than the supported ones; Tailwater may work with it.
    Newer,
    /// The version is so old that Tailwater cannot work with it.
    TooOld,
}

fn supported_range(flavour: Flavour) -> &'static SupportedRange {
    match flavour {
        Flavour::MySql => &MYSQL,
        Flavour::MariaDb => &MARIADB,
    }
}

/// Compares a version with the supported versions of its flavour.
pub fn support_of(flavour: Flavour, version: (u16, u16, u16)) -> VersionSupport {
    let range = supported_range(flavour);
    match version {
        // Some proxies announce no version, so accept it.
        (0, 0, 0) => VersionSupport::Supported,
        version if version < range.refused_before => VersionSupport::TooOld,
        version if version < range.supported_from => VersionSupport::Older,
        (major, minor, _) if (major, minor) > range.newest => VersionSupport::Newer,
        _ => VersionSupport::Supported,
    }
}

/// The supported versions as text, for messages.
fn supported(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::MySql => "MySQL 8.0.26 to 9.x",
        Flavour::MariaDb => "MariaDB 10.6 to 12.x",
    }
}

/// Refuses a server whose version is so old that Tailwater cannot work with it.
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

/// Logs a warning once for each server whose version is not supported.
pub(crate) fn warn_once(flavour: Flavour, version: VersionNumbers, endpoint: &Endpoint) {
    static WARNED: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let how = match support_of(flavour, version) {
        VersionSupport::Older => "older than",
        VersionSupport::Newer => "newer than",
        VersionSupport::Supported | VersionSupport::TooOld => return,
    };
    let (major, minor, patch) = version;
    let server = format!("{flavour} {major}.{minor}.{patch} at {endpoint}");
    if WARNED.lock().insert(server.clone()) {
        warn!(
            "{server} is {how} the supported {}: Tailwater may work with it, but is not tested with it",
            supported(flavour)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_classified() {
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
            assert_eq!(support_of(flavour, version), expected, "wrong support of {flavour} {version:?}");
        }
    }

    #[test]
    fn the_documentation_lists_the_same_versions() {
        let page = include_str!("../../../docs/reference/versions.md");
        for flavour in [Flavour::MySql, Flavour::MariaDb] {
            assert!(
                page.contains(supported(flavour)),
                "docs/reference/versions.md lacks the supported versions of {flavour}"
            );
        }
    }
}
