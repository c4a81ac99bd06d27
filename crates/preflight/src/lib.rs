//! Checks and preparations before the daemon starts.
//!
//! - [`connection_check`]: checks that the servers and this machine fit a configuration
//!   (`tailwater config check --connect`).
//! - [`cluster_setup`]: finds the servers of a primary's cluster, and plans the account and the configuration
//!   for it (`tailwater init`).

pub mod cluster_setup;
pub mod connection_check;
