//! Compares two servers that are kept in step, while both are written to and without holding locks.
//!
//! - [`pair`]: a table on both sides; [`rendering`]: how values are rendered alike.
//! - [`row_verdict`]: the core: whether a row differs, told from versions read one after the other.
//! - [`sync_wait`]: waiting until the target has what the source had; [`channel_progress`]: also where transactions come in any order.
//! - [`replication_check`]: whether anything brings transactions to a target.
//! - [`comparer`]: one chunk on both sides; [`chunk_queue`]: which comes next; [`state`]: how far it is.
//! - [`difference`]: what is found.

pub mod channel_progress;
mod chunk_queue;
pub mod comparer;
pub mod difference;
pub mod pair;
pub mod rendering;
mod replication_check;
mod row_sum;
pub mod row_verdict;
mod state;
pub mod sync_wait;
pub(crate) mod tables;

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tailwater_session::{ConnectOptions, Connection};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::chunker::ChunkSizeLimits;
use crate::chunker::queries::SESSION_SETTINGS;
use crate::error::BulkError;
use crate::progress::BulkProgress;
use crate::schema::{Selection, TableName};
use crate::snapshot::acquire::disable_timeouts;
use crate::throttle::Throttle;
use channel_progress::ChannelProgressReader;
use chunk_queue::TableWork;
use comparer::Comparer;
pub use comparer::Digests;
pub use difference::{DifferenceKind, RowDifference, RowValues, TableFinding};
use pair::TablePair;
use state::State;
use sync_wait::{SyncMethod, SyncWaiter};
use tables::Found;

/// What to compare, and how.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Where the data is right.
    pub source: ConnectOptions,
    /// Where it is compared.
    pub target: ConnectOptions,
    /// Which databases and tables.
    pub selection: Selection,
    /// Who digests rows.
    pub digests: Digests,
    /// How many chunks are compared side by side; one at least.
    pub workers: usize,
    /// How to know that the target has what the source had; found out if absent.
    pub sync_method: Option<SyncMethod>,
    /// Who reads how far channels of Tailwater are that feed the target: with [`SyncMethod::Mark`] there is no check of such a target
    /// without.
    pub progress_reader: Option<Arc<dyn ChannelProgressReader>>,
    /// How long to wait for the target at most.
    pub wait_max: Duration,
    /// The most rows of a chunk of a table with a key.
    pub chunk_rows_max: u64,
    /// About how long a chunk may take on either side.
    pub chunk_time_max: Duration,
    /// More differences of a table are not looked for.
    pub differences_max: u64,
    /// Keep the values of rows that differ, to show them.
    pub show_values: bool,
    /// Where to keep how far it is.
    pub state: Option<PathBuf>,
    /// Go on with the check whose state is in the file.
    pub resume: bool,
}

