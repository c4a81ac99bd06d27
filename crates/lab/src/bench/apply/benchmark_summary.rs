//! The report of the benchmark: rows of figures, the headline figure, and each ratio as a sentence.

use std::collections::BTreeMap;

use tailwater_sandbox::ServerKind;

use super::SYNC_DELAY;
use super::backlog_replay::Replay;
use super::benchmark_plan::{Conditions, HEADLINE, PlannedWorkload};
use super::delay_under_steady_load::{LoadLevel, MeasuredFollower, SourceAckMode, StreamDelay};
use super::replication_variant::{Contender, NativeSettings};
use super::source_backlog::{Backlog, CLIENTS};
use crate::bench::benchmark_report::{BenchReport, MachineInfo, Measurement, Peer, setting};

const REPLAY: &str = "replaying a backlog";
const SCREEN: &str = "native settings, each on a slice of the backlog";
const STEADY: &str = "from a commit on the source until the target shows it";
const UNIT: &str = "transactions/s";

fn conditions_setting(
    kind: ServerKind,
    act: &PlannedWorkload,
    conditions: Conditions,
) -> BTreeMap<&'static str, String> {
    let fsync = match conditions.slow_fsync {
        true => format!("+{} ms", SYNC_DELAY.as_millis()),
        false => "as it is".into(),
    };
    setting(&[
        ("server", kind.name()),
        ("workload", act.workload.name()),
        ("durability", conditions.durability_name()),
        ("fsync", &fsync),
    ])
}

/// Returns the report row for a contender's replays of one backlog.
pub fn replay_row(
    kind: ServerKind,
    act: &PlannedWorkload,
    conditions: Conditions,
    contender: Contender,
    backlog: &Backlog,
    replays: &[Replay],
) -> Measurement {
    let rates = replays.iter().map(|replay| backlog.transactions as f64 / replay.seconds).collect();
    let mut row = Measurement::new(
        REPLAY,
        conditions_setting(kind, act, conditions),
        contender.to_string(),
        UNIT,
        rates,
    );
    let mean = |figure: fn(&Replay) -> f64| replays.iter().map(figure).sum::<f64>() / replays.len() as f64;
    let (transactions, rows) = (backlog.transactions as f64, backlog.rows as f64);
    row.also.insert("seconds", transactions / row.median);
    row.also.insert("rows_per_second", rows / transactions * row.median);
    row.also.insert("cpu_s_per_million_rows", mean(|replay| replay.cpu_seconds) * 1e6 / rows);
    if let Some(mib) = replays.iter().filter_map(|replay| replay.memory_mib).reduce(f64::max) {
        row.also.insert("peak_memory_mib", mib);
    }
    row
}

/// Returns the report row for the rate of a native setting on its slice of the backlog.
pub fn screen_row(
    kind: ServerKind,
    act: &PlannedWorkload,
    conditions: Conditions,
    native: NativeSettings,
    rate: f64,
) -> Measurement {
    Measurement::new(SCREEN, conditions_setting(kind, act, conditions), native.to_string(), UNIT, vec![rate])
}

/// Returns the report row for a contender's delays in a steady stream. `rate` is the rate at which the
/// clients should commit.
pub fn delay_row(
    kind: ServerKind,
    follower: MeasuredFollower,
    promise: SourceAckMode,
    load: LoadLevel,
    rate: f64,
    delays: &[StreamDelay],
) -> Measurement {
    let setting = setting(&[
        ("server", kind.name()),
        ("workload", HEADLINE.name()),
        ("durability", Conditions::FULL.durability_name()),
        ("source", promise.name()),
        ("load", load.name()),
        ("transactions_per_second", &format!("{rate:.0}")),
    ]);
    let all = |of: fn(&StreamDelay) -> f64| delays.iter().map(of).collect::<Vec<_>>();
    let p99 = Measurement::new(STEADY, setting.clone(), "", "µs", all(|delay| delay.p99_ms * 1e3));
    let mut row =
        Measurement::new(STEADY, setting, format!("{follower}, p50"), "µs", all(|delay| delay.p50_ms * 1e3));
    row.also.insert("p99_us", p99.median);
    row.also.insert("p99_us_min", p99.min);
    row.also.insert("p99_us_max", p99.max);
    let count = delays.len() as f64;
    row.also.insert("transactions_per_second", all(|delay| delay.rate).iter().sum::<f64>() / count);
    row.also.insert("cpu_us_per_transaction", all(|delay| delay.cpu_us).iter().sum::<f64>() / count);
    row.also.insert("beacons", all(|delay| delay.beacons as f64).iter().sum::<f64>());
    row
}

