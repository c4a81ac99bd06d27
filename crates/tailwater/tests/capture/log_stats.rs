//! `log stats` on real servers. The report must name a big transaction and its table, and the pause after it
//! as a gap between commits. The figures must be equal for the log, for the server's binlog files and for the
//! server itself.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::{AckMode, LogDir};
use tailwater_sandbox::{ServerKind, require};
use tailwater_wire::Flavour;

use crate::shell_session::{PROGRAM, Shell};

const SMALL: u64 = 60;
const BIG: u64 = 200_000;
/// Duration of the pause without commits. Commit times in MariaDB's binlog are whole seconds.
const PAUSE: Duration = Duration::from_millis(4200);

const TABLES: &str = "CREATE DATABASE shop;
    CREATE TABLE shop.orders (id INT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(40), paid DECIMAL(10,2), at DATETIME(3));
    CREATE TABLE shop.audit (id INT PRIMARY KEY AUTO_INCREMENT, what VARCHAR(250), j TEXT);
    CREATE TABLE shop.keyless (a INT, b INT);";

#[tokio::test]
async fn statistics_of_mysql() -> Result<()> {
    stats_are_equal_for_all_inputs(ServerKind::Mysql97, false).await
}

#[tokio::test]
async fn statistics_of_mysql_compressed() -> Result<()> {
    stats_are_equal_for_all_inputs(ServerKind::Mysql97, true).await
}

#[tokio::test]
async fn statistics_of_mariadb_10_11() -> Result<()> {
    stats_are_equal_for_all_inputs(ServerKind::Mariadb1011, false).await
}

#[tokio::test]
async fn statistics_of_mariadb_11_8_compressed() -> Result<()> {
    stats_are_equal_for_all_inputs(ServerKind::Mariadb118, true).await
}

async fn stats_are_equal_for_all_inputs(kind: ServerKind, compressed: bool) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let mut options = vec!["--binlog-row-metadata=FULL".to_owned()];
    match kind.flavour() {
        Flavour::MySql if compressed => options.push("--binlog-transaction-compression=ON".into()),
        Flavour::MariaDb if compressed => options.push("--log-bin-compress=1".into()),
        _ => {}
    }
    let spec = TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options,
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    };
    let mut trial = Trial::start(spec).await?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    write(&trial).await?;
    let files = captured_files(&trial).await?;
    trial.stop_relay().await?;

    let of_log = json(&shell, "log stats log/primary")?;
    check_report(&of_log, kind, compressed)?;
    let words = shell.run("log stats log --html page.html")?.exits(0);
    words.says(&["Hottest of 3 tables", "shop.audit", "Longest without a commit", "! Transaction "]);
    check_page(&shell, &of_log)?;

    let paths: Vec<String> =
        files.iter().map(|file| trial.primary.data().join(file).display().to_string()).collect();
    let server =
        format!("--host 127.0.0.1 --port {} --user root --start {}:4", trial.primary.port(), files[0]);
    // MariaDB writes checkpoint events in the background, so the two reports may differ for a moment.
    let mut of_files = json(&shell, &format!("log stats {}", paths.join(" ")))?;
    let mut of_server = json(&shell, &format!("log stats {server}"))?;
    for _ in 0..10 {
        if of_files == of_server {
            break;
        }
        of_files = json(&shell, &format!("log stats {}", paths.join(" ")))?;
        of_server = json(&shell, &format!("log stats {server}"))?;
    }
    ensure!(
        of_files == of_server,
        "the statistics differ\nof the binlog files: {of_files}\nof the server: {of_server}"
    );
    ensure!(
        transactions(of_log.clone()) == transactions(of_files.clone()),
        "the statistics differ\nof the log: {of_log}\nof the binlog files: {of_files}"
    );
    filters(&shell, &paths, &of_log)?;
    damaged(&shell, &paths[0])
}

/// `log stats` reports a damaged byte as an error, in a log and in a binlog file. It can read segments
/// without a control file.
fn damaged(shell: &Shell, file: &str) -> Result<()> {
    let change = |path: &std::path::Path| -> Result<()> {
        let mut bytes = std::fs::read(path)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        Ok(std::fs::write(path, bytes)?)
    };
    let copy = shell.path().join("copy.000001");
    std::fs::copy(file, &copy)?;
    change(&copy)?;
    shell.run("log stats copy.000001")?.exits(1).stderr_has(&["copy.000001:"]);
    let segment = shell.path().join("log/primary/0000000001.binlog");
    change(&segment)?;
    shell.run("log stats log/primary")?.exits(1).stderr_has(&["event at "]);
    change(&segment)?;
    shell.run("log stats log/primary")?.exits(0);
    std::fs::remove_file(shell.path().join("log/primary/control.json"))?;
    shell.run("log stats log/primary")?.exits(0).stderr_has(&["no control.json"]);
    Ok(())
}

