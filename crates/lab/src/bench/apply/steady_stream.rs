//! The delay of a steady stream: from a commit on the source until the target shows it, while clients write at a set rate.
//!
//! A client of its own commits beacons among the load, a hundred each second at random moments; another looks for beacons on the target.
//! Both read the same clock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tailwater_session::{ConnectOptions, Connection};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::backlog::{Backlog, checksums, commit_next, superuser, wait_until};
use super::contender::{Contender, NativeSettings, ReplayOrder};
use super::native;
use super::plan::Conditions;
use super::tailwater::{self, ApplyDaemon, LogDurability};
use super::target::ReplayTarget;
use super::workload::{ApplyLoad, SCHEMA};
use crate::trial::TrialFolder;

const CLIENTS: u32 = 8;
const BEACON_EVERY: Duration = Duration::from_millis(10);
/// The time between two looks at the target while a beacon is on its way, which is what a delay is known to.
const LOOK: Duration = Duration::from_micros(100);
const WARM_UP: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(120);

/// A source without a backlog, whose targets follow it.
#[derive(Debug)]
pub struct SteadySource {
    backlog: Backlog,
    workload: ApplyLoad,
    next_beacon: u64,
    next_seed: u64,
    promise: SourceAckMode,
    folder: TrialFolder,
}

/// What the source's clients wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceAckMode {
    /// For nobody.
    None,
    /// For whoever follows to have acknowledged each commit: lossless semi-sync.
    Lossless,
}

impl SourceAckMode {
    /// As rows name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "asynchronous",
            Self::Lossless => "lossless semi-sync",
        }
    }
}

/// Who brings a stream to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeasuredFollower {
    /// NativeSettings replication, which does not sync its relay log, as its default is.
    Native(NativeSettings),
    /// NativeSettings replication that holds what it received as durably as Tailwater does before it applies it, and acknowledges it.
    NativeSynced(NativeSettings),
    /// Tailwater, which holds what it received as it does by default, or otherwise.
    Ours(ReplayOrder, LogDurability),
}

impl std::fmt::Display for MeasuredFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Native(native) => Contender::Native(*native).fmt(f),
            Self::NativeSynced(native) => write!(f, "{}, relay log synced", Contender::Native(*native)),
            Self::Ours(order, held) => {
                Contender::Ours(*order).fmt(f)?;
                f.write_str(match held {
                    LogDurability::Default => "",
                    LogDurability::Durable => ", log synced first",
                    LogDurability::Received => ", log not synced first",
                })
            }
        }
    }
}

/// How much clients commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadLevel {
    /// As much as they come to, with source, target and whoever joins them on one machine, up to a rate.
    Most,
    /// Half of that.
    Half,
}

impl LoadLevel {
    /// As rows name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Most => "full",
            Self::Half => "half",
        }
    }
}

/// How late commits arrived.
#[derive(Debug, Clone, Copy)]
pub struct StreamDelay {
    /// The median.
    pub p50_ms: f64,
    /// What one of a hundred exceeds.
    pub p99_ms: f64,
    /// What the clients committed meanwhile, in transactions per second.
    pub rate: f64,
    /// How many beacons were measured.
    pub beacons: usize,
    /// CPU time of target and follower for each transaction of the clients, in microseconds; the beacons', and who looks for them, count.
    pub cpu_us: f64,
}

impl SteadySource {
    /// Starts a source, whose clients commit so many transactions before anybody follows.
    ///
    /// # Errors
    /// If it cannot be started or filled.
    pub async fn start(
        kind: tailwater_sandbox::ServerKind,
        workload: ApplyLoad,
        transactions: u32,
    ) -> anyhow::Result<Self> {
        let folder = TrialFolder::new(None)?;
        let backlog = Backlog::make(kind, workload, transactions, folder.path()).await?;
        Ok(Self { backlog, workload, next_beacon: 1, next_seed: 1_000, promise: SourceAckMode::None, folder })
    }

    /// How fast clients committed when it was started, in transactions per second.
    pub fn written_rate(&self) -> f64 {
        self.backlog.written_rate
    }

