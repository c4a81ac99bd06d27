//! Everything that starts servers to show or to measure something. The release binary can be built without it (feature `lab`).
//!
//! The map:
//! - [`args`]: the arguments of these commands.
//! - [`trial`]: a primary, a relay process and a workload with a ledger, and the proof that nothing was lost; shared by the
//!   demo and the fault tests. `trial::suites`: the servers' own test suites with native replication beside a channel.
//! - [`demo`]: the main job from end to end. [`bench`]: the measurements, with the peers beside.
//! - [`sandbox_command`]: servers that run until they are taken down.

pub mod args;
pub mod bench;
pub mod demo;
pub mod sandbox_command;
pub mod trial;
