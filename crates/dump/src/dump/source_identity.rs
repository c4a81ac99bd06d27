//! Identifies the dumped server, so that a dump can only resume on the same server.

use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use crate::dump_folder::{DumpedFlavour, DumpedServer, Manifest};
use tailwater_tables::error::BulkError;
use tailwater_tables::snapshot::SnapshotPoint;

/// Reads the identity of a server.
///
/// # Errors
/// [`BulkError::Session`].
pub(super) async fn of(connection: &mut Connection) -> Result<DumpedServer, BulkError> {
    // MariaDB has a `server_uid` since about 10.6.
    let (flavour, variable) = match connection.server().flavour {
        Flavour::MySql => (DumpedFlavour::MySql, "server_uuid"),
        Flavour::MariaDb => (DumpedFlavour::MariaDb, "server_uid"),
    };
    let mut values = [None, None];
    for (value, variable) in values.iter_mut().zip([variable, "server_id"]) {
        let shown = connection.query(&format!("SHOW GLOBAL VARIABLES LIKE '{variable}'")).await?;
        *value = shown.first().and_then(|row| row.get_str(1)).map(str::to_owned);
    }
    let [identity, server_id] = values;
    let server_id = server_id.and_then(|id| id.parse().ok());
    Ok(DumpedServer { flavour, version: connection.server().version_text.clone(), identity, server_id })
}

/// Checks whether the dump of the server `started` may resume on the server `now`.
///
/// # Errors
/// The reason why it may not resume.
pub(super) fn check_server(started: &DumpedServer, now: &DumpedServer) -> Result<(), String> {
    if started.flavour != now.flavour {
        return Err("the dump comes from a server of the other flavour (MySQL or MariaDB)".into());
    }
    match (&started.identity, &now.identity) {
        (Some(started), Some(now)) if started != now => {
            return Err(format!("the dump comes from the server {started}, but this server is {now}"));
        }
        (Some(_), Some(_)) => return Ok(()),
        _ => {}
    }
    match (started.server_id, now.server_id) {
        (Some(started), Some(now)) if started != now => Err(format!(
            "the dump comes from the server with server_id {started}, but this server has server_id {now}"
        )),
        _ => Ok(()),
    }
}

/// Checks whether the history of the server, whose position is `now`, includes all rows that the dump already
/// has. A server that was restored from a backup has the same identity, but may have another history.
///
/// # Errors
/// The reason why the history does not include all these rows.
pub(super) fn check_history(manifest: &Manifest, now: &SnapshotPoint) -> Result<(), String> {
    let flavour = match manifest.server.flavour {
        DumpedFlavour::MySql => Flavour::MySql,
        DumpedFlavour::MariaDb => Flavour::MariaDb,
    };
    let set = |text: Option<&str>| GtidSet::parse(flavour, text.unwrap_or("")).ok();
    let Some(has) = set(now.gtid_set.as_deref()) else { return Ok(()) };
    for number in manifest.snapshots_used() {
        let before = manifest.snapshots.get(number).and_then(|point| point.gtid_set.as_deref());
        if set(before).is_some_and(|before| !before.is_subset_of(&has)) {
            return Err(format!(
                "rows of the dump were read at {}, which is not in the server's history any more: the server is at {}",
                before.unwrap_or_default(),
                now.gtid_set.as_deref().unwrap_or("no GTIDs")
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(identity: Option<&str>, server_id: Option<u32>) -> DumpedServer {
        let flavour = DumpedFlavour::MariaDb;
        DumpedServer { flavour, version: "1".into(), identity: identity.map(str::to_owned), server_id }
    }

    #[test]
    fn the_same_server_is_recognised_by_its_identity() {
        let check = |started, now| check_server(&started, &now).is_ok();
        assert!(check(server(Some("a"), Some(1)), server(Some("a"), Some(2))));
        assert!(!check(server(Some("a"), Some(1)), server(Some("b"), Some(1))));
        assert!(!check(server(None, Some(1)), server(Some("b"), Some(2))));
        assert!(check(server(None, Some(1)), server(Some("b"), Some(1))));
        // Dumps of older versions record neither an identity nor a server_id.
        assert!(check(server(None, None), server(Some("b"), Some(1))));
        let other = DumpedServer { flavour: DumpedFlavour::MySql, ..server(Some("a"), Some(1)) };
        assert!(!check(other, server(Some("a"), Some(1))));
    }
}
