//! `tailwater bench dump`

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use tailwater_sandbox::Server;

use super::benchmark_servers::{fill, start_source};
use super::commit_latency::ConcurrentWriters;
use super::compared_tools::{DumpTool, SYNCED};
use super::program_measurement::{self, RunCost};
use super::{Headline, TablesPlan, kinds, setting, summarise};
use crate::arguments::{TablesBench, TablesData};
use crate::bench::benchmark_report::{BenchReport, MachineInfo, Measurement};
use crate::fault_trial::TrialFolder;

const PLAIN: &str = "dump, not compressed";
const COMPRESSED: &str = "dump, compressed";
const WAITS: &str = "the longest commit while a dump runs";

/// Runs the benchmark for one server family, or for both.
///
/// # Errors
/// If a measurement fails.
pub async fn dump(options: &TablesBench) -> anyhow::Result<BenchReport> {
    let plan = TablesPlan::new(options);
    let mydumper = program_measurement::version("mydumper", "mydumper")?;
    let folder = TrialFolder::new(None)?;
    let machine = MachineInfo::look(folder.path())?;
    let mut rows = Vec::new();
    let mut versions = vec![("mydumper".to_owned(), mydumper)];
    for kind in kinds(options.server)? {
        let source = start_source(kind, plan.rows).await?;
        versions.push((DumpTool::Stock.name(kind).to_owned(), source.version().to_owned()));
        for set in plan.sets.iter().copied() {
            eprintln!("{kind}, {}: creating {} rows", set.name(), plan.rows);
            fill(&source, set, plan.rows).await?;
            measure(&plan, &source, set, folder.path(), &mut rows).await?;
            if set == TablesData::Sysbench {
                waits(&plan, &source, set, folder.path(), &mut rows).await?;
            }
            source.sql(&format!("SET sql_log_bin=0; DROP DATABASE {}", set.schema())).await?;
        }
    }
    let headline =
        Headline { name: "dump", measurement: PLAIN, ours: "tailwater, plain", against: &[SYNCED] };
    let notes = vec![
        format!(
            "{} connections each through the Unix socket; contenders take turns after a first dump that is not counted; the figure is \
             the median of the repeats, the spread is their minimum and maximum",
            super::WORKERS
        ),
        format!(
            "tailwater syncs each file to the disk and checks its snapshots; mydumper and the servers' own tools sync nothing. So \
             the headline is against {SYNCED}: mydumper, whose files this benchmark syncs afterwards all at once; the CPU time for \
             the sync is not counted; the ratios to the tools that sync nothing are listed below"
        ),
        "Debian's mydumper can only compress with gzip, at level 6, like tailwater's gzip; tailwater's own choice is Zstandard".to_owned(),
    ];
    // Tools that compress are compared only with each other.
    let mut report = summarise(&headline, rows, &versions, machine, notes)?;
    for ours in ["tailwater, zstd", "tailwater, gzip"] {
        let compressed = Headline { name: "dump", measurement: COMPRESSED, ours, against: &[] };
        report.notes.extend(super::ratios(&compressed, &report.rows));
    }
    Ok(report)
}

/// Measures all dump tools in turn.
async fn measure(
    plan: &TablesPlan,
    source: &Server,
    set: TablesData,
    folder: &Path,
    rows: &mut Vec<Measurement>,
) -> anyhow::Result<()> {
    let kind = source.kind();
    // The first dump is not measured. Without it, the first measured tool would have to wait until the kernel
    // frees memory for the page cache.
    run(DumpTool::OursPlain, source, set, plan.rows, folder).await?;
    let mut runs: Vec<(DumpTool, Vec<RunCost>, f64)> =
        DumpTool::ALL.map(|dumper| (dumper, Vec::new(), 0.0)).into();
    for repeat in 0..plan.repeats {
        for (dumper, measured, mib) in &mut runs {
            let (run, bytes) = run(*dumper, source, set, plan.rows, folder).await?;
            *mib = bytes as f64 / f64::from(1 << 20);
            eprintln!(
                "{kind}, {}, {}, repeat {}: {:.2} s, CPU {:.2} s, server's {:.2} s, {:.0} MiB of memory, {mib:.0} MiB written",
                set.name(),
                dumper.name(kind),
                repeat + 1,
                run.seconds,
                run.cpu_seconds,
                run.server_cpu_seconds,
                run.memory_mib
            );
            measured.push(run);
        }
    }
    // In the report, the rows about plain dumps come before those about compressed dumps.
    runs.sort_by_key(|(dumper, ..)| dumper.compresses());
    for (dumper, measured, mib) in runs {
        let measurement = if dumper.compresses() { COMPRESSED } else { PLAIN };
        let rates = measured.iter().map(|run| plan.rows as f64 / run.seconds).collect();
        let mut row =
            Measurement::new(measurement, setting(kind, set, plan.rows), dumper.name(kind), "rows/s", rates);
        row.also = super::further_costs(&measured);
        row.also.insert("written_mib", mib);
        rows.push(row);
    }
    Ok(())
}

