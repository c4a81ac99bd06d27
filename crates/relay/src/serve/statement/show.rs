//! What `SHOW` shows, in the columns of the log's flavour, by which clients find what they read.

use tailwater_wire::Flavour;

use super::answer::Rows;
use super::parse::Show;
use super::pattern::Filter;
use super::replica_status;
use super::session::Value;
use super::variables;
use super::view::{ServedGtids, View};

pub(super) fn rows(show: &Show, view: &View) -> Rows {
    match show {
        Show::BinaryLogs => binary_logs(view),
        Show::BinaryLogStatus => binary_log_status(view),
        Show::Replicas { old_names } => replicas(view, *old_names),
        Show::ReplicaStatus { old_names, all } => replica_status::rows(view, *old_names, *all),
        Show::Variables(filter) => named(filter, variables::list(view)),
        Show::Status(filter) => named(filter, variables::status(view)),
        Show::Warnings => Rows::new(&["Level", "Code#", "Message"]),
        Show::Processlist { full } => processlist(view, *full),
        Show::Databases(filter) => databases(filter),
        Show::Grants => grants(view),
    }
}

fn binary_logs(view: &View) -> Rows {
    let mysql = view.flavour() == Flavour::MySql;
    let columns: &[&str] =
        if mysql { &["Log_name", "File_size#", "Encrypted"] } else { &["Log_name", "File_size#"] };
    let mut rows = Rows::new(columns);
    for (name, size) in &view.files {
        let encrypted = mysql.then(|| Value::from("No"));
        rows.push([Value::from(name.as_str()), (*size).into()].into_iter().chain(encrypted));
    }
    rows
}

fn binary_log_status(view: &View) -> Rows {
    let mut columns = vec!["File", "Position#", "Binlog_Do_DB", "Binlog_Ignore_DB"];
    let executed = match &view.gtids {
        ServedGtids::Mysql { executed, .. } => Some(Value::from(format!("{executed:#}"))),
        ServedGtids::Mariadb { .. } => None,
    };
    columns.extend(executed.as_ref().map(|_| "Executed_Gtid_Set"));
    let mut rows = Rows::new(&columns);
    let (file, position) = view.end();
    if !file.is_empty() {
        let place = [file.into(), position.into(), "".into(), "".into()];
        rows.push(place.into_iter().chain(executed));
    }
    rows
}

fn replicas(view: &View, old_names: bool) -> Rows {
    let columns: &[&str] = match (view.flavour(), old_names) {
        (Flavour::MySql, false) => &["Server_Id#", "Host", "Port#", "Source_Id#", "Replica_UUID"],
        (Flavour::MySql, true) => &["Server_id#", "Host", "Port#", "Master_id#", "Slave_UUID"],
        (Flavour::MariaDb, _) => &["Server_id#", "Host", "Port#", "Master_id#"],
    };
    let mut rows = Rows::new(columns);
    for replica in &view.replicas {
        let uuid = (view.flavour() == Flavour::MySql).then(|| Value::from(replica.uuid.as_str()));
        let values: [Value; 4] = [
            replica.server_id.into(),
            replica.host.as_str().into(),
            replica.port.into(),
            view.server_id.into(),
        ];
        rows.push(values.into_iter().chain(uuid));
    }
    rows
}

fn named(filter: &Filter, list: Vec<(String, String)>) -> Rows {
    let columns = ["Variable_name", "Value"];
    let mut rows = Rows::new(&columns);
    for (name, value) in list {
        if filter.admits(&columns, &[&name, &value]) {
            rows.push([Value::Text(name), Value::Text(value)]);
        }
    }
    rows
}

fn processlist(view: &View, full: bool) -> Rows {
    let mariadb = view.flavour() == Flavour::MariaDb;
    let mut columns = vec!["Id#", "User", "Host", "db", "Command", "Time#", "State", "Info"];
    columns.extend(mariadb.then_some("Progress#"));
    let mut rows = Rows::new(&columns);
    for process in &view.processes {
        let statement = if full { "SHOW FULL PROCESSLIST" } else { "SHOW PROCESSLIST" };
        let own = process.id == view.connection_id;
        let values: [Value; 8] = [
            process.id.into(),
            process.user.as_str().into(),
            process.host.as_str().into(),
            Value::Null,
            process.command.as_str().into(),
            process.seconds.into(),
            process.state.as_str().into(),
            if own { statement.into() } else { Value::Null },
        ];
        rows.push(values.into_iter().chain(mariadb.then_some(Value::Integer(0))));
    }
    rows
}

fn databases(filter: &Filter) -> Rows {
    // None; the name of the column says what was asked for.
    match filter {
        Filter::Like(pattern) => Rows::new(&[&format!("Database ({pattern})")]),
        _ => Rows::new(&["Database"]),
    }
}

fn grants(view: &View) -> Rows {
    let (user, host) = view.user.rsplit_once('@').unwrap_or((&view.user, "%"));
    let mut rows = Rows::new(&[&format!("Grants for {user}@{host}")]);
    let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
    let account = format!("{}@{}", quoted(user), quoted(host));
    rows.push([Value::from(format!("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}"))]);
    rows
}
