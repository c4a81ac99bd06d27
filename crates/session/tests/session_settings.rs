//! Sessions inherit no session variable from the server that could change a result.

use std::collections::HashSet;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::unusual_settings::{accept_odd_settings, apply_odd_settings, odd_settings};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, shared};
use tailwater_session::session_settings::{
    SERVED_LOG, SETTINGS, SessionSetting, UNCHANGED, default_value, settings_for,
};
use tailwater_session::{ConnectOptions, Connection, Endpoint, SessionError, SessionPreset};
use tailwater_wire::Flavour;
use tailwater_wire::protocol::command::ClientCommand;
use tailwater_wire::protocol::{ErrPacket, ServerStatus};

use crate::scripted_server::{Peer, options, serve};

on_each_server! {
    every_session_variable_of_the_server_is_classified,
    unusual_global_settings_do_not_reach_a_session,
    a_setting_that_the_account_may_not_set_is_named,
}

/// The session variables that the server itself lists.
async fn session_variables(connection: &mut Connection) -> Result<Vec<String>> {
    if connection.server().flavour == Flavour::MariaDb {
        let sql = "SELECT LOWER(variable_name) FROM information_schema.system_variables \
                   WHERE variable_scope LIKE 'SESSION%' ORDER BY 1";
        let result = connection.query(sql).await?;
        return Ok(result.rows.iter().filter_map(|row| row.get_str(0).map(str::to_owned)).collect());
    }
    let shown = connection.query("SHOW SESSION VARIABLES").await?;
    let mut names = Vec::new();
    for name in shown.rows.iter().filter_map(|row| row.get_str(0)) {
        match connection.query(&format!("SELECT @@SESSION.{name}")).await {
            Ok(_) => names.push(name.to_owned()),
            // The variable exists only as a global variable.
            Err(SessionError::Server { error, .. }) if error.number == 1238 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(names)
}

async fn every_session_variable_of_the_server_is_classified(kind: ServerKind) -> Result<()> {
    let server = shared(kind).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    let (flavour, version) = (connection.server().flavour, connection.server().version);
    let unchanged = UNCHANGED.iter().flat_map(|(_, names)| names.iter().copied());
    let set = settings_for(flavour, version).map(|setting| setting.name);
    // Older names of variables. Tailwater sets these variables by their newer names.
    let aliases = ["tx_isolation", "tx_read_only"];
    let known: HashSet<_> = unchanged.chain(set).chain(aliases).collect();
    let names = session_variables(&mut connection).await?;
    ensure!(names.len() > 150, "the server lists only {} session variables", names.len());
    let unclassified: Vec<_> = names.iter().filter(|name| !known.contains(name.as_str())).collect();
    ensure!(
        unclassified.is_empty(),
        "put these session variables into SETTINGS if they can change a result, otherwise into UNCHANGED: {unclassified:?}"
    );
    // Also check that each setting is a variable of the server. Tailwater would ignore a setting with a wrong
    // name or version without an error.
    let mut lacking =
        settings_for(flavour, version).filter(|setting| !names.iter().any(|name| name == setting.name));
    ensure!(lacking.next().is_none(), "{:?} is not a variable of the server", lacking.next());
    Ok(())
}

async fn values(connection: &mut Connection, settings: &[&SessionSetting]) -> Result<Vec<String>> {
    let names: Vec<_> = settings.iter().map(|setting| format!("@@SESSION.{}", setting.name)).collect();
    let result = connection.query(&format!("SELECT {}", names.join(", "))).await?;
    let row = result.first().context("the query of the variables returned no row")?;
    Ok((0..settings.len()).map(|at| row.get_str(at).unwrap_or_default().to_owned()).collect())
}

async fn unusual_global_settings_do_not_reach_a_session(kind: ServerKind) -> Result<()> {
    let server = Server::start(accept_odd_settings(ServerSpec::new(kind))).await?;
    let mut before = Connection::connect(&server.connect_options()).await?;
    let settings: Vec<_> = settings_for(before.server().flavour, before.server().version).collect();
    let shipped = values(&mut before, &settings).await?;
    apply_odd_settings(&server).await?;

    // Check that every inherited value differs from the default. Exceptions are the values that a client
    // requests when it logs in to MySQL.
    let inherited = ConnectOptions { session_preset: SessionPreset::Inherited, ..server.connect_options() };
    let mut inherited = Connection::connect(&inherited).await?;
    let odd = odd_settings(kind);
    for ((setting, was), is) in settings.iter().zip(&shipped).zip(values(&mut inherited, &settings).await?) {
        let is_asked_for = kind == ServerKind::Mysql97
            && (setting.name.starts_with("character_set") || setting.name == "collation_connection");
        let has_no_global = ["show_create_table_skip_secondary_engine"].contains(&setting.name);
        let is_ignored = kind == ServerKind::Mariadb118 && setting.name == "alter_algorithm";
        let name = setting.name.replace("transaction_", "tx_");
        let is_odd = odd.iter().any(|(odd, _)| *odd == setting.name || *odd == name);
        ensure!(
            is_odd || has_no_global || is_ignored,
            "the test sets no unusual value for the variable {}",
            setting.name
        );
        ensure!(
            is != *was || is_asked_for || has_no_global || is_ignored,
            "the variable {} has the value {is}, not the unusual value",
            setting.name
        );
    }

    let mut ours = Connection::connect(&server.connect_options()).await?;
    for ((setting, was), is) in settings.iter().zip(&shipped).zip(values(&mut ours, &settings).await?) {
        ensure!(
            is == *was || setting.value.trim_matches('\'') == is,
            "the variable {} has the value {is}, but its default is {was}",
            setting.name
        );
    }
    for unreadable in ["sql_select_limit = 0", "character_set_results = ucs2"] {
        server.sql(&format!("SET GLOBAL {unreadable}")).await?;
        let mut ours = Connection::connect(&server.connect_options()).await?;
        ensure!(
            ours.query("SELECT 1 UNION SELECT 2").await?.rows.len() == 2,
            "the rows are limited although the session was set up: {unreadable}"
        );
    }
    Ok(())
}

/// The login fails if three conditions hold: the session needs a certain value of a variable, the server has
/// another value, and the account lacks the privilege to set the variable.
async fn a_setting_that_the_account_may_not_set_is_named(kind: ServerKind) -> Result<()> {
    let server = Server::start(ServerSpec::new(kind)).await?;
    server.sql("CREATE USER low@'%' IDENTIFIED BY 'pw'").await?;
    let address = server.address();
    let endpoint = Endpoint::tcp(address.ip().to_string(), address.port());
    let low = ConnectOptions::new(endpoint, "low").password("pw");
    let definitions = ConnectOptions { session_preset: SessionPreset::ForDefinitions, ..low.clone() };
    Connection::connect(&definitions).await?;
    if kind.flavour() == Flavour::MariaDb {
        // MariaDB lets every account set these variables. `init_connect` can set them too, because the server
        // runs it only for unprivileged accounts.
        server.sql("SET GLOBAL init_connect = 'SET sql_select_limit = 1, sql_mode = ORACLE'").await?;
        let mut connection = Connection::connect(&definitions).await?;
        ensure!(connection.query("SELECT 1 UNION SELECT 2").await?.rows.len() == 2);
        // MariaDB does not let every account set `enforce_storage_engine`. On hosted servers its value is
        // InnoDB, and no account can set it.
        server.sql("SET GLOBAL enforce_storage_engine = InnoDB").await?;
        Connection::connect(&definitions).await?;
        server.sql("SET GLOBAL enforce_storage_engine = Aria").await?;
        Connection::connect(&low).await?;
        let error = Connection::connect(&definitions)
            .await
            .err()
            .context("the client connected although a setting cannot be set")?;
        let message = error.to_string();
        ensure!(
            error.code() == "TW-SES-0030" && message.contains("enforce_storage_engine"),
            "the error must name the variable or the missing privilege: {message}"
        );
        ensure!(
            message.contains("grant the user SUPER ON *.*"),
            "the error must name the variable or the missing privilege: {message}"
        );
        server.sql("GRANT SUPER ON *.* TO low@'%'").await?;
        let mut connection = Connection::connect(&definitions).await?;
        let engine = connection.query("SELECT @@SESSION.enforce_storage_engine").await?;
        ensure!(
            engine.scalar().is_none_or(str::is_empty),
            "the session did not reset enforce_storage_engine: {engine:?}"
        );
        return Ok(());
    }
    server.sql("SET GLOBAL sql_require_primary_key = 1, GLOBAL sql_select_limit = 1").await?;
    let mut connection = Connection::connect(&low).await?;
    ensure!(connection.query("SELECT 1 UNION SELECT 2").await?.rows.len() == 2);
    let error = Connection::connect(&definitions)
        .await
        .err()
        .context("the client connected although a setting cannot be set")?;
    let message = error.to_string();
    ensure!(
        error.code() == "TW-SES-0030" && message.contains("sql_require_primary_key"),
        "the error must name the variable or the missing privilege: {message}"
    );
    ensure!(
        message.contains("grant the user SESSION_VARIABLES_ADMIN ON *.*"),
        "the error must name the variable or the missing privilege: {message}"
    );
    server.sql("GRANT SESSION_VARIABLES_ADMIN ON *.* TO low@'%'").await?;
    Connection::connect(&definitions).await?;
    ensure!(SETTINGS.iter().any(|setting| setting.name == "sql_require_primary_key"));
    Ok(())
}

/// Acts as a server that accepts every SET and ignores it: afterwards it still returns its own value of
/// sql_mode. It rejects variables that it does not know.
async fn forgets_what_is_set(mut peer: Peer, what_it_is: &'static str) -> Result<()> {
    peer.log_in().await?;
    loop {
        let payload = peer.read().await?;
        let sql = match ClientCommand::parse(&payload)? {
            ClientCommand::Query(sql) => String::from_utf8_lossy(sql).into_owned(),
            _ => return Ok(()),
        };
        let Some(asked) = sql.strip_prefix("SELECT ") else {
            peer.ok().await?;
            continue;
        };
        let names: Vec<_> = asked.split(", ").map(|name| name.trim_start_matches("@@SESSION.")).collect();
        // Behave like an older version, which does not know all the variables.
        let unknown = names
            .iter()
            .find(|name| default_value(Flavour::MySql, name).is_none() || **name == "lc_messages");
        if let Some(unknown) = unknown {
            let message =
                format!("Unknown system variable '{}'. {what_it_is}", unknown.trim_start_matches("@@"));
            let mut payload = Vec::new();
            ErrPacket { number: 1193, sql_state: "HY000".to_owned(), message }.encode(&mut payload);
            peer.send(&payload).await?;
            continue;
        }
        let value = |name: &&str| match *name {
            "sql_mode" => "ANSI",
            name => default_value(Flavour::MySql, name).unwrap_or_default(),
        };
        let row: Vec<_> = names.iter().map(|name| Some(value(name).as_bytes())).collect();
        peer.columns(u8::try_from(row.len())?).await?;
        peer.row(&row).await?;
        peer.end_of_rows(ServerStatus::default()).await?;
    }
}

/// A relay may capture from a relay of an older version. The older relay serves its log, and answers queries
/// for session variables with the source's values.
#[tokio::test]
async fn a_binlog_server_that_ignores_settings_is_accepted() -> Result<()> {
    let connect = async |what_it_is: &'static str| {
        let (endpoint, task) =
            serve(async move |peer: Peer| forgets_what_is_set(peer, what_it_is).await).await?;
        let options = ConnectOptions { session_preset: SessionPreset::Shipped, ..options(endpoint) };
        let connected = Connection::connect(&options).await;
        task.abort();
        Ok::<_, anyhow::Error>(connected.map(drop))
    };
    connect("This is Tailwater's binlog server: it answers binlog dumps").await??;
    ensure!("This is Tailwater's binlog server: it".starts_with(SERVED_LOG));
    let error = connect("").await?.err().context("a proxy must not be accepted as a binlog server")?;
    ensure!(
        error.code() == "TW-SES-0031" && error.to_string().contains("sql_mode"),
        "the login failed with an unexpected error: {error}"
    );
    Ok(())
}
