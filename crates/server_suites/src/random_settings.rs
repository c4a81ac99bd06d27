//! Chooses the settings of a file from a seed and the file's name, so that a run can be repeated. This module
//! does no I/O.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use tailwater_apply::channel::{ChannelEdit, GtidMode};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::ServerKind;
use tailwater_wire::Flavour;

/// Settings that change from one set of servers to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ServerRotation {
    /// The default storage engine.
    pub engine: &'static str,
}

impl ServerRotation {
    /// Returns the settings of the set of servers with this number. The first number is 0.
    pub fn number(kind: ServerKind, number: usize) -> Self {
        let engines: &[&'static str] = match kind.flavour() {
            Flavour::MySql => &["InnoDB", "MyISAM"],
            Flavour::MariaDb => &["InnoDB", "MyISAM", "Aria"],
        };
        Self { engine: engines[number % engines.len()] }
    }
}

/// Settings that change from file to file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileSettings {
    /// Global variables of the primary.
    pub globals: Vec<(&'static str, &'static str)>,
    /// Commit order of the channel.
    pub order: CommitOrder,
    /// GTID mode of the channel.
    pub gtid: GtidMode,
}

/// Global variables that both flavours have, and their possible values.
const SHARED: &[(&str, &[&str])] = &[
    ("binlog_format", &["ROW", "MIXED", "STATEMENT"]),
    ("binlog_row_image", &["FULL", "MINIMAL", "NOBLOB"]),
    ("time_zone", &["'SYSTEM'", "'+00:00'", "'-11:30'", "'+05:45'"]),
    ("character_set_server", &["latin1", "utf8mb4", "ucs2", "cp1251", "sjis", "utf8mb3"]),
    ("foreign_key_checks", &["1", "0"]),
    ("unique_checks", &["1", "0"]),
    ("explicit_defaults_for_timestamp", &["1", "0"]),
    ("auto_increment_increment", &["1", "3"]),
    ("auto_increment_offset", &["1", "2"]),
    ("sql_auto_is_null", &["0", "1"]),
    ("lc_time_names", &["'en_US'", "'de_DE'"]),
    ("default_week_format", &["0", "3"]),
    ("div_precision_increment", &["4", "9"]),
    ("group_concat_max_len", &["1024", "16"]),
];

const MYSQL: &[(&str, &[&str])] = &[
    ("binlog_row_metadata", &["MINIMAL", "FULL"]),
    (
        "sql_mode",
        &[
            "DEFAULT",
            "''",
            "'ANSI'",
            "'NO_BACKSLASH_ESCAPES'",
            "'TRADITIONAL'",
            "'PAD_CHAR_TO_FULL_LENGTH,ALLOW_INVALID_DATES'",
            "'NO_AUTO_VALUE_ON_ZERO,HIGH_NOT_PRECEDENCE'",
        ],
    ),
    ("binlog_transaction_compression", &["0", "1"]),
    ("binlog_row_value_options", &["''", "'PARTIAL_JSON'"]),
    ("binlog_rows_query_log_events", &["0", "1"]),
    ("default_collation_for_utf8mb4", &["utf8mb4_0900_ai_ci", "utf8mb4_general_ci"]),
    ("sql_generate_invisible_primary_key", &["0", "1"]),
    ("transaction_isolation", &["'REPEATABLE-READ'", "'READ-COMMITTED'", "'SERIALIZABLE'"]),
    ("restrict_fk_on_non_standard_key", &["1", "0"]),
    ("show_create_table_verbosity", &["0", "1"]),
    ("default_table_encryption", &["0"]),
];

const MARIADB: &[(&str, &[&str])] = &[
    ("binlog_row_metadata", &["NO_LOG", "MINIMAL", "FULL"]),
    (
        "sql_mode",
        &[
            "DEFAULT",
            "''",
            "'ANSI'",
            "'ORACLE'",
            "'NO_BACKSLASH_ESCAPES'",
            "'TRADITIONAL'",
            "'PAD_CHAR_TO_FULL_LENGTH'",
            "'NO_AUTO_VALUE_ON_ZERO,EMPTY_STRING_IS_NULL'",
            "'MSSQL,SIMULTANEOUS_ASSIGNMENT,TIME_ROUND_FRACTIONAL'",
            "'IGNORE_SPACE,NO_ZERO_DATE,ALLOW_INVALID_DATES'",
        ],
    ),
    ("check_constraint_checks", &["1", "0"]),
    ("system_versioning_alter_history", &["ERROR", "KEEP"]),
    ("binlog_annotate_row_events", &["1", "0"]),
    ("log_bin_compress", &["0", "1"]),
    ("binlog_alter_two_phase", &["0", "1"]),
    ("tx_isolation", &["'REPEATABLE-READ'", "'READ-COMMITTED'"]),
    ("sql_if_exists", &["0", "1"]),
    ("column_compression_threshold", &["100", "0"]),
    ("character_set_collations", &["''", "'utf8mb4=utf8mb4_bin'", "'latin1=latin1_bin'"]),
];

impl FileSettings {
    /// Returns the settings of a file. With seed 0, the file runs with the servers' defaults, and only the
    /// channel's settings change.
    pub fn choose(kind: ServerKind, seed: u64, file: &str) -> Self {
        let name = file.bytes().fold(seed, |sum, byte| sum.wrapping_mul(0x0100_0193) ^ u64::from(byte));
        let mut random = StdRng::seed_from_u64(name);
        let order = if random.random_bool(0.5) { CommitOrder::Source } else { CommitOrder::Independent };
        let gtid =
            *[GtidMode::Log, GtidMode::Own, GtidMode::Preserve].choose(&mut random).unwrap_or(&GtidMode::Log);
        let mut globals = Vec::new();
        if seed != 0 {
            let own = match kind.flavour() {
                Flavour::MySql => MYSQL,
                Flavour::MariaDb => MARIADB,
            };
            for (name, values) in SHARED.iter().chain(own) {
                // Most variables keep their default, so that a difference has one cause. binlog_format and
                // sql_mode change most often.
                let share = if matches!(*name, "binlog_format" | "sql_mode") { 0.7 } else { 0.25 };
                if random.random_bool(share)
                    && let Some(value) = values.choose(&mut random)
                {
                    globals.push((*name, *value));
                }
            }
        }
        Self { globals, order, gtid }
    }

    /// Returns the settings of the channel.
    pub fn edit(&self) -> ChannelEdit {
        ChannelEdit { commit_order: Some(self.order), gtid: Some(self.gtid), ..ChannelEdit::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_file_name_give_the_same_settings() {
        for kind in ServerKind::ALL {
            let choose = |seed, file: &str| FileSettings::choose(kind, seed, file);
            assert_eq!(choose(1, "main/a"), choose(1, "main/a"));
            assert!((0..50).any(|seed| choose(seed, "main/a") != choose(seed + 1, "main/a")));
            assert_eq!(choose(0, "main/a").globals, []);
            let all: Vec<_> = (1..200).map(|seed| choose(seed, "main/b")).collect();
            assert!(all.iter().any(|settings| settings.globals.contains(&("binlog_format", "STATEMENT"))));
            assert!(all.iter().any(|settings| settings.order == CommitOrder::Independent));
        }
    }
}
