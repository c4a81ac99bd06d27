//! How many connections of a server are in use and, if few are left, which sessions use them.

use tailwater_session::Connection;
use tailwater_wire::Flavour;

use super::named_result_values::{NamedRow, NamedValues};
use super::probe_queries::ask_if_allowed;
use crate::error::TopologyError;
use crate::server_state::{ConnectionUsage, LargestTransaction, OptionalQuery, UnansweredQuery};

/// If fewer connections than this are left, the sessions are queried.
const FEW_LEFT: u64 = 3;

/// The privilege for the queries about sessions.
const PRIVILEGE: &str = "PROCESS";

/// Reads how many connections are in use. `variables` and `status` have the values of the server.
pub(super) async fn ask(
    connection: &mut Connection,
    variables: &NamedValues,
    status: &NamedValues,
    unanswered: &mut Vec<UnansweredQuery>,
) -> Result<ConnectionUsage, TopologyError> {
    let mut usage = ConnectionUsage {
        connected: status.number(&["threads_connected"]).unwrap_or_default(),
        connections_max: variables.number(&["max_connections"]).unwrap_or_default(),
        ..ConnectionUsage::default()
    };
    if usage.connections_max == 0 || usage.connected + FEW_LEFT <= usage.connections_max {
        return Ok(usage);
    }
    // MySQL's older table makes every session wait for a mutex.
    let sessions = match connection.server().flavour {
        Flavour::MySql => "performance_schema.processlist",
        Flavour::MariaDb => "information_schema.processlist",
    };
    let states = format!(
        "SELECT COUNT(*) AS sessions, IF(COMMAND = 'Sleep', 'idle', COALESCE(STATE, '')) AS state FROM {sessions} \
         WHERE COMMAND NOT LIKE 'Binlog Dump%' AND COMMAND <> 'Daemon' GROUP BY 2 ORDER BY 1 DESC LIMIT 2"
    );
    let asked = (states.as_str(), (OptionalQuery::Sessions, PRIVILEGE));
    let Some(answer) = ask_if_allowed(connection, asked, unanswered).await? else { return Ok(usage) };
    let rows = answer.rows.iter().map(|row| NamedRow { result: &answer, row });
    usage.busy_with = rows
        .map(|row| format!("{} in state: {}", row.text(&["sessions"]), or_none(row.text(&["state"]))))
        .collect();
    let largest = format!(
        "SELECT t.trx_mysql_thread_id AS session, COALESCE(p.USER, '') AS user, t.trx_rows_modified AS changed, \
         TIMESTAMPDIFF(SECOND, t.trx_started, NOW()) AS seconds, COALESCE(p.STATE, '') AS state \
         FROM information_schema.innodb_trx t LEFT JOIN {sessions} p ON p.ID = t.trx_mysql_thread_id \
         WHERE t.trx_mysql_thread_id <> 0 ORDER BY t.trx_rows_modified DESC, t.trx_started LIMIT 1"
    );
    let asked = (largest.as_str(), (OptionalQuery::Sessions, PRIVILEGE));
    let Some(answer) = ask_if_allowed(connection, asked, unanswered).await? else { return Ok(usage) };
    usage.largest_transaction = answer.rows.first().map(|row| {
        let row = NamedRow { result: &answer, row };
        LargestTransaction {
            session: row.number(&["session"]).unwrap_or_default(),
            user: row.text(&["user"]),
            rows: row.number(&["changed"]).unwrap_or_default(),
            seconds: row.number(&["seconds"]).unwrap_or_default(),
            state: row.text(&["state"]),
        }
    });
    Ok(usage)
}

fn or_none(state: String) -> String {
    if state.is_empty() { "none".to_owned() } else { state }
}
