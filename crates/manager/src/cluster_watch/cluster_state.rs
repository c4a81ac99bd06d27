//! All that was heard of a cluster, and what it amounts to. Pure: moments and what was heard in, findings out.

use std::collections::{BTreeMap, BTreeSet};

use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use super::relay_probe::RelayProbeResult;
use super::watch_checkpoint::WatchCheckpoint;
use crate::action_executor::AckerReport;
use crate::analysis::{
    AnalysisSettings, ClusterFinding, ClusterMembers, FailoverGuard, ObservationHistory, Observed, Observer,
    ObserverReport, ServerHealth, analyse,
};
use crate::candidates::{GtidOrigin, ServerVersion};
use crate::failover_readiness::FailoverReadiness;
use crate::lossless::{self, AckPolicyHistory, SemiSyncWait};
use crate::observation::{Observation, ProbeError, ServerState};
use crate::probe::ping::{Ping, PingKind};
use crate::probe_failure::ProbeFailure;
use crate::topology::{Cluster, ClusterPlan, Member, NodeRole, build_tree};

/// Who is watched.
#[derive(Debug, Clone, Default)]
pub struct WatchedCluster {
    /// What the configuration says, with the primary of now.
    pub plan: ClusterPlan,
    /// All servers but the primary that are looked at, as they are called in observations.
    pub followers: Vec<String>,
    /// The relays that acknowledge the primary's commits.
    pub ackers: BTreeSet<String>,
    /// What the log says of the server that it came from: what is known of a primary that was never seen alive.
    pub log_origin: Option<(GtidOrigin, ServerVersion)>,
}

/// Something that was heard.
#[derive(Debug)]
pub enum ClusterEvent {
    /// A server was pinged.
    Pinged(String, Ping),
    /// A server has not yet answered a ping that was begun at that moment.
    PingOverdue(String, PingKind, u64),
    /// A server was looked at.
    ServerProbed(Box<Observation>),
    /// A relay was asked how it stands.
    RelayProbed(String, Result<RelayProbeResult, ProbeFailure>),
    /// An acker told what it holds.
    AckerReported(String, AckerReport),
    /// An acker did not tell what it holds, and why.
    AckerUnreachable(String, String),
}

/// What was known of the primary while it lived.
#[derive(Debug, Clone)]
pub struct KnownPrimary {
    /// Its mark in GTIDs.
    pub origin: GtidOrigin,
    /// Its version.
    pub version: ServerVersion,
    /// What it was last seen to have executed; nothing if it never was.
    pub executed: GtidSet,
    /// Milliseconds from the last look to its last sign of life.
    pub primary_state_age_ms: u64,
}

/// What is kept of a cluster: bounded by the number of its servers.
#[derive(Debug, Clone)]
pub struct ClusterState {
    cluster: WatchedCluster,
    history: ObservationHistory,
    /// Each server's last look that saw something, and when.
    looks: BTreeMap<String, (u64, Observation)>,
    /// Each server's last look, whatever came of it.
    latest: BTreeMap<String, Observation>,
    relays: BTreeMap<String, RelayProbeResult>,
    /// The relays that were asked, whether they answered or not.
    asked: BTreeSet<String>,
    holds: BTreeMap<String, GtidSet>,
    /// What each acker last answered, or why it did not.
    reports: BTreeMap<String, Result<AckerReport, String>>,
    /// Whether a failover would go through, and since when it is so.
    readiness: Option<(u64, FailoverReadiness)>,
    /// When each relay last said that it reads the primary's stream and acknowledges.
    acknowledged: BTreeMap<String, u64>,
    ack_policies: Option<AckPolicyHistory>,
    /// Nothing is noted in the regimes.
    is_frozen: bool,
    /// What the manager before this one knew, when that was told, and how long before it had looked; until the first look.
    memory: Option<(WatchCheckpoint, u64, u64)>,
    /// The primary's last sign of life.
    alive_ms: Option<u64>,
    /// Those that the last tree showed to read from the primary itself.
    direct: BTreeSet<String>,
    /// When the manager last ran.
    ticked_ms: Option<u64>,
}

/// A manager that did not run for so long stood still, in milliseconds: it thinks several times as often.
const STALL_MS_MIN: u64 = 500;

/// For so long after a relay last read the stream the primary may still count its connection, in milliseconds: a server notices
/// that one is gone only when it writes into it.
const LINGERS_MS_MAX: u64 = 10_000;

impl ClusterState {
    /// The empty one of a cluster.
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

    /// Who is watched.
    pub fn cluster(&self) -> &WatchedCluster {
        &self.cluster
    }

