//! `LOAD DATA LOCAL` on real servers, and with a fake server that requests other files.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require, shared};
use tailwater_session::{ConnectOptions, Connection, LoadPiece, OkInfo, SessionError};
use tailwater_wire::protocol::ok_err_eof_packets::LOCAL_INFILE;
use tokio::sync::mpsc;

use crate::scripted_server::{Peer, options, serve};

on_each_server!(
    rows_in_pieces_are_loaded,
    a_rejected_row_fails_the_whole_statement,
    rows_without_an_end_are_not_loaded,
    the_error_states_that_local_infile_is_off,
);

/// Loads the rows in `body`. Sends them in pieces of `piece_bytes` bytes.
async fn load(
    connection: &mut Connection,
    statement: &str,
    body: Vec<u8>,
    piece_bytes: usize,
) -> Result<OkInfo, SessionError> {
    let (sender, mut rows) = mpsc::channel(1);
    let feed = async move {
        let mut body = Bytes::from(body);
        while !body.is_empty() {
            let piece = body.split_to(piece_bytes.min(body.len()));
            // Ignore an error: if the receiver has stopped, its result has the error.
            let _ = sender.send(LoadPiece::Bytes(piece)).await;
        }
        let _ = sender.send(LoadPiece::End).await;
    };
    let load = async {
        let loaded = connection.load_data(statement.as_bytes(), &mut rows).await;
        // Closes the channel, so that the task that sends ends too.
        rows.close();
        loaded
    };
    tokio::join!(load, feed).0
}

async fn connected(server: &Server) -> Result<Connection> {
    server.sql("SET GLOBAL local_infile = ON").await?;
    let options = ConnectOptions { local_infile: true, ..server.connect_options() };
    Ok(Connection::connect(&options).await?)
}

async fn rows_in_pieces_are_loaded(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = connected(&server).await?;
    connection.execute("CREATE DATABASE loads").await?;
    connection.execute("CREATE TABLE loads.t (a INT PRIMARY KEY, b LONGBLOB)").await?;
    let statement = "LOAD DATA LOCAL INFILE 'rows' INTO TABLE loads.t CHARACTER SET binary";
    let ok = load(&mut connection, statement, b"1\ta\\tb\n2\t\\N\n3\t\n".to_vec(), 1).await?;
    ensure!(
        (ok.affected_rows, ok.warnings) == (3, 0),
        "the OK packet of the server has the wrong numbers: {ok:?}"
    );
    let rows = connection.query("SELECT b FROM loads.t ORDER BY a").await?.rows;
    ensure!(rows[0].get(0) == Some(b"a\tb") && rows[1].get(0).is_none() && rows[2].get(0) == Some(b""));

    // Load no rows, then enough rows for many writes. After each load the connection stays usable.
    ensure!(load(&mut connection, statement, Vec::new(), 1).await?.affected_rows == 0);
    let body: Vec<u8> =
        (10..60).flat_map(|key| [format!("{key}\t").as_bytes(), &[b'x'; 70_000], b"\n"].concat()).collect();
    let ok = load(&mut connection, statement, body.clone(), 300_001).await?;
    ensure!(
        (ok.affected_rows, ok.warnings) == (50, 0),
        "the OK packet of the server has the wrong numbers: {ok:?}"
    );
    let sum = connection.query("SELECT SUM(LENGTH(b)) FROM loads.t WHERE a >= 10").await?;
    ensure!(sum.scalar() == Some("3500000"));
    // The rows exist already; for such rows LOAD DATA LOCAL returns warnings.
    let ok = load(&mut connection, statement, body, 65_536).await?;
    ensure!(
        (ok.affected_rows, ok.warnings) == (0, 50),
        "the OK packet of the server has the wrong numbers: {ok:?}"
    );

    let error = load(&mut connection, "SELECT 1", Vec::new(), 1).await.err();
    ensure!(
        matches!(error, Some(SessionError::UnexpectedResult { .. })),
        "the statement failed with an unexpected error: {error:?}"
    );
    let mut connection = connected(&server).await?;
    let error = load(&mut connection, "DO 1", Vec::new(), 1).await.err();
    ensure!(
        matches!(error, Some(SessionError::UnexpectedResult { .. })),
        "the statement failed with an unexpected error: {error:?}"
    );
    // `execute` never sends a file, even on a connection that allows the server to request one.
    let error = connection.execute(statement).await.err();
    ensure!(
        matches!(error, Some(SessionError::LocalInfile { .. })),
        "the statement failed with an unexpected error: {error:?}"
    );
    Ok(())
}

