//! Compares the binlog stream of real servers with their binlog files.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require, shared};
use tailwater_session::{
    ConnectOptions, Connection, DumpRequest, DumpStart, DumpStream, SessionError, SessionRetry, TlsMode,
};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::EventType;
use tailwater_wire::gtid::MysqlGtidSet;

on_each_server!(
    streams_have_the_bytes_of_the_binlog_files,
    streams_begin_after_a_gtid_position,
    a_refused_request_fails_before_the_stream_begins,
    commits_wait_for_the_acknowledgement,
    disabled_semi_sync_is_detected,
    a_quiet_source_sends_heartbeats,
);

/// A server id that no other test uses on the same server at the same time.
fn server_id() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(900_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn to_the_end(start: DumpStart) -> DumpRequest {
    DumpRequest { non_blocking: true, ..DumpRequest::new(server_id(), start) }
}

/// Returns the name of the binlog file to which the server writes now.
async fn current(server: &Server) -> Result<String> {
    let mut connection = Connection::connect(&server.connect_options()).await?;
    let sql = match server.kind().flavour() {
        Flavour::MySql => "SHOW BINARY LOG STATUS",
        Flavour::MariaDb => "SHOW MASTER STATUS",
    };
    let status = connection.query(sql).await?;
    Ok(status.scalar().context("the server has no current binlog file")?.to_owned())
}

/// Reads a stream to the end of its first binlog file. Returns the bytes of all events except artificial
/// events.
async fn read_file(stream: &mut DumpStream) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next().await? {
        let in_file = !chunk.header.is_artificial()
            && chunk.header.event_type != EventType::HEARTBEAT
            && !(chunk.header.event_type == EventType::ROTATE && chunk.header.timestamp == 0);
        if in_file {
            bytes.extend_from_slice(&chunk.data);
        }
        if chunk.header.event_type == EventType::ROTATE && in_file {
            return Ok(bytes);
        }
    }
    anyhow::bail!("the stream ended before the end of its binlog file")
}

async fn streams_have_the_bytes_of_the_binlog_files(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind).option("--max-allowed-packet=128M")).await?;
    let file = current(&server).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    connection.execute("CREATE DATABASE bytes").await?;
    connection.execute("CREATE TABLE bytes.t (a INT PRIMARY KEY, b LONGBLOB)").await?;
    // Insert values of these lengths. Some events then have about the size at which the stream cuts an event
    // into chunks, or at which the server splits a packet.
    for (index, length) in [0, 100, 1 << 20, 0xff_ffff - 70, 0xff_ffff, 2 * 0xff_ffff + 9].iter().enumerate()
    {
        connection.execute(&format!("INSERT INTO bytes.t VALUES ({index}, REPEAT('x', {length}))")).await?;
    }
    connection.execute("UPDATE bytes.t SET b = 'y' WHERE a < 3").await?;
    connection.execute("FLUSH BINARY LOGS").await?;
    let expected = fs::read(server.data().join(&file))?;
    for mode in [TlsMode::Off, TlsMode::Preferred] {
        let mut options = server.connect_options();
        options.tls.mode = mode;
        for start_file in [file.as_str(), ""] {
            let connection = Connection::connect(&options).await?;
            let start = DumpStart::FilePosition { file: start_file.to_owned(), position: 4 };
            let mut stream = connection.dump(to_the_end(start)).await?;
            ensure!(stream.flavour() == kind.flavour() && !stream.semi_sync() && !stream.takes_acks());
            let bytes = read_file(&mut stream).await?;
            if start_file == file {
                ensure!(
                    bytes == expected[4..],
                    "the stream has {} bytes, but the file has {}",
                    bytes.len(),
                    expected.len() - 4
                );
            } else {
                let oldest = connection_to_oldest(&server).await?;
                ensure!(
                    bytes == fs::read(server.data().join(oldest))?[4..],
                    "the stream differs from the oldest file"
                );
            }
            while stream.next().await?.is_some() {}
        }
    }
    Ok(())
}

