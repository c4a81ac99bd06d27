//! Real servers, faulty links and ledgered workloads on one machine, for the demo, the benchmarks and every test.
//!
//! The map:
//! - [`kind`]: which servers there are.
//! - [`install`]: has them on this machine, without root and without touching the system.
//! - [`server`]: starts, stops, kills, pauses and restarts them; they never outlive their owner.
//! - [`replication`]: accounts, semi-sync and native replicas.
//! - [`mod@require`]: servers for tests.
//! - [`cache`]: where all of this lies on disk.

pub mod cache;
pub mod error;
pub mod install;
mod instance;
pub mod kind;
mod port;
mod process;
pub mod replication;
pub mod require;
pub mod server;
mod template;

pub use cache::Cache;
pub use error::SandboxError;
pub use install::Install;
pub use kind::ServerKind;
pub use replication::SemiSyncStatus;
pub use require::{require, shared};
pub use server::{Server, ServerSpec};
