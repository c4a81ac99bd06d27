//! Sessions on the server that is loaded.

use std::time::Duration;

use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;

use super::run::LoadOptions;
use crate::error::BulkError;

/// How long the server may take for one statement: a file's rows, and all indexes with them.
const ANSWER_SECONDS_MAX: u64 = 3600;

/// What rows are stored under. It refuses nothing that was in a table before: whether a value was changed shows in warnings,
/// which are looked at.
const MODE: &str = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION";

/// Connects, and sets the session up so that rows arrive as they were.
///
/// # Errors
/// [`BulkError::Session`], also if the user may not do what the options ask for.
pub(crate) async fn connect(options: &LoadOptions) -> Result<Connection, BulkError> {
    let connect = ConnectOptions {
        local_infile: !options.inserts,
        read_timeout: Some(Duration::from_secs(ANSWER_SECONDS_MAX)),
        write_timeout: Some(Duration::from_secs(ANSWER_SECONDS_MAX)),
        program_name: "tailwater load".into(),
        ..options.connect.clone()
    };
    let mut connection = Connection::connect(&connect).await?;
    set_up(&mut connection, options).await?;
    Ok(connection)
}

/// Also undoes what scripts have set.
pub(crate) async fn set_up(connection: &mut Connection, options: &LoadOptions) -> Result<(), BulkError> {
    connection.execute("SET NAMES utf8mb4").await?;
    // Without these checks a server may keep rows that are not unique, and in MariaDB the first connection locks the table.
    let sql = format!(
        "SET SESSION sql_mode = '{MODE}', time_zone = '+00:00', foreign_key_checks = 0, \
         unique_checks = 1, innodb_lock_wait_timeout = 600, net_read_timeout = 600, \
         max_error_count = 1000, wait_timeout = 28800"
    );
    connection.execute(&sql).await?;
    connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
    if connection.server().flavour == Flavour::MySql {
        // Tables are to be made as they were, without a key if they had none. To set these takes a right, so only if need be.
        for variable in ["sql_require_primary_key", "sql_generate_invisible_primary_key"] {
            let sql = format!("SHOW SESSION VARIABLES LIKE '{variable}'");
            let shown = connection.query(&sql).await?;
            if shown.first().and_then(|row| row.get_str(1)) == Some("ON") {
                connection.execute(&format!("SET SESSION {variable} = OFF")).await?;
            }
        }
    }
    if !options.binlog {
        connection.execute("SET SESSION sql_log_bin = 0").await?;
    }
    Ok(())
}
