//! Watches a cluster. The manager detects a failure at once, and knows the ack policies from before the
//! failure.
//!
//! - [`cluster_state`]: takes events, and returns findings. Pure.
//! - [`relay_probe`]: reads the state of a relay's stream.
//! - [`server_poller`]: probes each server once for all parts of the daemon that read the results.
//! - [`probe_tasks`]: the tasks that ping the primary, probe relays and record all events.
//! - [`watch_checkpoint`]: what is stored for the next manager process. Pure.
//! - [`failure_confirmation`]: queries all observers once more before a failover or switchover acts.

pub mod cluster_state;
pub mod failure_confirmation;
pub mod probe_tasks;
pub mod relay_probe;
pub mod server_poller;
pub mod watch_checkpoint;

pub use cluster_state::{ClusterEvent, ClusterState, KnownPrimary, WatchedCluster};
pub use failure_confirmation::{FailoverTrigger, FailureConfirmation};
pub use probe_tasks::{ClusterWatch, ManagerClock, ProbeIntervals, WatchedRelay};
pub use relay_probe::{RelayProbe, RelayProbeFuture};
pub use server_poller::{PolledObservation, ServerPoller};
pub use watch_checkpoint::WatchCheckpoint;
