//! The tasks of a watch. Each kind of probe of each server has its own task, so that no probe waits for
//! another.
//!
//! The primary is pinged on an open connection. When the server process ends, the kernel closes that
//! connection. The ping then reconnects at once and is refused, so the death of the process is detected
//! within one ping interval. After the first failed or overdue ping, the other observers are polled more
//! often, because they confirm or contradict the failure.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tailwater_topology::failure_analysis::{
    AnalysisSettings, ClusterFinding, FailoverGuard, FailoverReadiness,
};
use tailwater_topology::probe_failure::{Liveness, ProbeFailure};
use tailwater_topology::server_probe::ProbeTarget;
use tailwater_topology::server_probe::server_ping::Pinger;
use tailwater_topology::server_state::{Observation, PingKind, PingResult};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::cluster_state::{ClusterEvent, ClusterState, WatchedCluster};
use super::relay_probe::RelayProbe;
use super::server_poller::{PolledObservation, ServerPoller};
use super::watch_checkpoint::WatchCheckpoint;
use crate::action_executor::{AckerControl, AckerError};

/// Probe intervals and time-outs, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProbeIntervals {
    /// Interval of pings of the primary.
    pub ping_ms: u64,
    /// Time-out of a ping.
    pub ping_timeout_ms: u64,
    /// Interval of probes of a server. The old spelling is `look_ms`.
    #[serde(alias = "look_ms")]
    pub poll_ms: u64,
    /// Time-out of a probe. The old spelling is `look_timeout_ms`.
    #[serde(alias = "look_timeout_ms")]
    pub poll_timeout_ms: u64,
    /// Interval of probes while the primary does not answer. The old spelling is `hurried_look_ms`.
    #[serde(alias = "hurried_look_ms")]
    pub failure_poll_ms: u64,
    /// Interval at which the manager writes to its own row on the primary; `None` if it does not write.
    pub write_ms: Option<u64>,
}

impl Default for ProbeIntervals {
    fn default() -> Self {
        Self {
            ping_ms: 100,
            ping_timeout_ms: 1_000,
            poll_ms: 1_000,
            poll_timeout_ms: 3_000,
            failure_poll_ms: 100,
            write_ms: None,
        }
    }
}

/// Pause after a failed ping, in milliseconds. After a refused connection, the pause is the normal interval.
const AGAIN_MS: u64 = 20;

/// A ping without an answer is overdue after this time, in milliseconds. Then the other observers are polled,
/// and a new connection to the primary is tried.
const LATE_MS: u64 = 250;

/// Interval of the analysis, in milliseconds. The analysis runs even without events, because some findings
/// depend on a duration.
const ANALYSE_MS: u64 = 100;

/// A clock in milliseconds since 1970. It ignores changes of the system clock after its start.
#[derive(Debug, Clone, Copy)]
pub struct ManagerClock {
    began_ms: u64,
    began: Instant,
}

impl ManagerClock {
    /// Starts a clock at the present system time.
    pub fn start() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { began_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX), began: Instant::now() }
    }

    /// Returns the present time, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        let elapsed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.began_ms.saturating_add(elapsed)
    }
}

/// A relay that acknowledges the primary's commits.
#[derive(Clone)]
pub struct WatchedRelay {
    /// Name of the relay.
    pub name: String,
    /// Reads the state of the relay's stream.
    pub probe: Arc<dyn RelayProbe>,
    /// Reads which transactions the relay holds.
    pub control: Arc<dyn AckerControl>,
}

/// The state that the tasks of a watch share.
pub(super) struct WatchShared {
    cluster_state: Mutex<ClusterState>,
    guard: Arc<Mutex<FailoverGuard>>,
    clock: ManagerClock,
    pace: ProbeIntervals,
    /// Notified when an event was recorded.
    event_arrived: Notify,
    /// Whether the primary does not answer.
    pub(super) trouble: watch::Sender<bool>,
    findings: watch::Sender<Vec<ClusterFinding>>,
}

