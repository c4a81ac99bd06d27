//! When a cluster is as it should be.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tailwater_lab::trial::SOURCE_NAME;
use tailwater_manager::driver::AuditFolder;
use tailwater_sandbox::Server;
use tailwater_wire::Flavour;

use super::cluster::Cluster;

/// How long anything may take before it counts as stuck. It decides nothing but when to give up. A server that waits for room on
/// its disk looks again after a minute.
pub const PATIENCE: Duration = Duration::from_secs(150);

impl Cluster {
    /// Waits until one server leads, the others follow it and are in step, and the manager is ready for the next fault; and tells
    /// who leads.
    pub async fn healed(&self) -> Result<String> {
        let begun = Instant::now();
        loop {
            let ailments = match self.ailments().await {
                Ok((leader, ailments)) if ailments.is_empty() => {
                    self.in_step(&leader).await?;
                    return Ok(leader);
                }
                Ok((leader, ailments)) => format!("{leader} leads; {}", ailments.join("; ")),
                Err(error) => format!("{error:#}"),
            };
            if begun.elapsed() > PATIENCE {
                bail!("the cluster does not heal: {ailments}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Who leads, and what is not as it should be.
    async fn ailments(&self) -> Result<(String, Vec<String>)> {
        let mut ailments = Vec::new();
        let Some(report) = self.report().await else { bail!("the manager does not answer") };
        if !report.lease.starts_with("held") {
            ailments.push(format!("the lease is {}", report.lease));
        }
        if report.lossless.as_deref() != Some("1 of tailwater must acknowledge") {
            ailments.push(format!("a failover would rest on: {:?}", report.lossless));
        }
        if let Some(run) = report.run.as_ref().filter(|run| self.is_under_way(run)) {
            ailments.push(format!("{run} is under way"));
        }
        let findings = report.findings.iter();
        ailments.extend(
            findings.map(|finding| format!("{} {}: {:?}", finding.code, finding.server, finding.evidence)),
        );
        for name in self.names() {
            let server = self.server(&name)?;
            let leads = name == report.primary;
            let is_read_only = server.sql("SELECT @@global.read_only").await?.concat() != "0";
            match (leads, is_read_only) {
                (true, true) => ailments.push(format!("{name} takes no writes")),
                (false, false) => ailments.push(format!("{name} takes writes")),
                _ => {}
            }
            if !leads && self.would_wait_after_restart(server).await? {
                ailments.push(format!("{name} would wait for ACKs after a restart, as a replica"));
            }
            match server.replica_status().await? {
                Some(_) if leads => ailments.push(format!("{name} replicates")),
                None if !leads => ailments.push(format!("{name} replicates from nobody")),
                Some(status) if status.io_running != "Yes" || status.sql_running != "Yes" => {
                    ailments.push(format!("{name}: {status:?}"));
                }
                _ => {}
            }
        }
        Ok((report.primary, ailments))
    }

    /// Whether it keeps a setting by which it would: MySQL does.
    async fn would_wait_after_restart(&self, server: &Server) -> Result<bool> {
        let kept = "SELECT COUNT(*) FROM performance_schema.persisted_variables WHERE variable_name IN \
                    ('rpl_semi_sync_source_enabled', 'rpl_semi_sync_master_enabled') AND variable_value = 'ON'";
        Ok(self.kind.flavour() == Flavour::MySql && server.sql(kept).await?.concat() != "0")
    }

    /// Whether a run of this daemon has no end yet.
    fn is_under_way(&self, run: &str) -> bool {
        let records = AuditFolder::new(self.shell.path().join("log/manager").join(SOURCE_NAME));
        records.load(run).is_ok_and(|record| record.is_none_or(|record| record.outcome.is_none()))
    }

    /// Waits until another server than that leads; false if that does not come in time.
    pub async fn is_replaced(&self, old: &str, patience: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if self.report().await.is_some_and(|report| report.primary != old) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }
}