/// The measurements of each follower.
pub type Delays = Vec<(MeasuredFollower, Vec<StreamDelay>)>;

/// Returns the report of delays alone. The headline figure compares medians in the first setting: Tailwater
/// with its defaults, and the lowest median of native replication. The ratio is above 1 if Tailwater's delay
/// is lower.
pub fn summarise_delays(
    rows: Vec<Measurement>,
    versions: &BTreeMap<&'static str, String>,
    machine: MachineInfo,
) -> BenchReport {
    let first: Vec<&Measurement> = match rows.first() {
        Some(first) => rows.iter().filter(|row| row.setting == first.setting).collect(),
        None => Vec::new(),
    };
    let least = |rows: &mut dyn Iterator<Item = &&Measurement>| {
        rows.map(|row| row.median).min_by(f64::total_cmp).unwrap_or(f64::NAN)
    };
    let native = least(&mut first.iter().filter(|row| is_native(row)));
    // Rows with another log durability have a suffix in their name (see `MeasuredFollower`), so this
    // comparison ignores them.
    let of_default = Contender::OURS.map(|ours| format!("{ours}, p50"));
    let ours = least(&mut first.iter().filter(|row| of_default.contains(&row.variant)));
    let peers = first.iter().filter(|row| is_native(row)).map(|row| Peer {
        name: row.variant.clone(),
        version: row
            .setting
            .get("server")
            .and_then(|server| versions.get(server.as_str()))
            .cloned()
            .unwrap_or_default(),
        value: row.median,
    });
    let peers = peers.collect();
    let notes = steady_explanations();
    BenchReport { name: "delay", unit: "µs", ours, peers, ratio: native / ours, rows, machine, notes }
}

/// Whether a row is a measurement of native replication.
fn is_native(row: &Measurement) -> bool {
    row.variant.starts_with("native")
}

/// Returns the fastest row of native replication.
fn best<'a>(rows: &[&'a Measurement]) -> Option<&'a Measurement> {
    rows.iter().copied().filter(|row| is_native(row)).max_by(|one, other| one.median.total_cmp(&other.median))
}

fn variant<'a>(rows: &[&'a Measurement], name: &str) -> Option<&'a Measurement> {
    rows.iter().copied().find(|row| row.variant == name)
}

