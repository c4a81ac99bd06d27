//! A full disk: the capture acknowledges nothing more, and no acknowledged transaction is lost.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use tailwater_capture::CaptureRetry;
use tailwater_sandbox::ServerKind;

use crate::capture_test_source::{Running, Source, run, wait_until_acknowledged};

/// A tmpfs that is mounted on a folder until this value is dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(folder: &'a Path, size: &str) -> Option<Self> {
        let options = format!("size={size}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder).output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(folder)),
            other => {
                eprintln!("SKIPPED: this test needs the right to mount a tmpfs: {other:?}");
                None
            }
        }
    }

    fn grow(&self, size: &str) -> Result<()> {
        let options = format!("remount,size={size}");
        ensure!(Command::new("mount").args(["-o", &options]).arg(self.0).status()?.success());
        Ok(())
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

async fn full(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start_waiting(kind, &[]).await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let Some(disk) = SmallDisk::mount(folder.path(), "3m") else { return Ok(()) };
    let mut options = source.options("log", 95);
    options.directory = folder.path().join("log");
    let capture = Running::start(options.clone())?;
    capture.until_streaming().await?;
    source.prepare().await?;
    let load = source.load(6, None);
    let error = capture.refusal().await?;
    ensure!(
        error.retry() == CaptureRetry::Fatal && error.code() == "TW-LOG-0004",
        "{}: {error}",
        error.code()
    );
    ensure!(error.to_string().contains(&*folder.path().to_string_lossy()), "unexpected error: {error}");

    // No commit of a client may complete without an ACK.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let stalled = load.counters().snapshot().acknowledged;
    tokio::time::sleep(Duration::from_millis(300)).await;
    ensure!(
        load.counters().snapshot().acknowledged == stalled,
        "commits were acknowledged although the log's disk is full"
    );

    disk.grow("64m")?;
    let capture = Running::start(options)?;
    wait_until_acknowledged(&load, 50).await?;
    load.finish().await;
    capture.stop().await?;
    std::os::unix::fs::symlink(folder.path().join("log"), source.log("log"))?;
    source.check_complete("log").await?;
    let report = source.check_ledger("log")?;
    ensure!(report.acknowledged >= stalled + 50, "too few commits were acknowledged: {report:?}");
    ensure!(source.server.semi_sync_status().await?.unacknowledged == 0);
    Ok(())
}

#[test]
fn a_full_disk_loses_no_acknowledged_commit_of_mysql_97() -> Result<()> {
    run(full(ServerKind::Mysql97))
}

#[test]
fn a_full_disk_loses_no_acknowledged_commit_of_mariadb_1011() -> Result<()> {
    run(full(ServerKind::Mariadb1011))
}
