//! The system variables and status counters that a reader of the binlog may query.

use tailwater_session::session_settings;
use tailwater_wire::Flavour;

use super::queryable_server_state::{ServedGtids, ServerView};
use super::session_variables::{SqlValue, StatementSession};
use super::statement_tokens::{ParseResult, WHAT_THIS_IS};
use crate::client_error::{ClientError, quoted};

/// The scope of a system variable in `@@name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VariableScope {
    Global,
    Session,
    Either,
}

/// The value of `@@version_comment`, which command-line clients print when they connect.
const VERSION_COMMENT: &str = "Tailwater binlog server";

/// The value of `@@name`.
pub(super) fn value(
    scope: VariableScope,
    name: &str,
    session: &StatementSession,
    view: &ServerView,
) -> ParseResult<SqlValue> {
    let name = name.to_lowercase();
    if scope != VariableScope::Global
        && let Some(value) = of_session(&name, session, view)
    {
        return Ok(value);
    }
    // When Tailwater itself connects to this server, it queries the session variables that its session
    // inherits. For these variables, return the compiled-in defaults of MySQL or MariaDB instead of the
    // source's settings.
    if scope == VariableScope::Session
        && let Some(value) = session_settings::default_value(view.flavour(), &name)
    {
        return Ok(value.into());
    }
    let found = find(&name, view);
    found.ok_or_else(|| {
        let message = format!("Unknown system variable '{}'. {WHAT_THIS_IS}", quoted(&name));
        ClientError::new(ClientError::UNKNOWN_SYSTEM_VARIABLE, message)
    })
}

fn of_session(name: &str, session: &StatementSession, view: &ServerView) -> Option<SqlValue> {
    Some(match name {
        "pseudo_thread_id" => view.connection_id.into(),
        "warning_count" | "error_count" | "last_insert_id" | "identity" => SqlValue::Integer(0),
        "skip_replication" if view.flavour() == Flavour::MariaDb => {
            SqlValue::Integer(session.skip_replication().into())
        }
        "timestamp" => (view.now_us / 1_000_000).into(),
        _ => return None,
    })
}

fn find(name: &str, view: &ServerView) -> Option<SqlValue> {
    if let Some(text) = view.source_variables.get(name) {
        return Some(text.as_str().into());
    }
    all(view).into_iter().find(|(known, _)| *known == name).map(|(_, setting)| match setting {
        VariableValue::Switch(on) => SqlValue::Integer(on.into()),
        VariableValue::Value(value) => value,
    })
}

/// The rows of `SHOW VARIABLES`. The names are in lower case and sorted.
pub(super) fn list(view: &ServerView) -> Vec<(String, String)> {
    let own = all(view).into_iter().filter_map(|(name, setting)| {
        let value = match setting {
            VariableValue::Switch(on) => on_off(on).to_owned(),
            VariableValue::Value(value) => value.into_cell().unwrap_or_default(),
        };
        (!view.source_variables.contains_key(name)).then(|| (name.to_owned(), value))
    });
    let passed_on = view.source_variables.iter().map(|(name, value)| (name.clone(), value.clone()));
    let mut list: Vec<_> = own.chain(passed_on).collect();
    list.sort_unstable();
    list
}

/// The value of a system variable.
enum VariableValue {
    /// On or off. `SHOW VARIABLES` prints it as a word, `@@name` as a number.
    Switch(bool),
    /// A value that `SHOW VARIABLES` and `@@name` print in the same way.
    Value(SqlValue),
}

impl<T: Into<SqlValue>> From<T> for VariableValue {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

fn on_off(on: bool) -> &'static str {
    if on { "ON" } else { "OFF" }
}

fn all(view: &ServerView) -> Vec<(&'static str, VariableValue)> {
    let mut list = common(view);
    match view.flavour() {
        Flavour::MySql => list.extend(mysql(view)),
        Flavour::MariaDb => list.extend(mariadb(view)),
    }
    list
}

