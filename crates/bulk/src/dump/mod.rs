//! Dumps databases into a folder: rows go from the wire to files without being turned into values, but for Parquet, on several
//! connections that see the same point in time.
//!
//! - [`preparation`]: what is to be dumped, the folder, the snapshot; [`origin`]: is it still the same server; [`omissions`]: what is not in it.
//! - [`chunk_queue`]: which chunk of which table comes next; [`worker`]: reads and writes one after the other.
//! - [`chunk_file`]: one chunk's file; [`row_encoder`]: rows as they stand there, [`tsv`] in the format that is loaded, [`parquet`]
//!   in columns.
//! - [`stream`]: all of it as one stream of statements.

mod chunk_file;
pub(crate) mod chunk_queue;
pub mod omissions;
mod origin;
pub mod parquet;
pub(crate) mod preparation;
pub mod row_encoder;
pub mod stream;
pub(crate) mod tsv;
pub(crate) mod worker;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{SecondsFormat, Utc};
use tailwater_session::{ConnectOptions, Connection};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::chunker::{ChunkKey, ChunkSizeLimits, TableInfo};
use crate::error::BulkError;
use crate::folder::{DumpCompression, DumpFiles, LocalFiles, Manifest, RowFormat};
use crate::progress::BulkProgress;
use crate::schema::{self, Selection, TableName};
use crate::snapshot::table_list::TableSizes;
use crate::snapshot::{SnapshotPlan, capabilities, plan};
use crate::throttle::Throttle;
use omissions::Omission;
use stream::DumpStream;
use worker::Worker;

/// What to dump, from where, to where and how.
#[derive(Debug, Clone)]
pub struct DumpOptions {
    /// Where and how to connect.
    pub connect: ConnectOptions,
    /// Where to.
    pub files: Arc<dyn DumpFiles>,
    /// Which databases and tables.
    pub selection: Selection,
    /// How many connections read; one at least.
    pub connections: usize,
    /// How data files are compressed.
    pub compression: DumpCompression,
    /// How they hold rows.
    pub rows: RowFormat,
    /// The level of the compression, which the compression has to have; the usual one if absent.
    pub compression_level: Option<i32>,
    /// The most rows of a chunk of a table with a key.
    pub chunk_rows_max: u64,
    /// About how many bytes, before compression, a chunk may have.
    pub chunk_bytes_max: u64,
    /// How long to wait for a lock, and how long to keep writers waiting, at most.
    pub lock_wait_max: Duration,
    /// Whether accounts come with it.
    pub accounts: bool,
    /// Go on with the interrupted dump that is in the folder.
    pub resume: bool,
    /// What holds it back between chunks.
    pub throttle: Arc<Throttle>,
    /// Of the channels that feed the server past its binlog ([`crate::snapshot::channel_target`]) these have stopped.
    pub channels_stopped: Vec<String>,
    /// Is cancelled when the snapshot is there: they may go on.
    pub snapshot_taken: CancellationToken,
}

impl DumpOptions {
    /// Options with defaults: everything, four connections, chunks of about 64 MiB compressed at level 3, and no more than
    /// five seconds of waiting for a lock.
    pub fn new(mut connect: ConnectOptions, folder: impl Into<PathBuf>) -> Self {
        // The server may have to read many rows before the first that it sends.
        connect.read_timeout = Some(Duration::from_secs(3600));
        // As long as a row can be.
        connect.rows_bytes_max = connect.rows_bytes_max.max(1 << 30);
        Self {
            connect,
            files: Arc::new(LocalFiles::new(folder)),
            selection: Selection::default(),
            connections: 4,
            compression: DumpCompression::default(),
            rows: RowFormat::default(),
            compression_level: None,
            chunk_rows_max: 10_000_000,
            chunk_bytes_max: 64 << 20,
            lock_wait_max: Duration::from_secs(5),
            accounts: false,
            resume: false,
            throttle: Arc::new(Throttle::open()),
            channels_stopped: Vec::new(),
            snapshot_taken: CancellationToken::new(),
        }
    }

