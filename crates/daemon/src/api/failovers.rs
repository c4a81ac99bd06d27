//! Requests to the manager, and its answers.

use serde::{Deserialize, Serialize};
use tailwater_manager::model::Audit;
use tailwater_manager::switchover::request::WRITE_PAUSE_MS_MAX;

use super::clusters::ClusterReport;

/// A request to the manager.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum ManagerRequest {
    /// Report the clusters.
    Status,
    /// Start a failover; the answer names the run.
    FailOver {
        /// The source.
        source: String,
        /// Its options.
        #[serde(rename = "wish")]
        options: FailoverOptions,
    },
    /// Start a switchover; the answer names the run.
    SwitchOver {
        /// The source.
        source: String,
        /// Its options.
        #[serde(rename = "wish")]
        options: SwitchoverOptions,
    },
    /// The audit record of a run, up to its present step.
    Audit {
        /// The source.
        source: String,
        /// The run.
        id: String,
    },
    /// Hold back automatic failovers until resumed.
    Pause {
        /// The source; all if absent.
        source: Option<String>,
    },
    /// Allow automatic failovers again.
    Resume {
        /// The source; all if absent.
        source: Option<String>,
    },
    /// An operator has examined the last failover: another may follow at once.
    Acknowledge {
        /// The source; all if absent.
        source: Option<String>,
    },
    /// Raise the terms of the lease above those that relays have obeyed, after etcd was created again.
    RaiseTerms {
        /// The source.
        source: String,
    },
    /// Start or end a downtime.
    Downtime {
        /// The source.
        source: String,
        /// The server; the whole cluster if absent.
        server: Option<String>,
        /// Its duration from now, in milliseconds; 0 ends it.
        for_ms: u64,
        /// The reason.
        reason: String,
    },
}

/// The manager's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagerAnswer {
    /// The clusters, after the request was carried out.
    Clusters(Vec<ClusterReport>),
    /// A run has begun.
    Begun {
        /// Its name.
        id: String,
    },
    /// The audit record; `None` before the first step.
    Audit(Option<Box<Audit>>),
}

/// Options of a failover.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FailoverOptions {
    /// Promote only this server; the best candidate if absent.
    pub to: Option<String>,
    /// Report the plan, and change nothing.
    pub dry_run: bool,
    /// Go on although acknowledged commits may be missing on the new primary.
    pub allow_data_loss: bool,
    /// Allow a server of another region.
    pub across_regions: bool,
    /// The manager requests it, not an operator.
    pub is_automatic: bool,
}

/// Options of a switchover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchoverOptions {
    /// Promote only this server; the best candidate if absent.
    pub to: Option<String>,
    /// Report the plan, and change nothing.
    pub dry_run: bool,
    /// Allow a server of another region.
    pub across_regions: bool,
    /// The longest pause of writes, in milliseconds.
    pub write_pause_ms_max: u64,
}

impl Default for SwitchoverOptions {
    fn default() -> Self {
        Self { to: None, dry_run: false, across_regions: false, write_pause_ms_max: WRITE_PAUSE_MS_MAX }
    }
}