async fn connection_to_oldest(server: &Server) -> Result<String> {
    let mut connection = Connection::connect(&server.connect_options()).await?;
    let files = connection.query("SHOW BINARY LOGS").await?;
    Ok(files.scalar().context("the server lists no binlog files")?.to_owned())
}

fn contains(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}

async fn streams_begin_after_a_gtid_position(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    connection.execute("CREATE DATABASE gtids").await?;
    connection.execute("CREATE TABLE gtids.t (a VARCHAR(100))").await?;
    connection.execute("INSERT INTO gtids.t VALUES ('written before the start position')").await?;
    let position = match kind.flavour() {
        Flavour::MySql => "SELECT @@GLOBAL.gtid_executed",
        Flavour::MariaDb => "SELECT @@GLOBAL.gtid_binlog_pos",
    };
    let position = connection
        .query(position)
        .await?
        .scalar()
        .context("the server has no GTID position")?
        .replace('\n', "");
    connection.execute("INSERT INTO gtids.t VALUES ('written after the start position')").await?;
    let start = |text: &str| -> Result<DumpStart> {
        Ok(match kind.flavour() {
            Flavour::MySql => DumpStart::MysqlGtid { set_block: text.parse::<MysqlGtidSet>()?.encode() },
            Flavour::MariaDb => DumpStart::MariadbGtid { connect_state: text.to_owned() },
        })
    };
    for (text, sees_before) in [(position.as_str(), false), ("", true)] {
        let connection = Connection::connect(&server.connect_options()).await?;
        let mut stream = connection.dump(to_the_end(start(text)?)).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().await? {
            bytes.extend_from_slice(&chunk.data);
        }
        ensure!(
            contains(&bytes, "written after the start position"),
            "the stream from position {text:?} lacks the row that was written after this position"
        );
        ensure!(
            contains(&bytes, "written before the start position") == sees_before,
            "the stream from position {text:?} has or lacks the row that was written before it, contrary to the request"
        );
    }
    Ok(())
}

async fn a_refused_request_fails_before_the_stream_begins(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let connection = Connection::connect(&server.connect_options()).await?;
    let start = DumpStart::FilePosition { file: "nothing.000001".to_owned(), position: 4 };
    let error = connection
        .dump(to_the_end(start.clone()))
        .await
        .err()
        .context("a stream of a missing file was started")?;
    ensure!(
        error.server_error().map(|error| error.number) == Some(1236),
        "the stream failed with an unexpected error: {error}"
    );
    ensure!(error.retry() == SessionRetry::AfterChange);

    server.sql("CREATE USER IF NOT EXISTS nodump@'%' IDENTIFIED BY 'pw'").await?;
    let options = ConnectOptions { user: "nodump".to_owned(), ..server.connect_options() }.password("pw");
    let error = Connection::connect(&options)
        .await?
        .dump(to_the_end(start))
        .await
        .err()
        .context("a stream was started without the privilege")?;
    ensure!(
        error.server_error().is_some_and(|error| [1045, 1227].contains(&error.number)),
        "the stream failed with an unexpected error: {error}"
    );
    Ok(())
}

async fn commits_wait_for_the_acknowledgement(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind)).await?;
    server.create_replication_user().await?;
    server.sql("CREATE DATABASE semi; CREATE TABLE semi.t (a INT PRIMARY KEY)").await?;
    server.enable_semi_sync_source().await?;
    let file = current(&server).await?;
    let connection = Connection::connect(&server.replication_options()).await?;
    let start = DumpStart::FilePosition { file: file.clone(), position: 4 };
    let request = DumpRequest { semi_sync: true, ..DumpRequest::new(server_id(), start) };
    let mut stream = connection.dump(request).await?;
    ensure!(stream.semi_sync() && stream.takes_acks());

    let mut writer = Connection::connect(&server.connect_options()).await?;
    const ROWS: u32 = 20;
    let writing = tokio::spawn(async move {
        for row in 0..ROWS {
            writer.execute(&format!("INSERT INTO semi.t VALUES ({row})")).await?;
        }
        anyhow::Ok(())
    });
    let mut acknowledged = 0;
    while acknowledged < ROWS {
        let chunk = stream.next().await?.context("the binlog stream ended early")?;
        if chunk.ack_requested && chunk.header.event_type == EventType::XID {
            ensure!(!writing.is_finished(), "a commit did not wait for its acknowledgement");
            stream.ack(&file, chunk.header.end_log_pos.into()).await?;
            acknowledged += 1;
        } else if chunk.ack_requested {
            stream.ack(&file, chunk.header.end_log_pos.into()).await?;
        }
    }
    writing.await??;
    let status = server.semi_sync_status().await?;
    ensure!(
        status.unacknowledged == 0 && status.acknowledged >= u64::from(ROWS) && status.replicas == 1,
        "the server reports an unexpected semi-sync status: {status:?}"
    );
    Ok(())
}

