//! Tests of the failure analysis, case by case. Each folder below `tests/failure_analysis_cases` contains a
//! scenario (`reports.txt`) and the findings that it must produce (`expected_findings.txt`).
//! `TAILWATER_BLESS=1` writes the actual findings to `expected_findings.txt`; review the difference before
//! you keep it.
//!
//! A scenario consists of lines of words. Each event begins with its time in milliseconds:
//!
//! ```text
//! cast primary=db1 replicas=db2,db3 relays=r1      # the members; this is the default
//! set detect_after_ms=3000                         # a threshold of the analysis
//! 0 manager db1 select ok                          # or a failure: timed_out, refused, denied ...
//! 0 manager db1 select late 0                      # a ping that was sent at 0 is still unanswered
//! 0 r1 db1 streaming 0                             # the last event arrived at 0; `-` if that is unknown
//! 0 r1 db1 streaming 0 250                         # the same, with a heartbeat every 250 ms
//! 1000 db2 db1 lost refused
//! 1000 r1 db1 rewound the log has 0-1-9
//! 1000 vitals db1 executed=0-1-10 writable=no semi=1/1 waiting=3
//! 1000 pause | resume | failed_over | acknowledge | downtime db1 9000 a reason
//! 1000 woke                                        # the manager itself was stalled until now
//! 2000 ?                                           # analyse now, and list the findings
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use tailwater_topology::failure_analysis::observer_report::SemiSyncHealth;
use tailwater_topology::failure_analysis::{
    AnalysisSettings, ClusterMembers, Downtime, FailoverGuard, FailureCode, ObservationHistory, Observed,
    Observer, ObserverReport, ServerHealth, analyse,
};
use tailwater_topology::probe_failure::ProbeFailure;
use tailwater_topology::server_state::{ConnectionUsage, LargestTransaction, PingKind};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failure_analysis_cases")
}

#[test]
fn each_scenario_produces_its_expected_findings() -> Result<()> {
    let bless = std::env::var_os("TAILWATER_BLESS").is_some();
    let (mut seen, mut wrong, mut codes) = (0, Vec::new(), BTreeSet::new());
    for entry in fs::read_dir(folder())? {
        let path = entry?.path();
        let name = path.file_name().context("the path has no file name")?.to_string_lossy().into_owned();
        let input = fs::read_to_string(path.join("reports.txt")).with_context(|| name.clone())?;
        let found = tell(&input).with_context(|| name.clone())?;
        codes.extend(found.split_whitespace().filter_map(|word| word.strip_suffix(':')).map(str::to_owned));
        if bless {
            fs::write(path.join("expected_findings.txt"), &found)?;
        }
        let expected =
            fs::read_to_string(path.join("expected_findings.txt")).with_context(|| name.clone())?;
        if found != expected {
            wrong.push(format!("--- {name}: expected findings\n{expected}--- actual findings\n{found}"));
        }
        seen += 1;
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(seen >= 40, "the folder has too few scenarios: {seen}");
    // FailoverNotReady comes from a rehearsal, not from reports of observers: see failover_readiness.rs.
    let of_stories = FailureCode::ALL.into_iter().filter(|code| *code != FailureCode::FailoverNotReady);
    for code in of_stories {
        ensure!(codes.contains(&code.to_string()), "no scenario produces {code}");
    }
    Ok(())
}

#[test]
fn every_failure_code_has_a_section_in_the_docs() {
    let page = include_str!("../../../docs/reference/failure-codes.md");
    for code in FailureCode::ALL {
        assert_eq!(
            page.matches(&format!("\n## {code}\n")).count(),
            1,
            "docs/reference/failure-codes.md must have one section for {code}"
        );
    }
    assert_eq!(
        page.matches("\n## ").count(),
        FailureCode::ALL.len() + 1,
        "docs/reference/failure-codes.md must have one section for each code, and one on how codes are decided"
    );
}

/// Returns the findings at each `?` line of a scenario, as text.
fn tell(input: &str) -> Result<String> {
    let mut members = ClusterMembers {
        primary: "db1".into(),
        replicas: vec!["db2".into(), "db3".into()],
        relays: vec!["r1".into()],
    };
    let mut settings = AnalysisSettings::default();
    let mut guard = FailoverGuard::default();
    let mut record = None;
    let mut found = String::new();
    for line in input.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            ["cast", parts @ ..] => members = read_cast(parts)?,
            ["set", parts @ ..] => settings = read_settings(parts)?,
            [at, rest @ ..] => {
                let at_ms: u64 = at.parse().with_context(|| line.to_owned())?;
                let record = record.get_or_insert_with(|| ObservationHistory::new(members.clone(), settings));
                step(record, &mut guard, at_ms, rest, &mut found).with_context(|| line.to_owned())?;
            }
        }
    }
    Ok(found)
}

