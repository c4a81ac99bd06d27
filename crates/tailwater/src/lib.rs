//! The binary's own parts: the command line, what each command prints, the demo and the benchmarks. A library only so that
//! the tests can drive the same parts; nothing else uses it.
//!
//! The map:
//! - [`cli`]: every command and flag. [`commands`]: one module per noun. [`exit`]: the exit codes.
//! - [`trial`]: a primary, a relay process and a ledgered workload, and the proof that nothing was lost; shared by the demo
//!   and the fault tests.
//! - [`demo`], [`bench`]: the commands of these names.

pub mod cli;
pub mod commands;
pub mod exit;
