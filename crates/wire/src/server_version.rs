//! Server versions, and the server features that Tailwater uses from a certain version on.
//!
//! Versions are compared as (major, minor, patch). MySQL's calendar versions (`26.7.0`) have larger numbers
//! than all earlier versions (`9.7.0`), so they count as newer.

use crate::Flavour;

/// The prefix that MariaDB 10 puts before its version in the greeting, so that MySQL replicas accept it as a
/// source.
const MARIADB_VERSION_PREFIX: &str = "5.5.5-";

/// Returns a version text without the `5.5.5-` that MariaDB 10 puts before it.
pub fn without_replication_prefix(text: &str) -> &str {
    match text.strip_prefix(MARIADB_VERSION_PREFIX) {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => rest,
        _ => text,
    }
}

/// Parses `major.minor.patch` at the start of a version text, after the prefix that MariaDB 10 puts there. A
/// missing number is 0. A number that is too large for `u16` becomes [`u16::MAX`].
pub fn parse_version(text: &str) -> (u16, u16, u16) {
    let text = without_replication_prefix(text);
    let mut numbers = text.splitn(3, '.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let digits = &part[..digits];
        digits.parse().unwrap_or(if digits.is_empty() { 0 } else { u16::MAX })
    });
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// A feature that servers have from a certain version on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFeature {
    /// The format description event has a byte for the checksum algorithm.
    BinlogChecksums,
    /// The privilege `SYSTEM_VARIABLES_ADMIN`.
    SystemVariablesAdmin,
    /// The privilege `SESSION_VARIABLES_ADMIN`.
    SessionVariablesAdmin,
    /// The session variable `original_server_version`.
    OriginalServerVersion,
    /// `SHOW REPLICA STATUS` and `SHOW REPLICAS`. MySQL 8.4 removed the older forms with `SLAVE`.
    ShowReplicaStatus,
    /// Generated invisible primary keys, `show_gipk_in_create_table_and_information_schema`.
    GeneratedInvisiblePrimaryKeys,
    /// `SHOW BINARY LOG STATUS`. MySQL 8.4 removed `SHOW MASTER STATUS`.
    ShowBinaryLogStatus,
    /// `DISABLE ON REPLICA` in `CREATE EVENT`. The older `DISABLE ON SLAVE` is deprecated since the same
    /// version.
    DisableOnReplica,
    /// `CREATE LIBRARY` and `information_schema.libraries`.
    Libraries,
    /// The hypergraph optimizer in every build.
    HypergraphOptimizer,
    /// The privileges that MariaDB split off from `SUPER` and `REPLICATION CLIENT`, such as `BINLOG MONITOR`.
    BinlogMonitorPrivilege,
    /// `CRC32` with two arguments. The first is the checksum from which the computation continues.
    ContinuedCrc32,
    /// `GRANT ... TO PUBLIC`, and `SHOW GRANTS FOR PUBLIC`.
    PublicGrants,
}

impl ServerFeature {
    /// Returns the first version of the flavour that has the feature, or `None` if the flavour does not have
    /// it.
    pub const fn since(self, flavour: Flavour) -> Option<(u16, u16, u16)> {
        match (self, flavour) {
            (Self::BinlogChecksums, Flavour::MySql) => Some((5, 6, 1)),
            (Self::SystemVariablesAdmin, Flavour::MySql) => Some((8, 0, 0)),
            (Self::SessionVariablesAdmin | Self::OriginalServerVersion, Flavour::MySql) => Some((8, 0, 14)),
            (Self::ShowReplicaStatus, Flavour::MySql) => Some((8, 0, 22)),
            (Self::GeneratedInvisiblePrimaryKeys, Flavour::MySql) => Some((8, 0, 30)),
            (Self::ShowBinaryLogStatus, Flavour::MySql) => Some((8, 2, 0)),
            (Self::DisableOnReplica, Flavour::MySql) => Some((8, 4, 0)),
            (Self::Libraries, Flavour::MySql) => Some((9, 2, 0)),
            (Self::HypergraphOptimizer, Flavour::MySql) => Some((9, 7, 0)),
            (Self::BinlogChecksums, Flavour::MariaDb) => Some((5, 3, 0)),
            (Self::BinlogMonitorPrivilege, Flavour::MariaDb) => Some((10, 5, 2)),
            (Self::ContinuedCrc32, Flavour::MariaDb) => Some((10, 8, 0)),
            (Self::PublicGrants, Flavour::MariaDb) => Some((10, 11, 0)),
            (_, Flavour::MySql | Flavour::MariaDb) => None,
        }
    }