/// Returns the whole report. If one side was not measured, its figures and the ratio are NaN.
pub fn summarise(
    mut rows: Vec<Measurement>,
    mut notes: Vec<String>,
    versions: &BTreeMap<&'static str, String>,
    machine: MachineInfo,
) -> BenchReport {
    // Groups the rows by measurement. Within a group, rows keep the order in which they were measured.
    let rank = |row: &Measurement| [REPLAY, STEADY, SCREEN].iter().position(|name| *name == row.measurement);
    rows.sort_by_key(rank);
    let replays: Vec<&Measurement> = rows.iter().filter(|row| row.measurement == REPLAY).collect();
    let mut settings: Vec<&BTreeMap<&'static str, String>> = Vec::new();
    for row in &replays {
        if !settings.contains(&&row.setting) {
            settings.push(&row.setting);
        }
    }
    notes.extend(explanations());
    notes.extend(steady_explanations());
    let mut headline = None;
    for setting in settings {
        let of_setting: Vec<&Measurement> =
            replays.iter().copied().filter(|row| row.setting == *setting).collect();
        notes.extend(ratios(setting, &of_setting));
        headline.get_or_insert(of_setting);
    }
    let headline = headline.unwrap_or_default();
    let ours = variant(&headline, &Contender::OURS[0].to_string()).map_or(f64::NAN, |row| row.median);
    let native = best(&headline).map_or(f64::NAN, |row| row.median);
    let version =
        |row: &Measurement| row.setting.get("server").and_then(|server| versions.get(server.as_str()));
    let peers = headline.iter().filter(|row| is_native(row)).map(|row| Peer {
        name: format!("{}, {}", row.setting.get("server").map_or("", String::as_str), row.variant),
        version: version(row).cloned().unwrap_or_default(),
        value: row.median,
    });
    let peers = peers.collect();
    BenchReport { name: "apply", unit: UNIT, ours, peers, ratio: ours / native, rows, machine, notes }
}

fn explanations() -> Vec<String> {
    vec![
        format!(
            "all contenders replay the same backlog with the same target settings: each replay starts \
             with a copy of the data from before the backlog, and ends when the last transaction is \
             visible; afterwards the data is compared with the source's; {CLIENTS} clients wrote the \
             backlog at full durability; keys are chosen uniformly, except in update-hot-rows"
        ),
        "before a replay, native replication has received everything into its relay log, and tailwater \
         into its log; both are running, and the time counts from the command that starts them"
            .into(),
        "the target writes no binlog, because native replication is fastest without one; full durability: sync_binlog=1 and \
         innodb_flush_log_at_trx_commit=1, relaxed: 0 and 2; buffer pool 512 MiB"
            .into(),
        "CPU seconds: of the target and of tailwater together".into(),
    ]
}

fn steady_explanations() -> Vec<String> {
    vec![
        "steady streams: each client commits at random moments, independently of the other clients. At \
         full load the requested rate is the transactions per second in the row's setting: half of the \
         highest rate at which native replication replays, or half of the rate at which the source wrote \
         its backlog, if that is less. Source, target and follower share one machine, so the clients may \
         reach a lower rate, which differs between followers: it is the row's own \
         transactions_per_second. At half load the requested rate is half of the rate that the clients \
         reached with the first follower, which is native replication at the setting that replays fastest \
         (in `bench delay`: a quarter of the rate that the clients reach without a follower). A delay is \
         the time from the client's OK until a reader of the target, which reads every 0.1 ms, sees the \
         commit; p99 is the median of the repeats' p99"
            .into(),
        "native replication does not sync its relay log (sync_relay_log=10000), so a failure of its \
         machine loses what it has acknowledged and applied, except in rows that say that it syncs \
         (sync_relay_log=1); tailwater syncs its log first if the source waits for it, and otherwise does \
         not, except in rows that say so (ack = \"durable\", \"received\")"
            .into(),
    ]
}

