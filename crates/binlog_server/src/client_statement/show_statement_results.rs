//! The results of `SHOW` statements. They have the column names of the log's flavour, because clients find
//! values by column name.

use tailwater_wire::Flavour;
use tailwater_wire::sql_quote::quote_identifier;

use super::like_and_where_filter::ShowFilter;
use super::queryable_server_state::{ServedGtids, ServerView};
use super::session_variables::SqlValue;
use super::show_replica_status;
use super::statement_parser::Show;
use super::statement_result::ResultRows;
use super::system_variables;

pub(super) fn rows(show: &Show, view: &ServerView) -> ResultRows {
    match show {
        Show::BinaryLogs => binary_logs(view),
        Show::BinaryLogStatus => binary_log_status(view),
        Show::Replicas { old_names } => replicas(view, *old_names),
        Show::ReplicaStatus { old_names, all } => show_replica_status::rows(view, *old_names, *all),
        Show::Variables(filter) => named(filter, system_variables::list(view)),
        Show::Status(filter) => named(filter, system_variables::status(view)),
        Show::Warnings => ResultRows::new(&["Level", "Code#", "Message"]),
        Show::Processlist { full } => processlist(view, *full),
        Show::Databases(filter) => databases(filter),
        Show::Grants => grants(view),
    }
}

fn binary_logs(view: &ServerView) -> ResultRows {
    let mysql = view.flavour() == Flavour::MySql;
    let columns: &[&str] =
        if mysql { &["Log_name", "File_size#", "Encrypted"] } else { &["Log_name", "File_size#"] };
    let mut rows = ResultRows::new(columns);
    for (name, size) in &view.files {
        let encrypted = mysql.then(|| SqlValue::from("No"));
        rows.push([SqlValue::from(name.as_str()), (*size).into()].into_iter().chain(encrypted));
    }
    rows
}

fn binary_log_status(view: &ServerView) -> ResultRows {
    let mut columns = vec!["File", "Position#", "Binlog_Do_DB", "Binlog_Ignore_DB"];
    let executed = match &view.gtids {
        ServedGtids::Mysql { executed, .. } => Some(SqlValue::from(format!("{executed:#}"))),
        ServedGtids::Mariadb { .. } => None,
    };
    columns.extend(executed.as_ref().map(|_| "Executed_Gtid_Set"));
    let mut rows = ResultRows::new(&columns);
    let (file, position) = view.end();
    if !file.is_empty() {
        let place = [file.into(), position.into(), "".into(), "".into()];
        rows.push(place.into_iter().chain(executed));
    }
    rows
}

fn replicas(view: &ServerView, old_names: bool) -> ResultRows {
    let columns: &[&str] = match (view.flavour(), old_names) {
        (Flavour::MySql, false) => &["Server_Id#", "Host", "Port#", "Source_Id#", "Replica_UUID"],
        (Flavour::MySql, true) => &["Server_id#", "Host", "Port#", "Master_id#", "Slave_UUID"],
        (Flavour::MariaDb, _) => &["Server_id#", "Host", "Port#", "Master_id#"],
    };
    let mut rows = ResultRows::new(columns);
    for replica in &view.replicas {
        let uuid = (view.flavour() == Flavour::MySql).then(|| SqlValue::from(replica.uuid.as_str()));
        let values: [SqlValue; 4] = [
            replica.server_id.into(),
            replica.host.as_str().into(),
            replica.port.into(),
            view.server_id.into(),
        ];
        rows.push(values.into_iter().chain(uuid));
    }
    rows
}

fn named(filter: &ShowFilter, list: Vec<(String, String)>) -> ResultRows {
    let columns = ["Variable_name", "Value"];
    let mut rows = ResultRows::new(&columns);
    for (name, value) in list {
        if filter.admits(&columns, &[&name, &value]) {
            rows.push([SqlValue::Text(name), SqlValue::Text(value)]);
        }
    }
    rows
}

fn processlist(view: &ServerView, full: bool) -> ResultRows {
    let mariadb = view.flavour() == Flavour::MariaDb;
    let mut columns = vec!["Id#", "User", "Host", "db", "Command", "Time#", "State", "Info"];
    columns.extend(mariadb.then_some("Progress#"));
    let mut rows = ResultRows::new(&columns);
    for process in &view.processes {
        let statement = if full { "SHOW FULL PROCESSLIST" } else { "SHOW PROCESSLIST" };
        let own = process.id == view.connection_id;
        let values: [SqlValue; 8] = [
            process.id.into(),
            process.user.as_str().into(),
            process.host.as_str().into(),
            SqlValue::Null,
            process.command.as_str().into(),
            process.seconds.into(),
            process.state.as_str().into(),
            if own { statement.into() } else { SqlValue::Null },
        ];
        rows.push(values.into_iter().chain(mariadb.then_some(SqlValue::Integer(0))));
    }
    rows
}

fn databases(filter: &ShowFilter) -> ResultRows {
    // This server has no databases, so the result is empty. As on MySQL and MariaDB, the column name contains
    // the pattern.
    match filter {
        ShowFilter::Like(pattern) => ResultRows::new(&[&format!("Database ({pattern})")]),
        _ => ResultRows::new(&["Database"]),
    }
}

fn grants(view: &ServerView) -> ResultRows {
    let (user, host) = view.user.rsplit_once('@').unwrap_or((&view.user, "%"));
    let mut rows = ResultRows::new(&[&format!("Grants for {user}@{host}")]);
    let account = format!("{}@{}", quote_identifier(user), quote_identifier(host));
    rows.push([SqlValue::from(format!("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}"))]);
    rows
}
