//! Probe of a relay's stream.

use std::future::Future;
use std::pin::Pin;

use tailwater_topology::probe_failure::ProbeFailure;

use crate::model::RelayProbeResult;

/// The pending state of a relay, or why there is none.
pub type RelayProbeFuture<'a> =
    Pin<Box<dyn Future<Output = Result<RelayProbeResult, ProbeFailure>> + Send + 'a>>;

/// Reads the state of one relay, in this process or elsewhere, in bounded time.
pub trait RelayProbe: Send + Sync {
    /// Reads the state.
    fn probe(&self) -> RelayProbeFuture<'_>;
}
