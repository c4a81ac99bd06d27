//! A server that cannot be healed is emptied, for a copy of the one that leads.

use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;

use super::quiesce::quiesce;
use super::repair::{forget_binlog, unlogged};
use crate::error::ApplyError;

/// Databases of the servers' own, which stay.
const KEPT: [&str; 5] = ["information_schema", "performance_schema", "mysql", "sys", "ndbinfo"];

/// Removes all databases but the server's own, and forgets its binlog and GTIDs; accounts stay. The server is read-only from the
/// first moment on; clients are disconnected, and replication is stopped there. Returns what was removed.
///
/// # Errors
/// [`ApplyError::Session`]; [`ApplyError::Rejoin`] if `server` is the same as `primary`, or does not stand still.
pub async fn wipe(server: &ConnectOptions, primary: &ConnectOptions) -> Result<Vec<String>, ApplyError> {
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
        connection.execute(&format!("DROP DATABASE `{}`", name.replace('`', "``"))).await?;
        removed.push(name.to_owned());
    }
    forget_binlog(&mut connection).await?;
    if connection.server().flavour == Flavour::MariaDb {
        connection.execute("SET GLOBAL gtid_slave_pos=''").await?;
    }
    connection.close().await;
    Ok(removed)
}

/// Before anything is done there: two addresses may be of one server. The primary has to answer, too.
pub(super) async fn refuse_same(server: &ConnectOptions, primary: &ConnectOptions) -> Result<(), ApplyError> {
    let (ours, theirs) = (identity(server).await?, identity(primary).await?);
    if ours == theirs {
        return Err(ApplyError::Rejoin { reason: "the server is the current primary".to_owned() });
    }
    Ok(())
}

/// Of two servers of one cluster, one of these is different: their family, their `server_uuid` or their `server_id`.
async fn identity(server: &ConnectOptions) -> Result<Option<String>, ApplyError> {
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
