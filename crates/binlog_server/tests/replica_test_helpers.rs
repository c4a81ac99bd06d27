//! Helpers for the tests of the binlog server: its streams, replicas that start at a position, and errors of
//! replicas.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_capture::CaptureError;
use tailwater_log::LogHandle;
use tailwater_sandbox::{ReplicaOf, ReplicaStatus, Server, ServerKind};
use tailwater_wire::Flavour;

use crate::binlog_server_with_replicas::Tailwater;
use crate::capture_test_source::{PATIENCE, Source};

/// The error number that ends a binlog stream. A MySQL replica reports this error under another number, and
/// names this number in the error's text.
pub const FATAL: u64 = 1236;

impl Tailwater {
    /// Captures `source` from its oldest binlog file on, without semi-sync. Waits until the stream has
    /// started.
    pub async fn start(source: &Source) -> Result<Self> {
        let mut tailwater = Self::of(source)?;
        tailwater.start_again().await?;
        Ok(tailwater)
    }

    /// Waits until the capture has ended with a permanent error. Returns the error.
    pub async fn refusal(&mut self) -> Result<CaptureError> {
        let error = self.running.take().context("the capture is not running")?.refusal().await?;
        Ok(error)
    }

    pub fn log(&self) -> Result<LogHandle> {
        Ok(self.running()?.log())
    }

    /// How a replica connects to the binlog server that requires TLS. Otherwise the same as
    /// [`Tailwater::replica`].
    pub fn replica_with_tls(&self) -> ReplicaOf {
        ReplicaOf { tls: true, ..ReplicaOf::port(self.tls_port.number()) }
    }

    /// The connections that read a stream: the connection id and the state of each.
    pub async fn streams(&self) -> Result<Vec<(u32, String)>> {
        let lines = self.sql("SHOW PROCESSLIST").await?;
        let dumps = lines.iter().filter(|line| line.contains("Binlog Dump"));
        dumps.map(|line| Ok((line.split('\t').next().unwrap_or_default().parse()?, line.clone()))).collect()
    }

    /// Waits until the streams satisfy a condition.
    pub async fn until_streams(
        &self,
        what: &str,
        wished: impl Fn(&[(u32, String)]) -> bool,
    ) -> Result<Vec<(u32, String)>> {
        let begin = Instant::now();
        loop {
            let streams = self.streams().await?;
            if wished(&streams) {
                return Ok(streams);
            }
            ensure!(begin.elapsed() < PATIENCE, "timed out while waiting for {what}: {streams:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Returns the option for a source whose replicas request the stream by position and are interrupted. By
/// default, MariaDB 11.4 and later writes no positions inside a transaction. Replicas then count positions
/// wrongly there, and no source can resume their streams.
pub fn with_positions(kind: ServerKind) -> Option<&'static str> {
    (kind == ServerKind::Mariadb118).then_some("--binlog-legacy-event-pos=ON")
}

/// Whether two GTID sets in text form are equal. MariaDB lists its domains in any order.
pub fn same_gtids(ours: &str, theirs: &str) -> bool {
    let sorted = |gtids: &str| gtids.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
    sorted(ours) == sorted(theirs)
}

/// Waits until the receiver thread of a replica has an error with this number and text.
pub async fn until_io_error(replica: &Server, number: u64, words: &str) -> Result<ReplicaStatus> {
    let begin = Instant::now();
    let fatal = number == FATAL;
    let number = if fatal && replica.kind().flavour() == Flavour::MySql { 13114 } else { number };
    loop {
        let status = replica.replica_status().await?.context("the server is not a replica")?;
        let has_error = status.io_error.0 == number && status.io_error.1.contains(words);
        // The receiver thread reports the error a moment before it stops.
        if has_error && !(fatal && status.io_running != "No") {
            return Ok(status);
        }
        ensure!(
            begin.elapsed() < PATIENCE,
            "the replica {} does not report the error {number} {words}: {status:?}",
            replica.name()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
