//! Tests throttles on real servers: unknown values pause work, and work resumes when the servers recover.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tailwater_sandbox::{ServerKind, native_replica, require, shared};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_tables::{BulkProgress, Throttle, ThrottleQuery, ThrottleRules};

use crate::source_and_replica::{ReplicaPair, gtids};

on_each_server!(replicas_threads_and_queries_pause_work, lagging_and_unresponsive_servers_pause_work);

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the throttle has the wanted decision: a wait whose reason contains `part`, or no wait.
async fn until(throttle: &Throttle, part: Option<&str>) -> Result<()> {
    let wanted = async {
        loop {
            match (throttle.reason(), part) {
                (None, None) => return,
                (Some(reason), Some(part)) if reason.contains(part) => return,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let decided = tokio::time::timeout(PATIENCE, wanted).await;
    ensure!(
        decided.is_ok(),
        "the reason of the throttle must contain {part:?}, but the reason is {:?}",
        throttle.reason()
    );
    Ok(())
}

fn rules() -> ThrottleRules {
    ThrottleRules { every: Duration::from_millis(20), ..ThrottleRules::default() }
}

async fn replicas_threads_and_queries_pause_work(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let servers = ReplicaPair::start(kind).await?;
    let (source, target) = (servers.source.connect_options(), servers.target.connect_options());
    let lag = ThrottleRules { replicas: vec![target.clone()], ..rules() };
    let throttle = Arc::new(Throttle::start(lag, source.clone()));
    let progress = Arc::new(BulkProgress::default());
    throttle.pass(&progress).await;
    ensure!(progress.wait_reason().is_none());
    servers.target.sql(native_replica::stop_statement(kind.flavour())).await?;
    until(&throttle, Some("replication is not running")).await?;
    let waiting = {
        let (throttle, progress) = (Arc::clone(&throttle), Arc::clone(&progress));
        tokio::spawn(async move { throttle.pass(&progress).await })
    };
    while progress.wait_reason().is_none() {
        ensure!(!waiting.is_finished(), "the work was not paused");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    servers.target.sql(native_replica::start_statement(kind.flavour())).await?;
    tokio::time::timeout(PATIENCE, waiting).await??;
    ensure!(
        progress.wait_reason().is_none(),
        "the throttle still pauses the work: {:?}",
        progress.wait_reason()
    );

    let threads = ThrottleRules { threads_running_max: Some(0), ..rules() };
    until(&Throttle::start(threads, source.clone()), Some("Threads_running")).await?;
    let threads = ThrottleRules { threads_running_max: Some(10_000), ..rules() };
    until(&Throttle::start(threads, source.clone()), None).await?;

    servers
        .source
        .sql("CREATE DATABASE gauge; CREATE TABLE gauge.g (n DOUBLE); INSERT INTO gauge.g VALUES (0)")
        .await?;
    let query = ThrottleQuery { sql: "SELECT n FROM gauge.g".into(), max: 0.0 };
    let throttle = Throttle::start(ThrottleRules { query: Some(query), ..rules() }, source.clone());
    until(&throttle, None).await?;
    servers.source.sql("UPDATE gauge.g SET n = 0.5").await?;
    until(&throttle, Some("the throttle query is 0.5, more than 0")).await?;
    servers.source.sql("UPDATE gauge.g SET n = NULL").await?;
    until(&throttle, Some("the query returned no value")).await?;
    servers.source.sql("DROP TABLE gauge.g").await?;
    until(&throttle, Some("cannot be read")).await?;
    Ok(())
}

/// Measures a replica that lags, a replica that is frozen, and a replica whose replication is stopped. Also
/// measures a frozen server, whose values are unknown.
async fn lagging_and_unresponsive_servers_pause_work(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut servers = ReplicaPair::start(kind).await?;
    let (source, target) = (servers.source.connect_options(), servers.target.connect_options());
    servers
        .source
        .sql("CREATE DATABASE gauge; CREATE TABLE gauge.g (id INT PRIMARY KEY, n DOUBLE); INSERT INTO gauge.g VALUES (1, 0)")
        .await?;
    let gtids = servers.source.sql(gtids(kind)).await?.concat().replace("\\n", "");
    ensure!(servers.target.wait_for_gtids(&gtids, PATIENCE).await?);
    let lag_max = Duration::from_secs(1);
    let lag = ThrottleRules { replicas: vec![target.clone()], replica_lag_max: lag_max, ..rules() };
    let throttle = Throttle::start(lag, source.clone());
    until(&throttle, None).await?;
    let mut holder = Connection::connect(&target).await?;
    holder.execute("BEGIN").await?;
    holder.query("SELECT n FROM gauge.g WHERE id = 1 FOR UPDATE").await?;
    servers.source.sql("UPDATE gauge.g SET n = 0.25").await?;
    until(&throttle, Some(" s, more than 1 s")).await?;
    holder.execute("ROLLBACK").await?;
    until(&throttle, None).await?;

    servers.target.pause()?;
    until(&throttle, Some("cannot be read")).await?;
    servers.target.resume()?;
    until(&throttle, None).await?;
    servers.target.kill().await?;
    until(&throttle, Some("cannot be read")).await?;
    servers.target.start_again().await?;
    servers.target.sql(native_replica::start_statement(kind.flavour())).await?;
    until(&throttle, None).await?;

    let query = Some(ThrottleQuery { sql: "SELECT n FROM gauge.g".into(), max: 1.0 });
    let here = ThrottleRules { threads_running_max: Some(10_000), query, ..rules() };
    let throttle = Throttle::start(here, source);
    until(&throttle, None).await?;
    servers.source.pause()?;
    until(&throttle, Some("the throttle query cannot be read")).await?;
    until(&throttle, Some("Threads_running of")).await?;
    servers.source.resume()?;
    until(&throttle, None).await
}

#[tokio::test]
async fn a_server_without_replication_pauses_work() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let alone = ThrottleRules { replicas: vec![server.connect_options()], ..rules() };
    until(&Throttle::start(alone, server.connect_options()), Some("the server is not a replica")).await?;
    let unknown = ConnectOptions { user: "nobody".into(), ..server.connect_options() };
    let denied = ThrottleRules { replicas: vec![unknown], ..rules() };
    until(&Throttle::start(denied, server.connect_options()), Some("cannot be read")).await
}
