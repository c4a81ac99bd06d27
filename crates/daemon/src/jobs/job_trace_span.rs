//! A job as a span, for traces. Pure.

use tailwater_apply::trace_span_record::SpanRecord;

use crate::api::jobs::{Job, JobState};

/// Returns the span of a job that has ended.
pub(super) fn of(job: &Job) -> SpanRecord {
    let ended_ms = job.ended_ms.unwrap_or(job.reported_ms);
    let duration_us = ended_ms.saturating_sub(job.started_ms).saturating_mul(1_000);
    let mut span = SpanRecord::new(format!("job {}", job.kind.name()), job.started_ms * 1_000, duration_us)
        .with("job", job.id)
        .with("subject", job.subject.as_str())
        .with("user", job.user.as_str())
        .with("state", job.state.name())
        .with("tables", job.progress.tables)
        .with("rows", job.progress.rows)
        .with("bytes", job.progress.bytes);
    if let Some(code) = &job.code {
        span = span.with("code", code.as_str());
    }
    if matches!(job.state, JobState::Failed | JobState::Lost) {
        span.error = Some(job.message.clone().unwrap_or_else(|| job.state.name().to_owned()));
    }
    span
}
