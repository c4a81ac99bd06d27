//! Checks whether the target receives transactions at all.

use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::server_version::ServerFeature;

use tailwater_tables::error::BulkError;

/// Error codes of queries that the server cannot answer or refuses: no such table or database, a denied
/// command, an unknown variable.
const NOT_TOLD: [u16; 6] = [1044, 1049, 1142, 1146, 1193, 1227];

/// Returns whether the target is a replica, a member of a cluster, or the target of a Tailwater channel. If
/// the account lacks the privilege to read this, the target counts as replicating.
///
/// # Errors
/// [`BulkError::Session`]
pub(super) async fn receives_transactions(target: &mut Connection) -> Result<bool, BulkError> {
    let questions = match target.server().flavour {
        Flavour::MySql => [
            if target.server().has(ServerFeature::ShowReplicaStatus) {
                "SHOW REPLICA STATUS"
            } else {
                "SHOW SLAVE STATUS"
            },
            "SELECT 1 FROM performance_schema.replication_group_members WHERE member_state = 'ONLINE' LIMIT 1",
            CHANNELS,
        ],
        Flavour::MariaDb => {
            ["SHOW ALL SLAVES STATUS", "SELECT 1 FROM DUAL WHERE @@GLOBAL.wsrep_on", CHANNELS]
        }
    };
    for question in questions {
        match target.query(question).await {
            Ok(answer) if answer.rows.is_empty() => {}
            Ok(_) => return Ok(true),
            Err(SessionError::Server { error, .. }) if NOT_TOLD.contains(&error.number) => {
                // If the database, table or variable does not exist, the server does not use this kind of
                // replication. After any other error, such as a missing privilege, the server counts as
                // replicating.
                if ![1049, 1146, 1193].contains(&error.number) {
                    return Ok(true);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// The query for the table in which Tailwater channels record that they apply to the server.
const CHANNELS: &str = "SELECT 1 FROM tailwater.apply_channel LIMIT 1";
