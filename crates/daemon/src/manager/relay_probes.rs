//! Probes of relays: the captures of this process, and the captures of other daemons.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tailwater_capture::{CaptureState, CaptureStatus};
use tailwater_manager::cluster_watch::{RelayProbe, RelayProbeFuture};
use tailwater_manager::model::{LeaseToken, RelayAssignment, RelayProbeResult};
use tokio::sync::watch;

use super::remote_relay_acker::RemoteRelay;
use crate::api::capture_orders::RelayStatus;
use crate::control_api::ChangeCounter;
use crate::options_from_config::ClusterWiring;

/// Probes a capture of this process.
#[derive(Debug, Clone)]
pub struct LocalRelayProbe {
    /// The capture's status.
    pub status: Arc<CaptureStatus>,
    /// Whether the capture acknowledges commits.
    pub acknowledges: bool,
    /// The name of the source's own server.
    pub own: String,
}

impl RelayProbe for LocalRelayProbe {
    fn probe(&self) -> RelayProbeFuture<'_> {
        let orders = self.status.orders();
        let result = RelayProbeResult {
            is_streaming: self.status.snapshot().state == CaptureState::Streaming,
            acknowledges: self.acknowledges,
            heard_ago_ms: self.status.received_ago_ms(),
            heartbeat_ms: Some(self.status.heartbeat_ms()),
            assignment: RelayAssignment {
                term: LeaseToken(orders.token),
                source: orders.follows.unwrap_or_else(|| self.own.clone()),
                assigned_term: LeaseToken(orders.followed_in),
                is_stopped: orders.stopped.is_some(),
            },
        };
        Box::pin(async move { Ok(result) })
    }
}

/// An answer of a relay on another machine.
#[derive(Debug, Clone)]
pub struct RelayAnswer {
    /// When the relay was queried.
    pub asked: Instant,
    /// The relay's status, or why it is not known.
    pub answer: Result<RelayStatus, String>,
}

/// Probes a capture of another daemon, and keeps the last answer for other readers.
#[derive(Debug)]
pub struct RemoteRelayProbe {
    relay: RemoteRelay,
    /// The names that the servers have in this configuration.
    names: ServerNames,
    last: watch::Sender<Option<RelayAnswer>>,
    changes: ChangeCounter,
}

impl RemoteRelayProbe {
    /// Creates the probe of a relay. Each answer of the relay is counted in `changes`.
    pub fn new(relay: RemoteRelay, names: ServerNames, changes: ChangeCounter) -> Self {
        Self { relay, names, last: watch::Sender::new(None), changes }
    }

    /// Returns the relay.
    pub fn relay(&self) -> &RemoteRelay {
        &self.relay
    }

    /// Returns the relay's last answer.
    pub fn last(&self) -> Option<RelayAnswer> {
        self.last.borrow().clone()
    }
}

/// A probe in progress. It is dropped unfinished if the caller's time-out is shorter than the time-out of the
/// relay.
struct PendingProbe<'a> {
    probe: &'a RemoteRelayProbe,
    asked: Instant,
    is_answered: bool,
}

impl PendingProbe<'_> {
    fn record(&mut self, answer: Result<RelayStatus, String>) {
        self.is_answered = true;
        self.probe.last.send_replace(Some(RelayAnswer { asked: self.asked, answer }));
        self.probe.changes.count();
    }
}

impl Drop for PendingProbe<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.record(Err(format!("no answer within {} ms", self.asked.elapsed().as_millis())));
        }
    }
}

impl RelayProbe for RemoteRelayProbe {
    fn probe(&self) -> RelayProbeFuture<'_> {
        Box::pin(async move {
            let mut pending = PendingProbe { probe: self, asked: Instant::now(), is_answered: false };
            let answer = self.relay.status().await;
            pending.record(answer.clone().map_err(|unreached| unreached.message));
            let status = answer.map_err(|unreached| unreached.failure)?;
            Ok(RelayProbeResult {
                is_streaming: status.is_streaming,
                acknowledges: status.acknowledges,
                heard_ago_ms: status.heard_ago_ms,
                heartbeat_ms: status.heartbeat_ms,
                assignment: self.names.assignment(&status),
            })
        })
    }
}

/// The names that the servers of a cluster have in this configuration.
#[derive(Debug, Clone)]
pub struct ServerNames {
    own: String,
    all: BTreeSet<String>,
}

impl ServerNames {
    /// Returns the names of a cluster's servers, whichever of them is the primary.
    pub fn of(wiring: &ClusterWiring) -> Self {
        let plan = &wiring.plan;
        let all = plan.servers.iter().chain([&plan.primary]).map(|member| member.name.clone());
        Self { own: wiring.own.clone(), all: all.collect() }
    }

    /// Returns the server that a relay follows, under its name in this configuration. The relay's
    /// configuration may have another name for the source's own server. If the relay was set up after a
    /// failover, it may even have another server as the source's own.
    pub fn follows(&self, status: &RelayStatus) -> String {
        let own_there = || status.own.clone().filter(|own| self.all.contains(own));
        status.acker.follows.clone().or_else(own_there).unwrap_or_else(|| self.own.clone())
    }

    fn assignment(&self, status: &RelayStatus) -> RelayAssignment {
        RelayAssignment {
            term: LeaseToken(status.acker.token),
            source: self.follows(status),
            assigned_term: LeaseToken(status.acker.followed_in),
            is_stopped: status.acker.stopped_since_ms.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tailwater_topology::{ClusterPlan, Member};

    use super::*;

    /// Checks the answers of daemons of this version and of earlier versions.
    #[test]
    fn the_followed_server_has_its_name_in_this_configuration() {
        let member = |name: &str| Member { name: name.to_owned(), ..Member::default() };
        let plan =
            ClusterPlan { primary: member("db1"), servers: vec![member("db2")], ..ClusterPlan::default() };
        let names = ServerNames {
            own: "db1".to_owned(),
            all: plan.servers.iter().chain([&plan.primary]).map(|member| member.name.clone()).collect(),
        };
        for (own, follows, expected) in [
            ("null", "null", "db1"),
            ("\"db2\"", "null", "db2"),
            ("\"orders\"", "null", "db1"),
            ("\"db2\"", "\"db1\"", "db1"),
            ("null", "\"db2\"", "db2"),
        ] {
            let text = format!(
                r#"{{"server_id":7,"is_streaming":true,"acknowledges":true,"heard_ago_ms":1,"own":{own},"acker":{{"token":3,
                "stopped_since_ms":null,"follows":{follows},"durable":true,"is_mariadb":null,"holds":null,"before":null}}}}"#
            );
            let status: RelayStatus = serde_json::from_str(&text).unwrap();
            let assignment = names.assignment(&status);
            assert_eq!(
                (assignment.source.as_str(), assignment.term, assignment.assigned_term),
                (expected, LeaseToken(3), LeaseToken(0))
            );
        }
    }
}
