//! Dumps of servers while clients write rows and alter tables. A loaded dump must equal a native replica that
//! was stopped at the position of the dump.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_check::table_check::target_catch_up_wait::SyncMethod;
use tailwater_check::table_check::{CheckOptions, Digests};
use tailwater_dump::load::{LoadOptions, load, tailwater_folder};
use tailwater_dump::{DumpOptions, dump};
use tailwater_sandbox::native_replica::ReplicaOf;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::{ConnectOptions, Connection, SessionError};
use tailwater_tables::BulkProgress;
use tailwater_tables::schema::Selection;
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::seeded_random;
use crate::server_contents::{all, ensure_equal};
use crate::single_bit_drift::{self, Writers};
use crate::stock_client::run_script;
use crate::table_check;

on_each_server!(a_dump_under_writes_and_ddl_equals_the_source_at_one_point_in_time);

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

async fn a_dump_under_writes_and_ddl_equals_the_source_at_one_point_in_time(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, replica, target) = tokio::try_join!(
        Server::start(ServerSpec::new(kind).name("source")),
        Server::start(ServerSpec::new(kind).name("replica")),
        Server::start(ServerSpec::new(kind).name("target").option("--local-infile=1"))
    )?;
    let seed = seeded_random::seed();
    let plan = single_bit_drift::Plan::new(seed, kind, 300);
    run_script(&source, plan.script().as_bytes())?;
    source.sql("CREATE TABLE drift.renamed_a (id INT PRIMARY KEY, n INT)").await?;
    let writers = Writers::start(&source, plan.rows).await?;
    let stop = CancellationToken::new();
    let altering: Vec<_> = [
        &["ALTER TABLE every ADD COLUMN extra INT DEFAULT 7", "ALTER TABLE every DROP COLUMN extra"][..],
        &["ALTER TABLE sbtest1 ADD KEY two (pad, k)", "ALTER TABLE sbtest1 DROP KEY two"],
        &[
            "CREATE TABLE passing (id INT PRIMARY KEY, n INT)",
            "INSERT INTO passing VALUES (1, 1), (2, 2)",
            "RENAME TABLE renamed_a TO renamed_b",
            "INSERT INTO renamed_b SELECT COUNT(*) + 1, 0 FROM renamed_b b",
            "CREATE VIEW seen AS SELECT id FROM passing",
            "TRUNCATE TABLE passing",
            "RENAME TABLE renamed_b TO renamed_a",
            "CREATE OR REPLACE VIEW seen AS SELECT n FROM passing",
            "DROP VIEW seen",
            "DROP TABLE passing",
        ],
    ]
    .into_iter()
    .map(|statements| {
        tokio::spawn(alter(source.socket_options().database("drift"), statements, stop.clone()))
    })
    .collect();

    for round in 0..2 {
        let committed = writers.committed();
        let folder = tempfile::tempdir()?;
        let options = DumpOptions {
            chunk_rows_max: 40,
            connections: 3,
            // An ALTER may take long on a busy machine, and a dump waits for a long statement only up to this
            // limit.
            lock_wait_max: Duration::from_secs(10),
            ..DumpOptions::new(source.connect_options(), folder.path())
        };
        let dumping = dump(options, Arc::new(BulkProgress::default()), CancellationToken::new());
        let report =
            tokio::time::timeout(PATIENCE, dumping).await.context("the dump did not finish in time")??;
        ensure!(
            writers.committed() > committed,
            "with seed {seed}, the writers committed nothing during the dump"
        );
        let [point] = report.manifest.snapshots.as_slice() else {
            anyhow::bail!("the dump must have exactly one snapshot, but has {:?}", report.manifest.snapshots)
        };
        let gtids = point.gtid_set.as_deref().context("the snapshot has no GTIDs")?;
        target.sql("DROP DATABASE IF EXISTS drift; DROP DATABASE IF EXISTS tailwater").await?;
        let contents = tailwater_folder::read(folder.path(), false)?;
        let options = LoadOptions::new(target.connect_options());
        load(&contents, &options, &Arc::default(), &CancellationToken::new()).await?;

        replicate_until(&replica, &source, gtids).await?;
        let context = || format!("seed {seed}, round {round}: dump method {}, at {gtids}", report.method);
        ensure_equal(&all(&replica).await?, &all(&target).await?).with_context(context)?;
        let options = CheckOptions {
            selection: Selection { schemas: vec!["drift".into()], ..Selection::default() },
            sync_method: Some(SyncMethod::None),
            ..CheckOptions::new(replica.connect_options(), target.connect_options())
        };
        for digests in [options.digests, Digests::Client { seed: 7 }, Digests::OnServers] {
            let report = table_check::run(&CheckOptions { digests, ..options.clone() }).await;
            let report = report.with_context(context)?;
            ensure!(
                report.is_equal() && report.tables >= 5,
                "{}: the loaded dump differs from the replica: {report:#?}",
                context()
            );
        }
    }
    stop.cancel();
    for altering in altering {
        ensure!(altering.await?? > 0, "no ALTER TABLE succeeded during the dumps");
    }
    writers.stop().await
}

/// Runs the statements one after the other, repeatedly, until the test stops it. Returns the number of
/// successful statements.
async fn alter(
    connect: ConnectOptions,
    statements: &'static [&'static str],
    stop: CancellationToken,
) -> Result<u32, SessionError> {
    let mut connection = Connection::connect(&connect).await?;
    let mut done = 0;
    loop {
        for sql in statements {
            if stop.is_cancelled() {
                return Ok(done);
            }
            // Each statement is repeated until it succeeds, because later statements depend on earlier ones.
            loop {
                match connection.execute(sql).await {
                    Ok(_) => break done += 1,
                    // Another session holds the lock, so the statement is tried again.
                    Err(SessionError::Server { error, .. }) if [1205, 1213].contains(&error.number) => {}
                    Err(error) => return Err(error),
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Lets a replica execute those of the given GTIDs that it lacks, and nothing after them.
async fn replicate_until(replica: &Server, source: &Server, gtids: &str) -> Result<()> {
    source.create_replication_user().await?;
    let flavour = replica.kind().flavour();
    let change = ReplicaOf::port(source.port()).change_statement(flavour);
    let (stop, until) = match flavour {
        Flavour::MySql => ("STOP REPLICA", format!("START REPLICA UNTIL SQL_AFTER_GTIDS = '{gtids}'")),
        Flavour::MariaDb => ("STOP SLAVE", format!("START SLAVE UNTIL master_gtid_pos = '{gtids}'")),
    };
    replica.sql(&format!("{stop}; {change}; {until}")).await?;
    ensure!(
        replica.wait_for_gtids(gtids, PATIENCE).await?,
        "the replica has not reached the GTIDs of the dump: {:?}",
        replica.replica_status().await?
    );
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while replica.replica_status().await?.is_some_and(|status| status.sql_running == "Yes") {
        ensure!(tokio::time::Instant::now() < deadline, "the replica did not stop");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let has = replica.replicated_gtids().await?;
    ensure!(has == gtids, "the replica has the GTIDs {has}, expected {gtids}");
    Ok(())
}
