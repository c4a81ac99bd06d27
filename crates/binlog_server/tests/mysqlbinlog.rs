//! `mysqlbinlog` and `mariadb-binlog` get the same output from Tailwater as from the source.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::replication_setup::{REPLICATION_PASSWORD, REPLICATION_USER};
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::{Server, ServerKind};
use tailwater_wire::Flavour;
use tokio::process::Command;

use crate::binlog_server_with_replicas::{Tailwater, written_by};
use crate::capture_test_source::{PATIENCE, Source, run};

/// A command that runs the flavour's program against the server on a port.
fn reader(server: &Server, port: u16, arguments: &[String]) -> Result<Command> {
    let (program, tls) = match server.kind().flavour() {
        Flavour::MySql => ("mysqlbinlog", "--get-server-public-key"),
        Flavour::MariaDb => ("mariadb-binlog", "--skip-ssl"),
    };
    let mut command = Command::from(server.tool(program)?);
    command.args(["--no-defaults", "--host=127.0.0.1", tls, &format!("--port={port}")]);
    command.arg(format!("--user={REPLICATION_USER}")).arg(format!("--password={REPLICATION_PASSWORD}"));
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}

async fn text(server: &Server, port: u16, arguments: &[String]) -> Result<String> {
    let output = reader(server, port, arguments)?.output().await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        output.status.success(),
        "the program failed with the arguments {arguments:?}: {}",
        text(&output.stderr)
    );
    Ok(text(&output.stdout))
}

/// The binlog files in a folder, by name.
fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.strip_prefix("binlog.").is_some_and(|number| number.parse::<u32>().is_ok()) {
            files.insert(name.to_owned(), std::fs::read(&path)?);
        }
    }
    Ok(files)
}

/// The offset in a file at which a transaction starts, about in the middle of the file.
async fn middle(source: &Source, file: &str) -> Result<u64> {
    let events = source.server.sql(&format!("SHOW BINLOG EVENTS IN '{file}'")).await?;
    let begins = events.iter().filter(|line| line.split('\t').nth(2).is_some_and(|kind| kind == "Gtid"));
    let places: Vec<u64> = begins.filter_map(|line| line.split('\t').nth(1)?.parse().ok()).collect();
    places.get(places.len() / 2).copied().context("the binlog file has no transaction")
}

/// Returns the lists of options to test. They lack the options that select the server.
async fn questions(source: &Source) -> Result<Vec<Vec<String>>> {
    let binlogs: Vec<String> = source.binlogs().await?.into_iter().map(|(file, _)| file).collect();
    let [first, second, ..] = &binlogs[..] else {
        anyhow::bail!("the source has too few binlog files: {binlogs:?}")
    };
    let position = format!("--start-position={}", middle(source, second).await?);
    let stop = format!("--stop-position={}", middle(source, second).await?);
    let gtids = written_by(&source.server).await?;
    let remote = "--read-from-remote-server";
    let mut questions = vec![
        vec![remote, first],
        vec![remote, first, second],
        vec![remote, "--to-last-log", first],
        vec![remote, "--to-last-log", &position, second],
        vec![remote, &stop, second],
        vec![
            remote,
            "--to-last-log",
            "--verbose",
            "--base64-output=decode-rows",
            "--database=tw_load",
            second,
        ],
    ];
    let (half, some);
    match source.flavour() {
        Flavour::MySql => {
            let by_gtids = "--read-from-remote-source=BINLOG-DUMP-GTIDS";
            let (uuid, _) = gtids.split_once(':').context("the server has no GTIDs")?;
            half = format!("--exclude-gtids={uuid}:1-30:33:36-38");
            some = format!("--include-gtids={uuid}:20-40");
            questions.push(vec![by_gtids, "--to-last-log", first]);
            questions.push(vec![by_gtids, "--to-last-log", &half, first]);
            questions.push(vec![by_gtids, "--to-last-log", &some, first]);
            questions.push(vec![remote, "--to-last-log", &some, "--verify-binlog-checksum", first]);
        }
        Flavour::MariaDb => {
            let (server, _) = gtids.rsplit_once('-').context("the server has no GTIDs")?;
            half = format!("--start-position={server}-30");
            some = format!("--stop-position={server}-40");
            questions.push(vec![remote, "--to-last-log", &half, first]);
            questions.push(vec![remote, "--to-last-log", &half, &some, first]);
            questions.push(vec![remote, "--to-last-log", &some, "--verify-binlog-checksum", first]);
        }
    }
    Ok(questions.into_iter().map(|words| words.into_iter().map(str::to_owned).collect()).collect())
}

fn first_difference(ours: &str, theirs: &str) -> String {
    let mut lines = ours.lines().zip(theirs.lines()).enumerate();
    match lines.find(|(_, (ours, theirs))| ours != theirs) {
        Some((number, (ours, theirs))) => {
            format!("difference in line {number}:\nTailwater {ours}\nsource    {theirs}")
        }
        None => format!(
            "Tailwater's output has {} lines, but the source's output has {}",
            ours.lines().count(),
            theirs.lines().count()
        ),
    }
}

