//! Runs a load from beginning to end.

use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tailwater_session::{Backoff, ConnectOptions, Connection, SessionError, SessionRetry};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::accounts::{AccountsReport, LoadAccounts};
use super::contents::{DefinitionScript, DumpContents, LoadChunk, TableFiles};
pub(crate) use super::definitions::existing_tables;
use super::indexes::{self, DOCUMENT_ID, DeferIndexes};
use super::load_record::{CHUNK_STARTED, EarlierLoad, LoadPhase, LoadRecord};
use super::load_source::LoadSource;
use super::table_loader::LoadTarget;
use super::table_order::{LoadSize, TableOrder, TableToLoad};
use super::{accounts, compatibility, definitions, gtid, target_session};
use tailwater_files::store::FileStore;
use tailwater_tables::error::{BulkError, ResumeHint};
use tailwater_tables::progress::BulkProgress;
use tailwater_tables::schema::TableName;
use tailwater_tables::throttle::Throttle;
use tailwater_wire::sql_quote::qualified_name;

/// Maximum number of tries per file when the target is unavailable or rows are locked.
pub(crate) const TRIES_MAX: u32 = 6;

/// How to load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The target server and the account.
    pub connect: ConnectOptions,
    /// Number of parallel connections that load rows.
    pub workers: usize,
    /// Whether to continue after what an earlier load of the same dump did.
    pub resume: bool,
    /// Whether to load into existing tables.
    pub merge: bool,
    /// Whether to set the target's GTID state to that of the dump.
    pub set_gtid: bool,
    /// Whether the load is written to the target's binlog.
    pub binlog: bool,
    /// Whether to load by INSERT statements.
    pub inserts: bool,
    /// How to load the dump's accounts.
    pub accounts: LoadAccounts,
    /// Whether to create secondary indexes after all rows. With [`Self::merge`], existing tables keep theirs.
    pub defer_indexes: DeferIndexes,
    /// Whether to create scheduled events disabled, as on a replica.
    pub events_disabled: bool,
    /// Time limit for one statement of the target, for example for the rows of a file. The creation of
    /// deferred indexes has no time limit.
    pub answer_max: Duration,
    /// Pauses the load between files.
    pub throttle: Arc<Throttle>,
}

impl LoadOptions {
    /// Loads into an empty server over four connections, with a binlog.
    pub fn new(connect: ConnectOptions) -> Self {
        Self {
            connect,
            workers: 4,
            resume: false,
            merge: false,
            set_gtid: false,
            binlog: true,
            inserts: false,
            accounts: LoadAccounts::None,
            defer_indexes: DeferIndexes::Auto,
            answer_max: Duration::from_secs(3600),
            throttle: Arc::new(Throttle::open()),
            events_disabled: false,
        }
    }
}

/// The result of a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadReport {
    /// Number of tables in the dump.
    pub tables: usize,
    /// Number of files that this load loaded.
    pub chunks_loaded: u64,
    /// Number of files that an earlier load had loaded.
    pub chunks_before: u64,
    /// Rows of both.
    pub rows: u64,
    /// The GTID set that was set on the target.
    pub gtid_set: Option<String>,
    /// The outcome for accounts, if they were to be loaded.
    pub accounts: Option<AccountsReport>,
}

/// Loads a dump.
///
/// # Errors
/// Before any change: [`BulkError::TablesExist`], [`BulkError::InterruptedLoad`],
/// [`BulkError::LoadInProgress`], [`BulkError::LocalInfileOff`], [`BulkError::GtidState`]. After all other
/// errors the load can continue with [`LoadOptions::resume`]; [`BulkError::Interrupted`] if `stop` was
/// cancelled.
pub async fn load(
    contents: &DumpContents,
    options: &LoadOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
) -> Result<LoadReport, BulkError> {
    run(contents, options, progress, stop, None).await
}

/// As [`load`], with rows from a server instead of the dump's files.
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

/// Where a load starts.
struct LoadStart {
    phase: LoadPhase,
    /// Whether an earlier load did part of the work.
    resumed: bool,
    /// Whether tables may have had rows before the load, as recorded when it was first started.
    merge: bool,
}