    /// Keeps what was heard at `at_ms`, a moment of a clock that does not go back.
    pub fn apply(&mut self, at_ms: u64, event: ClusterEvent) {
        self.tick(at_ms);
        match event {
            ClusterEvent::Pinged(server, ping) => {
                let record_alive = match &ping.outcome {
                    Ok(()) => true,
                    Err(unreached) => unreached.failure.liveness() == crate::probe_failure::Liveness::Alive,
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
            ClusterEvent::RelayProbed(relay, Ok(apply_probe)) => self.relay(at_ms, relay, apply_probe),
            // It cannot say what became of its stream; that it does not answer is of the relay, not of the primary.
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
            // What it held when it last answered it still holds.
            ClusterEvent::AckerUnreachable(acker, reason) => {
                self.reports.insert(acker, Err(reason));
            }
        }
    }

    /// The manager runs at `now_ms`. If it did not for long, what it has not heard meanwhile is nobody's silence.
    pub fn tick(&mut self, now_ms: u64) {
        let last_stall_ms = self.ticked_ms.map_or(0, |ticked_ms| now_ms.saturating_sub(ticked_ms));
        if last_stall_ms >= STALL_MS_MIN {
            self.history.resumed(now_ms);
        }
        self.ticked_ms = Some(self.ticked_ms.map_or(now_ms, |ticked_ms| ticked_ms.max(now_ms)));
    }

    /// What is wrong at `now_ms`, and what is to be done about it.
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

    /// Keeps whether a failover would go through, as rehearsed at `at_ms`. It counts since when rules refuse, whichever they are.
    pub fn set_readiness(&mut self, at_ms: u64, readiness: FailoverReadiness) {
        let before = self.readiness.take();
        let refused = before.filter(|(_, before)| before.rule().is_some() && readiness.rule().is_some());
        self.readiness = Some((refused.map_or(at_ms, |(since_ms, _)| since_ms), readiness));
    }

    /// The last thing that was seen of each server.
    pub fn observations(&self) -> Vec<Observation> {
        self.latest.values().cloned().collect()
    }

    /// A server's last look that saw something.
    pub fn last_state(&self, server: &str) -> Option<&ServerState> {
        self.looks.get(server).and_then(|(_, observation)| observation.state())
    }

    /// How the relays were when they were last asked.
    pub fn relays(&self) -> &BTreeMap<String, RelayProbeResult> {
        &self.relays
    }

    /// Whether every server was looked at, and every acker asked, whatever came of it.
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

    /// What each acker last answered, or why it did not.
    pub fn acker_reports(&self) -> &BTreeMap<String, Result<AckerReport, String>> {
        &self.reports
    }

    /// The last thing that was seen of a server; what speaks for its being unknown if it was not looked at yet.
    pub fn last_observation(&self, member: &Member) -> Observation {
        self.latest.get(&member.name).cloned().unwrap_or_else(|| Observation {
            server: member.name.clone(),
            address: member.address.clone(),
            began_ms: 0,
            took_ms: 0,
            outcome: Err(ProbeError {
                failure: ProbeFailure::TimedOut,
                message: "it was not looked at yet".to_owned(),
            }),
        })
    }

    /// Who could acknowledge, while the primary lived.
    pub fn ack_policies(&self) -> Option<&AckPolicyHistory> {
        self.ack_policies.as_ref().or_else(|| self.memory.as_ref().map(|(memory, ..)| &memory.ack_policies))
    }

    /// Takes what the manager before this one knew of the primary, which it had looked at `ago_ms` before `now_ms`.
    pub fn restore_checkpoint(&mut self, now_ms: u64, memory: WatchCheckpoint, ago_ms: u64) {
        let is_news = !self.looks.contains_key(&self.cluster.plan.primary.name);
        if is_news && memory.primary == self.cluster.plan.primary.name {
            self.memory = Some((memory, now_ms, ago_ms));
        }
    }

    /// What the manager that comes behind this one may have to know, and how long ago the primary was looked at; nothing while a
    /// run is under way, and before there is anything.
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

    /// Nothing more is noted of who can acknowledge, from before the first acker is told to stop; or again, after that was
    /// undone.
    pub fn freeze_ack_policies(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
    }

    /// Whether nothing is noted of who can acknowledge: see [`ClusterState::freeze_ack_policies`].
    pub fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// What was known of the primary; if it was never seen, what the log says of it.
    pub fn known_primary(&self) -> Option<KnownPrimary> {
        let seen = self.looks.get(&self.cluster.plan.primary.name);
        let Some((looked_ms, apply_probe)) = seen.and_then(|(at_ms, seen)| Some((at_ms, seen.state()?)))
        else {
            let (origin, version) = self.cluster.log_origin?;
            let empty = || GtidSet::empty(origin.flavour());
            let (executed, primary_state_age_ms) = match &self.memory {
                // It may have lived until it was told, or until it was last heard.
                Some((memory, told_ms, ago_ms)) => {
                    let since_ms = self.alive_ms.map_or(0, |alive_ms| alive_ms.saturating_sub(*told_ms));
                    (memory.executed.clone(), ago_ms.saturating_add(since_ms))
                }
                None => (empty(), u64::MAX),
            };
            return Some(KnownPrimary { origin, version, executed, primary_state_age_ms });
        };
        Some(KnownPrimary {
            origin: gtid_origin_of(apply_probe)?,
            version: ServerVersion::read(&apply_probe.version),
            executed: apply_probe.executed.clone(),
            primary_state_age_ms: self.alive_ms.unwrap_or(*looked_ms).saturating_sub(*looked_ms),
        })
    }

    /// Configured servers that read from the primary itself.
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
            Ok(apply_probe) => {
                let fed = self.is_channel_target(&name);
                let vitals = ServerHealth {
                    replicates: fed || !apply_probe.channels.is_empty(),
                    ..ServerHealth::from(apply_probe)
                };
                self.record(at_ms, Observer::Manager, &name, Observed::Health(Box::new(vitals)));
                if is_primary {
                    self.record_alive(at_ms);
                    self.memory = None;
                    self.record_ack_policy(at_ms, apply_probe);
                }
                let before = self.looks.insert(name.clone(), (at_ms, observation.clone()));
                self.update_direct_replicas();
                if self.direct.contains(&name) {
                    let before = before.as_ref().and_then(|(_, before)| before.state());
                    let before = before.and_then(|apply_probe| apply_probe.channels.first());
                    let said =
                        apply_probe.channels.first().and_then(|now| Observed::of_channel(before, now, at_ms));
                    if let Some(saw) = said {
                        let primary = self.cluster.plan.primary.name.clone();
                        self.record(at_ms, Observer::Replica(name.clone()), &primary, saw);
                    }
                }
            }
        }
        self.latest.insert(name, observation);
    }