/// Compares the files that `--raw` writes, byte for byte.
async fn raw(source: &Source, tailwater: &Tailwater, words: &[&str]) -> Result<()> {
    let (ours, theirs) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for (folder, port) in [(&ours, tailwater.port()), (&theirs, source.server.port())] {
        let mut arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        arguments.insert(0, "--raw".into());
        arguments.insert(0, format!("--result-file={}/", folder.path().display()));
        text(&source.server, port, &arguments).await?;
    }
    let (ours, theirs) = (files(ours.path())?, files(theirs.path())?);
    ensure!(theirs.len() > 1, "the source has too few binlog files for a comparison");
    let lengths = |files: &BTreeMap<String, Vec<u8>>| {
        files.iter().map(|(name, bytes)| (name.clone(), bytes.len())).collect::<Vec<_>>()
    };
    ensure!(
        ours == theirs,
        "with the options {words:?}, the files from Tailwater have the lengths {:?}, but from the source {:?}",
        lengths(&ours),
        lengths(&theirs)
    );
    Ok(())
}

/// Waits until the log is complete and the source writes nothing more. A moment after MariaDB has started a
/// binlog file, it writes a checkpoint event. This event says that crash recovery does not need the earlier
/// files any more.
async fn until_quiet(source: &Source) -> Result<()> {
    let begin = Instant::now();
    while source.flavour() == Flavour::MariaDb {
        let newest = source.newest().await?.0;
        let events = source.server.sql(&format!("SHOW BINLOG EVENTS IN '{newest}'")).await?;
        if events.iter().any(|line| line.contains("Binlog_checkpoint") && line.ends_with(&newest)) {
            break;
        }
        ensure!(begin.elapsed() < PATIENCE, "the file {newest} has no checkpoint event: {events:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    source.until_complete("log").await
}

/// A copy with `--stop-never` has all events of the source, including those written later.
async fn endless(source: &mut Source, tailwater: &Tailwater, first: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let target = format!("--result-file={}/", folder.path().display());
    let arguments = ["--read-from-remote-server", "--raw", "--stop-never", &target, first];
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let mut copying = reader(&source.server, tailwater.port(), &arguments)?.stderr(Stdio::null()).spawn()?;
    source.write(10).await?;
    source.rotate().await?;
    source.write(10).await?;
    until_quiet(source).await?;
    let mut theirs = files(source.server.data())?;
    for bytes in theirs.values_mut() {
        // The flag that marks a binlog file as in use is set only in the source's own file.
        bytes[4 + 17] &= !1;
    }
    let begin = Instant::now();
    while files(folder.path())? != theirs {
        ensure!(copying.try_wait()?.is_none(), "the program that copies with --stop-never ended");
        ensure!(begin.elapsed() < PATIENCE, "the copy does not become equal to the source's files");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    copying.kill().await?;
    Ok(())
}

async fn read(kind: ServerKind) -> Result<()> {
    // With its GTID index, MariaDB 11.8 can start a stream in the middle of a file. Tailwater has no such
    // index, and starts a stream by GTIDs at the beginning of a file.
    let options: &[&str] = if kind == ServerKind::Mariadb118 { &["--binlog-gtid-index=OFF"] } else { &[] };
    let Some(mut source) = Source::start(kind, options).await? else { return Ok(()) };
    let mut tailwater = Tailwater::of(&source)?;
    // Use the source's `server_id`, because artificial events contain it.
    tailwater.server_id = source.server.sql("SELECT @@server_id").await?.concat().parse()?;
    tailwater.start_again().await?;
    source.prepare().await?;
    for _ in 0..3 {
        source.write(20).await?;
        source.rotate().await?;
    }
    source.write(5).await?;
    until_quiet(&source).await?;
    for question in questions(&source).await? {
        let theirs = text(&source.server, source.server.port(), &question)
            .await
            .context("cannot read from the source")?;
        let ours = text(&source.server, tailwater.port(), &question).await?;
        ensure!(
            ours == theirs,
            "the output with the options {question:?} differs: {}",
            first_difference(&ours, &theirs)
        );
        ensure!(
            theirs.contains("COMMIT"),
            "with the options {question:?}, the program printed no transaction"
        );
    }
    let first = source.binlogs().await?[0].0.clone();
    raw(&source, &tailwater, &["--read-from-remote-server", "--to-last-log", &first]).await?;
    endless(&mut source, &tailwater, &first).await?;
    tailwater.stop().await
}

#[test]
fn mysqlbinlog_of_mysql_97_gets_the_same_output() -> Result<()> {
    run(read(ServerKind::Mysql97))
}

#[test]
fn mariadb_binlog_1011_gets_the_same_output() -> Result<()> {
    run(read(ServerKind::Mariadb1011))
}

#[test]
fn mariadb_binlog_118_gets_the_same_output() -> Result<()> {
    if is_skipped_in_ci(
        "mysqlbinlog::mariadb_binlog_118_gets_the_same_output",
        "the same test on MariaDB 10.11",
    ) {
        return Ok(());
    }
    run(read(ServerKind::Mariadb118))
}
