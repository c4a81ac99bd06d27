//! Each command that processes tables pauses while a throttle condition holds, both at its start and later.
//! It resumes when the condition no longer holds.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tempfile::TempDir;

use crate::shell_session::PROGRAM;

on_each_server!(throttle_pauses_and_resumes_all_bulk_work);

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long a paused command is watched: it must make no progress. The programs print their progress twice a
/// second.
const PAUSE_WATCH_TIME: Duration = Duration::from_millis(1600);

const SCRIPT: &str = "
    CREATE DATABASE gauge; CREATE TABLE gauge.g (n INT); INSERT INTO gauge.g VALUES (0);
    CREATE DATABASE shop; USE shop;
    CREATE TABLE digits (d INT PRIMARY KEY);
    INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
    CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(200));
    INSERT INTO orders SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d, REPEAT(CHAR(65 + a.d), 100)
        FROM digits a, digits b, digits c, digits e;
";

/// A running command that prints its progress in lines.
struct Running {
    child: Child,
    lines: Receiver<Value>,
}

impl Running {
    fn start(folder: &TempDir, words: &str) -> Result<Self> {
        let mut child = Command::new(PROGRAM)
            .args(words.split_whitespace())
            .args(["--output", "json", "--throttle-every-ms", "20"])
            .args(["--throttle-query", "SELECT n FROM gauge.g"])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = child.stdout.take().context("the command has no standard output")?;
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Ok(line) = serde_json::from_str(&line) else { return };
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Returns the next line that reports the throttle condition.
    fn next_pause_line(&self, words: &str) -> Result<Value> {
        loop {
            let line =
                self.lines.recv_timeout(PATIENCE).with_context(|| format!("{words} prints nothing"))?;
            ensure!(line["event"] == "progress", "the throttle does not pause the command {words}: {line}");
            if line["held"].as_str().is_some_and(|held| held.contains("the throttle query is 1, more than 0"))
            {
                return Ok(line);
            }
        }
    }

    /// Checks that the command makes no progress.
    fn makes_no_progress(&self, words: &str) -> Result<()> {
        // The command finishes the chunks that it had started before the throttle paused it.
        let mut last = self.next_pause_line(words)?;
        let started = Instant::now();
        let mut since = started;
        while since.elapsed() < PAUSE_WATCH_TIME {
            ensure!(
                started.elapsed() < PATIENCE,
                "the command {words} makes progress while it is throttled: {last}"
            );
            let line = self.next_pause_line(words)?;
            if line["chunks"] != last["chunks"] || line["rows"] != last["rows"] {
                since = Instant::now();
            }
            last = line;
        }
        Ok(())
    }

    fn wait_for_exit(mut self, words: &str, code: i32) -> Result<()> {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(started.elapsed() < PATIENCE, "{words} does not resume");
            std::thread::sleep(Duration::from_millis(20));
        };
        ensure!(status.code() == Some(code), "{words} ended with {status}");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may already have ended, so an error is ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn throttle_pauses_and_resumes_all_bulk_work(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let spec = |id: &str| ServerSpec::new(kind).options(["--local-infile=1", id]);
    let (source, loaded, copied) = tokio::try_join!(
        Server::start(spec("--server-id=1")),
        Server::start(spec("--server-id=2")),
        Server::start(spec("--server-id=3"))
    )?;
    source.sql(SCRIPT).await?;
    // A load is throttled by its target.
    loaded.sql("CREATE DATABASE gauge; CREATE TABLE gauge.g (n INT); INSERT INTO gauge.g VALUES (0)").await?;
    let folder = tempfile::tempdir()?;
    let at = |side: &str, server: &Server| {
        format!("--{side}host 127.0.0.1 --{side}port {} --{side}user root", server.port())
    };
    let [copy, check] = [&copied, &loaded]
        .map(|target| format!("{} {} --database shop", at("source-", &source), at("target-", target)));
    let small = "--workers 1 --chunk-rows-max 20";
    for (words, gauge, code) in [
        (format!("dump dumped {} --database shop {small}", at("", &source)), &source, 0),
        (format!("load dumped {} --workers 1", at("", &loaded)), &loaded, 0),
        (format!("copy {copy} --workers 1"), &source, 0),
        (format!("check {check} --wait none {small}"), &source, 0),
        (format!("repair {check} --wait none {small}"), &source, 0),
    ] {
        gauge.sql("UPDATE gauge.g SET n = 1").await?;
        let running = Running::start(&folder, &words)?;
        running.makes_no_progress(&words)?;
        gauge.sql("UPDATE gauge.g SET n = 0").await?;
        running.wait_for_exit(&words, code)?;
    }
    let sums = "SELECT COUNT(*), SUM(CRC32(CONCAT(id, note))) FROM shop.orders";
    let wanted = source.sql(sums).await?;
    ensure!(loaded.sql(sums).await? == wanted && copied.sql(sums).await? == wanted);
    Ok(())
}
