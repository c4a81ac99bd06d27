//! Loads at the limits: huge rows, a full target, and values that a file cannot represent.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tailwater_dump::dump_folder::DumpCompression;
use tailwater_dump::load::{LoadOptions, LoadReport, load, tailwater_folder};
use tailwater_sandbox::{FullDisk, Server, ServerKind, ServerSpec, require};
use tailwater_tables::{BulkError, BulkProgress};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::stock_client::run_script;
use crate::test_dump_folders;

on_each_server!(
    huge_rows_are_loaded,
    rows_longer_than_a_packet_are_loaded,
    an_index_zero_of_a_wide_charset_is_refused,
    a_full_target_table_is_reported,
    a_load_resumes_after_a_full_disk,
);

async fn load_into(folder: &tempfile::TempDir, options: &LoadOptions) -> Result<LoadReport, BulkError> {
    let contents = tailwater_folder::read(folder.path(), false)?;
    load(&contents, options, &Arc::default(), &CancellationToken::new()).await
}

fn spec(kind: ServerKind) -> ServerSpec {
    ServerSpec::new(kind).options(["--local-infile=1", "--max-allowed-packet=64M"])
}

async fn huge_rows_are_loaded(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = Server::start(spec(kind)).await?;
    // Every byte of the value is escaped, so the field in the file is twice as long as the value.
    run_script(
        &source,
        b"CREATE DATABASE huge; CREATE TABLE huge.t (id INT PRIMARY KEY, b LONGBLOB);
          INSERT INTO huge.t VALUES (1, REPEAT(x'0A5C', 4 << 20)), (2, ''), (3, REPEAT('x', 1 << 20));",
    )?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 10).await?;
    let sums = "SELECT id, LENGTH(b), SHA2(b, 256) FROM huge.t ORDER BY id";
    for inserts in [false, true] {
        let target = Server::start(spec(kind)).await?;
        let options = LoadOptions { inserts, ..LoadOptions::new(target.connect_options()) };
        load_into(&folder, &options).await?;
        ensure!(
            source.sql(sums).await? == target.sql(sums).await?,
            "the rows differ after a load with inserts = {inserts}"
        );
    }
    Ok(())
}

/// Rows that exceed the target's packet size are between ordinary rows in the same file.
async fn rows_longer_than_a_packet_are_loaded(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = Server::start(spec(kind)).await?;
    run_script(
        &source,
        b"CREATE DATABASE packet; CREATE TABLE packet.t (id INT PRIMARY KEY, b LONGTEXT, c LONGTEXT);
          INSERT INTO packet.t VALUES (1, 'x', NULL), (2, REPEAT('y', 700000), REPEAT('z', 700000)), (3, NULL, 'w');",
    )?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 10).await?;
    let target = Server::start(spec(kind).option("--max-allowed-packet=1M")).await?;
    load_into(&folder, &LoadOptions::new(target.connect_options())).await?;
    let sums = "SELECT id, LENGTH(b), LENGTH(c), SHA2(b, 256), SHA2(c, 256) FROM packet.t ORDER BY id";
    ensure!(source.sql(sums).await? == target.sql(sums).await?);
    Ok(())
}

/// An ENUM has index 0, in a character set whose digits have several bytes. Every server gives a warning when
/// it reads such digits as the index, so the load is refused.
async fn an_index_zero_of_a_wide_charset_is_refused(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = Server::start(spec(kind)).await?;
    run_script(
        &source,
        b"SET sql_mode = ''; CREATE DATABASE member; CREATE TABLE member.t (id INT PRIMARY KEY, e ENUM('a', '') CHARACTER SET ucs2);
          INSERT INTO member.t VALUES (1, 'a'), (2, 'none');",
    )?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 10).await?;
    let target = Server::start(spec(kind)).await?;
    let error = load_into(&folder, &LoadOptions::new(target.connect_options())).await.err();
    let error = error.context("the load did not fail")?;
    ensure!(
        error.code() == "TW-BULK-0029" && error.to_string().contains("member.t"),
        "the error does not name the table member.t: {error}"
    );
    ensure!(target.sql("SELECT COUNT(*) FROM member.t").await? == ["0"]);
    Ok(())
}

async fn a_full_target_table_is_reported(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = Server::start(spec(kind)).await?;
    run_script(
        &source,
        b"CREATE DATABASE full; CREATE TABLE full.t (id INT AUTO_INCREMENT PRIMARY KEY, b BLOB) ENGINE=MyISAM;
          INSERT INTO full.t (b) VALUES (REPEAT('x', 60000));
          INSERT INTO full.t (b) SELECT b FROM full.t; INSERT INTO full.t (b) SELECT b FROM full.t;
          INSERT INTO full.t (b) SELECT b FROM full.t; INSERT INTO full.t (b) SELECT b FROM full.t;",
    )?;
    let folder = test_dump_folders::write(&source, DumpCompression::None, 4).await?;
    // The target's table can hold only some rows of the file.
    let target = Server::start(spec(kind).option("--myisam-data-pointer-size=2")).await?;
    let options = LoadOptions { binlog: false, ..LoadOptions::new(target.connect_options()) };
    let error = load_into(&folder, &options).await.err().context("the load did not fail")?;
    ensure!(
        error.code() == "TW-BULK-0028" && error.to_string().contains("is full"),
        "the load was not refused because the table is full: {error}"
    );
    ensure!(error.to_string().contains("--resume"), "the error does not suggest --resume: {error}");
    // After the limit is raised, the load resumes.
    target.sql("ALTER TABLE full.t MAX_ROWS = 1000000000 AVG_ROW_LENGTH = 60000").await?;
    load_into(&folder, &LoadOptions { resume: true, ..options }).await?;
    let sums = "SELECT COUNT(*), SUM(id), SUM(LENGTH(b)) FROM full.t";
    ensure!(source.sql(sums).await? == target.sql(sums).await?);
    Ok(())
}

