//! Checks of servers whose settings could cause false differences, or hide differences.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tailwater_check::table_check::target_catch_up_wait::{SyncMethod, SyncPosition, SyncWaiter};
use tailwater_check::table_check::{CheckOptions, Digests, check};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, native_replica, require, shared};
use tailwater_session::Connection;
use tailwater_tables::schema::Selection;
use tailwater_tables::{BulkError, BulkProgress, Throttle, ThrottleQuery, ThrottleRules};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::source_and_replica::ReplicaPair;
use crate::stock_client::run_script;
use crate::table_check::run;

on_each_server!(
    session_settings_of_the_server_do_not_affect_a_check,
    meaningless_gtids_are_refused,
    an_unreadable_table_is_reported,
    a_mark_is_kept_on_a_new_connection
);

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

fn of_database(name: &str) -> Selection {
    Selection { schemas: vec![name.into()], ..Selection::default() }
}

/// The server's defaults for session settings do not affect a check: it sees no uncommitted rows, and sees
/// newly committed rows. No time-out closes the connections of a paused check.
async fn session_settings_of_the_server_do_not_affect_a_check(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) =
        tokio::try_join!(Server::start(ServerSpec::new(kind)), Server::start(ServerSpec::new(kind)))?;
    let script = "CREATE DATABASE inherited; USE inherited; CREATE TABLE t (id INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 1), (2, 2); \
         CREATE DATABASE gauge; CREATE TABLE gauge.g (n DOUBLE); INSERT INTO gauge.g VALUES (1)";
    for server in [&source, &target] {
        run_script(server, script.as_bytes())?;
        server.sql("SET GLOBAL wait_timeout = 1").await?;
    }
    let isolation = match kind.flavour() {
        Flavour::MySql => "SET GLOBAL transaction_isolation = 'READ-UNCOMMITTED'",
        Flavour::MariaDb => "SET GLOBAL tx_isolation = 'READ-UNCOMMITTED'",
    };
    let mut writer = Connection::connect(&source.connect_options()).await?;
    writer.execute("SET SESSION wait_timeout = 3600").await?;
    writer.execute("BEGIN").await?;
    writer.execute("INSERT INTO inherited.t VALUES (3, 3)").await?;
    writer.execute("UPDATE inherited.t SET a = 9 WHERE id = 1").await?;
    source.sql(isolation).await?;
    let options = CheckOptions {
        selection: of_database("inherited"),
        sync_method: Some(SyncMethod::None),
        ..CheckOptions::new(source.connect_options(), target.connect_options())
    };
    let report = run(&options).await?;
    ensure!(report.is_equal() && report.rows == 2, "the servers differ before any change: {report:#?}");

    writer.execute("COMMIT").await?;
    source.sql(&isolation.replace("READ-UNCOMMITTED", "REPEATABLE-READ")).await?;
    // After this change the target equals the source.
    target.sql("INSERT INTO inherited.t VALUES (3, 3); UPDATE inherited.t SET a = 9 WHERE id = 1").await?;
    source.sql("SET GLOBAL autocommit = 0").await?;
    let query = ThrottleQuery { sql: "SELECT n FROM gauge.g".into(), max: 0.0 };
    let every = Duration::from_millis(20);
    // If the throttle's connection used a snapshot, it would always read the first value of `n`.
    let rules = ThrottleRules { query: Some(query), every, ..ThrottleRules::default() };
    let throttle = Arc::new(Throttle::start(rules, target.connect_options()));
    let progress = Arc::new(BulkProgress::default());
    let checks = {
        let (options, progress) = (options.clone(), Arc::clone(&progress));
        tokio::spawn(async move { check(&options, throttle, progress, CancellationToken::new()).await })
    };
    let held = async {
        while progress.wait_reason().is_none() && !checks.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await?;
    ensure!(!checks.is_finished(), "the check was not paused");
    // The check is paused for longer than the idle time-out of the servers.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    for server in [&source, &target] {
        server.sql("UPDATE inherited.t SET a = 5 WHERE id = 2; COMMIT").await?;
    }
    target.sql("UPDATE gauge.g SET n = 0").await?;
    let report = tokio::time::timeout(PATIENCE, checks).await???;
    ensure!(report.is_equal() && report.rows == 3, "the servers differ after the pause: {report:#?}");

    // A row changes on both sides after the check has read it on the source. The check must read the row
    // again.
    let mut holder = Connection::connect(&target.connect_options()).await?;
    holder.execute("SET SESSION wait_timeout = 3600").await?;
    holder.execute("LOCK TABLES inherited.t WRITE").await?;
    let checks = tokio::spawn(async move { run(&options).await });
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'";
    let reads = async {
        while !checks.is_finished() && target.sql(waiting).await? == ["0"] {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok::<_, anyhow::Error>(())
    };
    tokio::time::timeout(PATIENCE, reads).await??;
    ensure!(!checks.is_finished(), "the check did not wait for the table");
    source.sql("UPDATE inherited.t SET a = 6 WHERE id = 2; COMMIT").await?;
    holder.execute("UPDATE inherited.t SET a = 6 WHERE id = 2").await?;
    holder.execute("UNLOCK TABLES").await?;
    let report = tokio::time::timeout(PATIENCE, checks).await???;
    ensure!(report.is_equal() && report.rows == 3, "the changed row counts as different: {report:#?}");
    Ok(())
}

