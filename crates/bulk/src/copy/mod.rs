//! Copies databases from one server to another: a dump and a load at once, with no disk between.
//!
//! What a dump prepares (snapshot, definitions, the walk through each table) and what a load does (tables, rows, objects,
//! GTID state, notes on the target) are the same code here; [`table_copier`] takes chunk after chunk from a connection of the
//! snapshot to one of the target.
//!
//! A copy that was interrupted goes on with its [`LoadOptions::resume`]: tables that were finished are kept, others begin
//! anew, at another point in time than the finished ones.

pub(crate) mod table_copier;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tailwater_session::Connection;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::dump::omissions::Omission;
use crate::dump::preparation::{self, Prepared};
use crate::dump::{self, DumpOptions, DumpPlan};
use crate::error::BulkError;
use crate::folder::{DumpCompression, MemoryFiles, SnapshotPoint};
use crate::load::contents::DumpContents;
use crate::load::{LoadOptions, LoadReport, run, tailwater_folder};
use crate::progress::BulkProgress;
use crate::schema::{Selection, TableName};
use table_copier::CopyRows;

/// What to copy, from where and how.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// Where to and how; as many connections on either side as it has workers.
    pub load: LoadOptions,
    /// Drop what an interrupted copy has made (tables, views, routines, events, sequences), and begin anew.
    pub restart: bool,
    /// Where from. Its files are not used.
    source: DumpOptions,
}

impl CopyOptions {
    /// Copies what `selection` names out of `source`, as `load` says. Chunks are smaller than those of a dump: each is one
    /// transaction of the target.
    pub fn new(source: tailwater_session::ConnectOptions, selection: Selection, load: LoadOptions) -> Self {
        let files = Arc::new(MemoryFiles::default());
        let mut source = DumpOptions { files, selection, ..DumpOptions::new(source, "") };
        source.connections = load.workers.max(1);
        source.compression = DumpCompression::None;
        source.chunk_bytes_max = 32 << 20;
        Self { load, restart: false, source }
    }

    /// How long to wait for a lock on the source, and to keep writers waiting, at most.
    pub fn lock_wait_max(mut self, lock_wait_max: Duration) -> Self {
        self.source.lock_wait_max = lock_wait_max;
        self
    }

    /// About how many bytes a chunk may have.
    pub fn chunk_bytes_max(mut self, chunk_bytes_max: u64) -> Self {
        self.source.chunk_bytes_max = chunk_bytes_max;
        self
    }
}

/// What was done.
#[derive(Debug, Clone)]
pub struct CopyReport {
    /// What was loaded; its chunks are those of this run.
    pub load: LoadReport,
    /// Tables that an earlier copy had finished: they stand at another point in time.
    pub tables_before: u64,
    /// Where the tables of this run stand in the source's history.
    pub point: SnapshotPoint,
    /// How the snapshot was taken.
    pub method: &'static str,
    /// How long writers had to wait for it.
    pub stall: Duration,
    /// How long all of it took.
    pub elapsed: Duration,
    /// Tables whose engine has no snapshots.
    pub not_in_snapshot: Vec<TableName>,
    /// What is on the source and was not copied.
    pub left_out: Vec<Omission>,
}

/// What would be done.
#[derive(Debug, Clone)]
pub struct CopyPlan {
    /// On the source.
    pub source: DumpPlan,
    /// Tables that are on the target already: the copy would be refused.
    pub there: Vec<TableName>,
}

/// What a copy would do. Nothing is written or locked.
///
/// # Errors
/// [`BulkError::NotFound`] if something selected is not there; [`BulkError::Session`].
pub async fn dry_run(options: &CopyOptions) -> Result<CopyPlan, BulkError> {
    let source = dump::dry_run(&options.source).await?;
    let mut target = Connection::connect(&options.load.connect).await?;
    let names = source.tables.iter().map(|table| &table.name);
    let there = run::tables_there(&mut target, names).await?;
    target.close().await;
    Ok(CopyPlan { source, there })
}

/// Copies. What is finished when it fails, is cancelled or is killed is kept, and gone on behind with
/// [`LoadOptions::resume`], but by one that is to tell the target which transactions it has.
///
/// # Errors
/// Those of a dump and of a load; [`BulkError::CopyInterrupted`] in place of [`BulkError::Interrupted`] with
/// [`LoadOptions::set_gtid`]. [`BulkError::TablesExist`], [`BulkError::InterruptedLoad`], [`BulkError::LoadInProgress`],
/// [`BulkError::LocalInfileOff`] and [`BulkError::GtidState`] before anything is changed.
pub async fn copy(
    options: &CopyOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
) -> Result<CopyReport, BulkError> {
    let done = copy_now(options, progress, stop).await;
    // Gone on with it would be of two points in time, which no GTID set names.
    if options.load.set_gtid { done.map_err(BulkError::of_one_point) } else { done }
}

async fn copy_now(
    options: &CopyOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
) -> Result<CopyReport, BulkError> {
    let begun = Instant::now();
    // Files of an earlier try with the same options are not this one's.
    let source = DumpOptions { files: Arc::new(MemoryFiles::default()), ..options.source.clone() };
    let prepared = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(BulkError::Interrupted),
        prepared = preparation::prepare(&source, progress) => prepared?,
    };
    let Prepared { shared, snapshot, not_in_snapshot, left_out } = prepared;
    let (mut contents, point) = {
        let folder = shared.folder.lock().await;
        let point = folder.manifest().snapshots.last().cloned().unwrap_or_default();
        let contents =
            tailwater_folder::contents(Arc::clone(folder.files()), folder.manifest(), Some(point.clone()))?;
        (contents, point)
    };
    contents.id = id(&contents, &source.selection, &shared.folder.lock().await.manifest().server);
    let rows = CopyRows::new(shared, snapshot.readers, options.restart);
    let load = run::load_rows_of(&contents, &options.load, progress, stop, &rows).await?;
    let tables_before = rows.tables_before();
    if tables_before > 0 {
        warn!(
            tables_before,
            "the copy went on at another point in time: the target's data are not of one moment"
        );
    }
    Ok(CopyReport {
        load,
        tables_before,
        point,
        method: snapshot.method.name(),
        stall: snapshot.stall,
        elapsed: begun.elapsed(),
        not_in_snapshot,
        left_out,
    })
}

/// Tells this copy from others on the target, the same when it goes on.
fn id(contents: &DumpContents, selection: &Selection, server: &crate::folder::DumpedServer) -> String {
    let mut hash = Sha256::new();
    let flavour = contents.flavour.map(|flavour| flavour.to_string());
    let parts = (flavour, &server.identity, server.server_id, selection);
    hash.update(format!("copy {parts:?}"));
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
