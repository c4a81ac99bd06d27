//! What of the binary is tested from the outside, with real servers.

mod log_cat;
mod rooms;
