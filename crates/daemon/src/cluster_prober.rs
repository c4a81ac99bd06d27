//! Probes the servers and relays of a cluster, once for all readers of the results: the manager, the control
//! socket and HTTP.
//!
//! If the daemon has a manager, the manager sets the intervals of the probes, and clients can only shorten
//! them. Without a manager, servers and relays are probed only while clients request it with
//! [`ClusterObserver::request`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tailwater_manager::cluster_watch::{PolledObservation, RelayProbe, ServerPoller};
use tailwater_topology::RelayState;
use tailwater_topology::probe_failure::ProbeFailure;
use tailwater_topology::server_state::{Observation, ProbeError};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::cluster_servers::{ServerSnapshot, WritableProbe};
use crate::control_api::ChangeCounter;
use crate::manager::relay_probes::{RemoteRelayProbe, ServerNames};
use crate::manager::remote_relay_acker::RemoteRelay;
use crate::options_from_config::{self, ClusterWiring};
use tailwater_config::{Config, HttpConfig};

/// How long probes continue after the last request of a client.
const REQUEST_LASTS: Duration = Duration::from_secs(30);

/// Probes the servers and relays of one cluster. Dropping this value ends the probes.
#[derive(Debug)]
pub struct ClusterObserver {
    /// The servers and relays of the cluster, with the primary that the log followed when the daemon started.
    wiring: ClusterWiring,
    servers: Arc<ServerPoller>,
    relays: Vec<Arc<RemoteRelayProbe>>,
    /// Until when the relays must be probed because a client requested it.
    relays_requested: watch::Sender<Instant>,
    interval: Duration,
    stale_after: Duration,
    _tasks: JoinSet<()>,
}

impl ClusterObserver {
    /// Starts one observer for each cluster, in the order of the configuration. Each finished probe is
    /// counted in `changes`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If an option file with credentials, or the token file of a relay, cannot be read.
    pub fn start_all(config: &Config, changes: &ChangeCounter) -> anyhow::Result<Vec<Self>> {
        options_from_config::clusters(config)?
            .into_iter()
            .map(|wiring| Self::start(config, wiring, changes))
            .collect()
    }

    fn start(config: &Config, wiring: ClusterWiring, changes: &ChangeCounter) -> anyhow::Result<Self> {
        let (interval_ms, stale_after_ms) = HttpConfig::probe_times_ms(config.http.as_ref());
        let (interval, stale_after) =
            (Duration::from_millis(interval_ms), Duration::from_millis(stale_after_ms));
        let timeout = match &config.manager {
            Some(manager) => Duration::from_millis(manager.pace.poll_timeout_ms),
            None => stale_after,
        };
        let all = std::iter::once(&wiring.primary).chain(&wiring.followers).cloned();
        let published = changes.clone();
        let servers = Arc::new(ServerPoller::start(all, timeout, move || published.count()));
        let names = ServerNames::of(&wiring);
        let of_cluster = config.relays.iter().filter(|relay| relay.source == wiring.plan.name);
        let relays = of_cluster.map(|relay| {
            let probe = RemoteRelayProbe::new(RemoteRelay::of(relay)?, names.clone(), changes.clone());
            anyhow::Ok(Arc::new(probe))
        });
        let relays = relays.collect::<anyhow::Result<Vec<_>>>();
        let relays = relays
            .with_context(|| format!("cannot use the [[relay]] sections of source {}", wiring.plan.name))?;
        let relays_requested = watch::Sender::new(Instant::now());
        let mut tasks = JoinSet::new();
        // If there is a manager, it probes the relays at its own intervals.
        if config.manager.is_none() {
            for relay in &relays {
                let requested = relays_requested.subscribe();
                tasks.spawn(poll_relay(Arc::clone(relay), requested, interval, stale_after));
            }
        }
        Ok(Self { wiring, servers, relays, relays_requested, interval, stale_after, _tasks: tasks })
    }

    /// Returns the servers and relays of the cluster, with the primary that the log followed when the daemon
    /// started.
    pub fn wiring(&self) -> &ClusterWiring {
        &self.wiring
    }

    /// Returns the part that probes the servers of the cluster.
    pub fn poller(&self) -> Arc<ServerPoller> {
        Arc::clone(&self.servers)
    }

