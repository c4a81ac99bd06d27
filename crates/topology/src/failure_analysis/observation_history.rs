//! A bounded history of observer reports. For each server it keeps the latest report of each kind, and since
//! when the reported state exists.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::probe_failure::{Liveness, ProbeFailure};
use crate::server_state::PingKind;
use tailwater_wire::gtid::GtidSet;

use super::AnalysisSettings;
use super::observer_report::{Observed, Observer, ObserverReport, ServerHealth};

/// Members of a cluster. Reports by or about any other server are dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterMembers {
    /// Name of the primary.
    pub primary: String,
    /// Servers that replicate from the primary, directly or through other servers.
    pub replicas: Vec<String>,
    /// Relays that read the primary's stream.
    pub relays: Vec<String>,
}

impl ClusterMembers {
    fn contains(&self, name: &str) -> bool {
        self.primary == name || self.replicas.iter().any(|known| known == name) || self.is_relay(name)
    }

    pub(super) fn is_relay(&self, name: &str) -> bool {
        self.relays.iter().any(|known| known == name)
    }

    /// Returns all observers of the primary except the manager.
    pub(super) fn observers(&self) -> impl Iterator<Item = Observer> {
        let relays = self.relays.iter().cloned().map(Observer::Relay);
        relays.chain(self.replicas.iter().cloned().map(Observer::Replica))
    }
}

/// The history of the reports about a cluster.
#[derive(Debug, Clone, Default)]
pub struct ObservationHistory {
    pub(super) members: ClusterMembers,
    pub(super) settings: AnalysisSettings,
    pub(super) servers: BTreeMap<String, ServerHistory>,
    /// When the manager last resumed after a stall. Answers that the manager missed during the stall do not
    /// count as silence of a server.
    pub(super) running_since_ms: u64,
}

/// The history of the reports about one server.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerHistory {
    /// When the server last answered the manager, even if the answer was an error.
    pub answered_ms: Option<u64>,
    /// Failures since the last answer of the server.
    pub streak: Option<FailureStreak>,
    /// The longest recent silence that ended with an answer: when it ended, and how long it lasted in
    /// milliseconds.
    pub last_stall: Option<(u64, u64)>,
    pub write: Option<WriteProbes>,
    /// The last health report, and its time.
    pub vitals: Option<(u64, ServerHealth)>,
    /// Since when commits wait while no ACK arrives.
    pub waiting_since_ms: Option<u64>,
    /// Since when the lag of the server is too large.
    pub lagging_since_ms: Option<u64>,
    /// Since when the server, as a replica, does not receive or does not apply transactions.
    pub stopped_since_ms: Option<u64>,
    /// Since when all connections are in use.
    pub connections_full_since_ms: Option<u64>,
    /// Since when too few ackers are connected.
    pub too_few_since_ms: Option<u64>,
    /// Number of unacknowledged commits when the server was first observed. Findings report only
    /// unacknowledged commits that were added later.
    pub unacknowledged_first: Option<u64>,
    /// The loss of transactions that was detected, if any.
    pub rewound: Option<HistoryRewind>,
    /// The state of the primary's stream, as each observer reports it.
    pub streams: BTreeMap<Observer, (u64, ReportedStream)>,
}

/// The detected loss of transactions that a server had before.
#[derive(Debug, Clone)]
pub(super) struct HistoryRewind {
    pub at_ms: u64,
    /// A description that names the lost transactions.
    pub what: String,
    /// The transactions that the server had before. `None` if a relay reported the loss. Such an entry is
    /// dropped when that relay streams again.
    pub had: Option<GtidSet>,
}

/// Consecutive failures since the last answer of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FailureStreak {
    pub since_ms: u64,
    pub last_ms: u64,
    pub last: ProbeFailure,
    /// When the host first refused the connection.
    pub refused_since_ms: Option<u64>,
    /// Since when attempts to open a new connection fail.
    pub reconnect_failing_since_ms: Option<u64>,
    /// Whether a request has failed. As long as this is false, an answer is only overdue.
    pub has_failed: bool,
}

impl FailureStreak {
    /// Whether the only sign of failure is an answer that is a little overdue.
    pub(super) fn is_only_overdue(&self, settings: &AnalysisSettings, now_ms: u64) -> bool {
        !self.has_failed && now_ms.saturating_sub(self.since_ms) < settings.unanimous_detect_after_ms
    }
}

