//! How captures stand to their sources, as the manager asks: those of this process, and those of other daemons.

use std::collections::BTreeSet;
use std::sync::Arc;

use tailwater_capture::{CaptureState, CaptureStatus};
use tailwater_manager::cluster_watch::{RelayAssignment, RelayProbe, RelayProbeFuture, RelayProbeResult};
use tailwater_manager::lease::LeaseToken;

use super::remote::RemoteRelay;
use crate::http::RelayStatus;
use crate::wiring::ClusterWiring;

/// Looks at a capture of this process.
#[derive(Debug, Clone)]
pub struct LocalRelayProbe {
    /// Whose state.
    pub status: Arc<CaptureStatus>,
    /// Whether it asks for semi-sync.
    pub acknowledges: bool,
    /// What the source's own server is called.
    pub own: String,
}

impl RelayProbe for LocalRelayProbe {
    fn probe(&self) -> RelayProbeFuture<'_> {
        let ordered = self.status.orders();
        let look = RelayProbeResult {
            is_streaming: self.status.snapshot().state == CaptureState::Streaming,
            acknowledges: self.acknowledges,
            heard_ago_ms: self.status.received_ago_ms(),
            heartbeat_ms: Some(self.status.heartbeat_ms()),
            assignment: RelayAssignment {
                term: LeaseToken(ordered.token),
                source: ordered.follows.unwrap_or_else(|| self.own.clone()),
                assigned_term: LeaseToken(ordered.followed_in),
                is_stopped: ordered.stopped.is_some(),
            },
        };
        Box::pin(async move { Ok(look) })
    }
}

/// Looks at a capture of another daemon.
#[derive(Debug, Clone)]
pub struct RemoteRelayProbe {
    /// Which.
    pub relay: RemoteRelay,
    /// What servers are called here.
    pub names: ServerNames,
}

impl RelayProbe for RemoteRelayProbe {
    fn probe(&self) -> RelayProbeFuture<'_> {
        Box::pin(async move {
            let text = self.relay.text().await.map_err(|unreached| unreached.failure)?;
            Ok(RelayProbeResult {
                is_streaming: text.is_streaming,
                acknowledges: text.acknowledges,
                heard_ago_ms: text.heard_ago_ms,
                heartbeat_ms: text.heartbeat_ms,
                assignment: self.names.led(&text),
            })
        })
    }
}

/// What the servers of a cluster are called in this configuration.
#[derive(Debug, Clone)]
pub struct ServerNames {
    own: String,
    all: BTreeSet<String>,
}

impl ServerNames {
    /// Those of a cluster, whoever leads it.
    pub fn of(wiring: &ClusterWiring) -> Self {
        let plan = &wiring.plan;
        let all = plan.servers.iter().chain([&plan.primary]).map(|member| member.name.clone());
        Self { own: wiring.own.clone(), all: all.collect() }
    }

    /// Whom a relay follows. Its source's own server may be called otherwise there, or be another one than here, as of a relay that
    /// was set up after a failover.
    pub fn follows(&self, text: &RelayStatus) -> String {
        let own_there = || text.own.clone().filter(|own| self.all.contains(own));
        text.acker.follows.clone().or_else(own_there).unwrap_or_else(|| self.own.clone())
    }

    fn led(&self, text: &RelayStatus) -> RelayAssignment {
        RelayAssignment {
            term: LeaseToken(text.acker.token),
            source: self.follows(text),
            assigned_term: LeaseToken(text.acker.followed_in),
            is_stopped: text.acker.stopped_since_ms.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tailwater_manager::topology::{ClusterPlan, Member};

    use super::*;

    /// As daemons of this version and of earlier ones answer.
    #[test]
    fn whom_a_relay_follows_is_known_by_the_names_of_here() {
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
            let text: RelayStatus = serde_json::from_str(&text).unwrap();
            let led = names.led(&text);
            assert_eq!(
                (led.source.as_str(), led.term, led.assigned_term),
                (expected, LeaseToken(3), LeaseToken(0))
            );
        }
    }
}
