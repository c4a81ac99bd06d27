//! The manager in the daemon: watches the cluster of each source, and leads it where that is asked for or configured.
//!
//! - [`acker`]: relays as ackers that can be ordered about.
//! - [`cluster`]: one source's cluster: its watch, its runs, one at a time.
//! - [`guarding`]: what holds failovers back, over restarts.
//! - [`leasing`]: the lease as configured.
//! - [`ordering`]: what was known of a primary becomes the order of a failover.

pub mod acker;
pub mod cluster;
pub mod guarding;
pub mod leasing;
pub mod ordering;

pub use cluster::{ClusterParts, ManagedCluster};
