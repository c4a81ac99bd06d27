//! Semi-synchronous replication of a server: its settings and counters, as both flavours name them.

use std::collections::BTreeMap;

use crate::connection::Connection;
use crate::error::SessionError;
use crate::text_result_rows::QueryResult;

/// A semi-sync time-out of at least this many milliseconds (one day) counts as infinite. After a failover,
/// only the wait for ACKs keeps the old primary from committing. An operator deals with that server within
/// much less than a day. A capture raises an alarm only for time-outs below ten minutes, because its own
/// restart takes less than ten minutes.
pub const SEMI_SYNC_TIMEOUT_MS_MIN: u64 = 86_400_000;

/// At which point a commit waits for its ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPoint {
    /// A commit waits for its ACK before the storage engine commits. Other sessions see the commit only
    /// after the ACK.
    AfterSync,
    /// A commit waits for its ACK after the storage engine has committed. Other sessions see the commit
    /// before the ACK.
    AfterCommit,
}

/// State of semi-sync for a server as a source. The names of the variables and counters begin with
/// `rpl_semi_sync_source_`. On MariaDB, and on MySQL before 8.0.26, they begin with `rpl_semi_sync_master_`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemiSyncSource {
    /// Whether semi-sync is enabled (`enabled`).
    pub enabled: bool,
    /// Whether semi-sync is in force (`status`). False after a fallback to asynchronous replication.
    pub active: bool,
    /// How long a commit waits before the server falls back to asynchronous replication, in milliseconds.
    pub timeout_ms: u64,
    /// At which point commits wait.
    pub wait_point: WaitPoint,
    /// Whether commits also wait while fewer semi-sync replicas are connected than the number of ACKs that a
    /// commit needs.
    pub wait_no_replica: bool,
    /// Number of ACKs that a commit needs; always one on MariaDB.
    pub acks_needed: u32,
    /// Number of connected semi-sync replicas.
    pub clients: u32,
    /// Number of sessions whose commit waits for ACKs.
    pub waiting_sessions: u64,
    /// Number of commits since the start of the server that got their ACKs (`yes_tx`).
    pub acknowledged: u64,
    /// Number of commits since the start of the server that completed without their ACKs (`no_tx`).
    pub unacknowledged: u64,
    /// Whether the server also waits for ACKs by the lossless rules after a restart. The settings must come
    /// from the option file, the command line or a persisted variable, because a restart loses values that
    /// were set at run time. Also false if the origin of the settings cannot be queried, and while semi-sync
    /// is off. Variables and counters do not show this property. Only the server probe of the `topology`
    /// crate sets this field.
    pub survives_restart: bool,
}

/// State of semi-sync for a server as a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SemiSyncReplica {
    /// Whether semi-sync is enabled.
    pub enabled: bool,
    /// Whether the replica sends ACKs now.
    pub active: bool,
}

/// State of semi-sync for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemiSyncState {
    /// State as a source; `None` if the plugin is not loaded.
    pub source: Option<SemiSyncSource>,
    /// State as a replica; `None` if the plugin is not loaded.
    pub replica: Option<SemiSyncReplica>,
    /// The server's uptime in seconds at the moment at which the counters were read. `None` if the server
    /// does not report its uptime.
    pub uptime_seconds: Option<u64>,
}

impl SemiSyncSource {
    /// Reads the state from global variables and status counters. The functions `variable` and `status` find
    /// a value by its name in lower case. Returns `None` if the plugin is not loaded.
    pub fn from_values<'a>(
        variable: impl Fn(&str) -> Option<&'a str>,
        status: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<Self> {
        let variable = |names: &[&str]| find(&variable, names);
        let number = |value: Option<&str>| value.and_then(|value| value.trim().parse::<u64>().ok());
        let counter = |name: &str| number(find(&status, &[name])).unwrap_or_default();
        let count = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let enabled = variable(&["enabled"])?;
        Some(Self {
            enabled: is_on(enabled),
            active: find(&status, &["status"]).is_some_and(is_on),
            timeout_ms: number(variable(&["timeout"])).unwrap_or_default(),
            wait_point: match variable(&["wait_point"]) {
                Some(value) if value.eq_ignore_ascii_case("AFTER_COMMIT") => WaitPoint::AfterCommit,
                _ => WaitPoint::AfterSync,
            },
            wait_no_replica: variable(&["wait_no_replica", "wait_no_slave"]).is_some_and(is_on),
            acks_needed: number(variable(&["wait_for_replica_count", "wait_for_slave_count"]))
                .map_or(1, count),
            clients: count(counter("clients")),
            waiting_sessions: counter("wait_sessions"),
            acknowledged: counter("yes_tx"),
            unacknowledged: counter("no_tx"),
            survives_restart: false,
        })
    }

