//! The part of `tailwater bench load` that goes from server to server.

use std::path::Path;

use anyhow::ensure;
use tailwater_sandbox::{Server, ServerKind};

use super::contender::{self, Dumper, Loader};
use super::program::{Measured, Program};
use super::source::{checksums, empty};
use super::{Plan, WORKERS, setting};
use crate::args::TablesData;
use crate::bench::report::Row;

/// The measurement's name.
pub const COPY: &str = "copy to an empty server";
/// Ours in it.
pub const OURS: &str = "tailwater copy";

/// Who copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copier {
    Ours,
    /// A dump to the disk, and behind it a load.
    Peer(Dumper, Loader),
}

const COPIERS: [Copier; 3] = [
    Copier::Ours,
    Copier::Peer(Dumper::MydumperParts, Loader::Myloader),
    Copier::Peer(Dumper::Stock, Loader::Stock),
];

impl Copier {
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
    ) -> anyhow::Result<Measured> {
        let (servers, output) = ([source, target], folder.join("output"));
        match self {
            Self::Ours => {
                let workers = WORKERS.to_string();
                let program = Program::new(std::env::current_exe()?)
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

/// Measures all of them in turns, each into the emptied target.
///
/// # Errors
/// If one fails, or ours copies other rows.
pub async fn measure(
    plan: &Plan,
    source: &Server,
    target: &Server,
    set: TablesData,
    folder: &Path,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    let kind = source.kind();
    let wanted = checksums(source, set, plan.rows).await?;
    let mut runs: Vec<(Copier, Vec<Measured>)> = COPIERS.map(|copier| (copier, Vec::new())).into();
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
            let same = *copier != Copier::Ours || checksums(target, set, plan.rows).await? == wanted;
            ensure!(same, "{} has copied other rows", contender::OURS);
            measured.push(run);
        }
    }
    for (copier, measured) in runs {
        let rates = measured.iter().map(|run| plan.rows as f64 / run.seconds).collect();
        let mut row = Row::new(COPY, setting(kind, set, plan.rows), copier.name(kind), "rows/s", rates);
        row.also = super::also(&measured);
        rows.push(row);
    }
    Ok(())
}
