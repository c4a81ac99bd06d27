//! The hands of a failover: takes an act, does it within its time, and says how it went.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tailwater_session::{Connection, SessionError};
use tailwater_wire::gtid::GtidSet;
use tracing::{info, warn};

use super::begun::{Begun, Turn};
use super::connections::Connections;
use super::demoting::demote;
use super::hook::{self, Outcome, Party, Purpose, Situation};
use super::pausing::{hold_writes, release_writes};
use super::promoting::{self, Ready};
use super::semi_sync::Prepared;
use super::setup::{Participant, Setup};
use super::supplying::{self, no_log};
use super::wanted::Wanted;
use super::{draining, replication, semi_sync, writing};
use crate::choice::Server;
use crate::error::ManagerError;
use crate::failover::{Act, Answer};
use crate::hands::{AckerError, AckerReport, Hands};
use crate::lease::Token;
use crate::lossless::{Stop, Waiting};
use crate::observing::{Subject, observe, observe_all};
use crate::switchover::Primary;

/// Beyond an act's own limit, for its last question and for what is to be done if it failed.
const GRACE: Duration = Duration::from_secs(6);

/// Does the acts of one failover on real servers.
pub struct Actor {
    setup: Setup,
    /// The old primary, where it may be alive.
    primary: Option<Participant>,
    connections: Connections,
    /// What is known of servers on their way to become primary.
    ready: Mutex<BTreeMap<String, Ready>>,
    /// Servers that were prepared for it.
    prepared: Mutex<BTreeMap<String, Prepared>>,
    /// What was begun on servers, and may go on.
    begun: Begun,
}

