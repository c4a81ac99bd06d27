//! The looks that verdicts rest on, taken in the background: one task for each server, while somebody asks.
//!
//! However many ask, a server is looked at as often as configured; and while nobody does, not at all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_manager::observation::{Observation, ProbeError};
use tailwater_manager::probe::{ProbeTarget, probe_server};
use tailwater_manager::probe_failure::ProbeFailure;
use tailwater_manager::topology::RelayState;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::acker::RelayStatus;
use super::role_check::Seen;
use crate::manager::remote::RemoteRelay;
use crate::wiring::{self, ClusterWiring};

/// Looking goes on for so long after somebody has asked.
const ASKED_KEEPS: Duration = Duration::from_secs(30);

/// The first to ask after a pause waits so long for looks, at most.
const FIRST_LOOK_MAX: Duration = Duration::from_millis(1_000);

/// One look, and when it began.
#[derive(Debug, Clone)]
struct Last {
    began: Instant,
    observation: Arc<Observation>,
}

/// A server, and what was seen last.
#[derive(Debug)]
struct Seat {
    name: String,
    last: watch::Receiver<Option<Last>>,
}

/// A relay on another machine, and what it said last.
#[derive(Debug)]
struct RelaySeat {
    name: String,
    last: watch::Receiver<Option<Said>>,
}

/// What a relay said, and when it was asked.
#[derive(Debug, Clone)]
struct Said {
    asked: Instant,
    answer: Result<RelayStatus, String>,
}

/// A cluster that is looked at.
#[derive(Debug)]
pub(super) struct Watched {
    /// Led by whom the log followed when the daemon was started.
    pub wiring: ClusterWiring,
    seats: Vec<Seat>,
    relays: Vec<RelaySeat>,
}

/// Looks at the servers of all clusters while somebody asks.
#[derive(Debug)]
pub struct Watching {
    clusters: Vec<Watched>,
    /// Until when looks are wanted.
    wanted: watch::Sender<Instant>,
    stale_after: Duration,
    /// They end with it.
    _tasks: JoinSet<()>,
}

impl Watching {
    /// Starts the tasks, which wait until somebody asks. Each server is looked at every `interval`; a look that is older than
    /// `stale_after`, or takes as long, is none.
    pub fn start(
        clusters: Vec<(ClusterWiring, Vec<RemoteRelay>)>,
        interval: Duration,
        stale_after: Duration,
    ) -> Self {
        let (wanted, _) = watch::channel(Instant::now());
        let mut tasks = JoinSet::new();
        let sit = |tasks: &mut JoinSet<()>, subject: &ProbeTarget| {
            let (sender, last) = watch::channel(None);
            let looking = Looking { subject: subject.clone(), sender, interval, timeout: stale_after };
            tasks.spawn(looking.run(wanted.subscribe()));
            Seat { name: subject.name.clone(), last }
        };
        let listen = |tasks: &mut JoinSet<()>, relay: RemoteRelay| {
            let (sender, last) = watch::channel(None);
            let name = relay.name().to_owned();
            tasks.spawn(Asking { relay, sender, interval, timeout: stale_after }.run(wanted.subscribe()));
            RelaySeat { name, last }
        };
        let clusters = clusters
            .into_iter()
            .map(|(wiring, relays)| {
                let all = std::iter::once(&wiring.primary).chain(&wiring.followers);
                let seats = all.map(|subject| sit(&mut tasks, subject)).collect();
                let relays = relays.into_iter().map(|relay| listen(&mut tasks, relay)).collect();
                Watched { wiring, seats, relays }
            })
            .collect();
        Self { clusters, wanted, stale_after, _tasks: tasks }
    }

    /// More than this is too old, in milliseconds.
    pub(super) fn stale_after_ms(&self) -> u64 {
        millis(self.stale_after)
    }

    /// The clusters.
    pub(super) fn clusters(&self) -> &[Watched] {
        &self.clusters
    }

    /// Says that somebody asks about a cluster. Back when everybody in it was looked at lately: at once while somebody
    /// asks all the time, and in bounded time in any case.
    pub(super) async fn ask(&self, cluster: &Watched) {
        let now = Instant::now();
        self.wanted.send_if_modified(|until| {
            // Not each check wakes every task.
            let extends = *until < now + ASKED_KEEPS / 2;
            if extends {
                *until = now + ASKED_KEEPS;
            }
            extends
        });
        let looks = async {
            for seat in &cluster.seats {
                let mut last = seat.last.clone();
                let is_fresh = |last: &Option<Last>| {
                    last.as_ref().is_some_and(|last| last.began.elapsed() <= self.stale_after)
                };
                // The sender lives as long as the task, which lives as long as this.
                let _ = last.wait_for(is_fresh).await;
            }
            for relay in &cluster.relays {
                let mut last = relay.last.clone();
                let is_fresh = |said: &Option<Said>| {
                    said.as_ref().is_some_and(|said| said.asked.elapsed() <= self.stale_after)
                };
                let _ = last.wait_for(is_fresh).await;
            }
        };
        // Whoever is late counts as not looked at.
        let _ = tokio::time::timeout(FIRST_LOOK_MAX, looks).await;
    }

