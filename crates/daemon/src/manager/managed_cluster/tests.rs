//! Tests of failovers and switchovers on a cluster whose servers do not exist. The tests show which work
//! waits for the end of a failover or switchover, and how its outcome affects the next one.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tailwater_manager::SafetyRefusal;
use tailwater_manager::action_executor::{AckerControl, AckerError, AckerFuture, AckerReport};
use tailwater_manager::actions::ServerExecutor;
use tailwater_manager::actions::executor_config::{
    ActionTimeouts as ActLimits, ExecutorConfig, ReplicaAccount,
};
use tailwater_manager::actions::hook_command::HookServer;
use tailwater_manager::audit_history::Replacement;
use tailwater_manager::cluster_watch::{RelayProbe, RelayProbeFuture};
use tailwater_manager::failover_driver::action_loop::ConfirmationFuture;
use tailwater_manager::failover_driver::{AuditStore, ConfirmFailure, RunMachine};
use tailwater_manager::lease::{FileLease, LeaseStatus, LeaseTask, LeaseTimes};
use tailwater_manager::lossless_rules::PossibleLoss;
use tailwater_manager::model::{
    ActionOutcome, Audit, AuditEntry, AuditEvent, LeaseToken, NumberedAction, RunAction, RunKind, RunOutcome,
    RunPhase,
};
use tailwater_session::{ConnectOptions, Endpoint};
use tailwater_topology::probe_failure::ProbeFailure;
use tailwater_topology::server_probe::ProbeTarget;
use tailwater_topology::{ClusterPlan, Member};
use tailwater_wire::Flavour;
use tokio::sync::Notify;

use super::automatic_failover::FOLLOWED_PAUSE;
use super::*;
use crate::manager::client_requests::Manager;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A failover or switchover that requests a confirmation of the failure, and then ends with the given
/// outcome.
struct Scripted {
    audit: Audit,
    end: RunOutcome,
    token: LeaseToken,
}

impl RunMachine for Scripted {
    fn begin(&mut self, _: u64) -> Vec<NumberedAction> {
        vec![(1, RunAction::ConfirmFailure)]
    }

    fn answer(&mut self, _: u64, _: u32, _: ActionOutcome) -> Vec<NumberedAction> {
        self.audit.outcome = Some(self.end.clone());
        Vec::new()
    }

    fn lease_lost(&mut self, _: u64, reason: &str) {
        let refusal = SafetyRefusal::NoLease { reason: reason.to_owned() };
        self.audit.outcome = Some(RunOutcome::Unchanged { refusal });
    }

    fn phase(&self) -> RunPhase {
        RunPhase::Confirm
    }

    fn token(&self) -> Option<LeaseToken> {
        Some(self.token)
    }

    fn audit(&self) -> &Audit {
        &self.audit
    }

    fn must_continue(&self) -> bool {
        false
    }
}

/// Confirms the failure when the test notifies it.
#[derive(Default)]
struct Gate(Notify);

impl ConfirmFailure for Gate {
    fn confirm(&self) -> ConfirmationFuture<'_> {
        Box::pin(async {
            self.0.notified().await;
            Ok("the primary is dead".to_owned())
        })
    }
}

/// An executor that records the actions and does nothing.
#[derive(Clone, Default)]
struct Idle(Arc<Mutex<Vec<RunAction>>>);

impl ActionExecutor for Idle {
    async fn execute(&self, act: &RunAction, _: LeaseToken) -> ActionOutcome {
        self.0.lock().push(act.clone());
        ActionOutcome::Done
    }
}

/// An executor that reports that another manager has repointed all ackers in a later lease term.
#[derive(Clone, Default)]
struct Superseded(Idle);

impl ActionExecutor for Superseded {
    async fn execute(&self, act: &RunAction, token: LeaseToken) -> ActionOutcome {
        match act {
            RunAction::CheckAckerTerm { term, .. } => {
                ActionOutcome::LaterTerm { term: LeaseToken(term + 1), stopped: false }
            }
            _ => self.0.execute(act, token).await,
        }
    }
}

/// A relay that cannot be reached.
struct Away;

impl RelayProbe for Away {
    fn probe(&self) -> RelayProbeFuture<'_> {
        Box::pin(async { Err(ProbeFailure::Refused) })
    }
}

