//! Watches a cluster while it lives, so that its failure is noticed at once, and so that it is known then what was promised.
//!
//! - [`chronicle`]: all that was heard of a cluster, and what it amounts to. Pure.
//! - [`eyes`]: how the state of a relay's stream is asked for.
//! - [`watch`]: the tasks that ask everybody, one for each question to each server.
//! - [`memory`]: what is kept of it for the manager that comes behind this one. Pure.
//! - [`confirming`]: everybody is asked once more before anything is done.

pub mod chronicle;
pub mod confirming;
pub mod eyes;
pub mod memory;
pub mod watch;

pub use chronicle::{Chronicle, Heard, Known, WatchedCluster};
pub use confirming::{Confirmation, Wish};
pub use eyes::{Led, RelayEye, RelayLook, RelaySeen};
pub use memory::Memory;
pub use watch::{Clock, Pace, Watch, WatchedRelay};
