//! Determines whether a failover would succeed if the primary died now. The manager rehearses a failover at
//! intervals, so that a problem is reported before the primary dies.

use std::sync::Arc;
use std::time::Duration;

use tailwater_manager::FailoverReadiness;
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::candidates::CandidateServer;
use tailwater_manager::cluster_watch::ClusterState;
use tailwater_manager::failover_readiness::{refused, rehearse};

use super::super::failover_request_builder;
use super::ManagedCluster;
use crate::api::manager_requests::FailoverOptions;

/// Rehearses a failover at the interval of the probes, without end.
pub(super) async fn rehearse_forever<H: ActionExecutor + 'static>(cluster: Arc<ManagedCluster<H>>) {
    let pause = Duration::from_millis(cluster.parts.config.pace.poll_ms);
    loop {
        tokio::time::sleep(pause).await;
        // The result is stored in the watch of the present primary, because it says nothing about another
        // primary.
        let watch = Arc::clone(&cluster.watched().watch);
        let readiness = cluster.readiness(&watch.cluster_state());
        watch.set_readiness(readiness);
    }
}

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    /// Whether a failover would succeed if the primary died now.
    pub fn readiness_now(&self) -> FailoverReadiness {
        self.readiness(&self.cluster_state())
    }

    /// Returns whether a failover would succeed in the given state of the cluster.
    pub(super) fn readiness(&self, cluster_state: &ClusterState) -> FailoverReadiness {
        let unknown = |reason: &str| FailoverReadiness::Unknown { reason: reason.to_owned() };
        if self.is_busy() {
            return unknown("a failover or a switchover is under way");
        }
        if !cluster_state.has_polled_all() {
            return unknown("a server or relay has not been probed yet");
        }
        let options = FailoverOptions { dry_run: true, ..FailoverOptions::default() };
        let order = match failover_request_builder::failover(
            String::new(),
            cluster_state,
            &self.parts.config,
            &options,
        ) {
            Ok(order) => order,
            Err(refusal) => return refused(&refusal),
        };
        let plan = &cluster_state.cluster().plan;
        let channel_of = |address: &str| {
            let target = plan.targets.iter().find(|target| target.address == address)?;
            self.parts.channels.get(&target.channel).map(|channel| channel.state())
        };
        let servers: Vec<CandidateServer> = plan
            .servers
            .iter()
            .map(|member| {
                let (seen, channel) = (cluster_state.last_observation(member), channel_of(&member.address));
                CandidateServer::fed(member, &seen, channel.as_ref(), order.origin.flavour(), order.version)
            })
            .collect();
        rehearse(order, cluster_state.acker_reports(), &servers)
    }
}
