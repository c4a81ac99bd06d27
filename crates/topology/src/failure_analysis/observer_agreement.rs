//! What the other observers report about a primary that does not answer the manager.

use crate::probe_failure::Liveness;

use super::AnalysisSettings;
use super::observation_history::{FailureStreak, ObservationHistory, ReportedStream, ServerHistory};
use super::observer_report::Observer;

/// How many heartbeats must be missing before a stream counts as silent.
const HEARTBEATS_MISSED_MIN: u64 = 3;

/// The reports of the observers other than the manager.
#[derive(Default)]
pub(super) struct ObserverReports {
    /// Observers that received from the primary after it became silent to the manager.
    pub alive: Vec<String>,
    /// Observers that lost the primary's stream.
    pub lost: Vec<String>,
    /// Observers that have neither lost the primary's stream nor received from the primary since it became
    /// silent to the manager.
    pub undecided: Vec<String>,
    /// Number of observers that the manager reached after the primary became silent.
    reached: usize,
    /// Number of all observers.
    all: usize,
}

impl ObserverReports {
    /// Whether most observers, including the manager, can be reached.
    pub fn has_majority(&self) -> bool {
        2 * (1 + self.reached) > 1 + self.all
    }

    /// Whether at least one observer lost the primary, no observer reports otherwise, and the manager reached
    /// all observers.
    pub fn is_unanimous(&self) -> bool {
        !self.lost.is_empty()
            && self.alive.is_empty()
            && self.undecided.is_empty()
            && self.reached == self.all
    }
}

/// How long a stream must be silent before it counts as lost, and which lost streams show that the primary is
/// dead.
#[derive(Clone, Copy)]
pub(super) enum SilenceThreshold {
    /// A stream counts as lost after a silence of `detect_after_ms`. Every lost stream is evidence that the
    /// primary is dead.
    Full,
    /// A stream counts as lost after a silence of this many milliseconds, or later if its heartbeats are
    /// rarer.
    /// A stream that was lost well before the primary became silent shows nothing about the primary.
    Short(u64),
}

pub(super) fn collect(
    history: &ObservationHistory,
    server: &ServerHistory,
    streak: &FailureStreak,
    (settings, threshold): (&AnalysisSettings, SilenceThreshold),
    now_ms: u64,
) -> ObserverReports {
    let mut reports = ObserverReports::default();
    for observer in history.members.observers() {
        let stream = server.streams.get(&observer);
        let stream = stream.filter(|(at, _)| now_ms.saturating_sub(*at) <= settings.stale_after_ms);
        reports.all += 1;
        reports.reached += usize::from(is_reached(history, &observer, streak, stream.map(|(at, _)| *at)));
        // An observer without a report may read from a relay, and then has no stream of the primary.
        let Some((at_ms, stream)) = stream else { continue };
        match *stream {
            // The primary sent an error, so it was alive at that time. Only an error that was sent after the
            // silence began counts.
            ReportedStream::Lost { failure, .. } if failure.liveness() == Liveness::Alive => {
                if *at_ms > streak.last_ms {
                    reports.alive.push(format!("{observer}: the primary answers: {failure}"));
                }
            }
            ReportedStream::Lost { failure, since_ms } => {
                let is_of_now = match threshold {
                    SilenceThreshold::Full => true,
                    SilenceThreshold::Short(ms) => since_ms.saturating_add(ms) >= streak.since_ms,
                };
                if is_of_now {
                    reports.lost.push(format!("{observer}: lost its stream: {failure}"));
                }
            }
            ReportedStream::Streaming { heard_ms: None, .. } | ReportedStream::FollowsOther { .. } => {}
            ReportedStream::Streaming { heard_ms: Some(heard_ms), heartbeat_ms } => {
                let enough_ms = enough_ms(settings, threshold, heartbeat_ms);
                // A report shows the silence only up to the time of the report.
                let quiet_ms = at_ms.saturating_sub(heard_ms.max(history.running_since_ms));
                if quiet_ms >= enough_ms {
                    reports.lost.push(format!("{observer}: received nothing for {quiet_ms} ms"));
                } else if heard_ms > streak.since_ms {
                    let ago_ms = now_ms.saturating_sub(heard_ms);
                    reports.alive.push(format!("{observer}: received from the primary {ago_ms} ms ago"));
                } else if now_ms.saturating_sub(*at_ms) < settings.detect_after_ms {
                    // The analysis waits for this observer only if its report is recent. An observer without
                    // a recent report counts as unreachable.
                    reports.undecided.push(observer.to_string());
                }
            }
        }
    }
    reports
}

fn enough_ms(settings: &AnalysisSettings, threshold: SilenceThreshold, heartbeat_ms: Option<u64>) -> u64 {
    match (threshold, heartbeat_ms) {
        (SilenceThreshold::Short(ms), Some(heartbeat_ms)) => {
            let missed_ms = heartbeat_ms.saturating_mul(HEARTBEATS_MISSED_MIN);
            ms.max(missed_ms).min(settings.detect_after_ms)
        }
        _ => settings.detect_after_ms,
    }
}

/// Whether the manager reached the observer after the primary became silent. An earlier answer does not show
/// whether the network has failed since then.
fn is_reached(
    history: &ObservationHistory,
    observer: &Observer,
    streak: &FailureStreak,
    said_ms: Option<u64>,
) -> bool {
    let (Observer::Relay(name) | Observer::Replica(name)) = observer else { return true };
    let since = |at_ms: u64| at_ms >= streak.since_ms;
    let answers = history
        .server(name)
        .is_some_and(|server| server.streak.is_none() && server.answered_ms.is_some_and(since));
    answers || said_ms.is_some_and(since)
}
