//! The replication statements of each flavour, and SQL string literals.

use std::fmt::Write;

use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tailwater_wire::sql_quote::string_literal;

/// Keywords of one flavour. MySQL: the keywords that exist since 8.0.26, and that are the only ones since
/// 8.4. MariaDB: the older keywords, which all its versions accept.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplicationDialect {
    pub(super) flavour: Flavour,
    pub(super) start: &'static str,
    pub(super) stop: &'static str,
    pub(super) reset_all: &'static str,
    pub(super) change: &'static str,
    /// Prefix of the settings, as in `SOURCE_HOST`.
    pub(super) prefix: &'static str,
}

impl ReplicationDialect {
    pub(super) fn of(connection: &Connection) -> Self {
        match connection.server().flavour {
            Flavour::MySql => Self {
                flavour: Flavour::MySql,
                start: "START REPLICA",
                stop: "STOP REPLICA",
                reset_all: "RESET REPLICA ALL",
                change: "CHANGE REPLICATION SOURCE TO",
                prefix: "SOURCE",
            },
            Flavour::MariaDb => Self {
                flavour: Flavour::MariaDb,
                start: "START SLAVE",
                stop: "STOP SLAVE",
                reset_all: "RESET SLAVE ALL",
                change: "CHANGE MASTER TO",
                prefix: "MASTER",
            },
        }
    }

    /// Returns a replication statement for the named channel. An empty name means the default channel; empty
    /// `threads` means both threads.
    pub(super) fn verb(&self, verb: &str, threads: &str, channel: &str) -> String {
        let space = if threads.is_empty() { "" } else { " " };
        match (self.flavour, channel) {
            (_, "") => format!("{verb}{space}{threads}"),
            (Flavour::MySql, name) => format!("{verb}{space}{threads} FOR CHANNEL {}", string_literal(name)),
            // MariaDB puts the channel name before the thread or `ALL`: START SLAVE 'name' SQL_THREAD, RESET
            // SLAVE 'name' ALL.
            (Flavour::MariaDb, name) => match verb.strip_suffix(" ALL") {
                Some(verb) => format!("{verb} {} ALL", string_literal(name)),
                None => format!("{verb} {}{space}{threads}", string_literal(name)),
            },
        }
    }

    /// Returns the statement that changes settings of the named channel.
    pub(super) fn change(&self, channel: &str, settings: &[String]) -> String {
        let settings = settings.join(", ");
        match (self.flavour, channel) {
            (_, "") => format!("{} {settings}", self.change),
            (Flavour::MySql, name) => {
                format!("{} {settings} FOR CHANNEL {}", self.change, string_literal(name))
            }
            (Flavour::MariaDb, name) => format!("CHANGE MASTER {} TO {settings}", string_literal(name)),
        }
    }
}

/// Appends one setting, `name=value`.
pub(super) fn setting(out: &mut Vec<String>, name: impl std::fmt::Display, value: impl std::fmt::Display) {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "{name}={value}");
    out.push(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARIADB: ReplicationDialect = ReplicationDialect {
        flavour: Flavour::MariaDb,
        start: "START SLAVE",
        stop: "STOP SLAVE",
        reset_all: "RESET SLAVE ALL",
        change: "CHANGE MASTER TO",
        prefix: "MASTER",
    };

    #[test]
    fn the_channel_name_is_placed_as_each_flavour_requires() {
        assert_eq!(MARIADB.verb(MARIADB.start, "SQL_THREAD", ""), "START SLAVE SQL_THREAD");
        assert_eq!(MARIADB.verb(MARIADB.start, "SQL_THREAD", "it's"), "START SLAVE 'it''s' SQL_THREAD");
        assert_eq!(MARIADB.verb(MARIADB.reset_all, "", "a"), "RESET SLAVE 'a' ALL");
        assert_eq!(MARIADB.change("a", &["MASTER_PORT=1".into()]), "CHANGE MASTER 'a' TO MASTER_PORT=1");
        let mysql = ReplicationDialect { flavour: Flavour::MySql, start: "START REPLICA", ..MARIADB };
        assert_eq!(mysql.verb(mysql.start, "", "a"), "START REPLICA FOR CHANNEL 'a'");
    }
}
