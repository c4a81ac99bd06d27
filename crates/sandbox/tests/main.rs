//! Tests of the sandbox with real servers.

mod background_servers;
mod server_download;
mod server_start_and_stop;
mod slow_fsync;
mod workload_and_ledger;
