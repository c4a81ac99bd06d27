//! Collects the data that a client's statement can query.

use std::time::UNIX_EPOCH;

use tailwater_log::{LogEntry, SourceIdentity};
use tailwater_session::server::ClientSession;
use tailwater_session::{Endpoint, TlsMode};
use tailwater_wire::gtid::{GtidSet, MariadbBinlogState, MysqlGtidSet};
use tailwater_wire::server_version::without_replication_prefix;

use super::client_statement::{
    ProcessView, ReceiverError, ReceiverView, ReplicaView, ServedGtids, ServerView,
};
use super::connected_clients::ConnectedClient;
use super::listener::ServerShared;
use super::stream_start::LogHistory;
use crate::receiver_status::ReceiverState;

/// The error number that a replica shows for a broken connection to its source.
const CONNECTION_LOST: u16 = 2013;

/// The longest time that a capture waits between two attempts to connect to its source, in seconds.
const RETRY_SECONDS: u64 = 2;

/// Collects the data; `None` while the log is empty.
pub(super) fn build(shared: &ServerShared, client: &ClientSession) -> Option<ServerView> {
    let log = shared.log_snapshot()?;
    let source = shared.served.log.source()?;
    let now_us = shared.served.receiver.source_now_us();
    let variables = shared.served.receiver.source_variables();
    let oldest = log.catalog().files().first().and_then(|file| file.segments.first());
    let gtids = match log.gtids() {
        GtidSet::MySql(executed) => {
            let purged = match oldest.and_then(|segment| log.gtids_before(segment.number).ok().flatten()) {
                Some(GtidSet::MySql(purged)) => purged,
                _ => MysqlGtidSet::new(),
            };
            let mode = match variables.get("gtid_mode") {
                Some(mode) => mode.clone(),
                // The source's `gtid_mode` is unknown until the capture has reached the source. Use `OFF` if
                // the log has no GTIDs, and `ON` otherwise.
                None if executed.is_empty() => "OFF".into(),
                None => "ON".into(),
            };
            ServedGtids::Mysql { executed, purged, mode }
        }
        GtidSet::MariaDb(state) => {
            let domain = variables.get("gtid_domain_id").and_then(|domain| domain.parse().ok());
            let domain = domain.unwrap_or_else(|| newest_domain(shared, &state));
            ServedGtids::Mariadb { state, domain }
        }
    };
    let clients = shared.clients.list();
    Some(ServerView {
        // In the greeting, MariaDB puts a prefix before its version. The prefix is not a part of the version.
        server_version: without_replication_prefix(&source.server_version).to_owned(),
        server_id: shared.options.server_id,
        server_uuid: shared.options.server_uuid.clone(),
        hostname: shared.hostname.clone(),
        port: shared.address.port(),
        gtids,
        checksum: log.checksum(),
        files: log.catalog().files().iter().map(|file| (file.name.clone(), file.size())).collect(),
        replicas: clients.iter().filter_map(replica_view).collect(),
        processes: clients.iter().map(|client| process_view(client, &log)).collect(),
        capture: capture_view(shared, &source, now_us),
        source_variables: variables,
        semi_sync: true,
        now_us,
        uptime_seconds: shared.began.elapsed().as_secs(),
        user: format!("{}@{}", client.user(), client.peer().ip()),
        connection_id: client.connection_id(),
    })
}

fn newest_domain(shared: &ServerShared, state: &MariadbBinlogState) -> u32 {
    let last = shared.served.log.last_transaction().and_then(|entry| entry.gtid);
    match last {
        Some(tailwater_wire::gtid::Gtid::MariaDb(gtid)) => gtid.domain,
        _ => state.iter().next().map_or(0, |gtid| gtid.domain),
    }
}

fn replica_view(client: &ConnectedClient) -> Option<ReplicaView> {
    let replica = client.replica.as_ref()?;
    Some(ReplicaView {
        server_id: replica.server_id,
        host: replica.host.clone(),
        port: replica.port,
        uuid: replica.uuid.clone(),
        user: client.user.clone(),
        semi_sync: client.stream.as_ref().is_some_and(|stream| stream.semi_sync),
    })
}