    /// Puts into a cluster's plan what the relays on other machines said last.
    pub(super) fn put_others(&self, cluster: &Watched, wired: &mut ClusterWiring) {
        let led = wired.clone();
        for other in &mut wired.plan.others {
            let seat = cluster.relays.iter().find(|seat| seat.name == other.name);
            let Some(said) = seat.and_then(|seat| seat.last.borrow().clone()) else { continue };
            let age = said.asked.elapsed();
            match said.answer {
                Ok(_) if age > self.stale_after => {
                    other.silent = Some(format!("it answered last {} ms ago", millis(age)));
                }
                Ok(text) => {
                    let state = wiring::other_state(&text, &led);
                    let heard_ago_ms = state.heard_ago_ms.map(|ago| ago.saturating_add(millis(age)));
                    other.relay.state = Some(RelayState { heard_ago_ms, ..state });
                }
                Err(reason) => other.silent = Some(reason),
            }
        }
    }

    /// What was last seen of everybody in a cluster. Who was looked at too long ago was not reached.
    pub(super) fn observations(&self, cluster: &Watched) -> Vec<Observation> {
        let of_seat = |seat: &Seat| {
            let last = seat.last.borrow().clone()?;
            let age = last.began.elapsed();
            let mut observation = Observation::clone(&last.observation);
            if age > self.stale_after {
                let message = format!("it was last looked at {} ms ago", millis(age));
                observation.outcome = Err(ProbeError { failure: ProbeFailure::TimedOut, message });
            }
            Some(observation)
        };
        cluster.seats.iter().filter_map(of_seat).collect()
    }
}

impl Watched {
    /// The name under which a server is looked at: the source's name is also that of its own server.
    pub(super) fn canonical(&self, server: &str) -> String {
        match server == self.wiring.plan.name {
            true => self.wiring.own.clone(),
            false => server.to_owned(),
        }
    }

    /// Where a server is.
    pub(super) fn address_of(&self, server: &str) -> Option<String> {
        let all = std::iter::once(&self.wiring.primary).chain(&self.wiring.followers);
        all.into_iter()
            .find(|subject| is_named(&subject.name, server))
            .map(|subject| subject.connect.endpoint.to_string())
    }

    /// Whether a server of this name is in the cluster.
    pub(super) fn has(&self, server: &str) -> bool {
        server == self.wiring.plan.name || self.seats.iter().any(|seat| is_named(&seat.name, server))
    }

    /// What was last seen of a server, whatever its age.
    pub(super) fn seen(&self, server: &str) -> Option<Seen> {
        let seat = self.seats.iter().find(|seat| seat.name == server)?;
        let last = seat.last.borrow().clone()?;
        let writable = match &last.observation.outcome {
            Ok(look) => Ok(look.is_writable()),
            Err(unreached) => Err(format!("{}: {}", unreached.failure, unreached.message)),
        };
        Some(Seen { age_ms: millis(last.began.elapsed()), writable })
    }
}

/// The task of one server.
struct Looking {
    subject: ProbeTarget,
    sender: watch::Sender<Option<Last>>,
    interval: Duration,
    timeout: Duration,
}

impl Looking {
    async fn run(self, mut wanted: watch::Receiver<Instant>) {
        loop {
            if wanted.wait_for(|until| Instant::now() < *until).await.is_err() {
                return;
            }
            let began = Instant::now();
            let observation = Arc::new(probe_server(&self.subject, self.timeout).await);
            self.sender.send_replace(Some(Last { began, observation }));
            tokio::time::sleep(self.interval.saturating_sub(began.elapsed())).await;
        }
    }
}

/// The task of one relay on another machine.
struct Asking {
    relay: RemoteRelay,
    sender: watch::Sender<Option<Said>>,
    interval: Duration,
    timeout: Duration,
}

impl Asking {
    async fn run(self, mut wanted: watch::Receiver<Instant>) {
        loop {
            if wanted.wait_for(|until| Instant::now() < *until).await.is_err() {
                return;
            }
            let asked = Instant::now();
            let answer = match tokio::time::timeout(self.timeout, self.relay.text()).await {
                Ok(answer) => answer.map_err(|unreached| unreached.message),
                Err(_) => Err(format!("no answer within {} ms", millis(self.timeout))),
            };
            self.sender.send_replace(Some(Said { asked, answer }));
            tokio::time::sleep(self.interval.saturating_sub(asked.elapsed())).await;
        }
    }
}

/// Targets of channels that are no servers of the configuration are looked at as `channel NAME`.
fn is_named(subject: &str, server: &str) -> bool {
    subject == server || subject.strip_prefix("channel ") == Some(server)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
