//! Executes the actions of a failover or switchover on servers, relays and hooks.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tailwater_session::{Connection, SessionError};
use tailwater_topology::TopologyError;
use tailwater_topology::server_probe::{ProbeTarget, probe_server, probe_servers};
use tailwater_wire::gtid::GtidSet;
use tracing::{info, warn};

use super::executor_config::{ExecutorConfig, ManagedServer};
use super::hook_command::{self, HookContext, HookOutcome, HookPurpose, HookServer};
use super::in_flight_actions::{ActionGuard, InFlightActions};
use super::primary_demotion::demote;
use super::primary_promotion::{self, PromotionState};
use super::required_gtids::RequiredGtids;
use super::semi_sync_source::PreparedSource;
use super::server_connections::ServerConnections;
use super::transaction_backfill::{self, no_log};
use super::write_pause::{hold_writes, release_writes};
use super::{read_only_switch, relay_log_drain, replication_setup, semi_sync_source};
use crate::action_executor::{AckerError, AckerReport, ActionExecutor};
use crate::candidates::CandidateServer;
use crate::error::ManagerError;
use crate::lossless_rules::{AckerStop, SemiSyncWait};
use crate::model::{ActionOutcome, LeaseToken, PrimaryStatus, RunAction};

/// Additional time after an action's own limit, for its last query and for its clean-up after a failure.
const GRACE: Duration = Duration::from_secs(6);

/// Executes the actions of one failover or switchover on real servers.
pub struct ServerExecutor {
    setup: ExecutorConfig,
    /// The old primary, if it may still be alive.
    primary: Option<ManagedServer>,
    connections: ServerConnections,
    /// Servers that this failover or switchover is promoting, by name.
    ready: Mutex<BTreeMap<String, PromotionState>>,
    /// Servers that are prepared as semi-sync sources, by name.
    prepared: Mutex<BTreeMap<String, PreparedSource>>,
    in_flight: InFlightActions,
}

impl ServerExecutor {
    /// Creates an executor that has not executed any action.
    pub fn new(setup: ExecutorConfig) -> Self {
        Self {
            setup,
            primary: None,
            connections: ServerConnections::default(),
            ready: Mutex::default(),
            prepared: Mutex::default(),
            in_flight: InFlightActions::default(),
        }
    }

    /// Adds the old primary, which may be alive. The executor connects to it only when an action names it.
    pub fn with_primary(mut self, primary: ManagedServer) -> Self {
        self.primary = Some(primary);
        self
    }

    /// Opens a connection to every server before the first action, so that no action has to wait for a login.
    pub async fn connect_ahead(&self) {
        self.connections.warm(&self.subjects(), self.setup.limits.look).await;
    }

    fn subjects(&self) -> Vec<ProbeTarget> {
        self.setup.servers.iter().map(|server| server.subject.clone()).collect()
    }

    fn participant(&self, name: &str) -> Result<&ManagedServer, ActionOutcome> {
        let mut servers = self.setup.servers.iter().chain(&self.primary);
        let found = servers.find(|server| server.subject.name == name);
        found.ok_or_else(|| ActionOutcome::Failed(format!("no server {name:?} is configured")))
    }

    async fn probe_candidates(&self) -> ActionOutcome {
        let subjects = self.subjects();
        let limit = self.setup.limits.look;
        let looks = probe_servers(&subjects, &[], limit);
        let ((observations, _), lacking) = tokio::join!(looks, self.connections.warm(&subjects, limit));
        let seen = self.setup.servers.iter().zip(&observations).map(|(participant, observation)| {
            let feed = participant.feed.as_ref().map(|feed| feed.state());
            let ExecutorConfig { flavour, version, .. } = self.setup;
            let mut server =
                CandidateServer::fed(&participant.member, observation, feed.as_ref(), flavour, version);
            server.name.clone_from(&participant.subject.name);
            // A missing privilege is reported now, rather than later during the promotion.
            if let Some(lack) = lacking.get(&server.name) {
                server.reached = Err(lack.clone());
            }
            server
        });
        ActionOutcome::Candidates(seen.collect())
    }