/// Dumps once, and returns the number of bytes written. The files are removed afterwards.
async fn run(
    dumper: DumpTool,
    source: &Server,
    set: TablesData,
    rows: u64,
    folder: &Path,
) -> anyhow::Result<(RunCost, u64)> {
    let into = folder.join("dump");
    let program = dumper.program(source, set, rows, &into)?;
    // The kernel writes back the dirty pages of the last dump first, because they would slow down this dump.
    tokio::task::spawn_blocking(rustix::fs::sync).await?;
    let mut measured = program.run(&[source], &folder.join("output")).await?;
    if dumper == DumpTool::MydumperSynced {
        let (begin, folder) = (Instant::now(), into.clone());
        tokio::task::spawn_blocking(move || sync(&folder)).await??;
        measured.seconds += begin.elapsed().as_secs_f64();
    }
    let mut bytes = 0;
    for entry in std::fs::read_dir(&into)? {
        bytes += entry?.metadata()?.len();
    }
    std::fs::remove_dir_all(&into)?;
    Ok((measured, bytes))
}

/// Syncs all files of a folder.
fn sync(folder: &Path) -> std::io::Result<()> {
    let files = std::fs::read_dir(folder)?.map(|entry| File::open(entry?.path()));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|scope| {
        let syncs: Vec<_> = files.iter().map(|file| scope.spawn(|| file.sync_data())).collect();
        syncs.into_iter().try_for_each(|sync| {
            sync.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread that synced a file panicked")))
        })
    })?;
    File::open(folder)?.sync_all()
}

/// Returns how long Tailwater blocked commits, in milliseconds, from the last line of its output; `None` for
/// the output of another tool.
fn stall(output: &Path) -> anyhow::Result<Option<f64>> {
    let text = std::fs::read_to_string(output)?;
    let done = text.lines().rev().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let stall = |line: serde_json::Value| line["stall_ms"].as_f64().filter(|_| line["event"] == "done");
    std::fs::remove_file(output)?;
    Ok(done.into_iter().find_map(stall))
}

/// Measures how long commits take while each tool dumps, and without a dump.
async fn waits(
    plan: &TablesPlan,
    source: &Server,
    set: TablesData,
    folder: &Path,
    rows: &mut Vec<Measurement>,
) -> anyhow::Result<()> {
    let kind = source.kind();
    let dumpers = [None, Some(DumpTool::OursPlain), Some(DumpTool::MydumperParts), Some(DumpTool::Stock)];
    let mut seen = dumpers.map(|dumper| (dumper, Vec::new(), Vec::new(), None));
    for _ in 0..plan.repeats {
        for (dumper, longest, p99, stall_ms) in &mut seen {
            let writers = ConcurrentWriters::start(source).await?;
            match dumper {
                Some(dumper) => {
                    run(*dumper, source, set, plan.rows, folder).await?;
                    *stall_ms = stall(&folder.join("output"))?.or(*stall_ms);
                }
                None => {
                    tokio::time::sleep(std::time::Duration::from_secs(if plan.quick { 2 } else { 10 })).await
                }
            }
            let waits = writers.stop().await?;
            longest.push(waits.longest_ms);
            p99.push(waits.p99_ms);
        }
    }
    for (dumper, longest, p99, stall_ms) in seen {
        let name = dumper.map_or("no dump", |dumper| dumper.name(kind));
        let mut row = Measurement::new(WAITS, setting(kind, set, plan.rows), name, "ms", longest);
        row.also.insert("p99_ms", p99.iter().copied().fold(0.0, f64::max));
        if let Some(stall_ms) = stall_ms {
            row.also.insert("lock_held_ms", stall_ms);
        }
        rows.push(row);
    }
    Ok(())
}
