//! Keeps one open connection to each server, so that no action of a failover has to wait for a login.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

use tailwater_session::{AccountPurpose, ConnectOptions, Connection, SessionError, check_privileges};
use tailwater_topology::server_probe::ProbeTarget;
use tokio::task::JoinSet;

use crate::error::ManagerError;

/// Open connections that no action uses at present, by server name.
#[derive(Debug, Default)]
pub(super) struct ServerConnections {
    idle: Mutex<HashMap<String, Connection>>,
}

impl ServerConnections {
    /// Takes the open connection to the server. Opens a new one if there is none or if it no longer answers.
    pub(super) async fn take(
        &self,
        to: &ProbeTarget,
        patience: Duration,
    ) -> Result<Connection, ManagerError> {
        let idle = self.lock().remove(&to.name);
        if let Some(mut connection) = idle
            && matches!(tokio::time::timeout(patience, connection.ping()).await, Ok(Ok(())))
        {
            return Ok(connection);
        }
        Ok(Connection::connect(&options(to, patience)).await?)
    }

    /// Gives a connection back, so that the next action can use it. If the server has not answered all
    /// statements of this connection, the next query on it fails, and a new connection is opened.
    pub(super) fn give_back(&self, name: &str, connection: Connection) {
        self.lock().insert(name.to_owned(), connection);
    }

    /// Opens all missing connections in parallel, within `patience`. Returns the servers on which the account
    /// lacks a privilege, each with the error.
    pub(super) async fn warm(&self, servers: &[ProbeTarget], patience: Duration) -> HashMap<String, String> {
        let mut tasks = JoinSet::new();
        for subject in servers {
            let (name, connect) = (subject.name.clone(), options(subject, patience));
            let idle = self.lock().remove(&name);
            tasks.spawn(async move {
                let mut connection = match idle {
                    Some(connection) => connection,
                    None => Connection::connect(&connect).await.ok()?,
                };
                let checked = check_privileges(&mut connection, AccountPurpose::Failover);
                let checked = tokio::time::timeout(patience, checked).await.ok()?;
                Some((name, connection, checked))
            });
        }
        let mut lacking = HashMap::new();
        while let Some(joined) = tasks.join_next().await {
            // A server that cannot be reached is skipped here; its probe reports the failure.
            let Ok(Some((name, connection, checked))) = joined else { continue };
            if let Err(error @ SessionError::MissingGrant { .. }) = checked {
                lacking.insert(name.clone(), format!("{}: {error}", error.code()));
            }
            self.give_back(&name, connection);
        }
        lacking
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Connection>> {
        self.idle.lock()
    }
}

/// Options of a new connection. The connection has no read time-out, because each action limits the time of
/// its own queries.
fn options(to: &ProbeTarget, patience: Duration) -> ConnectOptions {
    let connect_timeout = to.connect.connect_timeout.min(patience);
    ConnectOptions { connect_timeout, read_timeout: None, ..to.connect.clone() }
}
