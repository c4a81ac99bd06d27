//! Tests that a replica of Tailwater gets the same data as a replica of the source, with every feature of the
//! binlog: compressed and partial rows, statements with their variables, loaded files, XA transactions, GTID
//! tags and domains, and changes of the checksum.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::native_replica::{start_statement, stop_statement};
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::{ReplicaStart, Server, ServerKind};
use tailwater_wire::Flavour;

use crate::binlog_server_with_replicas::{Tailwater, check_equal, start_replica, written_by};
use crate::capture_test_source::{PATIENCE, Source, run};
use crate::replica_test_helpers::{same_gtids, with_positions};

/// Creates the tables of this test.
const TABLES: &str = "CREATE DATABASE seen CHARACTER SET utf8mb4;
    CREATE TABLE seen.rowed (id INT PRIMARY KEY, doc JSON, body LONGTEXT, at TIMESTAMP(6) NULL, bits BIT(13));
    CREATE TABLE seen.stated (id INT AUTO_INCREMENT PRIMARY KEY, a DOUBLE, b VARCHAR(200), c INT);
    CREATE TABLE seen.loaded (id INT, words VARCHAR(100));
    CREATE TABLE seen.plain (id INT PRIMARY KEY) ENGINE=MyISAM;";

/// The tests compare the result of this statement on a replica with the result on the source.
const CHECKSUMS: &str = "CHECKSUM TABLE seen.rowed, seen.stated, seen.loaded, seen.plain EXTENDED";

/// SQL that changes rows of many kinds, for both flavours.
fn rows(round: u32) -> String {
    let id = round * 10;
    format!(
        "INSERT INTO seen.rowed VALUES ({id}, '{{\"a\": {{\"b\": [1, 2, 3]}}, \"c\": \"{round}\"}}', REPEAT('wörter ', 20000), NOW(6), 77),
           ({id}+1, NULL, NULL, NULL, NULL);
         UPDATE seen.rowed SET doc=JSON_SET(doc, '$.a.b[1]', {round}), bits=5 WHERE id={id};
         START TRANSACTION; INSERT INTO seen.rowed (id) VALUES ({id}+2);
         SAVEPOINT here; DELETE FROM seen.rowed WHERE id={id}+2; ROLLBACK TO here; COMMIT;
         INSERT INTO seen.plain VALUES ({id});
         CREATE TABLE seen.brief_{round} AS SELECT id FROM seen.rowed; DROP TABLE seen.brief_{round};
         ALTER TABLE seen.stated ADD COLUMN extra_{round} INT DEFAULT {round};"
    )
}

/// SQL whose results depend on other events in the binlog.
fn statements(round: u32, file: &str) -> String {
    format!(
        "SET SESSION binlog_format=STATEMENT, auto_increment_increment=3, time_zone='+05:00', sql_mode='ANSI';
         SET @word = 'ärgerlich', @number = {round};
         INSERT INTO seen.stated (a, b, c) VALUES (RAND(), @word, @number), (RAND(), NOW(), LAST_INSERT_ID());
         INSERT INTO seen.stated (a, b, c) SELECT RAND(), @word, LAST_INSERT_ID();
         CREATE TEMPORARY TABLE seen.passing (id INT); INSERT INTO seen.passing VALUES ({round}), (@number);
         INSERT INTO seen.stated (c) SELECT id FROM seen.passing;
         LOAD DATA INFILE '{file}' INTO TABLE seen.loaded FIELDS TERMINATED BY ',' (id, @words) SET words = UPPER(@words);"
    )
}

/// SQL for features that only one flavour has.
fn particular(kind: ServerKind, round: u32) -> String {
    let xa = |name: &str, id: u32| {
        format!(
            "XA START '{name}'; INSERT INTO seen.rowed (id) VALUES ({id}); XA END '{name}'; XA PREPARE '{name}';"
        )
    };
    let id = round * 10;
    let checksum = if round % 2 == 1 { "NONE" } else { "CRC32" };
    let own = match kind.flavour() {
        Flavour::MySql => format!(
            "SET SESSION gtid_next='AUTOMATIC:round{round}'; INSERT INTO seen.rowed (id) VALUES ({id}+4);
             SET SESSION gtid_next='AUTOMATIC';
             SET SESSION binlog_transaction_compression=OFF; INSERT INTO seen.rowed (id) VALUES ({id}+5);"
        ),
        Flavour::MariaDb => format!(
            "START TRANSACTION; INSERT INTO seen.rowed (id) VALUES ({id}+3); INSERT INTO seen.plain VALUES ({id}+1); ROLLBACK;
             SET SESSION gtid_domain_id={round}; INSERT INTO seen.rowed (id) VALUES ({id}+4);
             SET SESSION server_id=7000+{round}; INSERT INTO seen.rowed (id) VALUES ({id}+5);
             SET SESSION gtid_domain_id=0; SET SESSION binlog_alter_two_phase=1;
             ALTER TABLE seen.loaded ADD COLUMN extra_{round} INT; SET SESSION binlog_alter_two_phase=0;
             CREATE SEQUENCE seen.numbers_{round}; SELECT NEXTVAL(seen.numbers_{round}); DROP SEQUENCE seen.numbers_{round};
             SET SESSION skip_replication=0; SET SESSION server_id=@@global.server_id;"
        ),
    };
    let kept = xa(&format!("kept{round}"), id + 6);
    let dropped = xa(&format!("dropped{round}"), id + 7);
    format!(
        "{own} {kept} XA COMMIT 'kept{round}'; {dropped} XA ROLLBACK 'dropped{round}';
         SET GLOBAL binlog_checksum={checksum}; INSERT INTO seen.rowed (id) VALUES ({id}+8);"
    )
}

