//! What of the binary is tested from the outside, with real servers.

mod ackers;
mod applied;
mod archived;
mod bulk_grants;
mod captured;
mod channels;
mod checked;
mod cli;
mod copied;
mod dumped;
mod failed_over;
mod faults;
mod haproxy;
mod http;
mod large;
mod loaded;
mod log_cat;
mod log_sql;
mod log_stats;
mod resumed;
mod rooms;
mod s3_server;
mod shell;
mod stored;
mod topology;
mod try_out;