impl AckerControl for Away {
    fn in_run(&self, _: u64) -> Arc<dyn AckerControl> {
        Arc::new(Self)
    }

    fn stop(&self, _: LeaseToken) -> AckerFuture<'_, AckerReport> {
        self.read()
    }

    fn read(&self) -> AckerFuture<'_, AckerReport> {
        Box::pin(async { Err(AckerError::Refused("the relay is unreachable".to_owned())) })
    }

    fn start(&self, _: LeaseToken) -> AckerFuture<'_, ()> {
        Box::pin(async { Err(AckerError::Refused("the relay is unreachable".to_owned())) })
    }

    fn follow<'a>(&'a self, token: LeaseToken, _: &'a str) -> AckerFuture<'a, ()> {
        self.start(token)
    }
}

fn unreachable_server(name: &str) -> ProbeTarget {
    let endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
    ProbeTarget { name: name.to_owned(), connect: ConnectOptions::new(endpoint, "nobody") }
}

fn wiring(primary: Option<&str>) -> ClusterWiring {
    let primary = unreachable_server(primary.unwrap_or("db1"));
    let member = Member { name: primary.name.clone(), ..Member::default() };
    let plan = ClusterPlan { name: "orders".to_owned(), primary: member, ..ClusterPlan::default() };
    ClusterWiring { plan, primary, followers: Vec::new(), own: "db1".to_owned() }
}

struct Stage<H> {
    cluster: Arc<ManagedCluster<H>>,
    lease: LeaseTask,
    supervisor: JoinHandle<()>,
    token: LeaseToken,
}

impl<H: ActionExecutor + 'static> Stage<H> {
    async fn set(folder: &Path, make_executor: Box<MakeExecutor<H>>) -> anyhow::Result<Self> {
        let terms = LeaseTimes::of(60_000)?;
        let lease = LeaseTask::start(FileLease::new(folder.join("lease"), "one", terms.ttl_ms), terms);
        let mut standing = lease.handle().standing();
        let held = standing.wait_for(|standing| matches!(standing, LeaseStatus::Active(_)));
        tokio::time::timeout(PATIENCE, held).await??;
        let token = lease.handle().check()?;
        let (cluster, supervisor) = ManagedCluster::start(ClusterParts {
            source: "orders".to_owned(),
            config: ManagerConfig::default(),
            manager: "one".to_owned(),
            wiring: Box::new(|primary| Ok(wiring(primary))),
            poller: Arc::new(ServerPoller::start([unreachable_server("db1")], PATIENCE, || {})),
            followed: Box::new(|| None),
            log_origin: Box::new(|| None),
            relays: vec![WatchedRelay {
                name: "relay".to_owned(),
                probe: Arc::new(Away),
                control: Arc::new(Away),
            }],
            make_executor,
            channels: ChannelControls::new(),
            lease: lease.handle(),
            guard: PersistedGuard::open(folder.join("orders.guard"), None)?,
            records: AuditFolder::new(folder.join("records")),
            shared: None,
            term_floor: None,
            checkpoint: WatchCheckpointFile::new(folder.join("orders.seen"), Box::new(|| 0)),
        })?;
        Ok(Self { cluster, lease, supervisor, token })
    }

    /// Begins a failover or switchover that ends with the outcome `end` after the test has opened the gate.
    fn begin(&self, end: RunOutcome) -> anyhow::Result<(Arc<Gate>, JoinHandle<bool>)> {
        let gate = Arc::new(Gate::default());
        let confirm: Arc<dyn ConfirmFailure> = Arc::clone(&gate) as _;
        let (_, task) = self.cluster.begin("failover", |id, _, _| {
            let machine = Scripted { audit: audit(id, "db1"), end, token: self.token };
            Ok(PreparedRun { machine, confirm, previous_primary: None, changes: true })
        })?;
        Ok((gate, task))
    }
}

fn audit(id: String, primary: &str) -> Audit {
    Audit::new(&id, RunKind::Failover, primary)
}

fn unchanged() -> RunOutcome {
    RunOutcome::Unchanged {
        refusal: SafetyRefusal::NoLease { reason: "the test ends this failover".to_owned() },
    }
}

fn promoted() -> RunOutcome {
    let left = vec![RunAction::RepointReplica { replica: "db3".to_owned() }];
    RunOutcome::Promoted { server: "db2".to_owned(), left }
}