impl Actor {
    /// One that has done nothing.
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            primary: None,
            connections: Connections::default(),
            ready: Mutex::default(),
            prepared: Mutex::default(),
            begun: Begun::default(),
        }
    }

    /// With a primary that may be alive: it is asked nothing before an act names it.
    pub fn with_primary(mut self, primary: Participant) -> Self {
        self.primary = Some(primary);
        self
    }

    /// Connects to every server ahead of the first act.
    pub async fn connect_ahead(&self) {
        self.connections.warm(&self.subjects(), self.setup.limits.look).await;
    }

    fn subjects(&self) -> Vec<Subject> {
        self.setup.servers.iter().map(|server| server.subject.clone()).collect()
    }

    fn participant(&self, name: &str) -> Result<&Participant, Answer> {
        let mut servers = self.setup.servers.iter().chain(&self.primary);
        let found = servers.find(|server| server.subject.name == name);
        found.ok_or_else(|| Answer::Failed(format!("no server {name:?} is configured")))
    }

    async fn look_at_servers(&self) -> Answer {
        let subjects = self.subjects();
        let limit = self.setup.limits.look;
        let looks = observe_all(&subjects, &[], limit);
        let ((observations, _), lacking) = tokio::join!(looks, self.connections.warm(&subjects, limit));
        let seen = self.setup.servers.iter().zip(&observations).map(|(participant, observation)| {
            let feed = participant.feed.as_ref().map(|feed| feed.state());
            let Setup { flavour, version, .. } = self.setup;
            let mut server = Server::fed(&participant.member, observation, feed.as_ref(), flavour, version);
            server.name.clone_from(&participant.subject.name);
            // Better known now than half way.
            if let Some(lack) = lacking.get(&server.name) {
                server.reached = Err(lack.clone());
            }
            server
        });
        Answer::Servers(seen.collect())
    }

    /// Does an act on a server, over its warm connection.
    async fn on_server(&self, name: &str, limit: Duration, act: &Act) -> Answer {
        let participant = match self.participant(name) {
            Ok(participant) => participant,
            Err(answer) => return answer,
        };
        let turn = if undoes(act) { self.begun.undo(name) } else { self.begun.act(name) };
        let work = async {
            let mut connection = self.connections.take(&participant.subject, limit).await?;
            turn.tells(&connection)?;
            if undoes(act) {
                let told = turn.told_before();
                writing::end_told(&mut connection, &told).await?;
                turn.forget(&told);
            }
            let done = self.act_on(&mut connection, participant, limit, act).await;
            answered(&turn, &connection, &done);
            self.connections.give_back(name, connection);
            if done.is_err() && matches!(act, Act::Drain { .. }) {
                self.go_on_reading(&turn, participant, limit).await;
            }
            done
        };
        let bounded = tokio::time::timeout(limit + GRACE, work);
        match in_turn(&turn, bounded).await {
            Some(Ok(Ok(None))) => Answer::Done,
            Some(Ok(Ok(Some(note)))) => Answer::Noted(note),
            Some(Ok(Err(error))) => answer_of(&error),
            Some(Err(_)) => {
                Answer::Unknown(format!("{name} did not answer within {} s", limit.as_secs_f64()))
            }
            None => undone_meanwhile(),
        }
    }

    /// Over another connection if that one was given up in the midst of a statement.
    async fn go_on_reading(&self, turn: &Turn<'_>, server: &Participant, limit: Duration) {
        let again = async {
            let mut connection = self.connections.take(&server.subject, limit).await?;
            turn.tells(&connection)?;
            let done = promoting::go_on_reading(&mut connection, &self.setup, server).await;
            answered(turn, &connection, &done);
            self.connections.give_back(&server.subject.name, connection);
            done
        };
        if let Err(error) = again.await {
            // The step has failed already; this is told beside it.
            warn!(server = server.subject.name, %error, "does not go on reading from the log");
        }
    }

    async fn act_on(
        &self,
        connection: &mut Connection,
        server: &Participant,
        limit: Duration,
        act: &Act,
    ) -> Result<Option<String>, ManagerError> {
        let name = &server.subject.name;
        match act {
            Act::Supply { from, what, .. } => {
                supplying::supply(connection, &self.setup, server, from, what, limit).await?;
            }
            Act::Repoint { .. } => supplying::repoint(connection, &self.setup, limit).await?,
            Act::Drain { .. } => {
                let ready = promoting::drain(connection, server, limit).await?;
                self.remember(name, |all| _ = all.insert(name.clone(), ready));
            }
            Act::MakeSource { acks, .. } => {
                let prepared = lock(&self.prepared).get(name).copied().filter(|it| it.acks() == *acks);
                let (ready, note) =
                    promoting::make_source(connection, self.known(name), prepared, *acks, limit).await?;
                self.remember(name, |all| _ = all.insert(name.clone(), ready));
                return Ok(note);
            }
            Act::SettleSource { .. } => {
                let (ready, note) = promoting::settle_source(connection, self.known(name)).await?;
                self.remember(name, |all| _ = all.insert(name.clone(), ready));
                return Ok(note);
            }
            Act::MakeWritable { .. } => {
                let ready = promoting::make_writable(connection, self.known(name)).await?;
                self.remember(name, |all| _ = all.insert(name.clone(), ready));
            }
            Act::MakeReadOnly { .. } => promoting::make_read_only(connection, limit).await?,
            Act::Prepare { acks, .. } => {
                let prepared = semi_sync::prepare_source(connection, *acks).await?;
                lock(&self.prepared).insert(name.clone(), prepared);
            }
            Act::AwaitServer { what, .. } => {
                let flavour = connection.server().flavour;
                let Ok(what) = GtidSet::parse(flavour, what) else {
                    return Err(not_gtids(connection, what));
                };
                draining::wait_executed(connection, &what, limit).await?;
            }
            Act::ReleaseWrites { acks, .. } => return release_writes(connection, *acks).await,
            Act::Demote { has, .. } => {
                let log = self.setup.logs.first().ok_or_else(|| no_log(connection))?;
                demote(connection, &log.address, has, limit).await?;
            }
            Act::UnmakeSource { .. } => {
                promoting::unmake_source(connection, &self.setup, server, self.known(name), limit).await?;
                self.remember(name, |all| _ = all.remove(name));
                lock(&self.prepared).remove(name);
            }
            _ => {}
        }
        Ok(None)
    }

    /// Looks at the primary, and has two connections to it ready.
    async fn look_at_primary(&self) -> Answer {
        let primary = match self.participant(&self.setup.primary.name) {
            Ok(participant) => &participant.subject,
            Err(answer) => return answer,
        };
        let limit = self.setup.limits.look;
        let both = [primary.clone(), second(primary)];
        let (observation, lacking) =
            tokio::join!(observe(primary, limit), self.connections.warm(&both, limit));
        if let Some(reason) = lacking.into_values().next() {
            return Answer::Failed(reason);
        }
        match observation.outcome {
            Ok(look) => Answer::Primary(Primary {
                writable: look.is_writable(),
                // It is alive, and a restart ends the switchover.
                waiting: look.semi_sync_source.as_ref().map(|source| Waiting::seen(source, true)),
                executed: look.executed,
            }),
            Err(unreached) => Answer::Failed(unreached.message),
        }
    }

    /// Whether clients can write to it, and what it has.
    async fn glance(&self, name: &str) -> Answer {
        let subject = match self.participant(name) {
            Ok(participant) => &participant.subject,
            Err(answer) => return answer,
        };
        let limit = self.setup.limits.look;
        let work = async {
            let mut connection = self.connections.take(subject, limit).await?;
            let writable = writing::is_writable(&mut connection).await?;
            let executed = replication::executed(&mut connection).await?;
            self.connections.give_back(name, connection);
            Ok(Primary { writable, waiting: None, executed })
        };
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(seen)) => Answer::Primary(seen),
            Ok(Err(error)) => answer_of(&error),
            Err(_) => Answer::Unknown(format!("{name} did not answer within {} s", limit.as_secs_f64())),
        }
    }

    /// By two connections: one waits for the server, the other sees to it that it does not wait too long.
    async fn hold_writes(&self, name: &str, within: Duration, grace: Duration) -> Answer {
        let primary = match self.participant(name) {
            Ok(participant) => &participant.subject,
            Err(answer) => return answer,
        };
        let turn = self.begun.act(name);
        let work = async {
            let second = second(primary);
            let (setter, other) =
                tokio::join!(self.connections.take(primary, within), self.connections.take(&second, within));
            let (mut setter, mut other) = (setter?, other?);
            turn.tells(&setter)?;
            turn.tells(&other)?;
            let held = hold_writes(&mut setter, &mut other, within, grace).await;
            answered(&turn, &other, &held);
            if held.is_ok() {
                answered(&turn, &setter, &held);
                self.connections.give_back(name, setter);
            }
            self.connections.give_back(&second.name, other);
            held
        };
        match in_turn(&turn, tokio::time::timeout(within + GRACE, work)).await {
            Some(Ok(Ok(position))) => Answer::Position(position),
            Some(Ok(Err(error))) => answer_of(&error),
            Some(Err(_)) => {
                Answer::Unknown(format!("{name} did not answer within {} s", within.as_secs_f64()))
            }
            None => undone_meanwhile(),
        }
    }

    /// Asks until it holds so much.
    async fn await_acker(&self, name: &str, what: &str, within: Duration) -> Answer {
        let Some(port) = self.setup.ackers.get(name) else {
            return Answer::Failed(format!("no acker {name:?} is configured"));
        };
        let Some(wanted) = Wanted::read(self.setup.flavour, what) else {
            return Answer::Failed(format!("{what:?} is no set of GTIDs"));
        };
        let mut last = "it did not answer".to_owned();
        let work = async {
            loop {
                match port.read().await {
                    Ok(AckerReport { acker, .. }) => {
                        let Some(holds) = acker.holds else { return "its log cannot be read".to_owned() };
                        if wanted.is_held_by(&holds) {
                            return String::new();
                        }
                        last = format!("it lacks {}", wanted.missing_in(&holds));
                    }
                    Err(AckerError::Refused(reason)) => return reason,
                    Err(AckerError::Unknown(reason)) => last = reason,
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        match tokio::time::timeout(within, work).await {
            Ok(reason) if reason.is_empty() => Answer::Done,
            Ok(reason) => Answer::Failed(reason),
            Err(_) => Answer::Failed(last),
        }
    }

    fn known(&self, name: &str) -> Option<Ready> {
        lock(&self.ready).get(name).cloned()
    }

    fn remember(&self, name: &str, change: impl FnOnce(&mut BTreeMap<String, Ready>)) {
        let mut ready = lock(&self.ready);
        change(&mut ready);
        match ready.get(name) {
            Some(state) => info!(server = name, "on its way to become primary: {state}"),
            None => info!(server = name, "no longer on its way to become primary"),
        }
    }

    async fn tell_acker(&self, name: &str, act: &Act, token: Token) -> Answer {
        let Some(port) = self.setup.ackers.get(name) else {
            return Answer::Failed(format!("no acker {name:?} is configured"));
        };
        let limit = self.setup.limits.acker;
        let report = |mut report: AckerReport| {
            if report.term > token {
                report.acker.stop = Stop::Refused { term: token.0, seen: report.term.0 };
            }
            Answer::Acker { acker: report.acker, before: report.before }
        };
        let done = |()| Answer::Done;
        let work = async {
            match act {
                Act::StopAcker { .. } => match port.stop(token).await {
                    // Whether that is because of its term it says when it is asked.
                    Err(AckerError::Refused(reason)) => match port.read().await {
                        Ok(read) if read.term > token => Ok(report(read)),
                        _ => Err(AckerError::Refused(reason)),
                    },
                    stopped => stopped.map(report),
                },
                Act::StartAcker { .. } => port.start(token).await.map(done),
                Act::Follow { server, .. } => port.follow(token, server).await.map(done),
                Act::CheckAcker { term, .. } => port.read().await.map(|report| led_since(&report, *term)),
                _ => port.read().await.map(report),
            }
        };
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(AckerError::Refused(reason))) => Answer::Failed(reason),
            Ok(Err(AckerError::Unknown(reason))) => Answer::Unknown(reason),
            Err(_) => Answer::Unknown(format!("{name} did not answer within {} s", limit.as_secs_f64())),
        }
    }

    async fn run_hook(&self, name: &str, purpose: Purpose, new: Option<&str>, token: Token) -> Answer {
        let Some(hook) = self.setup.hooks.iter().find(|hook| hook.name == name) else {
            return Answer::Failed(format!("no hook {name:?} is configured"));
        };
        let new_party = match new.map(|new| self.participant(new)) {
            Some(Err(answer)) => return answer,
            Some(Ok(participant)) => Some(participant.party()),
            None => None,
        };
        let gtids: Option<GtidSet> = new.and_then(|new| self.known(new)).map(|ready| ready.executed);
        let situation = Situation {
            purpose,
            run: self.setup.run.clone(),
            term: token.0,
            old: Party::clone(&self.setup.primary),
            new: new_party,
            gtids: gtids.map(|gtids| gtids.to_string()),
        };
        match hook::run(hook, &situation).await {
            Outcome::Done(printed) if printed.is_empty() => Answer::Done,
            Outcome::Done(printed) => Answer::Noted(printed),
            Outcome::Failed(reason) => Answer::Failed(reason),
            Outcome::Unknown(reason) => Answer::Unknown(reason),
        }
    }
}

