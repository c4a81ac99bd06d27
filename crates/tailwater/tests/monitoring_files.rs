//! The alert rules and the Grafana dashboard of docs/monitoring: promtool accepts the rules, each rule fires
//! when it must and only then, and all expressions use metrics that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_http_api::metrics::metric_families::{METRIC_GROUPS, MetricKind};
use tailwater_sandbox::Prometheus;

pub const RULES: &str = include_str!("../../../docs/monitoring/alerts.yml");
const DASHBOARD: &str = include_str!("../../../docs/monitoring/grafana-dashboard.json");

/// An alert rule. Each of its keys is on one line of the file.
#[derive(Debug, Default)]
pub struct AlertRule {
    pub name: String,
    pub expression: String,
    minutes: u32,
    texts: BTreeMap<String, String>,
}

/// Returns the rules of the file.
pub fn alert_rules() -> Vec<AlertRule> {
    let mut rules: Vec<AlertRule> = Vec::new();
    for line in RULES.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.split_once(": ") else { continue };
        if let "- alert" = key {
            rules.push(AlertRule { name: value.to_owned(), ..AlertRule::default() });
        } else if let Some(rule) = rules.last_mut() {
            match key {
                "expr" => value.clone_into(&mut rule.expression),
                "for" => rule.minutes = minutes(value),
                _ => drop(rule.texts.insert(key.to_owned(), value.to_owned())),
            }
        }
    }
    rules
}

/// Converts a duration in the notation of Prometheus to minutes, rounded up.
fn minutes(text: &str) -> u32 {
    let (number, unit) = text.split_at(text.len() - 1);
    let number: u32 = number.parse().expect("the duration begins with a number");
    match unit {
        "h" => number * 60,
        "m" => number,
        _ => number.div_ceil(60),
    }
}

fn promtool() -> Option<PathBuf> {
    Prometheus::require().map(|prometheus| prometheus.with_file_name("promtool"))
}

fn run_promtool(program: &Path, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    let text = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "promtool {arguments:?} failed: {}", String::from_utf8_lossy(&text));
    Ok(())
}

#[test]
fn promtool_accepts_the_rules() -> Result<()> {
    let Some(promtool) = promtool() else { return Ok(()) };
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitoring/alerts.yml");
    run_promtool(&promtool, &["check", "rules", "--lint=all", "--lint-fatal", &rules.display().to_string()])
}

#[test]
fn each_rule_says_what_is_wrong_and_what_to_do() {
    let rules = alert_rules();
    assert!(rules.len() > 20, "only {} rules were found", rules.len());
    for rule in &rules {
        let text = |key: &str| rule.texts.get(key).map(String::as_str).unwrap_or_default();
        assert!(
            rule.name.starts_with("Tailwater") && !rule.expression.is_empty(),
            "the rule has another prefix in its name, or no expression: {rule:?}"
        );
        assert!(
            text("labels").contains("critical") || text("labels").contains("warning"),
            "the rule has no severity: {rule:?}"
        );
        assert!(!text("summary").is_empty(), "the rule has no summary: {rule:?}");
        let names_an_action =
            ["Run `", "run `", "See ", "Look at", "Find ", "Set ", "Start ", "Free ", "It tries again"];
        assert!(
            names_an_action.iter().any(|words| text("description").contains(words)),
            "the description of the rule names no action: {rule:?}"
        );
        for page in text("description").split([' ', ';', ',']).filter(|word| word.starts_with("docs/")) {
            let page = page.trim_end_matches(['.', ':', '"']).trim_end_matches('.');
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
            assert!(path.is_file(), "{}: {page} does not exist", rule.name);
        }
    }
}

