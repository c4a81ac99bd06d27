//! The daemon's metrics for Prometheus.
//!
//! - [`metric_families`]: all metrics, with their meaning. docs/reference/metrics.md has the same.
//! - `openmetrics_text`: writes the values of a snapshot.

pub mod metric_families;
mod openmetrics_text;
#[cfg(test)]
mod tests;

pub use openmetrics_text::{CHANNEL_STATES, CONTENT_TYPE, LEASE_STATES, render};
