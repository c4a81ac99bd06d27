//! A source, captures of it in this process, and a comparison of the logs with the source's own binlog files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tailwater_capture::capture_status::StatusSnapshot;
use tailwater_capture::resume_position::StartPolicy;
use tailwater_capture::{Capture, CaptureError, CaptureOptions, CaptureState, CaptureStatus};
use tailwater_log::{LogDir, LogHandle, LogOptions, SegmentSummary};
use tailwater_sandbox::workload::{TransactionMix, prepare};
use tailwater_sandbox::{Ledger, Server, ServerKind, ServerSpec, Workload, WorkloadSpec, require};
use tailwater_session::{ConnectOptions, Endpoint};
use tailwater_wire::Flavour;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

/// The time limit of each step of a test. Even on a busy machine a step takes this long only if something is
/// wrong.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A source server, and a folder for the logs that captures write.
pub struct Source {
    pub server: Server,
    pub folder: tempfile::TempDir,
    pub ledger: Arc<Ledger>,
    next_worker: u32,
}

impl Source {
    /// Starts a source without semi-sync. `None` if the server is not installed.
    pub async fn start(kind: ServerKind, options: &[&str]) -> Result<Option<Self>> {
        Self::start_spec(kind, options, |spec| spec).await
    }

    pub async fn start_spec(
        kind: ServerKind,
        options: &[&str],
        change: fn(ServerSpec) -> ServerSpec,
    ) -> Result<Option<Self>> {
        if require(kind).is_none() {
            return Ok(None);
        }
        // These tests check the final files, not power failures, so the source need not sync.
        let relaxed = ["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"];
        let spec = ServerSpec::new(kind).options(relaxed).options(options.iter().copied());
        let server = Server::start(change(spec)).await?;
        server.create_replication_user().await?;
        let source =
            Self { server, folder: tempfile::tempdir()?, ledger: Arc::new(Ledger::new()), next_worker: 1 };
        Ok(Some(source))
    }

