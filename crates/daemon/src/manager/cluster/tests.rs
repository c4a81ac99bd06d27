//! Runs of a cluster whose servers are nowhere: who waits for whom, and what the end of one means for the next.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tailwater_manager::SafetyRefusal;
use tailwater_manager::action_executor::{AckerControl, AckerError, AckerFuture, AckerReport};
use tailwater_manager::actions::ServerExecutor;
use tailwater_manager::actions::executor_config::{
    ActionTimeouts as ActLimits, ExecutorConfig, ReplicaAccount,
};
use tailwater_manager::actions::hook::HookServer;
use tailwater_manager::cluster_watch::{RelayProbe, RelayProbeFuture};
use tailwater_manager::driver::run_driver::ConfirmationFuture;
use tailwater_manager::driver::{AuditStore, ConfirmFailure, RunMachine};
use tailwater_manager::failover::state_machine::NumberedAction;
use tailwater_manager::failover::{
    ActionOutcome, Audit, AuditEntry, AuditEvent, RunAction, RunKind, RunOutcome, RunPhase,
};
use tailwater_manager::lease::{FileLease, LeaseStatus, LeaseTask, LeaseTimes, LeaseToken};
use tailwater_manager::lossless::PossibleLoss;
use tailwater_manager::probe::ProbeTarget;
use tailwater_manager::probe_failure::ProbeFailure;
use tailwater_manager::topology::{ClusterPlan, Member};
use tailwater_session::{ConnectOptions, Endpoint};
use tailwater_wire::Flavour;
use tokio::sync::Notify;

use super::supervisor::FOLLOWED_PAUSE;
use super::*;
use crate::manager::requests::Manager;

/// Only reached when something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks whether the primary has failed, and ends as it was told.
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

/// Says yes once it may.
#[derive(Default)]
struct Gate(Notify);

impl ConfirmFailure for Gate {
    fn confirm(&self) -> ConfirmationFuture<'_> {
        Box::pin(async {
            self.0.notified().await;
            Ok("it is dead".to_owned())
        })
    }
}

/// Does nothing, and remembers what.
#[derive(Clone, Default)]
struct Idle(Arc<Mutex<Vec<RunAction>>>);

impl ActionExecutor for Idle {
    async fn execute(&self, act: &RunAction, _: LeaseToken) -> ActionOutcome {
        self.0.lock().push(act.clone());
        ActionOutcome::Done
    }
}

/// Finds that another manager has led all ackers in a term that is to come.
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

/// A relay that is never reached.
struct Away;

impl RelayProbe for Away {
    fn probe(&self) -> RelayProbeFuture<'_> {
        Box::pin(async { Err(ProbeFailure::Refused) })
    }
}

impl AckerControl for Away {
    fn stop(&self, _: LeaseToken) -> AckerFuture<'_, AckerReport> {
        self.read()
    }

    fn read(&self) -> AckerFuture<'_, AckerReport> {
        Box::pin(async { Err(AckerError::Refused("it is away".to_owned())) })
    }

    fn start(&self, _: LeaseToken) -> AckerFuture<'_, ()> {
        Box::pin(async { Err(AckerError::Refused("it is away".to_owned())) })
    }

    fn follow<'a>(&'a self, token: LeaseToken, _: &'a str) -> AckerFuture<'a, ()> {
        self.start(token)
    }
}

fn nowhere(name: &str) -> ProbeTarget {
    let endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
    ProbeTarget { name: name.to_owned(), connect: ConnectOptions::new(endpoint, "nobody") }
}

fn wiring(primary: Option<&str>) -> ClusterWiring {
    let primary = nowhere(primary.unwrap_or("db1"));
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
    async fn set(folder: &Path, hands: Box<MakeExecutor<H>>) -> anyhow::Result<Self> {
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
            followed: Box::new(|| None),
            log_origin: Box::new(|| None),
            relays: vec![WatchedRelay {
                name: "relay".to_owned(),
                probe: Arc::new(Away),
                control: Arc::new(Away),
            }],
            hands,
            feeds: ChannelControls::new(),
            lease: lease.handle(),
            guard: PersistedGuard::open(folder.join("orders.guard"), None)?,
            records: AuditFolder::new(folder.join("records")),
            shared: None,
            above: None,
            memory: WatchCheckpointFile::new(folder.join("orders.seen"), Box::new(|| 0)),
        })?;
        Ok(Self { cluster, lease, supervisor, token })
    }

    /// Begins a run that ends so, once the gate is open.
    fn begin(&self, end: RunOutcome) -> anyhow::Result<(Arc<Gate>, JoinHandle<bool>)> {
        let gate = Arc::new(Gate::default());
        let confirm: Arc<dyn ConfirmFailure> = Arc::clone(&gate) as _;
        let (_, task) = self.cluster.begin("failover", |id, _, _| {
            let machine = Scripted { audit: audit(id, "db1"), end, token: self.token };
            Ok(PreparedRun { machine, confirm, led_by: None, changes: true })
        })?;
        Ok((gate, task))
    }
}

