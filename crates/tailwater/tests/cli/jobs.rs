//! Jobs: command lines that a real daemon lists, shows and cancels.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tailwater_sandbox::{Link, Server, ServerKind, ServerSpec, require};
use tailwater_session::Connection;

use super::http_api::{ApiDaemon, OPERATOR, READER};
use crate::shell_session::PROGRAM;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of rows of the table.
pub const ROWS: usize = 20_000;

/// A daemon, and a server with a table whose rows take as long as a test wants.
pub struct SlowServer {
    pub daemon: ApiDaemon,
    pub server: Server,
    /// A link to the server.
    pub link: Link,
}

impl SlowServer {
    pub async fn start(kind: ServerKind) -> Result<Option<Self>> {
        if require(kind).is_none() {
            return Ok(None);
        }
        let options = ["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2", "--local-infile=1"];
        let server = Server::start(ServerSpec::new(kind).options(options)).await?;
        let mut connection = Connection::connect(&server.socket_options()).await?;
        connection.execute("CREATE DATABASE shop").await?;
        connection.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, t TEXT)").await?;
        for first in (0..ROWS).step_by(1000) {
            let rows = (first..first + 1000)
                .map(|row| format!("({row}, REPEAT(LPAD(HEX({row} * 7919), 32, '-'), 10))"));
            let rows: Vec<_> = rows.collect();
            connection.execute(&format!("INSERT INTO shop.t VALUES {}", rows.join(","))).await?;
        }
        let link = Link::open(server.address()).await?;
        Ok(Some(Self { daemon: ApiDaemon::start("")?, server, link }))
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.daemon.shell.path().join(name)
    }

    fn listed(&self, words: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(words.split_whitespace()).arg("--daemon").arg(self.folder("log/control.sock"));
        command.current_dir(self.daemon.shell.path()).env_remove("TAILWATER_PASSWORD");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A command that works on the server at this port.
    pub fn command(&self, port: u16, words: &str) -> Command {
        self.listed(&format!("{words} --host 127.0.0.1 --user root --port {port}"))
    }

    /// A command that reads from the server at this port, and works on another one.
    pub fn command_between(&self, port: u16, target: &Server, words: &str) -> Command {
        let source = format!("--source-host 127.0.0.1 --source-user root --source-port {port}");
        let to = format!("--target-host 127.0.0.1 --target-user root --target-port {}", target.port());
        self.listed(&format!("{words} {source} {to}"))
    }

    /// Starts a dump over a slow link, and returns it with its job as soon as rows have arrived.
    fn start_dump(&self, words: &str) -> Result<(Child, Value)> {
        let words = format!("dump {words} --workers 1 --chunk-rows-max 500");
        self.start_slowly(self.command(self.link.port(), &words))
    }

    /// Starts a command whose rows go over a slow link, and returns it with its job as soon as it has
    /// processed some rows.
    pub fn start_slowly(&self, mut command: Command) -> Result<(Child, Value)> {
        // About 6 MiB of rows take half a minute.
        self.link.set_bandwidth(Some(200 << 10));
        let child = command.spawn()?;
        let pid = child.id();
        let job = self.until(|job| {
            job["process"]["pid"] == pid && job["progress"]["rows"].as_u64().is_some_and(|rows| rows > 0)
        })?;
        Ok((child, job))
    }

    fn jobs(&self) -> Result<Vec<Value>> {
        let (code, jobs) = self.daemon.ask("GET", "/api/v1/jobs", Some(READER), "")?;
        ensure!(code == 200, "a reader's request for the list of jobs failed: {code} {jobs}");
        Ok(jobs.as_array().context("the jobs are not a list")?.clone())
    }

    pub fn until(&self, condition: impl Fn(&Value) -> bool) -> Result<Value> {
        let started = Instant::now();
        loop {
            let jobs = self.jobs();
            if let Ok(jobs) = &jobs
                && let Some(job) = jobs.iter().find(|job| condition(job))
            {
                return Ok(job.clone());
            }
            let log = || std::fs::read_to_string(self.folder("relay.log")).unwrap_or_default();
            ensure!(started.elapsed() < PATIENCE, "no job satisfies the condition: {jobs:?}\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

pub fn id_of(job: &Value) -> Result<u64> {
    job["id"].as_u64().with_context(|| format!("a job has no number: {job}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_is_listed_cancelled_and_resumed_mariadb() -> Result<()> {
    cancelled_and_resumed(ServerKind::Mariadb118).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_is_listed_cancelled_and_resumed_mysql() -> Result<()> {
    cancelled_and_resumed(ServerKind::Mysql97).await
}

async fn cancelled_and_resumed(kind: ServerKind) -> Result<()> {
    let Some(setup) = SlowServer::start(kind).await? else { return Ok(()) };
    let (child, job) = setup.start_dump("dump")?;
    let id = id_of(&job)?;
    let subject = format!("127.0.0.1:{} to dump", setup.link.port());
    ensure!(
        job["kind"] == "dump"
            && job["state"] == "running"
            && job["origin"] == "command_line"
            && job["subject"] == subject.as_str()
            && job["progress"]["phase"] == "dumping"
            && job["progress"]["rows_total"].as_u64().is_some_and(|rows| rows > 0),
        "the running dump is not listed correctly: {job}"
    );
    let (_, snapshot) = setup.daemon.ask("GET", "/api/v1/snapshot", Some(READER), "")?;
    ensure!(snapshot["jobs"][0]["id"] == id, "the snapshot does not list the job: {}", snapshot["jobs"]);
    let shell = &setup.daemon.shell;
    shell.run("job list -c tailwater.toml")?.exits(0).says(&["ID", "dump", "running", &subject]);
    shell.run(&format!("job show {id} -c tailwater.toml"))?.exits(0).says(&["dumping", " rows", &subject]);

    let cancel = format!("/api/v1/jobs/{id}/cancel");
    ensure!(
        setup.daemon.ask("POST", &cancel, Some(READER), "")?.0 == 403,
        "a reader's request to cancel a job was not refused"
    );
    ensure!(setup.until(|job| job["id"] == id)?["cancellation"].is_null());
    let (code, answer) = setup.daemon.ask("POST", &cancel, Some(OPERATOR), "")?;
    ensure!(
        code == 200 && answer["cancellation"]["by"] == "operator",
        "the operator's request to cancel the job failed: {code} {answer}"
    );
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1)
            && errors.contains("cancelled by operator")
            && errors.contains("TW-BULK-0011"),
        "the cancelled dump did not end with TW-BULK-0011 and the name of the operator: {errors}"
    );
    let job = setup.until(|job| job["id"] == id && job["state"] != "running")?;
    let message = job["message"].as_str().unwrap_or_default();
    ensure!(
        job["state"] == "cancelled" && message.contains("by operator") && message.contains("--resume"),
        "the job is not listed as cancelled by the operator: {job}"
    );
    let refused = shell.run(&format!("job cancel {id} -c tailwater.toml"))?.exits(1);
    refused.stderr_has(&["TW-JOB-0002", "cancelled"]);

    setup.link.set_bandwidth(None);
    let resumed = setup.command(setup.link.port(), "dump dump --resume").output()?;
    ensure!(
        resumed.status.success(),
        "the resumed dump failed: {}",
        String::from_utf8_lossy(&resumed.stderr)
    );
    let job = setup.until(|job| job["id"] == id + 1 && job["state"] == "finished")?;
    ensure!(
        job["code"].is_null() && job["ended_ms"].is_u64(),
        "the finished job has an error code or no end: {job}"
    );
    let listed = shell.run("job list --output json -c tailwater.toml")?.exits(0).json()?;
    ensure!(
        listed.iter().filter_map(|job| job["id"].as_u64()).eq([id + 1, id]),
        "the list must contain the resumed and the cancelled dump, and no other job: {listed:?}"
    );

    let audit = std::fs::read_to_string(setup.folder("log/audit.log"))?;
    ensure!(!audit.contains("/progress"), "reports of progress are in the audit log: {audit}");
    for path in ["\"/api/v1/jobs\"".to_owned(), format!("\"{cancel}\""), format!("\"/api/v1/jobs/{id}/end\"")]
    {
        ensure!(audit.contains(&path), "the audit log lacks {path}: {audit}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_load_is_listed_with_its_code() -> Result<()> {
    let Some(setup) = SlowServer::start(ServerKind::Mariadb118).await? else { return Ok(()) };
    let dumped = setup.command(setup.server.port(), "dump dump").output()?;
    ensure!(dumped.status.success(), "the dump failed: {}", String::from_utf8_lossy(&dumped.stderr));
    // The tables of the dump already exist on the server, so the load is refused.
    let refused = setup.command(setup.server.port(), "load dump").output()?;
    ensure!(
        refused.status.code() == Some(4),
        "the load did not end with exit code 4: {}",
        String::from_utf8_lossy(&refused.stderr)
    );
    let job = setup.until(|job| job["kind"] == "load" && job["state"] == "failed")?;
    let code = job["code"].as_str().unwrap_or_default();
    ensure!(
        code.starts_with("TW-BULK-") && job["message"].is_string(),
        "the failed job has no error code or message: {job}"
    );
    Ok(())
}

/// The list of jobs survives a restart of the daemon. A command that runs during the restart continues to
/// report. If the command is killed, its job is listed as lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_survives_a_restart_of_the_daemon_and_is_lost_after_a_kill() -> Result<()> {
    let Some(mut setup) = SlowServer::start(ServerKind::Mariadb118).await? else { return Ok(()) };
    let (mut child, job) = setup.start_dump("dump")?;
    let (id, rows) = (id_of(&job)?, job["progress"]["rows"].as_u64());
    let process = setup.daemon.process.take().context("the daemon is not running")?;
    process.terminate(PATIENCE).await?;
    setup.daemon.run()?;
    let job = setup.until(|job| job["id"] == id && job["progress"]["rows"].as_u64() > rows)?;
    ensure!(job["state"] == "running", "the job is not listed as running after the restart: {job}");
    child.kill()?;
    child.wait()?;
    let job = setup.until(|job| job["id"] == id && job["state"] != "running")?;
    let message = job["message"].as_str().unwrap_or_default();
    ensure!(
        job["state"] == "lost" && message.contains(&format!("process {}", child.id())),
        "the job of the killed command is not listed as lost: {job}"
    );
    let process = setup.daemon.process.take().context("the daemon is not running")?;
    process.kill().await?;
    setup.daemon.run()?;
    let job = setup.until(|job| job["id"] == id)?;
    ensure!(job["state"] == "lost", "the job is not listed as lost after the second restart: {job}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_hangs_does_not_hold_up_a_dump() -> Result<()> {
    let Some(mut setup) = SlowServer::start(ServerKind::Mysql97).await? else { return Ok(()) };
    // The daemon is frozen until the dump has ended.
    setup.daemon.process.as_mut().context("the daemon is not running")?.pause()?;
    let dumped = setup.command(setup.server.port(), "dump dump").output()?;
    ensure!(
        dumped.status.success(),
        "the dump failed while the daemon was frozen: {}",
        String::from_utf8_lossy(&dumped.stderr)
    );
    setup.daemon.process.as_mut().context("the daemon is not running")?.resume()?;
    // Without a daemon, the dump succeeds with one warning.
    let process = setup.daemon.process.take().context("the daemon is not running")?;
    process.terminate(PATIENCE).await?;
    let dumped = setup.command(setup.server.port(), "dump again").output()?;
    let errors = String::from_utf8_lossy(&dumped.stderr);
    ensure!(
        dumped.status.success() && errors.matches("TW-CTL-0001").count() == 1,
        "the dump without a daemon failed, or did not print exactly one warning: {errors}"
    );
    ensure!(Path::new(&setup.folder("again")).join("journal.jsonl").exists());
    Ok(())
}

/// Each change of a job makes an event, but a job that reports all the time makes at most two a second.
#[test]
fn jobs_notify_the_readers_of_events() -> Result<()> {
    const REPORTS: u64 = 40;
    let daemon = ApiDaemon::start("")?;
    let mut stream = TcpStream::connect(("127.0.0.1", daemon.http.port))?;
    write!(stream, "GET /api/v1/events HTTP/1.0\r\nauthorization: Bearer {READER}\r\n\r\n")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let started = Instant::now();
    let mut counts = BufReader::new(stream)
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("data:").and_then(|count| count.trim().parse::<u64>().ok()));
    let before = counts.next().context("the stream has no first event")?;
    let registration = r#"{"kind":"dump","subject":"db1 to /backup"}"#;
    ensure!(daemon.ask("POST", "/api/v1/jobs", Some(OPERATOR), registration)?.0 == 201);
    for rows in 0..REPORTS {
        let report = json!({"progress": {"phase": "dumping", "rows": rows}}).to_string();
        ensure!(daemon.ask("PUT", "/api/v1/jobs/1/progress", Some(OPERATOR), &report)?.0 == 200);
    }
    ensure!(daemon.ask("POST", "/api/v1/jobs/1/cancel", Some(OPERATOR), "")?.0 == 200);
    ensure!(daemon.ask("POST", "/api/v1/jobs/1/end", Some(OPERATOR), r#"{"outcome":"cancelled"}"#)?.0 == 200);
    // The registration, the reports, the cancellation and the end.
    let all = before + REPORTS + 3;
    let mut events = 1;
    loop {
        let count = counts.next().with_context(|| format!("the last of {events} events lacks changes"))?;
        events += 1;
        if count >= all {
            break;
        }
    }
    let events_max = started.elapsed().as_millis() / 500 + 2;
    ensure!(events <= events_max, "{events} events came within {:?}", started.elapsed());
    Ok(())
}

#[test]
fn hostile_requests_about_jobs_are_refused() -> Result<()> {
    let daemon = ApiDaemon::start("")?;
    let good = json!({"kind": "dump", "subject": "x".repeat(5_000)}).to_string();
    let (code, registered) = daemon.ask("POST", "/api/v1/jobs", Some(OPERATOR), &good)?;
    ensure!(code == 201 && registered["id"] == 1, "the job was not registered: {code} {registered}");
    let (_, job) = daemon.ask("GET", "/api/v1/jobs/1", Some(READER), "")?;
    // The request came over TCP, so the daemon does not know the process of the job.
    ensure!(
        job["subject"].as_str().is_some_and(|text| text.len() < 1_100),
        "the long subject was not cut: {job}"
    );
    ensure!(
        job["user"] == "operator" && job["process"].is_null(),
        "the job must have the user `operator` and no process: {job}"
    );
    let long = json!({"progress": {"phase": "x".repeat(70_000)}}).to_string();
    let many = json!({"progress": {"phase": "x"}, "log": vec!["line\u{1b}[2J"; 2_000]}).to_string();
    let end = r#"{"outcome":"finished"}"#;
    for (method, path, body, expected, cause) in [
        ("POST", "/api/v1/jobs", "", 400, "kind"),
        ("POST", "/api/v1/jobs", r#"{"kind":"rm -rf","subject":""}"#, 400, "rm -rf"),
        ("POST", "/api/v1/jobs", r#"{"kind":"dump","subject":"","pid":1}"#, 400, "pid"),
        ("PUT", "/api/v1/jobs/1/progress", "{}", 400, "progress"),
        ("PUT", "/api/v1/jobs/1/progress", r#"{"progress":{"rows":-1}}"#, 400, "-1"),
        ("PUT", "/api/v1/jobs/1/progress", r#"{"progress":{"rows":1e30}}"#, 400, "1e"),
        ("PUT", "/api/v1/jobs/1/progress", r#"{"progress":{},"log":[7]}"#, 400, "string"),
        ("PUT", "/api/v1/jobs/1/progress", long.as_str(), 413, "limit"),
        ("PUT", "/api/v1/jobs/1/progress", many.as_str(), 200, ""),
        ("PUT", "/api/v1/jobs/9/progress", r#"{"progress":{}}"#, 404, "no job 9"),
        ("PUT", "/api/v1/jobs/-1/progress", r#"{"progress":{}}"#, 400, "-1"),
        ("GET", "/api/v1/jobs/18446744073709551616", "", 400, "18446744073709551616"),
        ("POST", "/api/v1/jobs/1/end", r#"{"outcome":"lost"}"#, 400, "lost"),
        ("POST", "/api/v1/jobs/1/end", r#"{"outcome":"finished","found":{"rows":1}}"#, 400, "tables"),
        ("POST", "/api/v1/jobs/1/end", r#"{"outcome":"finished","found":7}"#, 400, "JobFindings"),
        ("POST", "/api/v1/jobs/1/end", end, 200, ""),
        ("POST", "/api/v1/jobs/1/end", end, 409, "finished"),
        ("PUT", "/api/v1/jobs/1/progress", r#"{"progress":{}}"#, 409, "already ended"),
        ("DELETE", "/api/v1/jobs/1", "", 405, "method"),
    ] {
        let (code, answer) = daemon.ask(method, path, Some(OPERATOR), body)?;
        let message = answer["message"].as_str().unwrap_or_default();
        let start: String = body.chars().take(80).collect();
        ensure!(
            code == expected && message.contains(cause),
            "{method} {path} {start} must get {expected}, but got {code} {answer}"
        );
    }
    let (_, job) = daemon.ask("GET", "/api/v1/jobs/1", Some(READER), "")?;
    ensure!(
        job["log"].as_array().is_some_and(|lines| lines.len() == 50),
        "the job's log must have exactly 50 lines: {}",
        job["log"]
    );
    daemon.shell.run("job show 1 -c tailwater.toml")?.exits(0).stdout_lacks(&["\u{1b}"]);
    daemon.shell.run("job show 2 -c tailwater.toml")?.exits(1).stderr_has(&["TW-JOB-0001", "job list"]);
    Ok(())
}
