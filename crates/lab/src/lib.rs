//! Commands that start servers, for demonstrations and measurements. The release binary can be built without
//! them (feature `lab`).
//!
//! - [`arguments`]: the arguments of these commands.
//! - [`fault_trial`]: a primary, a relay process and a workload that records each acknowledged commit in a
//!   ledger, and the check that no commit was lost. The demo, the benchmarks and the fault tests use it.
//! - [`demo`]: shows capture, apply and failover on one cluster. [`bench`]: the benchmarks, which also
//!   measure other tools in the same run.
//! - [`sandbox_command`]: `tailwater sandbox`, which starts servers that run until `down`.

pub mod arguments;
pub mod bench;
pub mod demo;
pub mod fault_trial;
pub mod sandbox_command;
