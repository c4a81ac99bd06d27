//! Tells the target which transactions of its source it now has.

use tailwater_session::Connection;
use tailwater_wire::Flavour;

use super::contents::Contents;
use crate::error::BulkError;
use crate::sql::literal;

/// The GTID set of a dump, if the target can be told that it has it.
///
/// # Errors
/// [`BulkError::GtidState`] if the dump names no one set, or one of the other family.
pub(super) fn state(contents: &Contents, target: Flavour) -> Result<&str, BulkError> {
    let refused = |reason: &str| Err(BulkError::GtidState { reason: reason.into() });
    if contents.flavour.is_some_and(|flavour| flavour != target) {
        return refused("the dump is from a server of the other family, whose GTIDs mean nothing here");
    }
    match contents.point.as_ref().map(|point| point.gtid_set.as_deref()) {
        Some(Some(set)) => Ok(set),
        Some(None) => refused("the dump's server keeps no GTIDs"),
        None => refused("the dump does not stand at one point in time"),
    }
}

/// Sets it. What the target has of it already is left out.
///
/// # Errors
/// [`BulkError::Session`]: the user may not, or replication runs.
pub(super) async fn set(connection: &mut Connection, state: &str) -> Result<(), BulkError> {
    let text = literal(state);
    let sql = match connection.server().flavour {
        Flavour::MariaDb => format!("SET GLOBAL gtid_slave_pos = {text}"),
        Flavour::MySql => {
            let sql = format!("SELECT GTID_SUBTRACT({text}, @@GLOBAL.gtid_executed)");
            let missing = connection.query(&sql).await?;
            match missing.scalar() {
                Some("") | None => return Ok(()),
                Some(missing) => format!("SET GLOBAL gtid_purged = CONCAT('+', {})", literal(missing)),
            }
        }
    };
    connection.execute(&sql).await?;
    Ok(())
}
