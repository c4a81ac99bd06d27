//! Requests to the manager, and its answers.

use serde::{Deserialize, Serialize};
use tailwater_manager::model::{Audit, RunKind, RunOutcome};
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
    /// List the failovers and switchovers of which this machine has an audit record, the newest first.
    Runs {
        /// The name of the source.
        source: String,
        /// The greatest number of failovers and switchovers in the answer.
        count_max: usize,
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
    /// Failovers and switchovers, the newest first.
    Runs(Vec<RunSummary>),
}

/// A failover or switchover, without its steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RunSummary {
    /// The name of the failover or switchover, which begins with the time of its start, in UTC.
    pub id: String,
    /// The kind: a failover or a switchover.
    #[schema(value_type = String)]
    pub kind: RunKind,
    /// Whether the failover or switchover is a dry run.
    pub dry_run: bool,
    /// The interrupted failover or switchover that this recovery undoes or finishes.
    pub resumes: Option<String>,
    /// The old primary.
    pub primary: String,
    /// The new primary; absent if there is none.
    pub promoted: Option<String>,
    /// The outcome of the failover or switchover: `promoted`, `unchanged`, `undone`, `incomplete`, `planned`,
    /// or `unfinished`.
    pub outcome: String,
    /// The outcome of the failover or switchover, as text.
    pub end: String,
    /// Time from the start of the failover or switchover to its last step, in milliseconds.
    pub took_ms: u64,
    /// How long no server took writes, in milliseconds, if that is known.
    pub pause_ms: Option<u64>,
}

impl From<&Audit> for RunSummary {
    fn from(audit: &Audit) -> Self {
        let outcome = match &audit.outcome {
            None => "unfinished",
            Some(RunOutcome::Promoted { .. }) => "promoted",
            Some(RunOutcome::Unchanged { .. }) => "unchanged",
            Some(RunOutcome::Undone { .. }) => "undone",
            Some(RunOutcome::Incomplete { .. }) => "incomplete",
            Some(RunOutcome::Planned { .. }) => "planned",
        };
        let promoted = match &audit.outcome {
            Some(RunOutcome::Promoted { server, .. }) => Some(server.clone()),
            _ => None,
        };
        Self {
            id: audit.id.clone(),
            kind: audit.kind,
            dry_run: audit.dry_run,
            resumes: audit.resumes.clone(),
            primary: audit.primary.clone(),
            promoted,
            outcome: outcome.to_owned(),
            end: audit.end().trim_end().to_owned(),
            took_ms: audit.steps.last().map_or(0, |step| step.at_ms),
            pause_ms: audit.pause_ms,
        }
    }
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
