//! Dumps databases into a folder, over several connections with the same consistent snapshot. Rows go from
//! the network to files without being parsed into values, except for Parquet.
//!
//! - [`dump_preparation`]: the selection, the folder and the snapshot.
//! - [`source_identity`]: whether a resumed dump still reads the same server; [`omitted_objects`]: what the
//!   dump does not contain.
//! - [`chunk_queue`]: selects the next chunk; [`dump_worker`]: dumps one chunk after the other.
//! - [`chunk_file_writer`]: the data file of a chunk; [`row_encoder`]: rows as text; [`parquet`]: rows as
//!   columns.
//! - [`sql_stream_dump`]: the whole dump as one stream of statements.

mod chunk_file_writer;
pub(crate) mod chunk_queue;
pub(crate) mod dump_preparation;
pub(crate) mod dump_worker;
pub mod omitted_objects;
pub mod parquet;
pub mod row_encoder;
mod source_identity;
pub mod sql_stream_dump;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{SecondsFormat, Utc};
use tailwater_session::{ConnectOptions, Connection};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::dump_folder::{DumpCompression, Manifest, RowFormat};
use dump_worker::DumpWorker;
use omitted_objects::Omission;
use sql_stream_dump::StatementStream;
use tailwater_files::file_store::{FileStore, LocalFiles};
use tailwater_tables::chunker::{ChunkKey, ChunkSizeLimits, TableInfo};
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::schema::{self, Selection, TableName};
use tailwater_tables::snapshot::table_list::TableSizes;
use tailwater_tables::snapshot::{SnapshotPlan, capabilities, snapshot_methods};
use tailwater_tables::throttle::Throttle;

/// What to dump, from where, to where and how.
#[derive(Debug, Clone)]
pub struct DumpOptions {
    /// The server to dump, and the account that reads it.
    pub connect: ConnectOptions,
    /// Where the files of the dump are written.
    pub files: Arc<dyn FileStore>,
    /// The databases and tables to dump.
    pub selection: Selection,
    /// Number of connections that read; at least one.
    pub connections: usize,
    /// Compression of the data files.
    pub compression: DumpCompression,
    /// Row format of the data files.
    pub rows: RowFormat,
    /// Compression level, which must be valid for the compression; `None` for the default level.
    pub compression_level: Option<i32>,
    /// Maximum number of rows in a chunk of a table with a key.
    pub chunk_rows_max: u64,
    /// Approximate maximum size of a chunk before compression, in bytes.
    pub chunk_bytes_max: u64,
    /// Maximum wait for a lock on the server, which is also the maximum time for which writers are blocked.
    pub lock_wait_max: Duration,
    /// Whether to dump user accounts.
    pub accounts: bool,
    /// Whether to resume the interrupted dump in the folder.
    pub resume: bool,
    /// Pauses the dump between chunks.
    pub throttle: Arc<Throttle>,
    /// Names of channels that are paused for the dump. They apply transactions to this server without writing
    /// its binlog ([`tailwater_tables::snapshot::gtids_applied_without_binlog`]).
    pub channels_stopped: Vec<String>,
    /// The dump cancels this token when the snapshot is taken, so that the caller can resume the paused
    /// channels.
    pub snapshot_taken: CancellationToken,
}

