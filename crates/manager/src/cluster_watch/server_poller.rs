//! Probes the servers of a cluster once for all parts of the daemon that read the results: the manager's
//! watch and the clients of the daemon.
//!
//! Each server has one task, which uses one connection at a time, and keeps one. The task probes at the
//! shortest interval that anyone requested. Without a request it is idle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::probe_tasks::ProbeIntervals;
use tailwater_topology::server_probe::{ProbeTarget, ServerProber};
use tailwater_topology::server_state::Observation;

/// A finished probe.
#[derive(Debug, Clone)]
pub struct PolledObservation {
    /// When the probe started.
    pub began: Instant,
    /// The result of the probe.
    pub observation: Arc<Observation>,
}

/// Which probes are requested at present.
#[derive(Debug, Clone, Default)]
struct PollDemand {
    /// What the manager's watch requests; `None` without a manager.
    watch: Option<WatchDemand>,
    /// The interval that clients of the daemon request, and the end of that request.
    clients: Option<(Duration, Instant)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct WatchDemand {
    primary: String,
    intervals: ProbeIntervals,
    /// Whether the primary does not answer.
    trouble: bool,
    /// Sequence number of the watch. When a new watch starts, the number increases and every server is probed
    /// at once.
    watch: u64,
    /// Number of changes of `trouble`. After a change, every server except the primary is probed at once.
    troubles: u64,
}

impl PollDemand {
    /// Returns when the next probe of a server is due; `None` while no part of the daemon needs its state.
    ///
    /// `last` contains the start and end of the last probe. `under` is the demand that was in force when that
    /// probe started.
    fn due(&self, server: &str, last: Option<(Instant, Instant)>, under: &Self) -> Option<Instant> {
        let now = Instant::now();
        let for_clients = self.clients.filter(|(_, until)| now < *until).map(|(interval, _)| match last {
            Some((began, _)) => began + interval,
            None => now,
        });
        let for_watch = self.watch.as_ref().map(|watch| match (last, &under.watch) {
            (Some((_, ended)), Some(then)) if !watch.is_renewed(then, server) => {
                ended + Duration::from_millis(watch.interval_ms(server))
            }
            _ => now,
        });
        for_clients.into_iter().chain(for_watch).min()
    }
}

impl WatchDemand {
    /// Returns the probe interval of a server, in milliseconds. The primary is never probed more often: a
    /// slow primary may be overloaded, and pings detect its recovery.
    fn interval_ms(&self, server: &str) -> u64 {
        let hurries = self.trouble && server != self.primary;
        if hurries { self.intervals.failure_poll_ms } else { self.intervals.poll_ms }
    }