impl Hands for Actor {
    async fn perform(&self, act: &Act, token: Token) -> Answer {
        let limits = self.setup.limits;
        match act {
            Act::CheckLease | Act::Confirm => {
                Answer::Failed(format!("{act}: that is for whoever drives the failover"))
            }
            Act::StopAcker { acker }
            | Act::ReadAcker { acker }
            | Act::StartAcker { acker }
            | Act::CheckAcker { acker, .. }
            | Act::Follow { acker, .. } => self.tell_acker(acker, act, token).await,
            Act::FenceHook { hook } => self.run_hook(hook, Purpose::Fence, None, token).await,
            Act::RouteHook { hook, server } => self.run_hook(hook, Purpose::Route, Some(server), token).await,
            Act::LookAtServers => self.look_at_servers().await,
            Act::LookAtPrimary => self.look_at_primary().await,
            Act::Glance { server } => self.glance(server).await,
            Act::HoldWrites { server, within_ms, grace_ms } => {
                let (within, grace) = (Duration::from_millis(*within_ms), Duration::from_millis(*grace_ms));
                self.hold_writes(server, within, grace).await
            }
            Act::AwaitAcker { acker, what, within_ms } => {
                self.await_acker(acker, what, Duration::from_millis(*within_ms)).await
            }
            Act::AwaitServer { server, within_ms, .. } => {
                self.on_server(server, Duration::from_millis(*within_ms), act).await
            }
            Act::Demote { server, .. } => self.on_server(server, limits.repoint, act).await,
            Act::Supply { server, .. } => self.on_server(server, limits.supply, act).await,
            Act::Drain { server } => self.on_server(server, limits.drain, act).await,
            Act::Repoint { replica } => self.on_server(replica, limits.repoint, act).await,
            Act::MakeSource { server, .. }
            | Act::Prepare { server, .. }
            | Act::SettleSource { server, .. }
            | Act::ReleaseWrites { server, .. }
            | Act::MakeWritable { server }
            | Act::UnmakeSource { server }
            | Act::MakeReadOnly { server } => self.on_server(server, limits.change, act).await,
        }
    }
}

