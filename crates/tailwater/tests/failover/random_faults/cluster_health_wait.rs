//! Waits until a cluster is healthy.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tailwater_lab::fault_trial::SOURCE_NAME;
use tailwater_manager::failover_driver::AuditFolder;
use tailwater_sandbox::Server;
use tailwater_wire::Flavour;

use super::test_cluster::Cluster;

/// Time limit of each wait. A passing test never reaches it. A server that waits for disk space checks again
/// after a minute.
pub const PATIENCE: Duration = Duration::from_secs(150);

impl Cluster {
    /// Waits until one server is the primary, and the other servers replicate from it and have applied
    /// everything. Also waits until the manager is ready for the next fault. Returns the name of the primary.
    pub async fn wait_until_healthy(&self) -> Result<String> {
        let started = Instant::now();
        loop {
            let problems = match self.problems().await {
                Ok((leader, problems)) if problems.is_empty() => {
                    self.wait_equal_gtids(&leader).await?;
                    return Ok(leader);
                }
                Ok((leader, problems)) => format!("{leader} is the primary; {}", problems.join("; ")),
                Err(error) => format!("{error:#}"),
            };
            if started.elapsed() > PATIENCE {
                bail!("the cluster does not become healthy: {problems}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the name of the primary, and a list of the problems that still make the cluster unhealthy.
    async fn problems(&self) -> Result<(String, Vec<String>)> {
        let mut problems = Vec::new();
        let Some(report) = self.report().await else { bail!("the manager does not answer") };
        if !report.lease.starts_with("held") {
            problems.push(format!("the lease is {}", report.lease));
        }
        if report.lossless.as_deref() != Some("1 of tailwater must acknowledge") {
            problems.push(format!("the report of the lossless rules is {:?}", report.lossless));
        }
        if let Some(run) = report.run.as_ref().filter(|run| self.is_under_way(run)) {
            problems.push(format!("{run} is still running"));
        }
        let findings = report.findings.iter();
        problems.extend(
            findings.map(|finding| format!("{} {}: {:?}", finding.code, finding.server, finding.evidence)),
        );
        for name in self.names() {
            let server = self.server(&name)?;
            let leads = name == report.primary;
            let is_read_only = server.sql("SELECT @@global.read_only").await?.concat() != "0";
            match (leads, is_read_only) {
                (true, true) => problems.push(format!("the primary {name} accepts no writes")),
                (false, false) => problems.push(format!("the replica {name} accepts writes")),
                _ => {}
            }
            if !leads && self.would_wait_after_restart(server).await? {
                problems.push(format!("the replica {name} would wait for ACKs after a restart"));
            }
            match server.replica_status().await? {
                Some(_) if leads => problems.push(format!("{name} replicates")),
                None if !leads => problems.push(format!("{name} does not replicate")),
                Some(status) if status.io_running != "Yes" || status.sql_running != "Yes" => {
                    problems.push(format!("{name}: {status:?}"));
                }
                _ => {}
            }
        }
        Ok((report.primary, problems))
    }

    /// Whether a persisted variable makes the server wait for ACKs after a restart. Only MySQL persists
    /// variables.
    async fn would_wait_after_restart(&self, server: &Server) -> Result<bool> {
        let kept = "SELECT COUNT(*) FROM performance_schema.persisted_variables WHERE variable_name IN \
                    ('rpl_semi_sync_source_enabled', 'rpl_semi_sync_master_enabled') AND variable_value = 'ON'";
        Ok(self.kind.flavour() == Flavour::MySql && server.sql(kept).await?.concat() != "0")
    }

    /// Whether a failover, switchover or rejoin of this daemon is still running.
    fn is_under_way(&self, run: &str) -> bool {
        let records = AuditFolder::new(self.shell.path().join("log/manager").join(SOURCE_NAME));
        records.load(run).is_ok_and(|record| record.is_none_or(|record| record.outcome.is_none()))
    }

    /// Waits until another server than `old` is the primary. Returns false if that does not happen within
    /// `patience`.
    pub async fn is_replaced(&self, old: &str, patience: Duration) -> bool {
        let started = Instant::now();
        while started.elapsed() < patience {
            if self.report().await.is_some_and(|report| report.primary != old) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }
}