async fn idle_stage(folder: &Path) -> anyhow::Result<(Stage<Idle>, Idle)> {
    let executor = Idle::default();
    let given = executor.clone();
    Ok((Stage::set(folder, Box::new(move |_, _, _| Ok(given.clone()))).await?, executor))
}

/// The actions that a failover or switchover did not complete are completed after its end. They are not
/// completed after another failover or switchover has begun, because they could start what the new failover
/// or switchover has stopped.
#[tokio::test]
async fn another_failover_stops_the_unfinished_actions_of_the_last_one() -> anyhow::Result<()> {
    let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
    let (with, followed) = idle_stage(folders[0].path()).await?;
    let (without, left_alone) = idle_stage(folders[1].path()).await?;
    for stage in [&with, &without] {
        let (gate, task) = stage.begin(promoted())?;
        gate.0.notify_one();
        assert!(task.await?);
    }
    let (gate, task) = without.begin(unchanged())?;
    gate.0.notify_one();
    assert!(!task.await?);
    let begun = std::time::Instant::now();
    while followed.0.lock().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "the unfinished actions were not completed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(interrupted_failover_recovery::FINISH_PAUSE / 2).await;
    assert!(left_alone.0.lock().is_empty(), "the actions were completed although another failover has begun");
    Ok(())
}

/// Ack policies are not recorded during a failover or switchover. Afterwards they are recorded again,
/// whatever its outcome.
#[tokio::test]
async fn ack_policies_are_recorded_again_after_an_incomplete_failover() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (stage, _) = idle_stage(folder.path()).await?;
    let Stage { cluster, .. } = &stage;
    let left = RunOutcome::Incomplete {
        refusal: SafetyRefusal::NoLease { reason: "the test ends this failover".to_owned() },
        to_undo: vec![RunAction::StartAcker { acker: "relay".to_owned() }],
        irreversible: Vec::new(),
    };
    for end in [left, unchanged()] {
        let (gate, task) = stage.begin(end)?;
        let begun = std::time::Instant::now();
        while !cluster.cluster_state().is_frozen() {
            assert!(begun.elapsed() < PATIENCE, "ack policies are still recorded");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        gate.0.notify_one();
        task.await?;
        assert!(!cluster.cluster_state().is_frozen());
    }
    Ok(())
}

/// A second failover or switchover at the same time is refused, and the start of one interrupts other work on
/// the cluster.
#[tokio::test]
async fn a_failover_interrupts_other_work_on_the_cluster() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (stage, _) = idle_stage(folder.path()).await?;
    let mut interrupted = std::pin::pin!(stage.cluster.interrupted());
    assert!(stage.cluster.is_free());
    tokio::select! {
        biased;
        reason = &mut interrupted => panic!("the work was interrupted although no failover has begun: {reason}"),
        () = tokio::task::yield_now() => {}
    }
    let (gate, task) = stage.begin(unchanged())?;
    assert!(!stage.cluster.is_free());
    assert_eq!(tokio::time::timeout(PATIENCE, interrupted).await?, "a failover or switchover begins");
    assert!(stage.begin(unchanged()).is_err_and(|error| error.to_string().contains("is under way")));
    gate.0.notify_one();
    task.await?;
    // The end of the lease also interrupts other work.
    let interrupted = stage.cluster.interrupted();
    stage.lease.release().await;
    assert!(tokio::time::timeout(PATIENCE, interrupted).await?.contains("released"));
    assert!(!stage.cluster.is_free());
    Ok(())
}

/// A server that may have the only copy of acknowledged commits is not overwritten automatically. An audit
/// record that cannot be read gives no proof either way.
#[tokio::test]
async fn the_records_show_which_server_may_hold_missing_commits() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (stage, _) = idle_stage(folder.path()).await?;
    let records = AuditFolder::new(folder.path().join("records"));
    let past = |server: &str| stage.cluster.past_of(server, "db2");
    let missing = PossibleLoss { after: None, known: None, held_by: Vec::new(), grows: true };
    assert!(matches!(past("db1"), Replacement::Unknown(_)));
    let save = |id: &str, possible_loss: Option<PossibleLoss>, primary: &str, server: &str| {
        let outcome = Some(RunOutcome::Promoted { server: server.to_owned(), left: Vec::new() });
        records.save(&Audit { possible_loss, outcome, ..audit(id.to_owned(), primary) })
    };
    save("1", Some(missing), "db1", "db2")?;
    assert_eq!(past("db1"), Replacement::LossAccepted("1".to_owned()));
    save("2", None, "db2", "db1")?;
    save("3", None, "db1", "db2")?;
    assert_eq!(past("db1"), Replacement::Lossless);
    std::fs::write(folder.path().join("records/4.json"), "{")?;
    assert!(matches!(past("db1"), Replacement::Unknown(_)));
    Ok(())
}