/// How long the end of a silence counts as recent, in milliseconds.
const STALL_MEMORY_MS_MAX: u64 = 600_000;

/// Results of the manager's own writes to the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WriteProbes {
    pub last_ms: u64,
    /// Since when the writes fail, and why.
    pub failing: Option<(u64, ProbeFailure)>,
}

/// The state of a stream, as an observer reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReportedStream {
    Streaming {
        heard_ms: Option<u64>,
        heartbeat_ms: Option<u64>,
    },
    Lost {
        failure: ProbeFailure,
        /// When this state was first reported.
        since_ms: u64,
    },
    /// The observer reads the stream of another server.
    FollowsOther {
        /// When this state was first reported.
        since_ms: u64,
    },
}

impl ReportedStream {
    /// Returns this report as the successor of the report `before`. If the state is unchanged, the result
    /// keeps the time of the first report of this state.
    fn after(self, before: Self) -> Self {
        match (self, before) {
            (Self::Lost { failure, .. }, Self::Lost { since_ms, .. }) => Self::Lost { failure, since_ms },
            (Self::FollowsOther { .. }, Self::FollowsOther { since_ms }) => Self::FollowsOther { since_ms },
            _ => self,
        }
    }
}

impl ObservationHistory {
    /// Creates an empty history.
    pub fn new(members: ClusterMembers, settings: AnalysisSettings) -> Self {
        Self { members, settings, servers: BTreeMap::new(), running_since_ms: 0 }
    }

    /// Returns the members of the cluster.
    pub fn members(&self) -> &ClusterMembers {
        &self.members
    }

    /// Records that the manager itself stalled until now. Answers that the manager missed during the stall do
    /// not count as silence of a server.
    pub fn resumed(&mut self, at_ms: u64) {
        self.running_since_ms = self.running_since_ms.max(at_ms);
    }

    /// Adds a report. The reports of one observer about one server arrive in order of time; a late report is
    /// dropped.
    pub fn add(&mut self, report: ObserverReport) {
        let is_known_observer = match &report.observer {
            Observer::Manager => true,
            Observer::Relay(name) => self.members.is_relay(name),
            Observer::Replica(name) => self.members.replicas.contains(name),
        };
        if !is_known_observer || !self.members.contains(&report.about) {
            return;
        }
        let is_primary = report.about == self.members.primary;
        let server = self.servers.entry(report.about).or_default();
        let (at_ms, running_since_ms) = (report.at_ms, self.running_since_ms);
        match report.saw {
            Observed::Answered(kind) => server.record_answer(at_ms, kind),
            Observed::Failed(kind, failure) => server.record_failure(at_ms, kind, failure),
            Observed::Overdue(kind, asked_ms) => {
                server.record_overdue(at_ms, kind, asked_ms.max(running_since_ms))
            }
            Observed::Health(vitals) => {
                server.record_health(at_ms, *vitals, is_primary, self.settings.lag_seconds_max)
            }
            Observed::Streaming { heard_ms, heartbeat_ms } => {
                let reported = ReportedStream::Streaming { heard_ms, heartbeat_ms };
                server.record_stream(at_ms, report.observer, reported);
            }
            Observed::StreamLost(failure) => {
                server.record_stream(
                    at_ms,
                    report.observer,
                    ReportedStream::Lost { failure, since_ms: at_ms },
                );
            }
            Observed::FollowsOther => {
                let reported = ReportedStream::FollowsOther { since_ms: at_ms };
                server.record_stream(at_ms, report.observer, reported);
            }
            Observed::HistoryRewound(what) => {
                let what = format!("{}: {}", report.observer, one_line(&what));
                server.rewound = Some(HistoryRewind { at_ms, what, had: None });
            }
        }
    }

    /// Returns the thresholds of the analysis.
    pub fn settings(&self) -> &AnalysisSettings {
        &self.settings
    }

    /// Sets the thresholds of the next analysis.
    pub fn set_settings(&mut self, settings: AnalysisSettings) {
        self.settings = settings;
    }

    pub(super) fn server(&self, name: &str) -> Option<&ServerHistory> {
        self.servers.get(name)
    }
}