/// The target's disk becomes full during a load. The server may be writing any of its files then.
async fn a_load_resumes_after_a_full_disk(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    if !FullDisk::is_possible() {
        // The message is written directly, because the test harness hides the output of `eprintln!` for
        // passing tests.
        let _ = writeln!(std::io::stderr(), "SKIPPED a full disk of {kind}: no C compiler (package gcc)");
        return Ok(());
    }
    let source = Server::start(spec(kind)).await?;
    // The rows have 48 MB, and their values are stored on separate pages.
    let doubled = "INSERT INTO full.t (b) SELECT b FROM full.t;".repeat(4);
    let fifty = vec!["(REPEAT('x', 60000))"; 50].join(",");
    let script = format!(
        "CREATE DATABASE full; CREATE TABLE full.t (id INT AUTO_INCREMENT PRIMARY KEY, b BLOB);
         INSERT INTO full.t (b) VALUES {fifty}; {doubled}"
    );
    run_script(&source, script.as_bytes())?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 20).await?;
    let library = tempfile::tempdir()?;
    let disk = FullDisk::compile(library.path())?;
    let mut target = Server::start(spec(kind).environment([disk.environment()])).await?;
    let contents = tailwater_folder::read(folder.path(), false)?;
    let options = LoadOptions { binlog: false, workers: 1, ..LoadOptions::new(target.connect_options()) };
    let progress = Arc::new(BulkProgress::default());
    let filling = {
        let (progress, disk) = (Arc::clone(&progress), disk.clone());
        tokio::spawn(async move {
            while progress.figures().chunks < 3 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            disk.fill()
        })
    };
    let loaded = load(&contents, &options, &progress, &CancellationToken::new()).await;
    filling.await??;
    let error = loaded.err().context("the load succeeded although the disk was full")?;
    disk.make_room()?;
    if target.is_running() {
        ensure!(
            error.code() == "TW-BULK-0028" && error.to_string().contains("--resume"),
            "the error is not RowsRejected, or does not suggest --resume: {error}"
        );
    } else {
        // MariaDB terminates if its redo log has no space.
        ensure!(
            kind.flavour() == Flavour::MariaDb,
            "a MySQL server has terminated because of a full disk: {error}"
        );
        target.start_again().await?;
    }
    let report = load_into(&folder, &LoadOptions { resume: true, ..options }).await?;
    ensure!(
        report.chunks_loaded > 0 && report.chunks_before > 0 && report.rows == 800,
        "the resumed load has not loaded the remaining files: {report:?}"
    );
    let sums = "SELECT COUNT(*), SUM(id), SUM(LENGTH(b)) FROM full.t";
    ensure!(source.sql(sums).await? == target.sql(sums).await?);
    Ok(())
}

/// All InnoDB tables of the target are in one file of limited size, so InnoDB cannot grow. This test runs
/// only on MySQL. MariaDB also keeps its undo logs in that file, and terminates when the file is full.
#[tokio::test]
async fn a_load_resumes_after_a_full_innodb_tablespace() -> Result<()> {
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    let source = Server::start(spec(kind)).await?;
    // The rows have 24 MB, and their values are stored on separate pages.
    let rows = |database: &str| {
        let doubled = format!("INSERT INTO {database}.t (b) SELECT b FROM {database}.t;").repeat(3);
        let fifty = vec!["(REPEAT('x', 60000))"; 50].join(",");
        format!(
            "CREATE DATABASE {database}; CREATE TABLE {database}.t (id INT AUTO_INCREMENT PRIMARY KEY, b BLOB);
             INSERT INTO {database}.t (b) VALUES {fifty}; {doubled}"
        )
    };
    run_script(&source, rows("full").as_bytes())?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 20).await?;
    let limited = ["--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M:autoextend:max:48M"];
    let target = Server::start(spec(kind).options(limited)).await?;
    run_script(&target, rows("filler").as_bytes())?;
    let options = LoadOptions { binlog: false, ..LoadOptions::new(target.connect_options()) };
    let error = load_into(&folder, &options).await.err().context("the load did not fail")?;
    ensure!(
        error.code() == "TW-BULK-0028" && error.to_string().contains("is full"),
        "the load was not refused because the tablespace is full: {error}"
    );
    ensure!(
        error.to_string().contains("full.t") && error.to_string().contains("--resume"),
        "the error does not name the table, or does not suggest --resume: {error}"
    );
    target.sql("DROP DATABASE filler").await?;
    let report = load_into(&folder, &LoadOptions { resume: true, ..options }).await?;
    ensure!(
        report.chunks_loaded > 0 && report.chunks_before > 0 && report.rows == 400,
        "the resumed load has not loaded the remaining files: {report:?}"
    );
    let sums = "SELECT COUNT(*), SUM(id), SUM(LENGTH(b)) FROM full.t";
    ensure!(source.sql(sums).await? == target.sql(sums).await?);
    Ok(())
}
