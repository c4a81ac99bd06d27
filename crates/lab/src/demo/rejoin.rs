//! The demo's last step: the killed primary becomes a replica again.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tailwater_sandbox::{Ledger, Server};

use super::native_replicas::replica_words;
use crate::fault_trial::Trial;
use crate::fault_trial::managed_cluster::PRIMARY_NAME;

/// Time limit for the replication of one commit.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of the rejoin.
#[derive(Debug)]
pub struct RejoinOutcome {
    /// How long the rejoin took, in milliseconds.
    pub took_ms: u64,
    /// Number of undone transactions. Only the former primary had them, and they were never acknowledged.
    pub undone: u64,
    /// Number of transactions that were applied again from the log.
    pub redone: u64,
    /// Number of rows that `rejoin` compared with the new primary's.
    pub rows_compared: u64,
    /// Whether the former primary has exactly the rows of the ledger, and receives commits of the new
    /// primary.
    pub is_equal: bool,
    /// Problems that were found, as text.
    pub complaints: Vec<String>,
}

/// Runs `tailwater rejoin` for the former primary, and compares that server with the ledger.
///
/// # Errors
/// If the rejoin fails, or the server does not replicate afterwards.
pub async fn rejoin(trial: &Trial, new_primary: &Server, ledger: &Ledger) -> anyhow::Result<RejoinOutcome> {
    let started = Instant::now();
    let report = trial.rejoin(PRIMARY_NAME).await?;
    let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    let healed = &report["healed"];
    wait_replicated(new_primary, &trial.primary).await?;
    let found = ledger.compare_with_server(&trial.primary.connect_options()).await?;
    let wrong = found.missing.count + found.altered.count + found.failed_but_present.count + found.unlisted;
    Ok(RejoinOutcome {
        took_ms,
        undone: healed["undone"].as_array().map_or(0, |all| all.len() as u64),
        redone: number(&healed["transactions_again"]),
        rows_compared: number(&report["compared"]["rows"]),
        is_equal: wrong == 0,
        complaints: if wrong == 0 {
            Vec::new()
        } else {
            vec![format!("{PRIMARY_NAME} differs from the ledger: {found}")]
        },
    })
}

/// Commits a transaction on one server, and waits until the other server has it.
async fn wait_replicated(from: &Server, to: &Server) -> anyhow::Result<()> {
    from.sql("CREATE DATABASE tw_back").await.context("the new primary did not commit a statement")?;
    let started = Instant::now();
    while to.sql("SHOW DATABASES LIKE 'tw\\_back'").await?.is_empty() {
        ensure!(
            started.elapsed() < PATIENCE,
            "the former primary did not replicate a commit: {}",
            replica_words(to.replica_status().await?.as_ref())
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
