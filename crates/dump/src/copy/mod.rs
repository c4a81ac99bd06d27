//! Copies databases from one server to another: a dump and a load at the same time, without files in between.
//!
//! A copy shares the code for what a dump prepares (snapshot, definitions, chunks) and what a load does
//! (tables, rows, objects, GTID state, record on the target). [`table_copier`] moves chunk after chunk from a
//! connection of the snapshot to one of the target.
//!
//! An interrupted copy resumes with [`LoadOptions::resume`]: finished tables are kept, and the others start
//! from scratch, at another point in time than the finished ones.

pub(crate) mod table_copier;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tailwater_session::Connection;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::dump::omissions::Omission;
use crate::dump::preparation::{self, PreparedDump};
use crate::dump::{self, DumpOptions, DumpPlan};
use crate::folder::DumpCompression;
use crate::folder::MemoryFiles;
use crate::load::contents::DumpContents;
use crate::load::{LoadOptions, LoadReport, definitions, run, tailwater_folder};
use table_copier::CopySource;
use tailwater_tables::error::BulkError;
use tailwater_tables::progress::BulkProgress;
use tailwater_tables::schema::{Selection, TableName};
use tailwater_tables::snapshot::SnapshotPoint;

/// What to copy, from where and how.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// The target and how to load; the number of workers is the number of connections on either side.
    pub load: LoadOptions,
    /// Drops what an interrupted copy has created (tables, views, routines, events, sequences), and starts
    /// from scratch.
    pub restart: bool,
    /// The source. Its files are not used.
    source: DumpOptions,
}

impl CopyOptions {
    /// Copies `selection` from `source`, with the options `load`. Chunks are smaller than those of a dump:
    /// each is one transaction of the target.
    pub fn new(source: tailwater_session::ConnectOptions, selection: Selection, load: LoadOptions) -> Self {
        let files = Arc::new(MemoryFiles::default());
        let mut source = DumpOptions { files, selection, ..DumpOptions::new(source, "") };
        source.connections = load.workers.max(1);
        source.compression = DumpCompression::None;
        source.chunk_bytes_max = 32 << 20;
        Self { load, restart: false, source }
    }

    /// Maximum wait for a lock on the source, and maximum time for which writers are blocked.
    pub fn lock_wait_max(mut self, lock_wait_max: Duration) -> Self {
        self.source.lock_wait_max = lock_wait_max;
        self
    }

    /// Approximate maximum size of a chunk, in bytes.
    pub fn chunk_bytes_max(mut self, chunk_bytes_max: u64) -> Self {
        self.source.chunk_bytes_max = chunk_bytes_max;
        self
    }
}

/// The result of a copy.
#[derive(Debug, Clone)]
pub struct CopyReport {
    /// The result of the load; its chunks are those of this run.
    pub load: LoadReport,
    /// Number of tables that an earlier copy had finished, at another point in time.
    pub tables_before: u64,
    /// The position of this run's tables in the source's history.
    pub point: SnapshotPoint,
    /// The method of the snapshot.
    pub method: &'static str,
    /// How long the snapshot blocked writers.
    pub stall: Duration,
    /// How long the copy took.
    pub elapsed: Duration,
    /// Tables whose engine has no snapshots.
    pub not_in_snapshot: Vec<TableName>,
    /// What the source has and was not copied.
    pub left_out: Vec<Omission>,
}

/// What a copy would do.
#[derive(Debug, Clone)]
pub struct CopyPlan {
    /// The plan for the source.
    pub source: DumpPlan,
    /// Tables that exist on the target: the copy would be refused.
    pub there: Vec<TableName>,
}

/// Plans a copy without writing or locking anything.
///
/// # Errors
/// [`BulkError::NotFound`] if a selected object does not exist; [`BulkError::Session`].
pub async fn dry_run(options: &CopyOptions) -> Result<CopyPlan, BulkError> {
    let source = dump::dry_run(&options.source).await?;
    let mut target = Connection::connect(&options.load.connect).await?;
    let names = source.tables.iter().map(|table| &table.name);
    let there = definitions::existing_tables(&mut target, names).await?;
    target.close().await;
    Ok(CopyPlan { source, there })
}

/// Copies databases. If the copy fails, is cancelled or is killed, finished tables are kept.
/// [`LoadOptions::resume`] continues after them, unless the copy sets the target's GTID state.
///
/// # Errors
/// Those of a dump and of a load; [`BulkError::CopyInterrupted`] in place of [`BulkError::Interrupted`] with
/// [`LoadOptions::set_gtid`]. [`BulkError::TablesExist`], [`BulkError::InterruptedLoad`],
/// [`BulkError::LoadInProgress`], [`BulkError::LocalInfileOff`] and [`BulkError::GtidState`] occur before any
/// change.
pub async fn copy(
    options: &CopyOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
) -> Result<CopyReport, BulkError> {
    let done = run_copy(options, progress, stop).await;
    // A resumed copy would have two points in time, for which there is no GTID set.
    if options.load.set_gtid { done.map_err(BulkError::of_one_point) } else { done }
}

async fn run_copy(
    options: &CopyOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
) -> Result<CopyReport, BulkError> {
    let started = Instant::now();
    // Files of an earlier try with the same options must not be used.
    let source = DumpOptions { files: Arc::new(MemoryFiles::default()), ..options.source.clone() };
    let prepared = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(BulkError::Interrupted),
        prepared = preparation::prepare(&source, progress) => prepared?,
    };
    let PreparedDump { shared, snapshot, not_in_snapshot, left_out } = prepared;
    let (mut contents, point) = {
        let folder = shared.folder.lock().await;
        let point = folder.manifest().snapshots.last().cloned().unwrap_or_default();
        let contents =
            tailwater_folder::contents(Arc::clone(folder.files()), folder.manifest(), Some(point.clone()))?;
        (contents, point)
    };
    contents.id = id(&contents, &source.selection, &shared.folder.lock().await.manifest().server);
    let rows = CopySource::new(shared, snapshot.readers, options.restart);
    let load = run::load_rows_of(&contents, &options.load, progress, stop, &rows).await?;
    let tables_before = rows.tables_before();
    if tables_before > 0 {
        warn!(
            tables_before,
            "the copy resumed at another point in time, so the target's data has several points in time"
        );
    }
    Ok(CopyReport {
        load,
        tables_before,
        point,
        method: snapshot.method.name(),
        stall: snapshot.stall,
        elapsed: started.elapsed(),
        not_in_snapshot,
        left_out,
    })
}

/// Identifies this copy on the target; the same when it resumes.
fn id(contents: &DumpContents, selection: &Selection, server: &crate::folder::DumpedServer) -> String {
    let mut hash = Sha256::new();
    let flavour = contents.flavour.map(|flavour| flavour.to_string());
    let parts = (flavour, &server.identity, server.server_id, selection);
    hash.update(format!("copy {parts:?}"));
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
