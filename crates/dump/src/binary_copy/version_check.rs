//! Checks whether the versions of servers and tools allow a binary copy, and parses the output of the tools.
//! No I/O.

use tailwater_wire::server_version::parse_version;

use super::BinaryCopyPosition;

/// The first release of MySQL 8.0 that can clone another release of the same series.
const SERIES_CLONES_SINCE_8_0: u16 = 37;

/// The release series of a version, such as `10.11`; `None` if it is not a version.
fn series(version: &str) -> Option<(u16, u16, u16)> {
    Some(parse_version(version)).filter(|version| version.0 > 0)
}

/// Checks whether a MySQL server of version `recipient` may clone a server of version `donor`. The error is
/// the reason why the clone is not possible.
pub(super) fn may_clone(donor: &str, recipient: &str) -> Result<(), String> {
    let (Some(from), Some(to)) = (series(donor), series(recipient)) else {
        return Err(format!("the versions {donor:?} and {recipient:?} cannot be parsed"));
    };
    if (from.0, from.1) != (to.0, to.1) {
        return Err(format!(
            "a server clones only from its own release series, and {donor} is not of the series of {recipient}"
        ));
    }
    if (from.0, from.1) == (8, 0) && from.2 != to.2 && from.2.min(to.2) < SERIES_CLONES_SINCE_8_0 {
        return Err(format!(
            "before 8.0.{SERIES_CLONES_SINCE_8_0} both servers must have the same version, not {donor} and {recipient}"
        ));
    }
    Ok(())
}

/// Checks whether `mariadb-backup` with the version text `tool` can back up a server of `version`. The error
/// is the reason why the backup is not possible.
pub(super) fn may_back_up(tool: &str, version: &str) -> Result<(), String> {
    // Example: "mariadb-backup based on MariaDB server 10.11.18-MariaDB debian-linux-gnu (x86_64)".
    let of_tool = tool.split_once("MariaDB server ").and_then(|(_, version)| series(version));
    let Some(of_tool) = of_tool else {
        return Err(format!("the output of mariadb-backup names no server version: {:?}", tool.trim()));
    };
    match series(version) {
        Some(of_server) if (of_server.0, of_server.1) == (of_tool.0, of_tool.1) => Ok(()),
        _ => Err(format!(
            "mariadb-backup is for {}.{}, but the server is {version}; use the program of the server's release series",
            of_tool.0, of_tool.1
        )),
    }
}

/// Parses the position that `mariadb-backup` writes: file, position and GTID set, separated by tabs.
pub(super) fn point_of_backup(text: &str) -> Option<BinaryCopyPosition> {
    let mut parts = text.trim_end().split('\t');
    let file = parts.next().filter(|file| !file.is_empty())?;
    let position = parts.next()?.parse().ok()?;
    let gtid_set = parts.next().map(str::trim).filter(|set| !set.is_empty());
    Some(BinaryCopyPosition {
        gtid_set: gtid_set.map(str::to_owned),
        binlog_file: Some(file.to_owned()),
        binlog_position: Some(position),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_clones_only_from_its_release_series() {
        for (donor, recipient, may) in [
            ("9.7.4-2", "9.7.0", true),
            ("8.4.3", "8.4.6", true),
            ("8.0.36", "8.0.36", true),
            ("8.0.36", "8.0.37", false),
            ("8.0.37", "8.0.42-0ubuntu", true),
            ("8.4.3", "9.7.0", false),
            ("9.6.0", "9.7.0", false),
            ("26.7.0", "26.7.1", true),
            ("9.7.0", "26.7.0", false),
            ("nonsense", "9.7.0", false),
        ] {
            assert_eq!(
                may_clone(donor, recipient).is_ok(),
                may,
                "{donor} as donor, {recipient} as recipient"
            );
        }
    }

    #[test]
    fn mariadb_backup_must_match_the_release_series_of_the_server() {
        let tool =
            "/usr/bin/mariadb-backup based on MariaDB server 10.11.18-MariaDB debian-linux-gnu (x86_64)\n";
        assert_eq!(may_back_up(tool, "10.11.6-MariaDB-log"), Ok(()));
        assert!(may_back_up(tool, "11.8.3-MariaDB").unwrap_err().contains("10.11"));
        assert!(may_back_up("xtrabackup 8", "11.8.3-MariaDB").is_err());
    }

    #[test]
    fn the_position_that_mariadb_backup_writes_is_parsed() {
        let point = point_of_backup("binlog.000002\t1234\t0-1-5,1-1-7\n").unwrap();
        assert_eq!(point.gtid_set.as_deref(), Some("0-1-5,1-1-7"));
        assert_eq!(
            (point.binlog_file.as_deref(), point.binlog_position),
            (Some("binlog.000002"), Some(1234))
        );
        assert_eq!(point_of_backup("binlog.000002\t1234\t\n").unwrap().gtid_set, None);
        for nothing in ["", "\n", "file", "file\tx\t"] {
            assert_eq!(point_of_backup(nothing), None, "a position was parsed from {nothing:?}");
        }
    }
}