    /// Returns whether a server of this flavour and version has the feature.
    pub fn is_in(self, flavour: Flavour, version: (u16, u16, u16)) -> bool {
        self.since(flavour).is_some_and(|since| version >= since)
    }
}

#[cfg(test)]
mod tests {
    use super::ServerFeature::*;
    use super::*;

    #[test]
    fn versions_of_both_flavours() {
        for (text, expected) in [
            ("9.7.1", (9, 7, 1)),
            ("8.4.0-debug", (8, 4, 0)),
            ("5.5.5-10.11.14-MariaDB-0+deb12u2-log", (10, 11, 14)),
            ("11.8.3-MariaDB", (11, 8, 3)),
            ("5.5.5-m3", (5, 5, 5)),
            ("5.5.5", (5, 5, 5)),
            ("", (0, 0, 0)),
            ("99999.1", (u16::MAX, 1, 0)),
            // Calendar versions are newer than all earlier versions.
            ("26.7.0", (26, 7, 0)),
            ("2026.07.1-commercial", (2026, 7, 1)),
        ] {
            assert_eq!(parse_version(text), expected, "the version text {text:?} is parsed wrongly");
        }
    }

    /// Checks, for every feature, the last version without it and the first version with it.
    #[test]
    fn every_feature_starts_at_its_version_and_calendar_versions_have_it() {
        let (mysql, mariadb) = (Flavour::MySql, Flavour::MariaDb);
        for (feature, flavour, last_without, first_with) in [
            (BinlogChecksums, mysql, "5.6.0", "5.6.1"),
            (BinlogChecksums, mariadb, "5.2.14-MariaDB", "5.3.0-MariaDB"),
            (SystemVariablesAdmin, mysql, "5.7.44", "8.0.0"),
            (SessionVariablesAdmin, mysql, "8.0.13", "8.0.14"),
            (OriginalServerVersion, mysql, "8.0.13", "8.0.14"),
            (ShowReplicaStatus, mysql, "8.0.21", "8.0.22"),
            (GeneratedInvisiblePrimaryKeys, mysql, "8.0.29", "8.0.30"),
            (ShowBinaryLogStatus, mysql, "8.1.0", "8.2.0"),
            (DisableOnReplica, mysql, "8.3.0", "8.4.0"),
            (Libraries, mysql, "9.1.0", "9.2.0"),
            (HypergraphOptimizer, mysql, "9.6.0", "9.7.0"),
            (BinlogMonitorPrivilege, mariadb, "5.5.5-10.5.1-MariaDB", "5.5.5-10.5.2-MariaDB"),
            (ContinuedCrc32, mariadb, "10.7.8-MariaDB", "10.8.0-MariaDB"),
            (PublicGrants, mariadb, "10.10.7-MariaDB", "10.11.0-MariaDB"),
        ] {
            let is_in = |text: &str| feature.is_in(flavour, parse_version(text));
            assert!(!is_in(last_without), "{last_without} must not have {feature:?}");
            assert!(is_in(first_with), "{first_with} must have {feature:?}");
            let newer: &[&str] = match flavour {
                Flavour::MySql => &["9.7.1", "10.0.0", "26.1.0", "26.7.0", "26.10.0", "2026.07.1-commercial"],
                Flavour::MariaDb => &["11.8.3-MariaDB", "12.3.1-MariaDB", "26.7.0-MariaDB"],
            };
            for text in newer {
                assert!(is_in(text), "{text} must have {feature:?}");
            }
        }
        assert!(!ShowReplicaStatus.is_in(mariadb, (12, 3, 0)), "MariaDB must not have a feature of MySQL");
        assert!(!PublicGrants.is_in(mysql, (26, 7, 0)));
    }
}