/// The page for users lists each alert with its severity.
#[test]
fn each_rule_is_documented() {
    let page = include_str!("../../../docs/how-to/monitoring.md");
    let rows: BTreeSet<_> = page.lines().filter(|line| line.starts_with("| `Tailwater")).collect();
    let rules = alert_rules();
    for rule in &rules {
        let severity = if rule.texts["labels"].contains("critical") { "critical" } else { "warning" };
        let found = rows.iter().filter(|row| {
            row.starts_with(&format!("| `{}` |", rule.name)) && row.ends_with(&format!("| {severity} |"))
        });
        assert_eq!(found.count(), 1, "the page does not list {} once with its severity", rule.name);
    }
    assert_eq!(rows.len(), rules.len(), "the page has alerts without a rule");
}

/// The samples of a fault: each series, its value without the fault (`_` for no sample), and its value during
/// the fault. The test adds the label `instance` to each series.
struct Case {
    alert: &'static str,
    series: &'static [(&'static str, &'static str, &'static str)],
}

const fn case(alert: &'static str, series: &'static [(&'static str, &'static str, &'static str)]) -> Case {
    Case { alert, series }
}

/// One or more cases for each alert rule. During the fault of a case, only the alert of the case fires.
const CASES: &[Case] = &[
    case("TailwaterDown", &[("up{job=\"tailwater\"}", "1", "0")]),
    case("TailwaterNoLeader", &[("tailwater_manager_leader{cluster=\"c\"}", "1", "0")]),
    case(
        "TailwaterFailoverRefused",
        &[
            ("tailwater_manager_leader{cluster=\"c\"}", "1", "1"),
            ("tailwater_manager_failover_refused_by{cluster=\"c\",rule=\"TW-MGR-0032\"}", "_", "1"),
        ],
    ),
    case(
        "TailwaterFailoverReadinessUnknown",
        &[("tailwater_manager_failover_readiness_known{cluster=\"c\"}", "1", "0")],
    ),
    case(
        "TailwaterFailoverHeldBack",
        &[
            ("tailwater_manager_automatic{cluster=\"c\"}", "1", "1"),
            ("tailwater_manager_paused{cluster=\"c\"}", "0", "1"),
            ("tailwater_manager_failover_unacknowledged{cluster=\"c\"}", "0", "0"),
        ],
    ),
    case(
        "TailwaterFailoverHeldBack",
        &[
            ("tailwater_manager_automatic{cluster=\"c\"}", "1", "1"),
            ("tailwater_manager_paused{cluster=\"c\"}", "0", "0"),
            ("tailwater_manager_failover_unacknowledged{cluster=\"c\"}", "0", "1"),
        ],
    ),
    case(
        "TailwaterAuditRecordsNotStorable",
        &[("tailwater_manager_audit_records_storable{cluster=\"c\"}", "1", "0")],
    ),
    case("TailwaterRelayRefusesManager", &[("tailwater_manager_relays_refusing{cluster=\"c\"}", "0", "1")]),
    case(
        "TailwaterRelayDown",
        &[("tailwater_manager_findings{cluster=\"c\",code=\"DeadRelay\",server=\"relay2\"}", "_", "1")],
    ),
    case(
        "TailwaterRewoundPrimary",
        &[("tailwater_manager_findings{cluster=\"c\",code=\"RewoundPrimary\",server=\"db1\"}", "_", "1")],
    ),
    case(
        "TailwaterRewoundPrimary",
        &[
            ("tailwater_capture_fault{source=\"c\",code=\"TW-RELAY-0003\"}", "_", "1"),
            ("tailwater_capture_state{source=\"c\",state=\"streaming\"}", "1", "0"),
            ("tailwater_capture_state{source=\"c\",state=\"refused\"}", "0", "1"),
        ],
    ),
    case(
        "TailwaterFinding",
        &[("tailwater_manager_findings{cluster=\"c\",code=\"DeadPrimary\",server=\"db1\"}", "_", "1")],
    ),
    case(
        "TailwaterCaptureNotStreaming",
        &[
            ("tailwater_capture_fault{source=\"c\",code=\"TW-SES-0002\"}", "_", "1"),
            ("tailwater_capture_state{source=\"c\",state=\"streaming\"}", "1", "0"),
            ("tailwater_capture_state{source=\"c\",state=\"waiting\"}", "0", "1"),
        ],
    ),
    case(
        "TailwaterSemiSyncDegraded",
        &[
            ("tailwater_capture_semi_sync_alarms{source=\"c\",code=\"TW-RELAY-0101\"}", "_", "1"),
            // The lower number of ackers fires no other alert, because no commit waits for ACKs.
            ("tailwater_capture_semi_sync_in_force{source=\"c\"}", "1", "0"),
            ("tailwater_capture_semi_sync_ackers{source=\"c\"}", "2", "1"),
            ("tailwater_capture_semi_sync_acks_needed{source=\"c\"}", "1", "1"),
        ],
    ),
    case(
        "TailwaterCommitsWithoutAck",
        &[("tailwater_capture_commits_without_ack_total{source=\"c\"}", "0", "7")],
    ),
    case(
        "TailwaterNoSecondAcker",
        &[
            ("tailwater_capture_semi_sync_in_force{source=\"c\"}", "1", "1"),
            ("tailwater_capture_semi_sync_ackers{source=\"c\"}", "2", "1"),
            ("tailwater_capture_semi_sync_acks_needed{source=\"c\"}", "1", "1"),
        ],
    ),
    case(
        "TailwaterLogDiskLow",
        &[
            ("tailwater_log_disk_size_bytes", "1000000000000", "1000000000000"),
            ("tailwater_log_disk_free_bytes", "6000000000", "5000000000"),
        ],
    ),
    case(
        "TailwaterLogDiskLow",
        &[
            ("tailwater_log_disk_size_bytes", "20000000000", "20000000000"),
            ("tailwater_log_disk_free_bytes", "1100000000", "900000000"),
        ],
    ),
    case(
        "TailwaterLogNotArchived",
        &[
            ("tailwater_log_archive_fault{source=\"c\",code=\"TW-LOG-0014\"}", "_", "1"),
            ("tailwater_log_archive_waiting_bytes{source=\"c\"}", "0", "1000000"),
        ],
    ),
    case("TailwaterLogDiskFilling", &[("tailwater_log_disk_full_in_seconds", "_", "21000")]),
    case("TailwaterChannelFailed", &[("tailwater_apply_state{channel=\"r\",state=\"failed\"}", "0", "1")]),
    case(
        "TailwaterChannelNotRunning",
        &[("tailwater_apply_state{channel=\"r\",state=\"connecting\"}", "0", "1")],
    ),
    case(
        "TailwaterChannelLagging",
        &[
            ("tailwater_apply_delay_seconds{channel=\"r\"}", "3600", "3600"),
            ("tailwater_apply_lag_seconds{channel=\"r\"}", "3660", "3661"),
        ],
    ),
    case(
        "TailwaterBackupTooOld",
        &[
            ("tailwater_backup_age_max_seconds{backup=\"b\"}", "3600", "3600"),
            ("tailwater_backup_dumps{backup=\"b\"}", "1", "1"),
            // The clock of promtool starts at 0, so the time of an old backup is negative.
            ("tailwater_backup_newest_timestamp_seconds{backup=\"b\"}", "10000", "-10000"),
        ],
    ),
    case("TailwaterBackupTooOld", &[("tailwater_backup_dumps{backup=\"b\"}", "1", "0")]),
    case("TailwaterCheckFoundDrift", &[("tailwater_check_differences{check=\"d\"}", "0", "3")]),
    case(
        "TailwaterCheckTooOld",
        &[
            ("tailwater_check_age_max_seconds{check=\"d\"}", "3600", "3600"),
            ("tailwater_check_finished_timestamp_seconds{check=\"d\"}", "10000", "-10000"),
        ],
    ),
    case("TailwaterResultUnreadable", &[("tailwater_backup_readable{backup=\"b\"}", "1", "0")]),
    case("TailwaterResultUnreadable", &[("tailwater_check_readable{check=\"d\"}", "1", "0")]),
];

/// How many minutes of a test come before its fault.
const HEALTHY_MINUTES: u32 = 10;

impl Case {
    /// Returns the promtool test of this case. Before the fault no rule fires. After the time of the rule
    /// only this rule fires. After the fault no rule fires.
    fn test(&self, minutes: u32) -> String {
        let (begin, end) = (HEALTHY_MINUTES, HEALTHY_MINUTES + minutes + 4);
        let mut test = "  - interval: 1m\n    input_series:\n".to_owned();
        for (series, healthy, faulty) in self.series {
            let series = match series.strip_suffix('}') {
                Some(labeled) => format!("{labeled},instance=\"relay1\"}}"),
                None => format!("{series}{{instance=\"relay1\"}}"),
            };
            // In the notation of promtool, `1x4` means five samples, and `_x4` means no sample for four
            // minutes.
            let first = match *healthy {
                "_" => format!("_x{}", begin + 1),
                value => format!("{value}x{begin}"),
            };
            // A counter keeps its value after the fault.
            let last = match if series.contains("_total") { *faulty } else { *healthy } {
                "_" => "stale _x30".to_owned(),
                value => format!("{value}x30"),
            };
            let values = format!("{first} {faulty}x{} {last}", end - begin - 1);
            let _ = writeln!(test, "      - series: '{series}'\n        values: '{values}'");
        }
        test += "    promql_expr_test:\n";
        for (minute, fires) in [(begin, false), (end - 1, true), (end + 20, false)] {
            let _ = writeln!(
                test,
                "      - expr: 'count by (alertname) (ALERTS{{alertstate=\"firing\"}})'\n        eval_time: {minute}m"
            );
            if fires {
                let labels = format!("{{alertname=\"{}\"}}", self.alert);
                let _ = writeln!(test, "        exp_samples: [{{ labels: '{labels}', value: 1 }}]");
            }
        }
        test
    }
}

#[test]
fn each_rule_fires_for_its_fault_alone() -> Result<()> {
    let Some(promtool) = promtool() else { return Ok(()) };
    let rules = alert_rules();
    let mut covered: BTreeSet<_> = CASES.iter().map(|case| case.alert).collect();
    // This rule needs a histogram, so its test is added below.
    covered.insert("TailwaterLogSyncSlow");
    let all: BTreeSet<_> = rules.iter().map(|rule| rule.name.as_str()).collect();
    ensure!(covered == all, "rules without a case, or cases without a rule: {:?}", &covered ^ &all);
    let folder = tempfile::tempdir()?;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitoring/alerts.yml");
    let mut test =
        format!("rule_files: [{:?}]\nevaluation_interval: 1m\ntests:\n", file.display().to_string());
    for case in CASES {
        let rule = rules.iter().find(|rule| rule.name == case.alert).context("the case has no rule")?;
        test += &case.test(rule.minutes);
    }
    // First all syncs are fast, then only half of them, then all again.
    test += "  - interval: 1m\n    input_series:\n";
    for (bound, before, after) in
        [("0.05", 100, 50), ("0.1", 100, 50), ("0.25", 100, 100), ("+Inf", 100, 100)]
    {
        let series =
            format!("tailwater_log_sync_seconds_bucket{{source=\"c\",instance=\"relay1\",le=\"{bound}\"}}");
        let _ = writeln!(
            test,
            "      - series: '{series}'\n        values: '0+{before}x20 {}+{after}x20 {}+{before}x30'",
            20 * before + after,
            20 * before + 21 * after + before
        );
    }
    test += "    promql_expr_test:\n";
    for (minute, expected) in
        [(19, ""), (40, "{ labels: '{alertname=\"TailwaterLogSyncSlow\"}', value: 1 }"), (70, "")]
    {
        let _ = writeln!(
            test,
            "      - expr: 'count by (alertname) (ALERTS{{alertstate=\"firing\"}})'\n        eval_time: {minute}m\n        exp_samples: [{expected}]"
        );
    }
    let path = folder.path().join("rules.test.yml");
    std::fs::write(&path, test)?;
    run_promtool(&promtool, &["test", "rules", &path.display().to_string()])
}

/// Returns the names of all samples, each with the labels that it may have.
fn known_samples() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut known = BTreeMap::new();
    known.insert("up".to_owned(), BTreeSet::new());
    for family in METRIC_GROUPS.iter().flat_map(|group| group.families) {
        let labels: BTreeSet<_> = family.labels.iter().copied().collect();
        if family.kind == MetricKind::Histogram {
            for suffix in ["_sum", "_count"] {
                known.insert(format!("{}{suffix}", family.name), labels.clone());
            }
            let labels = labels.into_iter().chain(["le"]).collect();
            known.insert(format!("{}_bucket", family.name), labels);
        } else {
            known.insert(family.sample_name(), labels);
        }
    }
    known
}

/// Checks that each metric of an expression exists and has the labels that the expression selects by.
fn check_expression(expression: &str) -> Result<usize> {
    let known = known_samples();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = 0;
    for (at, _) in expression.match_indices("tailwater_") {
        let end = expression[at..].find(|c: char| !is_word(c)).map_or(expression.len(), |end| at + end);
        let (name, rest) = (&expression[at..end], &expression[end..]);
        let labels = known.get(name).with_context(|| format!("there is no metric {name}: {expression}"))?;
        found += 1;
        let Some((selectors, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
            continue;
        };
        for selector in selectors.split("\",") {
            let label = selector.trim().split(|c: char| !is_word(c)).next().unwrap_or_default();
            let is_known = labels.contains(label) || ["instance", "job"].contains(&label);
            ensure!(is_known, "{name} has no label {label:?}: {expression}");
        }
    }
    Ok(found)
}

#[test]
fn expressions_use_metrics_that_exist() -> Result<()> {
    for rule in alert_rules() {
        let found = check_expression(&rule.expression)?;
        ensure!(
            found > 0 || rule.name == "TailwaterDown",
            "the expression uses no metric: {}",
            rule.expression
        );
    }
    ensure!(check_expression("tailwater_capture_stat").is_err());
    ensure!(check_expression("tailwater_capture_state{server=\"db1\"}").is_err());
    let dashboard: Value = serde_json::from_str(DASHBOARD)?;
    let panels = dashboard["panels"].as_array().context("the dashboard has no panels")?;
    let mut expressions = 0;
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().context("a panel has no queries")?;
        ensure!(
            !targets.is_empty() && panel["title"].is_string(),
            "a panel has no query or no title: {panel:#}"
        );
        for target in targets {
            let expression = target["expr"].as_str().context("a query has no expression")?;
            expressions += check_expression(expression)?;
        }
    }
    for variable in dashboard["templating"]["list"].as_array().into_iter().flatten() {
        expressions += check_expression(variable["definition"].as_str().unwrap_or_default())?;
    }
    ensure!(expressions > 40, "only {expressions} expressions were found");
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    ensure!(ids.len() == panels.len(), "two panels have the same id");
    Ok(())
}

/// Prometheus parses the dashboard's expressions, with values for Grafana's variables.
#[test]
fn prometheus_parses_the_expressions_of_the_dashboard() -> Result<()> {
    let Some(promtool) = promtool() else { return Ok(()) };
    let dashboard: Value = serde_json::from_str(DASHBOARD)?;
    let folder = tempfile::tempdir()?;
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    for (number, target) in targets.enumerate() {
        let expression = target["expr"].as_str().unwrap_or_default().replace("$__rate_interval", "1m");
        let _ = writeln!(rules, "      - record: panel_{number}\n        expr: {}", Value::from(expression));
    }
    let path = folder.path().join("dashboard.yml");
    std::fs::write(&path, rules)?;
    run_promtool(&promtool, &["check", "rules", &path.display().to_string()])
}
