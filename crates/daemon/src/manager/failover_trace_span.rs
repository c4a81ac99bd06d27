//! The audit record of a failover or switchover as a span, for traces: its phases are the children, and their
//! actions the grandchildren. Pure.

use std::time::{SystemTime, UNIX_EPOCH};

use tailwater_apply::trace_span_record::SpanRecord;
use tailwater_manager::model::{Audit, AuditEntry, AuditEvent, RunOutcome};

/// Returns the span of a run that began at `started`.
pub(super) fn of(audit: &Audit, source: &str, started: SystemTime) -> SpanRecord {
    let started = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    let start_us = u64::try_from(started.as_micros()).unwrap_or(u64::MAX);
    let last_ms = audit.steps.last().map_or(0, |step| step.at_ms);
    let mut span = SpanRecord::new(audit.kind.to_string(), start_us, last_ms * 1_000)
        .with("id", audit.id.as_str())
        .with("source", source)
        .with("old_primary", audit.primary.as_str())
        .with("dry_run", audit.dry_run)
        .with("outcome", audit.end().trim_end());
    if let Some(pause_ms) = audit.pause_ms {
        span = span.with("write_pause_ms", pause_ms);
    }
    span.error = match &audit.outcome {
        Some(RunOutcome::Promoted { .. } | RunOutcome::Planned { .. }) => None,
        _ => Some(audit.end().trim_end().to_owned()),
    };
    if let Some(RunOutcome::Promoted { server, .. }) = &audit.outcome {
        span = span.with("new_primary", server.as_str());
    }
    span.children = phases(&audit.steps, start_us, last_ms);
    span
}

/// A phase lasts until the next one begins.
fn phases(steps: &[AuditEntry], start_us: u64, last_ms: u64) -> Vec<SpanRecord> {
    let mut phases = Vec::new();
    let mut begin_ms = 0;
    for (index, of_phase) in steps.chunk_by(|one, other| one.phase == other.phase).enumerate() {
        let Some(first) = of_phase.first() else { continue };
        let next = steps.chunk_by(|one, other| one.phase == other.phase).nth(index + 1);
        let end_ms = next.and_then(|next| next.first()).map_or(last_ms, |step| step.at_ms);
        let mut phase = SpanRecord::new(
            first.phase.to_string(),
            start_us + begin_ms * 1_000,
            end_ms.saturating_sub(begin_ms) * 1_000,
        );
        phase.children = of_phase.iter().filter_map(|step| action(step, steps, start_us, last_ms)).collect();
        phase.error = of_phase.iter().find_map(|step| match &step.note {
            AuditEvent::RuleRefused { refusal } => Some(format!("{} {refusal}", refusal.code())),
            _ => None,
        });
        phases.push(phase);
        begin_ms = end_ms;
    }
    phases
}

/// An action lasts until its answer; an action without an answer, until the end of the run.
fn action(step: &AuditEntry, steps: &[AuditEntry], start_us: u64, last_ms: u64) -> Option<SpanRecord> {
    let AuditEvent::ActionOrdered { number, what } = &step.note else { return None };
    let answer = steps.iter().find_map(|other| match &other.note {
        AuditEvent::ActionAnswered { number: of, outcome, text } if of == number => {
            Some((other.at_ms, outcome, text))
        }
        _ => None,
    });
    let end_ms = answer.map_or(last_ms, |(at_ms, ..)| at_ms);
    let mut span = SpanRecord::new(
        what.to_string(),
        start_us + step.at_ms * 1_000,
        end_ms.saturating_sub(step.at_ms) * 1_000,
    )
    .with("number", *number);
    match answer {
        Some((_, outcome, text)) => {
            span = span.with("outcome", outcome.as_str());
            span.error = (outcome != "done").then(|| text.trim_end().to_owned());
        }
        None => span.error = Some("no answer".to_owned()),
    }
    Some(span)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn phases_follow_each_other_and_contain_their_actions() -> anyhow::Result<()> {
        let audit: Audit = serde_json::from_value(json!({
            "id": "20261126T090000000Z-orders-failover", "kind": "failover", "primary": "db1", "dry_run": false,
            "allow_data_loss": false, "token": 3, "holds": null, "may_be_missing": null, "choice": null,
            "outcome": { "end": "promoted", "server": "db2", "left": [] },
            "steps": [
                { "at_ms": 0, "phase": "lease", "note": "ordered", "number": 1, "what": { "act": "check_lease" } },
                { "at_ms": 5, "phase": "lease", "note": "answered", "number": 1, "outcome": "done", "text": "" },
                { "at_ms": 6, "phase": "confirm", "note": "ordered", "number": 2, "what": { "act": "confirm_failure" } },
                { "at_ms": 306, "phase": "confirm", "note": "answered", "number": 2, "outcome": "failed", "text": "no\n" },
            ],
        }))?;
        let span = of(&audit, "orders", UNIX_EPOCH + Duration::from_secs(1));
        assert_eq!((span.name.as_str(), span.start_us, span.duration_us), ("failover", 1_000_000, 306_000));
        assert_eq!(span.attributes["new_primary"], "db2");
        assert_eq!(span.error, None);
        let phases: Vec<_> = span
            .children
            .iter()
            .map(|phase| (phase.start_us, phase.duration_us, phase.children.len()))
            .collect();
        assert_eq!(phases, [(1_000_000, 6_000, 1), (1_006_000, 300_000, 1)]);
        let failed = &span.children[1].children[0];
        assert_eq!((failed.start_us, failed.duration_us), (1_006_000, 300_000));
        assert_eq!(failed.error.as_deref(), Some("no"));
        Ok(())
    }
}
