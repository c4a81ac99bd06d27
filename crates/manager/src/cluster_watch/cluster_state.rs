//! The state of a watched cluster: takes events, and returns findings. Pure.

use std::collections::{BTreeMap, BTreeSet};

use tailwater_topology::probe_failure::ProbeFailure;
use tailwater_topology::server_state::{Observation, PingKind, PingResult, ProbeError, ServerState};
use tailwater_topology::{Cluster, ClusterPlan, Member, NodeRole, ServerVersion, build_tree};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use super::watch_checkpoint::WatchCheckpoint;
use crate::action_executor::AckerReport;
use crate::candidates::GtidOrigin;
use crate::lossless_rules::{self, AckPolicyHistory, SemiSyncWait};
use crate::model::RelayProbeResult;
use tailwater_topology::failure_analysis::{
    AnalysisSettings, ClusterFinding, ClusterMembers, FailoverGuard, FailoverReadiness, ObservationHistory,
    Observed, Observer, ObserverReport, ServerHealth, analyse,
};

/// A cluster to watch.
#[derive(Debug, Clone, Default)]
pub struct WatchedCluster {
    /// The configuration of the cluster, including the present primary.
    pub plan: ClusterPlan,
    /// Names of all probed servers except the primary, as observations name them.
    pub followers: Vec<String>,
    /// Relays that acknowledge the primary's commits.
    pub ackers: BTreeSet<String>,
    /// The server from which the log was captured, as the log records it. Used if the primary was never seen
    /// alive.
    pub log_origin: Option<(GtidOrigin, ServerVersion)>,
}

/// An event that a task of the watch reports.
#[derive(Debug)]
pub enum ClusterEvent {
    /// A server was pinged.
    Pinged(String, PingResult),
    /// A server has not answered a ping yet; with the time at which the ping was sent.
    PingOverdue(String, PingKind, u64),
    /// A server was probed.
    ServerProbed(Box<Observation>),
    /// A relay was probed.
    RelayProbed(String, Result<RelayProbeResult, ProbeFailure>),
    /// An acker reported which transactions it holds.
    AckerReported(String, AckerReport),
    /// An acker could not report which transactions it holds; with the reason.
    AckerUnreachable(String, String),
}

/// What the manager knows of the primary from the time when the primary was alive.
#[derive(Debug, Clone)]
pub struct KnownPrimary {
    /// Identifies the transactions that the primary wrote itself.
    pub origin: GtidOrigin,
    /// Version of the primary.
    pub version: ServerVersion,
    /// Transactions that the primary had executed at its last observation; empty if it was never observed.
    pub executed: GtidSet,
    /// Time from the last observation of the primary to its last sign of life, in milliseconds.
    pub primary_state_age_ms: u64,
}

/// The state of a cluster. Its size is bounded by the number of servers.
#[derive(Debug, Clone)]
pub struct ClusterState {
    cluster: WatchedCluster,
    history: ObservationHistory,
    /// The last successful observation of each server, and when it was made.
    looks: BTreeMap<String, (u64, Observation)>,
    /// The last observation of each server, successful or not.
    latest: BTreeMap<String, Observation>,
    relays: BTreeMap<String, RelayProbeResult>,
    /// Relays that have been probed at least once, whether they answered or not.
    asked: BTreeSet<String>,
    holds: BTreeMap<String, GtidSet>,
    /// The last report of each acker, or why the acker could not report.
    reports: BTreeMap<String, Result<AckerReport, String>>,
    /// Whether a failover would succeed, and since when this is known.
    readiness: Option<(u64, FailoverReadiness)>,
    /// When each relay last reported that it streams from the primary and sends ACKs.
    acknowledged: BTreeMap<String, u64>,
    ack_policies: Option<AckPolicyHistory>,
    /// Whether the recording of ack policies is stopped.
    is_frozen: bool,
    /// The checkpoint of the previous manager, the time at which it was restored, and its age at that time.
    /// Removed at the first observation of the primary.
    memory: Option<(WatchCheckpoint, u64, u64)>,
    /// When the primary last showed a sign of life.
    alive_ms: Option<u64>,
    /// Servers that read from the primary itself, according to the last topology tree.
    direct: BTreeSet<String>,
    /// When the manager's analysis last ran.
    ticked_ms: Option<u64>,
}

/// If the manager's analysis did not run for this many milliseconds, the manager has stalled. The normal
/// interval is several times shorter.
const STALL_MS_MIN: u64 = 500;