fn audit(id: String, primary: &str) -> Audit {
    Audit::new(&id, RunKind::Failover, primary)
}

fn unchanged() -> RunOutcome {
    RunOutcome::Unchanged { refusal: SafetyRefusal::NoLease { reason: "as the script says".to_owned() } }
}

fn promoted() -> RunOutcome {
    let left = vec![RunAction::RepointReplica { replica: "db3".to_owned() }];
    RunOutcome::Promoted { server: "db2".to_owned(), left }
}

async fn idle_stage(folder: &Path) -> anyhow::Result<(Stage<Idle>, Idle)> {
    let hands = Idle::default();
    let given = hands.clone();
    Ok((Stage::set(folder, Box::new(move |_, _, _| Ok(given.clone()))).await?, hands))
}

/// What a run left to be done is done behind it, but not once another has begun: that one may have stopped what this would
/// start.
#[tokio::test]
async fn another_run_ends_what_the_last_one_left() -> anyhow::Result<()> {
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
        assert!(begun.elapsed() < PATIENCE, "what was left is not done");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(interrupted_runs::FINISH_PAUSE / 2).await;
    assert!(left_alone.0.lock().is_empty(), "it is done though another run has begun");
    Ok(())
}

/// While a run is under way nothing is noted of who can acknowledge; afterwards it is, however it ended.
#[tokio::test]
async fn regimes_are_noted_again_behind_a_run_that_was_left_half_way() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (stage, _) = idle_stage(folder.path()).await?;
    let Stage { cluster, .. } = &stage;
    let left = RunOutcome::Incomplete {
        refusal: SafetyRefusal::NoLease { reason: "as the script says".to_owned() },
        to_undo: vec![RunAction::StartAcker { acker: "relay".to_owned() }],
        irreversible: Vec::new(),
    };
    for end in [left, unchanged()] {
        let (gate, task) = stage.begin(end)?;
        let begun = std::time::Instant::now();
        while !cluster.cluster_state().is_frozen() {
            assert!(begun.elapsed() < PATIENCE, "it goes on noting");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        gate.0.notify_one();
        task.await?;
        assert!(!cluster.cluster_state().is_frozen());
    }
    Ok(())
}

/// Two runs at once are refused, and who works beside them hears that one begins.
#[tokio::test]
async fn a_run_interrupts_what_is_done_beside_it() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (stage, _) = idle_stage(folder.path()).await?;
    let mut interrupted = std::pin::pin!(stage.cluster.interrupted());
    assert!(stage.cluster.is_free());
    tokio::select! {
        biased;
        reason = &mut interrupted => panic!("nothing has begun: {reason}"),
        () = tokio::task::yield_now() => {}
    }
    let (gate, task) = stage.begin(unchanged())?;
    assert!(!stage.cluster.is_free());
    assert_eq!(tokio::time::timeout(PATIENCE, interrupted).await?, "a run begins");
    assert!(stage.begin(unchanged()).is_err_and(|error| error.to_string().contains("is under way")));
    gate.0.notify_one();
    task.await?;
    // And of the end of the lease.
    let interrupted = stage.cluster.interrupted();
    stage.lease.release().await;
    assert!(tokio::time::timeout(PATIENCE, interrupted).await?.contains("released"));
    assert!(!stage.cluster.is_free());
    Ok(())
}

/// A server that may have the only copy of acknowledged commits is not written over by itself; what cannot be read proves nothing.
#[tokio::test]
async fn who_may_hold_what_is_missing_is_told_by_the_records() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (stage, _) = idle_stage(folder.path()).await?;
    let records = AuditFolder::new(folder.path().join("records"));
    let past = |server: &str| stage.cluster.past_of(server, "db2");
    let missing = PossibleLoss { after: None, known: None, held_by: Vec::new(), grows: true };
    assert!(matches!(past("db1"), Past::Unknown(_)));
    let save = |id: &str, possible_loss: Option<PossibleLoss>, primary: &str, server: &str| {
        let outcome = Some(RunOutcome::Promoted { server: server.to_owned(), left: Vec::new() });
        records.save(&Audit { possible_loss, outcome, ..audit(id.to_owned(), primary) })
    };
    save("1", Some(missing), "db1", "db2")?;
    assert_eq!(past("db1"), Past::Accepted("1".to_owned()));
    save("2", None, "db2", "db1")?;
    save("3", None, "db1", "db2")?;
    assert_eq!(past("db1"), Past::Proven);
    std::fs::write(folder.path().join("records/4.json"), "{")?;
    assert!(matches!(past("db1"), Past::Unknown(_)));
    Ok(())
}