    /// The servers' version.
    pub fn version(&self) -> &str {
        self.backlog.source.version()
    }

    /// Has commits wait from now on until whoever follows has acknowledged them.
    ///
    /// # Errors
    /// If the source refuses.
    pub async fn wait_for_followers(&mut self) -> anyhow::Result<()> {
        self.backlog.source.enable_semi_sync_source().await?;
        self.promise = SourceAckMode::Lossless;
        Ok(())
    }

    /// Lets somebody follow while clients commit `rate` transactions per second.
    ///
    /// # Errors
    /// If a server, a client or the follower fails, or the target's data are not the source's in the end.
    pub async fn measure(
        &mut self,
        follower: MeasuredFollower,
        rate: f64,
        seconds: u64,
    ) -> anyhow::Result<StreamDelay> {
        let folder = self.folder.path();
        let mut target = ReplayTarget::start(&self.backlog, Conditions::FULL, None, folder).await?;
        let mut daemon = match follower {
            MeasuredFollower::Native(native) | MeasuredFollower::NativeSynced(native) => {
                if self.promise == SourceAckMode::Lossless {
                    target.server.enable_semi_sync_replica().await?;
                }
                native::follow(&self.backlog, &mut target, native).await?;
                None
            }
            MeasuredFollower::Ours(order, held) => {
                let log = folder.join(format!("follow-{:08x}", rand::random::<u32>()));
                std::fs::create_dir(&log)?;
                Some(tailwater::follow(&self.backlog, &target, order, self.promise, held, &log)?)
            }
        };
        let source = superuser(&self.backlog.source);
        self.catch_up(&source, &mut target, daemon.as_mut())
            .await
            .with_context(|| format!("following: {follower}"))?;
        // Not sooner: what the measurements before have left behind would take minutes.
        if matches!(follower, MeasuredFollower::NativeSynced(_)) {
            target.connection.execute("SET GLOBAL sync_relay_log = 1").await?;
        }
        let load = PacedClients::start(&source, self.workload, rate, self.next_seed)?;
        self.next_seed += u64::from(CLIENTS);
        tokio::time::sleep(WARM_UP).await;
        let cpu_of = |target: &ReplayTarget, daemon: &Option<ApplyDaemon>| {
            let of_ours = daemon.as_ref().and_then(|daemon| daemon.process.cpu_time()).unwrap_or_default();
            anyhow::Ok(target.cpu_time()? + of_ours)
        };
        let (committed, begin) = (load.committed.load(Ordering::Relaxed), Instant::now());
        let cpu = cpu_of(&target, &daemon)?;
        let watch = BeaconWatcher::start(superuser(&target.server));
        let sent = self.send_beacons(&source, Duration::from_secs(seconds), &watch).await?;
        let committed = (load.committed.load(Ordering::Relaxed) - committed) as f64;
        ensure!(committed > 0.0, "the clients committed nothing");
        let rate = committed / begin.elapsed().as_secs_f64();
        let cpu = cpu_of(&target, &daemon)?.saturating_sub(cpu);
        let seen = watch.finish().await?;
        load.stop().await?;
        let mut delays_ms: Vec<f64> = sent
            .iter()
            .filter_map(|(id, sent)| Some(seen.get(id)?.saturating_duration_since(*sent).as_secs_f64() * 1e3))
            .collect();
        ensure!(delays_ms.len() == sent.len(), "{} of {} beacons arrived", delays_ms.len(), sent.len());
        delays_ms.sort_by(f64::total_cmp);
        if self.promise == SourceAckMode::Lossless {
            let status = self.backlog.source.semi_sync_status().await?;
            ensure!(status.on && status.unacknowledged == 0, "commits did not wait: {status:?}");
        }
        self.ensure_equal(&target).await.with_context(|| format!("after: {follower}"))?;
        if let Some(daemon) = daemon {
            daemon.end().await?;
        }
        target.end().await?;
        Ok(StreamDelay {
            p50_ms: percentile(&delays_ms, 50),
            p99_ms: percentile(&delays_ms, 99),
            rate,
            beacons: delays_ms.len(),
            cpu_us: cpu.as_secs_f64() * 1e6 / committed,
        })
    }

