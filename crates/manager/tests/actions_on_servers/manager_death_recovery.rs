//! Tests of recovery on real servers: the manager of a switchover or failover dies before each of its
//! actions, and the next manager undoes or finishes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use tailwater_manager::ManagerError;
use tailwater_manager::action_executor::{
    AckerControl, AckerError, AckerFuture, AckerReport, ActionExecutor,
};
use tailwater_manager::actions::read_only_switch::is_writable;
use tailwater_manager::actions::replication_setup::{self, ReplicationSource, read_from};
use tailwater_manager::actions::{ServerExecutor, relay_log_drain, semi_sync_source};
use tailwater_manager::audit_history::InterruptedRun;
use tailwater_manager::candidates::GtidOrigin;
use tailwater_manager::failover::{self, ExpectedDurations, Failover};
use tailwater_manager::failover_driver::RunMachine;
use tailwater_manager::interrupted_failover_recovery::{self, RunRecovery};
use tailwater_manager::lossless_rules::{AckerEvidence, AckerStop};
use tailwater_manager::model::{ActionOutcome, Audit, LeaseToken, RunAction, RunOutcome, RunPhase};
use tailwater_manager::switchover::{Switchover, SwitchoverRequest};
use tailwater_sandbox::{Server, ServerKind, require};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_topology::ServerVersion;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{GtidSet, MysqlGtid};

use super::switchover::{actor_with, client, cluster};
use super::test_cluster::{
    Cluster, PATIENCE, address, as_leader, connect, on_both_families, rows, statement,
};

on_both_families!(
    a_manager_that_dies_in_a_switchover_leaves_a_primary,
    a_manager_that_dies_in_a_failover_leaves_a_primary
);

/// The server that replaces the relay's log, as an acker that accepts orders.
#[derive(Clone)]
struct LogAcker {
    log: ConnectOptions,
    servers: BTreeMap<String, ReplicationSource>,
    flavour: Flavour,
    term: Arc<Mutex<u64>>,
}

impl LogAcker {
    fn heard(&self, token: LeaseToken) {
        *self.term.lock() = token.0;
    }

    async fn connect(&self) -> Result<Connection, AckerError> {
        Connection::connect(&self.log).await.map_err(|error| AckerError::Unknown(error.to_string()))
    }

    async fn report(&self, stop: AckerStop) -> Result<AckerReport, AckerError> {
        let holds = replication_setup::executed(&mut self.connect().await?).await.map_err(unknown)?;
        let term = LeaseToken(*self.term.lock());
        let acker = AckerEvidence { name: "relay".to_owned(), durable: true, stop, holds: Some(holds) };
        Ok(AckerReport { acker, before: GtidSet::empty(self.flavour), term })
    }
}

fn unknown(error: ManagerError) -> AckerError {
    AckerError::Unknown(error.to_string())
}

impl AckerControl for LogAcker {
    fn in_run(&self, _: u64) -> Arc<dyn AckerControl> {
        Arc::new(self.clone())
    }

    fn stop(&self, token: LeaseToken) -> AckerFuture<'_, AckerReport> {
        self.heard(token);
        Box::pin(async {
            relay_log_drain::drain(&mut self.connect().await?, PATIENCE).await.map_err(unknown)?;
            self.report(AckerStop::Persistent).await
        })
    }

    fn read(&self) -> AckerFuture<'_, AckerReport> {
        Box::pin(self.report(AckerStop::Unknown))
    }

    fn start(&self, token: LeaseToken) -> AckerFuture<'_, ()> {
        self.heard(token);
        Box::pin(async { replication_setup::start(&mut self.connect().await?).await.map_err(unknown) })
    }

    fn follow<'a>(&'a self, token: LeaseToken, server: &'a str) -> AckerFuture<'a, ()> {
        self.heard(token);
        Box::pin(async move {
            let mut log = self.connect().await?;
            relay_log_drain::drain(&mut log, PATIENCE).await.map_err(unknown)?;
            read_from(&mut log, &self.servers[server], PATIENCE).await.map_err(unknown)
        })
    }
}

