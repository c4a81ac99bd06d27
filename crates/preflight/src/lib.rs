//! What is checked before a daemon starts.
//!
//! - [`connection_check`]: tries a configuration against its servers and this machine
//!   (`tailwater config check --connect`).

pub mod connection_check;
