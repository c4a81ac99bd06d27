//! Queries a source over an ordinary connection: its server id and UUID, its binlogs, its clock, and its
//! semi-sync state.

use std::collections::BTreeMap;
use std::time::Duration;

use tailwater_log::SourceIdentity;
use tailwater_session::{
    ConnectOptions, Connection, DumpRequest, DumpStart, QueryResult, TextRow, semi_sync,
};
use tailwater_wire::binlog_event::EventType;
use tailwater_wire::gtid::{GtidSet, MysqlGtidSet};
use tailwater_wire::{Flavour, WireError};

use crate::CaptureError;
use crate::binlog_stream_ingest::parse_artificial_rotate;
use crate::resume_position::SourceState;
use crate::semi_sync_monitor::SemiSyncSample;

/// Queries the server id, the UUID and the GTIDs of the source.
///
/// # Errors
/// [`CaptureError::Session`] if the query fails, [`CaptureError::Answer`] if the answer is invalid,
/// [`CaptureError::NoBinlog`] if the source writes no binlog.
pub async fn query_state(connection: &mut Connection) -> Result<SourceState, CaptureError> {
    let flavour = connection.server().flavour;
    let identity_sql = match flavour {
        Flavour::MySql => "SELECT @@server_id, @@log_bin, @@server_uuid, @@global.gtid_mode",
        Flavour::MariaDb => "SELECT @@server_id, @@log_bin",
    };
    let answer = connection.query(identity_sql).await?;
    let server_id = text(&answer, 0, "server_id")?.parse().map_err(|_| CaptureError::Answer {
        what: "server_id",
        detail: "the value is not a number".into(),
    })?;
    if text(&answer, 1, "log_bin")? != "1" {
        return Err(CaptureError::NoBinlog);
    }
    let (server_uuid, gtids_on) = match flavour {
        Flavour::MySql => {
            (Some(text(&answer, 2, "server_uuid")?), text(&answer, 3, "gtid_mode")?.starts_with("ON"))
        }
        Flavour::MariaDb => (None, true),
    };
    let server_version = connection.server().version_text.clone();
    let identity = SourceIdentity { flavour, server_uuid, server_id, server_version };

    let parse = |text: String| GtidSet::parse(flavour, &text).map_err(CaptureError::gtids);
    let (gtids, gtids_purged) = match (flavour, gtids_on) {
        (_, false) => (None, None),
        (Flavour::MySql, true) => {
            // Transactions that wait for the capture's ACK are in the binlog and in the log, but not in
            // `gtid_executed` yet: the thread of the waiting client owns them. Read `gtid_owned` before
            // `gtid_executed`, because a transaction may move from the first to the second between the two
            // reads.
            let sql = "SELECT @@global.gtid_owned, @@global.gtid_executed, @@global.gtid_purged";
            let answer = connection.query(sql).await?;
            let owned = parse(without_thread_ids(&text(&answer, 0, "gtid_owned")?))?;
            let executed = parse(text(&answer, 1, "gtid_executed")?)?;
            let all = executed.union(&owned).map_err(CaptureError::gtids)?;
            (Some(all), Some(parse(text(&answer, 2, "gtid_purged")?)?))
        }
        // MariaDB has no set of purged GTIDs. Instead, it refuses a stream that starts at a purged GTID.
        (Flavour::MariaDb, true) => {
            // Transactions that MariaDB received with a copy of another server's data, or through a channel,
            // may be missing in its binlog. They are only in `gtid_slave_pos`. The sequence numbers of
            // MariaDB's own transactions continue after them.
            let sql = "SELECT @@global.gtid_binlog_state, @@global.gtid_slave_pos";
            let answer = connection.query(sql).await?;
            let written = parse(text(&answer, 0, "gtid_binlog_state")?)?;
            let replicated = parse(text(&answer, 1, "gtid_slave_pos")?)?;
            (Some(written.union(&replicated).map_err(CaptureError::gtids)?), None)
        }
    };
    Ok(SourceState { identity, binlogs: None, current_binlog: None, gtids, gtids_purged })
}

