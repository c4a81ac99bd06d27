//! The demo's last step: the killed primary becomes a replica.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tailwater_sandbox::{Ledger, Server};

use super::native_replicas::replica_words;
use crate::trial::Trial;
use crate::trial::managed_cluster::PRIMARY_NAME;

/// How long something may take to be replicated.
const PATIENCE: Duration = Duration::from_secs(60);

/// Result of the rejoin.
#[derive(Debug)]
pub struct RejoinOutcome {
    /// How long it took.
    pub took_ms: u64,
    /// Undone transactions, which only it had and which were never acknowledged.
    pub undone: u64,
    /// Transactions applied again from the log.
    pub redone: u64,
    /// Rows that `rejoin` compared with the new primary's.
    pub rows_compared: u64,
    /// Whether it has exactly the rows of the ledger, and receives commits of the new primary.
    pub is_equal: bool,
    /// Problems, as text.
    pub complaints: Vec<String>,
}

/// Runs `tailwater rejoin` for the former primary, and compares it with the ledger.
///
/// # Errors
/// If it is not joined, or gets nothing.
pub async fn rejoin(trial: &Trial, new_primary: &Server, ledger: &Ledger) -> anyhow::Result<RejoinOutcome> {
    let begun = Instant::now();
    let report = trial.rejoin(PRIMARY_NAME).await?;
    let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    let healed = &report["healed"];
    arrives(new_primary, &trial.primary).await?;
    let found = ledger.compare_with_server(&trial.primary.connect_options()).await?;
    let wrong = found.missing.count + found.altered.count + found.failed_but_present.count + found.unlisted;
    Ok(RejoinOutcome {
        took_ms,
        undone: healed["undone"].as_array().map_or(0, |all| all.len() as u64),
        redone: number(&healed["transactions_again"]),
        rows_compared: number(&report["compared"]["rows"]),
        is_equal: wrong == 0,
        complaints: if wrong == 0 { Vec::new() } else { vec![format!("{PRIMARY_NAME} differs: {found}")] },
    })
}

/// Waits until what is committed on one server is on the other.
async fn arrives(from: &Server, to: &Server) -> anyhow::Result<()> {
    from.sql("CREATE DATABASE tw_back").await.context("a commit on the new primary")?;
    let begun = Instant::now();
    while to.sql("SHOW DATABASES LIKE 'tw\\_back'").await?.is_empty() {
        ensure!(
            begun.elapsed() < PATIENCE,
            "the former primary gets nothing: {}",
            replica_words(to.replica_status().await?.as_ref())
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
