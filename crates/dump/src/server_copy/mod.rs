//! Copies databases from one server to another: a dump and a load at the same time, without files in between.
//!
//! A copy uses the code of a dump to prepare the source (snapshot, definitions, chunks), and the code of a
//! load for the target (tables, rows, objects, GTID state, progress record). [`table_copier`] reads each
//! chunk on a connection of the snapshot and writes it on a connection to the target.
//!
//! An interrupted copy resumes with [`LoadOptions::resume`]. It keeps the finished tables and copies the
//! other tables from scratch, at a later point in time than the finished tables.

pub(crate) mod table_copier;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tailwater_session::Connection;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::dump::dump_preparation::{self, PreparedDump};
use crate::dump::omitted_objects::Omission;
use crate::dump::{self, DumpOptions, DumpPlan};
use crate::dump_folder::{DumpCompression, MemoryFiles};
use crate::load::dump_contents::DumpContents;
use crate::load::{LoadOptions, LoadReport, ddl_script_runner, load_phases, tailwater_folder};
use table_copier::CopySource;
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::schema::{Selection, TableName};
use tailwater_tables::snapshot::SnapshotPoint;

/// What to copy, from where and how.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// The target, and how to load into it. The number of workers is also the number of connections on each
    /// side.
    pub load: LoadOptions,
    /// Whether to drop everything that an interrupted copy has created (tables, views, routines, events,
    /// sequences), and to start from scratch.
    pub restart: bool,
    /// The source, and how to read it. The copy does not use the dump folder in these options.
    source: DumpOptions,
}

impl CopyOptions {
    /// Creates options that copy `selection` from `source`, with the load options `load`. Chunks are smaller
    /// than those of a dump, because each chunk is one transaction on the target.
    pub fn new(source: tailwater_session::ConnectOptions, selection: Selection, load: LoadOptions) -> Self {
        let files = Arc::new(MemoryFiles::default());
        let mut source = DumpOptions { files, selection, ..DumpOptions::new(source, "") };
        source.connections = load.workers.max(1);
        source.compression = DumpCompression::None;
        source.chunk_bytes_max = 32 << 20;
        Self { load, restart: false, source }
    }

    /// Returns the address of the source.
    pub fn source_endpoint(&self) -> &tailwater_session::Endpoint {
        &self.source.connect.endpoint
    }

    /// Sets the maximum wait for a lock on the source, which is also the maximum time for which writers are
    /// blocked.
    pub fn lock_wait_max(mut self, lock_wait_max: Duration) -> Self {
        self.source.lock_wait_max = lock_wait_max;
        self
    }

    /// Sets the approximate maximum size of a chunk, in bytes.
    pub fn chunk_bytes_max(mut self, chunk_bytes_max: u64) -> Self {
        self.source.chunk_bytes_max = chunk_bytes_max;
        self
    }
}

/// The result of a copy.
#[derive(Debug, Clone)]
pub struct CopyReport {
    /// The result of the load. Its chunks are only those that this copy has loaded, not those of an earlier
    /// copy.
    pub load: LoadReport,
    /// Number of tables that an earlier copy had finished, at an earlier point in time.
    pub tables_before: u64,
    /// The position of this copy's snapshot in the history of the source.
    pub point: SnapshotPoint,
    /// The method by which the snapshot was taken.
    pub method: &'static str,
    /// For how long the snapshot blocked writers on the source.
    pub stall: Duration,
    /// How long the copy took.
    pub elapsed: Duration,
    /// Tables that the snapshot does not cover, because of their storage engine.
    pub not_in_snapshot: Vec<TableName>,
    /// What exists on the source and was not copied.
    pub left_out: Vec<Omission>,
}

/// What a copy would do.
#[derive(Debug, Clone)]
pub struct CopyPlan {
    /// The plan for the source.
    pub source: DumpPlan,
    /// Selected tables that already exist on the target. If there is any, the copy would be refused.
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
    let there = ddl_script_runner::existing_tables(&mut target, names).await?;
    target.close().await;
    Ok(CopyPlan { source, there })
}

/// Copies databases. If the copy fails, is cancelled or is killed, the finished tables are kept, and
/// [`LoadOptions::resume`] continues after them. A copy that sets the target's GTID state cannot be resumed.
///
/// # Errors
/// The errors of a dump and of a load. With [`LoadOptions::set_gtid`],
/// [`BulkError::CopyInterrupted`] replaces [`BulkError::Interrupted`]. These errors occur before any change:
/// [`BulkError::TablesExist`], [`BulkError::InterruptedLoad`], [`BulkError::LoadInProgress`],
/// [`BulkError::LocalInfileOff`] and [`BulkError::GtidState`].
pub async fn copy(
    options: &CopyOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
) -> Result<CopyReport, BulkError> {
    let done = run_copy(options, progress, stop).await;
    // The data of a resumed copy would have two points in time, and no single GTID set describes it.
    if options.load.set_gtid { done.map_err(BulkError::of_one_point) } else { done }
}

async fn run_copy(
    options: &CopyOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
) -> Result<CopyReport, BulkError> {
    let started = Instant::now();
    // Each attempt to copy gets its own files in memory, so that it does not read the files of an earlier
    // attempt.
    let source = DumpOptions { files: Arc::new(MemoryFiles::default()), ..options.source.clone() };
    let prepared = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(BulkError::Interrupted),
        prepared = dump_preparation::prepare(&source, progress) => prepared?,
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
    let load = load_phases::load_rows_of(&contents, &options.load, progress, stop, &rows).await?;
    let tables_before = rows.tables_before();
    if tables_before > 0 {
        warn!(
            tables_before,
            "the copy resumed with a new snapshot, so the tables on the target show the data of different points in time"
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

/// Returns the identifier of this copy on the target. A resumed copy has the same identifier.
fn id(contents: &DumpContents, selection: &Selection, server: &crate::dump_folder::DumpedServer) -> String {
    let mut hash = Sha256::new();
    let flavour = contents.flavour.map(|flavour| flavour.to_string());
    let parts = (flavour, &server.identity, server.server_id, selection);
    hash.update(format!("copy {parts:?}"));
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
