//! Watches a cluster while it lives, so that its failure is noticed at once, and so that it is known then what was promised.
//!
//! - [`cluster_state`]: all that was heard of a cluster, and what it amounts to. Pure.
//! - [`eyes`]: how the state of a relay's stream is asked for.
//! - [`watch`]: the tasks that ask everybody, one for each question to each server.
//! - [`memory`]: what is kept of it for the manager that comes behind this one. Pure.
//! - [`confirming`]: everybody is asked once more before anything is done.

pub mod cluster_state;
pub mod failure_confirmation;
pub mod relay_probe;
pub mod watch_checkpoint;
pub mod watcher;

pub use cluster_state::{ClusterEvent, ClusterState, KnownPrimary, WatchedCluster};
pub use failure_confirmation::{FailoverTrigger, FailureConfirmation};
pub use relay_probe::{RelayAssignment, RelayProbe, RelayProbeFuture, RelayProbeResult};
pub use watch_checkpoint::WatchCheckpoint;
pub use watcher::{ClusterWatch, ManagerClock, ProbeIntervals, WatchedRelay};
