//! The part of `tailwater bench load` that copies tables from server to server.

use std::path::Path;

use anyhow::ensure;
use tailwater_sandbox::{Server, ServerKind};

use super::benchmark_servers::{checksums, empty};
use super::compared_tools::{self, DumpTool, LoadTool};
use super::program_measurement::{MeasuredProgram, RunCost};
use super::{TablesPlan, WORKERS, setting};
use crate::arguments::TablesData;
use crate::bench::benchmark_report::Measurement;

/// The name of the measurement in the report.
pub const COPY: &str = "copy to an empty server";
/// The name of Tailwater's contender in the report.
pub const OURS: &str = "tailwater copy";

/// The tools that copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyTool {
    Ours,
    /// A dump to the disk by another tool, followed by a load.
    Peer(DumpTool, LoadTool),
}

const COPY_TOOLS: [CopyTool; 3] = [
    CopyTool::Ours,
    CopyTool::Peer(DumpTool::MydumperParts, LoadTool::Myloader),
    CopyTool::Peer(DumpTool::Stock, LoadTool::Stock),
];

impl CopyTool {
    fn name(self, kind: ServerKind) -> String {
        match self {
            Self::Ours => OURS.to_owned(),
            Self::Peer(dumper, loader) => format!("{} + {}", dumper.tool(kind), loader.tool(kind)),
        }
    }

    async fn run(
        self,
        source: &Server,
        target: &Server,
        set: TablesData,
        rows: u64,
        folder: &Path,
    ) -> anyhow::Result<RunCost> {
        let (servers, output) = ([source, target], folder.join("output"));
        match self {
            Self::Ours => {
                let workers = WORKERS.to_string();
                let program = MeasuredProgram::new(std::env::current_exe()?)
                    .arguments(["copy", "--source-user=root", "--target-user=root", "--workers", &workers])
                    .arguments(["--database", set.schema()])
                    .path_argument("--source-socket=", source.socket())
                    .path_argument("--target-socket=", target.socket());
                program.run(&servers, &output).await
            }
            Self::Peer(dumper, loader) => {
                let between = folder.join("between");
                let dumped = dumper.program(source, set, rows, &between)?.run(&servers, &output).await?;
                let loaded = loader.program(target, &between)?.run(&servers, &output).await?;
                std::fs::remove_dir_all(&between)?;
                Ok(dumped.then(loaded))
            }
        }
    }
}

/// Measures all tools in turn. The target is emptied before each copy.
///
/// # Errors
/// If a tool fails, or Tailwater copies wrong rows.
pub async fn measure(
    plan: &TablesPlan,
    source: &Server,
    target: &Server,
    set: TablesData,
    folder: &Path,
    rows: &mut Vec<Measurement>,
) -> anyhow::Result<()> {
    let kind = source.kind();
    let wanted = checksums(source, set, plan.rows).await?;
    let mut runs: Vec<(CopyTool, Vec<RunCost>)> = COPY_TOOLS.map(|copier| (copier, Vec::new())).into();
    for repeat in 0..plan.repeats {
        for (copier, measured) in &mut runs {
            empty(target, set).await?;
            let run = copier.run(source, target, set, plan.rows, folder).await?;
            eprintln!(
                "{kind}, {}, {}, repeat {}: {:.2} s, CPU {:.2} s, servers' {:.2} s, {:.0} MiB of memory",
                set.name(),
                copier.name(kind),
                repeat + 1,
                run.seconds,
                run.cpu_seconds,
                run.server_cpu_seconds,
                run.memory_mib
            );
            let same = *copier != CopyTool::Ours || checksums(target, set, plan.rows).await? == wanted;
            ensure!(same, "{} has copied rows that differ from the source", compared_tools::OURS);
            measured.push(run);
        }
    }
    for (copier, measured) in runs {
        let rates = measured.iter().map(|run| plan.rows as f64 / run.seconds).collect();
        let mut row =
            Measurement::new(COPY, setting(kind, set, plan.rows), copier.name(kind), "rows/s", rates);
        row.also = super::further_costs(&measured);
        rows.push(row);
    }
    Ok(())
}
