//! Unusual but legal global settings. A session that inherits them may lose rows, reject statements or change
//! their meaning.

use tailwater_wire::Flavour;

use crate::error::SandboxError;
use crate::sandbox_server::{Server, ServerSpec};
use crate::server_kind::ServerKind;

/// Variables and their values as SQL, for all servers.
const ALL: &[(&str, &str)] = &[
    ("character_set_client", "latin1"),
    ("character_set_results", "latin1"),
    ("character_set_connection", "latin1"),
    ("collation_connection", "latin1_bin"),
    ("lc_messages", "'de_DE'"),
    ("lc_time_names", "'de_DE'"),
    ("sql_select_limit", "1"),
    ("sql_auto_is_null", "1"),
    ("max_sort_length", "64"),
    ("div_precision_increment", "0"),
    ("default_week_format", "3"),
    ("group_concat_max_len", "4"),
    ("max_join_size", "1"),
    ("sql_big_selects", "0"),
    ("sql_safe_updates", "1"),
    ("sql_buffer_result", "1"),
    ("sql_notes", "0"),
    ("completion_type", "CHAIN"),
    ("foreign_key_checks", "0"),
    ("unique_checks", "0"),
    ("innodb_table_locks", "0"),
    ("sql_quote_show_create", "0"),
    ("explicit_defaults_for_timestamp", "0"),
    ("max_heap_table_size", "16384"),
    ("wait_timeout", "1"),
    ("net_read_timeout", "1"),
    ("net_write_timeout", "1"),
    ("lock_wait_timeout", "1"),
    ("innodb_lock_wait_timeout", "1"),
    ("sort_buffer_size", "32768"),
];

const MYSQL: &[(&str, &str)] = &[
    (
        "sql_mode",
        "'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION'",
    ),
    ("windowing_use_high_precision", "0"),
    ("block_encryption_mode", "'aes-256-cbc'"),
    ("enable_cascade_triggers", "1"),
    ("show_create_table_verbosity", "1"),
    ("show_gipk_in_create_table_and_information_schema", "0"),
    ("print_identified_with_as_hex", "1"),
    ("terminology_use_previous", "BEFORE_8_0_26"),
    ("default_collation_for_utf8mb4", "utf8mb4_general_ci"),
    ("sql_require_primary_key", "1"),
    ("sql_generate_invisible_primary_key", "1"),
    ("max_execution_time", "1000"),
    ("cte_max_recursion_depth", "1"),
    ("parser_max_mem_size", "10000000"),
    ("connection_memory_limit", "2097152"),
    ("max_points_in_geometry", "3"),
    ("transaction_isolation", "'READ-UNCOMMITTED'"),
    ("autocommit", "0"),
    ("transaction_read_only", "1"),
];

const MARIADB: &[(&str, &str)] = &[
    (
        "sql_mode",
        "'ORACLE,ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,SIMULTANEOUS_ASSIGNMENT,EMPTY_STRING_IS_NULL'",
    ),
    ("old_mode", "''"),
    ("sql_if_exists", "1"),
    ("default_regex_flags", "'DOTALL,UNGREEDY'"),
    ("standard_compliant_cte", "0"),
    ("system_versioning_asof", "'2000-01-01'"),
    ("query_cache_type", "ON"),
    ("note_verbosity", "''"),
    ("check_constraint_checks", "0"),
    ("enforce_storage_engine", "'MyISAM'"),
    ("alter_algorithm", "INSTANT"),
    ("old_passwords", "1"),
    ("max_statement_time", "1"),
    ("idle_transaction_timeout", "1"),
    ("idle_readonly_transaction_timeout", "1"),
    ("idle_write_transaction_timeout", "1"),
    ("max_recursive_iterations", "1"),
    ("max_session_mem_used", "67108864"),
    ("tmp_disk_table_size", "1024"),
    ("tx_isolation", "'READ-UNCOMMITTED'"),
    ("autocommit", "0"),
    ("tx_read_only", "1"),
];

const MARIADB_118: &[(&str, &str)] =
    &[("max_tmp_session_space_usage", "65536"), ("block_encryption_mode", "'aes-256-cbc'")];

/// Variables that a server accepts and ignores, so that their effect cannot be tested.
const IGNORED_VARIABLES: [(ServerKind, &str); 1] = [(ServerKind::Mariadb118, "alter_algorithm")];

/// Returns the variables and their values as SQL, for a kind of server.
pub fn odd_settings(kind: ServerKind) -> Vec<(&'static str, &'static str)> {
    let own: &[&[_]] = match kind {
        ServerKind::Mysql97 => &[ALL, MYSQL],
        ServerKind::Mariadb1011 => &[ALL, MARIADB],
        ServerKind::Mariadb118 => &[ALL, MARIADB_118, MARIADB],
    };
    let all = own.iter().copied().flatten().copied();
    all.filter(|(name, _)| !IGNORED_VARIABLES.contains(&(kind, name))).collect()
}

/// Adds the server options without which some of [`odd_settings`] have no effect in sessions.
pub fn accept_odd_settings(spec: ServerSpec) -> ServerSpec {
    match spec.kind.flavour() {
        Flavour::MySql => spec,
        Flavour::MariaDb => spec.options([
            "--skip-character-set-client-handshake",
            "--query-cache-type=1",
            "--query-cache-size=1048576",
        ]),
    }
}

/// Applies all of [`odd_settings`] to new sessions of a server.
///
/// # Errors
/// [`SandboxError::Client`] if the server rejects a setting.
pub async fn apply_odd_settings(server: &Server) -> Result<(), SandboxError> {
    let statements = odd_settings(server.kind()).into_iter();
    let statements: Vec<_> =
        statements.map(|(name, value)| format!("SET GLOBAL {name} = {value};")).collect();
    server.sql(&statements.concat()).await?;
    Ok(())
}

/// Resets all of [`odd_settings`] to their defaults for new sessions of a server.
///
/// # Errors
/// The same as for [`apply_odd_settings`].
pub async fn reset_odd_settings(server: &Server) -> Result<(), SandboxError> {
    let statements = odd_settings(server.kind()).into_iter();
    let statements: Vec<_> = statements.map(|(name, _)| format!("SET GLOBAL {name} = DEFAULT;")).collect();
    server.sql(&statements.concat()).await?;
    Ok(())
}
