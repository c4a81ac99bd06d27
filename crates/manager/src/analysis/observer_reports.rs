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
    pub hear: Vec<String>,
    /// They have lost it.
    pub lost: Vec<String>,
    /// They have not lost it yet, and have not heard it either.
    pub wait: Vec<String>,
    /// Those that the manager has reached since it fell silent.
    reached: usize,
    /// All that there are.
    all: usize,
}

impl ObserverReports {
    /// Whether most of those who could know, the manager among them, are within reach.
    pub fn are_most(&self) -> bool {
        2 * (1 + self.reached) > 1 + self.all
    }

    /// Whether somebody has lost it, nobody says anything else, and nobody is out of reach.
    pub fn agree(&self) -> bool {
        !self.lost.is_empty() && self.hear.is_empty() && self.wait.is_empty() && self.reached == self.all
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

pub(super) fn listen(
    record: &ObservationHistory,
    server: &ServerHistory,
    streak: &FailureStreak,
    (settings, patience): (&AnalysisSettings, SilenceThreshold),
    now_ms: u64,
) -> ObserverReports {
    let mut voices = ObserverReports::default();
    for observer in record.cast.observers() {
        let said = server.streams.get(&observer);
        let said = said.filter(|(at, _)| now_ms.saturating_sub(*at) <= settings.stale_after_ms);
        voices.all += 1;
        voices.reached += usize::from(is_reached(record, &observer, streak, said.map(|(at, _)| *at)));
        // Without a word it may read from a relay, and have no stream of the primary's.
        let Some((at_ms, said)) = said else { continue };
        match *said {
            // The primary itself gave an error: it lived then. Whether that was after it fell silent decides.
            ReportedStream::Lost { failure, .. } if failure.sign() == Liveness::Alive => {
                if *at_ms > streak.last_ms {
                    voices.hear.push(format!("{observer}: it answers: {failure}"));
                }
            }
            ReportedStream::Lost { failure, since_ms } => {
                let is_of_now = match patience {
                    SilenceThreshold::Full => true,
                    SilenceThreshold::Short(ms) => since_ms.saturating_add(ms) >= streak.since_ms,
                };
                if is_of_now {
                    voices.lost.push(format!("{observer}: lost its stream: {failure}"));
                }
            }
            ReportedStream::Streaming { heard_ms: None, .. } | ReportedStream::FollowsOther { .. } => {}
            ReportedStream::Streaming { heard_ms: Some(heard_ms), heartbeat_ms } => {
                let enough_ms = enough_ms(settings, patience, heartbeat_ms);
                // It speaks for the time up to its last word.
                let quiet_ms = at_ms.saturating_sub(heard_ms.max(record.awake_since_ms));
                if quiet_ms >= enough_ms {
                    voices.lost.push(format!("{observer}: heard nothing for {quiet_ms} ms"));
                } else if heard_ms > streak.since_ms {
                    let ago_ms = now_ms.saturating_sub(heard_ms);
                    voices.hear.push(format!("{observer}: heard it {ago_ms} ms ago"));
                } else if now_ms.saturating_sub(*at_ms) < settings.detect_after_ms {
                    // One that says nothing at all for so long is out of reach, and not waited for.
                    voices.wait.push(observer.to_string());
                }
            }
        }
    }
    voices
}

fn enough_ms(settings: &AnalysisSettings, patience: SilenceThreshold, heartbeat_ms: Option<u64>) -> u64 {
    match (patience, heartbeat_ms) {
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
    record: &ObservationHistory,
    observer: &Observer,
    streak: &FailureStreak,
    said_ms: Option<u64>,
) -> bool {
    let (Observer::Relay(name) | Observer::Replica(name)) = observer else { return true };
    let since = |at_ms: u64| at_ms >= streak.since_ms;
    let answers = record
        .server(name)
        .is_some_and(|server| server.streak.is_none() && server.answered_ms.is_some_and(since));
    answers || said_ms.is_some_and(since)
}
