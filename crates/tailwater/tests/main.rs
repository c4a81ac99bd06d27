//! What of the binary is tested from the outside, with real servers.

// For `on_each_server!` in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod ackers;
mod applied;
mod archived;
mod bulk_grants;
mod captured;
mod channels;
mod checked;
mod cli;
mod copied;
mod copied_binary;
mod dead_host;
mod dumped;
mod elsewhere;
mod etcd_anew;
mod failed_over;
mod faults;
mod fed_over;
mod haproxy;
mod http;
mod killed_amid;
mod large;
mod left_behind;
mod loaded;
mod log_cat;
mod log_sql;
mod log_stats;
mod many_rows;
mod marked;
mod metrics;
mod nemesis;
mod odd_settings;
mod open_metrics;
mod rejoined;
mod resumed;
mod rooms;
mod s3_server;
mod sandbox_cluster;
mod secrets;
mod set_clock;
mod shell;
mod source_catalogue;
mod special_files;
mod stood_still;
mod stored;
mod suites;
mod switched_over;
mod throttled;
mod topology;
mod try_out;
mod two_relays;
