//! What was known of a primary becomes the order of a failover or a switchover.

use serde::{Deserialize, Serialize};
use tailwater_manager::SafetyRefusal;
use tailwater_manager::cluster_watch::{ClusterState, FailoverTrigger};
use tailwater_manager::failover::{Audit, ExpectedDurations, FailoverRequest, RunKind, RunOutcome};
use tailwater_manager::recovery::{self, InterruptedRun};
use tailwater_manager::switchover::{self, request::WRITE_PAUSE_MS_MAX};

use crate::config::{HookConfig, ManagerConfig};

/// What somebody, or the manager itself, wishes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FailoverWish {
    /// The server that shall become primary; the best if absent.
    pub to: Option<String>,
    /// Change nothing, and tell the plan.
    pub dry_run: bool,
    /// Accept what cannot be proven.
    pub allow_data_loss: bool,
    /// A server of another region will do.
    pub across_regions: bool,
    /// The manager wishes it, not a person.
    pub is_automatic: bool,
}

impl FailoverWish {
    /// What has to be shown of the primary.
    pub fn of_primary(&self) -> FailoverTrigger {
        match (self.dry_run, self.is_automatic) {
            (true, _) => FailoverTrigger::DryRun,
            (false, true) => FailoverTrigger::Automatic,
            (false, false) => FailoverTrigger::Manual,
        }
    }
}

/// What somebody wishes of a primary that is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchoverWish {
    /// The server that shall become primary; the best if absent.
    pub to: Option<String>,
    /// Change nothing, and tell the plan.
    pub dry_run: bool,
    /// A server of another region will do.
    pub across_regions: bool,
    /// How long nobody may be able to write, in milliseconds.
    pub write_pause_ms_max: u64,
}

impl Default for SwitchoverWish {
    fn default() -> Self {
        Self { to: None, dry_run: false, across_regions: false, write_pause_ms_max: WRITE_PAUSE_MS_MAX }
    }
}

/// How long steps take where nothing is in their way, for the plan of a dry run: what they took on a loopback, and a margin.
const EXPECTED: ExpectedDurations =
    ExpectedDurations { stop_ms: 20, hook_ms: 1_000, supply_ms: 200, change_ms: 20, follow_ms: 200 };

/// The order of a failover of the cluster that is watched.
///
/// # Errors
/// [`SafetyRefusal::NotVerified`] if its primary was never seen.
pub fn failover(
    id: String,
    cluster_state: &ClusterState,
    config: &ManagerConfig,
    wish: &FailoverWish,
) -> Result<FailoverRequest, SafetyRefusal> {
    let cluster = cluster_state.cluster();
    let primary = cluster.plan.primary.name.clone();
    let known = cluster_state.known_primary().ok_or_else(|| SafetyRefusal::NotVerified {
        primary: primary.clone(),
        reason: "it was never seen alive by this manager".to_owned(),
    })?;
    let names = |hooks: &[HookConfig]| hooks.iter().map(|hook| hook.name.clone()).collect();
    Ok(FailoverRequest {
        id,
        primary,
        origin: known.origin,
        version: known.version,
        region: cluster.plan.primary.region.clone(),
        last_known: Some(known.executed),
        ack_policies: cluster_state.ack_policies().cloned(),
        primary_state_age_ms: known.primary_state_age_ms,
        primary_state_max_age_ms: config.primary_state_max_age_ms,
        ackers: cluster.ackers.iter().cloned().collect(),
        fence_hooks: names(&config.fence_hooks),
        route_hooks: names(&config.route_hooks),
        direct_replicas: cluster_state.direct_replicas(),
        acks_required: config.semi_sync_acks,
        wanted: wish.to.clone(),
        across_regions: wish.across_regions || config.across_regions,
        catch_up_ms_max: config.catch_up_ms_max,
        allow_data_loss: wish.allow_data_loss,
        dry_run: wish.dry_run,
        expected: EXPECTED,
    })
}

/// The order of a switchover of the cluster that is watched.
///
/// # Errors
/// [`SafetyRefusal::NotVerified`] if its primary was never seen.
pub fn switchover(
    id: String,
    cluster_state: &ClusterState,
    config: &ManagerConfig,
    wish: &SwitchoverWish,
) -> Result<switchover::SwitchoverRequest, SafetyRefusal> {
    let as_failover = FailoverWish {
        to: wish.to.clone(),
        dry_run: wish.dry_run,
        across_regions: wish.across_regions,
        ..FailoverWish::default()
    };
    let order = failover(id, cluster_state, config, &as_failover)?;
    Ok(switchover::SwitchoverRequest {
        id: order.id,
        primary: order.primary,
        origin: order.origin,
        version: order.version,
        region: order.region,
        ackers: order.ackers,
        route_hooks: order.route_hooks,
        direct_replicas: order.direct_replicas,
        acks_required: order.acks_required,
        wanted: order.wanted,
        across_regions: order.across_regions,
        catch_up_ms_max: order.catch_up_ms_max,
        write_pause_ms_max: wish.write_pause_ms_max,
        // A statement that needs longer needs more of the pause than everything else together.
        grace_ms: wish.write_pause_ms_max / 4,
        dry_run: order.dry_run,
        expected: order.expected,
    })
}

/// The order of undoing or finishing what was left half done.
pub fn recovery(
    id: String,
    cluster_state: &ClusterState,
    config: &ManagerConfig,
    traces: InterruptedRun,
) -> recovery::RecoveryRequest {
    let route_hooks = config.route_hooks.iter().map(|hook| hook.name.clone()).collect();
    recovery::RecoveryRequest { id, traces, route_hooks, direct_replicas: cluster_state.direct_replicas() }
}

/// The record of a run that was refused before it began.
pub fn refused(
    id: String,
    kind: RunKind,
    cluster_state: &ClusterState,
    wish: &FailoverWish,
    refusal: SafetyRefusal,
) -> Box<Audit> {
    Box::new(Audit {
        id,
        kind,
        resumes: None,
        primary: cluster_state.cluster().plan.primary.name.clone(),
        dry_run: wish.dry_run,
        allow_data_loss: wish.allow_data_loss,
        token: None,
        steps: Vec::new(),
        holds: None,
        possible_loss: None,
        choice: None,
        pause_ms: None,
        outcome: Some(RunOutcome::Unchanged { refusal }),
    })
}
