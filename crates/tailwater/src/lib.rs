//! The parts of the binary: the command line and what each command prints. A library only so that the tests
//! can use them.
//!
//! The map:
//! - [`cli`]: every command and flag. [`commands`]: one module per noun. [`exit`]: the exit codes.
//! - [`trial`]: a primary, a relay process and a ledgered workload, and the proof that nothing was lost; shared by the demo
//!   and the fault tests.
//! - [`demo`], [`bench`]: the commands of these names.

pub mod cli;
pub mod commands;
pub mod exit;
