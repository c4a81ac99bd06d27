//! `tailwater bench daemon`: what the daemon costs while nothing happens, and how fast it answers people and
//! monitoring.
//!
//! - [`measured_daemon`]: a daemon with many sources, and requests to it.

mod measured_daemon;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec};

use self::measured_daemon::{MeasuredDaemon, SourceSpec};
use super::benchmark_report::{BenchReport, MachineInfo, Measurement, setting};
use crate::arguments::DaemonBench;
use crate::demo::choose_server;
use crate::fault_trial::managed_cluster::start_candidate_with;
use crate::fault_trial::{TrialFolder, ensure_installed, primary_options};

/// The size of the large installation: sources, and servers of each.
const SOURCES: usize = 50;
const REPLICAS: usize = 3;
/// The number of sources of the daemon whose idle cost is measured.
const WATCHED: usize = 20;
/// How long a daemon settles before its idle cost is measured.
const SETTLE: Duration = Duration::from_secs(5);

const ANSWERS: &str = "time of an answer";
const IDLE: &str = "idle CPU";
const MEMORY: &str = "peak memory";
const PAGE: &str = "page load";

/// The targets, as text for the notes.
const TARGETS: &str = "targets: snapshot under 10 ms, metrics under 20 ms, idle CPU under 1 % of a core \
     (10,000 µs each second), memory under 150 MiB, page under 200 KB and 100 ms";

type Setting = BTreeMap<&'static str, String>;

/// How much is measured.
struct DaemonPlan {
    requests: usize,
    page_loads: usize,
    idle: Duration,
    /// How many clusters of real servers the sources of the large installation share.
    clusters: usize,
    /// How many servers the watched sources have.
    primaries: usize,
}

/// Runs the benchmark.
///
/// # Errors
/// If a server or the daemon cannot be started, or an answer is wrong.
pub async fn daemon(options: &DaemonBench) -> anyhow::Result<BenchReport> {
    let plan = match options.quick {
        true => DaemonPlan {
            requests: 20,
            page_loads: 3,
            idle: Duration::from_secs(5),
            clusters: 2,
            primaries: 2,
        },
        false => DaemonPlan {
            requests: 200,
            page_loads: 20,
            idle: Duration::from_secs(60),
            clusters: 5,
            primaries: options.servers.map_or(WATCHED, usize::from).min(WATCHED),
        },
    };
    let kind = choose_server(options.family(), None)?;
    ensure_installed(kind)?;
    let mut rows = Vec::new();
    large_installation(&plan, kind, &mut rows).await?;
    watched_sources(&plan, kind, &mut rows).await?;
    let folder = TrialFolder::new(None)?;
    let ours = rows.first().map_or(f64::NAN, |row: &Measurement| row.median);
    Ok(BenchReport {
        name: "daemon",
        unit: "µs for a snapshot",
        ours,
        peers: Vec::new(),
        ratio: f64::NAN,
        machine: MachineInfo::look(folder.path())?,
        rows,
        notes: vec![
            TARGETS.to_owned(),
            format!(
                "answers: {SOURCES} sources are captured from {} primaries with {REPLICAS} replicas each; each source has \
                 its own log, and its own probes of these servers, so the daemon's state is that of {} servers",
                plan.clusters,
                SOURCES * (REPLICAS + 1)
            ),
            "each request is a connection of its own over loopback, with a token; the time is that until the last byte"
                .to_owned(),
            "page load: the overview, then all its scripts and styles, one after the other, without a cache, compressed as for a \
             browser".to_owned(),
        ],
    })
}

