//! The client load with which the benchmarks measure commits.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tailwater_sandbox::workload::TransactionMix;
use tailwater_sandbox::{Ledger, Server, Workload, WorkloadSpec};

/// One measurement of the client load.
#[derive(Debug, Clone, Copy)]
pub struct CommitSample {
    /// Commits per second.
    pub rate: f64,
    /// The median commit latency, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of the commit latency, in milliseconds.
    pub p99_ms: f64,
}

/// Runs `clients` clients that commit one small insert at a time. Measures them for the time `measured`,
/// after the time `warm_up`. Each measurement on the same primary must use worker numbers that no
/// earlier measurement has used.
///
/// # Errors
/// If a client fails.
pub async fn sample(
    primary: &Server,
    clients: u32,
    first_worker: u32,
    warm_up: Duration,
    measured: Duration,
) -> anyhow::Result<CommitSample> {
    let spec = WorkloadSpec {
        first_worker,
        mix: TransactionMix::SingleInsert { payload_bytes: 100 },
        ..WorkloadSpec::new(clients)
    };
    let workload = Workload::start(primary.connect_options(), &spec, Arc::new(Ledger::new()));
    tokio::time::sleep(warm_up).await;
    let before = workload.counters().snapshot();
    tokio::time::sleep(measured).await;
    let after = workload.counters().snapshot();
    let report = workload.finish().await;
    if let Some(error) = report.errors.into_iter().next() {
        return Err(error).context("a client of the load failed");
    }
    Ok(CommitSample {
        rate: after.rate_since(&before),
        p50_ms: after.latency_p50.as_secs_f64() * 1e3,
        p99_ms: after.latency_p99.as_secs_f64() * 1e3,
    })
}
