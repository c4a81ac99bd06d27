//! Runs real servers, network links with faults, and workloads with a ledger on one machine: for the demo,
//! the benchmarks and the tests.
//!
//! Modules:
//! - [`kind`]: the available servers.
//! - [`install`]: downloads and finds servers, without root and without changing the system.
//! - [`server`]: starts, stops, kills, pauses and restarts servers; they never outlive the process that
//!   started them.
//! - [`detached`]: servers that keep running after the command that started them.
//! - [`child_process`]: other programs that must not outlive the process that started them.
//! - [`etcd`]: the lease store of several managers. [`haproxy`]: a load balancer.
//! - [`replication`]: the replication account and semi-sync; [`replica`]: native replicas.
//! - [`link`]: a network link that can be made slow or broken; [`slow_fsync`]: slow fsync; [`full_disk`]: a
//!   disk that is temporarily full; [`stepped_clock`]: a wall clock that jumps. The last three are preloaded
//!   libraries.
//! - [`mod@odd_settings`]: unusual global settings, which must not affect Tailwater's sessions.
//! - [`workload`]: clients that write and keep a [`ledger`] of the outcome of each transaction.
//! - [`mod@require`]: provides servers to tests.
//! - [`cache`]: the folders on disk.

pub mod cache;
pub mod child_process;
pub mod detached;
pub mod error;
pub mod etcd;
pub mod full_disk;
pub mod haproxy;
pub mod install;
mod instance;
pub mod kind;
mod layout;
pub mod ledger;
pub mod link;
pub mod odd_settings;
mod port;
mod preload;
mod process;
pub mod replica;
pub mod replication;
pub mod require;
pub mod server;
pub mod slow_fsync;
mod sql;
pub mod stepped_clock;
mod template;
mod tool;
pub mod workload;

pub use cache::Cache;
pub use child_process::ChildProcess;
pub use error::SandboxError;
pub use etcd::{Etcd, EtcdTls};
pub use full_disk::FullDisk;
pub use haproxy::HaProxy;
pub use install::{Install, TestSuites};
pub use kind::ServerKind;
pub use ledger::{BinlogCheck, Ledger, LedgerCheck, LedgerReport};
pub use link::Link;
pub use port::ReservedPort;
pub use replica::{ReplicaOf, ReplicaStart, ReplicaStatus};
pub use replication::SemiSyncStatus;
pub use require::{require, shared};
pub use server::{Server, ServerSpec};
pub use slow_fsync::SlowSync;
pub use stepped_clock::SteppedClock;
pub use workload::{Workload, WorkloadSpec};