    /// Whether each commit waits for its ACKs while semi-sync is in force, and no other session sees the
    /// commit before the ACKs.
    pub fn is_lossless(&self) -> bool {
        self.wait_point == WaitPoint::AfterSync
            && self.timeout_ms >= SEMI_SYNC_TIMEOUT_MS_MIN
            && self.wait_no_replica
    }
}

impl SemiSyncReplica {
    /// Reads the state as [`SemiSyncSource::from_values`] does.
    pub fn from_values<'a>(
        variable: impl Fn(&str) -> Option<&'a str>,
        status: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<Self> {
        let find = |values: &dyn Fn(&str) -> Option<&'a str>, name: &str| {
            values(&format!("rpl_semi_sync_replica_{name}"))
                .or_else(|| values(&format!("rpl_semi_sync_slave_{name}")))
        };
        let enabled = is_on(find(&variable, "enabled")?);
        Some(Self { enabled, active: find(&status, "status").is_some_and(is_on) })
    }
}

/// Queries the semi-sync state of a server. Does not set [`SemiSyncSource::survives_restart`].
///
/// # Errors
/// If a query fails.
pub async fn query_semi_sync(connection: &mut Connection) -> Result<SemiSyncState, SessionError> {
    let variables = connection.query("SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync_%'").await?;
    let status = connection
        .query("SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Rpl_semi_sync_%' OR Variable_name = 'Uptime'")
        .await?;
    let (variables, status) = (by_name(&variables), by_name(&status));
    let variable = |name: &str| variables.get(name).map(String::as_str);
    let counter = |name: &str| status.get(name).map(String::as_str);
    Ok(SemiSyncState {
        source: SemiSyncSource::from_values(variable, counter),
        replica: SemiSyncReplica::from_values(variable, counter),
        uptime_seconds: counter("uptime").and_then(|value| value.parse().ok()),
    })
}

fn by_name(result: &QueryResult) -> BTreeMap<String, String> {
    let pair = |row: &crate::text_result_rows::TextRow| {
        Some((row.get_str(0)?.to_ascii_lowercase(), row.get_str(1)?.to_owned()))
    };
    result.rows.iter().filter_map(pair).collect()
}

/// Returns the value of the first of these variables or counters that exists. Tries each name with the newer
/// prefix and with the older prefix.
fn find<'a>(values: &dyn Fn(&str) -> Option<&'a str>, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| {
        values(&format!("rpl_semi_sync_source_{name}"))
            .or_else(|| values(&format!("rpl_semi_sync_master_{name}")))
    })
}

fn is_on(value: &str) -> bool {
    value.eq_ignore_ascii_case("on") || value == "1"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(pairs: &[(&'static str, &'static str)]) -> Option<SemiSyncSource> {
        let find = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        SemiSyncSource::from_values(find, find)
    }

    #[test]
    fn both_namings_are_read() {
        let mysql = source(&[
            ("rpl_semi_sync_source_enabled", "ON"),
            ("rpl_semi_sync_source_timeout", "86400000"),
            ("rpl_semi_sync_source_wait_point", "AFTER_SYNC"),
            ("rpl_semi_sync_source_wait_no_replica", "ON"),
            ("rpl_semi_sync_source_wait_for_replica_count", "2"),
            ("rpl_semi_sync_source_status", "ON"),
            ("rpl_semi_sync_source_clients", "3"),
            ("rpl_semi_sync_source_no_tx", "7"),
        ]);
        let mysql = mysql.expect("the semi-sync plugin of MySQL is loaded");
        assert!(mysql.enabled && mysql.active && mysql.is_lossless());
        assert_eq!((mysql.acks_needed, mysql.clients, mysql.unacknowledged), (2, 3, 7));

        let mariadb = source(&[
            ("rpl_semi_sync_master_enabled", "OFF"),
            ("rpl_semi_sync_master_timeout", "10000"),
            ("rpl_semi_sync_master_wait_point", "AFTER_COMMIT"),
            ("rpl_semi_sync_master_wait_no_slave", "ON"),
        ]);
        let mariadb = mariadb.expect("semi-sync is built into MariaDB");
        assert!(!mariadb.enabled && !mariadb.active && !mariadb.is_lossless());
        assert_eq!((mariadb.acks_needed, mariadb.timeout_ms), (1, 10_000));
        assert_eq!(mariadb.wait_point, WaitPoint::AfterCommit);
        assert_eq!(source(&[]), None);
    }
}
