//! One failover or switchover: its timeline, its steps, its candidates. Pure.

use std::collections::BTreeMap;

use askama::Template;
use tailwater_daemon::api::manager_requests::RunSummary;
use tailwater_manager::model::{Audit, AuditEntry, AuditEvent};

use super::display_format::{millis, path_segment, run_time, shortened};
use super::failover_view::{kind_text, outcome_health, run_path};
use super::page_layout::{Health, PageFrame};

const BAR_HEIGHT: u32 = 16;
const ROW_HEIGHT: u32 = 24;
const LABEL_WIDTH: f64 = 300.0;
const BARS_WIDTH: f64 = 760.0;
/// Characters of a label that fit.
const LABEL_CHARACTERS: usize = 40;
/// A shorter bar would not be seen.
const BAR_WIDTH_MIN: f64 = 3.0;

/// One failover or switchover.
#[derive(Debug, Template)]
#[template(path = "page/run.html")]
pub(super) struct RunDetail {
    pub(super) frame: PageFrame,
    pub(super) source: String,
    pub(super) source_path: String,
    pub(super) id: String,
    pub(super) heading: String,
    pub(super) at: String,
    pub(super) health: Health,
    pub(super) outcome: String,
    pub(super) end: Vec<String>,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) timeline: RunTimeline,
    pub(super) steps: Vec<StepRow>,
    pub(super) candidates: Vec<CandidateRow>,
    /// The interrupted failover or switchover that this one finishes, with its path.
    pub(super) resumes: Option<(String, String)>,
    pub(super) is_running: bool,
}

/// The actions over time, as SVG.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RunTimeline {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) bars: Vec<TimelineBar>,
    pub(super) end: String,
}

/// An action, as a bar.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TimelineBar {
    pub(super) label: String,
    pub(super) description: String,
    pub(super) label_y: u32,
    pub(super) x: String,
    pub(super) y: u32,
    pub(super) width: String,
    pub(super) height: u32,
    pub(super) health: Health,
}

/// A step, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StepRow {
    pub(super) at: String,
    pub(super) phase: String,
    pub(super) text: String,
    pub(super) health: Health,
}

/// A candidate, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CandidateRow {
    pub(super) server: String,
    pub(super) is_candidate: bool,
    pub(super) reasons: String,
}

impl RunDetail {
    pub(super) fn new(frame: PageFrame, source: &str, audit: &Audit) -> Self {
        let run = RunSummary::from(audit);
        let mut facts = vec![("Old primary", run.primary.clone()), ("Took", millis(run.took_ms))];
        facts.extend(run.promoted.iter().map(|server| ("New primary", server.clone())));
        facts.extend(run.pause_ms.map(|pause| ("No server took writes for", millis(pause))));
        facts.extend(audit.token.map(|token| ("Lease term", token.to_string())));
        if audit.allow_data_loss {
            facts.push(("Data loss", "the operator allowed it".to_owned()));
        }
        facts.extend(audit.possible_loss.as_ref().map(|loss| ("May be missing", loss.to_string())));
        facts.extend(audit.holds.iter().map(|holds| ("The logs hold", holds.clone())));
        let ranked = audit.choice.iter().flat_map(|choice| &choice.ranked);
        Self {
            frame,
            source: source.to_owned(),
            source_path: format!("/failovers/{}", path_segment(source)),
            id: audit.id.clone(),
            heading: format!("{} of {}", capitalised(&kind_text(&run)), audit.primary),
            at: run_time(&audit.id),
            health: outcome_health(&run.outcome),
            outcome: run.outcome.clone(),
            end: run.end.lines().map(str::to_owned).collect(),
            facts,
            timeline: timeline(&audit.steps),
            steps: audit.steps.iter().map(step_row).collect(),
            candidates: ranked
                .map(|one| CandidateRow {
                    server: one.server.clone(),
                    is_candidate: one.is_candidate(),
                    reasons: one.reasons(),
                })
                .collect(),
            resumes: audit.resumes.as_ref().map(|id| (id.clone(), run_path(source, id))),
            is_running: audit.outcome.is_none(),
        }
    }
}