/// Some GTID positions prove nothing: those that do not change with the rows, and the empty position, which
/// every server has. The check refuses them even if the user has chosen GTIDs.
async fn meaningless_gtids_are_refused(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) = tokio::try_join!(
        Server::start(ServerSpec::new(kind).option(match kind.flavour() {
            Flavour::MySql => "--log-replica-updates=OFF",
            Flavour::MariaDb => "--log-slave-updates=OFF",
        })),
        Server::start(ServerSpec::new(kind))
    )?;
    source.sql("CREATE DATABASE unsure; CREATE TABLE unsure.t (id INT PRIMARY KEY)").await?;
    target.sql("CREATE DATABASE unsure; CREATE TABLE unsure.t (id INT PRIMARY KEY)").await?;
    let options = CheckOptions {
        selection: of_database("unsure"),
        sync_method: Some(SyncMethod::Gtid),
        wait_max: Duration::ZERO,
        ..CheckOptions::new(source.connect_options(), target.connect_options())
    };
    let refusal = async |options: &CheckOptions| match run(options).await {
        Err(BulkError::SyncUnknown { reason, .. }) => reason,
        other => format!("the check was not refused: {other:?}"),
    };
    // The target does not have the source's GTIDs yet, so the check waits for them.
    let outcome = run(&options).await;
    ensure!(
        matches!(outcome, Err(BulkError::TargetBehind { .. })),
        "the check did not wait for the source's GTIDs: {outcome:?}"
    );
    if kind.flavour() == Flavour::MariaDb {
        // Give both servers the GTIDs that replicated transactions would leave.
        for server in [&source, &target] {
            server.sql("SET GLOBAL gtid_slave_pos = '7-7-7'").await?;
        }
        for sync_method in [None, Some(SyncMethod::Gtid)] {
            let reason = refusal(&CheckOptions { sync_method, ..options.clone() }).await;
            ensure!(
                reason.contains("log_slave_updates"),
                "{sync_method:?}: the reason does not name log_slave_updates: {reason}"
            );
        }
        source.sql("SET GLOBAL gtid_slave_pos = ''").await?;
    }
    let reset = match kind.flavour() {
        Flavour::MySql => "RESET BINARY LOGS AND GTIDS",
        Flavour::MariaDb => "RESET MASTER",
    };
    source.sql(reset).await?;
    for sync_method in [None, Some(SyncMethod::Gtid)] {
        let reason = refusal(&CheckOptions { sync_method, ..options.clone() }).await;
        ensure!(
            reason.contains("no GTID yet"),
            "{sync_method:?}: the reason is not the missing GTID: {reason}"
        );
    }
    let other = match kind.flavour() {
        Flavour::MySql => ServerKind::Mariadb1011,
        Flavour::MariaDb => ServerKind::Mysql97,
    };
    if require(other).is_some() {
        let other = shared(other).await?;
        let reason = refusal(&CheckOptions { source: other.connect_options(), ..options }).await;
        ensure!(
            reason.contains("different families"),
            "the reason is not the different server families: {reason}"
        );
    }
    Ok(())
}

/// The target always lags by two seconds. A chunk may take 400 ms. The time for which the check waits for the
/// target must not count as time of the chunk.
#[tokio::test]
async fn a_lagging_target_does_not_shrink_chunks() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let servers = ReplicaPair::start(kind).await?;
    let script = "CREATE DATABASE late; USE late; CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t SELECT seq FROM seq_1_to_47000";
    servers.source.sql(script).await?;
    servers.source.sql("ANALYZE TABLE late.t").await?;
    servers.target.sql(native_replica::stop_statement(kind.flavour())).await?;
    servers.target.sql("CHANGE MASTER TO MASTER_DELAY = 2").await?;
    servers.target.sql(native_replica::start_statement(kind.flavour())).await?;
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state");
    let options = CheckOptions {
        selection: of_database("late"),
        sync_method: Some(SyncMethod::Mark),
        workers: 1,
        chunk_time_max: Duration::from_millis(400),
        state: Some(state.clone()),
        ..servers.options()
    };
    let report = tokio::time::timeout(PATIENCE, run(&options)).await??;
    ensure!(
        report.is_equal() && report.rows == 47_000,
        "the servers differ, or rows are missing: {report:#?}"
    );
    // The first chunk has 10,000 rows, and each further chunk 1.5 times as many as the chunk before it.
    let chunks = std::fs::read_to_string(&state)?.matches("\"planned\"").count();
    ensure!(chunks <= 3, "the table was cut into {chunks} chunks, expected at most 3");
    Ok(())
}

