//! The delay of a steady stream: the time from a commit on the source until a reader of the target sees it,
//! while clients write at a set rate.
//!
//! A separate client commits beacon rows during the load, a hundred each second at random moments. Another
//! client looks for these beacons on the target. Both clients read the same clock.

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

use super::benchmark_plan::Conditions;
use super::native_replication_replay;
use super::replication_variant::{Contender, NativeSettings, ReplayOrder};
use super::source_backlog::{Backlog, checksums, commit_next, superuser, wait_until};
use super::tailwater_replay::{self, ApplyDaemon, LogDurability};
use super::target_server::ReplayTarget;
use super::workload::{ApplyLoad, SCHEMA};
use crate::fault_trial::TrialFolder;

const CLIENTS: u32 = 8;
const BEACON_EVERY: Duration = Duration::from_millis(10);
/// Time between two reads of the target while a beacon has not arrived yet. It is the resolution of a
/// measured delay.
const POLL_INTERVAL: Duration = Duration::from_micros(100);
const WARM_UP: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(120);

/// A source without a backlog, which targets follow.
#[derive(Debug)]
pub struct SteadySource {
    backlog: Backlog,
    workload: ApplyLoad,
    next_beacon: u64,
    next_seed: u64,
    promise: SourceAckMode,
    folder: TrialFolder,
}

/// What commits of the source's clients wait for (the ACK mode).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceAckMode {
    /// Commits do not wait for an ACK.
    None,
    /// Each commit waits for an ACK of the follower: lossless semi-sync.
    Lossless,
}

impl SourceAckMode {
    /// Returns the name in rows of the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "asynchronous",
            Self::Lossless => "lossless semi-sync",
        }
    }
}

/// The follower that brings the stream to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeasuredFollower {
    /// Native replication. By default it does not sync the relay log.
    Native(NativeSettings),
    /// Native replication that syncs received events before it applies and acknowledges them, as Tailwater
    /// does.
    NativeSynced(NativeSettings),
    /// Tailwater with one of its commit orders and this log durability.
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

/// The load of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadLevel {
    /// The highest rate that the clients reach, up to a limit. Source, target and follower share one machine.
    Most,
    /// Half of the highest rate.
    Half,
}

impl LoadLevel {
    /// Returns the name in rows of the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Most => "full",
            Self::Half => "half",
        }
    }
}

/// The delays of commits in one measurement.
#[derive(Debug, Clone, Copy)]
pub struct StreamDelay {
    /// The median delay, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of the delay, in milliseconds.
    pub p99_ms: f64,
    /// The commit rate of the clients during the measurement, in transactions per second.
    pub rate: f64,
    /// The number of measured beacons.
    pub beacons: usize,
    /// CPU time of target and follower for each transaction of the clients, in microseconds. It includes the
    /// beacons and the reads that look for them.
    pub cpu_us: f64,
}

impl SteadySource {
    /// Starts a source. Its clients commit this number of transactions before any target follows.
    ///
    /// # Errors
    /// If the source cannot be started or filled.
    pub async fn start(
        kind: tailwater_sandbox::ServerKind,
        workload: ApplyLoad,
        transactions: u32,
    ) -> anyhow::Result<Self> {
        let folder = TrialFolder::new(None)?;
        let backlog = Backlog::make(kind, workload, transactions, folder.path()).await?;
        Ok(Self { backlog, workload, next_beacon: 1, next_seed: 1_000, promise: SourceAckMode::None, folder })
    }

    /// Returns the commit rate of the clients at the start, in transactions per second.
    pub fn written_rate(&self) -> f64 {
        self.backlog.written_rate
    }

    /// Returns the servers' version.
    pub fn version(&self) -> &str {
        self.backlog.source.version()
    }

    /// Makes commits wait for the follower's ACK from now on.
    ///
    /// # Errors
    /// If the source refuses a statement.
    pub async fn wait_for_followers(&mut self) -> anyhow::Result<()> {
        self.backlog.source.enable_semi_sync_source().await?;
        self.promise = SourceAckMode::Lossless;
        Ok(())
    }

    /// Lets a follower apply the stream while clients commit `rate` transactions per second.
    ///
    /// # Errors
    /// If a server, a client or the follower fails, or the target differs from the source at the end.
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
                native_replication_replay::follow(&self.backlog, &mut target, native).await?;
                None
            }
            MeasuredFollower::Ours(order, held) => {
                let log = folder.join(format!("follow-{:08x}", rand::random::<u32>()));
                std::fs::create_dir(&log)?;
                Some(tailwater_replay::follow(&self.backlog, &target, order, self.promise, held, &log)?)
            }
        };
        let source = superuser(&self.backlog.source);
        self.catch_up(&source, &mut target, daemon.as_mut())
            .await
            .with_context(|| format!("{follower} did not catch up with the source"))?;
        // `sync_relay_log` is set only now: with a sync for each event, the target would need minutes for the
        // transactions of earlier measurements.
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
        ensure!(delays_ms.len() == sent.len(), "only {} of {} beacons arrived", delays_ms.len(), sent.len());
        delays_ms.sort_by(f64::total_cmp);
        if self.promise == SourceAckMode::Lossless {
            let status = self.backlog.source.semi_sync_status().await?;
            ensure!(
                status.on && status.unacknowledged == 0,
                "commits did not wait for the follower's ACK: {status:?}"
            );
        }
        self.ensure_equal(&target).await.with_context(|| {
            format!("comparing the target with the source after the measurement of {follower}")
        })?;
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

    /// Waits until the target has applied the transactions of earlier measurements.
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
        wait_until("waiting for the first beacon", PATIENCE, async || {
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

    /// Commits beacon rows, and returns the time at which each was committed.
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
                    // The send fails if the reader has ended. The reader's own error is reported at the end.
                    let _ = committed.send(beacon);
                    beacon += 1;
                }
                Ok(sent)
            },
            source,
        );
        let sent = join(sent).await?;
        self.next_beacon += sent.len() as u64;
        Ok(sent)
    }

    /// Waits until the target has the same data as the source.
    async fn ensure_equal(&self, target: &ReplayTarget) -> anyhow::Result<()> {
        let want = checksums(&self.backlog.source).await?;
        wait_until("waiting until the target has the same data as the source", PATIENCE, async || {
            Ok(checksums(&target.server).await? == want)
        })
        .await
    }

    /// Stops the source.
    ///
    /// # Errors
    /// If the source has already ended.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.backlog.source.kill().await?;
        Ok(())
    }
}

