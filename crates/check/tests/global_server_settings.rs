//! Global settings of the servers must not change what is dumped, loaded, copied, compared or repaired.

use std::sync::Arc;

use anyhow::{Result, ensure};
use tailwater_check::row_repair::{RepairOptions, repair};
use tailwater_check::table_check::target_catch_up_wait::SyncMethod;
use tailwater_check::table_check::{CheckOptions, Digests, check};
use tailwater_dump::dump_folder::DumpCompression;
use tailwater_dump::load::{LoadOptions, load, tailwater_folder};
use tailwater_dump::server_copy::{CopyOptions, copy};
use tailwater_sandbox::unusual_settings::{accept_odd_settings, apply_odd_settings, reset_odd_settings};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_tables::schema::Selection;
use tailwater_tables::{BulkProgress, Throttle};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::server_contents::{all, ensure_equal};
use crate::stock_client::run_script;
use crate::test_dump_folders;

on_each_server!(global_server_settings_have_no_effect);

/// Objects and rows that would be affected by a row limit, a refused query plan, an SQL mode or a time-out.
const SCRIPT: &str = "
    CREATE DATABASE shop; USE shop;
    CREATE TABLE one (id INT PRIMARY KEY, n INT NOT NULL, note VARCHAR(400) CHARACTER SET utf8mb4, UNIQUE KEY (n));
    INSERT INTO one VALUES (1, 10, 'a\\'b'), (2, 20, ''), (3, 30, NULL), (4, 40, 'd  '), (5, 50, 'é€'), (6, 60, 'f\\\\'), (7, 70, '\\n');
    CREATE TABLE two (a VARCHAR(300) NOT NULL, b INT NOT NULL, one_id INT, PRIMARY KEY (a, b),
        FOREIGN KEY (one_id) REFERENCES one (id) ON DELETE CASCADE);
    INSERT INTO two SELECT CONCAT(REPEAT('x', 100), id), n, id FROM one;
    CREATE TABLE keyless (d DATETIME NULL, t TIMESTAMP NULL, f DOUBLE);
    INSERT INTO keyless SELECT '2024-02-29 01:02:03', '2024-02-29 01:02:03', n / 7 FROM one;
    INSERT INTO keyless SELECT * FROM keyless;
    CREATE TABLE my (id INT PRIMARY KEY, b TEXT) ENGINE=MyISAM;
    INSERT INTO my SELECT id, REPEAT('m', 2000) FROM one;
    CREATE VIEW seen AS SELECT id, CONCAT(note, 'x') AS noted FROM one;
    CREATE FUNCTION f(a INT) RETURNS INT DETERMINISTIC RETURN a + 1;
    CREATE TRIGGER later BEFORE UPDATE ON one FOR EACH ROW SET NEW.note = 'changed';
";

const VERSIONED: &str = "
    CREATE TABLE kept (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING;
    INSERT INTO kept SELECT id, n FROM one;
    UPDATE kept SET n = 0 WHERE id = 3;
    CREATE SEQUENCE numbers;
";

async fn started(kind: ServerKind) -> Result<Server> {
    Ok(Server::start(accept_odd_settings(ServerSpec::new(kind)).option("--local-infile=1")).await?)
}

async fn global_server_settings_have_no_effect(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) = tokio::try_join!(started(kind), started(kind))?;
    run_script(&source, SCRIPT.as_bytes())?;
    if kind.flavour() == Flavour::MariaDb {
        run_script(&source, format!("USE shop;{VERSIONED}").as_bytes())?;
    }
    let before = all(&source).await?;
    apply_odd_settings(&source).await?;
    apply_odd_settings(&target).await?;

    // First, a dump with small chunks is loaded.
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 3).await?;
    let contents = tailwater_folder::read(folder.path(), false)?;
    let options = LoadOptions { workers: 2, ..LoadOptions::new(target.connect_options()) };
    let report = load(&contents, &options, &Arc::default(), &CancellationToken::new()).await?;
    ensure!(report.chunks_loaded > 8, "the dump has too few chunks: {report:?}");
    let is_the_same = async || {
        reset_odd_settings(&target).await?;
        ensure_equal(&before, &all(&target).await?)?;
        apply_odd_settings(&target).await.map_err(anyhow::Error::from)
    };
    is_the_same().await?;

    // Then a check finds exactly the rows that differ, with each way to compute the digests, and a repair
    // makes them equal.
    for digests in [Digests::OnServers, Digests::Quick { seed: 3 }, Digests::Client { seed: 3 }] {
        ensure!(
            differences(&source, &target, digests).await? == 0,
            "with digests {digests:?}, the check finds differences between equal servers"
        );
    }
    reset_odd_settings(&target).await?;
    target
        .sql(
            "USE shop; DELETE FROM one WHERE id = 7; DELETE FROM my WHERE id = 7; \
             INSERT INTO keyless SELECT * FROM keyless LIMIT 1; DROP TRIGGER later; \
             UPDATE one SET note = 'D' WHERE id = 4",
        )
        .await?;
    apply_odd_settings(&target).await?;
    for digests in [Digests::OnServers, Digests::Quick { seed: 3 }, Digests::Client { seed: 3 }] {
        let found = differences(&source, &target, digests).await?;
        // One of the differing rows is in table `two`. The cascade from table `one` has deleted it.
        ensure!(found == 5, "with digests {digests:?}, {found} rows differ, expected 5");
    }
    let options = RepairOptions::new(check_options(&source, &target, Digests::Quick { seed: 3 }));
    let report =
        repair(&options, Throttle::open(), Arc::new(BulkProgress::default()), CancellationToken::new());
    let report = report.await?;
    ensure!(report.rows.len() == 5, "the repair does not report five rows: {report:?}");

    // Last, the tables are copied from server to server.
    reset_odd_settings(&target).await?;
    target.sql("DROP DATABASE shop; DROP DATABASE tailwater").await?;
    apply_odd_settings(&target).await?;
    let load = LoadOptions { workers: 2, ..LoadOptions::new(target.connect_options()) };
    let options = CopyOptions::new(source.connect_options(), Selection::default(), load).chunk_bytes_max(100);
    copy(&options, &Arc::default(), &CancellationToken::new()).await?;
    is_the_same().await
}

fn check_options(source: &Server, target: &Server, digests: Digests) -> CheckOptions {
    let selection = Selection { schemas: vec!["shop".into()], ..Selection::default() };
    let options = CheckOptions::new(source.connect_options(), target.connect_options());
    // There is no replication, so the check compares the rows without waiting.
    let sync_method = Some(SyncMethod::None);
    CheckOptions { selection, digests, workers: 2, sync_method, ..options }
}

async fn differences(source: &Server, target: &Server, digests: Digests) -> Result<usize> {
    let options = check_options(source, target, digests);
    let progress = Arc::new(BulkProgress::default());
    let report = check(&options, Arc::new(Throttle::open()), progress, CancellationToken::new()).await?;
    ensure!(
        report.findings.is_empty() && report.tables >= 4,
        "the check reports findings, or compares too few tables: {report:?}"
    );
    Ok(report.differences.len())
}