/// While an interrupted failover or switchover is neither undone nor finished, it is uncertain which server
/// is the primary. So no server counts as a former primary.
#[tokio::test]
async fn an_interrupted_failover_is_reported_until_it_is_recovered() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (stage, _) = idle_stage(folder.path()).await?;
    // The supervisor would recover the failover or switchover, so it is stopped.
    stage.supervisor.abort();
    let records = AuditFolder::new(folder.path().join("records"));
    let name = |ago_s: i64, kind: &str| {
        let began = chrono::Utc::now() - chrono::TimeDelta::seconds(ago_s);
        format!("{}-orders-{kind}", began.format("%Y%m%dT%H%M%S%3fZ"))
    };
    let held = RunAction::PauseWrites { server: "db1".to_owned(), within_ms: 500, grace_ms: 100 };
    let steps = vec![AuditEntry {
        at_ms: 1,
        phase: RunPhase::Pause,
        note: AuditEvent::ActionOrdered { number: 1, what: held },
    }];
    let begun = |id: String| Audit {
        kind: RunKind::Switchover,
        token: Some(7),
        steps: steps.clone(),
        ..audit(id, "db1")
    };
    assert!(!stage.cluster.is_half_way());
    // This failover or switchover is too old: an operator may have corrected its effects.
    records.save(&begun(name(4000, "switchover")))?;
    assert!(!stage.cluster.is_half_way());
    let run = name(9, "switchover");
    records.save(&begun(run.clone()))?;
    assert!(stage.cluster.is_half_way());
    let recovery = |ago_s, outcome| {
        let id = name(ago_s, "recovery");
        records.save(&Audit { resumes: Some(run.clone()), outcome: Some(outcome), ..begun(id) })
    };
    recovery(8, unchanged())?;
    assert!(stage.cluster.is_half_way());
    recovery(7, promoted())?;
    assert!(!stage.cluster.is_half_way());
    Ok(())
}