struct Trial {
    cluster: Cluster,
    acker: Arc<LogAcker>,
    term: u64,
}

impl Trial {
    async fn start(kind: ServerKind) -> Result<Self> {
        let cluster = cluster(kind).await?;
        // The acker can be repointed to either of these servers.
        let servers =
            [("db1".to_owned(), address(&cluster.primary)), ("db2".into(), address(&cluster.replica))];
        let acker = Arc::new(LogAcker {
            log: as_leader(&cluster.log),
            servers: servers.into_iter().collect(),
            flavour: kind.flavour(),
            term: Arc::default(),
        });
        Ok(Self { cluster, acker, term: 0 })
    }

    /// Returns a new manager with the next lease term. The new manager does not know what other managers have
    /// done.
    fn manager(&mut self) -> (ServerExecutor, LeaseToken) {
        self.term += 1;
        (actor_with(&self.cluster, Arc::clone(&self.acker) as Arc<dyn AckerControl>), LeaseToken(self.term))
    }

    async fn order(&self) -> Result<SwitchoverRequest> {
        let primary = &self.cluster.primary;
        let origin = match self.cluster.kind.flavour() {
            Flavour::MariaDb => GtidOrigin::MariaDb(1),
            Flavour::MySql => {
                let uuid = primary.sql("SELECT @@server_uuid").await?.concat();
                GtidOrigin::MySql(MysqlGtid::parse(&format!("{uuid}:1"))?.uuid)
            }
        };
        Ok(SwitchoverRequest {
            id: "run".to_owned(),
            primary: "db1".to_owned(),
            origin,
            version: ServerVersion::read(primary.version()),
            region: None,
            ackers: vec!["relay".to_owned()],
            route_hooks: Vec::new(),
            direct_replicas: Vec::new(),
            acks_required: 1,
            wanted: None,
            across_regions: false,
            catch_up_ms_max: 60_000,
            write_pause_ms_max: 60_000,
            grace_ms: 1_000,
            dry_run: false,
            expected: ExpectedDurations {
                stop_ms: 5,
                hook_ms: 50,
                supply_ms: 20,
                change_ms: 3,
                follow_ms: 30,
            },
        })
    }

    /// Runs a failover whose manager dies after `changes` actions that changed something. The proof of
    /// completeness is not tested here.
    async fn fail_over(
        &mut self,
        order: &SwitchoverRequest,
        changes: usize,
    ) -> Result<(Audit, Vec<RunAction>)> {
        let mut failover = Failover::new(failover::FailoverRequest {
            id: order.id.clone(),
            primary: order.primary.clone(),
            origin: order.origin,
            version: order.version,
            region: None,
            last_known: None,
            ack_policies: None,
            primary_state_age_ms: 0,
            primary_state_max_age_ms: 0,
            ackers: order.ackers.clone(),
            fence_hooks: Vec::new(),
            route_hooks: Vec::new(),
            direct_replicas: Vec::new(),
            acks_required: order.acks_required,
            wanted: None,
            across_regions: false,
            catch_up_ms_max: order.catch_up_ms_max,
            allow_data_loss: true,
            dry_run: false,
            expected: order.expected,
        });
        let (actor, token) = self.manager();
        drive(&mut failover, &actor, token, Some(changes)).await
    }

    /// Runs a switchover whose manager dies after `changes` actions that changed something. Returns the audit
    /// record that was stored last, and these actions.
    async fn switch_over(&mut self, changes: usize) -> Result<(Audit, Vec<RunAction>)> {
        let mut switchover = Switchover::new(self.order().await?);
        let (actor, token) = self.manager();
        drive(&mut switchover, &actor, token, Some(changes)).await
    }

    async fn recover(&mut self, stored: &Audit) -> Result<Audit> {
        let traces = InterruptedRun::of(stored).context("the audit record shows nothing to recover")?;
        let mut recovery = RunRecovery::new(interrupted_failover_recovery::RecoveryRequest {
            id: "recovery".to_owned(),
            traces,
            route_hooks: Vec::new(),
            direct_replicas: Vec::new(),
        });
        let (actor, token) = self.manager();
        Ok(drive(&mut recovery, &actor, token, None).await?.0)
    }

