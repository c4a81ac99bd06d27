//! A log is captured from each server, and read with each command of Tailwater and with the server's own
//! tools.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::{AckMode, LogDir};
use tailwater_sandbox::replication_setup::REPLICATION_PASSWORD;
use tailwater_sandbox::{Server, ServerKind, require};
use tailwater_wire::Flavour;

use crate::shell_session::{PROGRAM, Shell};

/// The text of one row is longer than the buffer of a pipe. So a command notices if the reader closes the
/// pipe.
const STATEMENTS: [&str; 3] = [
    "CREATE DATABASE shop;
     CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(40));
     CREATE TABLE shop.audit (id INT PRIMARY KEY, what LONGTEXT);
     INSERT INTO shop.orders VALUES (1, 'the first order'), (2, 'the second order');
     INSERT INTO shop.audit VALUES (1, REPEAT('x', 300000));",
    "START TRANSACTION;
     UPDATE shop.orders SET note = 'the order was changed' WHERE id = 2;
     INSERT INTO shop.audit VALUES (2, 'order 2 was changed');
     COMMIT;",
    "DELETE FROM shop.orders WHERE id = 1;",
];
/// Number of binlog files: one for each of the statements, and the newest one.
const FILES: usize = STATEMENTS.len() + 1;

#[tokio::test]
async fn a_captured_log_is_readable_mysql() -> Result<()> {
    capture_and_read(ServerKind::Mysql97).await
}

