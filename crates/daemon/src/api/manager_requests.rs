//! Requests to the manager, and its answers.

use serde::{Deserialize, Serialize};
use tailwater_manager::model::Audit;
use tailwater_manager::switchover::switchover_request::WRITE_PAUSE_MS_MAX;

use super::clusters::ClusterReport;

/// A request to the manager.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum ManagerRequest {
    /// Report the clusters.
    Status,
    /// Start a failover; the answer contains its name.
    FailOver {
        /// The name of the source whose cluster fails over.
        source: String,
        /// The options of the failover.
        #[serde(rename = "wish")]
        options: FailoverOptions,
    },
    /// Start a switchover; the answer contains its name.
    SwitchOver {
        /// The name of the source whose cluster switches over.
        source: String,
        /// The options of the switchover.
        #[serde(rename = "wish")]
        options: SwitchoverOptions,
    },
    /// Return the audit record of a failover or switchover, up to its present step.
    Audit {
        /// The name of the source.
        source: String,
        /// The name of the failover or switchover.
        id: String,
    },
    /// Prevent automatic failovers until the request `Resume`.
    Pause {
        /// The name of the source; all sources if absent.
        source: Option<String>,
    },
    /// Allow automatic failovers again.
    Resume {
        /// The name of the source; all sources if absent.
        source: Option<String>,
    },
    /// An operator has examined the last failover, so the cool-down ends and another failover may start at
    /// once.
    Acknowledge {
        /// The name of the source; all sources if absent.
        source: Option<String>,
    },
    /// Raise the lease terms above the highest term that a relay has obeyed. Needed after etcd was created
    /// again.
    RaiseTerms {
        /// The name of the source.
        source: String,
    },
    /// Start or end a downtime: a time in which no automatic failover starts.
    Downtime {
        /// The name of the source.
        source: String,
        /// The name of the server; if absent, the downtime is for the whole cluster.
        server: Option<String>,
        /// The duration of the downtime from now, in milliseconds; 0 ends it.
        for_ms: u64,
        /// The reason for the downtime, as text.
        reason: String,
    },
}

/// The manager's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagerAnswer {
    /// The reports about the clusters, after the request was executed.
    Clusters(Vec<ClusterReport>),
    /// A failover or switchover has started.
    Begun {
        /// The name of the failover or switchover.
        id: String,
    },
    /// The audit record of a failover or switchover; `None` before its first step.
    Audit(Option<Box<Audit>>),
}

/// Options of a failover.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FailoverOptions {
    /// Promote only the server with this name; the best candidate if absent.
    pub to: Option<String>,
    /// Only report the plan; change nothing.
    pub dry_run: bool,
    /// Continue although acknowledged commits may be missing on the new primary.
    pub allow_data_loss: bool,
    /// Allow a server of another region as the new primary.
    pub across_regions: bool,
    /// Whether the manager requests the failover, and not an operator.
    pub is_automatic: bool,
}

/// Options of a switchover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchoverOptions {
    /// Promote only the server with this name; the best candidate if absent.
    pub to: Option<String>,
    /// Only report the plan; change nothing.
    pub dry_run: bool,
    /// Allow a server of another region as the new primary.
    pub across_regions: bool,
    /// The longest time in which clients cannot write, in milliseconds.
    pub write_pause_ms_max: u64,
}

impl Default for SwitchoverOptions {
    fn default() -> Self {
        Self { to: None, dry_run: false, across_regions: false, write_pause_ms_max: WRITE_PAUSE_MS_MAX }
    }
}