impl CheckOptions {
    /// Options with defaults: everything, four chunks at once of about half a second, and up to 10,000 differences of a table.
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
        /// Before it is known how fast the servers are.
        const ROWS_FIRST: u64 = 10_000;
        ChunkSizeLimits {
            rows_first: ROWS_FIRST.min(self.chunk_rows_max),
            rows_max: self.chunk_rows_max,
            cost_max: u64::try_from(self.chunk_time_max.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// What both connections are called in messages and in the state.
    fn names(&self) -> [String; 2] {
        [self.source.endpoint.to_string(), self.target.endpoint.to_string()]
    }
}

/// Another each time.
fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The server may have to read many rows before it answers.
fn for_long_statements(options: ConnectOptions) -> ConnectOptions {
    ConnectOptions {
        read_timeout: Some(Duration::from_secs(3600)),
        // As long as a row can be, for repairs.
        rows_bytes_max: options.rows_bytes_max.max(1 << 30),
        program_name: "tailwater check".into(),
        ..options
    }
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// How many tables were compared.
    pub tables: u64,
    /// How many rows the source had in them.
    pub rows: u64,
    /// Rows that differ, in the order of tables and keys.
    pub differences: Vec<RowDifference>,
    /// What there is about whole tables.
    pub findings: Vec<TableFinding>,
    /// How long it took, since it was begun or gone on with.
    pub elapsed: Duration,
}

impl CheckReport {
    /// Whether the two are the same.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty() && self.findings.is_empty()
    }
}

/// What all workers share.
struct Shared {
    tables: Vec<TableWork>,
    /// Tables before this one are done, or in other hands.
    first: AtomicUsize,
    state: Mutex<State>,
    /// What is said about tables that a server does not read.
    unreadable: Mutex<Vec<TableFinding>>,
    throttle: Arc<Throttle>,
    progress: Arc<BulkProgress>,
}

/// Compares. What is compared when it fails, is cancelled or is killed is in the state, and not compared again with
/// [`CheckOptions::resume`].
///
/// # Errors
/// [`BulkError::Interrupted`] or [`BulkError::InterruptedWithoutState`] if it was cancelled; [`BulkError::SameServer`]; [`BulkError::SyncUnknown`],
/// [`BulkError::TargetBehind`] about waiting for the target; [`BulkError::StateFileExists`], [`BulkError::StateMismatch`],
/// [`BulkError::Busy`], [`BulkError::Damaged`], [`BulkError::File`] about the state; [`BulkError::ResumeImpossible`] if a table's key
/// is another than before the interruption; [`BulkError::NotFound`], [`BulkError::RowTooLong`], [`BulkError::Session`].
pub async fn check(
    options: &CheckOptions,
    throttle: Arc<Throttle>,
    progress: Arc<BulkProgress>,
    cancel: CancellationToken,
) -> Result<CheckReport, BulkError> {
    let begun = Instant::now();
    let marks = marks();
    let work = async {
        let mut comparing = connect(options, &marks, 0, &progress).await?;
        let found = tables::find(&mut comparing, &options.selection).await?;
        run(options, &marks, comparing, found, throttle, &progress).await
    };
    let report = tokio::select! {
        report = work => report,
        () = cancel.cancelled() => {
            Err(if options.state.is_some() { BulkError::Interrupted } else { BulkError::InterruptedWithoutState })
        }
    };
    if report.is_err() {
        take_marks_away(options, &marks).await;
    }
    let mut report = report?;
    report.elapsed = begun.elapsed();
    Ok(report)
}

/// What the names of all marks of a run begin with: marks of two checks at once must not be taken for each other's.
pub(crate) fn marks() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}-{now}-", std::process::id())
}

/// Takes the marks of a run that did not get through away, if the source still answers: its workers and their connections are gone.
pub(crate) async fn take_marks_away(options: &CheckOptions, marks: &str) {
    /// Nobody wants to wait long for that.
    const PATIENCE: Duration = Duration::from_secs(5);
    if options.sync_method != Some(SyncMethod::Mark) {
        return;
    }
    let work = async {
        let mut source = Connection::connect(&options.source).await?;
        sync_wait::take_away_of(&mut source, marks).await?;
        source.close().await;
        Ok::<_, BulkError>(())
    };
    // The next check does what this cannot.
    let _ = tokio::time::timeout(PATIENCE, work).await;
}

/// What an earlier check found.
#[derive(Debug, Default)]
pub(crate) struct FoundBefore {
    pub(crate) differences: Vec<RowDifference>,
    pub(crate) findings: Vec<TableFinding>,
    /// It compared all that it was to compare.
    pub(crate) is_finished: bool,
}

/// What an earlier check kept in its state of the tables that are selected now.
///
/// # Errors
/// [`BulkError::StateMismatch`] if it was of other servers; [`BulkError::Damaged`]; [`BulkError::File`].
pub(crate) fn found_before(options: &CheckOptions) -> Result<FoundBefore, BulkError> {
    let [source, target] = options.names();
    let Some(path) = &options.state else { return Ok(FoundBefore::default()) };
    let state = State::read(path, &source, &target)?;
    let mut findings = state.given_up();
    let is_finished = state.is_finished(|table| options.selection.wants(table));
    let mut differences = state.differences;
    findings.extend(state.finished.into_iter().flatten());
    findings.retain(|finding| options.selection.wants(finding.table_name()));
    differences.retain(|difference| options.selection.wants(&difference.table_name()));
    Ok(FoundBefore { differences, findings, is_finished })
}