    fn relay(&mut self, at_ms: u64, relay: String, apply_probe: RelayProbeResult) {
        self.record(at_ms, Observer::Manager, &relay, Observed::Answered(PingKind::Connect));
        let heard_ms = apply_probe.heard_ago_ms.map(|ago| at_ms.saturating_sub(ago));
        let heartbeat_ms = apply_probe.heartbeat_ms;
        let primary = self.cluster.plan.primary.name.clone();
        // One that was away when another became primary hears the former one, and knows nothing of this.
        let saw = match (apply_probe.assignment.source == primary, apply_probe.is_streaming) {
            (false, _) => Observed::FollowsOther,
            (true, true) => Observed::Streaming { heard_ms, heartbeat_ms },
            (true, false) => Observed::StreamLost(ProbeFailure::ConnectionLost),
        };
        if let (Observed::Streaming { .. }, Some(heard_ms)) = (&saw, heard_ms) {
            self.record_alive(heard_ms);
        }
        self.record(at_ms, Observer::Relay(relay.clone()), &primary, saw);
        if apply_probe.acknowledges_to(&primary) {
            self.acknowledged.insert(relay.clone(), at_ms);
        }
        self.asked.insert(relay.clone());
        self.relays.insert(relay, apply_probe);
    }

    /// Whether a channel of ours brings it its transactions.
    fn is_channel_target(&self, name: &str) -> bool {
        let plan = &self.cluster.plan;
        let address = plan.servers.iter().find(|member| member.name == name).map(|member| &member.address);
        plan.targets
            .iter()
            .any(|target| format!("channel {}", target.channel) == name || Some(&target.address) == address)
    }

    fn record_ack_policy(&mut self, at_ms: u64, apply_probe: &ServerState) {
        // Before all relays were asked, their connections would count as those of strangers.
        if self.is_frozen || !self.cluster.ackers.is_subset(&self.asked) {
            return;
        }
        let waiting = match &apply_probe.semi_sync_source {
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
        let clients = apply_probe.semi_sync_source.as_ref().map_or(0, |seen| seen.clients);
        let unconfigured_replicas = self.unconfigured_replicas(at_ms, apply_probe, clients);
        let seen = lossless::PolicyObservation {
            waiting: &waiting,
            ackers: &self.cluster.ackers,
            unconfigured_replicas,
            executed: &apply_probe.executed,
            holds: &self.holds,
        };
        match &mut self.ack_policies {
            Some(ack_policies) => ack_policies.observe(&seen),
            None => self.ack_policies = Some(AckPolicyHistory::begin(&seen)),
        }
    }

    /// How many of the semi-sync replicas that the primary counts are none of the relays. A relay that has just lost its stream,
    /// or was just told to stop, may still be among them: which of the possible numbers is right nobody can tell then, and
    /// what was known before holds as long as it is one of them. Else a primary that dies at that moment could not be
    /// replaced: no later look would put it right. Not so if a replica has come that was not there before.
    fn unconfigured_replicas(&self, at_ms: u64, apply_probe: &ServerState, clients: u32) -> u32 {
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
        if apply_probe.replicas.iter().any(|replica| !was_there(replica.server_id)) {
            return most;
        }
        ack_policies.current().unconfigured_replicas.clamp(least, most)
    }

    /// Whom the tree shows to read from the primary. Of those that do not answer now, what they were seen to do last.
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

/// By what a server's own transactions are known.
pub fn gtid_origin_of(apply_probe: &ServerState) -> Option<GtidOrigin> {
    gtid_origin(apply_probe.flavour, apply_probe.uuid.as_deref(), apply_probe.server_id)
}

/// By what a server's own transactions are known, of its `server_uuid` and `server_id`.
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
