//! The log's disk is full while the daemon runs: its list of jobs, its chart history and its audit log. The
//! daemon continues to work, shows the fault, and continues with the file when there is space again.
//!
//! The log of a source on a full disk is another matter: crates/capture/tests has its tests.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::http_api::{ApiDaemon, OPERATOR, READER};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon whose log's folder is a file system of 2 MiB in memory.
struct SmallDisk {
    daemon: ApiDaemon,
    folder: PathBuf,
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.daemon.process.take());
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}

impl SmallDisk {
    /// Returns `None` if this process may not mount a file system.
    fn prepare() -> Result<Option<Self>> {
        let daemon = ApiDaemon::prepare("")?;
        let folder = daemon.shell.path().join("log");
        std::fs::create_dir(&folder)?;
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(&folder).output();
        match mount {
            Ok(output) if output.status.success() => Ok(Some(Self { daemon, folder })),
            other => {
                eprintln!("SKIPPED: this test needs the right to mount a tmpfs: {other:?}");
                Ok(None)
            }
        }
    }

    /// Writes a file until the disk is full.
    fn fill(&self) -> Result<()> {
        let ballast = self.folder.join("ballast");
        let error = std::fs::write(&ballast, vec![1; 4 << 20]).err().context("the disk is not full")?;
        ensure!(error.kind() == std::io::ErrorKind::StorageFull, "{error}");
        Ok(())
    }

    fn make_room(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.folder.join("ballast"))?)
    }

    fn messages(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.daemon.shell.path().join("relay.log"))?)
    }

    /// Waits until the status has, or no longer has, a problem with this code.
    fn until_problem(&self, code: &str, is_present: bool) -> Result<()> {
        let started = Instant::now();
        loop {
            let (answered, status) = self.daemon.ask("GET", "/api/v1/status", Some(READER), "")?;
            ensure!(answered == 200, "the daemon does not answer: {answered} {status}");
            let problems = status["problems"].as_array().context("no problems")?;
            if problems.iter().any(|problem| problem["code"] == code) == is_present {
                return Ok(());
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "{code} is not {is_present}: {status} {}",
                self.messages()?
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Checks what an operator sees of the fault of `file`.
    fn is_shown(&self, code: &str, file: &str) -> Result<()> {
        self.until_problem(code, true)?;
        // The text is wrapped.
        let shown = self.daemon.shell.run("status -c tailwater.toml")?.exits(3).text();
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for text in [code, &format!("{file} cannot be written: No space left on device"), "free space"] {
            ensure!(shown.contains(text), "the status does not show {text:?}: {shown}");
        }
        let messages = self.messages()?;
        let warnings = messages.lines().filter(|line| line.contains(code)).count();
        ensure!(warnings == 1, "{warnings} messages have the code {code}: {messages}");
        Ok(())
    }

    /// Registers a job, as a command line does, and returns its number.
    fn register_job(&self) -> Result<Value> {
        let body = json!({ "kind": "dump", "subject": "shop", "can_cancel": true }).to_string();
        let (code, job) = self.daemon.ask("POST", "/api/v1/jobs", Some(OPERATOR), &body)?;
        ensure!(code == 201, "the job is refused: {code} {job}");
        Ok(job["id"].clone())
    }

    /// Waits until the content of a file satisfies a condition.
    fn until_file(&self, name: &str, condition: impl Fn(&str) -> bool) -> Result<String> {
        let started = Instant::now();
        loop {
            let text = std::fs::read(self.folder.join(name)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            if condition(&text) {
                return Ok(text);
            }
            if started.elapsed() > PATIENCE {
                bail!("{name} has unexpected content: {text}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn jobs_run_while_their_list_cannot_be_written() -> Result<()> {
    let Some(mut disk) = SmallDisk::prepare()? else { return Ok(()) };
    disk.daemon.run()?;
    let before = disk.register_job()?;
    disk.until_file("jobs.json", |text| text.contains("shop"))?;
    disk.fill()?;
    let id = disk.register_job()?;
    ensure!(id.as_u64() > before.as_u64(), "{id} after {before}");
    let (code, job) = disk.daemon.ask("GET", &format!("/api/v1/jobs/{id}"), Some(READER), "")?;
    ensure!(code == 200 && job["state"] == "running", "{code} {job}");
    disk.is_shown("TW-FILE-0001", "jobs.json")?;
    // The list before the fault is still there.
    ensure!(std::fs::read_to_string(disk.folder.join("jobs.json"))?.contains("shop"));

    disk.make_room()?;
    disk.until_problem("TW-FILE-0001", false)?;
    let stored: Value = serde_json::from_slice(&std::fs::read(disk.folder.join("jobs.json"))?)?;
    let jobs = stored["jobs"].as_array().context("no jobs")?;
    ensure!(jobs.iter().any(|job| job["id"] == id), "job {id} is not stored: {stored}");
    Ok(())
}

#[test]
fn charts_continue_when_there_is_space_again() -> Result<()> {
    let Some(mut disk) = SmallDisk::prepare()? else { return Ok(()) };
    disk.daemon.run()?;
    disk.until_file("history.ring", |text| !text.is_empty())?;
    drop(disk.daemon.process.take());
    std::fs::remove_file(disk.folder.join("history.ring"))?;
    disk.fill()?;
    disk.daemon.run()?;
    disk.is_shown("TW-FILE-0002", "history.ring")?;
    disk.make_room()?;
    // The next point is recorded after at most 10 s.
    disk.until_problem("TW-FILE-0002", false)?;
    let file = tailwater_chart_history::RingFile::open(&disk.folder.join("history.ring"))?;
    ensure!(file.series().any(|series| series == "source/orders"), "{:?}", file.series().collect::<Vec<_>>());
    Ok(())
}

#[test]
fn changes_are_carried_out_and_audited_later() -> Result<()> {
    let Some(mut disk) = SmallDisk::prepare()? else { return Ok(()) };
    disk.daemon.run()?;
    disk.fill()?;
    let id = disk.register_job()?;
    let (code, job) = disk.daemon.ask("POST", &format!("/api/v1/jobs/{id}/cancel"), Some(OPERATOR), "")?;
    ensure!(
        code == 200 && job["cancellation"]["by"] == "operator",
        "the cancellation is refused: {code} {job}"
    );
    disk.is_shown("TW-FILE-0003", "audit.log")?;
    ensure!(std::fs::metadata(disk.folder.join("audit.log"))?.len() == 0, "a part of an entry is written");
    // The change is in the messages of the daemon, too.
    let messages = disk.messages()?;
    let path = format!("/api/v1/jobs/{id}/cancel");
    ensure!(messages.lines().any(|line| line.contains(&path) && line.contains("\"caller\":\"operator\"")));

    disk.make_room()?;
    disk.until_problem("TW-FILE-0003", false)?;
    let text = std::fs::read_to_string(disk.folder.join("audit.log"))?;
    let entries: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let seen: Vec<_> = entries.iter().filter_map(|entry| entry["path"].as_str()).collect();
    ensure!(seen == ["/api/v1/jobs", &path], "{text}");
    Ok(())
}
