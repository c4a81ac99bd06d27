//! The queries of a probe, in each flavour and version.

use tailwater_session::semi_sync::{SemiSyncState, query_semi_sync};
use tailwater_session::{
    AccountPurpose, Connection, QueryResult, SessionError, check_plugin_privilege, check_privileges,
};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tailwater_wire::server_version::ServerFeature;
use tailwater_wire::sql_redaction::public_text;

use super::connection_usage;
use super::named_result_values::{NamedRow, NamedValues};
use super::semi_sync_persistence::waits_after_restart;
use crate::error::TopologyError;
use crate::server_state::{
    ConnectedReplica, DurabilitySettings, IoState, OptionalQuery, ReplicaChannel, SemiSyncReplica,
    SemiSyncSource, ServerState, ThreadError, UnansweredQuery,
};

/// The query for registered replicas on MariaDB. Since 10.5 it is also called SHOW REPLICA HOSTS; all
/// versions accept this older form.
const SHOW_REPLICAS_MARIADB: &str = "SHOW SLAVE HOSTS";

/// The maximum number of replicas and binlog readers that are listed for one server.
const LISTED_MAX: usize = 10_000;

pub(super) async fn look(connection: &mut Connection) -> Result<ServerState, TopologyError> {
    let flavour = connection.server().flavour;
    let is_new = connection.server().has(ServerFeature::ShowReplicaStatus);
    let (major, minor, patch) = connection.server().version;
    let variables = NamedValues::of(
        &connection
            .query(
                "SHOW GLOBAL VARIABLES WHERE Variable_name LIKE 'rpl_semi_sync_%' OR Variable_name IN ('server_id', \
                 'server_uuid', 'hostname', 'port', 'report_host', 'read_only', 'super_read_only', 'log_bin', 'log_replica_updates', \
                 'log_slave_updates', 'innodb_flush_log_at_trx_commit', 'sync_binlog', 'max_connections')",
            )
            .await?,
    );
    let status = NamedValues::of(
        &connection
            .query(
                "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Rpl_semi_sync_%' OR Variable_name IN ('Uptime', \
                 'Threads_connected')",
            )
            .await?,
    );
    let mut unanswered = Vec::new();
    let channels = ask_channels(connection, flavour, is_new, &mut unanswered).await?;
    let mut semi_sync_source = semi_sync_source(&variables, &status);
    if let Some(source) = &mut semi_sync_source
        && source.enabled
    {
        let acks = source.acks_needed;
        source.survives_restart = waits_after_restart(connection, &variables, acks, &mut unanswered).await?;
    }
    let semi_sync_unavailable = match semi_sync_source {
        None if flavour == Flavour::MySql => lack(check_plugin_privilege(connection).await)?,
        _ => None,
    };
    let connections = connection_usage::ask(connection, &variables, &status, &mut unanswered).await?;
    let missing_privilege = lack(check_privileges(connection, AccountPurpose::Failover).await)?;
    let (replicas, dump_hosts) = ask_replicas(connection, flavour, is_new, &mut unanswered).await?;
    // The executed GTIDs are queried last. So every transaction in the received set is either in the executed
    // set, or still in the relay log.
    let (executed, purged, binlog_state) = ask_gtids(connection, flavour).await?;
    Ok(ServerState {
        flavour,
        version: format!("{major}.{minor}.{patch}"),
        server_id: variables.number(&["server_id"]).unwrap_or_default(),
        uuid: variables.get(&["server_uuid"]).filter(|_| flavour == Flavour::MySql).map(str::to_owned),
        hostname: variables.get(&["hostname"]).unwrap_or_default().to_owned(),
        port: variables.number(&["port"]).unwrap_or_default(),
        report_host: variables.get(&["report_host"]).filter(|host| !host.is_empty()).map(str::to_owned),
        uptime_seconds: status.number(&["uptime"]).unwrap_or_default(),
        read_only: variables.is_on(&["read_only"]),
        super_read_only: variables.is_on(&["super_read_only"]),
        executed,
        purged,
        binlog_state,
        log_bin: variables.is_on(&["log_bin"]),
        log_replica_updates: variables.is_on(&["log_replica_updates", "log_slave_updates"]),
        connections,
        durability: DurabilitySettings {
            flush_log_at_commit: variables.number(&["innodb_flush_log_at_trx_commit"]).unwrap_or_default(),
            sync_binlog: variables.number(&["sync_binlog"]).unwrap_or_default(),
        },
        semi_sync_source,
        semi_sync_replica: semi_sync_replica(&variables, &status),
        semi_sync_unavailable,
        missing_privilege,
        channels,
        replicas,
        dump_hosts,
        unanswered,
    })
}

