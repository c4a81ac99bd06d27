//! The daemon's metrics for Prometheus. docs/reference/metrics.md describes each metric.

mod exposition;

pub use exposition::{CAPTURE_STATES, CHANNEL_STATES, CONTENT_TYPE, render};