/// How long the primary may still count a relay as connected after the relay last reported that it streams,
/// in milliseconds. A server notices that a client has closed its connection only when the server writes to
/// the connection.
const LINGERS_MS_MAX: u64 = 10_000;

impl ClusterState {
    /// Creates the state of a cluster that has not been observed yet.
    pub fn new(cluster: WatchedCluster, settings: AnalysisSettings) -> Self {
        let members = ClusterMembers {
            primary: cluster.plan.primary.name.clone(),
            replicas: cluster.followers.clone(),
            relays: cluster.ackers.iter().cloned().collect(),
        };
        Self {
            cluster,
            history: ObservationHistory::new(members, settings),
            looks: BTreeMap::new(),
            latest: BTreeMap::new(),
            relays: BTreeMap::new(),
            asked: BTreeSet::new(),
            holds: BTreeMap::new(),
            reports: BTreeMap::new(),
            readiness: None,
            acknowledged: BTreeMap::new(),
            ack_policies: None,
            is_frozen: false,
            memory: None,
            alive_ms: None,
            direct: BTreeSet::new(),
            ticked_ms: None,
        }
    }

    /// Sets the thresholds of the next analysis.
    pub fn set_settings(&mut self, settings: AnalysisSettings) {
        self.history.set_settings(settings);
    }

    /// Returns the watched cluster.
    pub fn cluster(&self) -> &WatchedCluster {
        &self.cluster
    }

    /// Records an event at the time `at_ms` of a monotonic clock.
    pub fn apply(&mut self, at_ms: u64, event: ClusterEvent) {
        self.tick(at_ms);
        match event {
            ClusterEvent::Pinged(server, ping) => {
                let record_alive = match &ping.outcome {
                    Ok(()) => true,
                    Err(unreached) => {
                        unreached.failure.liveness() == tailwater_topology::probe_failure::Liveness::Alive
                    }
                };
                if record_alive && server == self.cluster.plan.primary.name {
                    self.record_alive(at_ms);
                }
                self.record(at_ms, Observer::Manager, &server, Observed::of_ping(&ping));
            }
            ClusterEvent::PingOverdue(server, kind, asked_ms) => {
                self.record(at_ms, Observer::Manager, &server, Observed::Overdue(kind, asked_ms));
            }
            ClusterEvent::ServerProbed(observation) => self.apply_probe(at_ms, *observation),
            ClusterEvent::RelayProbed(relay, Ok(state)) => self.relay(at_ms, relay, state),
            // A relay that does not answer gives no information on the primary's stream.
            ClusterEvent::RelayProbed(relay, Err(failure)) => {
                self.asked.insert(relay.clone());
                self.relays.remove(&relay);
                self.record(at_ms, Observer::Manager, &relay, Observed::Failed(PingKind::Connect, failure));
            }
            ClusterEvent::AckerReported(acker, report) => {
                let holds = report.acker.holds.clone().filter(|_| report.acker.durable);
                match holds {
                    Some(holds) => self.holds.insert(acker.clone(), holds),
                    None => self.holds.remove(&acker),
                };
                self.reports.insert(acker, Ok(report));
            }
            // `holds` is not changed: the acker's last report still proves which transactions the acker
            // holds.
            ClusterEvent::AckerUnreachable(acker, reason) => {
                self.reports.insert(acker, Err(reason));
            }
        }
    }

    /// Records that the manager runs at `now_ms`. If the manager stalled before, answers that it missed
    /// during the stall do not count as silence of the servers.
    pub fn tick(&mut self, now_ms: u64) {
        let last_stall_ms = self.ticked_ms.map_or(0, |ticked_ms| now_ms.saturating_sub(ticked_ms));
        if last_stall_ms >= STALL_MS_MIN {
            self.history.resumed(now_ms);
        }
        self.ticked_ms = Some(self.ticked_ms.map_or(now_ms, |ticked_ms| ticked_ms.max(now_ms)));
    }

    /// Returns the findings at `now_ms`, each with the action to take.
    pub fn findings(&self, guard: &FailoverGuard, now_ms: u64) -> Vec<ClusterFinding> {
        let mut findings = analyse(&self.history, guard, now_ms);
        let lasting = self.readiness.as_ref().filter(|(since_ms, _)| {
            now_ms.saturating_sub(*since_ms) >= self.history.settings().detect_after_ms
        });
        let primary = &self.cluster.plan.primary.name;
        let not_ready = lasting
            .and_then(|(since_ms, readiness)| ClusterFinding::not_ready(primary, readiness, *since_ms));
        findings.extend(not_ready.filter(|_| self.history.settings().semi_sync));
        findings.sort_by_key(|finding| finding.code);
        findings
    }