/// Whatever a server's default is, each statement is to see what is committed when it begins: nothing that may be rolled back yet, nor
/// what an earlier statement saw. With `autocommit` each has a snapshot of its own; under READ COMMITTED a source whose binlog has
/// statements would refuse to take marks.
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
    // Values come as the bytes that they are compared by.
    connection.execute("SET NAMES utf8mb4").await?;
    connection.execute("SET SESSION character_set_results = binary").await?;
    connection.widen_answers().await?;
    Ok(connection)
}

/// Connects to both sides, for the worker of this number.
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
        None => SyncMethod::find_out(&mut source, &mut target).await?,
    };
    if worker == 0 {
        sync_method.refuse_unsure(&mut source, &mut target).await?;
        // Who says how to wait is believed.
        if options.sync_method.is_none() {
            sync_method.refuse_unfed(&mut source, &mut target).await?;
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

/// Two names of one server would be found equal, whatever is on the other.
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
    found: Found,
    throttle: Arc<Throttle>,
    progress: &Arc<BulkProgress>,
) -> Result<CheckReport, BulkError> {
    let [source, target] = options.names();
    let state = State::open(options.state.as_deref(), options.resume, &source, &target)?;
    let Found { pairs, mut findings } = found;
    let count = pairs.len() as u64;
    let tables = work(options, pairs, &state, progress)?;
    let shared = Arc::new(Shared {
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
        let worker = Worker { shared: Arc::clone(&shared), comparing, options: options.clone() };
        workers.spawn(worker.run());
    }
    // The first error ends all: dropping the set aborts the others.
    while let Some(ended) = workers.join_next().await {
        match ended {
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

/// What is left of the tables, the largest first, so that at the end all workers have something to do.
fn work(
    options: &CheckOptions,
    mut pairs: Vec<TablePair>,
    state: &State,
    progress: &BulkProgress,
) -> Result<Vec<TableWork>, BulkError> {
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
        let table = TableWork::new(pair, options.chunk_size_limits(), options.differences_max, &before);
        tables.push(table.map_err(|reason| changed(&name, reason))?);
    }
    Ok(tables)
}

/// One pair of connections that compares chunk after chunk.
struct Worker {
    shared: Arc<Shared>,
    comparing: Comparer,
    options: CheckOptions,
}

impl Worker {
    async fn run(mut self) -> Result<(), BulkError> {
        let shared = Arc::clone(&self.shared);
        loop {
            shared.throttle.pass(&shared.progress).await;
            let first = shared.first.load(Relaxed);
            let Some(table) = shared.tables.get(first) else { break };
            match self.next_chunk(table).await {
                Ok(true) => {}
                // Others may have been faster; no worker goes back.
                Ok(false) => {
                    let _ = shared.first.compare_exchange(first, first + 1, Relaxed, Relaxed);
                }
                Err(error) if tables::is_of_one_table(&error) => self.give_up(table, &error).await?,
                Err(error) => return Err(error),
            }
        }
        let Comparer { mut source, target, waiting, .. } = self.comparing;
        waiting.finish(&mut source).await?;
        source.close().await;
        target.close().await;
        Ok(())
    }

    /// Compares the next chunk of a table; whether there was one.
    async fn next_chunk(&mut self, table: &TableWork) -> Result<bool, BulkError> {
        let Shared { state, progress, .. } = &*self.shared;
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

    /// Continues with other tables. The connections are new: one of them may have been in the midst of an answer.
    async fn give_up(&mut self, table: &TableWork, error: &BulkError) -> Result<(), BulkError> {
        let Comparer { source, target, waiting, .. } = &mut self.comparing;
        (*source, *target) =
            (connect_to(&self.options.source).await?, connect_to(&self.options.target).await?);
        waiting.connected_again(source).await?;
        if table.give_up().await {
            let finding = tables::unreadable(source, target, &table.pair.name, error).await;
            self.shared.unreadable.lock().await.push(finding);
            self.shared.progress.table();
        }
        Ok(())
    }
}