fn common(view: &ServerView) -> Vec<(&'static str, VariableValue)> {
    vec![
        ("auto_increment_increment", 1u16.into()),
        ("auto_increment_offset", 1u16.into()),
        ("autocommit", VariableValue::Switch(true)),
        ("binlog_checksum", view.checksum_name().into()),
        ("character_set_client", "utf8mb4".into()),
        ("character_set_connection", "utf8mb4".into()),
        ("character_set_database", "utf8mb4".into()),
        ("character_set_filesystem", "binary".into()),
        ("character_set_results", "utf8mb4".into()),
        ("character_set_server", "utf8mb4".into()),
        ("character_set_system", "utf8mb3".into()),
        ("collation_connection", "utf8mb4_general_ci".into()),
        ("collation_database", "utf8mb4_general_ci".into()),
        ("collation_server", "utf8mb4_general_ci".into()),
        ("hostname", view.hostname.as_str().into()),
        ("init_connect", "".into()),
        ("interactive_timeout", 28_800u16.into()),
        ("license", "Apache-2.0".into()),
        ("log_bin", VariableValue::Switch(true)),
        ("max_allowed_packet", 1_073_741_824u32.into()),
        ("net_buffer_length", 16_384u16.into()),
        ("performance_schema", VariableValue::Switch(false)),
        ("port", view.port.into()),
        ("protocol_version", 10u16.into()),
        ("server_id", view.server_id.into()),
        ("sql_mode", "".into()),
        ("system_time_zone", "UTC".into()),
        ("time_zone", "SYSTEM".into()),
        ("transaction_isolation", "REPEATABLE-READ".into()),
        ("version", view.server_version.as_str().into()),
        ("version_comment", VERSION_COMMENT.into()),
        ("version_compile_machine", std::env::consts::ARCH.into()),
        ("version_compile_os", std::env::consts::OS.into()),
        ("wait_timeout", 28_800u16.into()),
    ]
}

fn mysql(view: &ServerView) -> Vec<(&'static str, VariableValue)> {
    let ServedGtids::Mysql { executed, purged, mode } = &view.gtids else { return Vec::new() };
    vec![
        ("enforce_gtid_consistency", on_off(mode == "ON").into()),
        ("gtid_executed", format!("{executed:#}").into()),
        ("gtid_mode", mode.as_str().into()),
        ("gtid_owned", "".into()),
        ("gtid_purged", format!("{purged:#}").into()),
        ("log_replica_updates", VariableValue::Switch(true)),
        ("log_slave_updates", VariableValue::Switch(true)),
        ("read_only", VariableValue::Switch(true)),
        ("rpl_semi_sync_master_enabled", VariableValue::Switch(view.semi_sync)),
        ("rpl_semi_sync_source_enabled", VariableValue::Switch(view.semi_sync)),
        ("server_uuid", view.server_uuid.as_str().into()),
        ("super_read_only", VariableValue::Switch(true)),
    ]
}

fn mariadb(view: &ServerView) -> Vec<(&'static str, VariableValue)> {
    let ServedGtids::Mariadb { state, domain } = &view.gtids else { return Vec::new() };
    let position = state.position().to_string();
    vec![
        ("gtid_binlog_pos", position.as_str().into()),
        ("gtid_binlog_state", state.to_string().into()),
        ("gtid_current_pos", position.into()),
        ("gtid_domain_id", (*domain).into()),
        ("gtid_slave_pos", "".into()),
        ("log_slave_updates", VariableValue::Switch(true)),
        ("read_only", VariableValue::Switch(true)),
        ("rpl_semi_sync_master_enabled", VariableValue::Switch(view.semi_sync)),
        ("tx_isolation", "REPEATABLE-READ".into()),
    ]
}

/// The result of `SHOW STATUS`: the counters, sorted by name.
pub(super) fn status(view: &ServerView) -> Vec<(String, String)> {
    let (file, position) = view.end();
    let semi_sync = view.replicas.iter().filter(|replica| replica.semi_sync).count();
    let mut list = vec![
        ("Threads_connected".to_owned(), view.processes.len().to_string()),
        ("Uptime".to_owned(), view.uptime_seconds.to_string()),
    ];
    let prefix = match view.flavour() {
        Flavour::MySql => "Rpl_semi_sync_source",
        Flavour::MariaDb => "Rpl_semi_sync_master",
    };
    list.push((format!("{prefix}_clients"), semi_sync.to_string()));
    list.push((format!("{prefix}_status"), on_off(view.semi_sync).to_owned()));
    if view.flavour() == Flavour::MariaDb {
        list.push(("Binlog_snapshot_file".to_owned(), file.to_owned()));
        list.push(("Binlog_snapshot_position".to_owned(), position.to_string()));
    }
    list.sort_unstable();
    list
}
