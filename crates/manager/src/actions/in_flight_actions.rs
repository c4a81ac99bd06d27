//! What was begun on servers, so that what undoes it comes behind it.
//!
//! An act that nobody waits for any more goes on: in this process, and as a statement that is on its way to the server or waits
//! there. A server that it made writable behind its undoing would be a second primary, and one that it made read-only none. So
//! whatever undoes ends both before: the act's turn, and the sessions that it told something.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tailwater_session::Connection;
use tokio::sync::watch;

use super::replication::failed;
use crate::error::ManagerError;

/// What was begun, by server.
#[derive(Debug, Default)]
pub(super) struct InFlightActions {
    servers: Mutex<BTreeMap<String, ServerActions>>,
}

/// What was begun on one server.
#[derive(Debug, Default)]
struct ServerActions {
    /// Counts what undoes: turns of an earlier round are over.
    round: watch::Sender<u64>,
    /// Sessions that were told something and have not answered, with the round.
    sessions: BTreeMap<u32, u64>,
}

/// The turn of an act on a server. It is over when something undoes what was begun there.
#[derive(Debug)]
pub(super) struct ActionGuard<'a> {
    in_flight: &'a InFlightActions,
    server: &'a str,
    round: u64,
    rounds: watch::Receiver<u64>,
}

impl InFlightActions {
    /// For an act beside others.
    pub(super) fn act<'a>(&'a self, server: &'a str) -> ActionGuard<'a> {
        self.guard(server, 0)
    }

    /// For an act that undoes: all turns there are before are over.
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
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActionGuard<'_> {
    /// Is back when it is over.
    pub(super) async fn ended(&self) {
        let mut rounds = self.rounds.clone();
        if rounds.wait_for(|round| *round != self.round).await.is_err() {
            // Nobody is left who could end it.
            std::future::pending().await
        }
    }

    /// Before this session is told the first thing.
    ///
    /// # Errors
    /// [`ManagerError::ActionFailed`] if the turn is over: whoever ended it does not know this session.
    pub(super) fn register(&self, connection: &Connection) -> Result<(), ManagerError> {
        let mut servers = self.in_flight.lock();
        let there = servers.get_mut(self.server).filter(|there| *there.round.borrow() == self.round);
        let Some(there) = there else {
            let reason = "it is undone already".to_owned();
            return Err(failed(connection, "doing what was ordered", reason));
        };
        there.sessions.insert(connection.server().connection_id, self.round);
        Ok(())
    }

    /// The session has answered all that it was told.
    pub(super) fn finish(&self, session: u32) {
        self.forget(&BTreeSet::from([session]));
    }

    /// Sessions of turns that are over, which have not answered.
    pub(super) fn sessions_of_ended_guards(&self) -> BTreeSet<u32> {
        let servers = self.in_flight.lock();
        let sessions = servers.get(self.server).map(|there| &there.sessions);
        let before = sessions.into_iter().flatten().filter(|(_, round)| **round < self.round);
        before.map(|(session, _)| *session).collect()
    }

    /// These sessions are no more, or have answered.
    pub(super) fn forget(&self, sessions: &BTreeSet<u32>) {
        if let Some(there) = self.in_flight.lock().get_mut(self.server) {
            there.sessions.retain(|session, round| *round > self.round || !sessions.contains(session));
        }
    }
}
