//! Compares a server with another server that receives its transactions, without locks and while clients
//! write to both.
//!
//! - [`table_pair`]: a table on both sides; [`comparable_sql_expressions`]: SQL expressions that give equal
//!   values equal bytes.
//! - [`row_difference_confirmation`]: decides whether a row differs, from versions that were read one after
//!   the other.
//! - [`target_catch_up_wait`]: waits until the target has everything that the source had;
//!   [`channel_progress`]: the same for channels that apply transactions in any order.
//! - [`replication_running_check`]: whether the target receives transactions at all.
//! - [`chunk_comparer`]: compares one chunk on both sides; [`chunk_queue`]: selects the next chunk;
//!   [`check_progress_file`]: the progress of the check; [`check_result_file`]: its result, for monitoring.
//! - [`row_difference`]: the results.

pub mod channel_progress;
mod check_progress_file;
mod check_result_file;
mod chunk_checksum;
pub mod chunk_comparer;
mod chunk_queue;
pub mod comparable_sql_expressions;
mod replication_running_check;
pub mod row_difference;
pub mod row_difference_confirmation;
pub mod table_pair;
pub(crate) mod table_selection;
pub mod target_catch_up_wait;

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tailwater_session::{ConnectOptions, Connection};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use channel_progress::ChannelProgressReader;
use check_progress_file::CheckState;
pub use check_result_file::CheckResult;
use chunk_comparer::Comparer;
pub use chunk_comparer::Digests;
use chunk_queue::CheckTable;
pub use row_difference::{DifferenceKind, RowDifference, RowValues, TableFinding};
use table_pair::TablePair;
use table_selection::ComparableTables;
use tailwater_tables::chunker::ChunkSizeLimits;
use tailwater_tables::chunker::chunk_queries::SESSION_SETTINGS;
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::schema::{Selection, TableName};
use tailwater_tables::session_settings::disable_timeouts;
use tailwater_tables::throttle::Throttle;
use target_catch_up_wait::{SyncMethod, SyncWaiter};

/// What to compare, and how.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// The server with the correct data.
    pub source: ConnectOptions,
    /// The server that is compared with the source.
    pub target: ConnectOptions,
    /// The databases and tables to compare.
    pub selection: Selection,
    /// Where the digests of rows are computed.
    pub digests: Digests,
    /// Number of chunks that are compared at the same time; at least one.
    pub workers: usize,
    /// How to wait until the target has everything that the source had. If absent, the check detects the
    /// method.
    pub sync_method: Option<SyncMethod>,
    /// Decodes the progress of Tailwater channels that apply to the target. Required for such a target with
    /// [`SyncMethod::Mark`].
    pub progress_reader: Option<Arc<dyn ChannelProgressReader>>,
    /// The longest time to wait for the target to reach the source's position.
    pub wait_max: Duration,
    /// The greatest number of rows in a chunk, for tables with a key.
    pub chunk_rows_max: u64,
    /// How long a chunk may take on either side, approximately.
    pub chunk_time_max: Duration,
    /// Maximum number of differences in a table. The comparison of a table with more differences stops.
    pub differences_max: u64,
    /// Whether the report contains the values of differing rows.
    pub show_values: bool,
    /// The file for the progress and the results.
    pub state: Option<PathBuf>,
    /// Whether to continue the check whose state is in the file [`CheckOptions::state`].
    pub resume: bool,
}

impl CheckOptions {
    /// The default options: all tables, four chunks at the same time of about half a second each, and at most
    /// 10,000 differences in a table.
    pub fn new(source: ConnectOptions, target: ConnectOptions) -> Self {
        Self {
            source: for_long_statements(source),
            target: for_long_statements(target),
            selection: Selection::default(),
            digests: Digests::Quick { seed: seed() },
            workers: 4,
            sync_method: None,
            progress_reader: None,
            wait_max: Duration::from_secs(300),
            chunk_rows_max: 1_000_000,
            chunk_time_max: Duration::from_millis(500),
            differences_max: 10_000,
            show_values: false,
            state: None,
            resume: false,
        }
    }

