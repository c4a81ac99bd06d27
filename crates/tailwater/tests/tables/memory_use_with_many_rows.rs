//! Peak memory of dump, load and check with many rows.
//!
//! `TAILWATER_LONG=1` uses ten million rows.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_daemon::jobs::job_text::counted;
use tailwater_sandbox::{ChildProcess, Server, ServerKind, ServerSpec, require};

use crate::shell_session::PROGRAM;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(3 * 3600);

/// Maximum peak memory of each command, in bytes.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Number of rows that one statement inserts.
const STEP: u64 = 250_000;

/// The number of rows in each of three tables: one with a numeric key, one with a key of two columns, and one
/// without a key.
struct Rows {
    keyed: u64,
    paired: u64,
    keyless: u64,
}

fn rows() -> Rows {
    match std::env::var_os("TAILWATER_LONG") {
        Some(_) => Rows { keyed: 8_000_000, paired: 1_500_000, keyless: 500_000 },
        None => Rows { keyed: 160_000, paired: 30_000, keyless: 10_000 },
    }
}

#[tokio::test]
async fn memory_is_bounded_for_many_rows_mysql() -> Result<()> {
    many_rows_take_bounded_memory(ServerKind::Mysql97).await
}

#[tokio::test]
async fn memory_is_bounded_for_many_rows_mariadb() -> Result<()> {
    many_rows_take_bounded_memory(ServerKind::Mariadb1011).await
}

async fn start(kind: ServerKind, name: &str) -> Result<Server> {
    let options = ["--local-infile=1", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0"];
    Ok(Server::start(ServerSpec::new(kind).name(name).options(options)).await?)
}

async fn fill(source: &Server, rows: &Rows) -> Result<()> {
    source
        .sql(
            "CREATE DATABASE many CHARACTER SET utf8mb4; USE many;
             CREATE TABLE keyed (id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL, KEY k_1 (k));
             CREATE TABLE paired (a VARCHAR(12), b INT, d DOUBLE, at DATETIME(6), t TEXT, PRIMARY KEY (a, b));
             CREATE TABLE keyless (a INT, t VARCHAR(100));
             INSERT INTO keyed VALUES (1, 17, '', '')",
        )
        .await?;
    let mut there = 1;
    while there < rows.keyed {
        let more = there.min(STEP).min(rows.keyed - there);
        // The generated texts compress as badly as the texts in sysbench tables.
        let sql = format!(
            "INSERT INTO many.keyed SELECT id + {there}, CRC32(id + {there}) DIV 2, LEFT(SHA2(id + {there}, 512), 119), \
             LEFT(SHA2(id + {there}, 224), 55) FROM many.keyed WHERE id <= {more}"
        );
        source.sql(&sql).await?;
        there += more;
    }
    let each = |table: &str, values: &str, rows: u64| {
        let steps = (0..rows).step_by(STEP as usize).map(move |from| (from, (from + STEP).min(rows)));
        let statement = |(from, to)| {
            format!(
                "INSERT INTO many.{table} SELECT {values} FROM many.keyed WHERE id > {from} AND id <= {to};"
            )
        };
        steps.map(statement).collect::<String>()
    };
    let paired = "CONCAT('k', id DIV 100), id % 100, k / 7, NOW(6), c";
    source.sql(&each("paired", paired, rows.paired)).await?;
    // In the table without a key, some rows are equal.
    source.sql(&each("keyless", "id DIV 2, LEFT(SHA2(id DIV 2, 224), 30)", rows.keyless)).await?;
    Ok(())
}

/// Runs the program until it ends, and returns its peak memory in bytes.
async fn run(folder: &Path, words: &str, code: i32) -> Result<u64> {
    let output = folder.join("output");
    // Removes the output of the previous command.
    std::fs::write(&output, "")?;
    let started = Instant::now();
    let mut process = ChildProcess::start(PROGRAM, words.split_whitespace(), &output)?;
    let mut memory_bytes = 0;
    while process.is_running() {
        memory_bytes = process.memory_bytes_max().unwrap_or(memory_bytes);
        ensure!(started.elapsed() < PATIENCE, "{words} does not end in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let status = process.wait(Duration::from_secs(1)).await?;
    let message = std::fs::read_to_string(&output)?;
    ensure!(status.code() == Some(code), "the command {words} ended with {status}: {message}");
    eprintln!("{} MiB, {:?}: {words}", memory_bytes >> 20, started.elapsed());
    ensure!(
        (1..MEMORY_BYTES_MAX).contains(&memory_bytes),
        "the command used {} MiB of memory: {words}",
        memory_bytes >> 20
    );
    Ok(memory_bytes)
}

async fn many_rows_take_bounded_memory(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) = tokio::try_join!(start(kind, "source"), start(kind, "target"))?;
    let rows = rows();
    fill(&source, &rows).await?;
    let temporary = tempfile::tempdir()?;
    let folder = temporary.path();
    let dumped = folder.join("dumped");
    let dumped = dumped.to_str().context("the path is not valid UTF-8")?;
    let at = |side: &str, server: &Server| {
        format!("--{side}host 127.0.0.1 --{side}port {} --{side}user root", server.port())
    };
    run(folder, &format!("dump {dumped} {}", at("", &source)), 0).await?;
    let columns = folder.join("columns");
    let columns = columns.to_str().context("the path is not valid UTF-8")?;
    run(folder, &format!("dump {columns} {} --format parquet", at("", &source)), 0).await?;
    run(folder, &format!("load {dumped} {}", at("", &target)), 0).await?;
    let check = format!("check {} {} --wait none", at("source-", &source), at("target-", &target));
    let check = format!("{check} --database many");
    run(folder, &check, 0).await?;
    let message = std::fs::read_to_string(folder.join("output"))?;
    let all = format!("compared {} of 3 tables", counted(rows.keyed + rows.paired + rows.keyless, "row"));
    ensure!(
        message.contains(&all) && message.contains("all the same"),
        "the check does not report that all rows are the same: {message}"
    );

    // One digit in one row of the target is changed.
    let planted = format!("UPDATE many.keyed SET k = k ^ 1 WHERE id = {}", rows.keyed * 2 / 3);
    target.sql(&planted).await?;
    for digests in ["quick", "client", "here", "servers"] {
        run(folder, &format!("{check} --digests {digests}"), 3).await?;
        let message = std::fs::read_to_string(folder.join("output"))?;
        ensure!(
            message.contains(": 1 difference"),
            "the check does not report exactly one difference: {message}"
        );
    }
    Ok(())
}
