//! Builds the requests of failovers, switchovers and recoveries from the state of the watched cluster.

use tailwater_manager::audit_history::InterruptedRun;
use tailwater_manager::cluster_watch::{ClusterState, FailoverTrigger};
use tailwater_manager::failover::{ExpectedDurations, FailoverRequest};
use tailwater_manager::interrupted_failover_recovery::{self};
use tailwater_manager::model::{Audit, RunKind, RunOutcome};
use tailwater_manager::{SafetyRefusal, switchover};

use crate::api::manager_requests::{FailoverOptions, SwitchoverOptions};
use tailwater_config::{HookConfig, ManagerConfig};

/// Returns what must be proved about the primary before a failover with these options.
pub fn trigger_of(options: &FailoverOptions) -> FailoverTrigger {
    match (options.dry_run, options.is_automatic) {
        (true, _) => FailoverTrigger::DryRun,
        (false, true) => FailoverTrigger::Automatic,
        (false, false) => FailoverTrigger::Manual,
    }
}

/// Expected durations of steps that succeed at once, for the plan of a dry run. They were measured over the
/// loopback interface, and include a margin.
const EXPECTED: ExpectedDurations =
    ExpectedDurations { stop_ms: 20, hook_ms: 1_000, supply_ms: 200, change_ms: 20, follow_ms: 200 };

/// Returns the request for a failover of the watched cluster.
///
/// # Errors
/// [`SafetyRefusal::NotVerified`] if the cluster's primary was never reached.
pub fn failover(
    id: String,
    cluster_state: &ClusterState,
    config: &ManagerConfig,
    options: &FailoverOptions,
) -> Result<FailoverRequest, SafetyRefusal> {
    let cluster = cluster_state.cluster();
    let primary = cluster.plan.primary.name.clone();
    let known = cluster_state.known_primary().ok_or_else(|| SafetyRefusal::NotVerified {
        primary: primary.clone(),
        reason: "this manager has never reached the primary".to_owned(),
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
        wanted: options.to.clone(),
        across_regions: options.across_regions || config.across_regions,
        catch_up_ms_max: config.catch_up_ms_max,
        allow_data_loss: options.allow_data_loss,
        dry_run: options.dry_run,
        expected: EXPECTED,
    })
}

/// Returns the request for a switchover of the watched cluster.
///
/// # Errors
/// [`SafetyRefusal::NotVerified`] if the cluster's primary was never reached.
pub fn switchover(
    id: String,
    cluster_state: &ClusterState,
    config: &ManagerConfig,
    options: &SwitchoverOptions,
) -> Result<switchover::SwitchoverRequest, SafetyRefusal> {
    let as_failover = FailoverOptions {
        to: options.to.clone(),
        dry_run: options.dry_run,
        across_regions: options.across_regions,
        ..FailoverOptions::default()
    };
    let request = failover(id, cluster_state, config, &as_failover)?;
    Ok(switchover::SwitchoverRequest {
        id: request.id,
        primary: request.primary,
        origin: request.origin,
        version: request.version,
        region: request.region,
        ackers: request.ackers,
        route_hooks: request.route_hooks,
        direct_replicas: request.direct_replicas,
        acks_required: request.acks_required,
        wanted: request.wanted,
        across_regions: request.across_regions,
        catch_up_ms_max: request.catch_up_ms_max,
        write_pause_ms_max: options.write_pause_ms_max,
        // A statement that runs longer than this would use too much of the write pause.
        grace_ms: options.write_pause_ms_max / 4,
        dry_run: request.dry_run,
        expected: request.expected,
    })
}

/// Returns the request to undo or finish an interrupted failover or switchover.
pub fn recovery(
    id: String,
    cluster_state: &ClusterState,
    config: &ManagerConfig,
    traces: InterruptedRun,
) -> interrupted_failover_recovery::RecoveryRequest {
    let route_hooks = config.route_hooks.iter().map(|hook| hook.name.clone()).collect();
    interrupted_failover_recovery::RecoveryRequest {
        id,
        traces,
        route_hooks,
        direct_replicas: cluster_state.direct_replicas(),
    }
}

/// Returns the audit record of a failover or switchover that was refused before it began.
pub fn refused(
    id: String,
    kind: RunKind,
    cluster_state: &ClusterState,
    options: &FailoverOptions,
    refusal: SafetyRefusal,
) -> Box<Audit> {
    Box::new(Audit {
        id,
        kind,
        resumes: None,
        primary: cluster_state.cluster().plan.primary.name.clone(),
        servers: Vec::new(),
        dry_run: options.dry_run,
        allow_data_loss: options.allow_data_loss,
        token: None,
        steps: Vec::new(),
        holds: None,
        possible_loss: None,
        choice: None,
        pause_ms: None,
        outcome: Some(RunOutcome::Unchanged { refusal }),
    })
}
