//! Throttles against real servers: what cannot be known holds, and work goes on when servers are well again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tailwater_bulk::{Progress, Throttle, ThrottleQuery, ThrottleRules};
use tailwater_sandbox::{ServerKind, replica, require, shared};
use tailwater_session::ConnectOptions;

use crate::checked::Replicated;

on_each_server!(replicas_and_threads_and_queries_hold);

/// Only reached when something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the throttle says what is wanted; gives the reason if it holds.
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
    let said = tokio::time::timeout(PATIENCE, wanted).await;
    ensure!(said.is_ok(), "wanted {part:?}, and it says {:?}", throttle.reason());
    Ok(())
}

fn rules() -> ThrottleRules {
    ThrottleRules { every: Duration::from_millis(20), ..ThrottleRules::default() }
}

async fn replicas_and_threads_and_queries_hold(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let servers = Replicated::start(kind).await?;
    let (source, target) = (servers.source.connect_options(), servers.target.connect_options());
    let lag = ThrottleRules { replicas: vec![target.clone()], ..rules() };
    let throttle = Arc::new(Throttle::start(lag, source.clone()));
    let progress = Arc::new(Progress::default());
    throttle.pass(&progress).await;
    ensure!(progress.held().is_none());
    servers.target.sql(replica::stop_statement(kind.flavour())).await?;
    until(&throttle, Some("replication is not running")).await?;
    let waiting = {
        let (throttle, progress) = (Arc::clone(&throttle), Arc::clone(&progress));
        tokio::spawn(async move { throttle.pass(&progress).await })
    };
    while progress.held().is_none() {
        ensure!(!waiting.is_finished(), "it has passed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    servers.target.sql(replica::start_statement(kind.flavour())).await?;
    tokio::time::timeout(PATIENCE, waiting).await??;
    ensure!(progress.held().is_none(), "{:?}", progress.held());

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
    until(&throttle, Some("it gave no value")).await?;
    servers.source.sql("DROP TABLE gauge.g").await?;
    until(&throttle, Some("cannot be read")).await?;
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_none_or_no_replica_holds() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let alone = ThrottleRules { replicas: vec![server.connect_options()], ..rules() };
    until(&Throttle::start(alone, server.connect_options()), Some("it is no replica")).await?;
    let nobody = ConnectOptions { user: "nobody".into(), ..server.connect_options() };
    let denied = ThrottleRules { replicas: vec![nobody], ..rules() };
    until(&Throttle::start(denied, server.connect_options()), Some("cannot be read")).await
}
