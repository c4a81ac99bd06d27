//! Findings about a primary that answers: whether it takes writes, and whether commits wait for ACKs.

use crate::probe_failure::ProbeFailure;

use super::AnalysisSettings;
use super::failure_finding::{ClusterFinding, FailureCode};
use super::observation_history::{ObservationHistory, ServerHistory};
use super::observer_report::SemiSyncHealth;

pub(super) fn judge(
    history: &ObservationHistory,
    settings: &AnalysisSettings,
    now_ms: u64,
    findings: &mut Vec<ClusterFinding>,
) {
    let name = &history.members.primary;
    let Some(server) = history.server(name) else { return };
    if let Some(rewound) = &server.rewound {
        let evidence = vec![rewound.what.clone()];
        findings.push(ClusterFinding::new(FailureCode::RewoundPrimary, name, rewound.at_ms, evidence));
    }
    let blocked = blocked(server, name, settings, now_ms);
    let unwritable = unwritable(server, name, settings, now_ms, blocked.is_some());
    findings.extend(out_of_connections(server, name, settings, now_ms));
    let degraded = degraded(server, name, (settings, now_ms), blocked.is_some());
    findings.extend(degraded.filter(|_| settings.semi_sync));
    findings.extend(blocked);
    findings.extend(unwritable);
}

fn semi_sync(server: &ServerHistory) -> Option<SemiSyncHealth> {
    server.vitals.as_ref().and_then(|(_, vitals)| vitals.semi_sync)
}

/// Returns since when the manager's own write hangs.
fn hangs_since(server: &ServerHistory) -> Option<u64> {
    let (since, failure) = server.write?.failing?;
    (failure == ProbeFailure::TimedOut).then_some(since)
}

fn blocked(
    server: &ServerHistory,
    name: &str,
    settings: &AnalysisSettings,
    now_ms: u64,
) -> Option<ClusterFinding> {
    let semi_sync = semi_sync(server).filter(|semi_sync| semi_sync.enabled)?;
    let since = server.waiting_since_ms?;
    // The manager's own write may have started to wait before the server was observed.
    let since = hangs_since(server).map_or(since, |hangs| hangs.min(since));
    let waited = now_ms.saturating_sub(since);
    if waited < settings.blocked_after_ms {
        return None;
    }
    let mut evidence = vec![format!(
        "{} sessions wait for acknowledgements, and none has arrived for {waited} ms",
        semi_sync.waiting_sessions
    )];
    evidence.push(if semi_sync.clients < semi_sync.acks_needed {
        format!(
            "{} of the {} ackers that a commit needs are connected",
            semi_sync.clients, semi_sync.acks_needed
        )
    } else {
        format!(
            "{} ackers are connected and {} must acknowledge: they do not, or their acknowledgements are lost",
            semi_sync.clients, semi_sync.acks_needed
        )
    });
    Some(ClusterFinding::new(FailureCode::SemiSyncBlocked, name, since, evidence))
}

/// A primary whose connections are all in use is alive, and a failover would not help: the clients would use
/// all connections of the new primary. Mostly one large transaction blocks all others.
fn out_of_connections(
    server: &ServerHistory,
    name: &str,
    settings: &AnalysisSettings,
    now_ms: u64,
) -> Option<ClusterFinding> {
    let since = server.connections_full_since_ms?;
    let lasted = now_ms.saturating_sub(since);
    if lasted < settings.detect_after_ms {
        return None;
    }
    let mut evidence = vec![format!("the server accepts no new connection for {lasted} ms")];
    if let Some((_, vitals)) = &server.vitals {
        let usage = &vitals.connections;
        evidence.push(format!("{} of {} connections are in use", usage.connected, usage.connections_max));
        evidence.extend(usage.busy_with.iter().map(|state| format!("sessions: {state}")));
        evidence.extend(usage.largest_transaction.iter().map(ToString::to_string));
    }
    Some(ClusterFinding::new(FailureCode::OutOfConnections, name, since, evidence))
}

fn unwritable(
    server: &ServerHistory,
    name: &str,
    settings: &AnalysisSettings,
    now_ms: u64,
    is_blocked: bool,
) -> Option<ClusterFinding> {
    if let Some((since, failure @ (ProbeFailure::ReadOnly | ProbeFailure::DiskFull))) =
        server.write.and_then(|write| write.failing)
    {
        let evidence = vec![format!("the manager: a write failed: {failure}")];
        return Some(ClusterFinding::new(FailureCode::PrimaryReadOnlyOrFull, name, since, evidence));
    }
    if let Some((at, vitals)) = server.vitals.as_ref().filter(|(_, vitals)| !vitals.writable) {
        let mut evidence = vec!["the primary reports that it is read-only".to_owned()];
        if vitals.replicates {
            evidence.push(
                "the primary replicates from another server: is that server the primary now?".to_owned(),
            );
        }
        return Some(ClusterFinding::new(FailureCode::PrimaryReadOnlyOrFull, name, *at, evidence));
    }
    let since =
        hangs_since(server).filter(|since| now_ms.saturating_sub(*since) >= settings.blocked_after_ms)?;
    // If commits wait for ACKs, the manager's write hangs too. This case has its own failure code.
    let waits = semi_sync(server).is_some_and(|semi_sync| semi_sync.waiting_sessions > 0);
    if is_blocked || waits {
        return None;
    }
    let evidence = vec![format!(
        "the manager: a write hangs for {} ms, and no commit waits for an acknowledgement: is a disk full, or are all tables locked?",
        now_ms.saturating_sub(since)
    )];
    Some(ClusterFinding::new(FailureCode::PrimaryReadOnlyOrFull, name, since, evidence))
}

fn degraded(
    server: &ServerHistory,
    name: &str,
    (settings, now_ms): (&AnalysisSettings, u64),
    is_blocked: bool,
) -> Option<ClusterFinding> {
    let (at, vitals) = server.vitals.as_ref()?;
    // A short lack of ackers is normal: a relay may just start, or change its source.
    let lasts = |since_ms: u64| now_ms.saturating_sub(since_ms) >= settings.detect_after_ms;
    let is_short = server.too_few_since_ms.is_some_and(lasts);
    let Some(semi_sync) = vitals.semi_sync else {
        let evidence = vec!["semi-sync is not available: its plugin is not loaded".to_owned()];
        return Some(ClusterFinding::new(FailureCode::SemiSyncDegraded, name, *at, evidence));
    };
    let mut evidence = Vec::new();
    if !semi_sync.enabled {
        evidence.push("semi-sync is switched off".to_owned());
    } else if !semi_sync.active {
        evidence.push("semi-sync has fallen back: commits do not wait".to_owned());
    }
    if semi_sync.enabled && !semi_sync.lossless {
        evidence.push(
            "commits wait only for a limited time, or other sessions see them before they are acknowledged"
                .to_owned(),
        );
    }
    if semi_sync.enabled && is_short && !is_blocked {
        evidence.push(format!(
            "{} of the {} ackers that a commit needs are connected: the next commit waits",
            semi_sync.clients, semi_sync.acks_needed
        ));
    }
    let alone = semi_sync.unacknowledged.saturating_sub(server.unacknowledged_first.unwrap_or_default());
    if alone > 0 {
        evidence.push(format!("{alone} commits were reported to clients without an acknowledgement"));
    }
    (!evidence.is_empty()).then(|| ClusterFinding::new(FailureCode::SemiSyncDegraded, name, *at, evidence))
}
