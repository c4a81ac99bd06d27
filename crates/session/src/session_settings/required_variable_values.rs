//! Lists all session variables of MySQL and MariaDB: those that a session of Tailwater sets, and those that
//! it does not set.

use tailwater_wire::Flavour;
use tailwater_wire::server_version::ServerFeature;

/// A session variable, and the value that Tailwater needs.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionSetting {
    /// The name of the variable.
    pub name: &'static str,
    /// The servers that have the variable.
    pub servers: SettingServers,
    /// The values that a session does not change.
    pub accepted: AcceptedValues,
    /// The value, in SQL, that a session sets if the server's value is not in `accepted`.
    pub value: &'static str,
    /// Which sessions need the setting.
    pub need: SettingNeed,
    /// For some variables: a value that the session does not change if the account lacks the privilege to set
    /// the variable.
    pub tolerated: Option<&'static str>,
}

impl SessionSetting {
    /// The privilege that an account needs to set the variable in a session, if the server requires one.
    pub fn privilege(&self, flavour: Flavour, version: (u16, u16, u16)) -> &'static str {
        match flavour {
            Flavour::MySql if ServerFeature::SessionVariablesAdmin.is_in(flavour, version) => {
                "SESSION_VARIABLES_ADMIN"
            }
            Flavour::MySql if ServerFeature::SystemVariablesAdmin.is_in(flavour, version) => {
                "SYSTEM_VARIABLES_ADMIN"
            }
            // MariaDB also has privileges with a smaller scope (such as BINLOG ADMIN), but none of them
            // allows setting a variable in this list.
            Flavour::MySql | Flavour::MariaDb => "SUPER",
        }
    }
}

/// The servers that have a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingServers {
    /// Both flavours.
    Both,
    /// MySQL since this version.
    MySql(u16, u16, u16),
    /// MariaDB since this version.
    MariaDb(u16, u16, u16),
    /// MariaDB before this version.
    OldMariaDb(u16, u16, u16),
}

impl SettingServers {
    pub(super) fn is_of(self, flavour: Flavour) -> bool {
        match self {
            Self::Both => true,
            Self::MySql(..) => flavour == Flavour::MySql,
            Self::MariaDb(..) | Self::OldMariaDb(..) => flavour == Flavour::MariaDb,
        }
    }

    pub(super) fn include(self, flavour: Flavour, version: (u16, u16, u16)) -> bool {
        self.is_of(flavour)
            && match self {
                Self::Both => true,
                Self::MySql(major, minor, patch) | Self::MariaDb(major, minor, patch) => {
                    version >= (major, minor, patch)
                }
                Self::OldMariaDb(major, minor, patch) => version < (major, minor, patch),
            }
    }
}

/// The values of a variable that a session does not change, as `SELECT @@name` returns them. NULL is "".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptedValues {
    /// Only this value.
    Is(&'static str),
    /// Any of these values.
    OneOf(&'static [&'static str]),
    /// Any number from this number on.
    AtLeast(u64),
    /// A comma-separated list that contains this word.
    Has(&'static str),
}

impl AcceptedValues {
    pub(super) fn admits(self, found: &str) -> bool {
        match self {
            Self::Is(value) => found == value,
            Self::OneOf(values) => values.contains(&found),
            Self::AtLeast(least) => found.parse::<u64>().is_ok_and(|number| number >= least),
            Self::Has(word) => found.split(',').any(|listed| listed.eq_ignore_ascii_case(word)),
        }
    }
}

/// Which sessions need a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingNeed {
    /// Every session must have such a value. With another value, results would be wrong without an error.
    Always,
    /// Only sessions that execute DDL must have such a value.
    ForDefinitions,
    /// No session depends on the variable. With another value, a statement may fail, but the server then
    /// returns an error.
    IfAllowed,
}

use AcceptedValues::{AtLeast, Has, Is, OneOf};
use SettingNeed::{Always, ForDefinitions, IfAllowed};
use SettingServers::{Both, MariaDb, MySql, OldMariaDb};

const fn set(
    name: &'static str,
    servers: SettingServers,
    accepted: AcceptedValues,
    value: &'static str,
    need: SettingNeed,
) -> SessionSetting {
    SessionSetting { name, servers, accepted, value, need, tolerated: None }
}

/// Returns `setting` with a value that a session keeps if the account lacks the privilege to set the
/// variable.
const fn tolerating(value: &'static str, setting: SessionSetting) -> SessionSetting {
    SessionSetting { tolerated: Some(value), ..setting }
}

