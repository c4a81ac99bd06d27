//! `tailwater bench capture`

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use tailwater_sandbox::ServerKind;

use super::benchmark_report::{BenchReport, MachineInfo, Measurement, Peer, setting};
use super::capture_servers::{AckVariant, Stage};
use super::commit_load::{CommitSample, sample};
use super::existing_binlog_capture::{ExistingBinlog, memory_with_huge_transaction, native_tool};
use crate::arguments::ServerFamily;
use crate::demo::choose_server;
use crate::fault_trial::{TrialDurability, TrialFolder, ensure_installed};

const COMMITS: &str = "commits per second on the primary";
const RAW: &str = "raw capture of an existing binlog";
const MEMORY: &str = "peak memory while one huge transaction passes";

/// Number of clients for the headline figure. It is high enough for group commit, and low enough for two
/// cores.
const HEADLINE_CLIENTS: u32 = 16;

struct CapturePlan {
    clients: &'static [u32],
    repeats: usize,
    warm_up: Duration,
    measured: Duration,
    archive_bytes: u64,
    huge_transaction_bytes: u64,
}

const FULL: CapturePlan = CapturePlan {
    clients: &[1, 16, 64],
    repeats: 3,
    warm_up: Duration::from_millis(700),
    measured: Duration::from_secs(3),
    archive_bytes: 512 << 20,
    huge_transaction_bytes: 2 << 30,
};
const QUICK: CapturePlan = CapturePlan {
    clients: &[1, 16, 64],
    repeats: 1,
    warm_up: Duration::from_millis(300),
    measured: Duration::from_millis(1200),
    archive_bytes: 128 << 20,
    huge_transaction_bytes: 128 << 20,
};

/// Runs the benchmark for one server family, or for both.
///
/// # Errors
/// If a measurement fails.
pub async fn capture(family: Option<ServerFamily>, quick: bool) -> anyhow::Result<BenchReport> {
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
        for durability in [TrialDurability::Reduced, TrialDurability::Full] {
            commits(&plan, kind, durability, &mut rows, &mut versions).await?;
        }
        raw(&plan, kind, &mut rows).await?;
        let mib = memory_with_huge_transaction(kind, plan.huge_transaction_bytes).await?;
        let setting = setting(&[
            ("server", kind.name()),
            ("transaction_mib", &(plan.huge_transaction_bytes >> 20).to_string()),
        ]);
        rows.push(Measurement::new(MEMORY, setting, "tailwater durable", "MiB", vec![mib]));
    }
    summarise(rows, &versions, machine)
}

async fn commits(
    plan: &CapturePlan,
    kind: ServerKind,
    durability: TrialDurability,
    rows: &mut Vec<Measurement>,
    versions: &mut BTreeMap<&'static str, String>,
) -> anyhow::Result<()> {
    let mut stage = Stage::start(kind, durability).await?;
    versions.insert(kind.name(), stage.trial.primary.version().to_owned());
    let mut first_worker = 1;
    for &clients in plan.clients {
        let mut measured: Vec<(AckVariant, Vec<CommitSample>)> =
            AckVariant::ALL.map(|variant| (variant, Vec::new())).into();
        for repeat in 0..plan.repeats {
            for (variant, samples) in &mut measured {
                stage.attach(*variant).await?;
                let sample =
                    sample(&stage.trial.primary, clients, first_worker, plan.warm_up, plan.measured).await?;
                first_worker += clients;
                eprintln!(
                    "{kind}, {durability:?} durability, {clients} clients, {}, repeat {}: {:.0}/s, p50 {:.2} ms",
                    variant.name(),
                    repeat + 1,
                    sample.rate,
                    sample.p50_ms
                );
                samples.push(sample);
            }
        }
        for (variant, samples) in measured {
            let setting = setting(&[
                ("server", kind.name()),
                ("durability", if durability == TrialDurability::Full { "full" } else { "reduced" }),
                ("clients", &clients.to_string()),
            ]);
            let rates = samples.iter().map(|sample| sample.rate).collect();
            let mut row = Measurement::new(COMMITS, setting, variant.name(), "commits/s", rates);
            let count = samples.len() as f64;
            row.also.insert("p50_ms", samples.iter().map(|sample| sample.p50_ms).sum::<f64>() / count);
            row.also.insert("p99_ms", samples.iter().map(|sample| sample.p99_ms).sum::<f64>() / count);
            rows.push(row);
        }
    }
    stage.stop().await
}