impl DumpOptions {
    /// Creates default options: all databases, four connections, chunks of about 64 MiB compressed at level
    /// 3, and at most five seconds of waiting for a lock.
    pub fn new(mut connect: ConnectOptions, folder: impl Into<PathBuf>) -> Self {
        // The timeout is long because the server may have to read many rows before it sends the first one.
        connect.read_timeout = Some(Duration::from_secs(3600));
        // MySQL and MariaDB send rows of up to 1 GiB.
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

    /// Returns the size limits for the chunks of a table. The size of the first chunk is computed from the
    /// server's estimates.
    fn chunk_size_limits(&self, rows_estimate: u64, bytes_estimate: u64) -> ChunkSizeLimits {
        /// Number of rows in the first chunk of a table without estimates.
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

/// The result of a dump.
#[derive(Debug, Clone)]
pub struct DumpReport {
    /// The manifest of the folder.
    pub manifest: Manifest,
    /// The method by which the snapshot was taken.
    pub method: &'static str,
    /// For how long the snapshot blocked writers.
    pub stall: Duration,
    /// How long the dump took.
    pub elapsed: Duration,
    /// Tables that the snapshot does not cover, because of their storage engine. Each of their rows was read
    /// as it was at the moment of reading.
    pub not_in_snapshot: Vec<TableName>,
    /// What exists on the server and is not in the dump.
    pub left_out: Vec<Omission>,
}

/// What a dump would do.
#[derive(Debug, Clone)]
pub struct DumpPlan {
    /// The snapshot methods that the server allows, in the order in which the dump would try them.
    pub ways: Vec<SnapshotPlan>,
    /// Tables in the order in which they would be dumped.
    pub tables: Vec<PlannedTable>,
}

/// A table of a [`DumpPlan`].
#[derive(Debug, Clone)]
pub struct PlannedTable {
    /// The name of the table.
    pub name: TableName,
    /// The key by which the table would be cut into chunks; absent if it would be a single chunk.
    pub key: Option<String>,
    /// Estimated number of rows in the table.
    pub rows_estimate: u64,
    /// Estimated size of the table on the server, in bytes.
    pub bytes_estimate: u64,
    /// Whether the snapshot covers the table.
    pub in_snapshot: bool,
}

/// Plans a dump without writing or locking anything.
///
/// # Errors
/// [`BulkError::NotFound`] if a selected object does not exist; [`BulkError::Session`].
pub async fn dry_run(options: &DumpOptions) -> Result<DumpPlan, BulkError> {
    let mut connection = Connection::connect(&options.connect).await?;
    schema::prepare(&mut connection).await?;
    let dump_preparation::VisibleSelection { inventory, .. } =
        dump_preparation::check_selection(&mut connection, &options.selection, options.accounts).await?;
    let lengths = TableSizes::read(&mut connection, &inventory.schemas).await?;
    let order = lengths.largest_first(inventory.tables);
    let ways = snapshot_methods::plans(capabilities(&mut connection).await?, options.connections, &order);
    let mut tables = Vec::with_capacity(order.len());
    for name in order {
        let Some(info) = TableInfo::read(&mut connection, &name.schema, &name.name).await? else {
            continue;
        };
        tables.push(PlannedTable {
            key: ChunkKey::choose(&info.keys).map(|key| key.name.clone()),
            rows_estimate: info.rows_estimate,
            bytes_estimate: info.bytes_estimate,
            in_snapshot: info.is_transactional(),
            name,
        });
    }
    Ok(DumpPlan { ways, tables })
}

/// Dumps databases. If the dump fails, is cancelled or is killed, the finished chunks are kept, and
/// [`DumpOptions::resume`] continues after them.
///
/// # Errors
/// [`BulkError::Interrupted`] if cancelled; [`BulkError::FolderNotEmpty`], [`BulkError::Busy`] and
/// [`BulkError::Damaged`] for the folder; [`BulkError::ResumeImpossible`] if a table has changed since the
/// interruption; [`BulkError::NoSnapshot`], [`BulkError::SnapshotLost`], [`BulkError::Session`],
/// [`BulkError::File`].
pub async fn dump(
    options: DumpOptions,
    progress: Arc<BulkProgress>,
    cancel: CancellationToken,
) -> Result<DumpReport, BulkError> {
    run(options, None, progress, cancel).await
}

/// Dumps into a single stream of statements that the `mysql` or `mariadb` client loads in one pass. A slow
/// `out` slows down the connections, because each buffers only about a megabyte. A complete stream ends with
/// a line that starts with [`sql_stream_dump::END`].
///
/// # Errors
/// The same as for [`dump`], but [`BulkError::StreamInterrupted`] replaces
/// [`BulkError::Interrupted`], because a stream cannot be resumed.
pub async fn dump_stream(
    options: DumpOptions,
    out: Box<dyn Write + Send>,
    progress: Arc<BulkProgress>,
    cancel: CancellationToken,
) -> Result<DumpReport, BulkError> {
    let stream = Arc::new(StatementStream::new(out));
    let files: Arc<dyn FileStore> = stream.clone();
    let (compression, rows) = (DumpCompression::None, RowFormat::Sql);
    let options = DumpOptions { files, compression, rows, resume: false, ..options };
    match run(options, Some(&stream), progress, cancel).await {
        Err(BulkError::Interrupted) => Err(BulkError::StreamInterrupted),
        done => done,
    }
}

async fn run(
    options: DumpOptions,
    stream: Option<&StatementStream>,
    progress: Arc<BulkProgress>,
    cancel: CancellationToken,
) -> Result<DumpReport, BulkError> {
    let started = Instant::now();
    let prepared = tokio::select! {
        prepared = dump_preparation::prepare(&options, &progress) => prepared?,
        () = cancel.cancelled() => return Err(BulkError::Interrupted),
    };
    let dump_preparation::PreparedDump { shared, snapshot, not_in_snapshot, left_out } = prepared;
    let dump_preparation::SnapshotTaken { readers, method, stall } = snapshot;
    if let Some(stream) = stream {
        stream.begin(shared.folder.lock().await.manifest())?;
    }
    let mut workers = JoinSet::new();
    for reader in readers {
        let worker = DumpWorker::new(Arc::clone(&shared), reader);
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
        elapsed: started.elapsed(),
        not_in_snapshot,
        left_out,
    })
}

/// Waits for all workers. The first error aborts the other workers.
async fn join(mut workers: JoinSet<Result<(), BulkError>>) -> Result<(), BulkError> {
    let mut outcome = Ok(());
    while let Some(joined) = workers.join_next().await {
        let result = match joined {
            Ok(result) => result,
            // This worker was aborted after the error of another worker.
            Err(error) if error.is_cancelled() => continue,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        if result.is_err() && outcome.is_ok() {
            outcome = result;
            workers.abort_all();
        }
    }
    outcome
}

/// Returns the current time in the format of manifests.
fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[cfg(test)]
mod tests {
    use tailwater_session::Endpoint;

    use super::*;

    #[test]
    fn the_first_chunk_of_a_table_with_long_rows_has_few_rows() {
        let options = DumpOptions::new(ConnectOptions::new(Endpoint::tcp("h", 1), "u"), "dump");
        let first = |rows, bytes| options.chunk_size_limits(rows, bytes).rows_first;
        assert_eq!(first(1000, 1000 << 20), 64);
        assert_eq!(first(1, u64::MAX), 1);
        assert_eq!(first(0, 16384), 10_000);
        assert_eq!(first(1 << 40, 1 << 41), options.chunk_rows_max);
    }
}