/// Queries the global variables that replicas and other readers of the binlog query.
///
/// # Errors
/// [`CaptureError::Session`] if the query fails.
pub async fn query_variables(connection: &mut Connection) -> Result<BTreeMap<String, String>, CaptureError> {
    const NAMES: &str = "'binlog_format', 'binlog_row_image', 'binlog_row_metadata', 'binlog_row_value_options', \
        'binlog_transaction_compression', 'log_bin_compress', 'character_set_server', 'collation_server', 'time_zone', \
        'system_time_zone', 'lower_case_table_names', 'sql_mode', 'gtid_mode', 'enforce_gtid_consistency', \
        'gtid_domain_id', 'max_allowed_packet', 'explicit_defaults_for_timestamp', 'version_comment'";
    let answer = connection.query(&format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({NAMES})")).await?;
    let variable = |row: &TextRow| Some((row.get_str(0)?.to_owned(), row.get_str(1)?.to_owned()));
    Ok(answer.rows.iter().filter_map(variable).collect())
}

/// How long a source may take to list its binlog files. The list needs a lock that commits may hold while
/// they wait for this capture.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Queries the source's binlog files and their sizes in bytes, oldest first.
///
/// # Errors
/// The errors of [`query_state`]; [`CaptureError::Answer`] if the source does not answer in time, see
/// [`crate::resume_position`].
pub async fn query_binlogs(connection: &mut Connection) -> Result<Vec<(String, u64)>, CaptureError> {
    let wrong = |detail: &str| CaptureError::Answer { what: "its binlog files", detail: detail.into() };
    let answer = tokio::time::timeout(LIST_TIMEOUT, connection.query("SHOW BINARY LOGS"))
        .await
        .map_err(|_| wrong("the list is locked while commits wait for an ACK"))??;
    let row = |row: &TextRow| Some((row.get_str(0)?.to_owned(), row.get_u64(1)?));
    let binlogs: Option<Vec<_>> = answer.rows.iter().map(row).collect();
    binlogs.ok_or_else(|| wrong("a row lacks the name or the size"))
}

/// Queries the binlog file that the source writes now. Returns an older file if a commit in the older file
/// still waits for an ACK. `connect` has the options for a second connection to the source. `server_id` is
/// the id of the capture.
///
/// # Errors
/// The errors of [`query_binlogs`].
pub async fn query_current_binlog(
    connection: &mut Connection,
    connect: &ConnectOptions,
    server_id: u32,
) -> Result<Option<String>, CaptureError> {
    match connection.server().flavour {
        Flavour::MySql => {
            // On MySQL every statement that returns the file name waits for the lock of the binlog. Commits
            // that wait for an ACK may hold this lock. A stream does not wait for it. A stream starts with
            // the name of the file that has the first transaction still waiting for an ACK.
            let answer = connection.query("SELECT @@global.gtid_mode, @@global.gtid_executed").await?;
            if !text(&answer, 0, "gtid_mode")?.starts_with("ON") {
                return Ok(query_binlogs(connection).await?.pop().map(|(file, _)| file));
            }
            let executed = MysqlGtidSet::parse(&text(&answer, 1, "gtid_executed")?)
                .map_err(|error| CaptureError::Answer { what: "a GTID set", detail: error.to_string() })?;
            let start = DumpStart::MysqlGtid { set_block: executed.encode() };
            let stream = Connection::connect(connect).await?.dump(DumpRequest::new(server_id, start)).await;
            match stream?.next().await? {
                Some(event) if event.header.event_type == EventType::ROTATE => {
                    let wrong = |error: WireError| CaptureError::Answer {
                        what: "its current binlog file",
                        detail: error.to_string(),
                    };
                    Ok(Some(parse_artificial_rotate(Flavour::MySql, &event.data).map_err(wrong)?.0))
                }
                _ => Err(CaptureError::stream("the stream does not begin with the name of its file")),
            }
        }
        // On MariaDB, only the status variable `binlog_snapshot_file` shows the file name without taking the
        // lock of the binlog.
        Flavour::MariaDb => {
            let answer = connection.query("SHOW GLOBAL STATUS LIKE 'binlog_snapshot_file'").await?;
            let file = answer.rows.first().and_then(|row| row.get_str(1)).filter(|file| !file.is_empty());
            Ok(file.map(str::to_owned))
        }
    }
}

/// Queries the source's time, in microseconds since 1970.
///
/// # Errors
/// The errors of [`query_semi_sync`].
pub async fn query_clock(connection: &mut Connection) -> Result<i64, CaptureError> {
    // `@@timestamp` is the only expression that has fractions of a second and does not depend on the time
    // zone.
    let answer = connection.query("SELECT @@timestamp").await?;
    let seconds = text(&answer, 0, "the time")?.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
    let wrong = || CaptureError::Answer { what: "the time", detail: "the value is not a number".into() };
    seconds.map(|seconds| (seconds * 1e6) as i64).ok_or_else(wrong)
}

/// Queries the source's semi-sync settings and counters.
///
/// # Errors
/// [`CaptureError::Session`] if the query fails, [`CaptureError::Answer`] if the answer is invalid.
pub async fn query_semi_sync(connection: &mut Connection) -> Result<SemiSyncSample, CaptureError> {
    let state = semi_sync::query_semi_sync(connection).await?;
    let uptime_seconds = state
        .uptime_seconds
        .ok_or_else(|| CaptureError::Answer { what: "its uptime", detail: "the value is missing".into() })?;
    Ok(SemiSyncSample { source: state.source, uptime_seconds })
}

fn text(answer: &QueryResult, column: usize, what: &'static str) -> Result<String, CaptureError> {
    let value = answer.rows.first().and_then(|row| row.get_str(column));
    value
        .map(str::to_owned)
        .ok_or_else(|| CaptureError::Answer { what, detail: "the value is missing".into() })
}

/// Removes the id of the owning thread from each GTID of `gtid_owned`. Example of a value: `uuid:7#31:8#32`.
fn without_thread_ids(owned: &str) -> String {
    let mut gtids = String::with_capacity(owned.len());
    let mut in_thread_id = false;
    for character in owned.chars() {
        in_thread_id = character == '#' || (in_thread_id && character.is_ascii_digit());
        if !in_thread_id {
            gtids.push(character);
        }
    }
    gtids
}

#[cfg(test)]
mod tests {
    use super::without_thread_ids;

    #[test]
    fn thread_ids_are_removed_from_the_gtids_in_gtid_owned() {
        let owned =
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:23#10:24#11,\n4e11fa47-71ca-11e1-9e33-c80aa9429562:1#7";
        let gtids = "3e11fa47-71ca-11e1-9e33-c80aa9429562:23:24,\n4e11fa47-71ca-11e1-9e33-c80aa9429562:1";
        assert_eq!(without_thread_ids(owned), gtids);
        assert_eq!(without_thread_ids(""), "");
    }
}
