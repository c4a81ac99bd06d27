//! The parts of the binary: the command line and what each command prints. They are a library only so that
//! the tests can use them.
//!
//! Modules:
//! - [`arguments`]: every command and flag.
//! - [`commands`]: one module per noun.
//! - [`exit_codes`]: the exit codes.

pub mod arguments;
pub mod commands;
pub mod exit_codes;