    /// Executes an action on a server, over its open connection.
    async fn on_server(&self, name: &str, limit: Duration, act: &RunAction) -> ActionOutcome {
        let participant = match self.participant(name) {
            Ok(participant) => participant,
            Err(answer) => return answer,
        };
        let guard = if undoes(act) { self.in_flight.undo(name) } else { self.in_flight.act(name) };
        let work = async {
            let mut connection = self.connections.take(&participant.subject, limit).await?;
            guard.register(&connection)?;
            if undoes(act) {
                let pending = guard.sessions_of_ended_guards();
                read_only_switch::kill_pending_changes(&mut connection, &pending).await?;
                guard.forget(&pending);
            }
            let done = self.act_on(&mut connection, participant, limit, act).await;
            answered(&guard, &connection, &done);
            self.connections.give_back(name, connection);
            if done.is_err() && matches!(act, RunAction::DrainRelayLog { .. }) {
                self.go_on_reading(&guard, participant, limit).await;
            }
            done
        };
        let bounded = tokio::time::timeout(limit + GRACE, work);
        match run_guarded(&guard, bounded).await {
            Some(Ok(Ok(None))) => ActionOutcome::Done,
            Some(Ok(Ok(Some(note)))) => ActionOutcome::DoneWithNote(note),
            Some(Ok(Err(error))) => answer_of(&error),
            Some(Err(_)) => {
                ActionOutcome::Unknown(format!("{name} did not answer within {} s", limit.as_secs_f64()))
            }
            None => undone_before_done(),
        }
    }

    /// Makes the server read from the log again after a failed drain. Opens a new connection if a statement
    /// was interrupted on the open connection.
    async fn go_on_reading(&self, guard: &ActionGuard<'_>, server: &ManagedServer, limit: Duration) {
        let again = async {
            let mut connection = self.connections.take(&server.subject, limit).await?;
            guard.register(&connection)?;
            let done = primary_promotion::go_on_reading(&mut connection, &self.setup, server).await;
            answered(guard, &connection, &done);
            self.connections.give_back(&server.subject.name, connection);
            done
        };
        if let Err(error) = again.await {
            // The drain has already failed, and the caller gets the error of the drain. The error of the
            // attempt to read again is only logged.
            warn!(server = server.subject.name, %error, "the server does not resume reading from the log");
        }
    }

    async fn act_on(
        &self,
        connection: &mut Connection,
        server: &ManagedServer,
        limit: Duration,
        act: &RunAction,
    ) -> Result<Option<String>, ManagerError> {
        let name = &server.subject.name;
        match act {
            RunAction::Backfill { from, what, .. } => {
                transaction_backfill::supply(connection, &self.setup, server, from, what, limit).await?;
            }
            RunAction::RepointReplica { .. } => {
                transaction_backfill::repoint(connection, &self.setup, limit).await?
            }
            RunAction::DrainRelayLog { .. } => {
                let ready = primary_promotion::drain(connection, server, limit).await?;
                self.restore_checkpoint(name, |all| _ = all.insert(name.clone(), ready));
            }
            RunAction::EnableSemiSyncSource { acks, .. } => {
                let prepared = lock(&self.prepared).get(name).copied().filter(|it| it.acks() == *acks);
                let (ready, note) =
                    primary_promotion::make_source(connection, self.known(name), prepared, *acks, limit)
                        .await?;
                self.restore_checkpoint(name, |all| _ = all.insert(name.clone(), ready));
                return Ok(note);
            }
            RunAction::PersistSemiSyncSource { .. } => {
                let (ready, note) = primary_promotion::persist_source(connection, self.known(name)).await?;
                self.restore_checkpoint(name, |all| _ = all.insert(name.clone(), ready));
                return Ok(note);
            }
            RunAction::MakeWritable { .. } => {
                let ready = primary_promotion::make_writable(connection, self.known(name)).await?;
                self.restore_checkpoint(name, |all| _ = all.insert(name.clone(), ready));
            }
            RunAction::MakeReadOnly { .. } => primary_promotion::make_read_only(connection, limit).await?,
            RunAction::PrepareSemiSyncSource { acks, .. } => {
                let prepared = semi_sync_source::prepare_source(connection, *acks).await?;
                lock(&self.prepared).insert(name.clone(), prepared);
            }
            RunAction::WaitForServer { what, .. } => {
                let flavour = connection.server().flavour;
                let Ok(what) = GtidSet::parse(flavour, what) else {
                    return Err(not_gtids(connection, what));
                };
                relay_log_drain::wait_executed(connection, &what, limit).await?;
            }
            RunAction::ResumeWrites { acks, .. } => return release_writes(connection, *acks).await,
            RunAction::Demote { has, .. } => {
                let log = self.setup.logs.first().ok_or_else(|| no_log(connection))?;
                demote(connection, &log.address, has, limit).await?;
            }
            RunAction::DisableSemiSyncSource { .. } => {
                primary_promotion::disable_source(connection, &self.setup, server, self.known(name), limit)
                    .await?;
                self.restore_checkpoint(name, |all| _ = all.remove(name));
                lock(&self.prepared).remove(name);
            }
            _ => {}
        }
        Ok(None)
    }