/// If the manager lost the lease during a failover or switchover, the next holder recovers it. The next
/// holder may be the same manager. A failover or switchover that could not be undone is left to an operator.
#[tokio::test]
async fn a_failover_whose_manager_lost_the_lease_is_recovered() -> anyhow::Result<()> {
    let held = RunAction::PauseWrites { server: "db1".to_owned(), within_ms: 500, grace_ms: 100 };
    let released = RunAction::ResumeWrites { server: "db1".to_owned(), acks: 0 };
    let lost = SafetyRefusal::NoLease { reason: "the test ends this failover".to_owned() };
    let failed = SafetyRefusal::StepFailed {
        step: "drain db2".to_owned(),
        reason: "the test ends this failover".to_owned(),
    };
    for (refusal, is_recovered) in [(lost, true), (failed, false)] {
        let folder = tempfile::tempdir()?;
        let (stage, executor) = idle_stage(folder.path()).await?;
        let gate = Arc::new(Gate::default());
        let confirm: Arc<dyn ConfirmFailure> = Arc::clone(&gate) as _;
        let (_, task) = stage.cluster.begin("switchover", |id, _, _| {
            let notes = [
                AuditEvent::ActionOrdered { number: 1, what: held.clone() },
                AuditEvent::RuleRefused { refusal: refusal.clone() },
            ];
            let steps =
                notes.into_iter().map(|note| AuditEntry { at_ms: 1, phase: RunPhase::Pause, note }).collect();
            let audit =
                Audit { kind: RunKind::Switchover, token: Some(stage.token.0), steps, ..audit(id, "db1") };
            let end =
                RunOutcome::Incomplete { refusal, to_undo: vec![released.clone()], irreversible: Vec::new() };
            Ok(PreparedRun {
                machine: Scripted { audit, end, token: stage.token },
                confirm,
                previous_primary: None,
                changes: true,
            })
        })?;
        gate.0.notify_one();
        assert!(!task.await?);
        assert_eq!(stage.cluster.is_half_way(), is_recovered);
        let begun = std::time::Instant::now();
        while is_recovered && stage.cluster.is_half_way() {
            assert!(begun.elapsed() < PATIENCE, "the interrupted failover was not recovered");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if !is_recovered {
            tokio::time::sleep(5 * FOLLOWED_PAUSE).await;
        }
        assert_eq!(executor.0.lock().contains(&released), is_recovered);
    }
    Ok(())
}

/// An interrupted failover needs no recovery after another manager has changed the cluster. The recovery is
/// tried once, and does not block the rejoin of former primaries.
#[tokio::test]
async fn a_failover_that_another_manager_has_superseded_needs_no_recovery() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let executor = Superseded::default();
    let given = executor.clone();
    let stage = Stage::set(folder.path(), Box::new(move |_, _, _| Ok(given.clone()))).await?;
    let records = AuditFolder::new(folder.path().join("records"));
    let began = chrono::Utc::now() - chrono::TimeDelta::seconds(9);
    // The audit record has the name by which another manager knows the relay.
    let stopped = RunAction::StopAcker { acker: "tailwater".to_owned() };
    let steps = vec![AuditEntry {
        at_ms: 1,
        phase: RunPhase::Fence,
        note: AuditEvent::ActionOrdered { number: 1, what: stopped },
    }];
    let id = format!("{}-orders-failover", began.format("%Y%m%dT%H%M%S%3fZ"));
    records.save(&Audit { token: Some(stage.token.0), steps, ..audit(id.clone(), "db1") })?;
    assert!(stage.cluster.is_half_way());
    // Pretend that a failover or switchover of this manager was interrupted.
    stage.cluster.was_cut_off.store(true, Ordering::Relaxed);
    let begun = std::time::Instant::now();
    while stage.cluster.is_half_way() {
        assert!(begun.elapsed() < PATIENCE, "the recovery has not ended");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let recoveries = records.list()?.into_iter().filter(|record| *record != id).collect::<Vec<_>>();
    let [recovery] = &recoveries[..] else { panic!("there must be exactly one recovery: {recoveries:?}") };
    let recovery = records.load(recovery)?.context("the recovery has no audit record")?;
    assert!(
        matches!(&recovery.outcome, Some(RunOutcome::Unchanged { refusal }) if refusal.code() == "TW-MGR-0073"),
        "the recovery has the wrong outcome: {recovery}"
    );
    assert!(executor.0.0.lock().iter().all(|act| !act.changes_state()));
    Ok(())
}

/// A daemon that stops waits for a failover or switchover in progress. An interrupted failover could leave a
/// primary read-only, for example.
#[tokio::test]
async fn a_daemon_that_stops_waits_for_a_failover_in_progress() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let config = || ExecutorConfig {
        run: String::new(),
        primary: HookServer { name: "db1".to_owned(), host: "127.0.0.1".to_owned(), port: 1 },
        flavour: Flavour::MySql,
        version: ServerVersion::read("9.7.0"),
        servers: Vec::new(),
        ackers: std::collections::BTreeMap::new(),
        logs: Vec::new(),
        replica_account: ReplicaAccount::default(),
        hooks: Vec::new(),
        limits: ActLimits::default(),
    };
    let stage = Stage::set(folder.path(), Box::new(move |_, _, _| Ok(ServerExecutor::new(config())))).await?;
    let (gate, _) = stage.begin(unchanged())?;
    let Stage { cluster, lease, supervisor, .. } = stage;
    let mut manager = Manager::default();
    manager.add("orders", Arc::clone(&cluster), lease, supervisor);
    let stopping = tokio::spawn(async move { manager.stop().await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        !stopping.is_finished() && cluster.is_busy(),
        "the daemon did not wait for the end of the failover"
    );
    assert!(cluster.parts.lease.check().is_ok(), "the manager lost the lease during the failover");
    gate.0.notify_one();
    tokio::time::timeout(PATIENCE, stopping).await??;
    let id = cluster.report().run.context("the report names no failover or switchover")?;
    assert_eq!(cluster.audit(&id)?.context("the failover has no audit record")?.outcome, Some(unchanged()));
    assert!(cluster.parts.lease.check().is_err(), "the lease was not released");
    Ok(())
}