#[tokio::test]
async fn a_captured_log_is_readable_mariadb_10_11() -> Result<()> {
    capture_and_read(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn a_captured_log_is_readable_mariadb_11_8() -> Result<()> {
    capture_and_read(ServerKind::Mariadb118).await
}

async fn capture_and_read(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let spec = TrialSpec {
        kind,
        // The servers need no fsync, because no test here crashes the machine.
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    };
    let mut trial = Trial::start(spec).await?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    only_one_runs(&shell, &mut trial)?;
    for statements in STATEMENTS {
        // With semi-sync, a statement returns only after the log has its transaction.
        trial.primary.sql(statements).await?;
        trial.primary.sql("FLUSH BINARY LOGS").await?;
    }
    newest_file_captured(&trial).await?;
    // On SIGTERM, `run` ends cleanly with exit code 0.
    trial.stop_relay().await?;

    let files = source_files(&shell, &trial.primary).await?;
    segments_are_the_files(&shell, &trial, &files)?;
    let gtids = ls(&shell, &files)?;
    cat(&shell, &gtids[1])?;
    raw(&shell, &files)?;
    a_closed_pipe_is_not_an_error(&shell)?;
    verify(&shell, &files)?;
    Ok(())
}

/// Waits until the log has a segment for the source's newest binlog file.
async fn newest_file_captured(trial: &Trial) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let files = trial.primary.sql("SHOW BINARY LOGS").await?;
        let newest = files
            .last()
            .and_then(|line| line.split('\t').next())
            .context("SHOW BINARY LOGS lists no file")?;
        let segments = LogDir::open_read_only(&trial.log_directory())?.segments()?;
        if segments.last().is_some_and(|segment| segment.source_file == newest) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the newest binlog file of the source is {newest}, but the log has {segments:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the paths and contents of the source's binlog files, oldest first. These are the files with the
/// statements, and the part of the newest file that the log has. MariaDB writes checkpoint events to the
/// newest file in the background, even after the relay has ended.
async fn source_files(shell: &Shell, server: &Server) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    for line in server.sql("SHOW BINARY LOGS").await? {
        let path = server.data().join(line.split('\t').next().unwrap_or_default());
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        files.push((path, bytes));
    }
    // The server may have created further binlog files before it accepted connections. They are skipped.
    let mut files = files.split_off(files.len() - FILES);
    if let Some((path, bytes)) = files.last_mut() {
        let captured = std::fs::metadata(segment(shell, FILES))?.len() as usize;
        ensure!(
            captured <= bytes.len(),
            "the log has {captured} bytes of {}, which has {} bytes",
            path.display(),
            bytes.len()
        );
        bytes.truncate(captured);
        *path = shell.path().join(path.file_name().unwrap_or_default());
        std::fs::write(path, bytes)?;
    }
    Ok(files)
}

fn segment(shell: &Shell, number: usize) -> PathBuf {
    shell.path().join(format!("log/primary/{number:010}.binlog"))
}

/// A second `run` on the same log is refused, and the first `run` continues. The error names the process of
/// the first `run`. The command line of that process contains no secret.
fn only_one_runs(shell: &Shell, trial: &mut Trial) -> Result<()> {
    shell.run("run -c tailwater.toml")?.exits(1).stderr_has(&["TW-CTL-0003", "in use by process"]);
    let relay = trial.relay().context("the relay is not running")?;
    ensure!(relay.is_running());
    let command_line = std::fs::read_to_string(format!("/proc/{}/cmdline", relay.pid()))?;
    ensure!(
        command_line.contains("run") && !command_line.contains(REPLICATION_PASSWORD),
        "the command line of the relay is unexpected, or shows the password: {command_line}"
    );
    Ok(())
}

/// No bytes follow the last event of a segment. The server's own tool prints each segment like the binlog
/// file.
fn segments_are_the_files(shell: &Shell, trial: &Trial, files: &[(PathBuf, Vec<u8>)]) -> Result<()> {
    for (number, (path, bytes)) in (1..).zip(files) {
        let ours = segment(shell, number);
        ensure!(
            std::fs::metadata(&ours)?.len() == bytes.len() as u64,
            "{} differs from {}",
            ours.display(),
            path.display()
        );
        let Some(printed) = printed_by_tool(&trial.primary, &ours)? else { continue };
        let expected = printed_by_tool(&trial.primary, path)?.unwrap_or_default();
        let differing = printed.lines().zip(expected.lines()).find(|(ours, theirs)| ours != theirs);
        ensure!(differing.is_none(), "{}: the segment is printed differently: {differing:?}", path.display());
        ensure!(
            printed.len() == expected.len(),
            "{}: the segment and the file are printed with different lengths",
            path.display()
        );
        ensure!(
            printed.contains("shop") == (number < FILES),
            "segment {number}: the printed statements are unexpected: {printed}"
        );
    }
    Ok(())
}

/// Returns the output of `mysqlbinlog` or `mariadb-binlog`. An installation of MariaDB 11.8 may lack the
/// tool; then the tool of MariaDB 10.11 is used.
fn printed_by_tool(server: &Server, file: &Path) -> Result<Option<String>> {
    let name = match server.kind().flavour() {
        Flavour::MySql => "mysqlbinlog",
        Flavour::MariaDb => "mariadb-binlog",
    };
    let mut command = match server.tool(name) {
        Ok(command) => command,
        Err(_) => match require(ServerKind::Mariadb1011) {
            Some(install) => install.tool(name)?,
            None => return Ok(None),
        },
    };
    // The option omits the base64 form of the format description event. In an open binlog file, that event
    // has a flag that marks the file as open.
    let output = command.args(["--no-defaults", "-vv", "--base64-output=decode-rows"]).arg(file).output()?;
    ensure!(output.status.success(), "{name} has failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let open = "this binlog is either in use or was not closed properly";
    Ok(Some(text.lines().filter(|line| !line.contains(open)).collect::<Vec<_>>().join("\n")))
}

/// Checks `log ls` of the source's log folder and of its parent folder. Returns the last GTID of each
/// segment.
fn ls(shell: &Shell, files: &[(PathBuf, Vec<u8>)]) -> Result<Vec<String>> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = files.iter().map(|(path, _)| name(path)).collect();
    let text = shell.run("log ls log")?.exits(0).says(&["log/primary", "SEGMENT", "LAST GTID"]);
    let text = text.says(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let lines = shell.run("log ls log/primary --output json")?.exits(0).json()?;
    let field = |name: &str| lines.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
    assert_eq!(field("source_file"), names);
    assert_eq!(field("bytes"), files.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>());
    assert_eq!(field("transactions"), [5, 1, 1, 0]);
    assert_eq!(field("segment"), [1, 2, 3, 4]);
    let gtids: Vec<String> =
        field("last_gtid").iter().map(|gtid| gtid.as_str().unwrap_or_default().to_owned()).collect();
    let shown: Vec<_> = gtids.iter().filter(|gtid| !gtid.is_empty()).map(String::as_str).collect();
    text.says(&shown);
    Ok(gtids)
}

/// Checks `log cat` of all events, of one transaction and of one table, as text and as JSON.
fn cat(shell: &Shell, gtid: &str) -> Result<()> {
    let all = [
        "### INSERT INTO `shop`.`orders`",
        "'the first order'",
        "### UPDATE `shop`.`orders`",
        "### DELETE FROM",
    ];
    shell.run("log cat log/primary")?.exits(0).says(&all);
    shell.run("log cat log")?.exits(0).says(&all);

    let one = shell.run(&format!("log cat log/primary --gtid {gtid}"))?.exits(0);
    one.says(&["### UPDATE `shop`.`orders`", "'order 2 was changed'"])
        .stdout_lacks(&["### DELETE", "the first order"]);
    let unknown = format!("log cat log/primary --gtid {}", unknown_gtid(gtid));
    shell.run(&unknown)?.exits(1).stderr_has(&["was not found"]);
    shell.run("log cat log/primary --gtid nonsense")?.exits(1).stderr_has(&["--gtid nonsense"]);
    // A binlog file has no index, so the command reads the whole file.
    let file = "log cat log/primary/0000000001.binlog";
    shell.run(&format!("{file} --gtid {gtid}"))?.exits(1).stderr_has(&["was not found"]);
    let second = shell.run(&format!("log cat log/primary/0000000002.binlog --gtid {gtid}"))?.exits(0);
    second.says(&["### UPDATE `shop`.`orders`", "'order 2 was changed'"]);

    let table = shell.run("log cat log/primary --table shop.audit")?.exits(0);
    table.says(&["### INSERT INTO `shop`.`audit`", "'order 2 was changed'"]).stdout_lacks(&[
        "### INSERT INTO `shop`.`orders`",
        "### UPDATE",
        "UPDATE shop.orders",
        "DELETE FROM",
    ]);
    shell.run("log cat log/primary --table audit")?.exits(1).stderr_has(&["SCHEMA.TABLE"]);

    let rows = |words: &str| -> Result<Vec<(String, String)>> {
        let lines = shell.run(words)?.exits(0).json()?;
        ensure!(
            lines.iter().all(|line| line["file"].is_string() && line["offset"].is_u64()),
            "a printed line has no file or no offset: {lines:?}"
        );
        let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let rows = lines
            .iter()
            .filter(|line| ["insert", "update", "delete"].contains(&text(line, "event").as_str()));
        Ok(rows.map(|line| (text(line, "event"), text(line, "table"))).collect())
    };
    let owned = |rows: &[(&str, &str)]| -> Vec<_> {
        rows.iter().map(|(kind, table)| ((*kind).to_owned(), (*table).to_owned())).collect()
    };
    let (insert, update) = (("insert", "orders"), ("update", "orders"));
    let (audit, delete) = (("insert", "audit"), ("delete", "orders"));
    assert_eq!(
        rows("log cat log/primary --output json")?,
        owned(&[insert, insert, audit, update, audit, delete])
    );
    assert_eq!(rows(&format!("log cat log/primary --output json --gtid {gtid}"))?, owned(&[update, audit]));
    assert_eq!(rows("log cat log/primary --output json --table shop.audit")?, owned(&[audit, audit]));
    assert_eq!(rows(&format!("{file} --output json"))?, owned(&[insert, insert, audit]));
    let first = "log cat log/primary/0000000001.binlog --table shop.audit --output json";
    assert_eq!(rows(first)?, owned(&[audit]));
    let lines = shell.run("log cat log/primary --rows --table shop.orders --output json")?.exits(0).json()?;
    assert_eq!(lines.len(), 4, "`log cat` does not print four rows of shop.orders: {lines:?}");
    let text = shell.run("log cat log/primary --rows")?.exits(0).text();
    ensure!(
        text.lines().all(|line| line.starts_with("###")) && text.lines().count() > 10,
        "`log cat --rows` prints other lines than rows: {text}"
    );
    times(shell, gtid)
}

/// Tests `--since` and `--until` for the log, which has an index, and for the log's files without an index.
/// The two options together select all transactions.
fn times(shell: &Shell, gtid: &str) -> Result<()> {
    let lines = shell.run("log stats log/primary --top 100 --output json")?.exits(0).json()?;
    let all = lines[0]["biggest"].as_array().context("the report has no list of transactions")?;
    let second = all
        .iter()
        .find(|one| one["gtid"] == gtid)
        .context("the report does not list the second transaction")?;
    // If commit times are whole seconds, a commit is selected together with its whole second.
    let commit_us = second["commit_us"].as_u64().context("the transaction has no commit time")?;
    let exact = lines[0]["span"]["exact_clock"] == true;
    let after = if exact { commit_us + 1 } else { commit_us + 1_000_000 };
    let moment = format!("@{}.{:06}", after / 1_000_000, after % 1_000_000);
    let gtids = |words: String| -> Result<Vec<Value>> {
        let lines = shell.run(&format!("{words} --output json"))?.exits(0).json()?;
        Ok(lines
            .into_iter()
            .filter(|line| line["event"] == "gtid")
            .map(|line| line["gtid"].clone())
            .collect())
    };
    let wanted = |by_time: &dyn Fn(u64) -> bool| {
        all.iter().filter(|one| one["commit_us"].as_u64().is_some_and(by_time)).count()
    };
    let early = gtids(format!("log cat log/primary --until {moment}"))?;
    let late = gtids(format!("log cat log/primary --since {moment}"))?;
    assert_eq!((early.len(), late.len()), (wanted(&|us| us < after), wanted(&|us| us >= after)));
    ensure!(
        early.contains(&Value::from(gtid)) && early.len() + late.len() == 7,
        "the two halves do not have all transactions: {early:?} {late:?}"
    );
    let (mut early_of_files, mut late_of_files) = (Vec::new(), Vec::new());
    for number in 1..=FILES {
        early_of_files.extend(gtids(format!("log cat log/primary/{number:010}.binlog --until {moment}"))?);
        late_of_files.extend(gtids(format!("log cat log/primary/{number:010}.binlog --since {moment}"))?);
    }
    ensure!(
        early_of_files == early && late_of_files == late,
        "the log and its files give different transactions: {early_of_files:?} {late_of_files:?}"
    );
    Ok(())
}

/// Returns a GTID that the log does not contain.
fn unknown_gtid(gtid: &str) -> String {
    format!("{gtid}77777")
}

/// `log cat --raw` prints the same bytes as the source's binlog files. One flag may differ: the source sets
/// `LOG_EVENT_BINLOG_IN_USE_F` in the file that it writes to at present, and the captured copy lacks this
/// flag.
fn raw(shell: &Shell, files: &[(PathBuf, Vec<u8>)]) -> Result<()> {
    let all = shell.run("log cat --raw log/primary")?.exits(0);
    let mut rest = all.bytes();
    for (number, (path, bytes)) in (1..).zip(files) {
        let mut bytes = bytes.clone();
        // Clears the flag LOG_EVENT_BINLOG_IN_USE_F, which is in the low byte of the flags of the format
        // description event.
        bytes[4 + 17] &= !1;
        let one = shell.run(&format!("log cat --raw log/primary/{number:010}.binlog"))?.exits(0);
        ensure!(
            one.bytes() == bytes,
            "the output of --raw for segment {number} differs from {}",
            path.display()
        );
        let own = rest.split_off(..bytes.len()).context("--raw prints too little")?;
        ensure!(
            own == bytes,
            "the bytes of segment {number} in the output of --raw for the whole log differ from {}",
            path.display()
        );
    }
    ensure!(rest.is_empty(), "--raw prints {} bytes after the last segment", rest.len());
    Ok(())
}

/// With `| head`, the program that reads the output closes the pipe early.
fn a_closed_pipe_is_not_an_error(shell: &Shell) -> Result<()> {
    for words in ["log cat log", "log cat --output json log", "log cat --raw log"] {
        let ran = shell.bash(&format!("tailwater {words} | head -c 10"))?.exits(0);
        ensure!(
            ran.errors().is_empty() && ran.bytes().len() == 10,
            "the closed pipe caused an error, or the output is too short: {ran:?}"
        );
    }
    Ok(())
}

/// Checks `log verify` of an undamaged log, and of a log with one damaged byte.
fn verify(shell: &Shell, files: &[(PathBuf, Vec<u8>)]) -> Result<()> {
    shell
        .run("log verify log")?
        .exits(0)
        .says(&["log/primary: nothing is wrong: 4 segments, 7 transactions"]);
    let lines = shell.run("log verify log/primary --output json")?.exits(0).json()?;
    let [line] = lines.as_slice() else {
        anyhow::bail!("`log verify` must print exactly one line: {lines:?}")
    };
    ensure!(
        line["ok"] == true && line["problems"] == 0 && line["transactions"] == 7,
        "the undamaged log has problems, or a wrong number of transactions: {line}"
    );
    let file = files[0].0.display().to_string();
    shell.run(&format!("log verify {file}"))?.exits(0).says(&["nothing is wrong: 1 segment,"]);

    // In the second file, damage a byte of the row that contains the text 'order 2 was changed'.
    let damaged = segment(shell, 2);
    let events = shell.run(&format!("log cat {} --output json", damaged.display()))?.exits(0).json()?;
    let row =
        events.iter().find(|event| event["event"] == "insert").context("the output has no insert event")?;
    let mut bytes = std::fs::read(&damaged)?;
    // The last occurrence of the text is in the row. MariaDB also logs the text of the statement, before the
    // row.
    let found = bytes
        .windows(19)
        .rposition(|window| window == b"order 2 was changed")
        .context("the damaged row was not found")?;
    bytes[found] ^= 0x20;
    std::fs::write(&damaged, &bytes)?;
    let name = damaged.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = shell.run("log verify log/primary")?.exits(3);
    let text = text.says(&["TW-LOG-0003", &name, "at offset ", "1 problem"]).text();
    let lines = shell.run("log verify log/primary --output json")?.exits(3).json()?;
    let [problem, line] = lines.as_slice() else {
        anyhow::bail!("`log verify` must print one problem and one summary: {lines:?}")
    };
    ensure!(
        line["ok"] == false && line["problems"] == 1,
        "the summary must report exactly one problem: {line}"
    );
    ensure!(
        problem["code"] == "TW-LOG-0003"
            && problem["path"].as_str().is_some_and(|path| path.ends_with(&name))
    );
    let offset = problem["offset"].as_u64().context("the problem has no offset")?;
    ensure!(
        row["offset"] == offset && offset < found as u64,
        "the reported problem is {problem}, but the damaged row is in {row}"
    );
    ensure!(
        text.contains(&format!("at offset {offset}: ")),
        "the text output does not name the offset {offset}: {text}"
    );
    let alone = shell.run(&format!("log verify log/primary/{name}"))?.exits(3);
    alone.says(&["TW-LOG-0003", &name, &format!("at offset {offset}: ")]);
    Ok(())
}
