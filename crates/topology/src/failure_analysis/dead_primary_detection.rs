//! Decides whether the primary is dead, or only unreachable for the manager.
//!
//! A refused connection proves that the primary's process does not exist. If no observer still receives from
//! the primary, the primary then counts as dead at once. Silence alone proves nothing, because the manager
//! may be cut off. Therefore four conditions must hold. The silence must last. Another observer must have
//! lost the primary too. No observer may have received from the primary since the silence began. Most
//! observers must be reachable.
//!
//! If all observers are reachable and agree, a shorter silence suffices: see [`unanimous_death`].

use super::AnalysisSettings;
use super::failure_finding::{ClusterFinding, FailureCode};
use super::observation_history::{FailureStreak, ObservationHistory, ServerHistory};
use super::observer_agreement::{ObserverReports, SilenceThreshold, collect};

/// What the analysis shows about the primary.
pub(super) struct PrimaryAssessment {
    /// Whether the primary answers the manager.
    pub is_answering: bool,
    pub finding: Option<ClusterFinding>,
}

pub(super) fn judge(
    history: &ObservationHistory,
    settings: &AnalysisSettings,
    now_ms: u64,
) -> PrimaryAssessment {
    let name = &history.members.primary;
    let Some(server) = history.server(name) else {
        return PrimaryAssessment { is_answering: false, finding: None };
    };
    let silent = |finding: Option<ClusterFinding>| {
        let is_answering = finding.is_none() && server.is_answering(settings, now_ms);
        PrimaryAssessment { is_answering, finding }
    };
    let Some(streak) = server.streak else { return silent(None) };
    let mut evidence = vec![manager_evidence(server, &streak, now_ms)];
    if let Some(reports) = unanimous_death(history, server, &streak, settings, now_ms) {
        evidence.extend(reports.lost);
        evidence.push("all observers are reachable and agree".to_owned());
        return silent(Some(ClusterFinding::new(FailureCode::DeadPrimary, name, streak.since_ms, evidence)));
    }
    let reports = collect(history, server, &streak, (settings, SilenceThreshold::Full), now_ms);
    if !reports.alive.is_empty() && streak.is_only_overdue(settings, now_ms) {
        return silent(None);
    }
    if !reports.alive.is_empty() {
        evidence.extend(reports.alive);
        return silent(Some(ClusterFinding::new(
            FailureCode::UnreachablePrimary,
            name,
            streak.since_ms,
            evidence,
        )));
    }
    let lasted = now_ms.saturating_sub(streak.since_ms) >= settings.detect_after_ms;
    let is_gone = streak.refused_since_ms.is_some();
    let confirmed = !reports.lost.is_empty();
    // If the server was never seen alive, its address may be wrong, so another observer must confirm the
    // failure.
    let at_once = is_gone && server.answered_ms.is_some();
    let most = reports.has_majority();
    evidence.extend(reports.lost);
    if !reports.undecided.is_empty() {
        // Wait for the undecided observers. Each of them soon either loses the primary's stream or receives
        // an event from the primary, or its report becomes too old to count.
        return silent(None);
    }
    if at_once {
        return silent(Some(ClusterFinding::new(FailureCode::DeadPrimary, name, streak.since_ms, evidence)));
    }
    if !lasted {
        return silent(None);
    }
    if confirmed && (most || is_gone) {
        return silent(Some(ClusterFinding::new(FailureCode::DeadPrimary, name, streak.since_ms, evidence)));
    }
    evidence.push(if confirmed {
        "most observers are unreachable too: the manager may be cut off".to_owned()
    } else {
        "no other observer confirms that the primary is dead".to_owned()
    });
    silent(Some(ClusterFinding::new(FailureCode::UnreachablePrimary, name, streak.since_ms, evidence)))
}

/// If a recent silence of the primary ended with an answer, a new silence must last longer before all
/// observers can agree that the primary is dead: this many times as long as the recent silence.
const STALL_FACTOR: u64 = 3;

/// Returns the reports of the observers if all of them agree, before `detect_after_ms`, that the primary is
/// dead. The primary must answer the manager neither on the open connection nor on a new one. Every observer
/// whose stream has an overdue heartbeat must confirm this: its stream must be lost, or silent for as long as
/// the manager's open connection must be silent.
fn unanimous_death(
    history: &ObservationHistory,
    server: &ServerHistory,
    streak: &FailureStreak,
    settings: &AnalysisSettings,
    now_ms: u64,
) -> Option<ObserverReports> {
    server.answered_ms?;
    let stall_ms = server.last_stall_ms(now_ms).unwrap_or(0).saturating_mul(STALL_FACTOR);
    let enough_ms = stall_ms.max(settings.unanimous_detect_after_ms);
    let lasted = |since_ms: u64, enough_ms: u64| now_ms.saturating_sub(since_ms) >= enough_ms;
    let is_silent = lasted(streak.since_ms, enough_ms) && lasted(history.running_since_ms, enough_ms);
    // The manager tries a new connection only after the open connection fails. The new connection therefore
    // needs to fail only for half of the required time.
    let is_reconnect_silent =
        streak.reconnect_failing_since_ms.is_some_and(|since_ms| lasted(since_ms, enough_ms / 2));
    if !is_silent || !is_reconnect_silent {
        return None;
    }
    let reports = collect(history, server, streak, (settings, SilenceThreshold::Short(enough_ms)), now_ms);
    reports.is_unanimous().then_some(reports)
}

fn manager_evidence(server: &ServerHistory, streak: &FailureStreak, now_ms: u64) -> String {
    let lasted = now_ms.saturating_sub(streak.since_ms);
    let seen = match server.answered_ms {
        Some(at) => format!("; the primary last answered {} ms ago", now_ms.saturating_sub(at)),
        None if lasted > 0 => "; the primary was never seen alive".to_owned(),
        // There was only one observation, so no time can be given.
        None => String::new(),
    };
    let failure = match streak.refused_since_ms {
        Some(_) => "connection refused by a host that answers".to_owned(),
        None => streak.last.to_string(),
    };
    format!("the manager: {failure}{}{seen}", duration_suffix(lasted))
}

/// Returns a duration as the end of a message, such as `, for 3000 ms`; empty if the duration is 0.
pub(super) fn duration_suffix(lasted_ms: u64) -> String {
    if lasted_ms == 0 { String::new() } else { format!(", for {lasted_ms} ms") }
}