impl ServerHistory {
    fn record_answer(&mut self, at_ms: u64, kind: PingKind) {
        self.record_alive(at_ms);
        // An administrator may use one connection more than all others, so a login shows little.
        let counts = self.vitals.as_ref().is_some_and(|(_, vitals)| vitals.connections.connections_max > 0);
        if kind == PingKind::Connect && !counts {
            self.connections_full_since_ms = None;
        }
        if kind == PingKind::Insert && self.write.is_none_or(|write| write.last_ms <= at_ms) {
            self.write = Some(WriteProbes { last_ms: at_ms, failing: None });
        }
    }

    fn record_alive(&mut self, at_ms: u64) {
        self.answered_ms = Some(self.answered_ms.map_or(at_ms, |before| before.max(at_ms)));
        if let Some(streak) = self.streak.filter(|streak| streak.last_ms <= at_ms) {
            self.streak = None;
            if streak.refused_since_ms.is_none() {
                self.record_stall(at_ms, at_ms.saturating_sub(streak.since_ms));
            }
        }
    }

    /// Whether the server answers the manager. A short delay is allowed.
    pub(super) fn is_answering(&self, settings: &AnalysisSettings, now_ms: u64) -> bool {
        self.answered_ms.is_some()
            && self.streak.is_none_or(|streak| streak.is_only_overdue(settings, now_ms))
    }

    /// Records that a silence of `lasted_ms` ended with an answer.
    fn record_stall(&mut self, at_ms: u64, lasted_ms: u64) {
        if self.last_stall_ms(at_ms).is_none_or(|before_ms| before_ms <= lasted_ms) {
            self.last_stall = Some((at_ms, lasted_ms));
        }
    }

    /// Returns the length of the longest recent silence that ended with an answer, in milliseconds.
    pub(super) fn last_stall_ms(&self, now_ms: u64) -> Option<u64> {
        let of_late = |(at_ms, _): &(u64, u64)| now_ms.saturating_sub(*at_ms) <= STALL_MEMORY_MS_MAX;
        self.last_stall.filter(of_late).map(|(_, lasted_ms)| lasted_ms)
    }

    /// Records that a request which was sent at `asked_ms` is unanswered. The server then counts as silent
    /// since `asked_ms`. If it has answered any request since then, this function changes nothing.
    fn record_overdue(&mut self, at_ms: u64, kind: PingKind, asked_ms: u64) {
        let has_spoken = self.answered_ms.is_some_and(|record_answer| record_answer >= asked_ms);
        // An overdue write is ignored, because a write may hang on a healthy server.
        if kind == PingKind::Insert || has_spoken {
            return;
        }
        let new_streak = FailureStreak {
            since_ms: asked_ms,
            last_ms: at_ms,
            last: ProbeFailure::TimedOut,
            refused_since_ms: None,
            reconnect_failing_since_ms: None,
            has_failed: false,
        };
        let streak = self.streak.get_or_insert(new_streak);
        streak.last_ms = streak.last_ms.max(at_ms);
        if kind == PingKind::Connect {
            streak.reconnect_failing_since_ms.get_or_insert(asked_ms);
        }
    }

    fn record_failure(&mut self, at_ms: u64, kind: PingKind, failure: ProbeFailure) {
        if failure == ProbeFailure::TooManyConnections {
            self.connections_full_since_ms.get_or_insert(at_ms);
        }
        if kind == PingKind::Insert {
            // A failed write shows nothing about the process, because a write may hang on a healthy server. A
            // failed ping of another kind shows that the process may have failed.
            let since = self.write.and_then(|write| write.failing).map_or(at_ms, |(since, _)| since);
            self.write = Some(WriteProbes { last_ms: at_ms, failing: Some((since, failure)) });
            if failure.liveness() == Liveness::Alive {
                self.record_alive(at_ms);
            }
            return;
        }
        if failure.liveness() == Liveness::Alive {
            self.record_alive(at_ms);
            return;
        }
        if self.answered_ms.is_some_and(|record_answer| record_answer > at_ms) {
            return;
        }
        let refused_since_ms = (failure.liveness() == Liveness::Down).then_some(at_ms);
        let reconnect_failing_since_ms = (kind == PingKind::Connect).then_some(at_ms);
        self.streak = Some(match self.streak {
            None => FailureStreak {
                since_ms: at_ms,
                last_ms: at_ms,
                last: failure,
                refused_since_ms,
                reconnect_failing_since_ms,
                has_failed: true,
            },
            Some(streak) => FailureStreak {
                last_ms: at_ms,
                last: failure,
                // If the host refused a connection and is silent afterwards, keep the time of the refusal.
                refused_since_ms: streak.refused_since_ms.or(refused_since_ms),
                reconnect_failing_since_ms: streak.reconnect_failing_since_ms.or(reconnect_failing_since_ms),
                has_failed: true,
                ..streak
            },
        });
    }