fn step(
    record: &mut ObservationHistory,
    guard: &mut FailoverGuard,
    at_ms: u64,
    words: &[&str],
    found: &mut String,
) -> Result<()> {
    match words {
        ["?"] => {
            found.push_str(&format!("at {at_ms}\n"));
            let findings = analyse(record, guard, at_ms);
            if findings.is_empty() {
                found.push_str("  nothing\n");
            }
            for finding in findings {
                let (code, server) = (finding.code, &finding.server);
                found.push_str(&format!(
                    "  {code}: {server}, since {}: {}\n",
                    finding.since_ms, finding.action
                ));
                for evidence in finding.evidence {
                    found.push_str(&format!("    {evidence}\n"));
                }
            }
        }
        ["woke"] => record.resumed(at_ms),
        ["pause"] => guard.pause(),
        ["resume"] => guard.resume(),
        ["failed_over"] => guard.failed_over(at_ms),
        ["acknowledge"] => guard.acknowledge(),
        ["back", server] => guard.end_downtime(Some(server)),
        ["downtime", server, until, reason @ ..] => guard.add_downtime(Downtime {
            server: Some((*server).to_owned()).filter(|server| server != "all"),
            from_ms: at_ms,
            until_ms: until.parse()?,
            reason: reason.join(" "),
        }),
        ["vitals", about, parts @ ..] => {
            let saw = Observed::Health(Box::new(read_vitals(about, parts)?));
            record.add(ObserverReport {
                at_ms,
                observer: Observer::Manager,
                about: (*about).to_owned(),
                saw,
            });
        }
        [observer, about, what @ ..] => {
            let is_relay = record.members().relays.iter().any(|relay| relay == observer);
            let observer = match *observer {
                "manager" => Observer::Manager,
                name if is_relay => Observer::Relay(name.to_owned()),
                name => Observer::Replica(name.to_owned()),
            };
            record.add(ObserverReport { at_ms, observer, about: (*about).to_owned(), saw: read_saw(what)? });
        }
        _ => bail!("the scenario has a line of an unknown form"),
    }
    Ok(())
}

fn read_saw(words: &[&str]) -> Result<Observed> {
    let failure = |word: &str| -> Result<ProbeFailure> { Ok(serde_json::from_value(word.into())?) };
    Ok(match words {
        ["streaming", "-"] => Observed::Streaming { heard_ms: None, heartbeat_ms: None },
        ["streaming", received] => {
            Observed::Streaming { heard_ms: Some(received.parse()?), heartbeat_ms: None }
        }
        ["streaming", received, every] => {
            Observed::Streaming { heard_ms: Some(received.parse()?), heartbeat_ms: Some(every.parse()?) }
        }
        [kind, "late", asked] => Observed::Overdue(serde_json::from_value((*kind).into())?, asked.parse()?),
        ["lost", word] => Observed::StreamLost(failure(word)?),
        ["rewound", rest @ ..] => Observed::HistoryRewound(rest.join(" ")),
        [kind, outcome] => {
            let kind: PingKind = serde_json::from_value((*kind).into())?;
            if *outcome == "ok" {
                Observed::Answered(kind)
            } else {
                Observed::Failed(kind, failure(outcome)?)
            }
        }
        _ => bail!("the scenario has a line of an unknown form"),
    })
}

fn pairs<'a>(parts: &'a [&'a str]) -> impl Iterator<Item = Result<(&'a str, &'a str)>> {
    parts.iter().map(|part| {
        part.split_once('=')
            .with_context(|| format!("a word of the scenario is not of the form KEY=VALUE: {part:?}"))
    })
}

