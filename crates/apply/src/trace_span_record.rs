//! Spans of finished work, for traces. The process that has an exporter of traces receives them as events of
//! `tracing`; without one, a span costs a comparison.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::Level;

/// The target of the events that contain spans.
pub const SPAN_TARGET: &str = "tailwater::spans";

/// The field of the event that has the span as JSON.
pub const SPAN_FIELD: &str = "span_json";

/// Finished work, with its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanRecord {
    /// What was done: `failover`, `apply batch`.
    pub name: String,
    /// When the work began, in microseconds since 1970.
    pub start_us: u64,
    /// How long the work took, in microseconds.
    pub duration_us: u64,
    /// Why the work failed.
    pub error: Option<String>,
    /// Further facts: texts, numbers and booleans.
    pub attributes: Map<String, Value>,
    /// The parts of the work.
    pub children: Vec<SpanRecord>,
}

impl SpanRecord {
    /// Work without parts that did not fail.
    pub fn new(name: impl Into<String>, start_us: u64, duration_us: u64) -> Self {
        Self {
            name: name.into(),
            start_us,
            duration_us,
            error: None,
            attributes: Map::new(),
            children: Vec::new(),
        }
    }

    /// Adds a fact.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.attributes.insert(name.to_owned(), value.into());
        self
    }
}

/// Whether an exporter receives spans.
pub fn is_exported() -> bool {
    tracing::enabled!(target: SPAN_TARGET, Level::TRACE)
}

/// Exports the span that `make` returns. Without an exporter, `make` is not called.
pub fn export(make: impl FnOnce() -> SpanRecord) {
    if is_exported()
        && let Ok(json) = serde_json::to_string(&make())
    {
        tracing::trace!(target: SPAN_TARGET, span_json = json);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_without_an_exporter() {
        export(|| unreachable!("no test has an exporter"));
    }
}
