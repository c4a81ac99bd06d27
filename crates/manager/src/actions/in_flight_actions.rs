//! Tracks actions in flight on servers, so that an undo action takes effect after them.
//!
//! An action that the run no longer waits for is still in flight: in this process, on the network, or in the
//! server. If it made the server writable after the undo, there would be two primaries; if it made it
//! read-only, none. Before it acts, an undo action therefore cancels both: the guards of earlier actions, and
//! the sessions through which they sent statements.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::{Mutex, MutexGuard};
use tailwater_session::Connection;
use tokio::sync::watch;

use super::replication::failed;
use crate::error::ManagerError;

/// Actions in flight, by server.
#[derive(Debug, Default)]
pub(super) struct InFlightActions {
    servers: Mutex<BTreeMap<String, ServerActions>>,
}

/// Actions in flight on one server.
#[derive(Debug, Default)]
struct ServerActions {
    /// Number of undo actions so far. Guards of an earlier round are cancelled.
    round: watch::Sender<u64>,
    /// Sessions that were sent a statement and have not answered, with their round.
    sessions: BTreeMap<u32, u64>,
}

/// Guard of one action on a server. An undo action on that server cancels it.
#[derive(Debug)]
pub(super) struct ActionGuard<'a> {
    in_flight: &'a InFlightActions,
    server: &'a str,
    round: u64,
    rounds: watch::Receiver<u64>,
}

impl InFlightActions {
    /// Guard for an ordinary action.
    pub(super) fn act<'a>(&'a self, server: &'a str) -> ActionGuard<'a> {
        self.guard(server, 0)
    }

    /// Guard for an undo action; cancels all earlier guards.
    pub(super) fn undo<'a>(&'a self, server: &'a str) -> ActionGuard<'a> {
        self.guard(server, 1)
    }

    fn guard<'a>(&'a self, server: &'a str, further: u64) -> ActionGuard<'a> {
        let mut servers = self.lock();
        let there = servers.entry(server.to_owned()).or_default();
        there.round.send_modify(|round| *round += further);
        let rounds = there.round.subscribe();
        let round = *rounds.borrow();
        ActionGuard { in_flight: self, server, round, rounds }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ServerActions>> {
        self.servers.lock()
    }
}

impl ActionGuard<'_> {
    /// Returns when the guard is cancelled.
    pub(super) async fn ended(&self) {
        let mut rounds = self.rounds.clone();
        if rounds.wait_for(|round| *round != self.round).await.is_err() {
            // The sender was dropped, so nothing can cancel it.
            std::future::pending().await
        }
    }

    /// Registers a session before the first statement is sent through it.
    ///
    /// # Errors
    /// [`ManagerError::ActionFailed`] if the guard is cancelled: the undo action does not know this session.
    pub(super) fn register(&self, connection: &Connection) -> Result<(), ManagerError> {
        let mut servers = self.in_flight.lock();
        let there = servers.get_mut(self.server).filter(|there| *there.round.borrow() == self.round);
        let Some(there) = there else {
            let reason = "it was undone".to_owned();
            return Err(failed(connection, "executing an action", reason));
        };
        there.sessions.insert(connection.server().connection_id, self.round);
        Ok(())
    }

    /// Notes that the session has answered all its statements.
    pub(super) fn finish(&self, session: u32) {
        self.forget(&BTreeSet::from([session]));
    }

    /// Sessions of cancelled guards that have not answered.
    pub(super) fn sessions_of_ended_guards(&self) -> BTreeSet<u32> {
        let servers = self.in_flight.lock();
        let sessions = servers.get(self.server).map(|there| &there.sessions);
        let before = sessions.into_iter().flatten().filter(|(_, round)| **round < self.round);
        before.map(|(session, _)| *session).collect()
    }

    /// Forgets sessions that were killed or have answered.
    pub(super) fn forget(&self, sessions: &BTreeSet<u32>) {
        if let Some(there) = self.in_flight.lock().get_mut(self.server) {
            there.sessions.retain(|session, round| *round > self.round || !sessions.contains(session));
        }
    }
}
