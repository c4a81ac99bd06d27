//! `SHOW REPLICA STATUS`: shows the capture as a replica of its source, so that monitoring can watch it like
//! a replica. The capture applies nothing, so the columns for the SQL thread show the state of the log. Every
//! transaction that is durable in the log counts as executed.

use tailwater_wire::Flavour;

use super::queryable_server_state::{ServedGtids, ServerView};
use super::session_variables::SqlValue;
use super::sql_date_time;
use super::statement_result::ResultRows;

/// The columns of MySQL 9.7. The old names of these columns are derived from the new ones.
const MYSQL: &[&str] = &[
    "Replica_IO_State",
    "Source_Host",
    "Source_User",
    "Source_Port#",
    "Connect_Retry#",
    "Source_Log_File",
    "Read_Source_Log_Pos#",
    "Relay_Log_File",
    "Relay_Log_Pos#",
    "Relay_Source_Log_File",
    "Replica_IO_Running",
    "Replica_SQL_Running",
    "Replicate_Do_DB",
    "Replicate_Ignore_DB",
    "Replicate_Do_Table",
    "Replicate_Ignore_Table",
    "Replicate_Wild_Do_Table",
    "Replicate_Wild_Ignore_Table",
    "Last_Errno#",
    "Last_Error",
    "Skip_Counter#",
    "Exec_Source_Log_Pos#",
    "Relay_Log_Space#",
    "Until_Condition",
    "Until_Log_File",
    "Until_Log_Pos#",
    "Source_SSL_Allowed",
    "Source_SSL_CA_File",
    "Source_SSL_CA_Path",
    "Source_SSL_Cert",
    "Source_SSL_Cipher",
    "Source_SSL_Key",
    "Seconds_Behind_Source#",
    "Source_SSL_Verify_Server_Cert",
    "Last_IO_Errno#",
    "Last_IO_Error",
    "Last_SQL_Errno#",
    "Last_SQL_Error",
    "Replicate_Ignore_Server_Ids",
    "Source_Server_Id#",
    "Source_UUID",
    "Source_Info_File",
    "SQL_Delay#",
    "SQL_Remaining_Delay#",
    "Replica_SQL_Running_State",
    "Source_Retry_Count#",
    "Source_Bind",
    "Last_IO_Error_Timestamp",
    "Last_SQL_Error_Timestamp",
    "Source_SSL_Crl",
    "Source_SSL_Crlpath",
    "Retrieved_Gtid_Set",
    "Executed_Gtid_Set",
    "Auto_Position#",
    "Replicate_Rewrite_DB",
    "Channel_Name",
    "Source_TLS_Version",
    "Source_public_key_path",
    "Get_Source_public_key#",
    "Network_Namespace",
];

/// The columns of MariaDB 10.11 and 11.8.
const MARIADB: &[&str] = &[
    "Slave_IO_State",
    "Master_Host",
    "Master_User",
    "Master_Port#",
    "Connect_Retry#",
    "Master_Log_File",
    "Read_Master_Log_Pos#",
    "Relay_Log_File",
    "Relay_Log_Pos#",
    "Relay_Master_Log_File",
    "Slave_IO_Running",
    "Slave_SQL_Running",
    "Replicate_Do_DB",
    "Replicate_Ignore_DB",
    "Replicate_Do_Table",
    "Replicate_Ignore_Table",
    "Replicate_Wild_Do_Table",
    "Replicate_Wild_Ignore_Table",
    "Last_Errno#",
    "Last_Error",
    "Skip_Counter#",
    "Exec_Master_Log_Pos#",
    "Relay_Log_Space#",
    "Until_Condition",
    "Until_Log_File",
    "Until_Log_Pos#",
    "Master_SSL_Allowed",
    "Master_SSL_CA_File",
    "Master_SSL_CA_Path",
    "Master_SSL_Cert",
    "Master_SSL_Cipher",
    "Master_SSL_Key",
    "Seconds_Behind_Master#",
    "Master_SSL_Verify_Server_Cert",
    "Last_IO_Errno#",
    "Last_IO_Error",
    "Last_SQL_Errno#",
    "Last_SQL_Error",
    "Replicate_Ignore_Server_Ids",
    "Master_Server_Id#",
    "Master_SSL_Crl",
    "Master_SSL_Crlpath",
    "Using_Gtid",
    "Gtid_IO_Pos",
    "Replicate_Do_Domain_Ids",
    "Replicate_Ignore_Domain_Ids",
    "Parallel_Mode",
    "SQL_Delay#",
    "SQL_Remaining_Delay#",
    "Slave_SQL_Running_State",
    "Slave_DDL_Groups#",
    "Slave_Non_Transactional_Groups#",
    "Slave_Transactional_Groups#",
    "Replicate_Rewrite_DB",
];

/// The columns that `SHOW ALL SLAVES STATUS` has before and after the columns in [`MARIADB`]. Monitoring
/// tools for MariaDB use this statement.
const MARIADB_ALL: (&[&str], &[&str]) = (
    &["Connection_name", "Slave_SQL_State"],
    &[
        "Retried_transactions#",
        "Max_relay_log_size#",
        "Executed_log_entries#",
        "Slave_received_heartbeats#",
        "Slave_heartbeat_period",
        "Gtid_Slave_Pos",
    ],
);