    /// How big chunks of a table may be, and the first by what the server believes of its rows.
    fn chunk_size_limits(&self, rows_estimate: u64, bytes_estimate: u64) -> ChunkSizeLimits {
        /// Where the server knows nothing.
        const ROWS_FIRST: u64 = 10_000;
        let row_bytes = bytes_estimate.checked_div(rows_estimate).filter(|&bytes| bytes > 0);
        let rows_first = row_bytes.map_or(ROWS_FIRST, |bytes| self.chunk_bytes_max / bytes);
        ChunkSizeLimits {
            rows_first: rows_first.clamp(1, self.chunk_rows_max.max(1)),
            rows_max: self.chunk_rows_max,
            cost_max: self.chunk_bytes_max,
        }
    }
}

/// What was done.
#[derive(Debug, Clone)]
pub struct DumpReport {
    /// What the folder holds now.
    pub manifest: Manifest,
    /// How the snapshot was taken.
    pub method: &'static str,
    /// How long writers had to wait for it.
    pub stall: Duration,
    /// How long all of it took.
    pub elapsed: Duration,
    /// Tables whose engine has no snapshots: their rows are those of the moment when they were read.
    pub not_in_snapshot: Vec<TableName>,
    /// What is on the server and not in the folder.
    pub left_out: Vec<Omission>,
}

/// What would be done.
#[derive(Debug, Clone)]
pub struct DumpPlan {
    /// How the snapshot would be taken: the first way that is not refused.
    pub ways: Vec<SnapshotPlan>,
    /// Tables in the order in which they would be dumped.
    pub tables: Vec<PlannedTable>,
}

/// A table of a [`DumpPlan`].
#[derive(Debug, Clone)]
pub struct PlannedTable {
    /// Its name.
    pub name: TableName,
    /// The key that it is cut along; absent if it comes in one piece.
    pub key: Option<String>,
    /// About how many rows it has.
    pub rows_estimate: u64,
    /// About how many bytes it takes on the server.
    pub bytes_estimate: u64,
    /// Whether the snapshot holds for it.
    pub in_snapshot: bool,
}

/// What a dump would do. Nothing is written or locked.
///
/// # Errors
/// [`BulkError::NotFound`] if something selected is not there; [`BulkError::Session`].
pub async fn dry_run(options: &DumpOptions) -> Result<DumpPlan, BulkError> {
    let mut connection = Connection::connect(&options.connect).await?;
    schema::prepare(&mut connection).await?;
    let preparation::Checked { inventory, .. } =
        preparation::check_selection(&mut connection, &options.selection, options.accounts).await?;
    let lengths = TableSizes::read(&mut connection, &inventory.schemas).await?;
    let order = lengths.largest_first(inventory.tables);
    let ways = plan::plans(capabilities(&mut connection).await?, options.connections, &order);
    let mut tables = Vec::with_capacity(order.len());
    for name in order {
        let Some(shape) = TableInfo::read(&mut connection, &name.schema, &name.name).await? else {
            continue;
        };
        tables.push(PlannedTable {
            key: ChunkKey::choose(&shape.keys).map(|key| key.name.clone()),
            rows_estimate: shape.rows_estimate,
            bytes_estimate: shape.bytes_estimate,
            in_snapshot: shape.is_transactional(),
            name,
        });
    }
    Ok(DumpPlan { ways, tables })
}

/// Dumps. What is finished when it fails, is cancelled or is killed is kept, and gone on behind with
/// [`DumpOptions::resume`].
///
/// # Errors
/// [`BulkError::Interrupted`] if it was cancelled; [`BulkError::FolderNotEmpty`], [`BulkError::Busy`], [`BulkError::Damaged`]
/// about the folder; [`BulkError::ResumeImpossible`] if a table is not any more what it was before the interruption;
/// [`BulkError::NoSnapshot`], [`BulkError::SnapshotLost`], [`BulkError::Session`], [`BulkError::File`].
pub async fn dump(
    options: DumpOptions,
    progress: Arc<BulkProgress>,
    cancel: CancellationToken,
) -> Result<DumpReport, BulkError> {
    run(options, None, progress, cancel).await
}

