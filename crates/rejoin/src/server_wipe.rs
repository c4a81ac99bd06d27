//! Wipes a server that cannot be repaired. After that, a copy of the primary is loaded into it.

use tailwater_session::{BACKUP_LOCK_WAIT_MAX, ConnectOptions, Connection, set_mariadb_slave_position};
use tailwater_wire::Flavour;
use tailwater_wire::sql_quote::quote_identifier;

use crate::error::RejoinError;
use crate::server_quiesce::quiesce;
use crate::server_repair::{forget_binlog, unlogged};

/// System databases, which are not dropped.
const KEPT: [&str; 5] = ["information_schema", "performance_schema", "mysql", "sys", "ndbinfo"];

/// Drops all databases except the system databases, and resets the binlog and the GTIDs. Accounts are kept.
/// The first step makes the server read-only, disconnects its clients and stops its replication. Returns the
/// names of the dropped databases.
///
/// # Errors
/// [`RejoinError::Session`]; [`RejoinError::Impossible`] if `server` and `primary` are the same server, or
/// clients do not disconnect in time.
pub async fn wipe(server: &ConnectOptions, primary: &ConnectOptions) -> Result<Vec<String>, RejoinError> {
    refuse_same(server, primary).await?;
    quiesce(server).await?;
    let mut connection = unlogged(server).await?;
    connection.execute("SET SESSION foreign_key_checks=0").await?;
    let databases = connection.query("SHOW DATABASES").await?;
    let mut removed = Vec::new();
    for name in databases.rows.iter().filter_map(|row| row.get_str(0)) {
        if KEPT.iter().any(|kept| name.eq_ignore_ascii_case(kept)) {
            continue;
        }
        connection.execute(&format!("DROP DATABASE {}", quote_identifier(name))).await?;
        removed.push(name.to_owned());
    }
    forget_binlog(&mut connection).await?;
    if connection.server().flavour == Flavour::MariaDb {
        set_mariadb_slave_position(&mut connection, "''", BACKUP_LOCK_WAIT_MAX).await?;
    }
    connection.close().await;
    Ok(removed)
}

/// Refuses the rejoin if both addresses lead to the same server, before anything is changed. Also returns an
/// error if one of the servers does not answer.
pub(crate) async fn refuse_same(
    server: &ConnectOptions,
    primary: &ConnectOptions,
) -> Result<(), RejoinError> {
    let (ours, theirs) = (identity(server).await?, identity(primary).await?);
    if ours == theirs {
        return Err(RejoinError::Impossible { reason: "the server is the current primary".to_owned() });
    }
    Ok(())
}

/// Returns what identifies a server within a cluster: its flavour and its `server_uuid` or `server_id`.
async fn identity(server: &ConnectOptions) -> Result<Option<String>, RejoinError> {
    let mut connection = Connection::connect(server).await?;
    let sql = match connection.server().flavour {
        Flavour::MySql => "SELECT CONCAT('mysql ', @@server_uuid)",
        Flavour::MariaDb => "SELECT CONCAT('mariadb ', @@server_id)",
    };
    let answer = connection.query(sql).await?;
    let identity = answer.scalar().map(ToOwned::to_owned);
    connection.close().await;
    Ok(identity)
}