fn insert_beacon(id: u64) -> String {
    format!("INSERT INTO {SCHEMA}.beacon VALUES ({id})")
}

/// Returns the percentile of the sorted values: `percent` of them do not exceed it. NaN if there are no
/// values.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get((sorted.len().saturating_sub(1)) * percent / 100).copied().unwrap_or(f64::NAN)
}

/// The moments of a client's commits at a set average rate. The intervals are exponentially distributed, so
/// the commits of different clients are independent. With equal intervals, clients would synchronise with
/// each other and with the beacons.
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

    /// Returns the time until the next commit.
    fn gap(&mut self) -> Duration {
        self.every.mul_f64(-(1.0 - self.random.random::<f64>()).ln())
    }

    /// Blocks the thread until the next commit, because the timers of tasks only have a resolution of a
    /// millisecond. After a delay, the next commits follow sooner, so that the average rate stays the same.
    fn wait(&mut self) {
        let gap = self.gap();
        self.due += gap;
        std::thread::sleep(self.due.saturating_duration_since(Instant::now()));
    }
}

/// Runs `work` with a connection to a server in a separate thread.
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

/// Returns the result of a thread of [`with_runtime`].
async fn join<T: Send + 'static>(thread: JoinHandle<anyhow::Result<T>>) -> anyhow::Result<T> {
    let ended = tokio::task::spawn_blocking(|| thread.join()).await?;
    ended.unwrap_or_else(|_| bail!("a thread of the measurement panicked"))
}

/// Clients that commit at a set rate.
#[derive(Debug)]
struct PacedClients {
    clients: Vec<JoinHandle<anyhow::Result<()>>>,
    committed: Arc<AtomicU64>,
    /// Stops the clients when it is dropped, also if a measurement fails.
    stop: DropGuard,
}

impl PacedClients {
    fn start(source: &ConnectOptions, workload: ApplyLoad, rate: f64, seed: u64) -> anyhow::Result<Self> {
        ensure!(rate > 0.0, "the rate must be above 0: {rate} transactions per second");
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
            join(client).await.context("a client of the load failed")?;
        }
        Ok(())
    }
}

/// A reader of the target that looks for beacons.
struct BeaconWatcher {
    thread: JoinHandle<anyhow::Result<HashMap<u64, Instant>>>,
    /// Receives each beacon when it is committed on the source.
    committed: mpsc::Sender<u64>,
}

impl BeaconWatcher {
    fn start(target: ConnectOptions) -> Self {
        let (committed, beacons) = mpsc::channel();
        let thread = with_runtime(
            async move |connection| {
                let (mut seen, started) = (HashMap::new(), Instant::now());
                for beacon in beacons {
                    while !seen.contains_key(&beacon) {
                        // The query also finds later beacons, because beacons may arrive in another order.
                        let question = format!("SELECT id FROM {SCHEMA}.beacon WHERE id >= {beacon}");
                        let rows = connection.query(&question).await?.rows;
                        let now = Instant::now();
                        for id in rows.iter().filter_map(|row| row.get_u64(0)) {
                            seen.entry(id).or_insert(now);
                        }
                        ensure!(started.elapsed() < PATIENCE, "beacon {beacon} did not arrive at the target");
                        std::thread::sleep(POLL_INTERVAL);
                    }
                }
                Ok(seen)
            },
            target,
        );
        Self { thread, committed }
    }

    /// Waits for all beacons, and returns the time at which the reader first saw each one.
    async fn finish(self) -> anyhow::Result<HashMap<u64, Instant>> {
        let Self { thread, committed } = self;
        drop(committed);
        join(thread).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_keep_the_average_rate_at_varying_intervals() {
        let mut arrivals = Arrivals::new(Duration::from_millis(10), 7);
        let gaps: Vec<_> = (0..20_000).map(|_| arrivals.gap().as_secs_f64() * 1e3).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let short = gaps.iter().filter(|gap| **gap < 1.0).count() as f64 / gaps.len() as f64;
        assert!((mean - 10.0).abs() < 0.3, "the mean interval is {mean} ms, expected 10 ms");
        assert!((short - 0.095).abs() < 0.01, "the share of intervals below 1 ms is {short}, expected 0.095");
    }

    #[test]
    fn percentiles_are_values_from_the_data() {
        let values: Vec<f64> = (1..=101).map(f64::from).collect();
        assert_eq!((percentile(&values, 50), percentile(&values, 99)), (51.0, 100.0));
        assert_eq!(percentile(&[7.0], 99), 7.0);
        assert!(percentile(&[], 50).is_nan());
    }
}
