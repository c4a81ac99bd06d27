//! The command loop of one client, until the client disconnects or its stream starts.

use std::time::Duration;

use tailwater_log::LogPosition;
use tailwater_session::SessionError;
use tailwater_session::server::{ClientSession, integer_column, text_column};
use tailwater_wire::protocol::command::{ClientCommand, RegisterReplica};
use tailwater_wire::protocol::ok_err_eof_packets::OkPacket;
use tracing::info;

use super::client_error::ClientError;
use super::client_statement::{ResultColumnType, ResultRows, StatementResult, StatementSession, execute};
use super::connected_clients::{ClientRegistration, ReplicaRegistration};
use super::listener::ServerShared;
use super::stream_start::{self, ClientDumpRequest, StartDecision, StreamStart};
use super::{binlog_sender, purge_binary_logs, status_collector};

/// The command COM_INIT_DB. The server answers it although [`ClientCommand`] does not parse it.
const COM_INIT_DB: u8 = 0x02;
const COM_SET_OPTION: u8 = 0x1b;
const COM_RESET_CONNECTION: u8 = 0x1f;

/// How long a client that is ahead of the log waits before it gets an error. The capture may be about to
/// receive the transactions that the client has.
const AHEAD_PATIENCE: Duration = Duration::from_secs(10);

/// Answers the commands of a client that has logged in.
pub(super) async fn run_client_loop(
    mut client: ClientSession,
    shared: &ServerShared,
) -> Result<(), SessionError> {
    let registered = shared.clients.add(client.connection_id(), client.user(), client.peer());
    let mut session = StatementSession::default();
    // Subscribe to steps of the clock before the client can query the time.
    let clock_steps = shared.served.receiver.clock_steps();
    loop {
        let payload = tokio::select! {
            () = shared.stop.cancelled() => return send_shutdown_error(client).await,
            () = registered.stop().cancelled() => return send_shutdown_error(client).await,
            payload = client.read_command() => payload?,
        };
        let Some(payload) = payload else { return Ok(()) };
        let command = match ClientCommand::parse(&payload) {
            Ok(command) => command,
            Err(error) => {
                client
                    .write_error(1835, "HY000", &format!("Malformed communication packet: {error}"))
                    .await?;
                continue;
            }
        };
        match command {
            ClientCommand::Quit => return Ok(()),
            ClientCommand::Ping => client.write_ok(OkPacket::default()).await?,
            ClientCommand::Query(sql) => query(&mut client, &mut session, shared, &registered, sql).await?,
            ClientCommand::RegisterReplica(replica) => {
                registered.set_replica(registration(&replica, &session));
                client.write_ok(OkPacket::default()).await?;
            }
            ClientCommand::Other { command: COM_INIT_DB | COM_RESET_CONNECTION, .. } => {
                client.write_ok(OkPacket::default()).await?;
            }
            ClientCommand::Other { command: COM_SET_OPTION, .. } => client.write_eof().await?,
            ClientCommand::BinlogDump { .. } | ClientCommand::BinlogDumpGtid { .. } => {
                // Prevent purges between the decision where the stream starts and the start of the stream.
                let holding = shared
                    .served
                    .log
                    .register_reader(&format!("client {}", client.peer()), LogPosition::ZERO);
                let start_result = tokio::select! {
                    () = shared.stop.cancelled() => return send_shutdown_error(client).await,
                    () = registered.stop().cancelled() => return send_shutdown_error(client).await,
                    start_result = find_start(shared, &session, &command) => start_result,
                };
                return match start_result {
                    Ok((request, begin)) => {
                        binlog_sender::send(client, shared, &registered, clock_steps, request, begin, holding)
                            .await
                    }
                    Err(refusal) => {
                        info!(
                            code = refusal.code,
                            "refused a client's request for a stream: {}", refusal.message
                        );
                        refuse(&mut client, &refusal).await
                    }
                };
            }
            ClientCommand::Other { .. } => {
                let refusal = ClientError::new(1047, "Unknown command: this is Tailwater's binlog server");
                refuse(&mut client, &refusal).await?;
            }
        }
    }
}

async fn send_shutdown_error(mut client: ClientSession) -> Result<(), SessionError> {
    client.write_error(1053, "08S01", "Server shutdown in progress").await
}

