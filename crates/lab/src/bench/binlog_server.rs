//! `tailwater bench serve`

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tailwater_log::LogDir;
use tailwater_sandbox::{ChildProcess, ServerKind};
use tailwater_session::ConnectOptions;

use super::benchmark_report::{BenchReport, MachineInfo, Measurement, Peer, setting};
use super::binlog_stream_readers::{ArrivalRecorder, BinlogReaders, catch_up};
use super::capture_servers::{AckVariant, Stage};
use super::commit_load::sample;
use super::existing_binlog_capture::ExistingBinlog;
use crate::arguments::ServerFamily;
use crate::demo::choose_server;
use crate::fault_trial::{TrialDurability, TrialFolder, ensure_installed};

const CATCH_UP: &str = "catching up with an existing log, all readers together";
const CROWD: &str = "commits per second on the primary while others follow";
const CROWD_CPU: &str = "tailwater's CPU time per commit while others follow";
const DELAY: &str = "arrival at a reader of tailwater after arrival at a reader of the primary";
const MEMORY: &str = "tailwater's peak memory";
const ARCHIVE_SIZE: &str = "archived log against the binlog";

/// Number of clients that commit while readers follow.
const CLIENTS: u32 = 16;

struct ServePlan {
    log_bytes: u64,
    catching_up: &'static [u32],
    crowds: &'static [u32],
    repeats: usize,
    warm_up: Duration,
    measured: Duration,
}

const FULL: ServePlan = ServePlan {
    log_bytes: 2 << 30,
    catching_up: &[1, 4],
    crowds: &[0, 10, 50],
    repeats: 5,
    warm_up: Duration::from_millis(700),
    measured: Duration::from_secs(3),
};
const QUICK: ServePlan = ServePlan {
    log_bytes: 128 << 20,
    catching_up: &[1, 4],
    crowds: &[0, 10, 50],
    repeats: 1,
    warm_up: Duration::from_millis(300),
    measured: Duration::from_millis(1200),
};

/// Runs the benchmark for one server family, or for both.
///
/// # Errors
/// If a measurement fails.
pub async fn serve(family: Option<ServerFamily>, quick: bool) -> anyhow::Result<BenchReport> {
    let plan = if quick { QUICK } else { FULL };
    let families = match family {
        Some(family) => vec![family],
        None => vec![ServerFamily::Mariadb, ServerFamily::Mysql],
    };
    let folder = TrialFolder::new(None)?;
    let machine = MachineInfo::look(folder.path())?;
    let mut rows = Vec::new();
    let mut versions = BTreeMap::new();
    for family in families {
        let kind = choose_server(family, None)?;
        ensure_installed(kind)?;
        versions.insert(kind.name(), catching_up(&plan, kind, &mut rows).await?);
        following(&plan, kind, &mut rows).await?;
    }
    summarise(rows, &versions, machine)
}

/// Measures how fast readers read an existing log. Returns the server's version.
async fn catching_up(
    plan: &ServePlan,
    kind: ServerKind,
    rows: &mut Vec<Measurement>,
) -> anyhow::Result<String> {
    let mut archive = ExistingBinlog::make(kind, plan.log_bytes).await?;
    let mut served = archive.serve_by_tailwater().await?;
    let version = archive.version().to_owned();
    // A reader must get slightly fewer bytes than the files have, because the last bytes of a server's binlog
    // files may not be events.
    let bytes_min = archive.bytes() * 99 / 100;
    let source = archive.source();
    for &readers in plan.catching_up {
        let (mut ours, mut native) = (Vec::new(), Vec::new());
        for repeat in 0..plan.repeats.max(2) {
            ours.push(
                catch_up(&served.options, readers, bytes_min)
                    .await
                    .context("cannot read the binlog from Tailwater")?,
            );
            native.push(
                catch_up(&source, readers, bytes_min)
                    .await
                    .context("cannot read the binlog from the source")?,
            );
            eprintln!(
                "{kind}, {readers} readers catching up, repeat {}: tailwater {:.0} MB/s, source {:.0} MB/s",
                repeat + 1,
                ours[repeat],
                native[repeat]
            );
        }
        let setting = setting(&[
            ("server", kind.name()),
            ("binlog_mib", &(archive.bytes() >> 20).to_string()),
            ("readers", &readers.to_string()),
        ]);
        rows.push(Measurement::new(CATCH_UP, setting.clone(), "tailwater", "MB/s", ours));
        rows.push(Measurement::new(CATCH_UP, setting, "the source itself", "MB/s", native));
    }
    memory(kind, "4 readers catching up", &mut served.relay, rows);
    served.relay.terminate(Duration::from_secs(30)).await?;
    archive.stop().await?;
    Ok(version)
}

