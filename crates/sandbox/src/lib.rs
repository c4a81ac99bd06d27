//! Real servers, faulty links and ledgered workloads on one machine, for the demo, the benchmarks and every test.
//!
//! The map:
//! - [`kind`]: which servers there are.
//! - [`install`]: has them on this machine, without root and without touching the system.
//! - [`server`]: starts, stops, kills, pauses and restarts them; they never outlive their owner.
//! - [`detached`]: servers that go on after the command that started them.
//! - [`child_process`]: other programs that must not outlive their owner either.
//! - [`etcd`]: the store that several managers share. [`haproxy`]: a load balancer.
//! - [`replication`]: the account, and semi-sync; [`replica`]: native replicas.
//! - [`link`]: a network between clients and servers that can be made slow or broken; [`slow_sync`]: a disk whose syncs
//!   are slow; [`full_disk`]: one that is full for a while; [`stepped_clock`]: a wall clock that is set. All are preloaded.
//! - [`mod@odd_settings`]: global settings that no session of ours may inherit.
//! - [`workload`]: load on a server, by clients that keep a [`ledger`] of what the server told them.
//! - [`mod@require`]: servers for tests.
//! - [`cache`]: where all of this lies on disk.

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
pub mod slow_sync;
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
pub use slow_sync::SlowSync;
pub use stepped_clock::SteppedClock;
pub use workload::{Workload, WorkloadSpec};