    /// The options to capture this source into the log `name`.
    pub fn options(&self, name: &str, server_id: u32) -> CaptureOptions {
        CaptureOptions {
            name: name.to_owned(),
            connect: self.server.replication_options(),
            server_id,
            semi_sync: true,
            start: StartPolicy::Current,
            heartbeat: Duration::from_millis(500),
            source_check_interval: Duration::from_millis(200),
            directory: self.log(name),
            log: LogOptions { preallocate_bytes: 1 << 20, ..LogOptions::default() },
            servers: BTreeMap::new(),
            wait_when_refused: false,
        }
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates the tables to which the test clients write. With semi-sync, the CREATE statements wait for an
    /// ACK.
    pub async fn prepare(&self) -> Result<()> {
        Ok(prepare(&self.server.connect_options()).await?)
    }

    pub fn load(&mut self, connections: u32, transactions: Option<u64>) -> Workload {
        let spec = WorkloadSpec {
            first_worker: self.next_worker,
            transactions,
            mix: TransactionMix::Mixed { body_bytes_max: 2000 },
            pause: Duration::from_millis(2),
            ..WorkloadSpec::new(connections)
        };
        self.next_worker += connections;
        Workload::start(self.server.connect_options(), &spec, Arc::clone(&self.ledger))
    }

    /// Commits `transactions` transactions, and waits until each is acknowledged.
    pub async fn write(&mut self, transactions: u64) -> Result<()> {
        let report = self.load(2, Some(transactions)).wait().await;
        ensure!(report.errors.is_empty(), "the test clients had errors: {:?}", report.errors);
        Ok(())
    }

    /// Starts the next binlog file.
    pub async fn rotate(&self) -> Result<()> {
        self.server.sql("FLUSH BINARY LOGS").await?;
        Ok(())
    }

    /// The source's binlog files with their sizes in bytes.
    pub async fn binlogs(&self) -> Result<Vec<(String, u64)>> {
        let lines = self.server.sql("SHOW BINARY LOGS").await?;
        let file = |line: &String| {
            let mut fields = line.split('\t');
            Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
        };
        lines.iter().map(|line| file(line).with_context(|| line.clone())).collect()
    }

    pub async fn newest(&self) -> Result<(String, u64)> {
        self.binlogs().await?.pop().context("the source has no binlog file")
    }

    /// Waits until the log has everything that the source has written to its binlog.
    pub async fn until_complete(&self, name: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            // Query the source's end position each time: a server writes further events a moment after it has
            // started a file.
            let newest = self.newest().await?;
            let end = match LogDir::open_read_only(&self.log(name))?.segments()?.last() {
                Some(last) => (last.source_file.clone(), source_end(last)?),
                None => (String::new(), 0),
            };
            if end == newest {
                return Ok(());
            }
            ensure!(
                begin.elapsed() < PATIENCE,
                "the log stays at the position {end:?}, but the source has written up to {newest:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the log has everything that the source has written to its binlog, and compares every byte.
    pub async fn check_complete(&self, name: &str) -> Result<()> {
        self.until_complete(name).await?;
        compare(&self.log(name), self.server.data())
    }

    pub fn flavour(&self) -> Flavour {
        self.server.kind().flavour()
    }
}

/// Returns the options, changed so that the capture connects through the test link on this port.
pub fn through(mut options: CaptureOptions, port: u16) -> CaptureOptions {
    options.connect = ConnectOptions { endpoint: Endpoint::tcp("127.0.0.1", port), ..options.connect };
    options
}

/// The runtime for captures without semi-sync, as in the daemon.
fn readers() -> &'static Handle {
    static READERS: OnceLock<Runtime> = OnceLock::new();
    let start = || Builder::new_multi_thread().worker_threads(2).enable_all().build();
    READERS.get_or_init(|| start().expect("starting the runtime for captures succeeds")).handle()
}

/// A running capture under test.
pub struct Running {
    pub capture: Capture,
    pub status: Arc<CaptureStatus>,
}

impl Running {
    pub fn start(options: CaptureOptions) -> Result<Self> {
        let capture = Capture::start(options, CancellationToken::new(), Some(readers()))?;
        Ok(Self { status: capture.status(), capture })
    }

    /// The log that the capture writes.
    pub fn log(&self) -> LogHandle {
        self.capture.log()
    }

    /// Waits until the status satisfies a condition, and returns the status.
    pub async fn until(
        &self,
        what: &str,
        wished: impl Fn(&StatusSnapshot) -> bool,
    ) -> Result<StatusSnapshot> {
        let begin = Instant::now();
        loop {
            let snapshot = self.status.snapshot();
            if wished(&snapshot) {
                return Ok(snapshot);
            }
            if let CaptureState::Refused(reason) = &snapshot.state {
                bail!("the capture stopped while the test waited for {what}: {reason}");
            }
            ensure!(begin.elapsed() < PATIENCE, "timed out while waiting for {what}: {snapshot:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn until_streaming(&self) -> Result<()> {
        self.until("stream", |now| now.state == CaptureState::Streaming).await?;
        Ok(())
    }

    /// Stops the capture in an orderly way.
    pub async fn stop(self) -> Result<()> {
        self.capture.stop();
        tokio::task::spawn_blocking(move || self.capture.join()).await??;
        Ok(())
    }

    /// Waits until the capture ends with an error, although the test did not stop it. Returns the error.
    pub async fn refusal(self) -> Result<CaptureError> {
        let begin = Instant::now();
        while !matches!(self.status.snapshot().state, CaptureState::Refused(_)) {
            if begin.elapsed() > PATIENCE {
                let state = self.status.snapshot().state;
                self.stop().await?;
                bail!("the capture was not refused: {state:?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        match tokio::task::spawn_blocking(move || self.capture.join()).await? {
            Err(error) => Ok(error),
            Ok(()) => bail!("the capture was refused without an error"),
        }
    }
}

/// The offset in a segment's file where its events start. If the segment starts in the middle of the source's
/// file, this is after the format description event.
fn body_offset(segment: &SegmentSummary, bytes: &[u8]) -> Result<usize> {
    if segment.source_offset == 4 {
        return Ok(4);
    }
    let length = bytes.get(4 + 9..4 + 13).context("the segment has no event")?;
    Ok(4 + u32::from_le_bytes(length.try_into()?) as usize)
}

fn source_end(segment: &SegmentSummary) -> Result<u64> {
    let bytes = fs::read(&segment.path)?;
    Ok(segment.source_offset + segment.bytes.saturating_sub(body_offset(segment, &bytes)? as u64))
}

/// Checks that the log in `directory` has the same bytes as the source's binlog files in `data`. From the
/// log's beginning on, no byte may be missing or duplicated.
pub fn compare(directory: &Path, data: &Path) -> Result<()> {
    let segments = LogDir::open_read_only(directory)?.segments()?;
    ensure!(!segments.is_empty(), "the log is empty");
    for (index, segment) in segments.iter().enumerate() {
        let last = index + 1 == segments.len();
        let name = &segment.source_file;
        ensure!(
            index == 0 || segments[index - 1].source_file < *name,
            "{name} is in the log twice or in the wrong order"
        );
        let mut theirs = fs::read(data.join(name)).with_context(|| format!("cannot read the file {name}"))?;
        let ours = fs::read(&segment.path)?;
        // The newest segment has reserved space after its end.
        let mut ours = ours
            .get(..segment.bytes as usize)
            .context("a segment is shorter than its index says it is")?
            .to_vec();
        // The flag that marks a binlog file as in use is set only in the source's own file.
        ours[4 + 17] &= !1;
        theirs[4 + 17] &= !1;
        let from = body_offset(segment, &ours)?;
        let start = segment.source_offset as usize;
        let end = start + ours.len() - from;
        ensure!(
            end <= theirs.len(),
            "the log has {end} bytes of the binlog file {name}, but the source has {}",
            theirs.len()
        );
        ensure!(
            last || end == theirs.len(),
            "the log ends at offset {end} of the binlog file {name}, but the source's file ends at {}",
            theirs.len()
        );
        if let Some(at) = (start..end).find(|&at| ours[from + at - start] != theirs[at]) {
            bail!("the log and the source differ at offset {at} of the binlog file {name}");
        }
    }
    Ok(())
}

/// Waits until the clients of `load` have got acknowledgements for this many more commits.
pub async fn wait_until_acknowledged(load: &Workload, commits: u64) -> Result<()> {
    let wanted = load.counters().snapshot().acknowledged + commits;
    let begin = Instant::now();
    while load.counters().snapshot().acknowledged < wanted {
        ensure!(
            begin.elapsed() < PATIENCE,
            "the clients get no further acknowledged commits: {:?}",
            load.counters().snapshot()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Runs a test with three worker threads, so that a statement that waits does not delay the rest of the test.
pub fn run(test: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(test)
}