    /// Probes the primary and opens two connections to it.
    async fn probe_primary(&self) -> ActionOutcome {
        let primary = match self.participant(&self.setup.primary.name) {
            Ok(participant) => &participant.subject,
            Err(answer) => return answer,
        };
        let limit = self.setup.limits.look;
        let both = [primary.clone(), second(primary)];
        let (observation, lacking) =
            tokio::join!(probe_server(primary, limit), self.connections.warm(&both, limit));
        if let Some(reason) = lacking.into_values().next() {
            return ActionOutcome::Failed(reason);
        }
        match observation.outcome {
            Ok(look) => ActionOutcome::ServerStatus(PrimaryStatus {
                writable: look.is_writable(),
                // The primary is alive. Whether semi-sync survives a restart does not matter here, because a
                // restart would end the switchover.
                waiting: look.semi_sync_source.as_ref().map(|source| SemiSyncWait::seen(source, true)),
                executed: look.executed,
            }),
            Err(unreached) => ActionOutcome::Failed(unreached.message),
        }
    }

    /// Reads whether clients can write to the server, and what it has executed.
    async fn probe_server_status(&self, name: &str) -> ActionOutcome {
        let subject = match self.participant(name) {
            Ok(participant) => &participant.subject,
            Err(answer) => return answer,
        };
        let limit = self.setup.limits.look;
        let work = async {
            let mut connection = self.connections.take(subject, limit).await?;
            let writable = read_only_switch::is_writable(&mut connection).await?;
            let executed = replication_setup::executed(&mut connection).await?;
            self.connections.give_back(name, connection);
            Ok(PrimaryStatus { writable, waiting: None, executed })
        };
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(seen)) => ActionOutcome::ServerStatus(seen),
            Ok(Err(error)) => answer_of(&error),
            Err(_) => {
                ActionOutcome::Unknown(format!("{name} did not answer within {} s", limit.as_secs_f64()))
            }
        }
    }

    /// Pauses writes, with two connections. The first connection waits until the server is read-only; the
    /// second enforces the time limit.
    async fn hold_writes(&self, name: &str, within: Duration, grace: Duration) -> ActionOutcome {
        let primary = match self.participant(name) {
            Ok(participant) => &participant.subject,
            Err(answer) => return answer,
        };
        let guard = self.in_flight.act(name);
        let work = async {
            let second = second(primary);
            let (setter, other) =
                tokio::join!(self.connections.take(primary, within), self.connections.take(&second, within));
            let (mut setter, mut other) = (setter?, other?);
            guard.register(&setter)?;
            guard.register(&other)?;
            let held = hold_writes(&mut setter, &mut other, within, grace).await;
            answered(&guard, &other, &held);
            if held.is_ok() {
                answered(&guard, &setter, &held);
                self.connections.give_back(name, setter);
            }
            self.connections.give_back(&second.name, other);
            held
        };
        match run_guarded(&guard, tokio::time::timeout(within + GRACE, work)).await {
            Some(Ok(Ok(position))) => ActionOutcome::WritesPaused(position),
            Some(Ok(Err(error))) => answer_of(&error),
            Some(Err(_)) => {
                ActionOutcome::Unknown(format!("{name} did not answer within {} s", within.as_secs_f64()))
            }
            None => undone_before_done(),
        }
    }

    /// Polls the acker until it holds the transactions `what`.
    async fn await_acker(&self, name: &str, what: &str, within: Duration) -> ActionOutcome {
        let Some(port) = self.setup.ackers.get(name) else {
            return ActionOutcome::Failed(format!("no acker {name:?} is configured"));
        };
        let Some(wanted) = RequiredGtids::read(self.setup.flavour, what) else {
            return ActionOutcome::Failed(format!("{what:?} is not a GTID set"));
        };
        let mut last = "the acker did not answer".to_owned();
        let work = async {
            loop {
                match port.read().await {
                    Ok(AckerReport { acker, .. }) => {
                        let Some(holds) = acker.holds else {
                            return "the log of the acker cannot be read".to_owned();
                        };
                        if wanted.is_held_by(&holds) {
                            return String::new();
                        }
                        last = format!("the acker lacks {}", wanted.missing_in(&holds));
                    }
                    Err(AckerError::Refused(reason)) => return reason,
                    Err(AckerError::Unknown(reason)) => last = reason,
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        match tokio::time::timeout(within, work).await {
            Ok(reason) if reason.is_empty() => ActionOutcome::Done,
            Ok(reason) => ActionOutcome::Failed(reason),
            Err(_) => ActionOutcome::Failed(last),
        }
    }

    fn known(&self, name: &str) -> Option<PromotionState> {
        lock(&self.ready).get(name).cloned()
    }

    fn restore_checkpoint(&self, name: &str, change: impl FnOnce(&mut BTreeMap<String, PromotionState>)) {
        let mut ready = lock(&self.ready);
        change(&mut ready);
        match ready.get(name) {
            Some(state) => info!(server = name, "promotion state: {state}"),
            None => info!(server = name, "the promotion state of the server was removed"),
        }
    }

    async fn command_acker(&self, name: &str, act: &RunAction, token: LeaseToken) -> ActionOutcome {
        let Some(port) = self.setup.ackers.get(name) else {
            return ActionOutcome::Failed(format!("no acker {name:?} is configured"));
        };
        let limit = self.setup.limits.acker;
        let report = |mut report: AckerReport| {
            if report.term > token {
                report.acker.stop = AckerStop::Refused { term: token.0, seen: report.term.0 };
            }
            ActionOutcome::AckerState { acker: report.acker, before: report.before }
        };
        let done = |()| ActionOutcome::Done;
        let work = async {
            match act {
                RunAction::StopAcker { .. } => match port.stop(token).await {
                    // The relay's state shows whether the relay refused because it has seen a later lease
                    // term.
                    Err(AckerError::Refused(reason)) => match port.read().await {
                        Ok(read) if read.term > token => Ok(report(read)),
                        _ => Err(AckerError::Refused(reason)),
                    },
                    stopped => stopped.map(report),
                },
                RunAction::StartAcker { .. } => port.start(token).await.map(done),
                RunAction::RepointAcker { server, .. } => port.follow(token, server).await.map(done),
                RunAction::CheckAckerTerm { term, .. } => {
                    port.read().await.map(|report| later_term(&report, *term))
                }
                _ => port.read().await.map(report),
            }
        };
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(AckerError::Refused(reason))) => ActionOutcome::Failed(reason),
            Ok(Err(AckerError::Unknown(reason))) => ActionOutcome::Unknown(reason),
            Err(_) => {
                ActionOutcome::Unknown(format!("{name} did not answer within {} s", limit.as_secs_f64()))
            }
        }
    }

    async fn run_hook(
        &self,
        name: &str,
        purpose: HookPurpose,
        new: Option<&str>,
        token: LeaseToken,
    ) -> ActionOutcome {
        let Some(hook) = self.setup.hooks.iter().find(|hook| hook.name == name) else {
            return ActionOutcome::Failed(format!("no hook {name:?} is configured"));
        };
        let new_party = match new.map(|new| self.participant(new)) {
            Some(Err(answer)) => return answer,
            Some(Ok(participant)) => Some(participant.hook_server()),
            None => None,
        };
        let gtids: Option<GtidSet> = new.and_then(|new| self.known(new)).map(|ready| ready.executed);
        let situation = HookContext {
            purpose,
            run: self.setup.run.clone(),
            term: token.0,
            old: HookServer::clone(&self.setup.primary),
            new: new_party,
            gtids: gtids.map(|gtids| gtids.to_string()),
        };
        match hook_command::run(hook, &situation).await {
            HookOutcome::Done(printed) if printed.is_empty() => ActionOutcome::Done,
            HookOutcome::Done(printed) => ActionOutcome::DoneWithNote(printed),
            HookOutcome::Failed(reason) => ActionOutcome::Failed(reason),
            HookOutcome::Unknown(reason) => ActionOutcome::Unknown(reason),
        }
    }
}

