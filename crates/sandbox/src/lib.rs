//! Runs real servers, network links with faults, and workloads with a ledger on one machine: for the demo,
//! the benchmarks and the tests.
//!
//! Modules:
//! - [`server_kind`]: the available servers.
//! - [`install`]: downloads and finds servers, without root and without changing the system.
//! - [`sandbox_server`]: starts, stops, kills, pauses and restarts servers; they never outlive the process
//!   that started them.
//! - [`background_servers`]: servers that keep running after the command that started them.
//! - [`external_program`]: other programs that must not outlive the process that started them.
//! - [`etcd_process`]: the lease store of several managers. [`haproxy_process`]: a load balancer.
//!   `prometheus_process`: scrapes metrics and evaluates alert rules.
//!   [`chromedriver_process`]: a headless browser. [`schemathesis`]: tests an HTTP API. `tmux_terminal`: a
//!   terminal for programs that draw.
//! - [`replication_setup`]: the replication account and semi-sync; [`native_replica`]: native replicas.
//! - [`network_link`]: a network link that can be made slow or broken; [`slow_fsync`]: slow fsync;
//!   [`full_disk`]: a disk that is temporarily full; [`stepped_clock`]: a wall clock that jumps. The last
//!   three are preloaded libraries.
//! - [`unusual_settings`]: unusual global settings, which must not affect Tailwater's sessions.
//! - [`workload`]: clients that write and keep a [`ledger`] of the outcome of each transaction.
//! - [`server_or_skip`]: provides servers to tests.
//! - [`cache_folder`]: the folders on disk.

pub mod background_servers;
pub mod cache_folder;
mod child_process_lifetime;
pub mod chromedriver_process;
mod data_directory_template;
pub mod error;
pub mod etcd_process;
pub mod external_program;
mod free_port;
pub mod full_disk;
pub mod haproxy_process;
pub mod install;
pub mod ledger;
pub mod native_replica;
pub mod network_link;
mod preload_library;
mod prometheus_process;
pub mod replication_setup;
pub mod sandbox_server;
pub mod schemathesis;
mod server_files_and_launch;
mod server_instance_folder;
pub mod server_kind;
pub mod server_or_skip;
pub mod slow_fsync;
mod sql_via_client_program;
pub mod stepped_clock;
mod tmux_terminal;
mod tool_lookup;
pub mod unusual_settings;
pub mod workload;

pub use cache_folder::Cache;
pub use chromedriver_process::{BrowserTools, ChromeDriver};
pub use error::SandboxError;
pub use etcd_process::{Etcd, EtcdTls};
pub use external_program::ChildProcess;
pub use free_port::ReservedPort;
pub use full_disk::FullDisk;
pub use haproxy_process::HaProxy;
pub use install::{Install, TestSuites};
pub use ledger::{BinlogCheck, Ledger, LedgerCheck, LedgerReport};
pub use native_replica::{ReplicaOf, ReplicaStart, ReplicaStatus};
pub use network_link::Link;
pub use prometheus_process::Prometheus;
pub use replication_setup::SemiSyncStatus;
pub use sandbox_server::{Server, ServerSpec};
pub use server_kind::ServerKind;
pub use server_or_skip::{require, shared};
pub use slow_fsync::SlowSync;
pub use stepped_clock::SteppedClock;
pub use tmux_terminal::TmuxTerminal;
pub use workload::{Workload, WorkloadSpec};
