//! What of the binary is tested from the outside, with real servers.

mod applied;
mod archived;
mod captured;
mod channels;
mod cli;
mod dumped;
mod faults;
mod large;
mod loaded;
mod log_cat;
mod log_sql;
mod log_stats;
mod resumed;
mod rooms;
mod s3_server;
mod shell;
mod topology;
mod try_out;
