//! Commands that start servers, to demonstrate or to measure. The release binary can be built without them
//! (feature `lab`).
//!
//! The map:
//! - [`args`]: the arguments of these commands.
//! - [`trial`]: a primary, a relay process and a workload with a ledger, and the check that nothing was lost;
//!   shared by the demo, the benchmarks and the fault tests.
//! - [`demo`]: the whole chain from capture to failover. [`bench`]: the benchmarks, with other tools in the
//!   same run.
//! - [`sandbox_command`]: `tailwater sandbox`, servers that run until `down`.

pub mod args;
pub mod bench;
pub mod demo;
pub mod sandbox_command;
pub mod trial;