    fn record_health(&mut self, at_ms: u64, vitals: ServerHealth, is_primary: bool, lag_seconds_max: u64) {
        self.record_alive(at_ms);
        let before = self.vitals.take().map(|(_, vitals)| vitals);
        let same = before.filter(|before| before.identity == vitals.identity);
        if let Some(before) = same.as_ref().filter(|_| is_primary) {
            self.compare_history(at_ms, before, &vitals);
        }
        let waits = |vitals: &ServerHealth| {
            vitals
                .semi_sync
                .filter(|semi_sync| semi_sync.waiting_sessions > 0)
                .map(|semi_sync| semi_sync.acknowledged)
        };
        self.waiting_since_ms = match (same.as_ref().and_then(waits), waits(&vitals)) {
            (_, None) => None,
            // No commit was acknowledged since the previous report.
            (Some(before), Some(now)) if before == now => self.waiting_since_ms.or(Some(at_ms)),
            _ => Some(at_ms),
        };
        let lags = vitals.lag_seconds.is_some_and(|lag| lag > lag_seconds_max);
        self.lagging_since_ms = lags.then(|| self.lagging_since_ms.unwrap_or(at_ms));
        let is_stopped = vitals.io_stopped.is_some() || vitals.sql_stopped.is_some();
        self.stopped_since_ms = is_stopped.then(|| self.stopped_since_ms.unwrap_or(at_ms));
        let usage = &vitals.connections;
        match usage.connected.cmp(&usage.connections_max) {
            Ordering::Less => self.connections_full_since_ms = None,
            // The probe itself may use the last connection, which is free again after it.
            Ordering::Equal => {}
            // The probe uses the connection that the server reserves for administrators.
            Ordering::Greater if usage.connections_max > 0 => {
                self.connections_full_since_ms.get_or_insert(at_ms);
            }
            Ordering::Greater => {}
        }
        let is_short = vitals.semi_sync.is_some_and(|semi_sync| semi_sync.clients < semi_sync.acks_needed);
        self.too_few_since_ms = is_short.then(|| self.too_few_since_ms.unwrap_or(at_ms));
        let unacknowledged = vitals.semi_sync.map(|semi_sync| semi_sync.unacknowledged);
        self.unacknowledged_first = match (self.unacknowledged_first, unacknowledged) {
            // The server's counter restarts at 0 when the server restarts.
            (Some(first), Some(now)) if same.is_some() && first <= now => Some(first),
            (_, now) => now,
        };
        self.vitals = Some((at_ms, vitals));
    }

    fn compare_history(&mut self, at_ms: u64, before: &ServerHealth, now: &ServerHealth) {
        let is_back = |had: &GtidSet| had.is_subset_of(&now.executed);
        if self.rewound.as_ref().is_some_and(|rewound| rewound.had.as_ref().is_some_and(is_back)) {
            self.rewound = None;
        }
        if self.rewound.is_none()
            && !is_back(&before.executed)
            && let Ok(lost) = before.executed.subtract(&now.executed)
        {
            let what = format!("the server had {}, which it no longer has", one_line(&lost.to_string()));
            self.rewound = Some(HistoryRewind { at_ms, what, had: Some(before.executed.clone()) });
        }
    }

    fn record_stream(&mut self, at_ms: u64, observer: Observer, saw: ReportedStream) {
        let is_relay = matches!(observer, Observer::Relay(_));
        let streams = matches!(saw, ReportedStream::Streaming { .. });
        if is_relay && streams && self.rewound.as_ref().is_some_and(|rewound| rewound.had.is_none()) {
            self.rewound = None;
        }
        let entry = self.streams.entry(observer).or_insert((at_ms, saw));
        if entry.0 <= at_ms {
            *entry = (at_ms, saw.after(entry.1));
        }
    }
}

pub(super) fn one_line(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    text.replace('\n', "").chars().take(CHARACTERS_MAX).collect()
}
