//! Session settings that several kinds of bulk work need.

use tailwater_session::Connection;
use tailwater_wire::Flavour;

use crate::error::BulkError;

/// Disables the server's timeouts for a session. Hours may pass between two statements, or within one
/// statement.
pub async fn disable_timeouts(connection: &mut Connection) -> Result<(), BulkError> {
    let sql = match connection.server().flavour {
        Flavour::MySql => {
            "SET SESSION wait_timeout = 2147483, net_write_timeout = 86400, max_execution_time = 0"
        }
        Flavour::MariaDb => {
            "SET SESSION wait_timeout = 2147483, net_write_timeout = 86400, max_statement_time = 0, \
             idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0"
        }
    };
    connection.execute(sql).await?;
    Ok(())
}

/// Makes the server accept rows that violate a CHECK constraint of their table. The source may have such
/// rows: they were written with `check_constraint_checks = 0`, or before the constraint was added. MySQL has
/// no such setting, and a MySQL source has no such rows.
///
/// # Errors
/// [`BulkError::Session`]
pub async fn allow_violations(connection: &mut Connection) -> Result<(), BulkError> {
    if connection.server().flavour == Flavour::MariaDb {
        connection.execute("SET SESSION check_constraint_checks = 0").await?;
    }
    Ok(())
}