/// The highest value of variables with 64 bits, which means "no limit".
const MOST: &str = "18446744073709551615";

const UTF8MB4: [&str; 3] = ["utf8mb4_general_ci", "utf8mb4_0900_ai_ci", "utf8mb4_uca1400_ai_ci"];

/// The settings, in the order in which a session sets them. The character sets of the connection come first,
/// because the statement that sets the other values is written in them. `max_join_size` must come before
/// `sql_big_selects`, because setting it changes `sql_big_selects`.
pub const SETTINGS: &[SessionSetting] = &[
    // Character sets of statements and answers. A server may be configured to ignore the character set that
    // the client requests at login.
    set("character_set_client", Both, Is("utf8mb4"), "utf8mb4", Always),
    set("character_set_results", Both, Is("utf8mb4"), "utf8mb4", Always),
    set("character_set_connection", Both, Is("utf8mb4"), "utf8mb4", Always),
    set("collation_connection", Both, OneOf(&UTF8MB4), "utf8mb4_general_ci", Always),
    // Tailwater parses numbers, names and error messages in English.
    set("lc_messages", Both, Is("en_US"), "'en_US'", Always),
    set("lc_time_names", Both, Is("en_US"), "'en_US'", Always),
    // Variables that change how statements are parsed. Tailwater writes its statements for the default of
    // each flavour.
    set("sql_mode", MySql(0, 0, 0), Is(MYSQL_MODE), MYSQL_MODE_QUOTED, Always),
    set("sql_mode", MariaDb(0, 0, 0), Is(MARIADB_MODE), MARIADB_MODE_QUOTED, Always),
    set("old_mode", MariaDb(10, 6, 1), Is("UTF8_IS_UTF8MB3"), "'UTF8_IS_UTF8MB3'", Always),
    set("sql_if_exists", MariaDb(10, 5, 2), Is("0"), "0", Always),
    set("default_regex_flags", MariaDb(10, 0, 11), Is(""), "''", Always),
    set("standard_compliant_cte", MariaDb(10, 2, 1), Is("1"), "1", Always),
    // Variables that change how many rows a query returns, and which rows.
    set("sql_select_limit", Both, Is(MOST), MOST, Always),
    set("system_versioning_asof", MariaDb(10, 3, 4), Is("DEFAULT"), "DEFAULT", Always),
    set("sql_auto_is_null", Both, Is("0"), "0", Always),
    set("max_sort_length", Both, AtLeast(1024), "1024", Always),
    set("query_cache_type", MariaDb(10, 0, 0), Is("OFF"), "OFF", Always),
    // Variables that change the format of values.
    set("div_precision_increment", Both, Is("4"), "4", Always),
    set("default_week_format", Both, Is("0"), "0", Always),
    set("group_concat_max_len", Both, AtLeast(1024), "1048576", Always),
    set("windowing_use_high_precision", MySql(8, 0, 2), Is("1"), "1", Always),
    set("block_encryption_mode", MySql(5, 7, 4), Is("aes-128-ecb"), "'aes-128-ecb'", Always),
    set("block_encryption_mode", MariaDb(11, 2, 1), Is("aes-128-ecb"), "'aes-128-ecb'", Always),
    // Variables that make the server refuse or change query plans.
    set("max_join_size", Both, Is(MOST), MOST, Always),
    set("sql_big_selects", Both, Is("1"), "1", Always),
    set("sql_safe_updates", Both, Is("0"), "0", Always),
    set("sql_buffer_result", Both, Is("0"), "0", Always),
    // Variables that change what counts as a warning.
    set("sql_notes", Both, Is("1"), "1", Always),
    set("note_verbosity", MariaDb(10, 6, 16), Has("basic"), "'basic,explain'", Always),
    // Variables that change how transactions run.
    set("autocommit", Both, Is("1"), "1", Always),
    set("completion_type", Both, Is("NO_CHAIN"), "NO_CHAIN", Always),
    set("transaction_isolation", MySql(5, 7, 20), Is("REPEATABLE-READ"), "'REPEATABLE-READ'", Always),
    set("transaction_isolation", MariaDb(11, 1, 1), Is("REPEATABLE-READ"), "'REPEATABLE-READ'", Always),
    set("tx_isolation", OldMariaDb(11, 1, 1), Is("REPEATABLE-READ"), "'REPEATABLE-READ'", Always),
    set("transaction_read_only", MySql(5, 7, 20), Is("0"), "0", Always),
    set("transaction_read_only", MariaDb(11, 1, 1), Is("0"), "0", Always),
    set("tx_read_only", OldMariaDb(11, 1, 1), Is("0"), "0", Always),
    // Variables that switch off constraint checks or change the effects of a statement.
    set("foreign_key_checks", Both, Is("1"), "1", Always),
    set("unique_checks", Both, Is("1"), "1", Always),
    set("check_constraint_checks", MariaDb(10, 2, 1), Is("1"), "1", Always),
    set("enable_cascade_triggers", MySql(9, 6, 0), Is("0"), "0", Always),
    set("innodb_table_locks", Both, Is("1"), "1", Always),
    // Variables that change the output of SHOW and `information_schema`.
    set("sql_quote_show_create", Both, Is("1"), "1", Always),
    set("show_create_table_verbosity", MySql(5, 7, 22), Is("0"), "0", Always),
    set("show_create_table_skip_secondary_engine", MySql(8, 0, 18), Is("0"), "0", Always),
    set("show_gipk_in_create_table_and_information_schema", MySql(8, 0, 30), Is("1"), "1", Always),
    set("print_identified_with_as_hex", MySql(8, 0, 17), Is("0"), "0", Always),
    set("terminology_use_previous", MySql(8, 0, 26), Is("NONE"), "NONE", Always),
    set(
        "default_collation_for_utf8mb4",
        MySql(8, 0, 11),
        Is("utf8mb4_0900_ai_ci"),
        "utf8mb4_0900_ai_ci",
        Always,
    ),
    // Variables that change what DDL creates. The first variable is not set on MySQL before 8.0.2. On those
    // versions its default is 0, DDL from such a source relies on 0, and a session needs SUPER to set it to
    // 1.
    set("explicit_defaults_for_timestamp", MySql(8, 0, 2), Is("1"), "1", ForDefinitions),
    set("explicit_defaults_for_timestamp", MariaDb(10, 10, 1), Is("1"), "1", ForDefinitions),
    set("sql_require_primary_key", MySql(8, 0, 13), Is("0"), "0", ForDefinitions),
    set("sql_generate_invisible_primary_key", MySql(8, 0, 30), Is("0"), "0", ForDefinitions),
    // Hosted servers have only InnoDB and give no account SUPER, so a session on such a server cannot change
    // the value `InnoDB`. This value causes no wrong result: a statement that names another engine fails with
    // an error.
    tolerating("InnoDB", set("enforce_storage_engine", MariaDb(10, 1, 4), Is(""), "NULL", ForDefinitions)),
    set("alter_algorithm", MariaDb(10, 3, 7), OneOf(&["DEFAULT", "COPY"]), "'DEFAULT'", ForDefinitions),
    set("old_passwords", MariaDb(10, 0, 0), Is("0"), "0", ForDefinitions),
    set("max_heap_table_size", Both, AtLeast(16 << 20), "16777216", ForDefinitions),
    // Variables that limit a statement or a connection. If a limit is exceeded, the server returns an error
    // or closes the connection.
    set("max_execution_time", MySql(5, 7, 8), Is("0"), "0", IfAllowed),
    set("max_statement_time", MariaDb(10, 1, 1), Is("0.000000"), "0", IfAllowed),
    set("idle_transaction_timeout", MariaDb(10, 3, 0), Is("0"), "0", IfAllowed),
    set("idle_readonly_transaction_timeout", MariaDb(10, 3, 0), Is("0"), "0", IfAllowed),
    set("idle_write_transaction_timeout", MariaDb(10, 3, 0), Is("0"), "0", IfAllowed),
    set("wait_timeout", Both, AtLeast(28_800), "28800", IfAllowed),
    set("net_read_timeout", Both, AtLeast(30), "30", IfAllowed),
    set("net_write_timeout", Both, AtLeast(60), "60", IfAllowed),
    set("lock_wait_timeout", Both, AtLeast(86_400), "86400", IfAllowed),
    set("innodb_lock_wait_timeout", Both, AtLeast(50), "50", IfAllowed),
    set("sort_buffer_size", Both, AtLeast(256 << 10), "262144", IfAllowed),
    set("cte_max_recursion_depth", MySql(8, 0, 3), AtLeast(1000), "1000", IfAllowed),
    set("max_recursive_iterations", MariaDb(10, 2, 2), AtLeast(1000), "1000", IfAllowed),
    set("parser_max_mem_size", MySql(5, 7, 12), Is(MOST), MOST, IfAllowed),
    set("connection_memory_limit", MySql(8, 0, 28), Is(MOST), MOST, IfAllowed),
    set("max_points_in_geometry", MySql(5, 7, 8), AtLeast(65_536), "65536", IfAllowed),
    set(
        "max_session_mem_used",
        MariaDb(10, 1, 1),
        AtLeast(i64::MAX as u64),
        "9223372036854775807",
        IfAllowed,
    ),
    set("tmp_disk_table_size", MariaDb(10, 2, 7), Is(MOST), MOST, IfAllowed),
    set("max_tmp_session_space_usage", MariaDb(11, 5, 0), AtLeast(1 << 40), "1099511627776", IfAllowed),
];

