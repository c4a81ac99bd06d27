//! Reads the state of a relay's stream.

use std::future::Future;
use std::pin::Pin;

use tailwater_topology::probe_failure::ProbeFailure;

use crate::model::RelayProbeResult;

/// The result of a relay probe, as a future: the state, or why the probe failed.
pub type RelayProbeFuture<'a> =
    Pin<Box<dyn Future<Output = Result<RelayProbeResult, ProbeFailure>> + Send + 'a>>;

/// Reads the state of one relay, in this process or elsewhere, in bounded time.
pub trait RelayProbe: Send + Sync {
    /// Reads the state of the relay.
    fn probe(&self) -> RelayProbeFuture<'_>;
}
