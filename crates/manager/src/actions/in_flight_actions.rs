//! Tracks the actions in flight on each server, so that an undo action always takes effect after the action
//! that it undoes.
//!
//! An action may still be in flight after the failover or switchover has stopped waiting for it: in this
//! process, on the network, or in the server. If it then made the server writable after the undo, there would
//! be two primaries. If it made the server read-only, there would be no primary. An undo action therefore
//! first cancels the guards of earlier actions, and kills the sessions through which these actions sent
//! statements.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::{Mutex, MutexGuard};
use tailwater_session::Connection;
use tokio::sync::watch;

use super::replication_setup::failed;
use crate::error::ManagerError;

/// The actions in flight on all servers, by server name.
#[derive(Debug, Default)]
pub(super) struct InFlightActions {
    servers: Mutex<BTreeMap<String, ServerActions>>,
}

/// The actions in flight on one server.
#[derive(Debug, Default)]
struct ServerActions {
    /// Number of undo actions so far on this server (the round). An undo action cancels the guards of earlier
    /// rounds.
    round: watch::Sender<u64>,
    /// Sessions with a statement that the server has not answered yet, each with the round of its guard.
    sessions: BTreeMap<u32, u64>,
}

/// Guard of one action on a server. An undo action on the same server cancels the guard.
#[derive(Debug)]
pub(super) struct ActionGuard<'a> {
    in_flight: &'a InFlightActions,
    server: &'a str,
    round: u64,
    rounds: watch::Receiver<u64>,
}

impl InFlightActions {
    /// Returns a guard for an ordinary action.
    pub(super) fn act<'a>(&'a self, server: &'a str) -> ActionGuard<'a> {
        self.guard(server, 0)
    }

    /// Returns a guard for an undo action, and cancels all earlier guards of this server.
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
    /// Waits until the guard is cancelled.
    pub(super) async fn ended(&self) {
        let mut rounds = self.rounds.clone();
        if rounds.wait_for(|round| *round != self.round).await.is_err() {
            // The sender was dropped, so no undo action can cancel this guard any more.
            std::future::pending().await
        }
    }

    /// Registers a session. Must be called before the first statement is sent through it.
    ///
    /// # Errors
    /// [`ManagerError::ActionFailed`] if the guard is already cancelled: the undo action could no longer find
    /// and kill this session.
    pub(super) fn register(&self, connection: &Connection) -> Result<(), ManagerError> {
        let mut servers = self.in_flight.lock();
        let there = servers.get_mut(self.server).filter(|there| *there.round.borrow() == self.round);
        let Some(there) = there else {
            let reason = "an undo action has cancelled the action".to_owned();
            return Err(failed(connection, "executing an action", reason));
        };
        there.sessions.insert(connection.server().connection_id, self.round);
        Ok(())
    }

    /// Records that the server has answered all statements of the session.
    pub(super) fn finish(&self, session: u32) {
        self.forget(&BTreeSet::from([session]));
    }

    /// Returns the sessions of cancelled guards whose statements the server has not answered.
    pub(super) fn sessions_of_ended_guards(&self) -> BTreeSet<u32> {
        let servers = self.in_flight.lock();
        let sessions = servers.get(self.server).map(|there| &there.sessions);
        let before = sessions.into_iter().flatten().filter(|(_, round)| **round < self.round);
        before.map(|(session, _)| *session).collect()
    }

    /// Removes sessions that were killed or that have no unanswered statement.
    pub(super) fn forget(&self, sessions: &BTreeSet<u32>) {
        if let Some(there) = self.in_flight.lock().get_mut(self.server) {
            there.sessions.retain(|session, round| *round > self.round || !sessions.contains(session));
        }
    }
}