// Nothing panics while one of these is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an act undoes what was begun on its server.
fn undoes(act: &Act) -> bool {
    matches!(act, Act::ReleaseWrites { .. } | Act::MakeReadOnly { .. } | Act::UnmakeSource { .. })
}

/// Does the work of a turn; nothing more of it once that is over.
async fn in_turn<T>(turn: &Turn<'_>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = turn.over() => None,
        done = work => Some(done),
    }
}

fn undone_meanwhile() -> Answer {
    Answer::Unknown("it was undone before it was done".to_owned())
}

/// Notes that a session has answered all that it was told, unless nobody knows.
fn answered<T>(turn: &Turn<'_>, connection: &Connection, done: &Result<T, ManagerError>) {
    let is_certain = match done {
        Ok(_) => true,
        // A statement may have been given up.
        Err(ManagerError::TooLong { .. }) => false,
        Err(error) => !matches!(answer_of(error), Answer::Unknown(_)),
    };
    if is_certain {
        turn.answered(connection.server().connection_id);
    }
}

/// Whether an acker had an order in a later term.
fn led_since(report: &AckerReport, term: u64) -> Answer {
    match report.term {
        Token(last) if last <= term => Answer::Done,
        last => Answer::Led { term: last, stopped: report.acker.stop != Stop::Unknown },
    }
}

/// Another connection to the same server.
fn second(subject: &Subject) -> Subject {
    Subject { name: format!("{} (2)", subject.name), connect: subject.connect.clone() }
}

fn not_gtids(connection: &Connection, what: &str) -> ManagerError {
    ManagerError::Answer {
        server: connection.endpoint().to_owned(),
        what: "a set of GTIDs that it is to have",
        value: what.chars().take(200).collect(),
    }
}

/// An error as an answer: what broke off may have been done.
pub(super) fn answer_of(error: &ManagerError) -> Answer {
    let text = format!("{}: {error}", error.code());
    match error {
        ManagerError::Session(
            SessionError::Io { .. }
            | SessionError::Closed { .. }
            | SessionError::Timeout { .. }
            | SessionError::OutOfStep
            | SessionError::Protocol { .. },
        )
        | ManagerError::Answer { .. } => Answer::Unknown(text),
        _ => Answer::Failed(text),
    }
}
