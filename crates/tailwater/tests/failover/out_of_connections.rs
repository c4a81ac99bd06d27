//! A primary whose connections are all used by sessions that wait for one large transaction is alive. The
//! manager says so, names the transaction, and does not fail over.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_lab::fault_trial::managed_cluster::PRIMARY_NAME;
use tailwater_sandbox::{Server, ServerKind, require};
use tailwater_session::Connection;
use tokio::task::JoinHandle;

use crate::failover::automatic_failover::{ManagedCluster, more_commits};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The `max_connections` of the primary.
const CONNECTIONS: usize = 40;

/// How many rows the large transaction changes.
const ROWS: u64 = 4_096;

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_without_free_connections_is_not_replaced_mariadb() -> Result<()> {
    a_primary_without_free_connections_is_not_replaced(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_without_free_connections_is_not_replaced_mysql() -> Result<()> {
    a_primary_without_free_connections_is_not_replaced(ServerKind::Mysql97).await
}

async fn a_primary_without_free_connections_is_not_replaced(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let cluster = ManagedCluster::start(
        kind,
        "automatic = true\n[manager.analysis]\nagreed_after_ms = 800\ndetect_after_ms = 1000",
    )
    .await?;
    let primary = &cluster.trial.primary;
    primary
        .sql(&format!(
            "SET GLOBAL max_connections = {CONNECTIONS}; CREATE DATABASE shop; \
             CREATE TABLE shop.big (id INT AUTO_INCREMENT PRIMARY KEY, filler CHAR(100)); \
             CREATE TABLE shop.small (id INT AUTO_INCREMENT PRIMARY KEY, filler CHAR(100))"
        ))
        .await?;
    let mut large = Connection::connect(&primary.connect_options()).await?;
    let session = large.query("SELECT CONNECTION_ID()").await?.scalar().context("no session id")?.to_owned();
    large.execute("BEGIN").await?;
    large.execute("INSERT INTO shop.big (filler) VALUES ('x')").await?;
    let mut rows = 1;
    while rows < ROWS {
        large.execute("INSERT INTO shop.big (filler) SELECT filler FROM shop.big").await?;
        rows *= 2;
    }
    // The lock has the effect of a slow disk under the commit: every commit waits, and no server is dead.
    let mut lock = Connection::connect(&primary.connect_options()).await?;
    lock.execute("FLUSH TABLES WITH READ LOCK").await?;
    let mut sessions = vec![tokio::spawn(async move { large.execute("COMMIT").await.map(drop) })];
    fill(primary, &mut sessions).await?;

    let finding = out_of_connections(&cluster, true).await?.context("the finding has ended by itself")?;
    ensure!(finding["server"] == PRIMARY_NAME, "the finding is about another server: {finding:#}");
    let evidence = finding["evidence"].to_string();
    ensure!(
        evidence.contains(&format!("session {session} of root has changed {ROWS} rows")),
        "the evidence does not name the large transaction of session {session}: {finding:#}"
    );
    // The state lasts several times longer than a silent primary would take to be replaced.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        fill(primary, &mut sessions).await?;
        let status = status(&cluster)?;
        ensure!(status["run"].is_null(), "the manager replaces a primary that is alive: {status:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.tailwater("status")?.exits(3).says(&["OutOfConnections", &format!("session {session}"), "KILL"]);

    lock.execute("UNLOCK TABLES").await?;
    for session in sessions {
        session.await??;
    }
    ensure!(out_of_connections(&cluster, false).await?.is_none(), "the finding lasts");
    let load = cluster.load(primary, 1);
    more_commits(&load, 50).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients got errors: {:?}", report.errors);
    ensure!(primary.sql("SELECT COUNT(*) FROM shop.big").await? == [ROWS.to_string()]);
    Ok(())
}

/// Starts writing sessions until the server refuses even administrators.
async fn fill(
    primary: &Server,
    sessions: &mut Vec<JoinHandle<Result<(), tailwater_session::SessionError>>>,
) -> Result<()> {
    loop {
        match Connection::connect(&primary.connect_options()).await {
            Ok(mut connection) => sessions.push(tokio::spawn(async move {
                connection.execute("INSERT INTO shop.small (filler) VALUES ('x')").await.map(drop)
            })),
            Err(error) if error.server_error().is_some_and(|error| error.number == 1040) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        ensure!(sessions.len() <= 2 * CONNECTIONS, "the server has no limit of connections");
    }
}

fn status(cluster: &ManagedCluster) -> Result<Value> {
    cluster
        .tailwater("manager status --output json")?
        .exits(0)
        .json()?
        .pop()
        .context("no status")
        .map(|all| all["clusters"][0].clone())
}

/// Waits until the manager reports the finding, or no longer reports it.
async fn out_of_connections(cluster: &ManagedCluster, is_expected: bool) -> Result<Option<Value>> {
    let began = Instant::now();
    loop {
        let status = status(cluster)?;
        let findings = status["findings"].as_array().cloned().unwrap_or_default();
        let found = findings.into_iter().find(|finding| finding["code"] == "OutOfConnections");
        if found.is_some() == is_expected {
            return Ok(found);
        }
        ensure!(began.elapsed() < PATIENCE, "the finding does not change: {status:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
