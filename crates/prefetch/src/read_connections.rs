//! Runs the queries of the prefetch over several connections to the replica.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tailwater_session::{Backoff, ConnectOptions, Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::sql_quote::quote_identifier;
use tokio::sync::{Mutex, mpsc};

use crate::prefetch_figures::PrefetchFigures;
use crate::slow_query_cache::QueryShape;

/// A query to run.
#[derive(Debug)]
pub(crate) struct ReadQuery {
    pub(crate) sql: String,
    /// The default database; empty if names are qualified.
    pub(crate) database: String,
    pub(crate) shape: QueryShape,
    /// The number of index entries that it reads.
    pub(crate) keys: u64,
    pub(crate) table_rows: u64,
    /// Whether the answer is one row with the number of rows. If not, the rows are counted.
    pub(crate) is_count: bool,
    /// The position in the stream, in bytes, of the changes that need the pages.
    pub(crate) stream_bytes: u64,
}

/// The result of a query, for the slow-query cache and the definitions.
#[derive(Debug)]
pub(crate) enum ReadOutcome {
    Finished {
        shape: QueryShape,
        keys: u64,
        rows: u64,
        table_rows: u64,
        is_too_long: bool,
    },
    /// The query does not fit the replica's tables: a column, index or table is missing.
    DefinitionChanged,
}

/// How the queries run.
#[derive(Debug, Clone)]
pub(crate) struct ReadOptions {
    pub(crate) replica: ConnectOptions,
    pub(crate) connections: usize,
    /// The server ends a query after this time.
    pub(crate) query_time_max: Duration,
    /// The resource group of the sessions (MySQL).
    pub(crate) resource_group: Option<String>,
}

/// Starts the connections. They end when `queries` is closed or the returned set is dropped.
pub(crate) fn start(
    options: &ReadOptions,
    queries: mpsc::Receiver<ReadQuery>,
    outcomes: &mpsc::UnboundedSender<ReadOutcome>,
    figures: &Arc<PrefetchFigures>,
) -> tokio::task::JoinSet<()> {
    let queries = Arc::new(Mutex::new(queries));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..options.connections.max(1) {
        let worker = ReadWorker {
            options: options.clone(),
            queries: Arc::clone(&queries),
            outcomes: outcomes.clone(),
            figures: Arc::clone(figures),
            backoff: Backoff::new(Duration::from_millis(200), Duration::from_secs(10), number as u64),
        };
        tasks.spawn(worker.run());
    }
    tasks
}

struct ReadWorker {
    options: ReadOptions,
    queries: Arc<Mutex<mpsc::Receiver<ReadQuery>>>,
    outcomes: mpsc::UnboundedSender<ReadOutcome>,
    figures: Arc<PrefetchFigures>,
    backoff: Backoff,
}

impl ReadWorker {
    async fn run(mut self) {
        loop {
            let failed = match connect_read_only(&self.options).await {
                Ok(connection) => {
                    self.backoff.reset();
                    match self.serve(connection).await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            tracing::debug!(code = failed.code(), "a connection of the prefetch has failed: {failed}");
            self.figures.update(|state| state.reason = Some(format!("the replica: {failed}")));
            tokio::time::sleep(self.backoff.next_delay()).await;
        }
    }

    /// Runs queries until the channel is closed.
    async fn serve(&self, mut connection: Connection) -> Result<(), SessionError> {
        let mut database = String::new();
        loop {
            let Some(query) = self.queries.lock().await.recv().await else {
                connection.close().await;
                return Ok(());
            };
            if query.stream_bytes <= self.figures.applied_bytes.load(Ordering::Relaxed) {
                PrefetchFigures::add(&self.figures.late, 1);
                continue;
            }
            if !query.database.is_empty() && query.database != database {
                match connection.execute(&format!("USE {}", quote_identifier(&query.database))).await {
                    Ok(_) => database.clone_from(&query.database),
                    Err(SessionError::Server { .. }) => {
                        PrefetchFigures::add(&self.figures.failed, 1);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            self.read(&mut connection, query).await?;
        }
    }

    async fn read(&self, connection: &mut Connection, query: ReadQuery) -> Result<(), SessionError> {
        let began = Instant::now();
        let result = count_rows(connection, &query).await;
        PrefetchFigures::add(&self.figures.queries, 1);
        PrefetchFigures::add(&self.figures.keys, query.keys);
        let outcome = match result {
            Ok(rows) => {
                let applied = self.figures.applied_bytes.load(Ordering::Relaxed);
                let counter = match query.stream_bytes <= applied {
                    true => &self.figures.late,
                    false => &self.figures.in_time,
                };
                PrefetchFigures::add(counter, 1);
                let is_too_long = began.elapsed() >= self.options.query_time_max;
                Some(ReadOutcome::Finished {
                    shape: query.shape,
                    keys: query.keys,
                    rows,
                    table_rows: query.table_rows,
                    is_too_long,
                })
            }
            Err(SessionError::Server { error, .. }) => {
                PrefetchFigures::add(&self.figures.failed, 1);
                failed_outcome(error.number, query)
            }
            Err(error) => return Err(error),
        };
        if let Some(outcome) = outcome {
            let _ = self.outcomes.send(outcome);
        }
        Ok(())
    }
}

/// Runs a query, and returns how many rows it has read. Rows that it returns are dropped as they come.
async fn count_rows(connection: &mut Connection, query: &ReadQuery) -> Result<u64, SessionError> {
    if query.is_count {
        let answer = connection.query(&query.sql).await?;
        return Ok(answer.first().and_then(|row| row.get_u64(0)).unwrap_or(0));
    }
    let mut stream = connection.query_stream(&query.sql).await?;
    let mut rows = 0;
    while stream.next().await?.is_some() {
        rows += 1;
    }
    Ok(rows)
}

fn failed_outcome(number: u16, query: ReadQuery) -> Option<ReadOutcome> {
    /// A bad field, a missing table, and a missing index.
    const DEFINITION: [u16; 3] = [1054, 1146, 1176];
    /// MySQL's max_execution_time, and MariaDB's max_statement_time.
    const TOO_LONG: [u16; 2] = [3024, 1969];
    if DEFINITION.contains(&number) {
        return Some(ReadOutcome::DefinitionChanged);
    }
    TOO_LONG.contains(&number).then_some(ReadOutcome::Finished {
        shape: query.shape,
        keys: query.keys,
        rows: 0,
        table_rows: query.table_rows,
        is_too_long: true,
    })
}

/// Connects a session that cannot write, and whose reads need neither old versions of rows nor locks.
pub(crate) async fn connect_read_only(options: &ReadOptions) -> Result<Connection, SessionError> {
    let mut connection = Connection::connect(&options.replica).await?;
    connection.execute("SET SESSION TRANSACTION READ ONLY").await?;
    connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED").await?;
    let limit = match connection.server().flavour {
        Flavour::MySql => {
            format!("SET SESSION max_execution_time = {}", options.query_time_max.as_millis().max(1))
        }
        Flavour::MariaDb => {
            format!("SET SESSION max_statement_time = {}", options.query_time_max.as_secs_f64())
        }
    };
    connection.execute(&limit).await?;
    // A query that waits for a definition which changes must not count as slow, nor hold a connection.
    connection.execute("SET SESSION lock_wait_timeout = 1").await?;
    // TIMESTAMP values of conditions are in UTC.
    connection.execute("SET SESSION time_zone = '+00:00'").await?;
    if let Some(group) = &options.resource_group {
        connection.execute(&format!("SET RESOURCE GROUP {}", quote_identifier(group))).await?;
    }
    Ok(connection)
}