fn process_view(client: &ConnectedClient, log: &impl LogHistory) -> ProcessView {
    let (command, state) = match &client.stream {
        None => ("Sleep".to_owned(), String::new()),
        Some(stream) => {
            let (file, position) = &stream.sent;
            let end = log.catalog().end();
            let state = match end.is_some_and(|end| end.file == *file && end.position <= *position) {
                true => format!("Has sent all of the log, {file}:{position}; waiting for more"),
                false => format!("Sending the log, at {file}:{position}"),
            };
            let state = match &stream.acknowledged {
                Some((file, position)) => format!("{state}; acknowledged {file}:{position}"),
                None => state,
            };
            (if stream.by_gtids { "Binlog Dump GTID" } else { "Binlog Dump" }.to_owned(), state)
        }
    };
    ProcessView {
        id: client.id,
        user: client.user.clone(),
        host: client.peer.to_string(),
        command,
        seconds: client.since.elapsed().as_secs(),
        state,
    }
}

fn capture_view(shared: &ServerShared, source: &SourceIdentity, now_us: u64) -> ReceiverView {
    let served = &shared.served;
    let status = served.receiver.status();
    let state = match &status.state {
        ReceiverState::Streaming => "Waiting for source to send event".to_owned(),
        ReceiverState::Connecting => "Connecting to source".into(),
        ReceiverState::Waiting(reason) => format!("Waiting to reconnect after: {reason}"),
        ReceiverState::Refused(reason) => format!("Stopped: {reason}"),
        ReceiverState::StoppedByOrder => "Stopped by order of a manager".into(),
        ReceiverState::Stopped => "Stopped".into(),
    };
    let segments = served.log.segments();
    let (file, position) = segments.last().map_or((String::new(), 0), |newest| {
        let end = served.log.last_transaction().map_or(0, |entry: LogEntry| entry.source_end);
        (newest.source_file.clone(), end.max(newest.source_offset))
    });
    let (source_host, source_port, source_user, tls) = match served.receiver.followed_server() {
        None => {
            (served.source_host.clone(), served.source_port, served.source_user.clone(), served.source_tls)
        }
        Some(connect) => {
            let (host, port) = match &connect.endpoint {
                Endpoint::Tcp { host, port } => (host.clone(), *port),
                Endpoint::Unix { path } => (path.display().to_string(), 0),
            };
            let tls = !matches!(connect.tls.mode, TlsMode::Off | TlsMode::Preferred);
            (host, port, connect.user, tls)
        }
    };
    ReceiverView {
        streaming: status.state == ReceiverState::Streaming,
        connecting: matches!(status.state, ReceiverState::Connecting | ReceiverState::Waiting(_)),
        state,
        source_host,
        source_port,
        source_user,
        source_server_id: Some(source.server_id),
        source_uuid: source.server_uuid.clone(),
        file,
        position,
        seconds_behind: (status.state == ReceiverState::Streaming).then(|| seconds_behind(shared, now_us)),
        retry_seconds: RETRY_SECONDS,
        last_error: status.last_failure.filter(|_| status.state != ReceiverState::Streaming).map(|failure| {
            ReceiverError {
                number: CONNECTION_LOST,
                message: failure.message,
                time: failure.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            }
        }),
        log_bytes: segments.iter().map(|segment| segment.bytes).sum(),
        tls,
    }
}

/// The age of the log's newest transaction, if the capture received it within the last second; otherwise 0. A
/// source that has sent nothing for a second has sent everything.
fn seconds_behind(shared: &ServerShared, now_us: u64) -> u64 {
    const MOMENT_MS: u64 = 1_000;
    match shared.served.receiver.appended_ago_ms() {
        Some(0..=MOMENT_MS) => {
            let newest_us = shared.served.log.last_transaction().map_or(now_us, |entry| entry.commit_time_us);
            now_us.saturating_sub(newest_us) / 1_000_000
        }
        _ => 0,
    }
}