async fn raw(plan: &CapturePlan, kind: ServerKind, rows: &mut Vec<Measurement>) -> anyhow::Result<()> {
    let mut archive = ExistingBinlog::make(kind, plan.archive_bytes).await?;
    let (mut ours, mut memory, mut native) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.repeats.max(2) {
        let (rate, mib) = archive.by_tailwater().await?;
        ours.push(rate);
        memory.push(mib);
        native.push(archive.by_native_tool().await?);
    }
    let setting = setting(&[("server", kind.name()), ("binlog_mib", &(archive.bytes() >> 20).to_string())]);
    let mut row = Measurement::new(RAW, setting.clone(), "tailwater, fdatasynced", "MB/s", ours);
    row.also.insert("peak_memory_mib", memory.iter().copied().fold(0.0, f64::max));
    rows.push(row);
    rows.push(Measurement::new(
        RAW,
        setting,
        format!("{} --raw, not synced", native_tool(kind)),
        "MB/s",
        native,
    ));
    archive.stop().await
}

/// Returns the median of a variant in a setting.
fn median(
    rows: &[Measurement],
    server: &str,
    durability: &str,
    clients: u32,
    variant: AckVariant,
) -> Option<f64> {
    let wanted = [("server", server), ("durability", durability), ("clients", &clients.to_string())];
    let row = rows.iter().find(|row| {
        row.measurement == COMMITS
            && row.variant == variant.name()
            && wanted.iter().all(|(key, value)| row.setting.get(key).is_some_and(|found| found == value))
    })?;
    Some(row.median)
}

fn summarise(
    rows: Vec<Measurement>,
    versions: &BTreeMap<&'static str, String>,
    machine: MachineInfo,
) -> anyhow::Result<BenchReport> {
    let mut notes = vec![
        "each client commits one insert of about 100 bytes at a time; variants take turns, the figure is the median of \
         the repeats, the spread is their minimum and maximum"
            .to_owned(),
        "reduced durability: sync_binlog=0 and innodb_flush_log_at_trx_commit=0 on the primary; full: both 1".to_owned(),
        "the native replica writes no binlog, syncs nothing, and acknowledges commits that it has not \
         made durable; tailwater durable does one fdatasync per commit group before the ACK"
            .to_owned(),
    ];
    for (server, version) in versions {
        for durability in ["reduced", "full"] {
            for clients in FULL.clients.iter().copied() {
                let figure = |variant| median(&rows, server, durability, clients, variant);
                let (Some(none), Some(native), Some(receiver), Some(durable), Some(received)) = (
                    figure(AckVariant::NoSemiSync),
                    figure(AckVariant::NativeReplica),
                    figure(AckVariant::NativeReceiver),
                    figure(AckVariant::Durable),
                    figure(AckVariant::Received),
                ) else {
                    continue;
                };
                notes.push(format!(
                    "{server} {version}, {durability} durability, {clients} clients: durable has {:.2} of \
                     the rate without semi-sync, {:.2} x the native replica, {:.2} x its I/O thread \
                     alone; received: {:.2}, {:.2} x, {:.2} x",
                    durable / none,
                    durable / native,
                    durable / receiver,
                    received / none,
                    received / native,
                    received / receiver,
                ));
            }
        }
    }
    let (server, version) = versions.iter().next().context("the benchmark has no measurements")?;
    let headline = |variant| {
        median(&rows, server, "reduced", HEADLINE_CLIENTS, variant)
            .context("the measurement of the headline figure is missing")
    };
    let ours = headline(AckVariant::Durable)?;
    let peer = |variant: AckVariant| -> anyhow::Result<Peer> {
        Ok(Peer { name: variant.name().into(), version: version.clone(), value: headline(variant)? })
    };
    let peers = vec![peer(AckVariant::NativeReplica)?, peer(AckVariant::NativeReceiver)?];
    let best = peers.iter().map(|peer| peer.value).fold(f64::MIN, f64::max);
    Ok(BenchReport {
        name: "capture",
        unit: "commits/s",
        ours,
        peers,
        ratio: ours / best,
        rows,
        machine,
        notes,
    })
}
