//! What everybody but the manager says of a primary that is silent to it.

use super::AnalysisSettings;
use super::history::{FailureStreak, ObservationHistory, ReportedStream, ServerHistory};
use super::report::Observer;
use crate::probe_failure::Liveness;

/// A stream is quiet only after so many heartbeats have not come.
const HEARTBEATS_MISSED_MIN: u64 = 3;

/// What the others say.
#[derive(Default)]
pub(super) struct ObserverReports {
    /// They have heard it since it fell silent to us.
    pub alive: Vec<String>,
    /// They have lost it.
    pub lost: Vec<String>,
    /// They have not lost it yet, and have not heard it either.
    pub undecided: Vec<String>,
    /// Those that the manager has reached since it fell silent.
    reached: usize,
    /// All that there are.
    all: usize,
}

impl ObserverReports {
    /// Whether most of those who could know, the manager among them, are within reach.
    pub fn has_majority(&self) -> bool {
        2 * (1 + self.reached) > 1 + self.all
    }

    /// Whether somebody has lost it, nobody says anything else, and nobody is out of reach.
    pub fn is_unanimous(&self) -> bool {
        !self.lost.is_empty()
            && self.alive.is_empty()
            && self.undecided.is_empty()
            && self.reached == self.all
    }
}

/// From when on a stream in which nothing comes, and one that was lost, speak against the primary.
#[derive(Clone, Copy)]
pub(super) enum SilenceThreshold {
    /// Whatever is known of the stream.
    Full,
    /// After so long, in milliseconds, if several heartbeats are due by then. A stream that was lost long before says nothing.
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
        // Without a word it may read from a relay, and have no stream of the primary's.
        let Some((at_ms, stream)) = stream else { continue };
        match *stream {
            // The primary itself gave an error: it lived then. Whether that was after it fell silent decides.
            ReportedStream::Lost { failure, .. } if failure.liveness() == Liveness::Alive => {
                if *at_ms > streak.last_ms {
                    reports.alive.push(format!("{observer}: it answers: {failure}"));
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
                // It speaks for the time up to its last word.
                let quiet_ms = at_ms.saturating_sub(heard_ms.max(history.running_since_ms));
                if quiet_ms >= enough_ms {
                    reports.lost.push(format!("{observer}: heard nothing for {quiet_ms} ms"));
                } else if heard_ms > streak.since_ms {
                    let ago_ms = now_ms.saturating_sub(heard_ms);
                    reports.alive.push(format!("{observer}: heard it {ago_ms} ms ago"));
                } else if now_ms.saturating_sub(*at_ms) < settings.detect_after_ms {
                    // One that says nothing at all for so long is out of reach, and not waited for.
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

/// Whether the manager has heard of the observer since the primary fell silent: what it answered before says nothing about a
/// network that failed meanwhile.
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