fn memory(kind: ServerKind, what: &str, relay: &mut ChildProcess, rows: &mut Vec<Measurement>) {
    let mib = relay.memory_bytes_max().unwrap_or(0) as f64 / f64::from(1 << 20);
    let setting = setting(&[("server", kind.name()), ("readers", what)]);
    rows.push(Measurement::new(MEMORY, setting, "tailwater durable", "MiB", vec![mib]));
}

/// The server from which many readers follow the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReadSource {
    Tailwater,
    Primary,
}

impl ReadSource {
    fn name(self) -> &'static str {
        match self {
            Self::Tailwater => "readers read from tailwater",
            Self::Primary => "readers read from the primary",
        }
    }

    fn options(self, stage: &Stage) -> ConnectOptions {
        match self {
            Self::Tailwater => stage.trial.serve_options(),
            Self::Primary => stage.trial.primary.replication_options(),
        }
    }
}

/// Measures how much following readers slow down commits, and how late transactions arrive at the readers.
/// Every commit waits for Tailwater's fdatasync.
async fn following(plan: &ServePlan, kind: ServerKind, rows: &mut Vec<Measurement>) -> anyhow::Result<()> {
    let mut stage = Stage::start(kind, TrialDurability::Reduced).await?;
    stage.attach(AckVariant::Durable).await?;
    let mut first_worker = 1;
    let mut samples: BTreeMap<_, Vec<CrowdSample>> = BTreeMap::new();
    for repeat in 0..plan.repeats {
        for &readers in plan.crowds {
            for from in [ReadSource::Tailwater, ReadSource::Primary] {
                let sample = with_followers(plan, &mut stage, from, readers, first_worker).await?;
                first_worker += 2 * CLIENTS;
                eprintln!(
                    "{kind}, {readers} followers, {}, repeat {}: {:.0}/s, {:.1} µs of tailwater's CPU per commit",
                    from.name(),
                    repeat + 1,
                    sample.rate,
                    sample.cpu_us
                );
                samples.entry((readers, from)).or_default().push(sample);
            }
        }
    }
    for ((readers, from), samples) in samples {
        let setting = setting(&[
            ("server", kind.name()),
            ("clients", &CLIENTS.to_string()),
            ("followers", &readers.to_string()),
        ]);
        let of = |figure: fn(&CrowdSample) -> f64| samples.iter().map(figure).collect::<Vec<_>>();
        let rates = of(|sample| sample.rate);
        rows.push(Measurement::new(CROWD, setting.clone(), from.name(), "commits/s", rates));
        rows.push(Measurement::new(CROWD_CPU, setting, from.name(), "µs", of(|sample| sample.cpu_us)));
    }
    let relay = stage.trial.relay().context("the relay is not running")?;
    memory(kind, "50 followers", relay, rows);
    for clients in [1, CLIENTS] {
        delay(plan, kind, &stage, clients, first_worker, rows).await?;
        first_worker += clients;
    }
    archived(kind, &stage, rows).await?;
    stage.stop().await
}

