//! The binary's own parts: command line, configuration, wiring of the rooms, demo and benchmarks. A library only so that
//! the tests can drive the same parts; nothing else uses it.
//!
//! The map:
//! - [`cli`]: every command and flag. [`commands`]: one module per noun.
//! - [`config`]: the configuration file of `tailwater run`.
//! - [`object_archive`]: the archive in a folder or in S3. [`object_files`]: a dump in S3. `archiver`: what `run` archives in the background.
//! - `control`: telling a running daemon something. `http`: what load balancers and monitoring ask it. `managing`: the manager in
//!   it. `wiring`: turns the configuration into what the rooms take.
//! - [`trial`]: a primary, a relay process and a ledgered workload, and the proof that nothing was lost; shared by the demo
//!   and the fault tests.
//! - [`demo`], [`bench`]: what they are called. `causes`: errors as they are told. [`moment`]: times as people give and read them.

mod archiver;
pub mod bench;
mod causes;
pub mod cli;
pub mod commands;
pub mod config;
mod control;
pub mod demo;
pub mod exit;
mod http;
pub mod managing;
pub mod moment;
pub mod object_archive;
pub mod object_files;
pub mod trial;
mod wiring;