    fn chunk_size_limits(&self) -> ChunkSizeLimits {
        /// The number of rows in the first chunk, before the speed of the servers is known.
        const ROWS_FIRST: u64 = 10_000;
        ChunkSizeLimits {
            rows_first: ROWS_FIRST.min(self.chunk_rows_max),
            rows_max: self.chunk_rows_max,
            cost_max: u64::try_from(self.chunk_time_max.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// Returns the names of both servers for messages and for the state.
    fn names(&self) -> [String; 2] {
        [self.source.endpoint.to_string(), self.target.endpoint.to_string()]
    }
}

/// Returns a new seed each time.
fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Sets a long time-out, because a server may have to read many rows before it answers a statement.
fn for_long_statements(options: ConnectOptions) -> ConnectOptions {
    ConnectOptions {
        read_timeout: Some(Duration::from_secs(3600)),
        // Allows rows of 1 GiB, the greatest length of a row that a repair can read.
        rows_bytes_max: options.rows_bytes_max.max(1 << 30),
        program_name: "tailwater check".into(),
        ..options
    }
}

/// The result of a check.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// Number of compared tables.
    pub tables: u64,
    /// Number of rows of the compared tables on the source.
    pub rows: u64,
    /// The rows that differ, ordered by table and key.
    pub differences: Vec<RowDifference>,
    /// Results about whole tables.
    pub findings: Vec<TableFinding>,
    /// How long the check took, from when it was started or resumed.
    pub elapsed: Duration,
}

impl CheckReport {
    /// Whether both servers have the same data.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty() && self.findings.is_empty()
    }
}

/// The data that all workers share.
struct CheckContext {
    tables: Vec<CheckTable>,
    /// All tables before this index are finished or assigned to workers.
    first: AtomicUsize,
    state: Mutex<CheckState>,
    /// The findings about tables that a server cannot read.
    unreadable: Mutex<Vec<TableFinding>>,
    throttle: Arc<Throttle>,
    progress: Arc<BulkProgress>,
}

/// Compares the servers. If the check fails, is cancelled or is killed, the state contains everything that
/// was compared. With [`CheckOptions::resume`], that part is not compared again.
///
/// # Errors
/// [`BulkError::Interrupted`] or [`BulkError::InterruptedWithoutState`] if cancelled;
/// [`BulkError::SameServer`]; [`BulkError::SyncUnknown`] and [`BulkError::TargetBehind`] for waiting for the
/// target; [`BulkError::StateFileExists`], [`BulkError::StateMismatch`], [`BulkError::Busy`],
/// [`BulkError::Damaged`] and [`BulkError::File`] for the state; [`BulkError::ResumeImpossible`] if a table's
/// key has changed since the interruption; [`BulkError::NotFound`], [`BulkError::RowTooLong`],
/// [`BulkError::Session`].
pub async fn check(
    options: &CheckOptions,
    throttle: Arc<Throttle>,
    progress: Arc<BulkProgress>,
    cancel: CancellationToken,
) -> Result<CheckReport, BulkError> {
    let started = Instant::now();
    let marks = marks();
    let work = async {
        let mut comparing = connect(options, &marks, 0, &progress).await?;
        let found = table_selection::find(&mut comparing, &options.selection).await?;
        run(options, &marks, comparing, found, throttle, &progress).await
    };
    let report = tokio::select! {
        report = work => report,
        () = cancel.cancelled() => {
            Err(if options.state.is_some() { BulkError::Interrupted } else { BulkError::InterruptedWithoutState })
        }
    };
    if report.is_err() {
        delete_marks(options, &marks).await;
    }
    let mut report = report?;
    report.elapsed = started.elapsed();
    Ok(report)
}

/// Returns the prefix of the names of all marks of this check. A mark is a row that the check writes on the
/// source and waits for on the target. Checks that run at the same time must not use each other's marks.
pub(crate) fn marks() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}-{now}-", std::process::id())
}

/// Deletes the marks (rows in `tailwater.check_marks`) of a failed check, if the source still answers. The
/// check's workers have ended, and their connections are closed.
pub(crate) async fn delete_marks(options: &CheckOptions, marks: &str) {
    /// The longest time for the clean-up.
    const PATIENCE: Duration = Duration::from_secs(5);
    if options.sync_method != Some(SyncMethod::Mark) {
        return;
    }
    let work = async {
        let mut source = Connection::connect(&options.source).await?;
        target_catch_up_wait::delete_marks_of(&mut source, marks).await?;
        source.close().await;
        Ok::<_, BulkError>(())
    };
    // If marks remain, the next check deletes them.
    let _ = tokio::time::timeout(PATIENCE, work).await;
}

/// The results of an earlier check, from its state file.
#[derive(Debug, Default)]
pub(crate) struct EarlierFindings {
    pub(crate) differences: Vec<RowDifference>,
    pub(crate) findings: Vec<TableFinding>,
    /// Whether the earlier check compared everything that is selected now.
    pub(crate) is_finished: bool,
}

