//! Real servers with slow disk syncs.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, SlowSync, require};
use tailwater_session::Connection;

const DELAY: Duration = Duration::from_millis(2);
const COMMITS: u32 = 50;

/// Each commit of a client waits for at least one sync. So N commits take at least N delays, however fast the
/// machine is.
async fn each_commit_waits(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    if !SlowSync::is_possible() {
        // The line is not printed with `eprintln!`, because the test harness hides that output if the test
        // passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED slow syncs of {kind}: no C compiler (package gcc)");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let slow = SlowSync::compile(folder.path(), DELAY)?;
    let spec = ServerSpec::new(kind).option("--skip-log-bin").environment([slow.environment()]);
    let mut server = Server::start(spec).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    connection.execute("CREATE DATABASE d").await?;
    connection.execute("CREATE TABLE d.t (a INT PRIMARY KEY)").await?;
    let begin = Instant::now();
    for number in 0..COMMITS {
        connection.execute(&format!("INSERT INTO d.t VALUES ({number})")).await?;
    }
    let durable = begin.elapsed();
    ensure!(durable >= DELAY * COMMITS, "{COMMITS} commits took only {durable:?}");
    ensure!(server.cpu_time().is_some());
    connection.close().await;
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn each_commit_of_mariadb_waits_for_a_sync() -> Result<()> {
    each_commit_waits(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn each_commit_of_mysql_waits_for_a_sync() -> Result<()> {
    each_commit_waits(ServerKind::Mysql97).await
}
