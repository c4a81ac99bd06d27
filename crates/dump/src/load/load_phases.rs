//! Runs the phases of a load in their order.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::info;

use super::account_creation::LoadAccounts;
use super::dump_contents::{DumpContents, LoadChunk};
use super::live_row_source::LoadSource;
use super::load_options::{LoadOptions, LoadReport};
use super::load_progress_table::{LoadPhase, LoadRecord};
use super::load_start_check::LoadStart;
use super::load_worker::count_loaded;
use super::{account_creation, target_gtid_state, target_session};
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;

/// Loads a dump into a server. [`LoadOptions::resume`] resumes an interrupted load.
///
/// # Errors
/// - Before any change: [`BulkError::TablesExist`], [`BulkError::InterruptedLoad`],
///   [`BulkError::LoadInProgress`], [`BulkError::LocalInfileOff`], [`BulkError::GtidState`].
/// - After all other errors, the load can be resumed. [`BulkError::Interrupted`] if `stop` was cancelled.
pub async fn load(
    contents: &DumpContents,
    options: &LoadOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
) -> Result<LoadReport, BulkError> {
    run(contents, options, progress, stop, None).await
}

/// Loads a dump as [`load`] does, but with rows from a server in place of data files.
pub(crate) async fn load_rows_of(
    contents: &DumpContents,
    options: &LoadOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
    rows: &dyn LoadSource,
) -> Result<LoadReport, BulkError> {
    run(contents, options, progress, stop, Some(rows)).await
}

async fn run(
    contents: &DumpContents,
    options: &LoadOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
    rows: Option<&dyn LoadSource>,
) -> Result<LoadReport, BulkError> {
    let work = LoadRun { contents, options, progress, rows, record: LoadRecord::new(&contents.id) };
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(BulkError::Interrupted),
        done = work.run() => done,
    }
}

/// A load in progress.
pub(super) struct LoadRun<'a> {
    pub(super) contents: &'a DumpContents,
    pub(super) options: &'a LoadOptions,
    pub(super) progress: &'a Arc<BulkProgress>,
    /// The source of rows, if they are not in data files.
    pub(super) rows: Option<&'a dyn LoadSource>,
    pub(super) record: LoadRecord,
}

impl LoadRun<'_> {
    async fn run(&self) -> Result<LoadReport, BulkError> {
        if self.rows.is_none() {
            self.progress.expect(self.contents.tables.len() as u64, self.contents.rows());
        }
        let mut connection = target_session::connect(self.options).await?;
        let gtid_set = match self.options.set_gtid {
            true => Some(target_gtid_state::state(self.contents, connection.server().flavour)?),
            false => None,
        };
        if self.options.accounts != LoadAccounts::None {
            account_creation::check(self.contents, connection.server().flavour)?;
        }
        let LoadStart { mut phase, resumed, merge } = self.begin(&mut connection, gtid_set).await?;
        let skip_existing = resumed || merge;
        let finished = phase == LoadPhase::Done;
        if let Some(rows) = self.rows.filter(|_| resumed) {
            if rows.is_restart() || phase <= LoadPhase::Rows {
                let finished = rows.begin(&mut connection, &self.record, self.options.set_gtid).await?;
                info!(finished, "tables that an earlier copy has finished are kept");
                // An unfinished table is created again, and copied from scratch.
                phase = LoadPhase::Tables;
            } else if self.options.set_gtid {
                return Err(other_point_in_time(phase));
            }
        }
        if phase <= LoadPhase::Tables {
            self.create_tables(&mut connection, skip_existing, merge).await?;
            self.record.reach(&mut connection, LoadPhase::Rows).await?;
        }
        let chunks_before = match (phase <= LoadPhase::Rows, self.rows) {
            (true, None) => self.load_rows(&mut connection, merge).await?,
            (true, Some(rows)) => {
                let Self { contents, options, record, progress, .. } = self;
                rows.load_rows(&mut connection, contents, options, record, progress).await?;
                0
            }
            (false, _) => {
                self.chunks().for_each(|chunk| count_loaded(self.progress, chunk));
                self.progress.figures().chunks
            }
        };
        let mut accounts = None;
        if phase <= LoadPhase::Objects {
            self.record.reach(&mut connection, LoadPhase::Objects).await?;
            self.create_objects(&mut connection, skip_existing).await?;
            if self.options.accounts != LoadAccounts::None {
                let replace = self.options.accounts == LoadAccounts::Replace;
                let loaded =
                    account_creation::load(&mut connection, self.contents, &self.record, replace).await?;
                accounts = Some(loaded);
            }
            // If the load is not in the target's binlog, the GTID state is set before the load is recorded as
            // complete.
            if let Some(state) = gtid_set.filter(|_| !self.options.binlog) {
                target_gtid_state::set(&mut connection, state, finished).await?;
            }
            self.record.reach(&mut connection, LoadPhase::Done).await?;
        }
        // If the load is in the target's binlog, the GTID state is set last: no transaction of the load may
        // follow it in the binlog.
        if let Some(state) = gtid_set.filter(|_| self.options.binlog) {
            target_gtid_state::set(&mut connection, state, finished).await?;
        }
        connection.close().await;
        Ok(LoadReport {
            tables: self.contents.tables.len(),
            chunks_loaded: self.progress.figures().chunks - chunks_before,
            chunks_before,
            rows: self.progress.figures().rows,
            gtid_set: gtid_set.map(str::to_owned),
            accounts,
        })
    }

    fn chunks(&self) -> impl Iterator<Item = &LoadChunk> {
        self.contents.tables.iter().flat_map(|table| &table.chunks)
    }
}

/// Returns the error for a target that has all rows of an earlier copy. These rows are from another snapshot,
/// so the GTID set of this copy's snapshot would be wrong for them.
fn other_point_in_time(phase: LoadPhase) -> BulkError {
    let what_to_do = match phase {
        LoadPhase::Done => "drop the tables on the target to copy them again",
        _ => "start from scratch with --restart, which drops what was copied",
    };
    let reason = format!("all rows were loaded by an earlier copy, at another point in time; {what_to_do}");
    BulkError::GtidState { reason }
}