async fn large_installation(
    plan: &DaemonPlan,
    kind: ServerKind,
    rows: &mut Vec<Measurement>,
) -> anyhow::Result<()> {
    let mut clusters = Vec::new();
    for _ in 0..plan.clusters {
        clusters.push(cluster(kind).await?);
    }
    let sources = (1..=SOURCES)
        .zip(clusters.iter().cycle())
        .map(|(number, (primary, replicas))| SourceSpec { name: format!("s{number}"), primary, replicas });
    let sources: Vec<_> = sources.collect();
    let daemon = MeasuredDaemon::start(&sources, false, "\n[manager]\n").await?;
    daemon.wait_captured(SOURCES).await?;
    let size = setting(&[
        ("server", kind.name()),
        ("sources", &SOURCES.to_string()),
        ("servers", &(SOURCES * (REPLICAS + 1)).to_string()),
    ]);
    for (path, variant) in [
        ("/api/v1/snapshot", "GET /api/v1/snapshot"),
        ("/metrics", "GET /metrics"),
        ("/api/v1/status", "GET /api/v1/status"),
    ] {
        let (mut times, mut bytes) = (Vec::new(), 0);
        for _ in 0..plan.requests {
            let begin = Instant::now();
            bytes = daemon.get(path).await?.len();
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        let mut sorted = times.clone();
        sorted.sort_by(f64::total_cmp);
        let mut row = Measurement::new(ANSWERS, size.clone(), variant, "µs", times);
        row.also.insert("p99_us", sorted[(sorted.len() - 1) * 99 / 100]);
        row.also.insert("kib", bytes as f64 / 1024.0);
        rows.push(row);
    }
    rows.push(memory(&daemon, &size, "after these requests")?);
    page_load(plan, &daemon, &size, rows).await?;
    daemon.stop().await
}

async fn watched_sources(
    plan: &DaemonPlan,
    kind: ServerKind,
    rows: &mut Vec<Measurement>,
) -> anyhow::Result<()> {
    captured_sources(plan, kind, rows).await?;
    let (primary, replicas) = cluster(kind).await?;
    let sources = (1..=WATCHED).map(|number| SourceSpec {
        name: format!("s{number}"),
        primary: &primary,
        replicas: &replicas[..1],
    });
    let sources: Vec<_> = sources.collect();
    let daemon = MeasuredDaemon::start(&sources, false, "\n[manager]\n").await?;
    let variant = "captured, and watched by a manager with one replica each";
    idle(plan, daemon, &watched_size(kind, 2), variant, rows).await
}

async fn captured_sources(
    plan: &DaemonPlan,
    kind: ServerKind,
    rows: &mut Vec<Measurement>,
) -> anyhow::Result<()> {
    let mut primaries = Vec::new();
    for number in 1..=plan.primaries {
        let options = primary_options(kind).into_iter().chain(small_server());
        let spec = ServerSpec::new(kind).name(format!("p{number}")).options(options).semi_sync_source();
        let primary = Server::start(spec).await?;
        primary.create_replication_user().await?;
        primaries.push(primary);
    }
    let sources = (0..WATCHED).zip(primaries.iter().cycle());
    let sources =
        sources.map(|(number, primary)| SourceSpec { name: format!("s{number}"), primary, replicas: &[] });
    let sources: Vec<_> = sources.collect();
    let daemon = MeasuredDaemon::start(&sources, true, "").await?;
    idle(plan, daemon, &watched_size(kind, primaries.len()), "captured, semi-sync", rows).await
}

fn watched_size(kind: ServerKind, servers: usize) -> Setting {
    setting(&[("server", kind.name()), ("sources", &WATCHED.to_string()), ("servers", &servers.to_string())])
}

/// Measures what a daemon costs while its sources write nothing and no client asks.
async fn idle(
    plan: &DaemonPlan,
    daemon: MeasuredDaemon,
    size: &Setting,
    variant: &str,
    rows: &mut Vec<Measurement>,
) -> anyhow::Result<()> {
    daemon.wait_captured(WATCHED).await?;
    // The requests of `wait_captured` cause probes for some time.
    tokio::time::sleep(daemon.probes_end_after() + SETTLE).await;
    let (before, begin) = (daemon.cpu_time()?, Instant::now());
    tokio::time::sleep(plan.idle).await;
    let used_us = (daemon.cpu_time()? - before).as_secs_f64() * 1e6 / begin.elapsed().as_secs_f64();
    rows.push(Measurement::new(IDLE, size.clone(), variant, "µs of CPU time each second", vec![used_us]));
    rows.push(memory(&daemon, size, variant)?);
    daemon.stop().await
}

fn memory(daemon: &MeasuredDaemon, size: &Setting, variant: &str) -> anyhow::Result<Measurement> {
    let mib = daemon.memory_bytes_max()? as f64 / f64::from(1 << 20);
    Ok(Measurement::new(MEMORY, size.clone(), variant, "MiB", vec![mib]))
}

async fn page_load(
    plan: &DaemonPlan,
    daemon: &MeasuredDaemon,
    size: &Setting,
    rows: &mut Vec<Measurement>,
) -> anyhow::Result<()> {
    let session = daemon.log_in().await?;
    let page = daemon.get_as("/", &session).await?;
    let text = String::from_utf8_lossy(&page).into_owned();
    let paths: Vec<_> = std::iter::once("/").chain(asset_paths(&text)).collect();
    ensure!(paths.len() > 3, "the page has only {} files", paths.len());
    let as_browsers = format!("{session}\r\naccept-encoding: gzip");
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..plan.page_loads {
        let begin = Instant::now();
        bytes = 0;
        for path in &paths {
            bytes += daemon.get_as(path, &as_browsers).await?.len();
        }
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    let mut row = Measurement::new(PAGE, size.clone(), "overview with all files", "µs", times);
    row.also.insert("kb", bytes as f64 / 1e3);
    row.also.insert("html_kb_uncompressed", page.len() as f64 / 1e3);
    row.also.insert("files", paths.len() as f64);
    rows.push(row);
    Ok(())
}

/// Returns the scripts, styles and images of a page, each once.
fn asset_paths(page: &str) -> Vec<&str> {
    let mut paths: Vec<&str> = page
        .split(['"', '\''])
        .filter(|word| word.starts_with("/assets/"))
        .map(|path| path.split_once('#').map_or(path, |(file, _)| file))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Starts a primary with its replicas.
async fn cluster(kind: ServerKind) -> anyhow::Result<(Server, Vec<Server>)> {
    let options = primary_options(kind).into_iter().chain(small_server());
    let primary = Server::start(ServerSpec::new(kind).name("primary").options(options)).await?;
    primary.create_replication_user().await?;
    let mut replicas = Vec::new();
    for number in 2..2 + u32::try_from(REPLICAS).context("too many replicas")? {
        let replica = start_candidate_with(kind, number, &small_server()).await?;
        replica.replicate_from(&primary).await?;
        replicas.push(replica);
    }
    Ok((primary, replicas))
}

/// Options of a server that needs little memory, and accepts the connections of all sources.
fn small_server() -> Vec<String> {
    ["--innodb-buffer-pool-size=8M", "--max-connections=1000", "--table-open-cache=400"]
        .map(str::to_owned)
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_a_page_counts_once() {
        let page = r#"<link href="/assets/page.css"><script src='/assets/vendor/a.js'></script>
            <use href="/assets/icon.svg#x"/><use href="/assets/icon.svg#y"/><a href="/logs">"#;
        assert_eq!(asset_paths(page), ["/assets/icon.svg", "/assets/page.css", "/assets/vendor/a.js"]);
    }
}