/// Writes small transactions and a big one. After a pause, writes small transactions again.
async fn write(trial: &Trial) -> Result<()> {
    let server = &trial.primary;
    server.sql(TABLES).await?;
    let small =
        "INSERT INTO shop.orders (note, paid, at) VALUES ('an order', 12.50, NOW(3));".repeat(SMALL as usize);
    server.sql(&small).await?;
    let doubled = BIG / 8;
    // The servers have different limits for recursive queries, so the rows come from a join of smaller sets.
    server
        .sql(&format!(
            "USE shop; SET SESSION {} = 1000000;
             INSERT INTO shop.audit (what, j)
             WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {doubled})
             SELECT CONCAT(SHA2(i + e, 384), REPEAT('-', 140)), SHA2(i * e, 512) FROM n,
             (SELECT 1 AS e UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8) AS eight",
            match server.kind().flavour() {
                Flavour::MySql => "cte_max_recursion_depth",
                Flavour::MariaDb => "max_recursive_iterations",
            }
        ))
        .await?;
    tokio::time::sleep(PAUSE).await;
    server.sql(&small).await?;
    server
        .sql(
            "INSERT INTO shop.keyless SELECT id, id FROM shop.audit LIMIT 1500;
             UPDATE shop.keyless SET b = b + 1;
             DELETE FROM shop.orders WHERE id <= 10;
             BEGIN; UPDATE shop.orders SET note = 'changed' WHERE id = 11; DELETE FROM shop.keyless LIMIT 1; COMMIT;
             DROP TABLE shop.keyless; FLUSH BINARY LOGS",
        )
        .await?;
    Ok(())
}

/// Waits until the log has the start of the source's newest binlog file. Returns the names of the source's
/// binlog files that the log has.
async fn captured_files(trial: &Trial) -> Result<Vec<String>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let listed = trial.primary.sql("SHOW BINARY LOGS").await?;
        let listed: Vec<&str> = listed.iter().filter_map(|line| line.split('\t').next()).collect();
        let segments = LogDir::open_read_only(&trial.log_directory())?.segments()?;
        let captured: Vec<String> = segments.into_iter().map(|segment| segment.source_file).collect();
        if captured.last().map(String::as_str) == listed.last().copied() {
            return Ok(captured);
        }
        ensure!(
            Instant::now() < deadline,
            "the source has the binlog files {listed:?}, the log has {captured:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn json(shell: &Shell, words: &str) -> Result<Value> {
    let mut lines = shell.run(&format!("{words} --output json"))?.exits(0).json()?;
    let mut line = lines.pop().context("log stats printed nothing")?;
    ensure!(
        lines.is_empty() && line["source"].is_string(),
        "{words} printed more than one line, or no source: {line}"
    );
    line["source"].take();
    Ok(line)
}

/// Returns the report without the figures of events between transactions. An idle source may write such
/// events.
fn transactions(mut report: Value) -> Value {
    for name in ["other_bytes", "event_types", "kinds"] {
        report[name].take();
    }
    for name in ["files", "last_file", "end_offset"] {
        report["span"][name].take();
    }
    report
}

