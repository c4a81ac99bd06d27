//! Opens sessions on the target of a load.

use tailwater_session::{ConnectOptions, Connection, SessionError, SessionPreset};
use tailwater_wire::Flavour;

use super::load_options::LoadOptions;
use tailwater_tables::error::BulkError;
use tailwater_tables::session_settings::allow_violations;

/// Maximum time in seconds for which a connection may be idle; servers accept no larger value. The first
/// connection of a load needs this limit: it holds the lock of the load and waits until all rows are loaded.
const IDLE_SECONDS_MAX: u32 = 2_147_483;

/// The SQL mode for storing rows. In this mode, the server rejects no value that a table of the source may
/// have had. If the server changes a value, it gives a warning, and the load checks the warnings.
const MODE: &str = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION";

/// Connects to the target, and sets up the session so that rows are stored unchanged.
///
/// # Errors
/// [`BulkError::Session`], also if the account lacks a privilege that the options need.
pub(crate) async fn connect(options: &LoadOptions) -> Result<Connection, BulkError> {
    connect_with(connect_options(options), options).await
}

/// Connects as [`connect`] does, but without a time limit for statements.
///
/// # Errors
/// The same as for [`connect`].
pub(crate) async fn connect_without_timeout(options: &LoadOptions) -> Result<Connection, BulkError> {
    connect_with(ConnectOptions { read_timeout: None, ..connect_options(options) }, options).await
}

fn connect_options(options: &LoadOptions) -> ConnectOptions {
    ConnectOptions {
        local_infile: !options.inserts,
        read_timeout: Some(options.answer_max),
        write_timeout: Some(options.answer_max),
        program_name: "tailwater load".into(),
        session_preset: SessionPreset::ForDefinitions,
        ..options.connect.clone()
    }
}

async fn connect_with(connect: ConnectOptions, options: &LoadOptions) -> Result<Connection, BulkError> {
    let mut connection = Connection::connect(&connect).await?;
    set_up(&mut connection, options).await?;
    Ok(connection)
}

/// Sets up a session for a load. Also resets all settings that scripts have changed.
pub(crate) async fn set_up(connection: &mut Connection, options: &LoadOptions) -> Result<(), BulkError> {
    connection.execute("SET NAMES utf8mb4").await?;
    // `unique_checks` stays on: otherwise a server may store duplicate rows, and in MariaDB the first
    // connection would lock the table.
    let sql = format!(
        "SET SESSION sql_mode = '{MODE}', time_zone = '+00:00', foreign_key_checks = 0, \
         unique_checks = 1, innodb_lock_wait_timeout = 600, net_read_timeout = 600, \
         max_error_count = 1000, wait_timeout = {IDLE_SECONDS_MAX}"
    );
    connection.execute(&sql).await?;
    // Removes the server's time limits for statements and transactions, because the statements of a load may
    // take any time.
    connection
        .execute(match connection.server().flavour {
            Flavour::MySql => "SET SESSION max_execution_time = 0",
            Flavour::MariaDb => {
                "SET SESSION max_statement_time = 0, idle_transaction_timeout = 0, idle_write_transaction_timeout = 0"
            }
        })
        .await?;
    connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
    allow_violations(connection).await?;
    if options.binlog {
        log_rows(connection).await?;
    }
    if connection.server().flavour == Flavour::MySql {
        // With one of these variables ON, the target would reject a table without a primary key, or would add
        // a primary key. Changing the variables requires a privilege, so they are changed only if they are
        // ON.
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

/// Makes the server log rows if it would log statements. InnoDB rejects statement logging in a READ COMMITTED
/// transaction (`ER_BINLOG_STMT_MODE_AND_ROW_ENGINE` and 1665).
///
/// # Errors
/// [`BulkError::BinlogFormat`] if the account lacks the privilege to change the binlog format;
/// [`BulkError::Session`].
async fn log_rows(connection: &mut Connection) -> Result<(), BulkError> {
    let sql = "SHOW SESSION VARIABLES WHERE variable_name IN ('log_bin', 'sql_log_bin', 'binlog_format')";
    let asked = connection.query(sql).await?;
    let is = |name: &str, value: &str| {
        asked.rows.iter().any(|row| row.get_str(0) == Some(name) && row.get_str(1) == Some(value))
    };
    if !(is("log_bin", "ON") && is("sql_log_bin", "ON") && is("binlog_format", "STATEMENT")) {
        return Ok(());
    }
    match connection.execute("SET SESSION binlog_format = 'ROW'").await {
        Ok(_) => Ok(()),
        Err(SessionError::Server { error, .. }) => Err(BulkError::BinlogFormat {
            server: connection.endpoint().to_owned(),
            privilege: match connection.server().flavour {
                Flavour::MySql => "SESSION_VARIABLES_ADMIN",
                Flavour::MariaDb => "BINLOG ADMIN",
            },
            error: Box::new(error),
        }),
        Err(error) => Err(error.into()),
    }
}

/// Takes the connection of a worker, or connects if the worker has no connection. After an error, the
/// connection must not be given back to the worker: when it is closed, the target rolls back its transaction.
///
/// # Errors
/// The same as for [`connect`].
pub(crate) async fn take_or_connect(
    slot: &mut Option<Connection>,
    options: &LoadOptions,
) -> Result<Connection, BulkError> {
    match slot.take() {
        Some(connection) => Ok(connection),
        None => connect(options).await,
    }
}
