//! Prepares a primary and its replicas for Tailwater: account, files and settings (`tailwater init`).
//!
//! - [`cluster_discovery`]: queries the primary and its replicas.
//! - [`setup_plan`]: compares the servers and the existing files with the user's wishes, and plans statements
//!   and files. `config_text` returns the text of the configuration, `generated_password` the passwords.
//! - [`setup_execution`]: executes the plan.

pub mod cluster_discovery;
mod config_text;
mod generated_password;
pub mod setup_execution;
pub mod setup_plan;