impl WatchShared {
    // Poisoning is ignored: no code panics while the lock is held, so a poisoned lock still protects valid
    // data.
    pub(super) fn cluster_state(&self) -> MutexGuard<'_, ClusterState> {
        self.cluster_state.lock()
    }

    pub(super) fn apply(&self, event: ClusterEvent) {
        self.cluster_state().apply(self.clock.now_ms(), event);
        self.event_arrived.notify_one();
    }

    /// Returns the findings at this moment.
    pub(super) fn analyse_now(&self) -> Vec<ClusterFinding> {
        let guard = self.guard.lock();
        let mut cluster_state = self.cluster_state();
        let now_ms = self.clock.now_ms();
        cluster_state.tick(now_ms);
        cluster_state.findings(&guard, now_ms)
    }

    /// Pings the primary. If the answer is overdue, this is recorded as an event before the ping ends.
    async fn ping(&self, pinger: &mut Pinger, primary: &ProbeTarget, kind: PingKind) -> PingResult {
        let asked_ms = self.clock.now_ms();
        let late = Duration::from_millis(LATE_MS.min(self.pace.ping_timeout_ms / 2));
        let mut asked = std::pin::pin!(pinger.ping(kind));
        tokio::select! {
            biased;
            ping = &mut asked => return ping,
            () = tokio::time::sleep(late) => {}
        }
        self.apply(ClusterEvent::PingOverdue(primary.name.clone(), kind, asked_ms));
        self.trouble.send_if_modified(|trouble| !std::mem::replace(trouble, true));
        asked.await
    }
}

/// A watched cluster. When it is dropped, the watch ends.
pub struct ClusterWatch {
    shared: Arc<WatchShared>,
    primary: ProbeTarget,
    _tasks: JoinSet<()>,
}