const MYSQL_MODE: &str = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,\
                          ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION";
const MYSQL_MODE_QUOTED: &str = "'ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,\
                                 ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'";
const MARIADB_MODE: &str =
    "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION";
const MARIADB_MODE_QUOTED: &str =
    "'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION'";

/// The session variables that sessions of Tailwater do not set, grouped by the reason.
pub const UNCHANGED: &[(&str, &[&str])] = &[
    (
        "the variable has no global value that a session could inherit, or only reports what the session did",
        &[
            "default_master_connection",
            "error_count",
            "external_user",
            "gtid_next",
            "gtid_owned",
            "gtid_seq_no",
            "identity",
            "immediate_server_version",
            "in_transaction",
            "insert_id",
            "last_gtid",
            "last_insert_id",
            "original_commit_timestamp",
            "original_server_version",
            "proxy_user",
            "pseudo_replica_mode",
            "pseudo_slave_mode",
            "pseudo_thread_id",
            "rand_seed1",
            "rand_seed2",
            "rbr_exec_mode",
            "require_row_format",
            "skip_parallel_replication",
            "skip_replication",
            "sql_log_bin",
            "statement_id",
            "timestamp",
            "transaction_allow_batching",
            "use_secondary_engine",
            "warning_count",
            "wsrep_gtid_seq_no",
        ],
    ),
    (
        "the code whose statements or values depend on this variable sets it",
        &[
            "max_error_count",
            "system_versioning_alter_history",
            "system_versioning_insert_history",
            "time_zone",
        ],
    ),
    (
        "the variable is the server's own setting for logging its writes, and sessions keep it",
        &[
            "binlog_alter_two_phase",
            "binlog_annotate_row_events",
            "binlog_direct_non_transactional_updates",
            "binlog_format",
            "binlog_row_image",
            "binlog_row_value_options",
            "binlog_rows_query_log_events",
            "binlog_transaction_compression",
            "binlog_transaction_compression_level_zstd",
            "gtid_domain_id",
            "server_id",
            "sql_slave_skip_counter",
            "wsrep_on",
            "wsrep_osu_method",
            "wsrep_retry_autocommit",
            "wsrep_trx_fragment_size",
            "wsrep_trx_fragment_unit",
            "xa_detach_on_prepare",
        ],
    ),
    (
        "the variable is the server's default for parts that DDL leaves out, and the server's own replication uses it too",
        &[
            "auto_increment_increment",
            "auto_increment_offset",
            "character_set_collations",
            "character_set_database",
            "character_set_filesystem",
            "character_set_server",
            "collation_database",
            "collation_server",
            "column_compression_threshold",
            "column_compression_zlib_level",
            "column_compression_zlib_strategy",
            "column_compression_zlib_wrap",
            "default_storage_engine",
            "default_table_encryption",
            "default_tmp_storage_engine",
            "external_table_secondary_storage_engine",
            "external_table_storage_engine",
            "innodb_compression_default",
            "innodb_default_encryption_key_id",
            "innodb_ft_enable_stopword",
            "innodb_ft_user_stopword_table",
            "innodb_strict_mode",
            "keep_files_on_create",
            "mhnsw_default_distance",
            "mhnsw_default_m",
            "restrict_fk_on_non_standard_key",
            "storage_engine",
            "updatable_views_with_limit",
        ],
    ),
    (
        "the variable changes only how a result is computed, not the result",
        &[
            "analyze_max_length",
            "analyze_sample_percentage",
            "aria_repair_threads",
            "aria_sort_buffer_size",
            "aria_stats_method",
            "big_tables",
            "bulk_insert_buffer_size",
            "connection_memory_chunk_size",
            "enable_secondary_engine_statistics",
            "eq_range_index_dive_limit",
            "expensive_subquery_limit",
            "histogram_generation_max_mem_size",
            "histogram_size",
            "histogram_type",
            "in_predicate_conversion_threshold",
            "information_schema_stats_expiry",
            "innodb_ddl_buffer_size",
            "innodb_ddl_threads",
            "innodb_parallel_read_threads",
            "innodb_tmpdir",
            "internal_tmp_mem_storage_engine",
            "join_buffer_size",
            "join_buffer_space_limit",
            "join_cache_level",
            "low_priority_updates",
            "max_delayed_threads",
            "max_insert_delayed_threads",
            "max_length_for_sort_data",
            "max_rowid_filter_size",
            "max_seeks_for_key",
            "max_tmp_tables",
            "mhnsw_ef_search",
            "mrr_buffer_size",
            "myisam_repair_threads",
            "myisam_sort_buffer_size",
            "myisam_stats_method",
            "new_mode",
            "old",
            "old_alter_table",
            "optimizer_adjust_secondary_key_costs",
            "optimizer_extra_pruning_depth",
            "optimizer_join_limit_pref_ratio",
            "optimizer_max_sel_arg_weight",
            "optimizer_max_sel_args",
            "optimizer_max_subgraph_pairs",
            "optimizer_prune_level",
            "optimizer_scan_setup_cost",
            "optimizer_search_depth",
            "optimizer_selectivity_sampling_limit",
            "optimizer_switch",
            "optimizer_use_condition_selectivity",
            "optimizer_where_cost",
            "preload_buffer_size",
            "query_alloc_block_size",
            "query_cache_strip_comments",
            "query_cache_wlock_invalidate",
            "query_prealloc_size",
            "range_alloc_block_size",
            "range_optimizer_max_mem_size",
            "read_buffer_size",
            "read_rnd_buffer_size",
            "rowid_merge_buff_size",
            "secondary_engine_cost_threshold",
            "select_into_buffer_size",
            "select_into_disk_sync",
            "select_into_disk_sync_delay",
            "set_operations_buffer_size",
            "tcp_nodelay",
            "thread_pool_priority",
            "tmp_memory_table_size",
            "tmp_table_size",
            "transaction_alloc_block_size",
            "transaction_prealloc_size",
            "use_stat_tables",
        ],
    ),
    (
        "the variable changes when a session waits for other sessions or yields to them; the result is the same, or an error",
        &[
            "deadlock_search_depth_long",
            "deadlock_search_depth_short",
            "deadlock_timeout_long",
            "deadlock_timeout_short",
            "group_replication_consistency",
            "innodb_snapshot_isolation",
            "wsrep_causal_reads",
            "wsrep_dirty_reads",
            "wsrep_sync_wait",
        ],
    ),
    (
        "the variable changes only what the server logs elsewhere, traces, tracks or explains, or sends to clients that request it",
        &[
            "end_markers_in_json",
            "explain_format",
            "explain_json_format_version",
            "global_connection_memory_tracking",
            "log_disabled_statements",
            "log_queries_not_using_indexes",
            "log_slow_admin_statements",
            "log_slow_always_query_time",
            "log_slow_disabled_statements",
            "log_slow_filter",
            "log_slow_max_warnings",
            "log_slow_min_examined_row_limit",
            "log_slow_query",
            "log_slow_query_time",
            "log_slow_rate_limit",
            "log_slow_slave_statements",
            "log_slow_verbosity",
            "log_warnings",
            "long_query_time",
            "min_examined_row_limit",
            "optimizer_trace",
            "optimizer_trace_features",
            "optimizer_trace_limit",
            "optimizer_trace_max_mem_size",
            "optimizer_trace_offset",
            "profiling",
            "profiling_history_size",
            "progress_report_time",
            "redirect_url",
            "resultset_metadata",
            "session_track_gtids",
            "session_track_schema",
            "session_track_state_change",
            "session_track_system_variables",
            "session_track_transaction_info",
            "slow_query_log",
            "sql_log_off",
            "sql_warnings",
        ],
    ),
    (
        "a session cannot change the variable, or does not use it",
        &[
            "generated_random_password_length",
            "interactive_timeout",
            "max_allowed_packet",
            "max_relay_log_size",
            "max_sp_recursion_depth",
            "max_user_connections",
            "net_buffer_length",
            "net_retry_count",
        ],
    ),
];
