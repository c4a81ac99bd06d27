//! Findings about replicas, relays, and other servers that take writes.

use crate::gtid_comparison::only;

use super::AnalysisSettings;
use super::dead_primary_detection::duration_suffix;
use super::failure_finding::{ClusterFinding, FailureCode};
use super::observation_history::{
    FailureStreak, ObservationHistory, ReportedStream, ServerHistory, one_line,
};
use super::observer_report::{Observer, ServerHealth};

pub(super) fn judge(
    history: &ObservationHistory,
    settings: &AnalysisSettings,
    now_ms: u64,
    is_primary_dead: bool,
    findings: &mut Vec<ClusterFinding>,
) {
    let answers =
        |name: &String| history.server(name).is_some_and(|server| server.is_answering(settings, now_ms));
    let members = &history.members;
    // If no member answers, the manager itself is probably cut off. The silence of a member then shows
    // nothing.
    let any_answers =
        answers(&members.primary) || members.replicas.iter().chain(&members.relays).any(answers);
    for (names, code) in
        [(&members.relays, FailureCode::DeadRelay), (&members.replicas, FailureCode::DeadReplica)]
    {
        for name in names {
            let streak = history.server(name).and_then(|server| server.streak);
            let dead = streak.filter(|streak| is_dead(streak, settings, now_ms, any_answers));
            findings.extend(dead.map(|streak| dead_finding(code, name, &streak, now_ms)));
        }
    }
    for name in members.relays.iter().filter(|_| answers(&members.primary)) {
        findings.extend(detached(history, name, settings, now_ms));
    }
    for name in members.replicas.iter().filter(|name| answers(name)) {
        if let Some(server) = history.server(name) {
            findings.extend(stopped(server, name, settings, now_ms));
            findings.extend(lag_finding(server, name, settings, now_ms));
        }
    }
    if is_primary_dead {
        findings.extend(competing_primary(history, settings, now_ms));
    } else {
        split_brain(history, settings, now_ms, findings);
    }
}

fn is_dead(streak: &FailureStreak, settings: &AnalysisSettings, now_ms: u64, anybody_answers: bool) -> bool {
    let lasted = now_ms.saturating_sub(streak.since_ms) >= settings.detect_after_ms;
    streak.refused_since_ms.is_some() || (lasted && anybody_answers)
}

fn dead_finding(code: FailureCode, name: &str, streak: &FailureStreak, now_ms: u64) -> ClusterFinding {
    let failure = match streak.refused_since_ms {
        Some(_) => "connection refused by a host that answers".to_owned(),
        None => streak.last.to_string(),
    };
    let lasted = now_ms.saturating_sub(streak.since_ms);
    ClusterFinding::new(
        code,
        name,
        streak.since_ms,
        vec![format!("the manager: {failure}{}", duration_suffix(lasted))],
    )
}

/// Finds a relay that has no stream from the primary, although the primary answers the manager.
fn detached(
    history: &ObservationHistory,
    name: &str,
    settings: &AnalysisSettings,
    now_ms: u64,
) -> Option<ClusterFinding> {
    if history.server(name).is_some_and(|relay| relay.streak.is_some()) {
        return None;
    }
    let primary = history.server(&history.members.primary)?;
    let (at, reported) = primary.streams.get(&Observer::Relay(name.to_owned()))?;
    let (what, since_ms) = match reported {
        ReportedStream::Lost { failure, since_ms } => (format!("lost its stream: {failure}"), *since_ms),
        ReportedStream::FollowsOther { since_ms } => ("follows another server".to_owned(), *since_ms),
        ReportedStream::Streaming { .. } => return None,
    };
    // A short time without a stream is normal: the relay may just start, or change its source in a
    // switchover.
    let lasts = now_ms.saturating_sub(since_ms) >= settings.detect_after_ms;
    let evidence = vec![format!("relay {name}: {what}"), "the primary answers the manager".to_owned()];
    let is_fresh = now_ms.saturating_sub(*at) <= settings.stale_after_ms;
    (is_fresh && lasts).then(|| ClusterFinding::new(FailureCode::RelayDetached, name, since_ms, evidence))
}