    /// Records the result of the failover rehearsal at `at_ms`. Consecutive refusals count from the time of
    /// the first refusal, even if different rules refused.
    pub fn set_readiness(&mut self, at_ms: u64, readiness: FailoverReadiness) {
        let before = self.readiness.take();
        let refused = before.filter(|(_, before)| before.rule().is_some() && readiness.rule().is_some());
        self.readiness = Some((refused.map_or(at_ms, |(since_ms, _)| since_ms), readiness));
    }

    /// Returns the last observation of each server.
    pub fn observations(&self) -> Vec<Observation> {
        self.latest.values().cloned().collect()
    }

    /// Returns the state of a server at its last successful observation.
    pub fn last_state(&self, server: &str) -> Option<&ServerState> {
        self.looks.get(server).and_then(|(_, observation)| observation.state())
    }

    /// Returns the last state of each relay.
    pub fn relays(&self) -> &BTreeMap<String, RelayProbeResult> {
        &self.relays
    }

    /// Whether every server and every acker was probed at least once, successfully or not.
    pub fn has_polled_all(&self) -> bool {
        let plan = &self.cluster.plan;
        let mut servers = plan.servers.iter().chain([&plan.primary]);
        servers.all(|server| self.latest.contains_key(&server.name))
            && self
                .cluster
                .ackers
                .iter()
                .all(|acker| self.reports.contains_key(acker) && self.asked.contains(acker))
    }

    /// Returns the last report of each acker, or why the acker could not report.
    pub fn acker_reports(&self) -> &BTreeMap<String, Result<AckerReport, String>> {
        &self.reports
    }

    /// Returns the last observation of a server, or a failed one if it was never observed.
    pub fn last_observation(&self, member: &Member) -> Observation {
        self.latest.get(&member.name).cloned().unwrap_or_else(|| Observation {
            server: member.name.clone(),
            address: member.address.clone(),
            began_ms: 0,
            took_ms: 0,
            outcome: Err(ProbeError {
                failure: ProbeFailure::TimedOut,
                message: "the server has not been probed yet".to_owned(),
            }),
            earlier: None,
        })
    }

    /// Returns the ack policies that were observed while the primary was alive.
    pub fn ack_policies(&self) -> Option<&AckPolicyHistory> {
        self.ack_policies.as_ref().or_else(|| self.memory.as_ref().map(|(memory, ..)| &memory.ack_policies))
    }

    /// Restores the checkpoint of the previous manager. That manager had last probed the primary `ago_ms`
    /// before `now_ms`.
    pub fn restore_checkpoint(&mut self, now_ms: u64, memory: WatchCheckpoint, ago_ms: u64) {
        let is_news = !self.looks.contains_key(&self.cluster.plan.primary.name);
        if is_news && memory.primary == self.cluster.plan.primary.name {
            self.memory = Some((memory, now_ms, ago_ms));
        }
    }

    /// Returns a checkpoint for the manager that acts next, and the age of its observation of the primary in
    /// milliseconds. Returns `None` during a failover or switchover and before the first observation.
    pub fn checkpoint(&self, now_ms: u64) -> Option<(WatchCheckpoint, u64)> {
        let primary = &self.cluster.plan.primary.name;
        let (looked_ms, observation) = self.looks.get(primary).filter(|_| !self.is_frozen)?;
        let memory = WatchCheckpoint {
            primary: primary.clone(),
            executed: observation.state()?.executed.clone(),
            ack_policies: self.ack_policies.clone()?,
        };
        Some((memory, now_ms.saturating_sub(*looked_ms)))
    }

    /// Stops the recording of ack policies before a failover or switchover stops the first acker. With
    /// `false`, resumes the recording after the failover or switchover was undone.
    pub fn freeze_ack_policies(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
    }