    fn is_renewed(&self, then: &Self, server: &str) -> bool {
        self.watch != then.watch || (self.troubles != then.troubles && server != self.primary)
    }
}

/// Probes the servers of one cluster. When it is dropped, its tasks end.
#[derive(Debug)]
pub struct ServerPoller {
    servers: Vec<(String, watch::Receiver<Option<PolledObservation>>)>,
    demand: watch::Sender<PollDemand>,
    _tasks: JoinSet<()>,
}

impl ServerPoller {
    /// Starts the tasks. A probe takes at most `timeout`. `published` is called after each probe.
    pub fn start(
        targets: impl IntoIterator<Item = ProbeTarget>,
        timeout: Duration,
        published: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Self {
        let (demand, _) = watch::channel(PollDemand::default());
        let mut tasks = JoinSet::new();
        let mut servers = Vec::new();
        for target in targets {
            let (sender, last) = watch::channel(None);
            servers.push((target.name.clone(), last));
            let (demand, published) = (demand.subscribe(), published.clone());
            tasks.spawn(poll(ServerProber::new(target, timeout), demand, move |probe| {
                sender.send_replace(Some(probe));
                published();
            }));
        }
        Self { servers, demand, _tasks: tasks }
    }

    /// Returns the names of the probed servers.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.servers.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the result of the last finished probe of a server, whatever its age.
    pub fn last(&self, server: &str) -> Option<PolledObservation> {
        let (_, last) = self.servers.iter().find(|(name, _)| name == server)?;
        last.borrow().clone()
    }

    /// Returns a receiver of all results for a server.
    pub(super) fn probes(&self, server: &str) -> Option<watch::Receiver<Option<PolledObservation>>> {
        let (_, last) = self.servers.iter().find(|(name, _)| name == server)?;
        let mut probes = last.clone();
        probes.mark_unchanged();
        Some(probes)
    }

    /// Requests that every server is probed at least once in `interval`, until `duration` has passed.
    pub fn request(&self, interval: Duration, duration: Duration) {
        let now = Instant::now();
        self.demand.send_if_modified(|demand| {
            // A request that extends an earlier one only slightly must not wake every task.
            let extends = demand.clients.is_none_or(|(_, until)| until < now + duration / 2);
            if extends {
                demand.clients = Some((interval, now + duration));
            }
            extends
        });
    }

    /// Probes every server at once, and after that at the intervals of the watch of this primary.
    pub(super) fn watch(&self, primary: &str, intervals: ProbeIntervals) {
        self.demand.send_modify(|demand| {
            let watches = demand.watch.as_ref().map_or(0, |before| before.watch + 1);
            demand.watch = Some(WatchDemand {
                primary: primary.to_owned(),
                intervals,
                trouble: false,
                watch: watches,
                troubles: 0,
            });
        });
    }

    /// Sets whether the primary does not answer. When this changes, the tasks probe the other servers at
    /// once. While the primary does not answer, the tasks probe them more often.
    pub(super) fn set_trouble(&self, trouble: bool) {
        self.demand.send_if_modified(|demand| {
            let Some(watch) = demand.watch.as_mut().filter(|watch| watch.trouble != trouble) else {
                return false;
            };
            watch.trouble = trouble;
            watch.troubles += 1;
            true
        });
    }
}

async fn poll(
    mut prober: ServerProber,
    mut demand: watch::Receiver<PollDemand>,
    publish: impl Fn(PolledObservation),
) {
    let mut last = None;
    let mut earlier = None;
    let mut under = PollDemand::default();
    loop {
        let due = demand.borrow_and_update().due(prober.server(), last, &under);
        let changed = tokio::select! {
            () = until(due) => false,
            changed = demand.changed() => match changed {
                Ok(()) => true,
                Err(_) => return,
            },
        };
        if changed {
            continue;
        }
        under = demand.borrow().clone();
        let began = Instant::now();
        // A new watch does not accept results of probes that started before the watch.
        let renewed = demand.wait_for(|demand| {
            let of = |demand: &PollDemand| demand.watch.as_ref().map(|watch| watch.watch);
            of(demand) != of(&under)
        });
        tokio::select! {
            mut observation = prober.probe() => {
                observation.earlier = earlier;
                earlier = observation.last_gtids();
                last = Some((began, Instant::now()));
                publish(PolledObservation { began, observation: Arc::new(observation) });
            }
            renewed = renewed => match renewed {
                Ok(_) => {}
                Err(_) => return,
            },
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_millis(1_000);
    const FAILURE_POLL: Duration = Duration::from_millis(100);

    fn watched(watch: u64, trouble: bool, troubles: u64) -> PollDemand {
        let watch = WatchDemand {
            primary: "db1".to_owned(),
            intervals: ProbeIntervals::default(),
            trouble,
            watch,
            troubles,
        };
        PollDemand { watch: Some(watch), clients: None }
    }

    #[test]
    fn the_shortest_requested_interval_is_used() {
        let now = Instant::now();
        let last = Some((now, now));
        let none = PollDemand::default();
        assert_eq!(none.due("db1", last, &none), None);
        let clients = |until| PollDemand { clients: Some((POLL / 2, until)), ..PollDemand::default() };
        assert_eq!(clients(now + POLL).due("db1", last, &none), Some(now + POLL / 2));
        assert_eq!(
            clients(now).due("db1", last, &none),
            None,
            "no probe must be due after the request has ended"
        );
        let watch = watched(0, false, 0);
        assert_eq!(watch.due("db1", last, &watch), Some(now + POLL));
        let both = PollDemand { watch: watch.watch.clone(), ..clients(now + POLL) };
        assert_eq!(both.due("db1", last, &watch), Some(now + POLL / 2));
    }

    #[test]
    fn servers_are_probed_at_once_when_a_watch_starts_or_the_primary_stops_answering() {
        let ended = Instant::now() + POLL;
        let last = Some((ended, ended));
        let is_at_once = |due: Option<Instant>| due.is_some_and(|due| due <= Instant::now());
        let (before, trouble) = (watched(0, false, 0), watched(0, true, 1));
        assert!(is_at_once(before.due("db1", None, &PollDemand::default())));
        assert!(is_at_once(watched(1, false, 0).due("db1", last, &before)));
        assert!(is_at_once(trouble.due("db2", last, &before)));
        assert_eq!(trouble.due("db2", last, &trouble), Some(ended + FAILURE_POLL));
        assert_eq!(
            trouble.due("db1", last, &before),
            Some(ended + POLL),
            "the primary must keep its probe interval"
        );
    }
}
