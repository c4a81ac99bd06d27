//! Many clients, and clients that misbehave, use few resources and delay no other client.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Link, ReplicaOf, Server, ServerKind};
use tailwater_session::{Connection, DumpRequest, DumpStart, DumpStream};
use tailwater_wire::Flavour;

use crate::binlog_server_with_replicas::{
    READER, READER_PASSWORD, Tailwater, check_equal, start_replica, until_in_step,
};
use crate::capture_test_source::{PATIENCE, Source, run};

/// The number of idle clients.
const IDLE: usize = 500;

/// The number of rows of one megabyte that the test writes. Together they are larger than the system's
/// buffers for a client that reads nothing.
const MEGABYTES: u32 = 24;

/// The maximum growth of this process's memory, in bytes, while all clients of the test are connected and
/// other tests run.
const GROWTH_MAX: u64 = 128 << 20;

/// The memory that this process uses, in bytes.
fn resident_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("/proc/self/status has no VmRSS")?;
    Ok(line.trim_end_matches("kB").trim().parse::<u64>()? << 10)
}

/// Writes many rows, in transactions of one megabyte.
async fn write_megabytes(source: &Source, megabytes: u32) -> Result<()> {
    source.server.sql("CREATE TABLE IF NOT EXISTS tw_load.big (id INT PRIMARY KEY, body LONGBLOB)").await?;
    let rows = (1..=megabytes)
        .map(|id| format!("REPLACE INTO tw_load.big VALUES ({id}, REPEAT(SHA2(RAND(), 512), 8192));"));
    source.server.sql(&rows.collect::<String>()).await?;
    Ok(())
}

/// Requests the stream from its beginning, and does not read it.
async fn dump(tailwater: &Tailwater, flavour: Flavour, server_id: u32) -> Result<DumpStream> {
    let connection = Connection::connect(&tailwater.account(READER, READER_PASSWORD)).await?;
    let start = match flavour {
        Flavour::MySql => DumpStart::MysqlGtid { set_block: vec![0; 8] },
        Flavour::MariaDb => DumpStart::MariadbGtid { connect_state: String::new() },
    };
    Ok(connection.dump(DumpRequest::new(server_id, start)).await?)
}

/// Returns the number of streams that the account without `admin` reads.
fn of_reader(streams: &[(u32, String)]) -> usize {
    streams.iter().filter(|(_, line)| line.contains(READER)).count()
}

fn ids(streams: &[(u32, String)]) -> Vec<u32> {
    streams.iter().map(|(id, _)| *id).collect()
}