    /// Whether the recording of ack policies is stopped; see [`ClusterState::freeze_ack_policies`].
    pub fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Returns what is known of the primary. If it was never observed, returns what the log records.
    pub fn known_primary(&self) -> Option<KnownPrimary> {
        let seen = self.looks.get(&self.cluster.plan.primary.name);
        let Some((looked_ms, state)) = seen.and_then(|(at_ms, seen)| Some((at_ms, seen.state()?))) else {
            let (origin, version) = self.cluster.log_origin?;
            let empty = || GtidSet::empty(origin.flavour());
            let (executed, primary_state_age_ms) = match &self.memory {
                // The primary was alive until its last sign of life. If the last sign of life is unknown, the
                // primary counts as alive until the checkpoint was restored.
                Some((memory, told_ms, ago_ms)) => {
                    let since_ms = self.alive_ms.map_or(0, |alive_ms| alive_ms.saturating_sub(*told_ms));
                    (memory.executed.clone(), ago_ms.saturating_add(since_ms))
                }
                None => (empty(), u64::MAX),
            };
            return Some(KnownPrimary { origin, version, executed, primary_state_age_ms });
        };
        Some(KnownPrimary {
            origin: gtid_origin_of(state)?,
            version: ServerVersion::read(&state.version),
            executed: state.executed.clone(),
            primary_state_age_ms: self.alive_ms.unwrap_or(*looked_ms).saturating_sub(*looked_ms),
        })
    }

    /// Returns the configured servers that read from the primary itself.
    pub fn direct_replicas(&self) -> Vec<String> {
        let named = |name: &&String| self.cluster.plan.servers.iter().any(|member| member.name == **name);
        self.direct.iter().filter(named).cloned().collect()
    }

    fn record(&mut self, at_ms: u64, observer: Observer, about: &str, saw: Observed) {
        self.history.add(ObserverReport { at_ms, observer, about: about.to_owned(), saw });
    }

    fn record_alive(&mut self, at_ms: u64) {
        self.alive_ms = Some(self.alive_ms.map_or(at_ms, |before| before.max(at_ms)));
    }

    fn apply_probe(&mut self, at_ms: u64, observation: Observation) {
        let name = observation.server.clone();
        let is_primary = name == self.cluster.plan.primary.name;
        match &observation.outcome {
            Err(unreached) => {
                let failure = unreached.failure;
                self.record(at_ms, Observer::Manager, &name, Observed::Failed(PingKind::Connect, failure));
            }
            Ok(state) => {
                let fed = self.is_channel_target(&name);
                let vitals = ServerHealth {
                    replicates: fed || !state.channels.is_empty(),
                    ..ServerHealth::from(state)
                };
                self.record(at_ms, Observer::Manager, &name, Observed::Health(Box::new(vitals)));
                if is_primary {
                    self.record_alive(at_ms);
                    self.memory = None;
                    self.record_ack_policy(at_ms, state);
                }
                let before = self.looks.insert(name.clone(), (at_ms, observation.clone()));
                self.update_direct_replicas();
                if self.direct.contains(&name) {
                    let before = before.as_ref().and_then(|(_, before)| before.state());
                    let before = before.and_then(|state| state.channels.first());
                    let observed =
                        state.channels.first().and_then(|now| Observed::of_channel(before, now, at_ms));
                    if let Some(observed) = observed {
                        let primary = self.cluster.plan.primary.name.clone();
                        self.record(at_ms, Observer::Replica(name.clone()), &primary, observed);
                    }
                }
            }
        }
        self.latest.insert(name, observation);
    }

    fn relay(&mut self, at_ms: u64, relay: String, state: RelayProbeResult) {
        self.record(at_ms, Observer::Manager, &relay, Observed::Answered(PingKind::Connect));
        let heard_ms = state.heard_ago_ms.map(|ago| at_ms.saturating_sub(ago));
        let heartbeat_ms = state.heartbeat_ms;
        let primary = self.cluster.plan.primary.name.clone();
        // A relay that missed the last change of primary still reads from the former primary. Such a relay
        // gives no information on the present primary.
        let observed = match (state.assignment.source == primary, state.is_streaming) {
            (false, _) => Observed::FollowsOther,
            (true, true) => Observed::Streaming { heard_ms, heartbeat_ms },
            (true, false) => Observed::StreamLost(ProbeFailure::ConnectionLost),
        };
        if let (Observed::Streaming { .. }, Some(heard_ms)) = (&observed, heard_ms) {
            self.record_alive(heard_ms);
        }
        self.record(at_ms, Observer::Relay(relay.clone()), &primary, observed);
        if state.acknowledges_to(&primary) {
            self.acknowledged.insert(relay.clone(), at_ms);
        }
        self.asked.insert(relay.clone());
        self.relays.insert(relay, state);
    }