/// Dumps into one stream of statements that the stock client loads in one pass. Where `out` is slow, so are the connections:
/// nothing is gathered but about a megabyte for each. A stream that broke off lacks the line of [`stream::END`].
///
/// # Errors
/// As [`dump`], and [`BulkError::StreamInterrupted`] in place of [`BulkError::Interrupted`]: nothing can be gone on with.
pub async fn dump_stream(
    options: DumpOptions,
    out: Box<dyn Write + Send>,
    progress: Arc<BulkProgress>,
    cancel: CancellationToken,
) -> Result<DumpReport, BulkError> {
    let stream = Arc::new(DumpStream::new(out));
    let files: Arc<dyn DumpFiles> = stream.clone();
    let (compression, rows) = (DumpCompression::None, RowFormat::Sql);
    let options = DumpOptions { files, compression, rows, resume: false, ..options };
    match run(options, Some(&stream), progress, cancel).await {
        Err(BulkError::Interrupted) => Err(BulkError::StreamInterrupted),
        done => done,
    }
}

async fn run(
    options: DumpOptions,
    stream: Option<&DumpStream>,
    progress: Arc<BulkProgress>,
    cancel: CancellationToken,
) -> Result<DumpReport, BulkError> {
    let begun = Instant::now();
    let prepared = tokio::select! {
        prepared = preparation::prepare(&options, &progress) => prepared?,
        () = cancel.cancelled() => return Err(BulkError::Interrupted),
    };
    let preparation::Prepared { shared, snapshot, not_in_snapshot, left_out } = prepared;
    let preparation::SnapshotTaken { readers, method, stall } = snapshot;
    if let Some(stream) = stream {
        stream.begin(shared.folder.lock().await.manifest())?;
    }
    let mut workers = JoinSet::new();
    for reader in readers {
        let worker = Worker::new(Arc::clone(&shared), reader);
        let cancel = cancel.clone();
        workers.spawn(async move {
            tokio::select! {
                done = worker.run() => done,
                () = cancel.cancelled() => Err(BulkError::Interrupted),
            }
        });
    }
    let outcome = join(workers).await;
    let mut folder = shared.folder.lock().await;
    if outcome.is_ok() && folder.manifest().is_complete() {
        folder.manifest_mut().finished_at = Some(now());
    }
    folder.checkpoint()?;
    outcome?;
    if let Some(stream) = stream {
        stream.end(folder.manifest())?;
    }
    Ok(DumpReport {
        manifest: folder.manifest().clone(),
        method: method.name(),
        stall,
        elapsed: begun.elapsed(),
        not_in_snapshot,
        left_out,
    })
}

/// Waits for all workers; the first that fails ends the others.
async fn join(mut workers: JoinSet<Result<(), BulkError>>) -> Result<(), BulkError> {
    let mut outcome = Ok(());
    while let Some(ended) = workers.join_next().await {
        let ended = match ended {
            Ok(ended) => ended,
            // Those that were told to end.
            Err(error) if error.is_cancelled() => continue,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        if ended.is_err() && outcome.is_ok() {
            outcome = ended;
            workers.abort_all();
        }
    }
    outcome
}

/// The time as manifests have it.
fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[cfg(test)]
mod tests {
    use tailwater_session::Endpoint;

    use super::*;

    #[test]
    fn the_first_chunk_of_long_rows_is_short() {
        let options = DumpOptions::new(ConnectOptions::new(Endpoint::tcp("h", 1), "u"), "dump");
        let first = |rows, bytes| options.chunk_size_limits(rows, bytes).rows_first;
        assert_eq!(first(1000, 1000 << 20), 64);
        assert_eq!(first(1, u64::MAX), 1);
        assert_eq!(first(0, 16384), 10_000);
        assert_eq!(first(1 << 40, 1 << 41), options.chunk_rows_max);
    }
}