/// Returns the privilege that the account lacks, if that is certain.
fn lack(checked: Result<(), SessionError>) -> Result<Option<String>, TopologyError> {
    match checked {
        Ok(()) => Ok(None),
        Err(error @ SessionError::MissingGrant { .. }) => Ok(Some(format!("{}: {error}", error.code()))),
        // The account is not allowed to list its own privileges. It may still have the required privileges.
        Err(SessionError::Server { .. } | SessionError::UnexpectedResult { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads the executed and the purged transactions, and MariaDB's binlog state.
///
/// The query is a SELECT, because SHOW VARIABLES cuts values at 1024 characters.
pub(super) async fn ask_gtids(
    connection: &mut Connection,
    flavour: Flavour,
) -> Result<(GtidSet, Option<GtidSet>, Option<GtidSet>), TopologyError> {
    let question = match flavour {
        Flavour::MySql => "SELECT @@global.gtid_executed, @@global.gtid_purged",
        Flavour::MariaDb => "SELECT @@global.gtid_slave_pos, @@global.gtid_binlog_state",
    };
    let answer = connection.query(question).await?;
    let column = |index: usize| answer.first().and_then(|row| row.get_str(index)).unwrap_or_default();
    let first = parse_gtids(connection, flavour, column(0))?;
    let second = parse_gtids(connection, flavour, column(1))?;
    Ok(match flavour {
        Flavour::MySql => (first, Some(second), None),
        Flavour::MariaDb => {
            // Two sets of one flavour always have a union.
            let both = second.union(&first).unwrap_or_else(|_| second.clone());
            (both, None, Some(second))
        }
    })
}

fn parse_gtids(connection: &Connection, flavour: Flavour, text: &str) -> Result<GtidSet, TopologyError> {
    GtidSet::parse(flavour, text).map_err(|_| TopologyError::UnexpectedAnswer {
        server: connection.endpoint().to_owned(),
        what: "a GTID set",
        value: text.chars().take(200).collect(),
    })
}

/// Executes a query for which the account may lack the privilege. If the server refuses it, adds the refusal
/// to `unanswered`.
pub(super) async fn ask_if_allowed(
    connection: &mut Connection,
    (statement, (question, privilege)): (&str, (OptionalQuery, &'static str)),
    unanswered: &mut Vec<UnansweredQuery>,
) -> Result<Option<QueryResult>, TopologyError> {
    match connection.query(statement).await {
        Ok(answer) => Ok(Some(answer)),
        // After a refusal the connection can still be used.
        Err(SessionError::Server { error, .. }) => {
            unanswered.push(UnansweredQuery { question, privilege, reason: format!("{statement}: {error}") });
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads the replication channels of the server.
pub(super) async fn channels(
    connection: &mut Connection,
    unanswered: &mut Vec<UnansweredQuery>,
) -> Result<Vec<ReplicaChannel>, TopologyError> {
    let flavour = connection.server().flavour;
    let is_new = connection.server().has(ServerFeature::ShowReplicaStatus);
    ask_channels(connection, flavour, is_new, unanswered).await
}

async fn ask_channels(
    connection: &mut Connection,
    flavour: Flavour,
    is_new: bool,
    unanswered: &mut Vec<UnansweredQuery>,
) -> Result<Vec<ReplicaChannel>, TopologyError> {
    let question = match (flavour, is_new) {
        (Flavour::MariaDb, _) => "SHOW ALL SLAVES STATUS",
        (Flavour::MySql, true) => "SHOW REPLICA STATUS",
        (Flavour::MySql, false) => "SHOW SLAVE STATUS",
    };
    let privilege = match flavour {
        Flavour::MariaDb => "REPLICA MONITOR",
        Flavour::MySql => "REPLICATION CLIENT",
    };
    let asked = (question, (OptionalQuery::Replication, privilege));
    let Some(answer) = ask_if_allowed(connection, asked, unanswered).await? else { return Ok(Vec::new()) };
    answer
        .rows
        .iter()
        .take(LISTED_MAX)
        .map(|row| {
            let row = NamedRow { result: &answer, row };
            let text = row.text(&["Retrieved_Gtid_Set", "Gtid_IO_Pos"]);
            Ok(channel(&row, parse_gtids(connection, flavour, &text)?))
        })
        .collect()
}

fn channel(row: &NamedRow<'_>, received: GtidSet) -> ReplicaChannel {
    let error = |number: &str, message: &str| {
        let number = row.number::<u16>(&[number]).filter(|number| *number != 0)?;
        Some(ThreadError { number, message: row.text(&[message]) })
    };
    // The error texts of an applier contain row values and statements, which must not be shown.
    let public = |error: ThreadError| ThreadError { message: public_text(&error.message), ..error };
    let io = match row.text(&["Replica_IO_Running", "Slave_IO_Running"]).as_str() {
        "Yes" => IoState::Running,
        "No" => IoState::Stopped,
        // The state is `Connecting`, or on MariaDB also `Preparing`.
        _ => IoState::Connecting,
    };
    let using_gtid = row.text(&["Using_Gtid"]);
    ReplicaChannel {
        name: row.text(&["Channel_Name", "Connection_name"]),
        source_host: row.text(&["Source_Host", "Master_Host"]),
        source_port: row.number(&["Source_Port", "Master_Port"]).unwrap_or_default(),
        source_server_id: row.number(&["Source_Server_Id", "Master_Server_Id"]).unwrap_or_default(),
        source_uuid: row
            .value(&["Source_UUID", "Master_UUID"])
            .filter(|uuid| !uuid.is_empty())
            .map(str::to_owned),
        io,
        io_error: error("Last_IO_Errno", "Last_IO_Error"),
        sql_running: row.text(&["Replica_SQL_Running", "Slave_SQL_Running"]) == "Yes",
        sql_error: error("Last_SQL_Errno", "Last_SQL_Error").map(public),
        lag_seconds: row.number(&["Seconds_Behind_Source", "Seconds_Behind_Master"]),
        delay_seconds: row.number(&["SQL_Delay"]).unwrap_or_default(),
        uses_gtids: row.text(&["Auto_Position"]) == "1" || !matches!(using_gtid.as_str(), "" | "No"),
        received,
        received_position: (
            row.text(&["Source_Log_File", "Master_Log_File"]),
            row.number(&["Read_Source_Log_Pos", "Read_Master_Log_Pos"]).unwrap_or_default(),
        ),
        executed_position: (
            row.text(&["Relay_Source_Log_File", "Relay_Master_Log_File"]),
            row.number(&["Exec_Source_Log_Pos", "Exec_Master_Log_Pos"]).unwrap_or_default(),
        ),
    }
}

async fn ask_replicas(
    connection: &mut Connection,
    flavour: Flavour,
    is_new: bool,
    unanswered: &mut Vec<UnansweredQuery>,
) -> Result<(Vec<ConnectedReplica>, Vec<String>), TopologyError> {
    let (replicas, readers) = match (flavour, is_new) {
        (Flavour::MySql, true) => (
            "SHOW REPLICAS",
            "SELECT HOST FROM performance_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'",
        ),
        _ => (
            SHOW_REPLICAS_MARIADB,
            "SELECT HOST FROM information_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'",
        ),
    };
    let privilege = match flavour {
        Flavour::MariaDb => "REPLICATION MASTER ADMIN",
        Flavour::MySql => "REPLICATION SLAVE",
    };
    let asked = (replicas, (OptionalQuery::Replicas, privilege));
    let listed = match ask_if_allowed(connection, asked, unanswered).await? {
        None => Vec::new(),
        Some(answer) => {
            let rows = answer.rows.iter().take(LISTED_MAX).map(|row| NamedRow { result: &answer, row });
            rows.map(|row| ConnectedReplica {
                server_id: row.number(&["Server_Id"]).unwrap_or_default(),
                host: row.text(&["Host"]),
                port: row.number(&["Port"]).unwrap_or_default(),
                uuid: row
                    .value(&["Replica_UUID", "Slave_UUID"])
                    .filter(|uuid| !uuid.is_empty())
                    .map(str::to_owned),
            })
            .collect()
        }
    };
    let asked = (readers, (OptionalQuery::DumpThreads, "PROCESS"));
    let hosts = match ask_if_allowed(connection, asked, unanswered).await? {
        None => Vec::new(),
        Some(answer) => {
            answer.rows.iter().take(LISTED_MAX).filter_map(|row| row.get_str(0)).map(str::to_owned).collect()
        }
    };
    Ok((listed, hosts))
}

/// Reads the state of semi-sync for the server as a source. Does not determine whether semi-sync is still
/// enabled after a restart.
pub(super) async fn semi_sync_now(
    connection: &mut Connection,
) -> Result<Option<SemiSyncSource>, TopologyError> {
    Ok(query_semi_sync(connection).await?.source)
}

/// Reads the state of semi-sync, for the server as a source and as a replica.
pub(super) async fn semi_sync(
    connection: &mut Connection,
) -> Result<(Option<SemiSyncSource>, Option<SemiSyncReplica>), TopologyError> {
    let SemiSyncState { mut source, replica, .. } = query_semi_sync(connection).await?;
    if let Some(source) = &mut source
        && source.enabled
    {
        let variables = connection.query("SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync_%'").await?;
        let variables = NamedValues::of(&variables);
        let acks = source.acks_needed;
        source.survives_restart = waits_after_restart(connection, &variables, acks, &mut Vec::new()).await?;
    }
    Ok((source, replica))
}

fn semi_sync_source(variables: &NamedValues, status: &NamedValues) -> Option<SemiSyncSource> {
    SemiSyncSource::from_values(|name| variables.get(&[name]), |name| status.get(&[name]))
}

fn semi_sync_replica(variables: &NamedValues, status: &NamedValues) -> Option<SemiSyncReplica> {
    SemiSyncReplica::from_values(|name| variables.get(&[name]), |name| status.get(&[name]))
}
