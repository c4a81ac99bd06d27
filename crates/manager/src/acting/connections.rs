//! A warm connection to each server: in a failover none is waited for twice.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tailwater_session::{ConnectOptions, Connection};
use tokio::task::JoinSet;

use crate::error::ManagerError;
use crate::observing::Subject;

/// Connections that nobody uses now, by the server's name.
#[derive(Debug, Default)]
pub(super) struct Connections {
    idle: Mutex<HashMap<String, Connection>>,
}

impl Connections {
    /// A connection to the server: the one that stands, if it still does.
    pub(super) async fn take(&self, to: &Subject, patience: Duration) -> Result<Connection, ManagerError> {
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

    /// Connects to all that have none, side by side, and waits no longer than `patience`.
    pub(super) async fn warm(&self, servers: &[Subject], patience: Duration) {
        let mut tasks = JoinSet::new();
        for subject in servers.iter().filter(|subject| !self.lock().contains_key(&subject.name)) {
            let (name, connect) = (subject.name.clone(), options(subject, patience));
            tasks.spawn(async move { (name, Connection::connect(&connect).await) });
        }
        while let Some(joined) = tasks.join_next().await {
            // One that is not reached is told so by the look.
            if let Ok((name, Ok(connection))) = joined {
                self.give_back(&name, connection);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An act bounds its questions by itself, and some take longer than others.
fn options(to: &Subject, patience: Duration) -> ConnectOptions {
    let connect_timeout = to.connect.connect_timeout.min(patience);
    ConnectOptions { connect_timeout, read_timeout: None, ..to.connect.clone() }
}
