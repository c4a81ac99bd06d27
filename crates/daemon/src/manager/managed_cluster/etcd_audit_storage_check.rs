//! Checks at intervals that a failover could store its audit record in etcd. A failover that cannot is
//! refused, so the problem must be known before the primary fails: etcd may have no space left although it
//! still renews leases, or the value may be nearly full.

use std::time::Duration;

use tracing::warn;

use super::{ManagedCluster, interrupted_failover_recovery};

/// Interval of the checks. Each one writes the value once.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

impl<H> ManagedCluster<H> {
    /// Checks the audit records in etcd while this manager holds the lease, without end.
    pub async fn check_shared_records_forever(&self) {
        let Some(shared) = &self.parts.shared else { return };
        let mut lease = self.parts.lease.standing();
        loop {
            // Before the records of other managers are read, an empty etcd may get those of this machine.
            let may_check =
                self.parts.lease.check().is_ok() && interrupted_failover_recovery::is_adopted(&self.parts);
            let problem = if may_check { shared.problem().await } else { None };
            let is_new = self
                .records_problem
                .send_if_modified(|now| std::mem::replace(now, problem.clone()) != problem);
            if let Some(problem) = problem.filter(|_| is_new) {
                warn!(source = self.parts.source, "a failover would be refused: {problem}");
            }
            let pause = if may_check { CHECK_INTERVAL } else { Duration::from_secs(1) };
            tokio::select! {
                changed = lease.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Returns why a failover could not store its audit record in etcd, according to the last check.
    pub(super) fn records_problem(&self) -> Option<String> {
        self.records_problem.borrow().clone()
    }
}