async fn refuse(client: &mut ClientSession, refusal: &ClientError) -> Result<(), SessionError> {
    client.write_error(refusal.code, refusal.sqlstate, &refusal.message).await
}

fn registration(replica: &RegisterReplica<'_>, session: &StatementSession) -> ReplicaRegistration {
    ReplicaRegistration {
        server_id: replica.server_id,
        host: String::from_utf8_lossy(replica.host).into_owned(),
        port: replica.port,
        // A UUID has at most this length.
        uuid: session.replica_uuid().unwrap_or_default().chars().take(36).collect(),
    }
}

/// Decides where the stream of a dump command starts. A client that is ahead of the log waits for a while.
async fn find_start(
    shared: &ServerShared,
    session: &StatementSession,
    command: &ClientCommand<'_>,
) -> Result<(ClientDumpRequest, StreamStart), ClientError> {
    let mut durable = shared.served.log.subscribe();
    let deadline = tokio::time::Instant::now() + AHEAD_PATIENCE;
    loop {
        durable.mark_unchanged();
        let nothing = || ClientError::dump("the log of this source is still empty");
        let refusal = match shared.log_snapshot() {
            None => nothing(),
            Some(log) => {
                let flavour = stream_start::LogHistory::flavour(&log);
                let request = ClientDumpRequest::new(command, session, flavour).ok_or_else(nothing)??;
                match tokio::task::block_in_place(|| stream_start::decide(&request, &log)) {
                    StartDecision::Begin(begin) => return Ok((request, begin)),
                    StartDecision::Refuse(refusal) => return Err(refusal),
                    StartDecision::Wait(refusal) => refusal,
                }
            }
        };
        let changed = tokio::time::timeout_at(deadline, durable.changed()).await;
        if !matches!(changed, Ok(Ok(()))) {
            return Err(refusal);
        }
    }
}

async fn query(
    client: &mut ClientSession,
    session: &mut StatementSession,
    shared: &ServerShared,
    registered: &ClientRegistration,
    sql: &[u8],
) -> Result<(), SessionError> {
    let Some(view) = status_collector::build(shared, client) else {
        let refusal =
            ClientError::new(1105, "the log of this source is still empty, and its source was not reached");
        return refuse(client, &refusal).await;
    };
    let is_admin = shared.options.admins.contains(client.user());
    let denied =
        || ClientError::new(1227, "Access denied; you need `admin = true` in Tailwater's [[serve.user]]");
    match execute(session, &view, sql) {
        StatementResult::Ok => client.write_ok(OkPacket::default()).await,
        StatementResult::Rows(rows) => write_rows(client, rows).await,
        StatementResult::Error(refusal) => refuse(client, &refusal).await,
        StatementResult::Kill { connection_id, .. } if !is_admin && connection_id != registered.id() => {
            refuse(client, &denied()).await
        }
        StatementResult::Kill { connection_id, .. } => match shared.clients.kill(connection_id) {
            true => client.write_ok(OkPacket::default()).await,
            false => {
                refuse(client, &ClientError::new(1094, format!("Unknown thread id: {connection_id}"))).await
            }
        },
        StatementResult::Purge(_) if !is_admin => refuse(client, &denied()).await,
        StatementResult::Purge(before) => match purge_binary_logs::purge(shared, &before) {
            Ok(()) => client.write_ok(OkPacket::default()).await,
            Err(refusal) => refuse(client, &refusal).await,
        },
        StatementResult::GtidPosition { column, file, position } => {
            let log = shared.log_snapshot();
            let look = || log.and_then(|log| log.gtid_position(&file, position));
            let found = tokio::task::block_in_place(look);
            let rows = ResultRows {
                columns: vec![super::client_statement::ResultColumn {
                    name: column,
                    column_type: ResultColumnType::Text,
                }],
                rows: vec![vec![found]],
            };
            write_rows(client, rows).await
        }
    }
}

async fn write_rows(client: &mut ClientSession, rows: ResultRows) -> Result<(), SessionError> {
    let columns: Vec<_> = rows
        .columns
        .into_iter()
        .map(|column| match column.column_type {
            ResultColumnType::Integer => integer_column(column.name),
            ResultColumnType::Text => text_column(column.name),
        })
        .collect();
    client.write_rows(&columns, rows.rows).await
}