struct LoadRun<'a> {
    contents: &'a DumpContents,
    options: &'a LoadOptions,
    progress: &'a Arc<BulkProgress>,
    /// The source of rows, if they do not come from files.
    rows: Option<&'a dyn LoadSource>,
    record: LoadRecord,
}

impl LoadRun<'_> {
    async fn run(&self) -> Result<LoadReport, BulkError> {
        if self.rows.is_none() {
            self.progress.expect(self.contents.tables.len() as u64, self.contents.rows());
        }
        let mut connection = target_session::connect(self.options).await?;
        let gtid_set = match self.options.set_gtid {
            true => Some(gtid::state(self.contents, connection.server().flavour)?),
            false => None,
        };
        if self.options.accounts != LoadAccounts::None {
            accounts::check(self.contents, connection.server().flavour)?;
        }
        let LoadStart { mut phase, resumed, merge } = self.begin(&mut connection, gtid_set).await?;
        let skip_existing = resumed || merge;
        let finished = phase == LoadPhase::Done;
        if let Some(rows) = self.rows.filter(|_| resumed) {
            if rows.is_restart() || phase <= LoadPhase::Rows {
                let finished = rows.begin(&mut connection, &self.record, self.options.set_gtid).await?;
                info!(finished, "tables of the earlier copy are kept");
                // An unfinished table starts from scratch.
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
                self.chunks().for_each(|chunk| note(self.progress, chunk));
                self.progress.figures().chunks
            }
        };
        let mut accounts = None;
        if phase <= LoadPhase::Objects {
            self.record.reach(&mut connection, LoadPhase::Objects).await?;
            self.create_objects(&mut connection, skip_existing).await?;
            if self.options.accounts != LoadAccounts::None {
                let replace = self.options.accounts == LoadAccounts::Replace;
                let loaded = accounts::load(&mut connection, self.contents, &self.record, replace).await?;
                accounts = Some(loaded);
            }
            // Without a binlog, the state is set before the load is marked as done.
            if let Some(state) = gtid_set.filter(|_| !self.options.binlog) {
                gtid::set(&mut connection, state, finished).await?;
            }
            self.record.reach(&mut connection, LoadPhase::Done).await?;
        }
        // With a binlog, it is set last: no transaction of the load may follow it in the target's binlog.
        if let Some(state) = gtid_set.filter(|_| self.options.binlog) {
            gtid::set(&mut connection, state, finished).await?;
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

    /// Finds out where to start. Refuses to mix the dump with other data.
    async fn begin(
        &self,
        connection: &mut Connection,
        gtid_set: Option<&str>,
    ) -> Result<LoadStart, BulkError> {
        let server = connection.endpoint().to_owned();
        if let Some(table) =
            self.contents.tables.iter().find(|table| table.text.is_some()).filter(|_| self.options.inserts)
        {
            return Err(BulkError::InsertsUnsupported { table: table.name.to_string() });
        }
        let needs_it = |table: &TableFiles| table.columns.is_some() && !table.chunks.is_empty();
        if !self.options.inserts && (self.rows.is_some() || self.contents.tables.iter().any(needs_it)) {
            let on = connection.query("SELECT @@GLOBAL.local_infile").await?;
            if on.scalar() == Some("0") {
                return Err(BulkError::LocalInfileOff { server });
            }
        }
        self.record.lock(connection).await?;
        let earlier = self.record.earlier(connection).await?;
        let restart = self.rows.is_some_and(|rows| rows.is_restart());
        let goes_on =
            |earlier: &EarlierLoad| self.options.resume || (restart && earlier.phase < LoadPhase::Done);
        if let Some(EarlierLoad { phase, merged }) = earlier.filter(goes_on)
            && self.is_there(connection, phase).await?
        {
            if let Some(state) = gtid_set.filter(|_| phase < LoadPhase::Done) {
                gtid::check(connection, state).await?;
            }
            info!(?phase, "continuing an earlier load");
            return Ok(LoadStart { phase, resumed: true, merge: merged.unwrap_or(self.options.merge) });
        }
        let names = self.contents.tables.iter().map(|table| &table.name);
        let there = definitions::existing_tables(connection, names).await?;
        if let Some(first) = there.first() {
            if earlier.is_some_and(|earlier| earlier.phase < LoadPhase::Done) {
                return Err(BulkError::InterruptedLoad { server, hint: ResumeHint::Resume });
            }
            if !self.options.merge {
                return Err(BulkError::TablesExist { server, count: there.len(), first: first.to_string() });
            }
        }
        if let Some(state) = gtid_set {
            gtid::check(connection, state).await?;
        }
        // With --merge, existing tables keep their definitions.
        let there: HashSet<_> = there.into_iter().collect();
        compatibility::check_engines(connection, self.contents, &there).await?;
        if self.rows.is_none() {
            compatibility::check(connection, self.contents, &there).await?;
        }
        self.record.begin(connection, self.options.merge).await?;
        Ok(LoadStart { phase: LoadPhase::Tables, resumed: false, merge: self.options.merge })
    }

    /// Whether the tables that an earlier load created still exist. If none does, there is nothing to
    /// continue.
    ///
    /// # Errors
    /// [`BulkError::TablesDropped`] if only some exist.
    async fn is_there(&self, connection: &mut Connection, phase: LoadPhase) -> Result<bool, BulkError> {
        let restart = self.rows.is_some_and(|rows| rows.is_restart());
        if phase == LoadPhase::Tables || restart || self.contents.tables.is_empty() {
            return Ok(true);
        }
        let names = self.contents.tables.iter().map(|table| &table.name);
        let there: HashSet<_> =
            definitions::existing_tables(connection, names.clone()).await?.into_iter().collect();
        if there.is_empty() {
            return Ok(false);
        }
        let mut gone: Vec<_> = names.filter(|name| !there.contains(*name)).collect();
        if self.rows.is_some() && phase == LoadPhase::Rows {
            // The others are created again.
            let finished = self.record.finished_tables(connection).await?;
            gone.retain(|name| finished.contains(*name));
        }
        match gone.first() {
            None => Ok(true),
            Some(first) => Err(BulkError::TablesDropped {
                server: connection.endpoint().to_owned(),
                count: gone.len(),
                first: first.to_string(),
            }),
        }
    }

    async fn create_tables(
        &self,
        connection: &mut Connection,
        skip_existing: bool,
        merge: bool,
    ) -> Result<(), BulkError> {
        let DumpContents { schemas, sequences, tables, .. } = self.contents;
        for definition in schemas.iter().chain(sequences) {
            self.make(connection, definition, skip_existing).await?;
        }
        let there: HashSet<_> = match merge {
            true => {
                let names = tables.iter().map(|table| &table.name);
                definitions::existing_tables(connection, names).await?.into_iter().collect()
            }
            false => HashSet::new(),
        };
        for TableFiles { name, definition, .. } in tables {
            match there.contains(name) {
                true => self.rerun_definition(connection, definition).await?,
                false => self.make(connection, definition, skip_existing).await?,
            }
        }
        target_session::set_up(connection, self.options).await?;
        let finished = match self.rows {
            Some(_) => self.record.finished_tables(connection).await?,
            None => HashSet::new(),
        };
        let may_wait = |table: &&TableFiles| !merge && !finished.contains(&table.name);
        for table in self.contents.tables.iter().filter(may_wait) {
            let wanted = match self.rows {
                None => self.options.defer_indexes.wants_table(table),
                Some(rows) => {
                    self.options.defer_indexes.wants(Some(rows.rows_estimate(&table.name).await), 0)
                }
            };
            let has_document_id = |columns: &Vec<String>| columns.iter().any(|name| name == DOCUMENT_ID);
            // Files that name their columns themselves do not say it here.
            if wanted || table.columns.as_ref().is_none_or(has_document_id) {
                indexes::drop_deferred(connection, &self.record, &table.name, wanted).await?;
            }
        }
        Ok(())
    }

    async fn make(
        &self,
        connection: &mut Connection,
        definition: &DefinitionScript,
        skip_existing: bool,
    ) -> Result<(), BulkError> {
        let files = self.contents.files.as_ref();
        definitions::make(connection, files, definition, skip_existing, self.options.events_disabled).await
    }

    /// Runs the definition of an existing table for its other statements.
    async fn rerun_definition(
        &self,
        connection: &mut Connection,
        definition: &DefinitionScript,
    ) -> Result<(), BulkError> {
        let files = self.contents.files.as_ref();
        let disabled = self.options.events_disabled;
        definitions::run_script_ignoring(
            connection,
            files,
            definition,
            &definitions::TABLE_EXISTS_ERRORS,
            disabled,
        )
        .await
    }

    /// Creates views, routines, triggers and events. An object that needs one that does not exist yet is
    /// tried again after the others.
    async fn create_objects(
        &self,
        connection: &mut Connection,
        skip_existing: bool,
    ) -> Result<(), BulkError> {
        let mut waiting: Vec<_> = self.contents.objects.iter().collect();
        while !waiting.is_empty() {
            let mut refused = Vec::new();
            let mut first = None;
            for definition in &waiting {
                match self.make(connection, definition, skip_existing).await {
                    Ok(()) => {}
                    Err(error) if needs_another(&error) => {
                        refused.push(*definition);
                        first.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            match first {
                Some(error) if refused.len() == waiting.len() => return Err(error),
                _ => waiting = refused,
            }
        }
        target_session::set_up(connection, self.options).await
    }

    /// Loads all missing rows. Returns how many files were loaded before.
    async fn load_rows(&self, connection: &mut Connection, merge: bool) -> Result<u64, BulkError> {
        self.record.prepare_indexes(connection).await?;
        let mut done = self.record.chunks(connection).await?;
        let indexes = self.record.deferred_index_counts(connection).await?;
        let mut tables = Vec::new();
        for table in &self.contents.tables {
            let target = LoadTarget::of(connection, table, self.options.inserts).await?;
            let is_done = |chunk: &LoadChunk, done: &HashSet<(TableName, u32)>| {
                done.contains(&(table.name.clone(), chunk.number))
            };
            if !table.chunks.is_empty() && target.is_skipped() {
                continue;
            }
            let whole = table.chunks.iter().all(|chunk| is_done(chunk, &done));
            if !target.transactional && !whole && merge {
                self.refuse_partial_load(table, &done)?;
            } else if !target.transactional && !whole {
                // Rows that a killed load left cannot be distinguished from finished ones.
                self.empty(connection, table).await?;
                table.chunks.iter().for_each(|chunk| {
                    done.remove(&(table.name.clone(), chunk.number));
                });
            }
            let (before, missing): (Vec<_>, Vec<_>) =
                table.chunks.iter().partition(|chunk| is_done(chunk, &done));
            before.into_iter().for_each(|chunk| note(self.progress, chunk));
            tables.push(QueuedTable {
                whole: table.chunks.iter().map(size).sum(),
                indexes: indexes.get(&table.name).copied().unwrap_or(0),
                loading: Arc::new(TableLoad { target, left: AtomicUsize::new(missing.len()) }),
                missing: missing.into_iter().cloned().map(Arc::new).collect(),
            });
        }
        let before = self.progress.figures().chunks;
        let queue = Arc::new(Mutex::new(LoadQueue::new(self.options.workers, tables)));
        let mut workers = JoinSet::new();
        for seed in 0..self.options.workers.max(1) {
            let worker = LoadWorker {
                options: self.options.clone(),
                record: self.record.clone(),
                progress: self.progress.clone(),
                merge,
                files: self.contents.files.clone(),
                queue: queue.clone(),
                backoff: backoff(seed as u64),
            };
            workers.spawn(worker.run());
        }
        // The first error ends the load: dropping the set aborts the other workers, whose transactions are
        // rolled back.
        while let Some(ended) = workers.join_next().await {
            match ended {
                Ok(result) => result?,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        // It was idle for long, possibly longer than a firewall tracks it.
        connection.ping().await?;
        Ok(before)
    }

    /// Refuses to load a file again whose load was interrupted: the table had rows of its own, so it cannot
    /// be emptied.
    fn refuse_partial_load(
        &self,
        table: &TableFiles,
        done: &HashSet<(TableName, u32)>,
    ) -> Result<(), BulkError> {
        let is_noted = |number: u32| done.contains(&(table.name.clone(), number));
        let is_half = |chunk: &&LoadChunk| is_noted(CHUNK_STARTED | chunk.number) && !is_noted(chunk.number);
        match table.chunks.iter().find(is_half) {
            None => Ok(()),
            Some(chunk) => Err(BulkError::PartialLoad {
                table: table.name.to_string(),
                path: chunk.path.clone(),
                forget: self.record.delete_chunk_statement(&table.name, CHUNK_STARTED | chunk.number),
            }),
        }
    }

    /// Deletes all rows of a table. Tables of some engines, such as ARCHIVE, must be dropped and created
    /// again.
    async fn empty(&self, connection: &mut Connection, table: &TableFiles) -> Result<(), BulkError> {
        const NO_SUCH_OPTION: u16 = 1031;
        let name = qualified_name(&table.name.schema, &table.name.name);
        let has_rows = !connection.query(&format!("SELECT 1 FROM {name} LIMIT 1")).await?.rows.is_empty();
        if has_rows {
            match connection.execute(&format!("TRUNCATE TABLE {name}")).await {
                Err(SessionError::Server { error, .. }) if error.number == NO_SUCH_OPTION => {
                    connection.execute(&format!("DROP TABLE {name}")).await?;
                    self.make(connection, &table.definition, true).await?;
                    target_session::set_up(connection, self.options).await?;
                }
                done => drop(done?),
            }
        }
        self.record.delete_table(connection, &table.name).await
    }
}

/// The error for rows of an earlier copy, which are not those of this copy's snapshot, while the GTID state
/// of this snapshot would be set.
fn other_point_in_time(phase: LoadPhase) -> BulkError {
    let what_to_do = match phase {
        LoadPhase::Done => "drop its tables to copy them once more",
        _ => "start from scratch with --restart, which drops what was copied",
    };
    let reason = format!("all rows were loaded by an earlier copy, at another point in time; {what_to_do}");
    BulkError::GtidState { reason }
}

/// Counts a file that is loaded already.
fn note(progress: &BulkProgress, chunk: &LoadChunk) {
    progress.rows(chunk.rows.unwrap_or(0), chunk.bytes.unwrap_or(0));
    progress.chunk(chunk.file_bytes);
}

/// A table whose rows are being loaded.
struct TableLoad {
    target: LoadTarget,
    /// Number of its files that are not loaded yet.
    left: AtomicUsize,
}

/// A table that waits to be loaded.
struct QueuedTable {
    loading: Arc<TableLoad>,
    /// Its files that are not loaded yet.
    missing: VecDeque<Arc<LoadChunk>>,
    /// The size of all its files.
    whole: LoadSize,
    /// Number of its deferred indexes.
    indexes: usize,
}

/// Files that wait for a connection.
struct LoadQueue {
    order: TableOrder,
    tables: Vec<QueuedTable>,
}

impl LoadQueue {
    fn new(connections: usize, tables: Vec<QueuedTable>) -> Self {
        let to_load = |(number, table): (usize, &QueuedTable)| TableToLoad {
            number,
            missing: table.missing.iter().map(|chunk| size(chunk)).sum(),
            whole: table.whole,
            indexes: table.indexes,
            one_by_one: !table.loading.target.transactional,
        };
        let is_unfinished = |table: &QueuedTable| !table.missing.is_empty() || table.indexes > 0;
        let unfinished = tables.iter().enumerate().filter(|(_, table)| is_unfinished(table));
        Self { order: TableOrder::new(connections, unfinished.map(to_load)), tables }
    }

    /// A table and one of its files; no file if all are loaded and only the indexes are missing.
    fn take(&mut self) -> Option<(Arc<TableLoad>, Option<Arc<LoadChunk>>)> {
        let number = self.order.next()?;
        let table = self.tables.get_mut(number)?;
        let chunk = table.missing.pop_front();
        if let Some(chunk) = &chunk {
            self.order.take(number, size(chunk));
        }
        if table.missing.is_empty() {
            self.order.end(number);
        }
        Some((Arc::clone(&table.loading), chunk))
    }
}

fn size(chunk: &LoadChunk) -> LoadSize {
    LoadSize::new(chunk.rows, chunk.bytes.unwrap_or(chunk.file_bytes))
}

/// Whether a definition was rejected because of a missing table, view or routine, which may be created later.
fn needs_another(error: &BulkError) -> bool {
    matches!(error, BulkError::DefinitionRejected { error, .. } if matches!(error.number, 1146 | 1356 | 1305))
}

/// The work of one connection.
struct LoadWorker {
    options: LoadOptions,
    record: LoadRecord,
    progress: Arc<BulkProgress>,
    /// Whether tables may have had rows before the load.
    merge: bool,
    files: Arc<dyn FileStore>,
    queue: Arc<Mutex<LoadQueue>>,
    backoff: Backoff,
}

impl LoadWorker {
    async fn run(mut self) -> Result<(), BulkError> {
        let mut connection = None;
        loop {
            self.options.throttle.pass(&self.progress).await;
            let unit = self.queue.lock().take();
            let Some((table, chunk)) = unit else { break };
            if let Some(chunk) = chunk {
                self.load(&mut connection, &table.target, &chunk).await?;
                note(&self.progress, &chunk);
                if table.left.fetch_sub(1, Relaxed) > 1 {
                    continue;
                }
            }
            // The worker that loads the last file creates the indexes, while others continue with other
            // tables.
            let mut idle = target_session::taken(&mut connection, &self.options).await?;
            indexes::create_deferred(&mut idle, &self.record, &table.target.table, &self.options).await?;
            connection = Some(idle);
        }
        if let Some(connection) = connection {
            connection.close().await;
        }
        Ok(())
    }

    /// Loads a file. If the target is unavailable or rows are locked, tries again on a new connection.
    async fn load(
        &mut self,
        slot: &mut Option<Connection>,
        target: &LoadTarget,
        chunk: &Arc<LoadChunk>,
    ) -> Result<(), BulkError> {
        let mut tries = 0;
        loop {
            let result = self.try_load(slot, target, chunk).await;
            let Err(error) = result else {
                self.backoff.reset();
                return Ok(());
            };
            tries += 1;
            // Without transactions, the rows that were loaded before the error remain.
            if tries == TRIES_MAX || !is_temporary(&error) || !target.transactional {
                return Err(error);
            }
            let delay = self.backoff.next_delay();
            warn!(code = error.code(), %error, ?delay, "trying again");
            tokio::time::sleep(delay).await;
        }
    }

    async fn try_load(
        &self,
        slot: &mut Option<Connection>,
        target: &LoadTarget,
        chunk: &Arc<LoadChunk>,
    ) -> Result<(), BulkError> {
        let mut connection = target_session::taken(slot, &self.options).await?;
        if self.merge && !target.transactional {
            // If the load is interrupted, only this record shows that some of the file's rows may be loaded.
            self.record.record_chunk(&mut connection, &target.table, CHUNK_STARTED | chunk.number).await?;
        }
        let loaded = target.load(&mut connection, &self.files, &self.record, chunk).await?;
        // For dumps that do not record the number of rows.
        if let Some(rows) = loaded.filter(|_| chunk.rows.is_none()) {
            self.progress.rows(rows, 0);
        }
        *slot = Some(connection);
        Ok(())
    }
}

/// The pauses between tries.
pub(crate) fn backoff(seed: u64) -> Backoff {
    Backoff::new(Duration::from_millis(250), Duration::from_secs(8), seed)
}

/// Whether another try may succeed.
pub(crate) fn is_temporary(error: &BulkError) -> bool {
    let session = |error: &SessionError| error.retry() == SessionRetry::Later;
    match error {
        BulkError::Session(error) => session(error),
        BulkError::RowsRejected { error, .. } => session(error),
        // The next try uses another method.
        BulkError::RowExceedsPacket { .. } => true,
        _ => false,
    }
}
