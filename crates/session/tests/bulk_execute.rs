//! Runs prepared statements with many rows of values on real servers.

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{ServerKind, require, shared};
use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::protocol::bulk_execute::put_value;

on_each_server!(values_arrive_unchanged,);

fn rows(rows: &[[Option<&[u8]>; 2]]) -> Vec<u8> {
    let mut out = Vec::new();
    rows.iter().flatten().for_each(|value| put_value(&mut out, *value));
    out
}

async fn values_arrive_unchanged(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    ensure!(connection.takes_bulk() == (kind.flavour() == Flavour::MariaDb));
    if !connection.takes_bulk() {
        return Ok(());
    }
    connection.execute("CREATE DATABASE bulks").await?;
    connection.execute("CREATE TABLE bulks.t (a INT PRIMARY KEY, b LONGBLOB)").await?;
    let statement = connection.prepare_bulk("INSERT INTO bulks.t VALUES (?, ?)").await?;
    ensure!(statement.parameters() == 2);
    let bytes: Vec<u8> = (0..=255).collect();
    let long = vec![b'x'; 100_000];
    let some = rows(&[
        [Some(b"1"), Some(&bytes)],
        [Some(b"2"), None],
        [Some(b"3"), Some(b"")],
        [Some(b"4"), Some(&long)],
    ]);
    let ok = connection.execute_bulk(&statement, &some).await?;
    ensure!(
        (ok.affected_rows, ok.warnings) == (4, 0),
        "the OK packet of the server has the wrong numbers: {ok:?}"
    );
    let found = connection.query("SELECT b FROM bulks.t ORDER BY a").await?.rows;
    let found: Vec<_> = found.iter().map(|row| row.get(0)).collect();
    ensure!(found == [Some(&bytes[..]), None, Some(b""), Some(&long)]);

    // A bulk statement applies all rows or none. After an error, the connection and the statement stay
    // usable.
    let twice = rows(&[[Some(b"5"), None], [Some(b"1"), None]]);
    let error = connection.execute_bulk(&statement, &twice).await.err();
    ensure!(matches!(error, Some(SessionError::Server { error, .. }) if error.number == 1062));
    let cut = rows(&[[Some(b"6.5"), None], [Some(b"8"), None]]);
    connection.execute("SET sql_mode = ''").await?;
    let ok = connection.execute_bulk(&statement, &cut).await?;
    ensure!(ok.affected_rows == 2);
    let count = connection.query("SELECT COUNT(*) FROM bulks.t").await?;
    ensure!(count.scalar() == Some("6"), "the table has a wrong number of rows: {count:?}");
    connection.close_bulk(statement).await?;
    let error = connection
        .prepare_bulk("INSERT INTO bulks.none VALUES (?)")
        .await
        .err()
        .context("a statement on a missing table was prepared")?;
    ensure!(
        matches!(error, SessionError::Server { .. }),
        "the statement failed with an unexpected error: {error}"
    );
    connection.ping().await?;
    Ok(())
}