impl ActionExecutor for ServerExecutor {
    async fn execute(&self, act: &RunAction, token: LeaseToken) -> ActionOutcome {
        let limits = self.setup.limits;
        match act {
            RunAction::CheckLease | RunAction::ConfirmFailure => {
                ActionOutcome::Failed(format!("only the driver executes this action: {act}"))
            }
            RunAction::StopAcker { acker }
            | RunAction::ReadAcker { acker }
            | RunAction::StartAcker { acker }
            | RunAction::CheckAckerTerm { acker, .. }
            | RunAction::RepointAcker { acker, .. } => self.command_acker(acker, act, token).await,
            RunAction::RunFenceHook { hook } => self.run_hook(hook, HookPurpose::Fence, None, token).await,
            RunAction::RunRouteHook { hook, server } => {
                self.run_hook(hook, HookPurpose::Route, Some(server), token).await
            }
            RunAction::ProbeCandidates => self.probe_candidates().await,
            RunAction::ProbePrimary => self.probe_primary().await,
            RunAction::ProbeServer { server } => self.probe_server_status(server).await,
            RunAction::PauseWrites { server, within_ms, grace_ms } => {
                let (within, grace) = (Duration::from_millis(*within_ms), Duration::from_millis(*grace_ms));
                self.hold_writes(server, within, grace).await
            }
            RunAction::WaitForAcker { acker, what, within_ms } => {
                self.await_acker(acker, what, Duration::from_millis(*within_ms)).await
            }
            RunAction::WaitForServer { server, within_ms, .. } => {
                self.on_server(server, Duration::from_millis(*within_ms), act).await
            }
            RunAction::Demote { server, .. } => self.on_server(server, limits.repoint, act).await,
            RunAction::Backfill { server, .. } => self.on_server(server, limits.supply, act).await,
            RunAction::DrainRelayLog { server } => self.on_server(server, limits.drain, act).await,
            RunAction::RepointReplica { replica } => self.on_server(replica, limits.repoint, act).await,
            RunAction::EnableSemiSyncSource { server, .. }
            | RunAction::PrepareSemiSyncSource { server, .. }
            | RunAction::PersistSemiSyncSource { server, .. }
            | RunAction::ResumeWrites { server, .. }
            | RunAction::MakeWritable { server }
            | RunAction::DisableSemiSyncSource { server }
            | RunAction::MakeReadOnly { server } => self.on_server(server, limits.change, act).await,
        }
    }
}

