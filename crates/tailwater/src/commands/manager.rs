//! `tailwater manager`: shows and controls the daemon's manager.

use std::fmt::Write;

use crate::arguments::{ManagerCommand, Output};
use crate::exit_codes::Exit;
use tailwater_binlog_stats::LocalTime;
use tailwater_config::Config;
use tailwater_daemon::api::clusters::ClusterReport;
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::api::manager_requests::{ManagerAnswer, ManagerRequest};
use tailwater_daemon::control_socket::{ask, socket_of};
use tailwater_manager::FailoverReadiness;

/// Runs `tailwater manager ...`: sends the request to the daemon, then prints the state of the clusters.
///
/// # Errors
/// If no daemon runs, the daemon has no manager, or the request fails.
pub fn manager(command: ManagerCommand, output: Output) -> anyhow::Result<Exit> {
    let (file, request) = match command {
        ManagerCommand::Status(file) => (file, ManagerRequest::Status),
        ManagerCommand::Pause(scope) => (scope.file, ManagerRequest::Pause { source: scope.source }),
        ManagerCommand::Resume(scope) => (scope.file, ManagerRequest::Resume { source: scope.source }),
        ManagerCommand::Acknowledge(scope) => {
            (scope.file, ManagerRequest::Acknowledge { source: scope.source })
        }
        ManagerCommand::RaiseTerms(arguments) => {
            (arguments.file, ManagerRequest::RaiseTerms { source: arguments.source })
        }
        ManagerCommand::Downtime(arguments) => {
            let for_ms = arguments
                .duration
                .filter(|_| !arguments.end)
                .map_or(0, |duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
            let request = ManagerRequest::Downtime {
                source: arguments.source,
                server: arguments.server,
                for_ms,
                reason: arguments.reason,
            };
            (arguments.file, request)
        }
    };
    let config = file.load()?;
    let ManagerAnswer::Clusters(clusters) = send(&config, request)? else {
        anyhow::bail!("unexpected answer of the daemon, which may run another version of Tailwater");
    };
    match output {
        Output::Json => println!("{}", serde_json::json!({ "clusters": clusters })),
        Output::Text => print!("{}", text(&clusters)),
    }
    Ok(Exit::Done)
}

/// Sends a request to the manager of the daemon with this configuration.
///
/// # Errors
/// If no daemon runs with that configuration, or the request fails.
pub(super) fn send(config: &Config, request: ManagerRequest) -> anyhow::Result<ManagerAnswer> {
    match ask(&socket_of(&config.log.directory), &ControlCommand::Manager(request))? {
        ControlAnswer::Manager(answer) => Ok(answer),
        ControlAnswer::Failed { code: Some(code), message } => anyhow::bail!("{code}: {message}"),
        ControlAnswer::Failed { code: None, message } => anyhow::bail!("{message}"),
        _ => anyhow::bail!("unexpected answer of the daemon, which may run another version of Tailwater"),
    }
}

fn text(clusters: &[ClusterReport]) -> String {
    let mut text = String::new();
    for cluster in clusters {
        let mode = if cluster.automatic { "automatic failover" } else { "manual failover" };
        let _ = writeln!(
            text,
            "{}: primary {}; {mode}; lease {}",
            cluster.source, cluster.primary, cluster.lease
        );
        for relay in &cluster.refusing {
            let _ = writeln!(text, "  {relay}");
        }
        if let Some(problem) = &cluster.records_problem {
            let _ = writeln!(text, "  a failover would be refused: {problem}");
        }
        let lossless =
            cluster.lossless.as_deref().unwrap_or("unknown: the primary has not been observed yet");
        let _ = writeln!(text, "  lossless: {lossless}");
        let _ = writeln!(text, "  failover: {}", cluster.readiness);
        write_guard(&mut text, cluster);
        if let Some(run) = &cluster.run {
            let _ = match &cluster.run_end {
                Some(end) => writeln!(text, "  last run: {run}: {}", end.trim_end().replace('\n', "; ")),
                None => writeln!(text, "  running: {run}"),
            };
        }
        let is_ready = matches!(cluster.readiness, FailoverReadiness::Ready { .. });
        if cluster.findings.is_empty() && is_ready {
            let _ = writeln!(text, "  nothing is wrong");
        }
        for finding in &cluster.findings {
            let since = moment(finding.since_ms);
            let _ = writeln!(text, "  {} {} since {since}: {}", finding.code, finding.server, finding.action);
            for evidence in &finding.evidence {
                let _ = writeln!(text, "    {}", tailwater_wire::printable(evidence));
            }
        }
    }
    text
}

/// Writes one line for each reason why there is no automatic failover.
pub(super) fn write_guard(text: &mut String, cluster: &ClusterReport) {
    if !cluster.guard_is_known {
        let _ = writeln!(
            text,
            "  the pause and the downtimes have not been read from etcd yet: no automatic failover"
        );
    }
    if cluster.guard.is_paused() {
        let _ = writeln!(text, "  paused: no automatic failover until `tailwater manager resume`");
    }
    if let Some(at_ms) = cluster.guard.last_failover_ms() {
        let at = moment(at_ms);
        let _ = writeln!(
            text,
            "  failover at {at}, not acknowledged: `tailwater manager acknowledge` allows the next one"
        );
    }
    for downtime in cluster.guard.downtimes().iter().filter(|downtime| downtime.until_ms > cluster.now_ms) {
        let server = downtime.server.as_deref().unwrap_or("everything");
        let _ = writeln!(
            text,
            "  {server} is down on purpose until {}: {}",
            moment(downtime.until_ms),
            if downtime.reason.is_empty() { "no reason given" } else { &downtime.reason }
        );
    }
}

fn moment(ms: u64) -> String {
    LocalTime(ms.saturating_mul(1000)).date_and_time()
}
