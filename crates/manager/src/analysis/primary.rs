//! Is the primary dead, or is it only we who do not see it?
//!
//! A host that answers and refuses the connection says that the process is gone: nothing more is waited for, unless
//! somebody still hears it. Silence says nothing alone: it has to last, somebody else has to have lost the primary too, nobody
//! may have heard it since, and most of those who could know have to be within reach, or else it is us who are cut off.

use super::Settings;
use super::finding::{Code, Finding};
use super::record::{Record, ServerRecord, Streak, StreamRecord};
use super::sighting::Observer;
use crate::failure::Sign;

/// What is known of the primary.
pub(super) struct PrimaryState {
    /// It answers the manager.
    pub is_answering: bool,
    pub finding: Option<Finding>,
}

/// What the others say.
#[derive(Default)]
struct Voices {
    /// They have heard it since it fell silent to us.
    hear: Vec<String>,
    /// They have lost it.
    lost: Vec<String>,
    /// They have not lost it yet, and have not heard it either.
    wait: Vec<String>,
    /// They are within reach, and cannot tell.
    cannot_tell: usize,
    /// All that there are.
    all: usize,
}

impl Voices {
    /// Whether most of those who could know, the manager among them, are within reach.
    fn are_most(&self) -> bool {
        let reached = 1 + self.hear.len() + self.lost.len() + self.wait.len() + self.cannot_tell;
        2 * reached > 1 + self.all
    }
}

pub(super) fn judge(record: &Record, settings: &Settings, now_ms: u64) -> PrimaryState {
    let name = &record.cast.primary;
    let silent = |finding| PrimaryState { is_answering: false, finding };
    let Some(server) = record.server(name) else { return silent(None) };
    let Some(streak) = server.streak else {
        return PrimaryState { is_answering: server.answered_ms.is_some(), finding: None };
    };
    let voices = listen(record, server, &streak, settings, now_ms);
    let mut evidence = vec![own_words(server, &streak, now_ms)];
    if !voices.hear.is_empty() {
        evidence.extend(voices.hear);
        return silent(Some(Finding::new(Code::UnreachablePrimary, name, streak.since_ms, evidence)));
    }
    let lasted = now_ms.saturating_sub(streak.since_ms) >= settings.detect_after_ms;
    let is_gone = streak.gone_ms.is_some();
    let confirmed = !voices.lost.is_empty();
    // A server that was never seen alive may be a wrong address: for that, too, somebody has to speak.
    let at_once = is_gone && server.answered_ms.is_some();
    let most = voices.are_most();
    evidence.extend(voices.lost);
    if !voices.wait.is_empty() {
        // They will have lost it, or have heard it, within the same time.
        return silent(None);
    }
    if at_once {
        return silent(Some(Finding::new(Code::DeadPrimary, name, streak.since_ms, evidence)));
    }
    if !lasted {
        return silent(None);
    }
    if confirmed && (most || is_gone) {
        return silent(Some(Finding::new(Code::DeadPrimary, name, streak.since_ms, evidence)));
    }
    evidence.push(if confirmed {
        "most of those who could confirm it are out of reach, too: it may be the manager who is cut off"
            .to_owned()
    } else {
        "nobody else confirms it".to_owned()
    });
    silent(Some(Finding::new(Code::UnreachablePrimary, name, streak.since_ms, evidence)))
}

fn own_words(server: &ServerRecord, streak: &Streak, now_ms: u64) -> String {
    let lasted = now_ms.saturating_sub(streak.since_ms);
    let seen = match server.answered_ms {
        Some(at) => format!("; it last answered {} ms ago", now_ms.saturating_sub(at)),
        None if lasted > 0 => "; it was never seen alive".to_owned(),
        // There was but one look.
        None => String::new(),
    };
    let failure = match streak.gone_ms {
        Some(_) => "connection refused by a host that answers".to_owned(),
        None => streak.last.to_string(),
    };
    format!("the manager: {failure}{}{seen}", for_so_long(lasted))
}

/// How long something has lasted; nothing if it has just begun.
pub(super) fn for_so_long(lasted_ms: u64) -> String {
    if lasted_ms == 0 { String::new() } else { format!(", for {lasted_ms} ms") }
}

fn listen(
    record: &Record,
    server: &ServerRecord,
    streak: &Streak,
    settings: &Settings,
    now_ms: u64,
) -> Voices {
    let mut voices = Voices::default();
    for observer in record.cast.observers() {
        voices.all += 1;
        let said = server.streams.get(&observer);
        let Some((at_ms, said)) =
            said.filter(|(at, _)| now_ms.saturating_sub(*at) <= settings.stale_after_ms)
        else {
            // It may be within reach, and have no stream of the primary's: it reads from a relay.
            voices.cannot_tell += usize::from(is_within_reach(record, &observer, settings, now_ms));
            continue;
        };
        match said {
            // The primary itself gave an error: it lived then. Whether that was after it fell silent decides.
            StreamRecord::Lost(failure) if failure.sign() == Sign::Alive => {
                if *at_ms > streak.last_ms {
                    voices.hear.push(format!("{observer}: it answers: {failure}"));
                } else {
                    voices.cannot_tell += 1;
                }
            }
            StreamRecord::Lost(failure) => {
                voices.lost.push(format!("{observer}: lost its stream: {failure}"))
            }
            StreamRecord::Streaming { heard_ms: None } => voices.cannot_tell += 1,
            StreamRecord::Streaming { heard_ms: Some(heard) } => {
                let ago = now_ms.saturating_sub(*heard);
                if ago >= settings.detect_after_ms {
                    voices.lost.push(format!("{observer}: heard nothing for {ago} ms"));
                } else if *heard > streak.since_ms {
                    voices.hear.push(format!("{observer}: heard it {ago} ms ago"));
                } else {
                    voices.wait.push(observer.to_string());
                }
            }
        }
    }
    voices
}

/// Whether the manager reaches the observer itself.
fn is_within_reach(record: &Record, observer: &Observer, settings: &Settings, now_ms: u64) -> bool {
    let (Observer::Relay(name) | Observer::Replica(name)) = observer else { return true };
    record.server(name).is_some_and(|server| {
        let recent = |at: u64| now_ms.saturating_sub(at) <= settings.stale_after_ms;
        server.streak.is_none() && server.answered_ms.is_some_and(recent)
    })
}
