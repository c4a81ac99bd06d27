//! Finds the servers of a primary's cluster, and plans the account, the files and the settings with which
//! Tailwater captures it (`tailwater init`).
//!
//! - [`cluster_discovery`]: asks the primary and its replicas.
//! - [`setup_plan`]: what is to be done, from what was found and what is there already. `config_text` writes
//!   the configuration, `generated_password` the passwords.
//! - [`setup_execution`]: does it.

pub mod cluster_discovery;
mod config_text;
mod generated_password;
pub mod setup_execution;
pub mod setup_plan;
