//! Starting, stopping, killing and pausing each kind of server.

use anyhow::{Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec};

async fn life_of(kind: ServerKind) -> Result<()> {
    let began = std::time::Instant::now();
    let mut server = Server::start(ServerSpec::new(kind).option("--max-connections=77")).await?;
    eprintln!("{kind}: ready after {:?}: {}", began.elapsed(), server.version());
    ensure!(server.version().starts_with(kind.series()), "version {}", server.version());
    ensure!(
        server.sql("SELECT VERSION(), @@max_connections").await? == [format!("{}\t77", server.version())]
    );

    server.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY); INSERT INTO d.t VALUES (1)").await?;
    let pid = server.pid();
    server.kill().await?;
    ensure!(server.pid().is_none() && server.sql("SELECT 1").await.is_err());
    server.start_again().await?;
    ensure!(server.pid() != pid);
    ensure!(server.sql("SELECT a FROM d.t").await? == ["1"], "a committed row is gone after a crash");

    server.restart(Some(vec!["--max-connections=78".to_owned()])).await?;
    ensure!(server.sql("SELECT @@max_connections, a FROM d.t").await? == ["78\t1"]);

    server.pause()?;
    let waits = tokio::time::timeout(std::time::Duration::from_millis(300), server.sql("SELECT 1")).await;
    ensure!(waits.is_err(), "a paused server answered");
    server.resume()?;
    ensure!(server.sql("SELECT 1").await? == ["1"]);
    let began = std::time::Instant::now();
    server.stop().await?;
    eprintln!("{kind}: stopped after {:?}", began.elapsed());
    ensure!(!server.is_running());
    Ok(())
}

#[tokio::test]
async fn mysql_97() -> Result<()> {
    life_of(ServerKind::Mysql97).await
}

#[tokio::test]
async fn mariadb_1011() -> Result<()> {
    life_of(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn mariadb_118() -> Result<()> {
    life_of(ServerKind::Mariadb118).await
}