async fn disabled_semi_sync_is_detected(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind)).await?;
    let oldest = connection_to_oldest(&server).await?;
    let start = DumpStart::FilePosition { file: oldest, position: 4 };
    let connection = Connection::connect(&server.connect_options()).await?;
    let mut stream = connection.dump(DumpRequest { semi_sync: true, ..to_the_end(start) }).await?;
    ensure!(!stream.semi_sync());
    // In MySQL semi-sync is a plugin that is not loaded. In MariaDB it is built in and disabled, but MariaDB
    // still puts the semi-sync header before each event.
    ensure!(stream.takes_acks() == (kind.flavour() == Flavour::MariaDb));
    while let Some(chunk) = stream.next().await? {
        ensure!(!chunk.ack_requested);
    }
    Ok(())
}

async fn a_quiet_source_sends_heartbeats(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut server = Server::start(ServerSpec::new(kind)).await?;
    let start = DumpStart::FilePosition { file: current(&server).await?, position: 4 };
    let request = |seconds| DumpRequest {
        heartbeat: Duration::from_secs(seconds),
        ..DumpRequest::new(server_id(), start.clone())
    };
    // The heartbeat period is long enough that a source on a busy machine does not count as silent.
    let connection = Connection::connect(&server.connect_options()).await?;
    let mut stream = connection.dump(request(5)).await?;
    loop {
        let chunk = stream.next().await?.context("the binlog stream ended early")?;
        if [EventType::HEARTBEAT, EventType::HEARTBEAT_V2].contains(&chunk.header.event_type) {
            break;
        }
    }
    drop(stream);
    let connection = Connection::connect(&server.connect_options()).await?;
    let mut stream = connection.dump(request(2)).await?;
    // A server that hangs sends no heartbeats, so the client detects that the server is silent.
    server.pause()?;
    let error = loop {
        match stream.next().await {
            Ok(chunk) => ensure!(chunk.is_some(), "the binlog stream ended without an error"),
            Err(error) => break error,
        }
    };
    ensure!(
        matches!(error, SessionError::Timeout { seconds, .. } if seconds == Duration::from_secs(6)),
        "the stream failed with an unexpected error: {error}"
    );
    ensure!(error.retry() == SessionRetry::Later);
    server.resume()?;
    Ok(())
}

#[tokio::test]
async fn the_stream_of_a_killed_source_ends_with_a_retryable_error() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let mut server = Server::start(ServerSpec::new(kind)).await?;
    let start = DumpStart::FilePosition { file: current(&server).await?, position: 4 };
    let connection = Connection::connect(&server.connect_options()).await?;
    let mut stream = connection.dump(DumpRequest::new(server_id(), start)).await?;
    server.kill().await?;
    let error = loop {
        match stream.next().await {
            Ok(chunk) => ensure!(chunk.is_some(), "the binlog stream ended without an error"),
            Err(error) => break error,
        }
    };
    ensure!(error.retry() == SessionRetry::Later, "the stream failed with an unexpected error: {error}");
    let error = Connection::connect(&server.connect_options())
        .await
        .err()
        .context("a connection to the killed server succeeded")?;
    ensure!(error.code() == "TW-SES-0001", "the connection failed with an unexpected error: {error}");
    Ok(())
}
