//! Servers that a channel of Tailwater feeds past their binlog (`gtid = log`): what they say of their GTIDs is up to a second
//! behind their data, and on MariaDB stands beside the binlog.

use std::collections::BTreeSet;

use tailwater_session::{Connection, SessionError};
use tailwater_wire::gtid::MariadbPosition;

use crate::error::BulkError;

/// What a server says that does not have such channels, or does not show them to this user.
const NOT_THERE: [u16; 4] = [1049, 1146, 1142, 1044];

/// The channels that feed the server so.
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

/// What a MariaDB server has, of what it has logged itself and what it was told that it has applied. A domain of the latter
/// is the source's: nobody else writes there.
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
    fn what_was_applied_stands_beside_what_was_logged() {
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
