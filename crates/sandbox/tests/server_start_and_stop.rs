//! Starts, stops, kills and pauses a server of each kind.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require, shared};
use tailwater_session::Connection;

async fn life_cycle_of(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut server = Server::start(ServerSpec::new(kind).option("--max-connections=77")).await?;
    ensure!(
        server.version().starts_with(kind.series()),
        "the server does not have the requested version, but {}",
        server.version()
    );
    ensure!(
        server.sql("SELECT VERSION(), @@max_connections").await? == [format!("{}\t77", server.version())]
    );

    server.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY); INSERT INTO d.t VALUES (1)").await?;
    let pid = server.pid();
    server.kill().await?;
    ensure!(server.pid().is_none() && server.sql("SELECT 1").await.is_err());
    ensure!(server.kill().await.is_err() && server.pause().is_err());
    server.start_again().await?;
    ensure!(server.pid() != pid && server.start_again().await.is_err());
    ensure!(server.sql("SELECT a FROM d.t").await? == ["1"], "a committed row is missing after a crash");

    server.restart(Some(vec!["--max-connections=78".to_owned()])).await?;
    ensure!(server.sql("SELECT @@max_connections, a FROM d.t").await? == ["78\t1"]);

    server.pause()?;
    let waits = tokio::time::timeout(Duration::from_millis(300), server.sql("SELECT 1")).await;
    ensure!(waits.is_err(), "a paused server answered");
    server.resume()?;
    ensure!(server.sql("SELECT 1").await? == ["1"]);
    server.stop().await?;
    ensure!(!server.is_running());

    let folder = server.data().to_owned();
    ensure!(folder.is_dir());
    drop(server);
    ensure!(!folder.exists(), "the data directory still exists after its server was dropped");
    Ok(())
}

#[tokio::test]
async fn mysql_97_is_started_stopped_killed_and_paused() -> Result<()> {
    life_cycle_of(ServerKind::Mysql97).await
}

#[tokio::test]
async fn mariadb_1011_is_started_stopped_killed_and_paused() -> Result<()> {
    life_cycle_of(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn mariadb_118_is_started_stopped_killed_and_paused() -> Result<()> {
    life_cycle_of(ServerKind::Mariadb118).await
}

/// A server that rejects its options reports the reason at once.
#[tokio::test]
async fn a_rejected_option_is_reported_with_the_message_of_the_server() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let error = Server::start(ServerSpec::new(kind).option("--no-such-option=1")).await.err();
    let error = error.map(|error| (error.code(), error.to_string()));
    ensure!(
        error.as_ref().is_some_and(|(code, text)| *code == "TW-SBX-0006" && text.contains("no-such-option")),
        "the error does not name the rejected option: {error:?}"
    );
    Ok(())
}

async fn semi_sync_of(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = Server::start(ServerSpec::new(kind).name("source").semi_sync_source()).await?;
    let options = source.create_replication_user().await?;
    let mut account = Connection::connect(&options).await?;
    ensure!(account.query("SELECT CURRENT_USER()").await?.scalar() == Some("tailwater@%"));
    account.close().await;
    let mut by_socket = Connection::connect(&source.socket_options()).await?;
    ensure!(by_socket.query("SELECT CURRENT_USER()").await?.scalar() == Some("root@localhost"));

    // No replica acknowledges, so a commit must wait.
    let write = source.sql("CREATE DATABASE d");
    tokio::pin!(write);
    let waits = tokio::time::timeout(Duration::from_millis(700), &mut write).await;
    ensure!(waits.is_err(), "a commit returned although no replica acknowledged it: {waits:?}");

    let replica = Server::start(ServerSpec::new(kind).name("replica").semi_sync_replica()).await?;
    replica.replicate_from(&source).await?;
    tokio::time::timeout(Duration::from_secs(30), write).await??;
    let status = source.semi_sync_status().await?;
    ensure!(
        status.on && status.replicas == 1 && status.unacknowledged == 0,
        "the replica does not acknowledge commits: {status:?}"
    );
    source.sql("CREATE TABLE d.t (a INT PRIMARY KEY); INSERT INTO d.t VALUES (7)").await?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while replica.sql("SELECT a FROM d.t").await.unwrap_or_default() != ["7"] {
        ensure!(Instant::now() < deadline, "the row did not arrive at the replica");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test]
async fn semi_sync_commits_wait_for_an_ack_on_mysql_97() -> Result<()> {
    semi_sync_of(ServerKind::Mysql97).await
}

#[tokio::test]
async fn semi_sync_commits_wait_for_an_ack_on_mariadb_118() -> Result<()> {
    semi_sync_of(ServerKind::Mariadb118).await
}

#[tokio::test]
async fn semi_sync_is_enabled_while_the_server_runs() -> Result<()> {
    for kind in ServerKind::ALL {
        if require(kind).is_none() {
            continue;
        }
        let server = Server::start(ServerSpec::new(kind)).await?;
        server.enable_semi_sync_source().await?;
        server.enable_semi_sync_replica().await?;
        ensure!(server.semi_sync_status().await?.on, "semi-sync is off on {kind}");
    }
    Ok(())
}

#[tokio::test]
async fn a_shared_server_is_reused_while_it_is_in_use() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    ensure!(std::sync::Arc::ptr_eq(&server, &shared(kind).await?));
    Ok(())
}

/// A server on a full disk reports an error, and keeps all rows that it has acknowledged.
#[tokio::test]
async fn writes_to_a_full_disk_fail_and_no_acknowledged_row_is_lost() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    // The limit leaves space for the files of a new server and for a few rows.
    let mut server = Server::start(ServerSpec::new(kind).file_kib_max(56 * 1024)).await?;
    server.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY, b LONGBLOB)").await?;
    let mut acknowledged = 0;
    while acknowledged < 100 {
        let insert = format!("INSERT INTO d.t VALUES ({acknowledged}, REPEAT('x', 1000000))");
        if server.sql(&insert).await.is_err() {
            break;
        }
        acknowledged += 1;
    }
    ensure!(
        (10..100).contains(&acknowledged),
        "{acknowledged} MB were written in spite of the limit of 56 MiB"
    );
    server.kill_if_running().await?;
    let data = server.data().to_owned();
    let roomy = Server::start(ServerSpec::new(kind).data(&data)).await?;
    let rows: i32 = roomy.sql("SELECT COUNT(*) FROM d.t").await?.concat().parse()?;
    ensure!(rows >= acknowledged, "the server has {rows} of {acknowledged} acknowledged rows");
    drop(roomy);
    ensure!(data.is_dir(), "a data directory that the caller provided was removed");
    Ok(())
}