/// Measures the size of the compressed log after many small transactions.
async fn archived(kind: ServerKind, stage: &Stage, rows: &mut Vec<Measurement>) -> anyhow::Result<()> {
    stage.trial.primary.sql("FLUSH BINARY LOGS").await?;
    let log = stage.trial.log_directory();
    let folder = TrialFolder::new(None)?;
    let begin = Instant::now();
    // The segment is sealed when the next segment starts.
    while LogDir::open_read_only(&log)?.segments()?.len() < 2 {
        ensure!(
            begin.elapsed() < Duration::from_secs(30),
            "the log did not start a new segment after FLUSH BINARY LOGS"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let begin = Instant::now();
    let output = tokio::process::Command::new(std::env::current_exe()?)
        .args([
            "log".as_ref(),
            "archive".as_ref(),
            log.as_os_str(),
            "--to".as_ref(),
            folder.path().as_os_str(),
        ])
        .output()
        .await?;
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(output.status.success(), "cannot archive the log: {}", String::from_utf8_lossy(&output.stderr));
    let segments = LogDir::open_read_only(&log)?.segments()?;
    let sealed: u64 = segments.iter().filter(|segment| segment.sealed).map(|segment| segment.bytes).sum();
    let archived = bytes_of_files(folder.path())?;
    let setting = setting(&[("server", kind.name()), ("binlog_mib", &(sealed >> 20).to_string())]);
    let percent = archived as f64 * 100.0 / sealed as f64;
    let mut row =
        Measurement::new(ARCHIVE_SIZE, setting, "zstd, indexes included", "% of the binlog", vec![percent]);
    row.also.insert("mb_per_second", sealed as f64 / 1e6 / seconds);
    rows.push(row);
    Ok(())
}

/// Returns the total size of all files in a folder and its subfolders, in bytes.
fn bytes_of_files(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let data = entry.metadata()?;
        bytes += if data.is_dir() { bytes_of_files(&entry.path())? } else { data.len() };
    }
    Ok(bytes)
}

/// One measurement of commits while readers follow.
struct CrowdSample {
    /// Commits per second.
    rate: f64,
    /// The CPU time of Tailwater for each commit, in microseconds.
    cpu_us: f64,
}

async fn with_followers(
    plan: &ServePlan,
    stage: &mut Stage,
    from: ReadSource,
    readers: u32,
    first_worker: u32,
) -> anyhow::Result<CrowdSample> {
    // A reader skips the start of the newest file that it already has. So the file must be short.
    stage.trial.primary.sql("FLUSH BINARY LOGS").await?;
    let primary = stage.trial.primary.replication_options();
    let crowd = BinlogReaders::follow(&from.options(stage), &primary, readers).await?;
    sample(&stage.trial.primary, CLIENTS, first_worker, plan.warm_up, Duration::from_millis(1)).await?;
    let cpu_time = |stage: &mut Stage| {
        let relay = stage.trial.relay().context("the relay is not running")?;
        relay.cpu_time().context("cannot read the CPU time of the relay")
    };
    let (cpu, begin) = (cpu_time(stage)?, Instant::now());
    let first_worker = first_worker + CLIENTS;
    let sample =
        sample(&stage.trial.primary, CLIENTS, first_worker, plan.warm_up / 10, plan.measured).await?;
    let cpu = cpu_time(stage)?.saturating_sub(cpu);
    // The commits of the short warm-up are estimated from the rate afterwards.
    let cpu_us = cpu.as_secs_f64() * 1e6 / (sample.rate * begin.elapsed().as_secs_f64());
    let (bytes, connected) = crowd.read();
    ensure!(connected == readers as usize, "only {connected} of {readers} followers are still connected");
    ensure!(bytes > 0 || readers == 0, "the followers received nothing");
    Ok(CrowdSample { rate: sample.rate, cpu_us })
}

async fn delay(
    plan: &ServePlan,
    kind: ServerKind,
    stage: &Stage,
    clients: u32,
    first_worker: u32,
    rows: &mut Vec<Measurement>,
) -> anyhow::Result<()> {
    let primary = stage.trial.primary.replication_options();
    let direct = ArrivalRecorder::start(&primary, &primary, 801).await?;
    let through = ArrivalRecorder::start(&stage.trial.serve_options(), &primary, 802).await?;
    sample(&stage.trial.primary, clients, first_worker, plan.warm_up, plan.measured).await?;
    let (direct, through) = (direct.finish().await?, through.finish().await?);
    let mut extra_us: Vec<f64> = through
        .iter()
        .filter_map(|(key, arrival)| {
            let first = direct.get(key)?;
            Some(match arrival.checked_duration_since(*first) {
                Some(later) => later.as_secs_f64() * 1e6,
                None => -first.duration_since(*arrival).as_secs_f64() * 1e6,
            })
        })
        .collect();
    ensure!(!extra_us.is_empty(), "no transaction arrived at both readers");
    extra_us.sort_by(f64::total_cmp);
    let at = |percent: usize| extra_us[(extra_us.len() - 1) * percent / 100];
    let setting = setting(&[("server", kind.name()), ("clients", &clients.to_string())]);
    let mut row = Measurement::new(DELAY, setting, "tailwater durable, p50", "µs", vec![at(50)]);
    row.also.insert("p99_us", at(99));
    row.also.insert("transactions", extra_us.len() as f64);
    rows.push(row);
    Ok(())
}

fn median(
    rows: &[Measurement],
    measurement: &str,
    server: &str,
    readers: (&'static str, u32),
    variant: &str,
) -> Option<f64> {
    let wanted = [("server", server.to_owned()), (readers.0, readers.1.to_string())];
    let row = rows.iter().find(|row| {
        row.measurement == measurement
            && row.variant == variant
            && wanted.iter().all(|(key, value)| row.setting.get(key) == Some(value))
    })?;
    Some(row.median)
}

fn summarise(
    rows: Vec<Measurement>,
    versions: &BTreeMap<&'static str, String>,
    machine: MachineInfo,
) -> anyhow::Result<BenchReport> {
    let mut notes = vec![
        "all measurements use the same readers, which read every byte and store nothing; tailwater and the source run on the same machine".to_owned(),
        "the readers that follow while clients commit do not look at the bytes, because real replicas do that on other machines".to_owned(),
        "followers: every commit waits for tailwater's fdatasync (semi-sync, reduced durability on the \
         primary), and in addition this number of readers follows the stream"
            .to_owned(),
        "arrival: when the reader has the transaction's last event; the primary sends a transaction before tailwater has synced it".to_owned(),
    ];
    for (server, version) in versions {
        for readers in FULL.catching_up.iter().copied() {
            let figure = |variant| median(&rows, CATCH_UP, server, ("readers", readers), variant);
            if let (Some(ours), Some(native)) = (figure("tailwater"), figure("the source itself")) {
                notes.push(format!(
                    "{server} {version}, {readers} readers catching up: {:.2} x the source's own rate",
                    ours / native
                ));
            }
        }
        for readers in FULL.crowds.iter().copied().filter(|readers| *readers > 0) {
            let figure =
                |from: ReadSource, readers| median(&rows, CROWD, server, ("followers", readers), from.name());
            let both = |from| Some(figure(from, readers)? / figure(from, 0)?);
            if let (Some(ours), Some(native)) = (both(ReadSource::Tailwater), both(ReadSource::Primary)) {
                notes.push(format!(
                    "{server} {version}, {readers} followers: the commit rate is {ours:.2} of the rate \
                     without followers if they read from tailwater, {native:.2} if they read from the \
                     primary"
                ));
            }
        }
    }
    let (server, version) = versions.iter().next().context("the benchmark has no measurements")?;
    let headline = |variant| {
        median(&rows, CATCH_UP, server, ("readers", 1), variant)
            .context("the measurement of the headline figure is missing")
    };
    let (ours, native) = (headline("tailwater")?, headline("the source itself")?);
    let peer = Peer { name: format!("{server}, the source itself"), version: version.clone(), value: native };
    let peers = vec![peer];
    Ok(BenchReport { name: "serve", unit: "MB/s", ours, peers, ratio: ours / native, rows, machine, notes })
}
