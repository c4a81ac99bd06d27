//! Helpers for the tests of the capture: semi-sync sources, purges of binlog files, orders to the capture,
//! and checks of the log.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tailwater_capture::capture_status::StatusSnapshot;
use tailwater_capture::{CaptureAcker, CaptureState};
use tailwater_log::LogDir;
use tailwater_sandbox::{BinlogCheck, LedgerReport, ServerKind, ServerSpec};

use crate::capture_test_source::{PATIENCE, Running, Source};

impl Source {
    /// Starts a source on which every commit waits for an ACK, from the first commit on.
    pub async fn start_waiting(kind: ServerKind, options: &[&str]) -> Result<Option<Self>> {
        Self::start_spec(kind, options, ServerSpec::semi_sync_source).await
    }

    /// Purges all binlog files of the source except the newest. MariaDB refuses to purge a file while a
    /// stream uses it, and notices the end of a stream late. So this method retries.
    pub async fn purge(&self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let (newest, _) = self.newest().await?;
            self.server.sql(&format!("PURGE BINARY LOGS TO '{newest}'")).await?;
            if self.binlogs().await?.len() == 1 {
                return Ok(());
            }
            ensure!(
                begin.elapsed() < PATIENCE,
                "the source does not purge its old binlog files, because a stream uses them"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Runs SQL statements that the server does not write to the binlog.
    pub async fn configure(&self, statements: &str) -> Result<()> {
        self.server.sql(&format!("SET sql_log_bin=0; {statements}")).await?;
        Ok(())
    }

    /// Compares the log with the ledger of acknowledged commits.
    pub fn check_ledger(&self, name: &str) -> Result<LedgerReport> {
        let mut check = BinlogCheck::new(&self.ledger, self.flavour());
        for segment in LogDir::open_read_only(&self.log(name))?.segments()? {
            check.file(&segment.path)?;
        }
        let report = check.finish();
        ensure!(report.is_ok() && report.unlisted == 0, "the log does not match the ledger: {report:?}");
        Ok(report)
    }
}

impl Running {
    /// A handle for giving orders to the capture.
    pub fn acker(&self) -> CaptureAcker {
        self.capture.acker()
    }

    /// Waits until the capture waits to retry after an error whose text contains these words.
    pub async fn until_waiting(&self, words: &str) -> Result<()> {
        let waits = |now: &StatusSnapshot| matches!(&now.state, CaptureState::Waiting(reason) if reason.contains(words));
        self.until(words, waits).await?;
        Ok(())
    }

    /// Waits until this many more transactions are in the log.
    pub async fn until_more(&self, transactions: u64) -> Result<()> {
        let wanted = self.status.snapshot().transactions + transactions;
        self.until("more transactions", |now| now.transactions >= wanted).await?;
        Ok(())
    }
}

/// The contents of all files of a log, to check that nothing was changed.
pub fn contents(directory: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        files.push((path.clone(), fs::read(&path)?));
    }
    files.sort();
    Ok(files)
}