// Poisoning is ignored: no code panics while one of these locks is held, so a poisoned lock still protects
// valid data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Whether the action undoes earlier actions on its server.
fn undoes(act: &RunAction) -> bool {
    matches!(
        act,
        RunAction::ResumeWrites { .. }
            | RunAction::MakeReadOnly { .. }
            | RunAction::DisableSemiSyncSource { .. }
    )
}

/// Runs `work` until it is finished or the guard is cancelled. Returns `None` if the guard was cancelled.
async fn run_guarded<T>(guard: &ActionGuard<'_>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = guard.ended() => None,
        done = work => Some(done),
    }
}

fn undone_before_done() -> ActionOutcome {
    ActionOutcome::Unknown("the action was undone before it took effect".to_owned())
}

/// Records that the server has answered all statements of the session. Records nothing if this is uncertain.
fn answered<T>(guard: &ActionGuard<'_>, connection: &Connection, done: &Result<T, ManagerError>) {
    let is_certain = match done {
        Ok(_) => true,
        // After a time-out a statement may still be running on the server.
        Err(ManagerError::ActionTimeout { .. }) => false,
        Err(error) => !matches!(answer_of(error), ActionOutcome::Unknown(_)),
    };
    if is_certain {
        guard.finish(connection.server().connection_id);
    }
}

/// Returns whether an acker accepted an order in a later lease term than `term`.
fn later_term(report: &AckerReport, term: u64) -> ActionOutcome {
    match report.term {
        LeaseToken(last) if last <= term => ActionOutcome::Done,
        last => ActionOutcome::LaterTerm { term: last, stopped: report.acker.stop != AckerStop::Unknown },
    }
}

/// Returns the options for a second connection to the same server.
fn second(subject: &ProbeTarget) -> ProbeTarget {
    ProbeTarget { name: format!("{} (2)", subject.name), connect: subject.connect.clone() }
}

fn not_gtids(connection: &Connection, what: &str) -> ManagerError {
    ManagerError::UnexpectedAnswer(TopologyError::UnexpectedAnswer {
        server: connection.endpoint().to_owned(),
        what: "the GTID set that the server must have",
        value: what.chars().take(200).collect(),
    })
}

/// Converts an error to an outcome. If the connection broke, the action may have taken effect.
pub(super) fn answer_of(error: &ManagerError) -> ActionOutcome {
    let text = format!("{}: {error}", error.code());
    match error {
        ManagerError::Session(
            SessionError::Io { .. }
            | SessionError::Closed { .. }
            | SessionError::Timeout { .. }
            | SessionError::OutOfStep
            | SessionError::Protocol { .. },
        )
        | ManagerError::UnexpectedAnswer(_) => ActionOutcome::Unknown(text),
        _ => ActionOutcome::Failed(text),
    }
}