/// Returns a text with a capital first letter.
pub(super) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn step_row(step: &AuditEntry) -> StepRow {
    // `      12 ms  prove completeness: #3 done`
    let text = step.to_string();
    let text = text.split_once("ms  ").map_or(text.as_str(), |(_, rest)| rest);
    let prefix = format!("{}: ", step.phase);
    StepRow {
        at: millis(step.at_ms),
        phase: step.phase.to_string(),
        text: text.strip_prefix(&prefix).unwrap_or(text).to_owned(),
        health: match &step.note {
            AuditEvent::ActionOrdered { .. } | AuditEvent::LateAnswer { .. } => Health::Unknown,
            AuditEvent::ActionAnswered { outcome, .. } => answer_health(outcome),
            AuditEvent::RuleRefused { .. } => Health::Failed,
            AuditEvent::RuleOverridden { .. } => Health::Degraded,
        },
    }
}

fn answer_health(outcome: &str) -> Health {
    match outcome {
        "done" => Health::Well,
        "failed" => Health::Failed,
        _ => Health::Degraded,
    }
}

/// A bar for each action, from its order to its answer, or to the last step if there is no answer.
fn timeline(steps: &[AuditEntry]) -> RunTimeline {
    let last_ms = steps.last().map_or(0, |step| step.at_ms).max(1);
    let mut answers = BTreeMap::new();
    for step in steps {
        if let AuditEvent::ActionAnswered { number, outcome, .. } = &step.note {
            answers.entry(*number).or_insert((step.at_ms, outcome.as_str()));
        }
    }
    let mut bars = Vec::new();
    for step in steps {
        let AuditEvent::ActionOrdered { number, what } = &step.note else { continue };
        let (until_ms, outcome) = answers.get(number).copied().unwrap_or((last_ms, "no answer"));
        let y = bars.len() as u32 * ROW_HEIGHT;
        let scaled = |ms: u64| ms as f64 / last_ms as f64 * BARS_WIDTH;
        let what = what.to_string();
        let took = millis(until_ms.saturating_sub(step.at_ms));
        let width = (scaled(until_ms) - scaled(step.at_ms)).max(BAR_WIDTH_MIN);
        bars.push(TimelineBar {
            label: shortened(&what, LABEL_CHARACTERS),
            description: format!("{what}: {outcome}, from {} for {took}", millis(step.at_ms)),
            label_y: y + 16,
            x: format!("{:.1}", LABEL_WIDTH + scaled(step.at_ms).min(BARS_WIDTH - width)),
            y: y + (ROW_HEIGHT - BAR_HEIGHT) / 2,
            width: format!("{width:.1}"),
            height: BAR_HEIGHT,
            health: answer_health(outcome),
        });
    }
    RunTimeline {
        width: (LABEL_WIDTH + BARS_WIDTH) as u32,
        height: bars.len() as u32 * ROW_HEIGHT,
        bars,
        end: millis(last_ms),
    }
}

#[cfg(test)]
mod tests {
    use tailwater_manager::model::{RunAction, RunPhase};

    use super::*;

    #[test]
    fn bars_stay_within_the_timeline() {
        let step = |at_ms, note| AuditEntry { at_ms, phase: RunPhase::Fence, note };
        let ordered = |number| AuditEvent::ActionOrdered { number, what: RunAction::CheckLease };
        let answered = |number, outcome: &str| AuditEvent::ActionAnswered {
            number,
            outcome: outcome.to_owned(),
            text: String::new(),
        };
        let steps = [
            step(0, ordered(1)),
            step(400, answered(1, "done")),
            step(400, ordered(2)),
            step(1_000, answered(2, "failed")),
            step(1_000, ordered(3)),
        ];
        let timeline = timeline(&steps);
        let healths: Vec<_> = timeline.bars.iter().map(|bar| bar.health).collect();
        assert_eq!(healths, [Health::Well, Health::Failed, Health::Degraded]);
        for bar in &timeline.bars {
            let (x, width): (f64, f64) = (bar.x.parse().unwrap_or(-1.0), bar.width.parse().unwrap_or(-1.0));
            assert!(
                x >= LABEL_WIDTH && width > 0.0 && x + width <= f64::from(timeline.width) + 0.1,
                "the bar is outside the timeline: {bar:?}"
            );
        }
        assert!(
            timeline.bars[0].description.ends_with("from 0 ms for 400 ms"),
            "the description of the first bar has other times: {timeline:?}"
        );
    }

    #[test]
    fn a_step_has_its_phase_once() {
        let note = AuditEvent::ActionOrdered { number: 1, what: RunAction::CheckLease };
        let row = step_row(&AuditEntry { at_ms: 12, phase: RunPhase::Lease, note });
        assert_eq!((row.at.as_str(), row.text.as_str()), ("12 ms", "#1 check the lease"));
    }
}