    /// A client commits on the primary, and the commit is acknowledged. A client cannot write to the other
    /// server. All servers get the row.
    async fn commits(&self, on: &Server, not_on: &Server, id: u32) -> Result<()> {
        let mut app = client(on).await?;
        let insert = format!("INSERT INTO shop.t VALUES ({id})");
        tokio::time::timeout(PATIENCE, app.execute(&insert))
            .await
            .context("the commit did not end in time")??;
        ensure!(client(not_on).await?.execute("INSERT INTO shop.t VALUES (0)").await.is_err());
        for other in [not_on, &self.cluster.log] {
            let wanted = rows(on).await?;
            self.cluster
                .wait(other, "the server has the same rows as the primary", async || {
                    Ok(rows(other).await? == wanted)
                })
                .await?;
        }
        Ok(())
    }
}

/// Drives a state machine, one action at a time, until it is finished or `changes_max` actions have changed
/// something. Returns the audit record that was stored last, and these actions.
async fn drive<M: RunMachine>(
    machine: &mut M,
    actor: &ServerExecutor,
    token: LeaseToken,
    changes_max: Option<usize>,
) -> Result<(Audit, Vec<RunAction>)> {
    let mut stored = machine.audit().clone();
    let mut changed = Vec::new();
    let mut next = machine.begin(0);
    while !next.is_empty() {
        if !machine.skips_audit_store() && next.iter().any(|(_, act)| act.changes_state()) {
            stored = machine.audit().clone();
        }
        let (number, act) = next.remove(0);
        if act.changes_state() {
            if changes_max == Some(changed.len()) {
                return Ok((stored, changed));
            }
            changed.push(act.clone());
        }
        let answer = match act {
            RunAction::CheckLease => ActionOutcome::LeaseHeld(token),
            RunAction::ConfirmFailure => {
                ActionOutcome::FailureConfirmed("the test killed the primary".to_owned())
            }
            act => actor.execute(&act, token).await,
        };
        next.extend(machine.answer(1, number, answer));
        if machine.phase() == RunPhase::Undo && changes_max.is_some() {
            bail!("the failover or switchover was undone before its manager died: {}", machine.audit());
        }
    }
    Ok((machine.audit().clone(), changed))
}

async fn a_manager_that_dies_in_a_switchover_leaves_a_primary(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut trial = Trial::start(kind).await?;
    trial
        .cluster
        .replica
        .sql(statement(kind, "SET GLOBAL super_read_only = 1", "SET GLOBAL read_only = 1"))
        .await?;
    let mut undone = 0;
    for changes in 1..20 {
        let id = 100 + u32::try_from(changes)?;
        let (stored, changed) = trial.switch_over(changes).await.with_context(|| {
            format!("cannot run the switchover whose manager dies after {changes} changes")
        })?;
        let last = changed.last().context("no action was executed")?.to_string();
        // Before writes are paused, nothing has to be undone.
        let Some(_) = InterruptedRun::of(&stored) else {
            ensure!(
                is_writable(&mut client(&trial.cluster.primary).await?).await?,
                "the primary must take writes if the manager dies before the write pause, after {last}: {stored}"
            );
            continue;
        };
        // Meanwhile another manager has disabled semi-sync on the old primary, as managers do on a former
        // primary.
        if !is_writable(&mut client(&trial.cluster.primary).await?).await? {
            let off = statement(
                kind,
                "SET GLOBAL rpl_semi_sync_source_enabled = 0",
                "SET GLOBAL rpl_semi_sync_master_enabled = 0",
            );
            trial.cluster.primary.sql(off).await?;
        }
        let audit = trial.recover(&stored).await.with_context(|| last.clone())?;
        let cluster = &trial.cluster;
        match &audit.outcome {
            Some(RunOutcome::Undone { .. }) => {
                undone += 1;
                let waits = semi_sync_source::verify_waiting(&mut connect(&cluster.primary).await?, 1).await;
                waits.with_context(|| {
                    format!("the servers are in the wrong state after the recovery; the manager died after {last:?}: {audit}")
                })?;
                let committed = trial.commits(&cluster.primary, &cluster.replica, id).await;
                committed.with_context(|| {
                    format!(
                        "the servers are in the wrong state after the recovery; the manager died after {last:?}. audit record of that manager: {stored}; audit record of the recovery: {audit}"
                    )
                })?;
            }
            Some(RunOutcome::Promoted { server, left }) => {
                ensure!(
                    server == "db2" && left.is_empty(),
                    "the audit record lists the wrong remaining actions: {audit}"
                );
                let committed = trial.commits(&cluster.replica, &cluster.primary, id).await;
                committed.with_context(|| {
                    format!(
                        "the servers are in the wrong state after the recovery; the manager died after {last:?}. audit record of that manager: {stored}; audit record of the recovery: {audit}"
                    )
                })?;
                ensure!(
                    last.contains("writable") && undone >= 5,
                    "a server was promoted too early: the last action was {last}, and {undone} runs were undone: {audit}"
                );
                return Ok(());
            }
            _ => bail!(
                "the servers are in the wrong state after the recovery; the manager died after {last:?}. audit record of that manager: {stored}; audit record of the recovery: {audit}"
            ),
        }
    }
    bail!("no server became the primary in time")
}