/// While a run that was begun is neither undone nor finished it is not certain who leads: nobody is taken for a former primary.
#[tokio::test]
async fn a_run_that_was_left_half_done_is_told_until_it_is_recovered() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (stage, _) = idle_stage(folder.path()).await?;
    // What is left half done is tried to be recovered, and kept from that here.
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
    // Too old: people have set it right.
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

/// A run that lost the lease half way is gone on with by who holds it next, be it the same manager; one that could not be undone
/// is left to people.
#[tokio::test]
async fn a_run_that_lost_the_lease_half_way_is_gone_on_with() -> anyhow::Result<()> {
    let held = RunAction::PauseWrites { server: "db1".to_owned(), within_ms: 500, grace_ms: 100 };
    let released = RunAction::ResumeWrites { server: "db1".to_owned(), acks: 0 };
    let lost = SafetyRefusal::NoLease { reason: "as the script says".to_owned() };
    let failed =
        SafetyRefusal::StepFailed { step: "drain db2".to_owned(), reason: "as the script says".to_owned() };
    for (refusal, is_gone_on_with) in [(lost, true), (failed, false)] {
        let folder = tempfile::tempdir()?;
        let (stage, hands) = idle_stage(folder.path()).await?;
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
                led_by: None,
                changes: true,
            })
        })?;
        gate.0.notify_one();
        assert!(!task.await?);
        assert_eq!(stage.cluster.is_half_way(), is_gone_on_with);
        let begun = std::time::Instant::now();
        while is_gone_on_with && stage.cluster.is_half_way() {
            assert!(begun.elapsed() < PATIENCE, "nobody goes on with it");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if !is_gone_on_with {
            tokio::time::sleep(5 * FOLLOWED_PAUSE).await;
        }
        assert_eq!(hands.0.lock().contains(&released), is_gone_on_with);
    }
    Ok(())
}

/// A failover that was cut off is over once another manager has led the cluster: it is asked for once, and keeps nobody from bringing
/// former primaries back.
#[tokio::test]
async fn a_run_that_another_manager_has_superseded_is_over() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let hands = Superseded::default();
    let given = hands.clone();
    let stage = Stage::set(folder.path(), Box::new(move |_, _, _| Ok(given.clone()))).await?;
    let records = AuditFolder::new(folder.path().join("records"));
    let began = chrono::Utc::now() - chrono::TimeDelta::seconds(9);
    // By the name that another manager gives it.
    let stopped = RunAction::StopAcker { acker: "tailwater".to_owned() };
    let steps = vec![AuditEntry {
        at_ms: 1,
        phase: RunPhase::Fence,
        note: AuditEvent::ActionOrdered { number: 1, what: stopped },
    }];
    let id = format!("{}-orders-failover", began.format("%Y%m%dT%H%M%S%3fZ"));
    records.save(&Audit { token: Some(stage.token.0), steps, ..audit(id.clone(), "db1") })?;
    assert!(stage.cluster.is_half_way());
    // As behind a run of this manager's own.
    stage.cluster.was_cut_off.store(true, Ordering::Relaxed);
    let begun = std::time::Instant::now();
    while stage.cluster.is_half_way() {
        assert!(begun.elapsed() < PATIENCE, "it stays half way");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let recoveries = records.list()?.into_iter().filter(|record| *record != id).collect::<Vec<_>>();
    let [recovery] = &recoveries[..] else { panic!("{recoveries:?}") };
    let recovery = records.load(recovery)?.context("no record")?;
    assert!(
        matches!(&recovery.outcome, Some(RunOutcome::Unchanged { refusal }) if refusal.code() == "TW-MGR-0073"),
        "{recovery}"
    );
    assert!(hands.0.0.lock().iter().all(|act| !act.changes_state()));
    Ok(())
}

/// The daemon's end waits for a run that is under way: half way it would leave a primary read-only, say.
#[tokio::test]
async fn the_end_of_the_daemon_waits_for_a_run() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let nobody = || ExecutorConfig {
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
    let stage = Stage::set(folder.path(), Box::new(move |_, _, _| Ok(ServerExecutor::new(nobody())))).await?;
    let (gate, _) = stage.begin(unchanged())?;
    let Stage { cluster, lease, supervisor, .. } = stage;
    let mut manager = Manager::default();
    manager.add("orders", Arc::clone(&cluster), lease, supervisor);
    let stopping = tokio::spawn(async move { manager.stop().await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!stopping.is_finished() && cluster.is_busy(), "it does not wait");
    assert!(cluster.parts.lease.check().is_ok(), "the run has no lease any more");
    gate.0.notify_one();
    tokio::time::timeout(PATIENCE, stopping).await??;
    let id = cluster.report().run.context("a run")?;
    assert_eq!(cluster.audit(&id)?.context("its record")?.outcome, Some(unchanged()));
    assert!(cluster.parts.lease.check().is_err(), "another manager need not wait for the end of the lease");
    Ok(())
}