/// Reads the results of an earlier check from its state, for the tables that are selected now.
///
/// # Errors
/// [`BulkError::StateMismatch`] if the earlier check compared other servers; [`BulkError::Damaged`];
/// [`BulkError::File`].
pub(crate) fn earlier_findings(options: &CheckOptions) -> Result<EarlierFindings, BulkError> {
    let [source, target] = options.names();
    let Some(path) = &options.state else { return Ok(EarlierFindings::default()) };
    let state = CheckState::read(path, &source, &target)?;
    let mut findings = state.given_up();
    let is_finished = state.is_finished(|table| options.selection.wants(table));
    let mut differences = state.differences;
    findings.extend(state.finished.into_iter().flatten());
    findings.retain(|finding| options.selection.wants(finding.table_name()));
    differences.retain(|difference| options.selection.wants(&difference.table_name()));
    Ok(EarlierFindings { differences, findings, is_finished })
}

/// Every statement must see what was committed when it starts, whatever the server's defaults are: no
/// uncommitted rows, and no snapshot of an earlier statement. With `autocommit`, each statement has its own
/// snapshot. READ COMMITTED is not used, because a source with `binlog_format = STATEMENT` would refuse to
/// write marks under it.
const TRANSACTIONS: [&str; 2] = [
    "SET SESSION autocommit = 1, completion_type = NO_CHAIN",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
];

async fn connect_to(options: &ConnectOptions) -> Result<Connection, BulkError> {
    let mut connection = Connection::connect(options).await?;
    connection.execute(SESSION_SETTINGS).await?;
    for sql in TRANSACTIONS {
        connection.execute(sql).await?;
    }
    disable_timeouts(&mut connection).await?;
    // The server must return values as the bytes that are compared, without conversion.
    connection.execute("SET NAMES utf8mb4").await?;
    connection.execute("SET SESSION character_set_results = binary").await?;
    connection.widen_answers().await?;
    Ok(connection)
}

/// Connects the worker with this number to both servers.
pub(crate) async fn connect(
    options: &CheckOptions,
    marks: &str,
    worker: usize,
    progress: &Arc<BulkProgress>,
) -> Result<Comparer, BulkError> {
    let mut source = connect_to(&options.source).await?;
    let mut target = connect_to(&options.target).await?;
    if worker == 0 {
        refuse_same(&mut source, &mut target).await?;
    }
    let sync_method = match options.sync_method {
        Some(sync_method) => sync_method,
        None => SyncMethod::detect(&mut source, &mut target).await?,
    };
    if worker == 0 {
        sync_method.refuse_unsure(&mut source, &mut target).await?;
        // If the user has chosen the waiting method, the check does not test whether the target replicates.
        if options.sync_method.is_none() {
            sync_method.refuse_unreplicated(&mut source, &mut target).await?;
        }
        sync_method.prepare(&mut source).await?;
    }
    let mark = format!("{marks}{worker}");
    let waiting = SyncWaiter::new(sync_method, options.wait_max, mark, options.progress_reader.clone());
    Ok(Comparer {
        source,
        target,
        waiting,
        progress: Arc::clone(progress),
        digests: options.digests,
        keeps_values: options.show_values,
    })
}

/// Refuses two addresses of the same server, because a server is always equal to itself.
async fn refuse_same(source: &mut Connection, target: &mut Connection) -> Result<(), BulkError> {
    let sql = "SELECT CONCAT_WS(' ', @@hostname, @@port, @@datadir, @@pid_file)";
    let (one, other) = (source.query(sql).await?, target.query(sql).await?);
    if one.scalar().is_some() && one.scalar() == other.scalar() {
        return Err(BulkError::SameServer { server: source.endpoint().into() });
    }
    Ok(())
}

