//! A former primary is fenced while clients keep connecting to it. No client gets an OK for a commit that
//! only the former primary has.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;

use anyhow::{Result, ensure};
use tailwater_log::{LogDir, LogOptions, LogWriter};
use tailwater_rejoin::{RejoinOptions, repair};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::{ConnectOptions, Connection, Endpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Delay of the statement that makes the former primary read-only.
const READ_ONLY_DELAY: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn reconnecting_clients_get_no_ok_for_a_commit_that_only_the_former_primary_has_mariadb() -> Result<()>
{
    reconnecting_clients_get_no_false_acknowledgement(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnecting_clients_get_no_ok_for_a_commit_that_only_the_former_primary_has_mysql() -> Result<()> {
    if is_skipped_in_ci(
        "reconnecting_clients_get_no_ok_for_a_commit_that_only_the_former_primary_has_mysql",
        "the same test on MariaDB",
    ) {
        return Ok(());
    }
    reconnecting_clients_get_no_false_acknowledgement(ServerKind::Mysql97).await
}

/// Forwards connections to a server, and delays `SET GLOBAL read_only`, as happens on a busy server.
async fn slow_proxy(server: SocketAddr) -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(forward(client, server));
        }
    });
    Ok(port)
}

async fn forward(client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let back = tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = from_client.read(&mut buffer).await?;
        if count == 0 {
            to_server.shutdown().await?;
            back.await??;
            return Ok(());
        }
        if String::from_utf8_lossy(&buffer[..count]).contains("SET GLOBAL read_only") {
            tokio::time::sleep(READ_ONLY_DELAY).await;
        }
        to_server.write_all(&buffer[..count]).await?;
    }
}

/// Connects and commits repeatedly, and counts the acknowledged commits. Ignores errors.
async fn write_repeatedly(to: ConnectOptions, acknowledged: Arc<AtomicU64>, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        if let Ok(mut connection) = Connection::connect(&to).await
            && connection.execute("INSERT INTO shop.t VALUES (NULL)").await.is_ok()
        {
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn wait_until_clients_wait(server: &Server) -> Result<()> {
    let started = Instant::now();
    while !server.sql("SHOW PROCESSLIST").await?.iter().any(|line| line.contains("semi-sync ACK")) {
        ensure!(started.elapsed() < PATIENCE, "no commit waits for an ACK");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn reconnecting_clients_get_no_false_acknowledgement(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (old, new) = tokio::try_join!(
        Server::start(ServerSpec::new(kind).name("old").semi_sync_source()),
        Server::start(ServerSpec::new(kind).name("new")),
    )?;
    old.sql(
        "SET SESSION sql_log_bin = 0; CREATE DATABASE shop; CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY); \
         CREATE USER app@'%' IDENTIFIED BY 'app'; GRANT ALL ON shop.* TO app@'%'",
    )
    .await?;
    let app = ConnectOptions { user: "app".into(), password: "app".into(), ..old.connect_options() };
    let (acknowledged, over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let clients: Vec<_> = (0..4)
        .map(|_| tokio::spawn(write_repeatedly(app.clone(), Arc::clone(&acknowledged), Arc::clone(&over))))
        .collect();
    wait_until_clients_wait(&old).await?;

    let folder = tempfile::tempdir()?;
    LogWriter::open(&folder.path().join("log"), LogOptions::default())?.close()?;
    let mut server = old.connect_options();
    server.endpoint = Endpoint::tcp("127.0.0.1", slow_proxy(old.address()).await?);
    let options = RejoinOptions {
        server,
        primary: new.connect_options(),
        server_id: 4202,
        window: None,
        may_undo: true,
        tail_bytes_max: RejoinOptions::TAIL_BYTES_MAX,
        tail_file: folder.path().join("tail.binlog"),
    };
    // The log lacks transactions that the rejoin needs. The rejoin discovers that only after it has fenced
    // the server.
    let repaired = repair(&options, &LogDir::open_read_only(&folder.path().join("log"))?).await;
    ensure!(
        old.sql("SELECT @@global.read_only").await? == ["1"],
        "the former primary accepts writes after the rejoin attempt: {repaired:?}"
    );
    over.store(true, Ordering::Relaxed);
    for client in clients {
        tokio::time::timeout(PATIENCE, client).await??;
    }
    let acknowledged = acknowledged.load(Ordering::Relaxed);
    ensure!(acknowledged == 0, "{acknowledged} clients got an OK for a commit that no other server has");
    ensure!(
        old.sql("SELECT COUNT(*) FROM shop.t").await? != ["0"],
        "no client's commit waited for an ACK, so the test has shown nothing"
    );
    Ok(())
}