fn check_report(report: &Value, kind: ServerKind, compressed: bool) -> Result<()> {
    let rows =
        |of: &Value| ["inserted", "updated", "deleted"].map(|name| of[name].as_u64().unwrap_or_default());
    ensure!(
        rows(&report["rows"]) == [2 * SMALL + BIG + 1500, 1501, 11],
        "the numbers of changed rows are wrong: {}",
        report["rows"]
    );
    let big = &report["biggest"][0];
    ensure!(
        rows(&big["rows"]) == [BIG, 0, 0] && big["tables"][0]["table"] == "audit",
        "the biggest transaction is not the one that fills shop.audit: {big}"
    );
    let tables = report["tables"]["by_rows"].as_array().context("the report has no tables")?;
    let table = |name: &str| {
        tables
            .iter()
            .find(|table| table["table"] == name)
            .with_context(|| format!("the report has no table {name}"))
    };
    ensure!(rows(&table("orders")?["rows"]) == [2 * SMALL, 1, 10]);
    ensure!(rows(&table("keyless")?["rows"]) == [1500, 1500, 1]);
    ensure!(table("keyless")?["primary_key"] == false && table("audit")?["primary_key"] == true);

    // While the big statement ran, nothing was committed, so the report must have a gap with the GTID of the
    // big transaction.
    let gaps = report["gaps"].as_array().context("the report has no gaps")?;
    let gap = gaps
        .iter()
        .find(|gap| gap["during"]["gtid"] == big["gtid"])
        .context("the report has no gap during the big transaction")?;
    ensure!(gap["seconds"].as_f64() >= Some(3.0), "the gap is shorter than 3 s: {gap}");
    let gtid = big["gtid"].as_str().context("the transaction has no GTID")?;
    let findings = report["findings"].as_array().context("the report has no findings")?;
    let texts: Vec<&str> = findings.iter().filter_map(|finding| finding["text"].as_str()).collect();
    let big = findings
        .iter()
        .find(|finding| finding["kind"] == "big_transaction")
        .context("no finding names a big transaction")?;
    let text = big["text"].as_str().unwrap_or_default();
    for part in [gtid, "200,000 rows inserted in shop.audit", "no other transaction committed for "] {
        ensure!(text.contains(part) && big["weight"] == "alarm", "{part:?} is not in the findings {texts:?}");
    }
    ensure!(
        texts.iter().any(|text| text.contains("shop.keyless has no primary key")),
        "no finding names the table without a primary key: {texts:?}"
    );
    ensure!(
        report["ddl_statements"] == 5
            && report["ddl"][0]["statement"].as_str().is_some_and(|text| text.starts_with("DROP TABLE"))
    );

    let compression = &report["compression"];
    let unpacked = |name: &str| compression[name].as_u64().unwrap_or_default();
    let (packed, unpacked) = match kind.flavour() {
        Flavour::MySql => (unpacked("payload_bytes"), unpacked("payload_unpacked_bytes")),
        Flavour::MariaDb => (unpacked("event_bytes"), unpacked("event_unpacked_bytes")),
    };
    ensure!(
        if compressed { packed > 0 && unpacked > packed } else { packed == 0 },
        "the sizes of compressed transactions are wrong: {compression}"
    );
    ensure!(report["span"]["exact_clock"] == (kind.flavour() == Flavour::MySql));
    Ok(())
}

fn check_page(shell: &Shell, report: &Value) -> Result<()> {
    let page = std::fs::read_to_string(shell.path().join("page.html"))?;
    let gtid = report["biggest"][0]["gtid"].as_str().context("the transaction has no GTID")?;
    for part in ["<!DOCTYPE html>", gtid, "class=\"gap\"", "shop.audit", "</html>"] {
        ensure!(page.contains(part), "the HTML page does not contain {part:?}");
    }
    ensure!(!page.contains("http://") && !page.contains("https://"));
    Ok(())
}

fn filters(shell: &Shell, paths: &[String], all: &Value) -> Result<()> {
    let big_us = all["biggest"][0]["commit_us"].as_u64().context("the transaction has no commit time")?;
    let after = format!("@{}.{:06}", big_us / 1_000_000, big_us % 1_000_000 + 1);
    for what in ["log/primary".to_owned(), paths.join(" ")] {
        let only = json(shell, &format!("log stats {what} --table shop.audit"))?;
        ensure!(
            only["transactions"] == 1 && only["rows"]["inserted"] == BIG,
            "the report is not limited to the table shop.audit: {only}"
        );
        let early = json(shell, &format!("log stats {what} --until {after}"))?;
        let late = json(shell, &format!("log stats {what} --since {after}"))?;
        let sum =
            |name: &str| early[name].as_u64().unwrap_or_default() + late[name].as_u64().unwrap_or_default();
        ensure!(
            Some(sum("transactions")) == all["transactions"].as_u64(),
            "the two halves together do not have all transactions: {early} {late}"
        );
        ensure!(
            early["biggest"][0]["gtid"] == all["biggest"][0]["gtid"]
                && late["biggest"][0] != early["biggest"][0]
        );
        let none = json(shell, &format!("log stats {what} --until @1"))?;
        ensure!(
            none["transactions"] == 0 && none["findings"] == Value::Array(Vec::new()),
            "a period without transactions has transactions or findings: {none}"
        );
    }
    shell.run("log stats log --table audit")?.exits(1).stderr_has(&["SCHEMA.TABLE"]);
    shell.run("log stats")?.exits(1).stderr_has(&["no input"]);
    shell.run("log stats log --since yesterday")?.exits(2).stderr_has(&["is not a time"]);
    Ok(())
}