async fn a_rejected_row_fails_the_whole_statement(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = connected(&server).await?;
    connection.execute("CREATE DATABASE midload").await?;
    connection.execute("CREATE TABLE midload.t (a INT PRIMARY KEY, b TEXT)").await?;
    connection
        .execute(
            "CREATE TRIGGER midload.refuse BEFORE INSERT ON midload.t FOR EACH ROW BEGIN \
             IF NEW.a = 3 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no three'; END IF; END",
        )
        .await?;
    let body: Vec<u8> =
        (1..20_000).flat_map(|key| format!("{key}\t{}\n", "y".repeat(100)).into_bytes()).collect();
    let statement = "LOAD DATA LOCAL INFILE 'rows' INTO TABLE midload.t";
    let error =
        load(&mut connection, statement, body, 100_000).await.err().context("the row 'three' was loaded")?;
    ensure!(
        error.private_detail().is_some_and(|text| text.contains("no three")) && error.code() == "TW-SES-0009",
        "the statement failed with an unexpected error: {error}"
    );
    ensure!(connection.query("SELECT COUNT(*) FROM midload.t").await?.scalar() == Some("0"));
    // The server detects this error before it requests the file.
    let error =
        load(&mut connection, "LOAD DATA LOCAL INFILE 'rows' INTO TABLE midload.no", Vec::new(), 1).await;
    ensure!(
        error.as_ref().is_err_and(|error| error.code() == "TW-SES-0009"),
        "the statement failed with an unexpected error: {error:?}"
    );
    ensure!(connection.query("SELECT 42").await?.scalar() == Some("42"));
    Ok(())
}

async fn rows_without_an_end_are_not_loaded(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = connected(&server).await?;
    connection.execute("CREATE DATABASE brokenload").await?;
    connection.execute("CREATE TABLE brokenload.t (a INT PRIMARY KEY)").await?;
    connection.execute("BEGIN").await?;
    let (sender, mut rows) = mpsc::channel(4);
    sender.send(LoadPiece::Bytes(Bytes::from_static(b"1\n2\n"))).await?;
    drop(sender);
    let statement = b"LOAD DATA LOCAL INFILE 'rows' INTO TABLE brokenload.t";
    let error = connection.load_data(statement, &mut rows).await.err();
    ensure!(
        matches!(error, Some(SessionError::LoadBody)),
        "the statement failed with an unexpected error: {error:?}"
    );
    let error = connection.execute("COMMIT").await.err();
    ensure!(
        matches!(error, Some(SessionError::OutOfStep)),
        "the statement failed with an unexpected error: {error:?}"
    );
    drop(connection);
    // This statement waits for the locks of the transaction of the broken connection.
    let mut connection = connected(&server).await?;
    ensure!(connection.execute("INSERT INTO brokenload.t VALUES (1), (2)").await?.affected_rows == 2);
    Ok(())
}

async fn the_error_states_that_local_infile_is_off(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind).option("--local-infile=0")).await?;
    let options = ConnectOptions { local_infile: true, ..server.connect_options() };
    let mut connection = Connection::connect(&options).await?;
    connection.execute("CREATE DATABASE off").await?;
    connection.execute("CREATE TABLE off.t (a INT)").await?;
    let statement = "LOAD DATA LOCAL INFILE 'rows' INTO TABLE off.t";
    let error = load(&mut connection, statement, b"1\n".to_vec(), 9)
        .await
        .err()
        .context("the rows were loaded although local_infile is off")?;
    ensure!(
        error.code() == "TW-SES-0028" && error.to_string().contains("SET GLOBAL local_infile"),
        "the statement failed with an unexpected error: {error}"
    );
    ensure!(connection.query("SELECT COUNT(*) FROM off.t").await?.scalar() == Some("0"));
    // Check that the remedy in the error message works.
    server.sql("SET GLOBAL local_infile = ON").await?;
    let mut connection = Connection::connect(&options).await?;
    ensure!(load(&mut connection, statement, b"1\n".to_vec(), 9).await?.affected_rows == 1);
    Ok(())
}

#[tokio::test]
async fn the_server_gets_the_rows_of_the_caller_and_no_file() -> Result<()> {
    let (endpoint, task) = serve(async |mut peer: Peer| {
        peer.log_in().await?;
        peer.read().await?;
        peer.send(&[&[LOCAL_INFILE], &b"/etc/passwd"[..]].concat()).await?;
        let rows = peer.read().await?;
        ensure!(peer.read().await?.is_empty(), "the client must end the rows with an empty packet");
        peer.ok().await?;
        // The server also requests a file in answer to a statement that loads no rows.
        peer.read().await?;
        peer.send(&[&[LOCAL_INFILE], &b"/etc/shadow"[..]].concat()).await?;
        peer.received.clear();
        peer.read_to_end().await?;
        Ok((rows, peer.received))
    })
    .await?;
    let options = ConnectOptions { local_infile: true, ..options(endpoint) };
    let mut connection = Connection::connect(&options).await?;
    let statement = "LOAD DATA LOCAL INFILE 'rows' INTO TABLE t";
    load(&mut connection, statement, b"1\n".to_vec(), 9).await?;
    let error = connection.query("SELECT 1").await.err().context("the query succeeded, but it must fail")?;
    ensure!(
        error.code() == "TW-SES-0016" && error.to_string().contains("/etc/shadow"),
        "the statement failed with an unexpected error: {error}"
    );
    connection.close().await;
    let (rows, after) = task.await??;
    ensure!(
        rows == b"1\n" && after.is_empty(),
        "the client sent the rows {rows:?} and, after the second request, {after:?}"
    );
    Ok(())
}