async fn run(
    options: &CheckOptions,
    marks: &str,
    first: Comparer,
    found: ComparableTables,
    throttle: Arc<Throttle>,
    progress: &Arc<BulkProgress>,
) -> Result<CheckReport, BulkError> {
    let [source, target] = options.names();
    let state = CheckState::open(options.state.as_deref(), options.resume, &source, &target)?;
    let ComparableTables { pairs, mut findings } = found;
    let count = pairs.len() as u64;
    let tables = work(options, pairs, &state, progress)?;
    let shared = Arc::new(CheckContext {
        tables,
        first: AtomicUsize::new(0),
        state: Mutex::new(state),
        unreadable: Mutex::default(),
        throttle,
        progress: Arc::clone(progress),
    });
    let mut workers = JoinSet::new();
    let mut first = Some(first);
    for number in 0..options.workers.max(1) {
        let comparing = match first.take() {
            Some(first) => first,
            None => connect(options, marks, number, progress).await?,
        };
        let worker = CheckWorker { shared: Arc::clone(&shared), comparing, options: options.clone() };
        workers.spawn(worker.run());
    }
    // The first error ends the check: dropping the set aborts the other workers.
    while let Some(joined) = workers.join_next().await {
        match joined {
            Ok(result) => result?,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    let mut state = shared.state.lock().await;
    let mut differences = std::mem::take(&mut state.differences);
    differences.sort_by_cached_key(RowDifference::order);
    let mut unreadable = std::mem::take(&mut *shared.unreadable.lock().await);
    unreadable.sort_by_cached_key(|finding| finding.table_name().clone());
    findings.extend(unreadable);
    state.finished(&findings)?;
    findings.extend(state.given_up());
    let rows = state.tables.values().map(|table| table.rows).sum();
    Ok(CheckReport { tables: count, rows, differences, findings, elapsed: Duration::ZERO })
}

/// Returns the tables that are not compared yet. The largest come first, so that all workers have work until
/// the end.
fn work(
    options: &CheckOptions,
    mut pairs: Vec<TablePair>,
    state: &CheckState,
    progress: &BulkProgress,
) -> Result<Vec<CheckTable>, BulkError> {
    pairs.sort_by_key(|pair| std::cmp::Reverse(pair.rows_estimate));
    let mut tables = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let before = state.tables.get(&pair.name).cloned().unwrap_or_default();
        progress.expect(1, pair.rows_estimate);
        progress.rows(before.rows, 0);
        if before.done {
            progress.table();
            continue;
        }
        let changed = |name: &TableName, reason| BulkError::ResumeImpossible {
            what: format!("the check of {name}"),
            reason,
        };
        let name = pair.name.clone();
        let table = CheckTable::new(pair, options.chunk_size_limits(), options.differences_max, &before);
        tables.push(table.map_err(|reason| changed(&name, reason))?);
    }
    Ok(tables)
}

/// A worker: a connection to each server, over which it compares one chunk after the other.
struct CheckWorker {
    shared: Arc<CheckContext>,
    comparing: Comparer,
    options: CheckOptions,
}

impl CheckWorker {
    async fn run(mut self) -> Result<(), BulkError> {
        let shared = Arc::clone(&self.shared);
        loop {
            shared.throttle.pass(&shared.progress).await;
            let first = shared.first.load(Relaxed);
            let Some(table) = shared.tables.get(first) else { break };
            match self.next_chunk(table).await {
                Ok(true) => {}
                // Other workers may already be at a later table, so the index never decreases.
                Ok(false) => {
                    let _ = shared.first.compare_exchange(first, first + 1, Relaxed, Relaxed);
                }
                Err(error) if table_selection::is_of_one_table(&error) => self.give_up(table, &error).await?,
                Err(error) => return Err(error),
            }
        }
        let Comparer { mut source, target, waiting, .. } = self.comparing;
        waiting.finish(&mut source).await?;
        source.close().await;
        target.close().await;
        Ok(())
    }

    /// Compares the next chunk of a table. Returns false if the table has no chunk left.
    async fn next_chunk(&mut self, table: &CheckTable) -> Result<bool, BulkError> {
        let CheckContext { state, progress, .. } = &*self.shared;
        let Some(task) = table.take(&mut self.comparing.source, state).await? else { return Ok(false) };
        let differences_left = table.differences_left().await;
        let compared = self.comparing.chunk(&table.pair, &task.range.keys, differences_left).await?;
        progress.rows(compared.rows, 0);
        progress.chunk(0);
        if table.done(&task, compared, state).await? {
            progress.table();
        }
        Ok(true)
    }

    /// Records that a table cannot be read, and continues with other tables. The connections are opened
    /// again, because an old connection may still have unread rows of a result set.
    async fn give_up(&mut self, table: &CheckTable, error: &BulkError) -> Result<(), BulkError> {
        let Comparer { source, target, waiting, .. } = &mut self.comparing;
        (*source, *target) =
            (connect_to(&self.options.source).await?, connect_to(&self.options.target).await?);
        waiting.reconnected(source).await?;
        if table.give_up().await {
            let finding = table_selection::unreadable(source, target, &table.pair.name, error).await;
            self.shared.unreadable.lock().await.push(finding);
            self.shared.progress.table();
        }
        Ok(())
    }
}
