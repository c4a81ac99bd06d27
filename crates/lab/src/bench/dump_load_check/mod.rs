//! `tailwater bench dump`, `load` and `check`: dumps, loads and comparisons of whole tables by Tailwater and
//! by other tools.
//!
//! - [`test_data`]: the contents of the tables. [`benchmark_servers`]: servers with these tables.
//! - [`compared_tools`]: the tools with their best options. [`program_measurement`]: runs and measures one
//!   tool.
//! - [`dump`], [`load`], [`copy`] and [`check`]: the benchmarks.
//! - [`commit_latency`]: how much a dump slows down concurrent commits.

mod benchmark_servers;
mod check;
mod commit_latency;
mod compared_tools;
mod copy;
mod dump;
mod load;
mod program_measurement;
mod test_data;

pub use check::check;
pub use dump::dump;
pub use load::load;

use std::collections::BTreeMap;

use anyhow::Context;
use tailwater_sandbox::ServerKind;

use self::program_measurement::RunCost;
use super::benchmark_report::{BenchReport, MachineInfo, Measurement, Peer};
use crate::arguments::{ServerFamily, TablesBench, TablesData};
use crate::demo::choose_server;
use crate::fault_trial::ensure_installed;

/// Number of rows in each set of tables.
const ROWS: u64 = 10_000_000;
const ROWS_QUICK: u64 = 1_000_000;

/// Number of connections of all tools that support several connections.
const WORKERS: usize = 4;

/// How much is measured. The number of repeats is odd, so that the median is a measured value.
#[derive(Debug, Clone)]
struct TablesPlan {
    rows: u64,
    sets: Vec<TablesData>,
    repeats: u32,
    quick: bool,
}

impl TablesPlan {
    fn new(options: &TablesBench) -> Self {
        let rows = if options.quick { ROWS_QUICK } else { ROWS };
        let sets = options.data.map_or_else(|| TablesData::ALL.to_vec(), |data| vec![data]);
        Self { rows: options.rows.unwrap_or(rows), sets, repeats: options.repeats, quick: options.quick }
    }
}

/// Returns the server versions that are measured.
fn kinds(family: Option<ServerFamily>) -> anyhow::Result<Vec<ServerKind>> {
    let families = match family {
        Some(family) => vec![family],
        None => vec![ServerFamily::Mariadb, ServerFamily::Mysql],
    };
    families
        .into_iter()
        .map(|family| {
            let kind = choose_server(family, None)?;
            ensure_installed(kind)?;
            Ok(kind)
        })
        .collect()
}

/// The measurement of the headline figure, and Tailwater's name in it.
struct Headline {
    name: &'static str,
    measurement: &'static str,
    ours: &'static str,
    /// The tools that do everything that Tailwater does. Tools that do less are not compared, and the notes
    /// of the report name them.
    against: &'static [&'static str],
}

/// Creates the report from these rows. The headline figure is the figure of the first server with the tables
/// modelled on sysbench.
fn summarise(
    headline: &Headline,
    mut rows: Vec<Measurement>,
    versions: &[(String, String)],
    machine: MachineInfo,
    mut notes: Vec<String>,
) -> anyhow::Result<BenchReport> {
    // Puts the rows of each measurement next to each other. The measurements are in the order in which they
    // started.
    let mut order = Vec::new();
    for row in &rows {
        if !order.contains(&row.measurement) {
            order.push(row.measurement);
        }
    }
    rows.sort_by_key(|row| order.iter().position(|measurement| *measurement == row.measurement));
    notes.extend(ratios(headline, &rows));
    let (ours, mut peers) =
        peers_by_setting(headline, &rows).next().context("the benchmark has no measurements")?;
    peers.retain(|row| headline.against.is_empty() || headline.against.contains(&row.variant.as_str()));
    let version = |name: &str| {
        let known = versions.iter().find(|(tool, _)| name.starts_with(tool.as_str()));
        known.map(|(_, version)| version.clone()).unwrap_or_default()
    };
    let peer = |row: &&Measurement| Peer {
        name: row.variant.clone(),
        version: version(&row.variant),
        value: row.median,
    };
    let (ours, peers) = (ours.median, peers.iter().map(peer).collect::<Vec<_>>());
    let fastest = peers.iter().map(|peer| peer.value).fold(f64::NAN, f64::max);
    Ok(BenchReport {
        name: headline.name,
        unit: "rows/s",
        ours,
        peers,
        ratio: ours / fastest,
        rows,
        machine,
        notes,
    })
}

/// Returns Tailwater's row and the rows of the other tools, for each setting of a measurement.
fn peers_by_setting<'a>(
    headline: &'a Headline,
    rows: &'a [Measurement],
) -> impl Iterator<Item = (&'a Measurement, Vec<&'a Measurement>)> {
    let ours =
        rows.iter().filter(|row| row.measurement == headline.measurement && row.variant == headline.ours);
    ours.map(|ours| {
        let same = |row: &&Measurement| row.measurement == ours.measurement && row.setting == ours.setting;
        let peers = rows.iter().filter(same).filter(|row| !row.variant.starts_with(compared_tools::OURS));
        (ours, peers.collect())
    })
}

/// Compares Tailwater with each other tool, as text.
fn ratios(headline: &Headline, rows: &[Measurement]) -> Vec<String> {
    let words = |(ours, peers): (&Measurement, Vec<&Measurement>)| {
        let setting: Vec<_> = ours.setting.iter().map(|(key, value)| format!("{key} {value}")).collect();
        let words: Vec<_> = peers.iter().map(|peer| spread(ours, peer)).collect();
        format!("{}, {}: {} is {}", ours.measurement, setting.join(", "), ours.variant, words.join("; "))
    };
    peers_by_setting(headline, rows).filter(|(_, peers)| !peers.is_empty()).map(words).collect()
}

/// Returns further costs of the runs: the median CPU times, and the highest peak memory.
fn further_costs(runs: &[RunCost]) -> BTreeMap<&'static str, f64> {
    let median = |of: fn(&RunCost) -> f64| {
        let mut values: Vec<_> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    BTreeMap::from([
        ("seconds", median(|run| run.seconds)),
        ("cpu_s", median(|run| run.cpu_seconds)),
        ("server_cpu_s", median(|run| run.server_cpu_seconds)),
        ("peak_memory_mib", runs.iter().map(|run| run.memory_mib).fold(0.0, f64::max)),
    ])
}

/// Compares Tailwater with another tool, as text: the ratio of the medians, and the range of the ratio. The
/// range starts at Tailwater's worst run against the other tool's best run, and ends at the reverse.
fn spread(ours: &Measurement, peer: &Measurement) -> String {
    format!(
        "{:.2} x {} ({:.2} .. {:.2})",
        ours.median / peer.median,
        peer.variant,
        ours.min / peer.max,
        ours.max / peer.min
    )
}

/// Returns the parts of a setting that all measurements have in common.
fn setting(kind: ServerKind, set: TablesData, rows: u64) -> BTreeMap<&'static str, String> {
    super::benchmark_report::setting(&[
        ("server", kind.name()),
        ("data", set.name()),
        ("rows", &rows.to_string()),
    ])
}