impl ClusterWatch {
    /// Starts the watch. `manager` names this manager in the rows that it writes on the primary. `guard`
    /// decides whether failovers are held back. `poller` probes the servers, and also serves other parts of
    /// the daemon.
    pub fn start(
        cluster: WatchedCluster,
        (primary, poller): (ProbeTarget, Arc<ServerPoller>),
        relays: Vec<WatchedRelay>,
        (settings, pace): (AnalysisSettings, ProbeIntervals),
        (guard, clock): (Arc<Mutex<FailoverGuard>>, ManagerClock),
        manager: &str,
    ) -> Self {
        let shared = Arc::new(WatchShared {
            cluster_state: Mutex::new(ClusterState::new(cluster, settings)),
            guard,
            clock,
            pace,
            event_arrived: Notify::new(),
            trouble: watch::Sender::new(false),
            findings: watch::Sender::new(Vec::new()),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(analyse_now(Arc::clone(&shared)));
        tasks.spawn(ping(Arc::clone(&shared), primary.clone(), manager.to_owned()));
        tasks.spawn(ping_new_connection(Arc::clone(&shared), primary.clone()));
        if let Some(write_ms) = pace.write_ms {
            tasks.spawn(write(Arc::clone(&shared), primary.clone(), manager.to_owned(), write_ms));
        }
        let started = Instant::now();
        for probes in poller.servers().filter_map(|server| poller.probes(server)) {
            tasks.spawn(record_probes(Arc::clone(&shared), probes, started));
        }
        poller.watch(&primary.name, pace);
        tasks.spawn(report_trouble(Arc::clone(&shared), poller));
        for relay in relays {
            tasks.spawn(poll_relay(Arc::clone(&shared), relay.clone()));
            tasks.spawn(poll_acker(Arc::clone(&shared), relay));
        }
        Self { shared, primary, _tasks: tasks }
    }

    /// Returns a receiver of the findings, which is notified of changes.
    pub fn findings(&self) -> watch::Receiver<Vec<ClusterFinding>> {
        self.shared.findings.subscribe()
    }

    /// Returns a copy of the present state.
    pub fn cluster_state(&self) -> ClusterState {
        self.shared.cluster_state().clone()
    }

    /// Restores a checkpoint; see [`ClusterState::restore_checkpoint`].
    pub fn restore_checkpoint(&self, memory: WatchCheckpoint, ago_ms: u64) {
        self.shared.cluster_state().restore_checkpoint(self.shared.clock.now_ms(), memory, ago_ms);
    }

    /// Returns a checkpoint; see [`ClusterState::checkpoint`].
    pub fn checkpoint(&self) -> Option<(WatchCheckpoint, u64)> {
        self.shared.cluster_state().checkpoint(self.shared.clock.now_ms())
    }

    /// Stops or resumes the recording of ack policies; see [`ClusterState::freeze_ack_policies`].
    pub fn freeze_ack_policies(&self, is_frozen: bool) {
        self.shared.cluster_state().freeze_ack_policies(is_frozen);
    }

    /// Records the result of the failover rehearsal; see [`ClusterState::set_readiness`].
    pub fn set_readiness(&self, readiness: FailoverReadiness) {
        self.shared.cluster_state().set_readiness(self.shared.clock.now_ms(), readiness);
    }

    /// Sets the thresholds of the analysis, and runs it at once.
    pub fn set_settings(&self, settings: AnalysisSettings) {
        self.shared.cluster_state().set_settings(settings);
        self.reanalyse();
    }

    /// Runs the analysis at once, because the guard, which holds back failovers, has changed.
    pub fn reanalyse(&self) {
        self.shared.event_arrived.notify_one();
    }

    pub(super) fn shared(&self) -> Arc<WatchShared> {
        Arc::clone(&self.shared)
    }

    /// Returns the primary's address and account.
    pub fn primary(&self) -> &ProbeTarget {
        &self.primary
    }
}

async fn analyse_now(shared: Arc<WatchShared>) {
    let mut reported: Vec<(
        tailwater_topology::failure_analysis::FailureCode,
        String,
        (String, Option<String>),
    )> = Vec::new();
    loop {
        let findings = shared.analyse_now();
        let now = findings.iter().map(|one| (one.code, one.server.clone(), kind(one))).collect();
        for finding in &findings {
            if !reported.contains(&(finding.code, finding.server.clone(), kind(finding))) {
                let evidence = finding.evidence.join("; ");
                tracing::warn!(code = %finding.code, server = finding.server, action = %finding.action, "{evidence}");
            }
        }
        for (code, server, _) in &reported {
            if !findings.iter().any(|finding| finding.code == *code && finding.server == *server) {
                tracing::info!(%code, server, "the finding {code} of {server} has ended");
            }
        }
        reported = now;
        shared.findings.send_if_modified(|old| {
            let differs = *old != findings;
            *old = findings;
            differs
        });
        let _ =
            tokio::time::timeout(Duration::from_millis(ANALYSE_MS), shared.event_arrived.notified()).await;
    }
}

/// Returns a key for findings: two findings with different keys are logged separately.
fn kind(finding: &ClusterFinding) -> (String, Option<String>) {
    (finding.action.to_string(), finding.rule.clone())
}

async fn ping(shared: Arc<WatchShared>, primary: ProbeTarget, manager: String) {
    let timeout = Duration::from_millis(shared.pace.ping_timeout_ms);
    let mut pinger = Pinger::new(&primary.connect, &manager, timeout);
    loop {
        let ping = shared.ping(&mut pinger, &primary, PingKind::Select).await;
        let failure = ping.outcome.as_ref().err().map(|unreached| unreached.failure);
        let is_silent = failure.is_some_and(|failure| failure.liveness() != Liveness::Alive);
        shared.apply(ClusterEvent::Pinged(primary.name.clone(), ping));
        shared.trouble.send_if_modified(|trouble| std::mem::replace(trouble, is_silent) != is_silent);
        let is_sure = failure.is_none_or(|failure| failure == ProbeFailure::Refused);
        let pause = if is_sure { shared.pace.ping_ms } else { AGAIN_MS.min(shared.pace.ping_ms) };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// Tries new connections while the primary does not answer on the open connection.
async fn ping_new_connection(shared: Arc<WatchShared>, primary: ProbeTarget) {
    let timeout = Duration::from_millis(shared.pace.ping_timeout_ms);
    let mut pinger = Pinger::new(&primary.connect, "", timeout);
    let mut trouble = shared.trouble.subscribe();
    while trouble.wait_for(|trouble| *trouble).await.is_ok() {
        let ping = shared.ping(&mut pinger, &primary, PingKind::Connect).await;
        let is_silent =
            matches!(&ping.outcome, Err(unreached) if unreached.failure.liveness() == Liveness::Unresponsive);
        shared.apply(ClusterEvent::Pinged(primary.name.clone(), ping));
        let pause = if is_silent { AGAIN_MS.min(shared.pace.ping_ms) } else { shared.pace.poll_ms };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

async fn write(shared: Arc<WatchShared>, primary: ProbeTarget, manager: String, write_ms: u64) {
    let timeout = Duration::from_millis(shared.pace.ping_timeout_ms);
    let mut pinger = Pinger::new(&primary.connect, &manager, timeout);
    loop {
        let ping = pinger.ping(PingKind::Insert).await;
        shared.apply(ClusterEvent::Pinged(primary.name.clone(), ping));
        tokio::time::sleep(Duration::from_millis(write_ms)).await;
    }
}

/// Records the results of the probes that started after the start of the watch.
async fn record_probes(
    shared: Arc<WatchShared>,
    mut probes: watch::Receiver<Option<PolledObservation>>,
    started: Instant,
) {
    while probes.changed().await.is_ok() {
        let probe = probes.borrow_and_update().clone();
        if let Some(probe) = probe.filter(|probe| probe.began >= started) {
            let observation = Box::new(Observation::clone(&probe.observation));
            shared.apply(ClusterEvent::ServerProbed(observation));
        }
    }
}

/// Tells the poller to probe the other servers more often while the primary does not answer.
async fn report_trouble(shared: Arc<WatchShared>, poller: Arc<ServerPoller>) {
    let mut trouble = shared.trouble.subscribe();
    while trouble.changed().await.is_ok() {
        let trouble = *trouble.borrow_and_update();
        poller.set_trouble(trouble);
    }
}

async fn poll_acker(shared: Arc<WatchShared>, relay: WatchedRelay) {
    let timeout = Duration::from_millis(shared.pace.poll_timeout_ms);
    let ask = || async {
        let name = relay.name.clone();
        shared.apply(match tokio::time::timeout(timeout, relay.control.read()).await {
            Ok(Ok(report)) => ClusterEvent::AckerReported(name, report),
            Ok(Err(AckerError::Refused(reason) | AckerError::Unknown(reason))) => {
                ClusterEvent::AckerUnreachable(name, reason)
            }
            Err(_) => ClusterEvent::AckerUnreachable(
                name,
                format!("the acker did not answer within {} ms", timeout.as_millis()),
            ),
        });
    };
    poll_loop(&shared, ask).await;
}

/// Calls `ask` at the normal interval, or at the failure interval while the primary does not answer. When the
/// primary stops answering, calls `ask` at once.
async fn poll_loop<F: Future<Output = ()>>(shared: &WatchShared, ask: impl Fn() -> F) {
    let mut trouble = shared.trouble.subscribe();
    loop {
        ask().await;
        let ProbeIntervals { poll_ms, failure_poll_ms, .. } = shared.pace;
        let skips_audit_store = *trouble.borrow_and_update();
        let pause = Duration::from_millis(if skips_audit_store { failure_poll_ms } else { poll_ms });
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(()) = trouble.changed() => {}
        }
    }
}

async fn poll_relay(shared: Arc<WatchShared>, relay: WatchedRelay) {
    let timeout = Duration::from_millis(shared.pace.ping_timeout_ms);
    loop {
        let seen = tokio::time::timeout(timeout, relay.probe.probe()).await;
        shared.apply(ClusterEvent::RelayProbed(
            relay.name.clone(),
            seen.unwrap_or(Err(ProbeFailure::TimedOut)),
        ));
        // A broken stream of a relay confirms the death of the primary. A broken stream is therefore detected
        // as fast as a failed ping.
        let pause = if *shared.trouble.borrow() { AGAIN_MS } else { shared.pace.ping_ms };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}
