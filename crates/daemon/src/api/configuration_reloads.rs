//! The result of a reload of the configuration.

use serde::{Deserialize, Serialize};

/// What a reload of the configuration did. The settings have the names that the option `--set` uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ReloadReport {
    /// The settings that changed and are in force now.
    pub applied: Vec<String>,
    /// The settings that changed since the start of the daemon and need a restart.
    pub needs_restart: Vec<String>,
    /// The settings that could not be applied. The next reload tries them again.
    pub failed: Vec<ReloadFailure>,
}

/// Settings that could not be applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ReloadFailure {
    /// The settings.
    pub settings: Vec<String>,
    /// The cause.
    pub message: String,
}
