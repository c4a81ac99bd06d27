//! The parts of the binary: the command line and what each command prints. A library only so that the tests
//! can use them.
//!
//! The map:
//! - [`cli`]: every command and flag.
//! - [`commands`]: one module per noun.
//! - [`exit`]: the exit codes.

pub mod cli;
pub mod commands;
pub mod exit;
