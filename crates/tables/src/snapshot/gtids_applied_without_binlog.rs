//! Servers to which a channel of Tailwater applies transactions without writing the server's binlog (`gtid =
//! log`). The GTID variables of such a server lag its data by up to a second. On MariaDB, the GTIDs that the
//! channel has applied are also stored separately from the server's binlog position.

use std::collections::BTreeSet;

use tailwater_session::{Connection, SessionError};
use tailwater_wire::gtid::MariadbPosition;

use crate::error::BulkError;

/// Error codes of a server on which the table with the names of the channels does not exist, or on which the
/// account lacks the privilege to read that table.
const NOT_THERE: [u16; 4] = [1049, 1146, 1142, 1044];

/// Returns the names of the channels that apply transactions to the server without writing its binlog.
///
/// # Errors
/// [`BulkError::Session`]
pub async fn unlogged_channels(connection: &mut Connection) -> Result<Vec<String>, BulkError> {
    match connection.query("SELECT channel FROM tailwater.apply_unlogged ORDER BY channel").await {
        Ok(channels) => {
            Ok(channels.rows.iter().filter_map(|row| row.get_str(0)).map(str::to_owned).collect())
        }
        Err(SessionError::Server { error, .. }) if NOT_THERE.contains(&error.number) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the GTID position of a MariaDB server, merged from the GTIDs that the server itself has logged and
/// the GTIDs that channels have recorded as applied. A domain in `applied` belongs to the source: only the
/// channel writes in it, so the applied GTID replaces the logged GTID.
pub fn merge_applied(logged: &str, applied: &str) -> String {
    let (Ok(logged), Ok(applied)) = (MariadbPosition::parse(logged), MariadbPosition::parse(applied)) else {
        return logged.to_owned();
    };
    let domains: BTreeSet<_> = applied.iter().map(|gtid| gtid.domain).collect();
    let own = logged.iter().filter(|gtid| !domains.contains(&gtid.domain));
    let mut all: Vec<_> = own.chain(applied.iter()).collect();
    all.sort_by_key(|gtid| gtid.domain);
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applied_domains_replace_logged_ones() {
        for (logged, applied, all) in [
            ("", "0-1-7", "0-1-7"),
            ("0-2-3", "0-1-7", "0-1-7"),
            ("5-2-3", "0-1-7", "0-1-7,5-2-3"),
            ("5-2-3,0-9-9", "", "0-9-9,5-2-3"),
            ("", "", ""),
        ] {
            assert_eq!(merge_applied(logged, applied), all, "{logged} {applied}");
        }
    }
}