fn read_cast(parts: &[&str]) -> Result<ClusterMembers> {
    let mut members = ClusterMembers::default();
    for pair in pairs(parts) {
        let (key, value) = pair?;
        let names = || value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        match key {
            "primary" => members.primary = value.to_owned(),
            "replicas" => members.replicas = names(),
            "relays" => members.relays = names(),
            _ => bail!("the scenario has a line with the unknown key {key}"),
        }
    }
    Ok(members)
}

fn read_settings(parts: &[&str]) -> Result<AnalysisSettings> {
    let mut table = toml::Table::new();
    for pair in pairs(parts) {
        let (key, value) = pair?;
        let value = match value.parse() {
            Ok(yes) => toml::Value::Boolean(yes),
            Err(_) => toml::Value::Integer(value.parse()?),
        };
        table.insert(key.to_owned(), value);
    }
    Ok(table.try_into()?)
}

fn read_vitals(about: &str, parts: &[&str]) -> Result<ServerHealth> {
    let is_primary = about == "db1";
    let mut vitals = ServerHealth {
        is_replication_known: true,
        identity: about.to_owned(),
        server_id: about.trim_start_matches("db").parse()?,
        writable: is_primary,
        executed: GtidSet::empty(Flavour::MariaDb),
        replicates: !is_primary,
        io_stopped: None,
        sql_stopped: None,
        lag_seconds: None,
        semi_sync: None,
        connections: ConnectionUsage::default(),
    };
    let default = SemiSyncHealth {
        enabled: true,
        active: true,
        lossless: true,
        clients: 1,
        acks_needed: 1,
        waiting_sessions: 0,
        acknowledged: 0,
        unacknowledged: 0,
    };
    vitals.semi_sync = Some(default).filter(|_| is_primary);
    for pair in pairs(parts) {
        let (key, value) = pair?;
        let yes = value == "yes";
        let text = || Some(value.replace('_', " "));
        match key {
            "server_id" => vitals.server_id = value.parse()?,
            "identity" => vitals.identity = value.to_owned(),
            "writable" => vitals.writable = yes,
            "replicates" => vitals.replicates = yes,
            "executed" if value.contains(':') => vitals.executed = GtidSet::parse(Flavour::MySql, value)?,
            "executed" => vitals.executed = GtidSet::parse(Flavour::MariaDb, value)?,
            "io_stopped" => vitals.io_stopped = text(),
            "sql_stopped" => vitals.sql_stopped = text(),
            "semi" if value == "none" => vitals.semi_sync = None,
            "lag" => vitals.lag_seconds = Some(value.parse()?),
            "connections" => {
                let (used, all) =
                    value.split_once('/').context("the value of connections= must be USED/ALL")?;
                (vitals.connections.connected, vitals.connections.connections_max) =
                    (used.parse()?, all.parse()?);
            }
            "large_transaction" => {
                vitals.connections.busy_with = vec!["29 in state: waiting for handler commit".to_owned()];
                vitals.connections.largest_transaction = Some(LargestTransaction {
                    session: value.parse()?,
                    user: "app".to_owned(),
                    rows: 1_300_000,
                    seconds: 12,
                    state: "waiting for handler commit".to_owned(),
                });
            }
            _ => {
                let semi_sync = vitals.semi_sync.get_or_insert(default);
                match key {
                    "semi" => {
                        let (clients, needed) =
                            value.split_once('/').context("the value of semi= must be CLIENTS/NEEDED")?;
                        (semi_sync.clients, semi_sync.acks_needed) = (clients.parse()?, needed.parse()?);
                    }
                    "enabled" => semi_sync.enabled = yes,
                    "active" => semi_sync.active = yes,
                    "lossless" => semi_sync.lossless = yes,
                    "waiting" => semi_sync.waiting_sessions = value.parse()?,
                    "acknowledged" => semi_sync.acknowledged = value.parse()?,
                    "unacknowledged" => semi_sync.unacknowledged = value.parse()?,
                    _ => bail!("the scenario has a line with the unknown key {key}"),
                }
            }
        }
    }
    Ok(vitals)
}
