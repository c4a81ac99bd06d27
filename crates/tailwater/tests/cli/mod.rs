//! The command line and the daemon's HTTP listener.

mod api_contract;
mod command_line_usage;
mod completions_and_man;
mod config_check_connect;
mod configuration_overrides;
mod configuration_reload;
pub mod demo_and_sandbox;
mod full_log_disk;
pub mod http_api;
pub mod http_listener;
mod init_command;
mod job_cancellation;
mod jobs;
mod journal_messages;
mod metrics;
mod prefetch;
mod service_manager;
mod status_command;
mod symlinks_pipes_and_devices;
mod top_command;
mod topology_command;
mod traces;
