//! The daemon's metrics, as Prometheus scrapes them. docs/reference/metrics.md is the reference of each.
//!
//! - `snapshot`: the values, read from the state that the process keeps. A scrape queries no server.
//! - `exposition`: the values as OpenMetrics text. Pure.

mod exposition;
mod snapshot;

pub use exposition::{CONTENT_TYPE, render};
pub use snapshot::{ClusterMetrics, MetricsSnapshot};