/// A check reports a table that a server cannot read, and compares the other tables.
async fn an_unreadable_table_is_reported(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) =
        tokio::try_join!(Server::start(ServerSpec::new(kind)), Server::start(ServerSpec::new(kind)))?;
    let script = "CREATE DATABASE broken; USE broken; CREATE TABLE first (id INT PRIMARY KEY); \
        CREATE TABLE gone (id INT PRIMARY KEY, n INT); CREATE TABLE last (id INT PRIMARY KEY, n INT); \
        CREATE TABLE part (id INT) ENGINE=MyISAM; CREATE TABLE whole (id INT) ENGINE=MERGE UNION=(part); \
        INSERT INTO first VALUES (1), (2), (3); INSERT INTO gone VALUES (1, 1); INSERT INTO last VALUES (1, 1), (2, 2); \
        INSERT INTO part VALUES (1)";
    for server in [&source, &target] {
        server.sql(script).await?;
    }
    source.sql("ALTER TABLE broken.part ENGINE=InnoDB").await?;
    target
        .sql("USE broken; ALTER TABLE gone DISCARD TABLESPACE; UPDATE last SET n = 3 WHERE id = 2; DELETE FROM first WHERE id = 3")
        .await?;
    let folder = tempfile::tempdir()?;
    let options = CheckOptions {
        selection: of_database("broken"),
        sync_method: Some(SyncMethod::None),
        workers: 2,
        chunk_rows_max: 1,
        state: Some(folder.path().join("state")),
        ..CheckOptions::new(source.connect_options(), target.connect_options())
    };
    for digests in [Digests::OnServers, Digests::Quick { seed: 5 }, Digests::Client { seed: 5 }] {
        let options = CheckOptions { state: None, digests, ..options.clone() };
        let report = run(&options).await?;
        let found: Vec<_> = report.differences.iter().map(|difference| difference.table.as_str()).collect();
        ensure!(
            found == ["first", "last"],
            "with digests {digests:?}, the differences of the readable tables are not found: {report:#?}"
        );
        let texts: Vec<_> = report.findings.iter().map(|finding| format!("{finding:?}")).collect();
        ensure!(
            texts.len() == 2 && !report.is_equal(),
            "with digests {digests:?}, the two unreadable tables are not reported: {texts:#?}"
        );
        ensure!(
            texts.iter().any(|text| text.contains("gone") && text.contains("on the target: error")),
            "the table `gone` is not reported as unreadable on the target: {texts:#?}"
        );
        ensure!(
            texts.iter().any(|text| text.contains("whole") && text.contains("on the source: error")),
            "the table `whole` is not reported as unreadable on the source: {texts:#?}"
        );
    }
    // A resumed check tries the unreadable tables again.
    let report = run(&options).await?;
    ensure!(report.findings.len() == 2, "the unreadable tables are not reported again: {report:#?}");
    target.sql("USE broken; DROP TABLE gone; CREATE TABLE gone (id INT PRIMARY KEY, n INT); INSERT INTO gone VALUES (1, 2)").await?;
    source.sql("ALTER TABLE broken.part ENGINE=MyISAM").await?;
    let report = run(&CheckOptions { resume: true, ..options }).await?;
    ensure!(
        report.findings.is_empty() && report.differences.len() == 3,
        "the tables that are readable again are not compared: {report:#?}"
    );
    Ok(())
}

/// A worker stops comparing an unreadable table and reconnects. It then holds the lock of its new mark, so no
/// other check deletes that mark.
async fn a_mark_is_kept_on_a_new_connection(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let connect = async || Connection::connect(&server.connect_options()).await;
    let (mut first, mut second, mut other) = (connect().await?, connect().await?, connect().await?);
    SyncMethod::Mark.prepare(&mut first).await?;
    let mut waiting = SyncWaiter::new(SyncMethod::Mark, PATIENCE, "kept-1-0".into(), None);
    waiting.position(&mut first).await?;
    // The first session still exists, as if the server had not noticed yet that the client had disconnected.
    waiting.reconnected(&mut second).await?;
    let position = waiting.position(&mut second).await?;
    first.close().await;
    SyncMethod::Mark.prepare(&mut other).await?;
    let marks = "SELECT name, number FROM tailwater.check_marks WHERE name LIKE 'kept-1-0%'";
    let kept = server.sql(marks).await?;
    let SyncPosition::Mark(name, number) = &position else {
        anyhow::bail!("the position is not a mark: {position:?}")
    };
    ensure!(
        kept == [format!("{name}\t{number}")],
        "the source does not have exactly the new mark {position:?}: {kept:?}"
    );
    // The worker's session holds the lock, so no other session can get it.
    let taken = other.query(&format!("SELECT IS_FREE_LOCK('tailwater.check_marks.{name}')")).await?;
    ensure!(taken.scalar() == Some("0"), "the lock of the mark is free: {taken:?}");
    waiting.finish(&mut second).await?;
    ensure!(server.sql(marks).await?.is_empty());
    second.close().await;
    Ok(())
}