/// Waits until a replica has received a few more heartbeats.
async fn until_heartbeats(replica: &Server) -> Result<()> {
    let question = match replica.kind().flavour() {
        Flavour::MySql => {
            "SELECT COUNT_RECEIVED_HEARTBEATS FROM performance_schema.replication_connection_status"
        }
        Flavour::MariaDb => {
            "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME='SLAVE_RECEIVED_HEARTBEATS'"
        }
    };
    let count = async || anyhow::Ok(replica.sql(question).await?.concat().parse::<u64>()?);
    let (begin, before) = (Instant::now(), count().await?);
    while count().await? < before + 2 {
        ensure!(begin.elapsed() < PATIENCE, "the replica receives no heartbeats");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Waits until a replica has detected that its source is silent.
async fn until_silence_is_detected(replica: &Server) -> Result<()> {
    let begin = Instant::now();
    loop {
        let status = replica.replica_status().await?.context("the server is not a replica")?;
        if status.io_running != "Yes" {
            return Ok(());
        }
        ensure!(
            begin.elapsed() < PATIENCE,
            "the replica has not detected that its source is silent: {status:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn crowd(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start(kind, &[]).await? else { return Ok(()) };
    let flavour = source.flavour();
    let mut tailwater = Tailwater::of(&source)?;
    tailwater.limits.write_timeout = Some(Duration::from_secs(3));
    tailwater.start_again().await?;
    source.prepare().await?;
    let (first, second) =
        tokio::try_join!(start_replica(kind, "first", &[]), start_replica(kind, "second", &[]))?;
    first.replicate(&tailwater.replica()).await?;
    let link = Link::open(std::net::SocketAddr::from(([127, 0, 0, 1], tailwater.port()))).await?;
    let by_link = ReplicaOf::port(link.port());
    let patience = match flavour {
        Flavour::MySql => "SET GLOBAL replica_net_timeout=4",
        Flavour::MariaDb => "SET GLOBAL slave_net_timeout=4",
    };
    second.sql(patience).await?;
    second.replicate(&by_link).await?;

    let resident_before = resident_bytes()?;
    // Connect many idle clients.
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(Connection::connect(&tailwater.account(READER, READER_PASSWORD)).await?);
    }
    source.write(20).await?;
    until_in_step(&first, &source.server).await?;
    let there = tailwater.sql("SHOW PROCESSLIST").await?.len();
    ensure!(there >= IDLE + 3, "only {there} of the idle clients are connected");
    idle[0].ping().await?;
    idle[IDLE - 1].ping().await?;

    // The server disconnects clients that request the whole log and read nothing. Until then, they delay no
    // other client.
    let stalled = [dump(&tailwater, flavour, 901).await?, dump(&tailwater, flavour, 902).await?];
    tailwater
        .until_streams("the streams of the clients that read nothing", |now| of_reader(now) == 2)
        .await?;
    write_megabytes(&source, MEGABYTES).await?;
    source.write(10).await?;
    check_equal(&first, &source.server, &source.ledger).await?;
    let resident = resident_bytes()?;
    ensure!(
        resident < resident_before + GROWTH_MAX,
        "the memory of the process grew from {resident_before} to {resident} bytes"
    );
    tailwater
        .until_streams("the streams of the clients that read nothing to end", |now| of_reader(now) == 0)
        .await?;
    drop(stalled);
    drop(idle);
    let begin = Instant::now();
    while tailwater.sql("SHOW PROCESSLIST").await?.len() > 5 {
        ensure!(begin.elapsed() < PATIENCE, "disconnected clients are still listed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    // The link of the second replica is cut silently. The replica reconnects, and its dead connection ends.
    until_in_step(&second, &source.server).await?;
    let before =
        tailwater.until_streams("the streams of both replicas", |streams| streams.len() == 2).await?;
    until_heartbeats(&second).await?;
    link.cut_both();
    source.write(5).await?;
    check_equal(&first, &source.server, &source.ledger).await?;
    until_silence_is_detected(&second).await?;
    link.restore();
    check_equal(&second, &source.server, &source.ledger).await?;
    let came_again = |now: &[(u32, String)]| now.len() == 2 && ids(now) != ids(&before);
    tailwater.until_streams("a new stream of the second replica", came_again).await?;

    killed_connections_return(&tailwater, &mut source, [&first, &second]).await?;
    tailwater.stop().await
}

/// Replicas reconnect after their connections were killed.
async fn killed_connections_return(
    tailwater: &Tailwater,
    source: &mut Source,
    replicas: [&Server; 2],
) -> Result<()> {
    for (id, _) in tailwater.streams().await? {
        tailwater.sql(&format!("KILL {id}")).await?;
    }
    source.write(5).await?;
    for replica in replicas {
        check_equal(replica, &source.server, &source.ledger).await?;
        let status = replica.replica_status().await?.context("the server is not a replica")?;
        ensure!(status.io_running == "Yes", "the replica has not reconnected: {status:?}");
    }
    Ok(())
}

/// A client that reads nothing, not even the shutdown error, does not delay the stop of the server.
#[test]
fn the_stop_of_the_server_does_not_wait_for_clients() -> Result<()> {
    run(async {
        let Some(source) = Source::start(ServerKind::Mariadb1011, &[]).await? else { return Ok(()) };
        let mut tailwater = Tailwater::of(&source)?;
        tailwater.limits.write_timeout = None;
        tailwater.start_again().await?;
        source.prepare().await?;
        // Write small events, so that the shutdown error can be sent between two of them.
        let small = "CREATE TABLE tw_load.small AS SELECT seq AS id, REPEAT('x', 1000) AS body FROM tw_load.seq_1_to_24000";
        source.server.sql(small).await?;
        source.until_complete("log").await?;
        let mut deaf = Vec::new();
        // When the second client connects under the same server id, the server ends the stream of the first.
        for _ in 0..2 {
            deaf.push(dump(&tailwater, Flavour::MariaDb, 903).await?);
        }
        // The first stream may still be listed. It has already ended if the server was inside an event.
        tailwater.until_streams("the stream of the second client", |now| of_reader(now) >= 1).await?;
        tokio::time::timeout(PATIENCE, tailwater.stop())
            .await
            .context("the binlog server does not stop in time")?
    })
}

#[test]
fn many_clients_do_not_delay_replicas_of_mysql_97() -> Result<()> {
    run(crowd(ServerKind::Mysql97))
}

#[test]
fn many_clients_do_not_delay_replicas_of_mariadb_1011() -> Result<()> {
    run(crowd(ServerKind::Mariadb1011))
}
