//! Decides whether the primary is dead, or only unreachable for the manager.
//!
//! A refused connection proves that the process does not exist; no further wait is needed unless an observer
//! still hears the primary. Silence alone proves nothing. It must last, another observer must have lost the
//! primary too, no observer may have heard it since, and most observers must be reachable; otherwise the
//! manager may be cut off.
//!
//! If all observers are reachable and agree, a shorter silence suffices: see [`unanimous_death`].

use super::AnalysisSettings;
use super::finding::{ClusterFinding, FailureCode};
use super::history::{FailureStreak, ObservationHistory, ServerHistory};
use super::observer_reports::{ObserverReports, SilenceThreshold, collect};

/// Assessment of the primary.
pub(super) struct PrimaryAssessment {
    /// It answers the manager.
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
    // A server that was never seen alive may be a wrong address, so another observer must confirm.
    let at_once = is_gone && server.answered_ms.is_some();
    let most = reports.has_majority();
    evidence.extend(reports.lost);
    if !reports.undecided.is_empty() {
        // They decide within the same time: either they lose the primary or they hear it.
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
        "no other observer confirms it".to_owned()
    });
    silent(Some(ClusterFinding::new(FailureCode::UnreachablePrimary, name, streak.since_ms, evidence)))
}

/// After a stall that was not a death, the next silence must last this many times as long.
const STALL_FACTOR: u64 = 3;

/// Reports of the others if all agree that the primary is dead before `detect_after_ms`: neither the open
/// connection nor a new one is answered, and every stream with a heartbeat due was lost or silent for as
/// long.
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
    // A new connection is tried later than the open one.
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
        Some(at) => format!("; it last answered {} ms ago", now_ms.saturating_sub(at)),
        None if lasted > 0 => "; it was never seen alive".to_owned(),
        // There was only one observation.
        None => String::new(),
    };
    let failure = match streak.refused_since_ms {
        Some(_) => "connection refused by a host that answers".to_owned(),
        None => streak.last.to_string(),
    };
    format!("the manager: {failure}{}{seen}", duration_suffix(lasted))
}

/// Duration as a suffix; empty if it is 0.
pub(super) fn duration_suffix(lasted_ms: u64) -> String {
    if lasted_ms == 0 { String::new() } else { format!(", for {lasted_ms} ms") }
}