    /// Whether the server is the target of a channel.
    fn is_channel_target(&self, name: &str) -> bool {
        let plan = &self.cluster.plan;
        let address = plan.servers.iter().find(|member| member.name == name).map(|member| &member.address);
        plan.targets
            .iter()
            .any(|target| format!("channel {}", target.channel) == name || Some(&target.address) == address)
    }

    fn record_ack_policy(&mut self, at_ms: u64, state: &ServerState) {
        // Until every relay has been probed, the connections of relays without a probe would count as
        // unconfigured replicas.
        if self.is_frozen || !self.cluster.ackers.is_subset(&self.asked) {
            return;
        }
        let waiting = match &state.semi_sync_source {
            Some(seen) => SemiSyncWait::seen(seen, seen.survives_restart),
            None => SemiSyncWait {
                active: false,
                after_sync: false,
                timeout_ms: 0,
                waits_without_ackers: false,
                acks_required: 0,
                unacknowledged: 0,
                survives_restart: false,
            },
        };
        let clients = state.semi_sync_source.as_ref().map_or(0, |seen| seen.clients);
        let unconfigured_replicas = self.unconfigured_replicas(at_ms, state, clients);
        let seen = lossless_rules::PolicyObservation {
            waiting: &waiting,
            ackers: &self.cluster.ackers,
            unconfigured_replicas,
            executed: &state.executed,
            holds: &self.holds,
        };
        match &mut self.ack_policies {
            Some(ack_policies) => ack_policies.observe(&seen),
            None => self.ack_policies = Some(AckPolicyHistory::begin(&seen)),
        }
    }

    /// Returns the number of semi-sync replicas that the primary counts and that are not configured relays.
    ///
    /// The primary may still count a relay that just lost its stream or was just stopped, so only a range for
    /// the number is known. If the previous number is within this range, it is returned again. If the primary
    /// died at this moment, no later observation could correct a wrong number, and that number would prevent
    /// the failover. A replica that was not connected before is always counted.
    fn unconfigured_replicas(&self, at_ms: u64, state: &ServerState, clients: u32) -> u32 {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let primary = &self.cluster.plan.primary.name;
        let is_ours =
            |name: &String| self.relays.get(name).is_some_and(|relay| relay.acknowledges_to(primary));
        let lingers = |(name, last_ms): &(&String, &u64)| {
            !is_ours(name) && at_ms.saturating_sub(**last_ms) <= LINGERS_MS_MAX
        };
        let ours = self.relays.values().filter(|relay| relay.acknowledges_to(primary)).count();
        let most = clients.saturating_sub(count(ours));
        let least = most.saturating_sub(count(self.acknowledged.iter().filter(lingers).count()));
        let before = self.last_state(primary);
        let (Some(before), Some(ack_policies)) = (before, &self.ack_policies) else { return most };
        let was_there = |id: u32| before.replicas.iter().any(|replica| replica.server_id == id);
        if state.replicas.iter().any(|replica| !was_there(replica.server_id)) {
            return most;
        }
        ack_policies.current().unconfigured_replicas.clamp(least, most)
    }

    /// Determines which servers read from the primary, from the last successful observation of each server.
    fn update_direct_replicas(&mut self) {
        let seen: Vec<Observation> =
            self.looks.values().map(|(_, observation)| observation.clone()).collect();
        let tree = build_tree(&self.cluster.plan, &seen);
        self.direct = children_of_primary(&tree);
    }
}

fn children_of_primary(cluster: &Cluster) -> BTreeSet<String> {
    let primary = cluster.nodes.iter().filter(|node| node.role == NodeRole::Primary);
    let children = primary.flat_map(|node| &node.children);
    children.filter(|child| child.role == NodeRole::Replica).map(|child| child.name.clone()).collect()
}

/// Returns the origin that identifies the transactions of a server.
pub fn gtid_origin_of(state: &ServerState) -> Option<GtidOrigin> {
    gtid_origin(state.flavour, state.uuid.as_deref(), state.server_id)
}

/// Returns the origin that identifies the transactions of a server, by its `server_uuid` or `server_id`.
pub fn gtid_origin(flavour: Flavour, uuid: Option<&str>, server_id: u32) -> Option<GtidOrigin> {
    match flavour {
        Flavour::MariaDb => Some(GtidOrigin::MariaDb(server_id)),
        Flavour::MySql => uuid_bytes(uuid?).map(GtidOrigin::MySql),
    }
}

fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let mut bytes = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}
