//! Reads the facts about a server that `server_rules` needs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use tailwater_capture::source_queries;
use tailwater_session::{Connection, SessionError, UserPrivileges, check_privileges};
use tailwater_topology::server_probe::{ProbeTarget, probe_server};
use tailwater_topology::server_state::ServerState;
use tailwater_wire::Flavour;

use super::server_roles::UsedServer;

/// Time limit for a server to accept a connection, and for each of its answers.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The variables that the rules need.
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'binlog_row_image', \
                         'gtid_mode', 'enforce_gtid_consistency', 'have_ssl', 'read_only', 'super_read_only', \
                         'gtid_strict_mode')";

/// The facts about a server, or the error of the connection.
pub(super) type ServerAnswer = Result<ServerFacts, String>;

/// The facts about a server, as far as the account of the configuration may read them.
#[derive(Debug)]
pub(super) struct ServerFacts {
    pub(super) flavour: Flavour,
    pub(super) version: (u16, u16, u16),
    pub(super) version_text: String,
    /// Whether the connection is encrypted.
    pub(super) is_encrypted: bool,
    /// One error text for each purpose for which the account lacks privileges. The text contains the GRANT
    /// statement to run.
    pub(super) missing_privileges: Vec<String>,
    /// Whether the account has the privileges to write to all databases and to schema `tailwater`.
    pub(super) may_write: WritePrivileges,
    /// Global variables by their names in lower case.
    pub(super) variables: BTreeMap<String, String>,
    /// How far the server's clock is ahead of this machine's, in milliseconds; `None` if the server did not
    /// answer.
    pub(super) clock_ahead_ms: Option<i64>,
    /// The probe of the server, or why it failed.
    pub(super) state: Result<ServerState, String>,
}

/// Where an account may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WritePrivileges {
    pub(super) everywhere: bool,
    pub(super) to_schema_tailwater: bool,
}

/// Reads the facts about a server.
pub(super) async fn read(server: &UsedServer) -> ServerAnswer {
    read_all(server).await.map_err(|error| format!("{}: {error}", error.code()))
}

async fn read_all(server: &UsedServer) -> Result<ServerFacts, SessionError> {
    let mut connect = server.connect.clone();
    connect.connect_timeout = connect.connect_timeout.min(SERVER_TIMEOUT);
    connect.read_timeout = Some(SERVER_TIMEOUT);
    let mut connection = Connection::connect(&connect).await?;
    let mut missing_privileges = Vec::new();
    for purpose in &server.purposes {
        match check_privileges(&mut connection, *purpose).await {
            Ok(()) => {}
            Err(error @ SessionError::MissingGrant { .. }) => {
                missing_privileges.push(format!("{}: {error}", error.code()));
            }
            Err(error) => return Err(error),
        }
    }
    let privileges = UserPrivileges::read(&mut connection).await?;
    let writes = ["INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "SELECT"];
    let may_write = WritePrivileges {
        everywhere: writes.iter().all(|one| privileges.has_global(one)),
        to_schema_tailwater: writes.iter().all(|one| privileges.has_on_schema(one, "tailwater")),
    };
    let answer = connection.query(VARIABLES).await?;
    let variable = |row: &tailwater_session::TextRow| {
        Some((row.get_str(0)?.to_ascii_lowercase(), row.get_str(1).unwrap_or_default().to_owned()))
    };
    let variables = answer.rows.iter().filter_map(variable).collect();
    let clock_ahead_ms = clock_ahead_ms(&mut connection).await;
    let info = connection.server().clone();
    connection.close().await;
    let target = ProbeTarget { name: server.object.clone(), connect };
    let state = probe_server(&target, SERVER_TIMEOUT).await.outcome.map_err(|error| error.message);
    Ok(ServerFacts {
        flavour: info.flavour,
        version: info.version,
        version_text: info.version_text,
        is_encrypted: info.tls,
        missing_privileges,
        may_write,
        variables,
        clock_ahead_ms,
        state,
    })
}

/// Returns how far the server's clock is ahead of this machine's, in milliseconds. Assumes that the server
/// reads its clock in the middle of the query. `None` if the server does not answer.
async fn clock_ahead_ms(connection: &mut Connection) -> Option<i64> {
    let (asked, began) = (SystemTime::now(), Instant::now());
    let server_us = source_queries::query_clock(connection).await.ok()?;
    let middle = asked.checked_add(began.elapsed() / 2)?;
    let own_us = middle.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_micros();
    Some((server_us - i64::try_from(own_us).ok()?) / 1000)
}