    /// Returns the probe of a relay on another machine.
    pub fn relay_probe(&self, relay: &str) -> Option<Arc<RemoteRelayProbe>> {
        self.relays.iter().find(|probe| probe.relay().name() == relay).cloned()
    }

    /// Returns the age in milliseconds above which the result of a probe is ignored.
    pub fn stale_after_ms(&self) -> u64 {
        millis(self.stale_after)
    }

    /// Whether a server of that name is probed. The name of the source represents the source's own server.
    pub fn has_server(&self, server: &str) -> bool {
        let mut servers = self.servers.servers();
        server == self.wiring.plan.name
            || servers.any(|name| name.strip_prefix("channel ").unwrap_or(name) == server)
    }

    /// Requests that servers and relays are probed for the next [`REQUEST_LASTS`].
    pub fn request(&self) {
        self.servers.request(self.interval, REQUEST_LASTS);
        let now = Instant::now();
        self.relays_requested.send_if_modified(|until| {
            let extends = *until < now + REQUEST_LASTS / 2;
            if extends {
                *until = now + REQUEST_LASTS;
            }
            extends
        });
    }

    /// Whether every server and relay was probed recently, whether the probe succeeded or not.
    pub fn is_fresh(&self) -> bool {
        let is_fresh =
            |began: Option<Instant>| began.is_some_and(|began| began.elapsed() <= self.stale_after);
        self.servers.servers().all(|server| is_fresh(self.servers.last(server).map(|probe| probe.began)))
            && self.relays.iter().all(|relay| is_fresh(relay.last().map(|answer| answer.asked)))
    }

    /// Returns the result of the last probe of each server. If the result is too old, the server counts as
    /// unreachable.
    pub fn observations(&self) -> Vec<Observation> {
        let observation = |PolledObservation { began, observation }: PolledObservation| {
            let age = began.elapsed();
            let mut observation = Observation::clone(&observation);
            if age > self.stale_after {
                let message = format!("the last probe of the server began {} ms ago", millis(age));
                observation.outcome = Err(ProbeError { failure: ProbeFailure::TimedOut, message });
            }
            observation
        };
        self.servers.servers().filter_map(|server| self.servers.last(server)).map(observation).collect()
    }

    /// Returns the servers, each with whether clients can write to it according to the last probe.
    pub fn servers(&self) -> Vec<ServerSnapshot> {
        let all = std::iter::once(&self.wiring.primary).chain(&self.wiring.followers);
        let snapshot = all.map(|target| ServerSnapshot {
            name: target.name.clone(),
            address: target.connect.endpoint.to_string(),
            probe: self.servers.last(&target.name).map(|probe| WritableProbe {
                age_ms: millis(probe.began.elapsed()),
                writable: match &probe.observation.outcome {
                    Ok(state) => Ok(state.is_writable()),
                    Err(unreached) => Err(format!("{}: {}", unreached.failure, unreached.message)),
                },
            }),
        });
        snapshot.collect()
    }

    /// Sets the states of the relays on other machines in `wired`, the servers and relays of the cluster.
    pub fn set_relay_states(&self, wired: &mut ClusterWiring) {
        let present = wired.clone();
        for other in &mut wired.plan.others {
            let Some(answer) = self.relay_probe(&other.name).and_then(|probe| probe.last()) else { continue };
            let age = answer.asked.elapsed();
            match answer.answer {
                Ok(_) if age > self.stale_after => {
                    other.silent = Some(format!("the last answer of the relay was {} ms ago", millis(age)));
                }
                Ok(status) => {
                    let state = options_from_config::remote_relay_state(&status, &present);
                    let heard_ago_ms = state.heard_ago_ms.map(|ago| ago.saturating_add(millis(age)));
                    other.relay.state = Some(RelayState { heard_ago_ms, ..state });
                }
                Err(reason) => other.silent = Some(reason),
            }
        }
    }
}

/// Probes a relay for as long as clients request it.
async fn poll_relay(
    relay: Arc<RemoteRelayProbe>,
    mut requested: watch::Receiver<Instant>,
    interval: Duration,
    timeout: Duration,
) {
    while requested.wait_for(|until| Instant::now() < *until).await.is_ok() {
        let began = Instant::now();
        // The probe itself records that the relay did not answer.
        let _ = tokio::time::timeout(timeout, relay.probe()).await;
        tokio::time::sleep(interval.saturating_sub(began.elapsed())).await;
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
