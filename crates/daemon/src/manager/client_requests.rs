//! The manager of this daemon: the clusters that it manages, and the requests of clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use tailwater_manager::actions::ServerExecutor;
use tailwater_manager::lease::LeaseTask;
use tailwater_topology::failure_analysis::{AnalysisSettings, Downtime, FailoverGuard};
use tokio::task::JoinHandle;

use super::managed_cluster::ManagedCluster;
use crate::api::manager_requests::{ManagerAnswer, ManagerRequest, RunSummary};

/// How long a daemon that stops waits for a run (a failover, switchover or recovery) that is in progress.
const RUN_PATIENCE: Duration = Duration::from_secs(15);

/// All clusters that this daemon manages.
#[derive(Default)]
pub struct Manager {
    clusters: BTreeMap<String, Arc<ManagedCluster<ServerExecutor>>>,
    leases: Mutex<Vec<LeaseTask>>,
    supervisors: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager").field("clusters", &self.clusters.keys()).finish_non_exhaustive()
    }
}

impl Manager {
    pub(super) fn add(
        &mut self,
        source: &str,
        cluster: Arc<ManagedCluster<ServerExecutor>>,
        lease: LeaseTask,
        supervisor: JoinHandle<()>,
    ) {
        self.clusters.insert(source.to_owned(), cluster);
        self.leases.get_mut().push(lease);
        self.supervisors.push(supervisor);
    }

    /// Adds a task that is stopped together with the manager.
    pub(super) fn add_task(&mut self, task: JoinHandle<()>) {
        self.supervisors.push(task);
    }

    /// Sets the thresholds of the failure analysis in all clusters.
    pub fn set_analysis(&self, analysis: AnalysisSettings) {
        self.clusters.values().for_each(|cluster| cluster.set_analysis(analysis));
    }

    /// Returns the cluster of a source.
    ///
    /// # Errors
    /// If this daemon does not manage a cluster of that source.
    pub fn cluster(&self, source: &str) -> anyhow::Result<&Arc<ManagedCluster<ServerExecutor>>> {
        let known = || self.clusters.keys().cloned().collect::<Vec<_>>().join(", ");
        self.clusters
            .get(source)
            .with_context(|| format!("there is no source {source:?}; the sources are: {}", known()))
    }

    /// Returns all clusters, by the name of their source.
    pub fn clusters(&self) -> impl Iterator<Item = (&str, &Arc<ManagedCluster<ServerExecutor>>)> {
        self.clusters.iter().map(|(source, cluster)| (source.as_str(), cluster))
    }

    /// Executes a request.
    ///
    /// # Errors
    /// If the request fails.
    pub async fn execute(&self, request: ManagerRequest) -> anyhow::Result<ManagerAnswer> {
        match request {
            ManagerRequest::Status => {}
            ManagerRequest::FailOver { source, mut options } => {
                options.is_automatic = false;
                return Ok(ManagerAnswer::Begun { id: self.cluster(&source)?.fail_over(&options)? });
            }
            ManagerRequest::SwitchOver { source, options } => {
                return Ok(ManagerAnswer::Begun { id: self.cluster(&source)?.switch_over(&options)? });
            }
            ManagerRequest::Audit { source, id } => {
                return Ok(ManagerAnswer::Audit(self.cluster(&source)?.audit(&id)?.map(Box::new)));
            }
            ManagerRequest::Runs { source, count_max } => {
                let cluster = Arc::clone(self.cluster(&source)?);
                let read = tokio::task::spawn_blocking(move || cluster.audits(count_max)).await?;
                return Ok(ManagerAnswer::Runs(read?.iter().map(RunSummary::from).collect()));
            }
            ManagerRequest::Pause { source } => {
                self.change_each(source.as_deref(), FailoverGuard::pause).await?;
            }
            ManagerRequest::Resume { source } => {
                self.change_each(source.as_deref(), FailoverGuard::resume).await?;
            }
            ManagerRequest::Acknowledge { source } => {
                self.change_each(source.as_deref(), FailoverGuard::acknowledge).await?;
            }
            ManagerRequest::RaiseTerms { source } => self.cluster(&source)?.raise_terms().await?,
            ManagerRequest::Downtime { source, server, for_ms, reason } => {
                let cluster = self.cluster(&source)?;
                if let Some(server) = server.as_deref().filter(|server| !cluster.has_member(server)) {
                    bail!("there is no server {server:?} in the cluster of source {source}");
                }
                let changed = cluster.change_guard(|guard, now_ms| {
                    guard.end_downtime(server.as_deref());
                    if for_ms > 0 {
                        let until_ms = now_ms.saturating_add(for_ms);
                        let (server, reason) = (server.clone(), reason.clone());
                        guard.add_downtime(Downtime { server, from_ms: now_ms, until_ms, reason });
                    }
                });
                changed.await?;
            }
        }
        Ok(ManagerAnswer::Clusters(self.clusters.values().map(|cluster| cluster.report()).collect()))
    }

    async fn change_each(&self, source: Option<&str>, change: fn(&mut FailoverGuard)) -> anyhow::Result<()> {
        let named = source.map(|source| self.cluster(source)).transpose()?;
        for cluster in self.clusters.values().filter(|one| named.is_none_or(|named| Arc::ptr_eq(one, named)))
        {
            cluster.change_guard(|guard, _| change(guard)).await?;
        }
        Ok(())
    }

    /// Waits a limited time for a failover or switchover in progress. Then releases the leases, so that
    /// another manager need not wait until they expire.
    pub async fn stop(&self) {
        for supervisor in &self.supervisors {
            supervisor.abort();
        }
        // Wait for a failover or switchover in progress. If it were interrupted, it would leave the cluster
        // half changed, for example with a read-only primary.
        let started = Instant::now();
        while self.clusters.values().any(|cluster| cluster.is_busy()) && started.elapsed() < RUN_PATIENCE {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for cluster in self.clusters.values() {
            cluster.end_run();
        }
        let leases = std::mem::take(&mut *self.leases.lock());
        for lease in leases {
            lease.release().await;
        }
    }
}