async fn a_manager_that_dies_in_a_failover_leaves_a_primary(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut trial = Trial::start(kind).await?;
    trial
        .cluster
        .replica
        .sql(statement(kind, "SET GLOBAL super_read_only = 1", "SET GLOBAL read_only = 1"))
        .await?;
    let order = trial.order().await?;
    trial.cluster.insert(1).await?;
    trial.cluster.in_step().await?;
    trial.cluster.primary.kill().await?;
    let mut undone = 0;
    for changes in 1..20 {
        let (stored, changed) = trial
            .fail_over(&order, changes)
            .await
            .with_context(|| format!("cannot run the failover whose manager dies after {changes} changes"))?;
        let last = changed.last().context("no action was executed")?.to_string();
        let audit = trial.recover(&stored).await.with_context(|| last.clone())?;
        let cluster = &trial.cluster;
        match &audit.outcome {
            Some(RunOutcome::Undone { .. }) => {
                undone += 1;
                ensure!(
                    !is_writable(&mut client(&cluster.replica).await?).await?,
                    "the servers are in the wrong state after the recovery; the manager died after {last:?}: {audit}"
                );
                // The replica and the log replicate from their previous source again.
                for server in [&cluster.replica, &cluster.log] {
                    let mut connection = Connection::connect(&as_leader(server)).await?;
                    let channel = replication_setup::status(&mut connection)
                        .await?
                        .context("the server has no replication channel")?;
                    ensure!(
                        channel.sql_running,
                        "the applier is stopped after the recovery; the manager died after {last:?}: {channel:?} {audit}"
                    );
                }
            }
            Some(RunOutcome::Promoted { server, left }) => {
                ensure!(
                    server == "db2" && left.is_empty(),
                    "the audit record lists the wrong remaining actions: {audit}"
                );
                let mut app = client(&cluster.replica).await?;
                let commits = app.execute("INSERT INTO shop.t VALUES (7)");
                tokio::time::timeout(PATIENCE, commits).await.context("the commit did not end in time")??;
                cluster
                    .wait(&cluster.log, "the server has the same rows as the primary", async || {
                        Ok(rows(&cluster.log).await? == "1,7")
                    })
                    .await?;
                ensure!(
                    last.contains("writable") && undone >= 3,
                    "a server was promoted too early: the last action was {last}, and {undone} runs were undone: {audit}"
                );
                return Ok(());
            }
            _ => bail!(
                "the servers are in the wrong state after the recovery; the manager died after {last:?}. audit record of that manager: {stored}; audit record of the recovery: {audit}"
            ),
        }
    }
    bail!("no server became the primary in time")
}