/// Compares Tailwater with the best native setting, in a sentence.
fn ratios(setting: &BTreeMap<&'static str, String>, rows: &[&Measurement]) -> Option<String> {
    let native = best(rows)?;
    let words: Vec<_> = setting.iter().map(|(key, value)| format!("{key} {value}")).collect();
    let figures: Vec<_> = rows
        .iter()
        .filter(|row| !is_native(row))
        .map(|row| {
            let cpu = |row: &Measurement| row.also.get("cpu_s_per_million_rows").copied().unwrap_or(f64::NAN);
            let (rate, cpu) = (row.median / native.median, cpu(row) / cpu(native));
            format!("{} {rate:.2} x its rate with {cpu:.2} x its CPU time", row.variant)
        })
        .collect();
    (!figures.is_empty()).then(|| {
        format!(
            "{}: the best native setting is {:?}; {}",
            words.join(", "),
            native.variant,
            figures.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::apply::replication_variant::ReplayOrder;
    use crate::bench::apply::tailwater_replay::LogDurability;

    fn row(server: &str, variant: &str, rate: f64, cpu: f64) -> Measurement {
        let setting = setting(&[("server", server)]);
        let mut row = Measurement::new(REPLAY, setting, variant, UNIT, vec![rate]);
        row.also.insert("cpu_s_per_million_rows", cpu);
        row
    }

    fn machine() -> MachineInfo {
        MachineInfo { cpu: String::new(), cpus: 2, memory_mib: 1, kernel: String::new(), fdatasync_us: 1.0 }
    }

    #[test]
    fn the_headline_compares_tailwater_with_the_best_native_setting_of_the_first_setting() {
        let rows = vec![
            row("mariadb", "native, single-threaded", 100.0, 10.0),
            row("mariadb", "native, optimistic, 4 workers", 200.0, 20.0),
            row("mariadb", "tailwater, independent", 1_000.0, 10.0),
            row("mariadb", "tailwater, source", 600.0, 10.0),
            row("mysql", "native, single-threaded", 1.0, 1.0),
        ];
        let versions = BTreeMap::from([("mariadb", "10.11".to_owned())]);
        let report = summarise(rows, Vec::new(), &versions, machine());
        assert_eq!((report.ours, report.ratio, report.peers.len()), (1_000.0, 5.0, 2));
        assert_eq!(report.peers[1].version, "10.11");
        let note = report.notes.last().expect("the report has notes");
        assert!(
            note.contains("independent 5.00 x its rate with 0.50 x"),
            "the note has a wrong ratio: {note}"
        );
        assert!(note.contains("source 3.00 x"), "the note has a wrong ratio: {note}");
    }

    #[test]
    fn the_headline_of_delays_compares_tailwaters_default_with_the_fastest_native_setting() {
        let delay =
            |ms| vec![StreamDelay { p50_ms: ms, p99_ms: 3.0, rate: 800.0, beacons: 800, cpu_us: 300.0 }];
        let native =
            |workers| MeasuredFollower::Native(NativeSettings::Mysql { workers, preserve_order: false });
        let ours = |order, held| MeasuredFollower::Ours(order, held);
        let followers = [
            (native(16), 0.8),
            (native(8), 0.6),
            (ours(ReplayOrder::Independent, LogDurability::Default), 1.2),
            (ours(ReplayOrder::Source, LogDurability::Default), 1.5),
            (ours(ReplayOrder::Independent, LogDurability::Received), 0.5),
            (ours(ReplayOrder::Independent, LogDurability::Durable), 0.4),
        ];
        let rows_of = |promise| {
            followers.map(|(follower, ms)| {
                delay_row(ServerKind::Mysql97, follower, promise, LoadLevel::Half, 800.0, &delay(ms))
            })
        };
        let rows = [rows_of(SourceAckMode::None), rows_of(SourceAckMode::Lossless)].concat();
        let versions = BTreeMap::from([(ServerKind::Mysql97.name(), "9.7".to_owned())]);
        let report = summarise_delays(rows, &versions, machine());
        assert_eq!((report.ours, report.ratio, report.peers.len()), (1_200.0, 0.5, 2));
        assert_eq!((report.peers[1].value, report.peers[1].version.as_str()), (600.0, "9.7"));
        let nothing = summarise_delays(Vec::new(), &versions, machine());
        assert!(nothing.ours.is_nan() && nothing.ratio.is_nan() && nothing.peers.is_empty());
    }

    #[test]
    fn if_only_one_side_is_measured_there_is_no_ratio() {
        let rows = vec![row("mysql", "native, single-threaded", 1.0, 1.0)];
        let report = summarise(rows, Vec::new(), &BTreeMap::new(), machine());
        assert!(report.ours.is_nan() && report.ratio.is_nan());
        let json = serde_json::to_value(&report).expect("the report serialises");
        assert!(json["ratio"].is_null() && json["peers"][0]["value"] == 1.0);
    }
}
