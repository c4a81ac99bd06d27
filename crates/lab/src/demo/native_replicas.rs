//! The demo's native replicas, which read from Tailwater as if it were the primary.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use tailwater_log::LogDir;
use tailwater_sandbox::{Ledger, ReplicaStatus, Server, ServerKind};
use tailwater_wire::gtid::GtidSet;

use crate::fault_trial::Trial;
use crate::fault_trial::managed_cluster::start_candidate;

/// How long a replica may take to apply the rest of the log after the load has ended.
const PATIENCE: Duration = Duration::from_secs(120);

/// The servers that replicate from the relay.
#[derive(Debug)]
pub struct NativeReplicas {
    servers: Vec<Server>,
}

/// The state of the replicas at the end of the demo.
#[derive(Debug, Default)]
pub struct ReplicaOutcome {
    /// Number of replicas.
    pub replicas: u64,
    /// Number of replicas that have applied everything in the log.
    pub at_the_end: u64,
    /// Number of replicas that have exactly the rows of the ledger.
    pub equal_to_ledger: u64,
    /// Number of acknowledged transactions that are missing on any of the replicas.
    pub missing: u64,
    /// Problems that were found, as text.
    pub complaints: Vec<String>,
}

impl ReplicaOutcome {
    /// Whether every replica has all rows of the ledger, and no others.
    pub fn is_ok(&self) -> bool {
        self.replicas > 0 && self.at_the_end == self.replicas && self.equal_to_ledger == self.replicas
    }
}

impl NativeReplicas {
    /// Starts `count` unmodified servers.
    ///
    /// # Errors
    /// If a server cannot be started.
    pub async fn start(kind: ServerKind, count: u32) -> anyhow::Result<Self> {
        let mut servers = Vec::new();
        for number in 1..=count {
            // The replicas start at number 2, because the primary has number 1.
            servers.push(start_candidate(kind, 1 + number).await?);
        }
        Ok(Self { servers })
    }

    /// Makes the servers replicas of the relay.
    ///
    /// # Errors
    /// If a server refuses.
    pub async fn follow(&self, trial: &Trial) -> anyhow::Result<()> {
        for server in &self.servers {
            server.replicate(&trial.replica_of_relay()).await?;
        }
        Ok(())
    }

    /// Returns all replicas.
    pub fn servers(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }

    /// Returns the first replica, for comparisons.
    ///
    /// # Errors
    /// If there are no replicas.
    pub fn first(&self) -> anyhow::Result<&Server> {
        self.servers.first().context("there are no replicas")
    }

    /// Returns the replica with this name.
    ///
    /// # Errors
    /// If there is no such replica.
    pub fn named(&self, name: &str) -> anyhow::Result<&Server> {
        let found = self.servers.iter().find(|server| server.name() == name);
        found.with_context(|| format!("there is no replica {name}"))
    }

    /// Waits until the replicas have applied everything in `log`, and compares their tables with the ledger.
    /// Does not wait for `primary`, the promoted replica, because the log captures from that server.
    ///
    /// # Errors
    /// If the log cannot be read, or a server does not answer. Missing rows are not an error; they are in the
    /// [`ReplicaOutcome`].
    pub async fn compare_at_end(
        &self,
        log: &Path,
        ledger: &Ledger,
        primary: &str,
    ) -> anyhow::Result<ReplicaOutcome> {
        let gtids = LogDir::open_read_only(log)?.gtid_set()?.context("Tailwater's log is empty")?;
        let wanted = match &gtids {
            GtidSet::MySql(set) => set.to_string(),
            GtidSet::MariaDb(state) => state.position().to_string(),
        };
        ensure!(!wanted.is_empty(), "Tailwater's log has no GTIDs");
        let mut outcome = ReplicaOutcome { replicas: self.servers.len() as u64, ..ReplicaOutcome::default() };
        for server in &self.servers {
            let name = server.name();
            if name == primary || server.wait_for_gtids(&wanted, PATIENCE).await? {
                outcome.at_the_end += 1;
            } else {
                let status = server.replica_status().await?;
                outcome.complaints.push(format!(
                    "{name} did not reach the end of the log: {}",
                    replica_words(status.as_ref())
                ));
            }
            let report = ledger.compare_with_server(&server.connect_options()).await?;
            outcome.missing += report.missing.count;
            let wrong = report.missing.count
                + report.altered.count
                + report.failed_but_present.count
                + report.unlisted;
            if wrong == 0 {
                outcome.equal_to_ledger += 1;
            } else {
                outcome.complaints.push(format!("{name} differs from the ledger: {report}"));
            }
        }
        Ok(outcome)
    }

    /// Stops the replicas.
    ///
    /// # Errors
    /// If a replica does not stop.
    pub async fn stop(self) -> anyhow::Result<()> {
        for mut server in self.servers {
            server.stop().await?;
        }
        Ok(())
    }
}

/// Describes the state of a replica, for messages.
pub(super) fn replica_words(status: Option<&ReplicaStatus>) -> String {
    status.map_or_else(|| "the server is not a replica".to_owned(), ToString::to_string)
}