    /// Waits until the target has all that earlier measurements left behind.
    async fn catch_up(
        &mut self,
        source: &ConnectOptions,
        target: &mut ReplayTarget,
        mut daemon: Option<&mut ApplyDaemon>,
    ) -> anyhow::Result<()> {
        let beacon = self.take_beacon();
        let mut connection = Connection::connect(source).await?;
        connection.execute(&insert_beacon(beacon)).await?;
        connection.close().await;
        let question = format!("SELECT id FROM {SCHEMA}.beacon WHERE id={beacon}");
        wait_until("the first beacon", PATIENCE, async || {
            if let Some(daemon) = &mut daemon {
                daemon.ensure_running()?;
            }
            Ok(target.connection.query(&question).await?.scalar().is_some())
        })
        .await
    }

    fn take_beacon(&mut self) -> u64 {
        self.next_beacon += 1;
        self.next_beacon - 1
    }

    /// When each beacon was committed.
    async fn send_beacons(
        &mut self,
        source: &ConnectOptions,
        time: Duration,
        watch: &BeaconWatcher,
    ) -> anyhow::Result<Vec<(u64, Instant)>> {
        let (source, mut arrivals) = (source.clone(), Arrivals::new(BEACON_EVERY, 0));
        let (mut beacon, committed) = (self.next_beacon, watch.committed.clone());
        let sent = with_runtime(
            async move |connection| {
                let begin = Instant::now();
                let mut sent = Vec::new();
                while begin.elapsed() < time {
                    arrivals.wait();
                    connection.execute(&insert_beacon(beacon)).await?;
                    sent.push((beacon, Instant::now()));
                    // Whoever looks for it says why in the end, if it has ended.
                    let _ = committed.send(beacon);
                    beacon += 1;
                }
                Ok(sent)
            },
            source,
        );
        let sent = joined(sent).await?;
        self.next_beacon += sent.len() as u64;
        Ok(sent)
    }

    /// Waits until the target has everything, in whatever order it comes.
    async fn ensure_equal(&self, target: &ReplayTarget) -> anyhow::Result<()> {
        let want = checksums(&self.backlog.source).await?;
        wait_until("the target's data to be the source's", PATIENCE, async || {
            Ok(checksums(&target.server).await? == want)
        })
        .await
    }

    /// Stops the source.
    ///
    /// # Errors
    /// If it has ended by itself.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.backlog.source.kill().await?;
        Ok(())
    }
}

fn insert_beacon(id: u64) -> String {
    format!("INSERT INTO {SCHEMA}.beacon VALUES ({id})")
}

/// Of sorted values the one that so many percent do not exceed; NaN of none.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get((sorted.len().saturating_sub(1)) * percent / 100).copied().unwrap_or(f64::NAN)
}

/// When somebody is to commit who does so at a set rate on average, and knows nothing of the others: the time between two moments is
/// exponentially distributed. At equal intervals clients would keep step with each other, and with the beacons.
#[derive(Debug)]
struct Arrivals {
    random: StdRng,
    every: Duration,
    due: Instant,
}

impl Arrivals {
    fn new(every: Duration, seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), every, due: Instant::now() }
    }

    /// Time until the next.
    fn gap(&mut self) -> Duration {
        self.every.mul_f64(-(1.0 - self.random.random::<f64>()).ln())
    }

    /// Blocks until the next, as timers of tasks know milliseconds only. What was missed is made up for, so that the rate holds.
    fn wait(&mut self) {
        let gap = self.gap();
        self.due += gap;
        std::thread::sleep(self.due.saturating_duration_since(Instant::now()));
    }
}

/// Has a thread of its own talk with a server.
fn with_runtime<T: Send + 'static>(
    work: impl AsyncFnOnce(&mut Connection) -> anyhow::Result<T> + Send + 'static,
    server: ConnectOptions,
) -> JoinHandle<anyhow::Result<T>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut connection = Connection::connect(&server).await?;
            let result = work(&mut connection).await?;
            connection.close().await;
            Ok(result)
        })
    })
}

