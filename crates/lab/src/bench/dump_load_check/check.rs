//! `tailwater bench check`

use std::path::Path;

use anyhow::{Context, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec};
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use super::benchmark_servers::{fill, options};
use super::program_measurement::{self, MeasuredProgram, RunCost};
use super::{Headline, TablesPlan, WORKERS, kinds, setting, summarise};
use crate::arguments::{TablesBench, TablesData};
use crate::bench::benchmark_report::{BenchReport, MachineInfo, Measurement};
use crate::fault_trial::{TrialFolder, primary_options};
use tailwater_daemon::error_chain::ErrorChain;

const CHECK: &str = "compare a primary with its replica";
const PEER: &str = "pt-table-checksum";

/// The tools that compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckTool {
    /// Tailwater.
    Ours,
    /// Tailwater with `--digests client`: the rows are sent to the client, which computes longer digests.
    OursClient,
    /// Tailwater with one connection, which compares one chunk after the other.
    OursOne,
    /// pt-table-checksum, which has one connection.
    Peer,
}

impl CheckTool {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "tailwater",
            Self::OursClient => "tailwater, --digests client",
            Self::OursOne => "tailwater, 1 worker",
            Self::Peer => PEER,
        }
    }

    fn program(self, source: &Server, target: &Server, set: TablesData) -> anyhow::Result<MeasuredProgram> {
        let workers = if self == Self::OursOne { 1 } else { WORKERS };
        let digests = if self == Self::OursClient { "client" } else { "quick" };
        Ok(match self {
            Self::Ours | Self::OursClient | Self::OursOne => MeasuredProgram::new(std::env::current_exe()?)
                .arguments(["check", "--source-user=root", "--target-user=root", "--database", set.schema()])
                .arguments(["--workers", &workers.to_string(), "--digests", digests])
                .path_argument("--source-socket=", source.socket())
                .path_argument("--target-socket=", target.socket()),
            Self::Peer => MeasuredProgram::new(PEER)
                .arguments(["--user=root", "--databases", set.schema(), "--no-version-check"])
                .arguments(["--recursion-method=dsn=D=percona,t=dsns", "--no-check-binlog-format", "--quiet"])
                .path_argument("--socket=", source.socket()),
        })
    }
}

/// Runs the benchmark for one server family, or for both.
///
/// # Errors
/// If a measurement fails, or Tailwater reports differences between equal tables.
pub async fn check(options: &TablesBench) -> anyhow::Result<BenchReport> {
    let plan = TablesPlan::new(options);
    let version = program_measurement::version(PEER, "percona-toolkit")?;
    let folder = TrialFolder::new(None)?;
    let machine = MachineInfo::look(folder.path())?;
    let mut rows = Vec::new();
    let mut notes = vec![
        format!(
            "a primary and its native replica with the same rows and no other clients; tailwater on {WORKERS} connections to each server and on \
             one, {PEER} on its only connection; contenders take turns, the figure is the median of the repeats"
        ),
        "server_cpu_s is the CPU time of the primary alone".to_owned(),
        format!(
            "{PEER} compares 32 bits of CRC32 of each row, combined by XOR, so that equal changes of two rows cancel each other; tailwater does the same between \
             MariaDB servers, but multiplies, so that they do not cancel; with --digests client, and always on MySQL, 128 bits of XXH3"
        ),
    ];
    for kind in kinds(options.server)? {
        for set in plan.sets.iter().copied() {
            let (source, target) = in_step(kind, set, plan.rows).await?;
            measure(&plan, (&source, &target), set, folder.path(), &mut rows, &mut notes).await?;
        }
    }
    let ours = Headline { name: "check", measurement: CHECK, ours: CheckTool::Ours.name(), against: &[] };
    summarise(&ours, rows, &[(PEER.to_owned(), version)], machine, notes)
}

/// Starts a primary and its replica with the same rows.
async fn in_step(kind: ServerKind, set: TablesData, rows: u64) -> anyhow::Result<(Server, Server)> {
    let spec = |name: &str| {
        ServerSpec::new(kind)
            .name(name)
            .options(primary_options(kind))
            .options(["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0"])
            .options(options(kind, rows))
    };
    let source = Server::start(spec("source")).await?;
    let target = Server::start(spec("target").option("--server-id=2")).await?;
    eprintln!("{kind}, {}: creating {rows} rows on both servers", set.name());
    fill(&source, set, rows).await?;
    fill(&target, set, rows).await?;
    target.replicate_from(&source).await?;
    // pt-table-checksum reads the address of the replica from this table.
    let mut connection = Connection::connect(&source.socket_options()).await?;
    connection.execute("CREATE DATABASE percona").await?;
    connection
        .execute("CREATE TABLE percona.dsns (id INT PRIMARY KEY, parent_id INT, dsn VARCHAR(255))")
        .await?;
    let dsn = format!("INSERT INTO percona.dsns VALUES (1, NULL, 'h=127.0.0.1,P={},u=root')", target.port());
    connection.execute(&dsn).await?;
    connection.close().await;
    Ok((source, target))
}

async fn measure(
    plan: &TablesPlan,
    (source, target): (&Server, &Server),
    set: TablesData,
    folder: &Path,
    rows: &mut Vec<Measurement>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let kind = source.kind();
    let mut runs: Vec<(CheckTool, Vec<RunCost>)> =
        [CheckTool::Ours, CheckTool::OursClient, CheckTool::OursOne, CheckTool::Peer]
            .map(|checker| (checker, Vec::new()))
            .into();
    for repeat in 0..plan.repeats {
        for (checker, measured) in &mut runs {
            // Each run has its own output file, so that the output of an earlier run is not read again.
            let output = folder.join(format!("{}-{}-{repeat}", set.schema(), checker.name()));
            let run = checker.program(source, target, set)?.run(&[source], &output).await;
            let run = match run {
                Err(error) if *checker == CheckTool::Peer && kind.flavour() == Flavour::MySql => {
                    // pt-table-checksum uses statements that newer MySQL servers no longer have.
                    let note =
                        format!("{kind}, {}: {PEER} does not work: {}", set.name(), ErrorChain(&error));
                    if repeat == 0 {
                        notes.push(note);
                    }
                    continue;
                }
                run => run?,
            };
            if *checker != CheckTool::Peer {
                let text = std::fs::read_to_string(&output).context("cannot read the output of the check")?;
                ensure!(
                    text.contains("all the same"),
                    "{kind}: the check reports differences between equal tables: {text}"
                );
            }
            eprintln!(
                "{kind}, {}, {}, repeat {}: {:.2} s, CPU {:.2} s, primary's {:.2} s, {:.0} MiB of memory",
                set.name(),
                checker.name(),
                repeat + 1,
                run.seconds,
                run.cpu_seconds,
                run.server_cpu_seconds,
                run.memory_mib
            );
            measured.push(run);
        }
    }
    for (checker, measured) in runs.into_iter().filter(|(_, measured)| !measured.is_empty()) {
        let rates = measured.iter().map(|run| plan.rows as f64 / run.seconds).collect();
        let mut row = Measurement::new(CHECK, setting(kind, set, plan.rows), checker.name(), "rows/s", rates);
        row.also = super::further_costs(&measured);
        rows.push(row);
    }
    Ok(())
}
