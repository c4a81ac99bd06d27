//! What is checked and prepared before a daemon starts.
//!
//! - [`connection_check`]: tries a configuration against its servers and this machine
//!   (`tailwater config check --connect`).
//! - [`cluster_setup`]: finds the servers of a primary's cluster, and plans the account and the configuration
//!   for it (`tailwater init`).

pub mod cluster_setup;
pub mod connection_check;