/// What such a thread has come to.
async fn joined<T: Send + 'static>(thread: JoinHandle<anyhow::Result<T>>) -> anyhow::Result<T> {
    let ended = tokio::task::spawn_blocking(|| thread.join()).await?;
    ended.unwrap_or_else(|_| bail!("a thread that measures has died"))
}

/// Clients that commit at a set rate.
#[derive(Debug)]
struct PacedClients {
    clients: Vec<JoinHandle<anyhow::Result<()>>>,
    committed: Arc<AtomicU64>,
    /// Ends the clients, also if a measurement fails.
    stop: DropGuard,
}

impl PacedClients {
    fn start(source: &ConnectOptions, workload: ApplyLoad, rate: f64, seed: u64) -> anyhow::Result<Self> {
        ensure!(rate > 0.0, "a rate of {rate} transactions per second is none");
        let (committed, stop) = (Arc::<AtomicU64>::default(), CancellationToken::new());
        let every = Duration::from_secs_f64(f64::from(CLIENTS) / rate);
        let clients = (0..CLIENTS)
            .map(|number| {
                let (committed, stop) = (Arc::clone(&committed), stop.clone());
                let mut client = workload.client(seed + u64::from(number));
                let mut arrivals = Arrivals::new(every, 1 + u64::from(number));
                let work = async move |connection: &mut Connection| {
                    while !stop.is_cancelled() {
                        arrivals.wait();
                        commit_next(&mut client, connection).await?;
                        committed.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                };
                with_runtime(work, source.clone())
            })
            .collect();
        Ok(Self { clients, committed, stop: stop.drop_guard() })
    }

    async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        for client in self.clients {
            joined(client).await.context("a client of the load failed")?;
        }
        Ok(())
    }
}

/// Somebody who looks for beacons.
struct BeaconWatcher {
    thread: JoinHandle<anyhow::Result<HashMap<u64, Instant>>>,
    /// Told each beacon when it is committed.
    committed: mpsc::Sender<u64>,
}

impl BeaconWatcher {
    fn start(target: ConnectOptions) -> Self {
        let (committed, beacons) = mpsc::channel();
        let thread = with_runtime(
            async move |connection| {
                let (mut seen, begun) = (HashMap::new(), Instant::now());
                for beacon in beacons {
                    while !seen.contains_key(&beacon) {
                        // They need not come in their order.
                        let question = format!("SELECT id FROM {SCHEMA}.beacon WHERE id >= {beacon}");
                        let rows = connection.query(&question).await?.rows;
                        let now = Instant::now();
                        for id in rows.iter().filter_map(|row| row.get_u64(0)) {
                            seen.entry(id).or_insert(now);
                        }
                        ensure!(begun.elapsed() < PATIENCE, "beacon {beacon} does not arrive at the target");
                        std::thread::sleep(LOOK);
                    }
                }
                Ok(seen)
            },
            target,
        );
        Self { thread, committed }
    }

    /// When each beacon was seen first, once all have been.
    async fn finish(self) -> anyhow::Result<HashMap<u64, Instant>> {
        let Self { thread, committed } = self;
        drop(committed);
        joined(thread).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_their_rate_and_not_their_step() {
        let mut arrivals = Arrivals::new(Duration::from_millis(10), 7);
        let gaps: Vec<_> = (0..20_000).map(|_| arrivals.gap().as_secs_f64() * 1e3).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let short = gaps.iter().filter(|gap| **gap < 1.0).count() as f64 / gaps.len() as f64;
        assert!((mean - 10.0).abs() < 0.3, "{mean}");
        assert!((short - 0.095).abs() < 0.01, "{short}");
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=101).map(f64::from).collect();
        assert_eq!((percentile(&values, 50), percentile(&values, 99)), (51.0, 100.0));
        assert_eq!(percentile(&[7.0], 99), 7.0);
        assert!(percentile(&[], 50).is_nan());
    }
}