pub(super) fn rows(view: &ServerView, old_names: bool, all: bool) -> ResultRows {
    let (before, after) = if all { MARIADB_ALL } else { (&[][..], &[][..]) };
    let columns: Vec<String> = match (view.flavour(), old_names) {
        (Flavour::MySql, false) => MYSQL.iter().map(|name| (*name).to_owned()).collect(),
        (Flavour::MySql, true) => MYSQL.iter().map(|name| old_name(name)).collect(),
        (Flavour::MariaDb, _) => {
            before.iter().chain(MARIADB).chain(after).map(|name| (*name).to_owned()).collect()
        }
    };
    let mut rows = ResultRows::new(&columns.iter().map(String::as_str).collect::<Vec<_>>());
    let values = columns.iter().map(|column| value(&old_name(column), view)).collect::<Vec<_>>();
    rows.push(values);
    rows
}

/// The name that a column has in MySQL before 8.0.22, and in MariaDB.
fn old_name(name: &str) -> String {
    match name {
        "Source_public_key_path" => "Master_public_key_path".to_owned(),
        "Get_Source_public_key#" => "Get_master_public_key#".to_owned(),
        name => name
            .replace("Replica_", "Slave_")
            .replace("Source_", "Master_")
            .replace("Behind_Source", "Behind_Master"),
    }
}

/// The value of a column. `column` is the old name of the column.
fn value(column: &str, view: &ServerView) -> SqlValue {
    let capture = &view.capture;
    let error = capture.last_error.as_ref();
    let (end_file, end) = view.end();
    match column.trim_end_matches('#') {
        "Slave_IO_State" => capture.state.as_str().into(),
        "Master_Host" => capture.source_host.as_str().into(),
        "Master_User" => capture.source_user.as_str().into(),
        "Master_Port" => capture.source_port.into(),
        "Connect_Retry" => capture.retry_seconds.into(),
        "Master_Log_File" | "Relay_Master_Log_File" => capture.file.as_str().into(),
        "Read_Master_Log_Pos" | "Exec_Master_Log_Pos" => capture.position.into(),
        "Relay_Log_File" => end_file.into(),
        "Relay_Log_Pos" => end.into(),
        "Relay_Log_Space" => capture.log_bytes.into(),
        "Slave_IO_Running" => match (capture.streaming, capture.connecting) {
            (true, _) => "Yes".into(),
            (false, true) => "Connecting".into(),
            (false, false) => "No".into(),
        },
        "Slave_SQL_Running" => "Yes".into(),
        "Slave_SQL_Running_State" | "Slave_SQL_State" => {
            "the log applies nothing; every event read is durable".into()
        }
        "Seconds_Behind_Master" => match capture.streaming {
            true => capture.seconds_behind.map_or(SqlValue::Null, SqlValue::from),
            false => SqlValue::Null,
        },
        "Last_Errno"
        | "Last_SQL_Errno"
        | "Skip_Counter"
        | "SQL_Delay"
        | "Until_Log_Pos"
        | "Master_Retry_Count"
        | "Get_master_public_key"
        | "Slave_DDL_Groups"
        | "Slave_Non_Transactional_Groups"
        | "Slave_Transactional_Groups"
        | "Retried_transactions"
        | "Max_relay_log_size"
        | "Executed_log_entries"
        | "Slave_received_heartbeats" => SqlValue::Integer(0),
        "SQL_Remaining_Delay" => SqlValue::Null,
        "Last_IO_Errno" => error.map_or(0, |error| error.number).into(),
        "Last_IO_Error" => error.map_or("", |error| error.message.as_str()).into(),
        "Last_IO_Error_Timestamp" => {
            error.map_or(SqlValue::from(""), |error| sql_date_time::short_date_time(error.time).into())
        }
        "Master_Server_Id" => capture.source_server_id.unwrap_or(0).into(),
        "Master_UUID" => capture.source_uuid.as_deref().unwrap_or("").into(),
        "Master_Info_File" => "the log's control file".into(),
        "Master_SSL_Allowed" => if capture.tls { "Yes" } else { "No" }.into(),
        "Master_SSL_Verify_Server_Cert" => "No".into(),
        "Until_Condition" => "None".into(),
        "Using_Gtid" => "No".into(),
        "Parallel_Mode" => "none".into(),
        "Auto_Position" => SqlValue::Integer(0),
        "Retrieved_Gtid_Set" | "Executed_Gtid_Set" => match &view.gtids {
            ServedGtids::Mysql { executed, .. } => format!("{executed:#}").into(),
            ServedGtids::Mariadb { .. } => "".into(),
        },
        "Gtid_IO_Pos" | "Gtid_Slave_Pos" => match &view.gtids {
            ServedGtids::Mariadb { state, .. } => state.position().to_string().into(),
            ServedGtids::Mysql { .. } => "".into(),
        },
        // All other columns, such as those about filters and certificates, are empty.
        _ => "".into(),
    }
}