async fn features(kind: ServerKind) -> Result<()> {
    let mut options = vec!["--binlog-row-image=MINIMAL"];
    options.extend(match kind.flavour() {
        Flavour::MySql => ["--binlog-transaction-compression=ON", "--binlog-row-value-options=PARTIAL_JSON"],
        Flavour::MariaDb => ["--log-bin-compress=ON", "--log-bin-compress-min-len=10"],
    });
    options.extend(with_positions(kind));
    let Some(mut source) = Source::start(kind, &options).await? else { return Ok(()) };
    let flavour = source.flavour();
    let mut tailwater = Tailwater::start(&source).await?;
    source.prepare().await?;
    let file = source.folder.path().join("words.csv");
    std::fs::write(&file, (0..2000).map(|line| format!("{line},word {line}\n")).collect::<String>())?;
    let file = file.display().to_string();

    let (by_gtid, by_position) =
        tokio::try_join!(start_replica(kind, "by-gtid", &[]), start_replica(kind, "by-position", &[]))?;
    let (first, _) = source.binlogs().await?.into_iter().next().context("the source has no binlog file")?;
    by_gtid.replicate(&tailwater.replica()).await?;
    let first = ReplicaStart::FilePosition { file: first, position: 4 };
    by_position.replicate(&tailwater.replica().start(first)).await?;

    source.server.sql(TABLES).await?;
    let mut middle = String::new();
    for round in 1..=4 {
        source.server.sql(&rows(round)).await?;
        source.server.sql(&statements(round, &file)).await?;
        source.write(3).await?;
        match round {
            1 => {
                by_gtid.sql(stop_statement(flavour)).await?;
            }
            2 => {
                middle = written_by(&source.server).await?;
                by_gtid.sql(start_statement(flavour)).await?;
                by_position.sql(stop_statement(flavour)).await?;
            }
            3 => {
                by_position.sql(start_statement(flavour)).await?;
                tailwater.stop().await?;
                tailwater.start_again().await?;
            }
            _ => {}
        }
        source.server.sql(&particular(kind, round)).await?;
    }
    // A replica that starts after all writes gets everything from the log.
    let late = start_replica(kind, "late", &[]).await?;
    match flavour {
        Flavour::MySql => late.replicate(&tailwater.replica()).await?,
        Flavour::MariaDb => replicate_in_two_steps(&late, &tailwater, &middle).await?,
    }
    source.write(3).await?;
    for replica in [&by_gtid, &by_position, &late] {
        check_seen(replica, &source).await?;
    }
    source.check_complete("log").await?;
    tailwater.stop().await
}

/// For MariaDB: makes the replica replicate up to the GTIDs `until`, where the source ends the stream. Then
/// lets it continue from there.
async fn replicate_in_two_steps(replica: &Server, tailwater: &Tailwater, until: &str) -> Result<()> {
    replica.sql(&tailwater.replica().change_statement(Flavour::MariaDb)).await?;
    replica.sql(&format!("START SLAVE UNTIL master_gtid_pos='{until}'")).await?;
    let begin = Instant::now();
    loop {
        let status = replica.replica_status().await?.context("the server is not a replica")?;
        if status.io_running == "No" && status.sql_running == "No" {
            ensure!(
                status.io_error.0 == 0 && status.sql_error.0 == 0,
                "the replica reports an error: {status:?}"
            );
            break;
        }
        ensure!(begin.elapsed() < PATIENCE, "the replica does not stop: {status:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let has = replica.replicated_gtids().await?;
    ensure!(same_gtids(&has, until), "the replica must stop at the GTIDs {until}, but it has {has}");
    replica.sql(start_statement(Flavour::MariaDb)).await?;
    Ok(())
}

async fn check_seen(replica: &Server, source: &Source) -> Result<()> {
    check_equal(replica, &source.server, &source.ledger).await?;
    let (ours, theirs) = (replica.sql(CHECKSUMS).await?, source.server.sql(CHECKSUMS).await?);
    ensure!(
        ours == theirs,
        "the replica {} has the checksums {ours:?}, but its source has {theirs:?}",
        replica.name()
    );
    let counts = "SELECT COUNT(*) > 20 FROM seen.rowed UNION ALL SELECT COUNT(*) >= 8000 FROM seen.loaded";
    ensure!(source.server.sql(counts).await? == ["1", "1"], "the source itself has too few rows");
    Ok(())
}

#[test]
fn binlog_features_reach_replicas_of_mysql_97() -> Result<()> {
    run(features(ServerKind::Mysql97))
}

#[test]
fn binlog_features_reach_replicas_of_mariadb_1011() -> Result<()> {
    run(features(ServerKind::Mariadb1011))
}

#[test]
fn binlog_features_reach_replicas_of_mariadb_118() -> Result<()> {
    if is_skipped_in_ci(
        "replication_of_all_binlog_features::binlog_features_reach_replicas_of_mariadb_118",
        "the same test on MariaDB 10.11",
    ) {
        return Ok(());
    }
    run(features(ServerKind::Mariadb118))
}
