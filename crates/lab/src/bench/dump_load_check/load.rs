//! `tailwater bench load`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use tailwater_sandbox::{Server, ServerKind};

use super::benchmark_servers::{checksums, empty, fill, start_source, start_target};
use super::compared_tools::LoadTool;
use super::copy;
use super::program_measurement::{self, RunCost};
use super::{Headline, TablesPlan, kinds, setting, summarise};
use crate::arguments::{TablesBench, TablesData};
use crate::bench::benchmark_report::{BenchReport, MachineInfo, Measurement};
use crate::fault_trial::TrialFolder;

const LOAD: &str = "load into an empty server";

/// Runs the benchmark for one server family, or for both.
///
/// # Errors
/// If a measurement fails, or Tailwater loads other rows than were dumped.
pub async fn load(options: &TablesBench) -> anyhow::Result<BenchReport> {
    let plan = TablesPlan::new(options);
    let myloader = program_measurement::version("myloader", "mydumper")?;
    let folder = TrialFolder::new(None)?;
    let machine = MachineInfo::look(folder.path())?;
    let mut rows = Vec::new();
    let mut notes = vec![format!(
        "{} connections each through the Unix socket, into an empty server without a binlog that syncs each commit; \
             contenders take turns on one server, which is emptied and idle; an earlier load, which is not counted, has touched its memory; the \
             figure is the median of the repeats, the spread is their minimum and maximum",
        super::WORKERS
    )];
    let mut versions = vec![("myloader".to_owned(), myloader)];
    for kind in kinds(options.server)? {
        for set in plan.sets.iter().copied() {
            let dumps = PreparedDumps::make(&plan, kind, set, folder.path()).await?;
            versions.push((LoadTool::Stock.name(kind).to_owned(), dumps.version.clone()));
            let target = start_target(kind, plan.rows).await?;
            measure(&plan, &target, set, &dumps, folder.path(), &mut rows, &mut notes).await?;
            std::fs::remove_dir_all(&dumps.folder)?;
            copy::measure(&plan, &dumps.source, &target, set, folder.path(), &mut rows).await?;
        }
    }
    let ours = Headline { name: "load", measurement: LOAD, ours: "tailwater, zstd", against: &[] };
    let mut report = summarise(&ours, rows, &versions, machine, notes)?;
    let copied = Headline { name: "copy", measurement: copy::COPY, ours: copy::OURS, against: &[] };
    report.notes.extend(super::ratios(&copied, &report.rows));
    Ok(report)
}

/// The dumps of the same data by all tools.
struct PreparedDumps {
    folder: PathBuf,
    checksums: BTreeMap<String, String>,
    version: String,
    source: Server,
}

impl PreparedDumps {
    async fn make(
        plan: &TablesPlan,
        kind: ServerKind,
        set: TablesData,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let source = start_source(kind, plan.rows).await?;
        eprintln!("{kind}, {}: creating {} rows", set.name(), plan.rows);
        fill(&source, set, plan.rows).await?;
        let dumps = folder.join("dumps");
        std::fs::create_dir_all(&dumps)?;
        for loader in LoadTool::ALL {
            let program = loader.dumper().program(&source, set, plan.rows, &Self::of(&dumps, loader))?;
            program.run(&[&source], &folder.join("output")).await?;
        }
        let checksums = checksums(&source, set, plan.rows).await?;
        Ok(Self { folder: dumps, checksums, version: source.version().to_owned(), source })
    }

    fn of(dumps: &Path, loader: LoadTool) -> PathBuf {
        dumps.join(format!("{:?}", loader.dumper()))
    }
}

/// Measures all load tools in turn.
async fn measure(
    plan: &TablesPlan,
    target: &Server,
    set: TablesData,
    dumps: &PreparedDumps,
    folder: &Path,
    rows: &mut Vec<Measurement>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let kind = target.kind();
    let first = LoadTool::OursPlain;
    let program = first.program(target, &PreparedDumps::of(&dumps.folder, first))?;
    program.run(&[target], &folder.join("output")).await?;
    let mut runs: Vec<(LoadTool, Vec<RunCost>)> = LoadTool::ALL.map(|loader| (loader, Vec::new())).into();
    for repeat in 0..plan.repeats {
        for (loader, measured) in &mut runs {
            empty(target, set).await?;
            let program = loader.program(target, &PreparedDumps::of(&dumps.folder, *loader))?;
            let run = program.run(&[target], &folder.join("output")).await?;
            eprintln!(
                "{kind}, {}, {}, repeat {}: {:.2} s, CPU {:.2} s, server's {:.2} s, {:.0} MiB of memory",
                set.name(),
                loader.name(kind),
                repeat + 1,
                run.seconds,
                run.cpu_seconds,
                run.server_cpu_seconds,
                run.memory_mib
            );
            if repeat == 0
                && let Some(note) = check(plan, target, set, *loader, dumps).await?
            {
                notes.push(note);
            }
            measured.push(run);
        }
    }
    for (loader, measured) in runs {
        let rates = measured.iter().map(|run| plan.rows as f64 / run.seconds).collect();
        let mut row =
            Measurement::new(LOAD, setting(kind, set, plan.rows), loader.name(kind), "rows/s", rates);
        row.also = super::further_costs(&measured);
        rows.push(row);
    }
    Ok(())
}

/// Compares the target with the source. If Tailwater loaded the rows, a difference is an error. If another
/// tool loaded them, a difference is only reported.
async fn check(
    plan: &TablesPlan,
    target: &Server,
    set: TablesData,
    loader: LoadTool,
    dumps: &PreparedDumps,
) -> anyhow::Result<Option<String>> {
    let found = checksums(target, set, plan.rows).await?;
    let differs: Vec<_> = dumps
        .checksums
        .iter()
        .filter(|(table, sum)| found.get(*table) != Some(sum))
        .map(|(table, _)| table.as_str())
        .collect();
    if differs.is_empty() {
        return Ok(None);
    }
    let name = loader.name(target.kind());
    ensure!(
        !name.starts_with(super::compared_tools::OURS),
        "the rows that {name} loaded into {} differ from the source",
        differs.join(", ")
    );
    Ok(Some(format!(
        "{}, {}: the rows that {name} loaded differ from the dumped rows (CHECKSUM TABLE differs): {}",
        target.kind(),
        set.name(),
        differs.join(", ")
    )))
}
