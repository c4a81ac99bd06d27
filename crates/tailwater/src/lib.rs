//! The parts of the binary: the command line, and what each command prints. This code is in a library only so
//! that the tests can use it.
//!
//! Modules:
//! - [`arguments`]: every command and flag.
//! - [`commands`]: one module per noun.
//! - [`exit_codes`]: the exit codes.

pub mod arguments;
pub mod commands;
pub mod exit_codes;
