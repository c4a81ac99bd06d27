//! Tests that the dump detects a lost snapshot, and that a session that sets the replication state does not
//! block a snapshot forever.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::Connection;
use tailwater_tables::BulkError;
use tailwater_tables::schema::{Selection, TableName};
use tailwater_tables::snapshot::{Snapshot, SnapshotMethod, SnapshotOptions};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::dump_of_busy_server::{fill, start};

on_each_server!(a_lost_snapshot_is_detected, a_snapshot_does_not_wait_for_a_session_that_sets_gtid_slave_pos,);

/// A snapshot of one table on two connections.
fn two_readers(server: &Server) -> SnapshotOptions {
    SnapshotOptions {
        connect: server.connect_options(),
        connections: 2,
        lock_wait_max: Duration::from_secs(5),
        selection: Selection { tables: vec![TableName::new("shop", "plain")], ..Selection::default() },
        finished: HashSet::new(),
        channels_stopped: Vec::new(),
    }
}

async fn a_lost_snapshot_is_detected(kind: ServerKind) -> Result<()> {
    let Some(server) = start(kind).await? else { return Ok(()) };
    fill(&server).await?;
    let options = two_readers(&server);
    let mut snapshot = Snapshot::take(&options).await?;
    for reader in &mut snapshot.readers {
        Snapshot::check_open(&mut reader.connection).await?;
        ensure!(reader.tables().count() == 1);
    }
    // Simulates a server that ends the transaction of the snapshot, as a statement with an implicit commit
    // does.
    let connection = &mut snapshot.readers.first_mut().context("the snapshot has no connection")?.connection;
    connection.execute("COMMIT").await?;
    let lost = Snapshot::check_open(connection).await;
    ensure!(
        matches!(lost, Err(BulkError::SnapshotLost { .. })),
        "the dump did not detect the lost snapshot: {lost:?}"
    );
    Ok(())
}

/// `SET GLOBAL gtid_slave_pos` holds the server's replication mutex while it waits for the end of the backup
/// stage. A snapshot that asked for the replication status in that stage would never end.
async fn a_snapshot_does_not_wait_for_a_session_that_sets_gtid_slave_pos(kind: ServerKind) -> Result<()> {
    if kind.flavour() == Flavour::MySql || require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind).options(["--skip-log-bin"])).await?;
    fill(&server).await?;
    let stop = CancellationToken::new();
    let setter = tokio::spawn({
        let (stop, mut connection) = (stop.clone(), Connection::connect(&server.connect_options()).await?);
        async move {
            connection.execute("SET SESSION lock_wait_timeout = 30").await?;
            let mut number = 0;
            while !stop.is_cancelled() {
                number += 1;
                connection.execute(&format!("SET GLOBAL gtid_slave_pos = '0-1-{number}'")).await?;
            }
            anyhow::Ok(number)
        }
    });
    let options = two_readers(&server);
    for _ in 0..20 {
        let snapshot = Snapshot::take(&options).await?;
        ensure!(
            snapshot.method == SnapshotMethod::BackupStage,
            "the snapshot was not taken in a backup stage, but with the method {:?}",
            snapshot.method
        );
    }
    stop.cancel();
    ensure!(setter.await?? > 0, "no session set gtid_slave_pos during the snapshots");
    Ok(())
}
