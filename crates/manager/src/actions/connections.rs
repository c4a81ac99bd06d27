//! A warm connection to each server: in a failover none is waited for twice.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tailwater_session::{ConnectOptions, Connection, Purpose, SessionError, check_grants};
use tokio::task::JoinSet;

use crate::error::ManagerError;
use crate::probe::ProbeTarget;

/// Connections that nobody uses now, by the server's name.
#[derive(Debug, Default)]
pub(super) struct ServerConnections {
    idle: Mutex<HashMap<String, Connection>>,
}

impl ServerConnections {
    /// A connection to the server: the one that stands, if it still does.
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

    /// For the next act. One that is out of step fails its first question, and is made anew then.
    pub(super) fn give_back(&self, name: &str, connection: Connection) {
        self.lock().insert(name.to_owned(), connection);
    }

    /// Connects to all that have none, side by side, and waits no longer than `patience`. Tells of which servers the account
    /// may not be used for what is to be done there, and why.
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
                let checked = check_grants(&mut connection, Purpose::Lead);
                let checked = tokio::time::timeout(patience, checked).await.ok()?;
                Some((name, connection, checked))
            });
        }
        let mut lacking = HashMap::new();
        while let Some(weakest_of) = tasks.join_next().await {
            // One that is not reached is told so by the look.
            let Ok(Some((name, connection, checked))) = weakest_of else { continue };
            if let Err(error @ SessionError::MissingGrant { .. }) = checked {
                lacking.insert(name.clone(), format!("{}: {error}", error.code()));
            }
            self.give_back(&name, connection);
        }
        lacking
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An act bounds its questions by itself, and some take longer than others.
fn options(to: &ProbeTarget, patience: Duration) -> ConnectOptions {
    let connect_timeout = to.connect.connect_timeout.min(patience);
    ConnectOptions { connect_timeout, read_timeout: None, ..to.connect.clone() }
}
