//! `tailwater bench dump`, `load` and `check`: whole tables out of a server, into one, and compared, by us and by the peers.
//!
//! The map: [`test_data`] is what the tables are made of, [`servers`] a server that has them; [`program`] runs one of the
//! contenders and measures it, [`contender`] says how each is called at its best; [`dump`] and [`load`], with
//! [`copy`] and [`check`], are the benchmarks, [`commit_wait`] what a dump costs those who commit meanwhile.

mod check;
mod commit_wait;
mod contender;
mod copy;
mod dump;
mod load;
mod program;
mod servers;
mod test_data;

pub use check::check;
pub use dump::dump;
pub use load::load;

use std::collections::BTreeMap;

use anyhow::Context;
use tailwater_sandbox::ServerKind;

use self::program::RunCost;
use super::report::{BenchReport, MachineInfo, Measurement, Peer};
use crate::args::{ServerFamily, TablesBench, TablesData};
use crate::demo::choose_server;
use crate::trial::ensure_installed;

/// Rows of each set of tables.
const ROWS: u64 = 10_000_000;
const ROWS_QUICK: u64 = 1_000_000;

/// Connections of all contenders that can have several.
const WORKERS: usize = 4;

/// How much is measured: of an odd number of repeats the median is one that was seen.
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

/// The servers that are measured.
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

/// The measurement that is the headline, and who of it is ours.
struct Headline {
    name: &'static str,
    measurement: &'static str,
    ours: &'static str,
    /// The peers that do all that ours does, if some do less; those are named in the notes.
    against: &'static [&'static str],
}

/// The rows with what they come to: the headline is the first server's, for the data in the manner of sysbench.
fn summarise(
    headline: &Headline,
    mut rows: Vec<Measurement>,
    versions: &[(String, String)],
    machine: MachineInfo,
    mut notes: Vec<String>,
) -> anyhow::Result<BenchReport> {
    // Each measurement's rows stand together, in the order in which the measurements began.
    let mut order = Vec::new();
    for row in &rows {
        if !order.contains(&row.measurement) {
            order.push(row.measurement);
        }
    }
    rows.sort_by_key(|row| order.iter().position(|measurement| *measurement == row.measurement));
    notes.extend(ratios(headline, &rows));
    let (ours, mut peers) = contests(headline, &rows).next().context("nothing was measured")?;
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

/// Ours and its peers in each setting of a measurement.
fn contests<'a>(
    headline: &'a Headline,
    rows: &'a [Measurement],
) -> impl Iterator<Item = (&'a Measurement, Vec<&'a Measurement>)> {
    let ours =
        rows.iter().filter(|row| row.measurement == headline.measurement && row.variant == headline.ours);
    ours.map(|ours| {
        let same = |row: &&Measurement| row.measurement == ours.measurement && row.setting == ours.setting;
        let peers = rows.iter().filter(same).filter(|row| !row.variant.starts_with(contender::OURS));
        (ours, peers.collect())
    })
}

/// Ours against each peer, in words.
fn ratios(headline: &Headline, rows: &[Measurement]) -> Vec<String> {
    let words = |(ours, peers): (&Measurement, Vec<&Measurement>)| {
        let setting: Vec<_> = ours.setting.iter().map(|(key, value)| format!("{key} {value}")).collect();
        let words: Vec<_> = peers.iter().map(|peer| spread(ours, peer)).collect();
        format!("{}, {}: {} is {}", ours.measurement, setting.join(", "), ours.variant, words.join("; "))
    };
    contests(headline, rows).filter(|(_, peers)| !peers.is_empty()).map(words).collect()
}

/// What the runs took besides time: the medians, and the most memory.
fn also(runs: &[RunCost]) -> BTreeMap<&'static str, f64> {
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

/// Ours against a peer: the ratio of the medians, and from our worst against its best to the other way round.
fn spread(ours: &Measurement, peer: &Measurement) -> String {
    format!(
        "{:.2} x {} ({:.2} .. {:.2})",
        ours.median / peer.median,
        peer.variant,
        ours.min / peer.max,
        ours.max / peer.min
    )
}

/// What every measurement says of its setting.
fn setting(kind: ServerKind, set: TablesData, rows: u64) -> BTreeMap<&'static str, String> {
    super::report::setting(&[("server", kind.name()), ("data", set.name()), ("rows", &rows.to_string())])
}
