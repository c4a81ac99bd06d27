//! Whether a failover would go through if the primary died now: rehearsed again and again, so that it is reported
//! before it matters.

use std::sync::Arc;
use std::time::Duration;

use tailwater_manager::FailoverReadiness;
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::candidates::CandidateServer;
use tailwater_manager::cluster_watch::ClusterState;
use tailwater_manager::failover_readiness::rehearse;

use super::super::run_requests::{self, FailoverWish};
use super::ManagedCluster;

/// Rehearses at the pace of looks, for ever.
pub(super) async fn rehearse_for_ever<H: ActionExecutor + 'static>(cluster: Arc<ManagedCluster<H>>) {
    let pause = Duration::from_millis(cluster.parts.config.pace.poll_ms);
    loop {
        tokio::time::sleep(pause).await;
        // Kept with what was heard of this primary: of another one it says nothing.
        let watch = Arc::clone(&cluster.watched().watch);
        let readiness = cluster.readiness(&watch.cluster_state());
        watch.set_readiness(readiness);
    }
}

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    /// Whether a failover would go through if the primary died now.
    pub fn readiness_now(&self) -> FailoverReadiness {
        self.readiness(&self.cluster_state())
    }

    /// Whether a failover would go through, as far as was heard.
    pub(super) fn readiness(&self, cluster_state: &ClusterState) -> FailoverReadiness {
        let unknown = |reason: &str| FailoverReadiness::Unknown { reason: reason.to_owned() };
        if self.is_busy() {
            return unknown("a failover or a switchover is under way");
        }
        if !cluster_state.has_polled_all() {
            return unknown("not every server and relay was asked yet");
        }
        let wish = FailoverWish { dry_run: true, ..FailoverWish::default() };
        let order = match run_requests::failover(String::new(), cluster_state, &self.parts.config, &wish) {
            Ok(order) => order,
            Err(refusal) => return FailoverReadiness::refused(&refusal),
        };
        let plan = &cluster_state.cluster().plan;
        let feed_of = |address: &str| {
            let target = plan.targets.iter().find(|target| target.address == address)?;
            self.parts.feeds.get(&target.channel).map(|feed| feed.state())
        };
        let servers: Vec<CandidateServer> = plan
            .servers
            .iter()
            .map(|member| {
                let (seen, feed) = (cluster_state.last_observation(member), feed_of(&member.address));
                CandidateServer::fed(member, &seen, feed.as_ref(), order.origin.flavour(), order.version)
            })
            .collect();
        rehearse(order, cluster_state.acker_reports(), &servers)
    }
}