fn stopped(
    server: &ServerHistory,
    name: &str,
    settings: &AnalysisSettings,
    now_ms: u64,
) -> Option<ClusterFinding> {
    // A short stop is normal while a replica changes its source.
    let since_ms = server.stopped_since_ms?;
    let lasts = now_ms.saturating_sub(since_ms) >= settings.detect_after_ms;
    let (_, vitals) = server.vitals.as_ref().filter(|_| lasts)?;
    let receives =
        vitals.io_stopped.as_ref().map(|why| format!("the replica does not receive: {}", one_line(why)));
    let applies =
        vitals.sql_stopped.as_ref().map(|why| format!("the replica does not apply: {}", one_line(why)));
    let evidence: Vec<_> = receives.into_iter().chain(applies).collect();
    (!evidence.is_empty()).then(|| ClusterFinding::new(FailureCode::ReplicaStopped, name, since_ms, evidence))
}

fn lag_finding(
    server: &ServerHistory,
    name: &str,
    settings: &AnalysisSettings,
    now_ms: u64,
) -> Option<ClusterFinding> {
    let since = server.lagging_since_ms?;
    let lag = server.vitals.as_ref()?.1.lag_seconds?;
    let lasted = now_ms.saturating_sub(since);
    let evidence = vec![format!(
        "the replica is {lag} s behind, and more than {} s for {lasted} ms",
        settings.lag_seconds_max
    )];
    (lasted >= settings.lag_after_ms)
        .then(|| ClusterFinding::new(FailureCode::ReplicaLagging, name, since, evidence))
}

fn leads(vitals: &&(u64, ServerHealth)) -> bool {
    vitals.1.writable && !vitals.1.replicates
}

/// Returns the followers that take writes and do not replicate, according to recent reports.
fn leaders(
    history: &ObservationHistory,
    settings: &AnalysisSettings,
    now_ms: u64,
) -> Vec<(String, u64, ServerHealth)> {
    let lately = |name: &String| {
        let server = history.server(name).filter(|server| server.streak.is_none())?;
        let (at, vitals) = server.vitals.as_ref().filter(leads)?;
        let is_fresh = now_ms.saturating_sub(*at) <= settings.stale_after_ms;
        is_fresh.then(|| (name.clone(), *at, vitals.clone()))
    };
    history.members.replicas.iter().filter_map(lately).collect()
}

/// Returns true if no client has received an OK for a commit since the server started, and no client can
/// receive one, because too few ackers are connected. Such a server is a replaced primary that restarted, and
/// has not been promoted again.
fn holds_all_commits(vitals: &ServerHealth) -> bool {
    vitals.semi_sync.is_some_and(|semi_sync| {
        let waits = semi_sync.active && semi_sync.lossless && semi_sync.clients < semi_sync.acks_needed;
        waits && semi_sync.acknowledged == 0 && semi_sync.unacknowledged == 0
    })
}

/// Finds a follower that takes writes while the primary is dead: another tool may have promoted it.
fn competing_primary(
    history: &ObservationHistory,
    settings: &AnalysisSettings,
    now_ms: u64,
) -> Option<ClusterFinding> {
    let mut leaders = leaders(history, settings, now_ms).into_iter();
    let (name, at, leader) = leaders.find(|(_, _, vitals)| !holds_all_commits(vitals))?;
    let replicates = match leader.is_replication_known {
        true => "does not replicate",
        false => "does not report whether it replicates (a privilege is missing: `tailwater grants`)",
    };
    let evidence = vec![format!(
        "{name} takes writes and {replicates}, while {} is dead: was it promoted by another tool?",
        history.members.primary
    )];
    Some(ClusterFinding::new(FailureCode::SplitBrainSuspected, &name, at, evidence))
}

/// Finds two servers that take writes and do not replicate, each with transactions that the other lacks.
fn split_brain(
    history: &ObservationHistory,
    settings: &AnalysisSettings,
    now_ms: u64,
    findings: &mut Vec<ClusterFinding>,
) {
    let primary_name = &history.members.primary;
    let Some((_, primary)) =
        history.server(primary_name).and_then(|server| server.vitals.as_ref()).filter(leads)
    else {
        return;
    };
    for (name, at, other) in leaders(history, settings, now_ms) {
        let ours = only(&primary.executed, primary.server_id, &other.executed);
        let theirs = only(&other.executed, other.server_id, &primary.executed);
        let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
        let evidence = vec![
            match primary.is_replication_known && other.is_replication_known {
                true => format!("{primary_name} and {name} both take writes, and neither replicates"),
                false => format!(
                    "{primary_name} and {name} both take writes, and for one of them it is not known whether it replicates"
                ),
            },
            format!("only {primary_name} has {}", one_line(&ours)),
            format!("only {name} has {}", one_line(&theirs)),
        ];
        findings.push(ClusterFinding::new(FailureCode::SplitBrainSuspected, &name, at, evidence));
    }
}
