//! The daemon's metrics for Prometheus. docs/reference/metrics.md describes each metric.

mod openmetrics_text;

pub use openmetrics_text::{CAPTURE_STATES, CHANNEL_STATES, CONTENT_TYPE, render};
