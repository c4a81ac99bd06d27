//! A source with a backlog, and the initial data of the targets, which is a copy of the source's data before
//! the backlog.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec};
use tailwater_session::{ConnectOptions, Connection, SessionError};
use tailwater_wire::Flavour;
use tokio::task::JoinSet;

use super::workload::{ApplyLoad, LoadClient, SCHEMA};
use crate::fault_trial::{TrialDurability, primary_options};

/// Number of clients that write the backlog. They are enough for the group commits that parallel replication
/// needs.
pub const CLIENTS: u32 = 16;
const SEED: u64 = 0x7a11;
/// Maximum number of attempts to commit a transaction. Each attempt may end in a deadlock or a lock timeout.
const TRIES_MAX: u32 = 100;
const DEADLOCK: u16 = 1213;
const LOCK_WAIT: u16 = 1205;

/// A source that has written a backlog.
#[derive(Debug)]
pub struct Backlog {
    /// The source, which keeps running.
    pub source: Server,
    /// Number of transactions in the backlog.
    pub transactions: u64,
    /// Number of rows that the backlog changes.
    pub rows: u64,
    /// The commit rate of the source while the backlog was written, in transactions per second.
    pub written_rate: f64,
    /// The data of a target at the start of the backlog.
    base: PathBuf,
    sums: Vec<String>,
}

/// The number of transactions that a group of clients has committed.
#[derive(Debug, Default)]
struct WrittenBacklog {
    transactions: AtomicU64,
    rows: AtomicU64,
}

/// Returns the options of the source and of every target. All data fits in memory, and the size of the redo
/// log does not limit the speed.
pub fn server_options(kind: ServerKind) -> Vec<String> {
    let mut options = vec!["--innodb-buffer-pool-size=512M".to_owned(), "--max-connections=300".into()];
    match kind.flavour() {
        Flavour::MySql => options.push("--innodb-redo-log-capacity=512M".into()),
        Flavour::MariaDb => options.push("--innodb-log-file-size=256M".into()),
    }
    options
}

/// Returns the sync options of a server.
pub fn durability_options(durability: TrialDurability) -> [String; 2] {
    let (binlog, redo) = match durability {
        TrialDurability::Full => (1, 1),
        TrialDurability::Reduced => (0, 2),
    };
    [format!("--sync-binlog={binlog}"), format!("--innodb-flush-log-at-trx-commit={redo}")]
}

/// Returns the options to connect as the superuser, with several statements in one query.
pub fn superuser(server: &Server) -> ConnectOptions {
    ConnectOptions { multi_statements: true, ..server.socket_options() }
}

impl Backlog {
    /// Starts a source, fills its tables, keeps a copy of them, and lets clients write the `transactions`.
    /// The last statement in the backlog creates the table `finished`. No applier creates it before
    /// everything else is applied.
    ///
    /// # Errors
    /// If the source fails.
    pub async fn make(
        kind: ServerKind,
        workload: ApplyLoad,
        transactions: u32,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let spec = ServerSpec::new(kind)
            .name("source")
            .options(primary_options(kind))
            .options(durability_options(TrialDurability::Full))
            .options(server_options(kind));
        let mut source = Server::start(spec).await?;
        source.create_replication_user().await?;
        fill(&source, workload).await?;
        // The source is stopped cleanly, so that all data is on disk and no client writes during the copy.
        source.stop().await?;
        let base = folder.join("base");
        copy_folder(source.data(), &base)?;
        forget_identity(&base)?;
        source.start_again().await?;

        let begin = Instant::now();
        let written = Arc::new(WrittenBacklog::default());
        write(&source, workload, transactions, &written).await?;
        let seconds = begin.elapsed().as_secs_f64();
        let mut connection = Connection::connect(&superuser(&source)).await?;
        connection.execute(&format!("CREATE TABLE {SCHEMA}.finished (id INT PRIMARY KEY)")).await?;
        connection.close().await;
        let sums = checksums(&source).await?;
        let transactions = written.transactions.load(Ordering::Relaxed);
        Ok(Self {
            source,
            transactions,
            rows: written.rows.load(Ordering::Relaxed),
            written_rate: transactions as f64 / seconds,
            base,
            sums,
        })
    }

    /// Copies the initial data to a target.
    ///
    /// # Errors
    /// If the copy fails.
    pub fn copy_base(&self, to: &Path) -> anyhow::Result<()> {
        copy_folder(&self.base, to)
    }

    /// Compares a target with the source. The source's data must be unchanged since the backlog was written.
    ///
    /// # Errors
    /// If the data of the target differs.
    pub async fn ensure_equal(&self, target: &Server) -> anyhow::Result<()> {
        let found = checksums(target).await?;
        ensure!(
            found == self.sums,
            "the target's data differs from the source's: tables and checksums on the source {:?}, on the target {found:?}",
            self.sums
        );
        Ok(())
    }
}

async fn fill(source: &Server, workload: ApplyLoad) -> anyhow::Result<()> {
    let mut connection = Connection::connect(&superuser(source)).await?;
    let flavour = connection.server().flavour;
    connection.execute("SET GLOBAL sync_binlog=0; SET GLOBAL innodb_flush_log_at_trx_commit=0").await?;
    connection.execute(&format!("CREATE DATABASE {SCHEMA}")).await?;
    for table in workload.schema() {
        connection.execute(&table).await?;
    }
    for statement in workload.fill(SEED) {
        connection.execute(&statement).await?;
    }
    connection.execute(&format!("CREATE TABLE {SCHEMA}.beacon (id INT PRIMARY KEY)")).await?;
    let reset = match flavour {
        Flavour::MySql => "RESET BINARY LOGS AND GTIDS",
        Flavour::MariaDb => "RESET MASTER",
    };
    connection.execute(reset).await?;
    // A target starts to replicate at a GTID, as every replica that is made from a copy does. This row gives
    // the source its first GTID.
    connection.execute(&format!("INSERT INTO {SCHEMA}.beacon VALUES (0)")).await?;
    // The source writes the list of its buffer pool pages to disk when it stops, so that each target loads
    // the same pages at its start.
    connection.execute("SET GLOBAL innodb_buffer_pool_dump_pct = 100").await?;
    if flavour == Flavour::MariaDb {
        connection.execute("SET GLOBAL gtid_slave_pos = @@global.gtid_binlog_pos").await?;
    }
    connection.close().await;
    Ok(())
}

/// Lets several clients commit this number of transactions in total.
async fn write(
    source: &Server,
    workload: ApplyLoad,
    transactions: u32,
    written: &Arc<WrittenBacklog>,
) -> anyhow::Result<()> {
    let left = Arc::new(AtomicU64::new(u64::from(transactions)));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (options, written, left) = (superuser(source), Arc::clone(written), Arc::clone(&left));
        let mut client = workload.client(SEED + 1 + u64::from(client));
        clients.spawn(async move {
            let mut connection = Connection::connect(&options).await?;
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            {
                let rows = commit_next(&mut client, &mut connection).await?;
                written.transactions.fetch_add(1, Ordering::Relaxed);
                written.rows.fetch_add(rows, Ordering::Relaxed);
            }
            connection.close().await;
            anyhow::Ok(())
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended?.context("a client of the workload failed")?;
    }
    Ok(())
}

/// Commits the next transaction of a client, and returns the number of changed rows.
///
/// # Errors
/// If the transaction fails for another reason than a deadlock, or loses too many deadlocks.
pub async fn commit_next(client: &mut LoadClient, connection: &mut Connection) -> anyhow::Result<u64> {
    let transaction = client.next();
    for _ in 0..TRIES_MAX {
        match connection.execute(&transaction.sql).await {
            Ok(_) => return Ok(transaction.rows),
            Err(error) if is_conflict(&error) => connection.execute("ROLLBACK").await?,
            Err(error) => return Err(error.into()),
        };
    }
    bail!("a transaction lost {TRIES_MAX} deadlocks: {}", transaction.sql)
}

fn is_conflict(error: &SessionError) -> bool {
    error.server_error().is_some_and(|error| matches!(error.number, DEADLOCK | LOCK_WAIT))
}

/// Returns the name and checksum of each table. The table of beacons is left out, and so are views, which
/// have no checksum.
///
/// # Errors
/// If the server does not answer.
pub async fn checksums(server: &Server) -> anyhow::Result<Vec<String>> {
    let mut connection = Connection::connect(&superuser(server)).await?;
    let question = format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema='{SCHEMA}' AND table_name <> 'beacon' \
         AND table_type='BASE TABLE' ORDER BY table_name"
    );
    let tables = connection.query(&question).await?;
    let tables: Vec<_> =
        tables.rows.iter().filter_map(|row| row.get_str(0)).map(|name| format!("{SCHEMA}.{name}")).collect();
    let answer = connection.query(&format!("CHECKSUM TABLE {}", tables.join(", "))).await?;
    connection.close().await;
    let sum = |row: &tailwater_session::TextRow| Some(format!("{} {}", row.get_str(0)?, row.get_str(1)?));
    let sums: Option<Vec<_>> = answer.rows.iter().map(sum).collect();
    sums.context("the server gives no checksum of a table")
}

/// Copies a folder to a new one and syncs the copy, so that the kernel does not write it back during a
/// measurement. The copy does not use reflinks, because the first write to a shared block takes longer.
///
/// # Errors
/// If the copy fails.
pub fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = Command::new("cp").args(["-a", "--reflink=never", "--"]).arg(from).arg(to).status()?;
    ensure!(status.success(), "cannot copy {} to {}: {status}", from.display(), to.display());
    let status = Command::new("sync").arg("--file-system").arg(to).status()?;
    ensure!(status.success(), "cannot sync the file system of {}: {status}", to.display());
    Ok(())
}

/// Removes the server's UUID and binlog from a copy. The GTIDs that the server has executed are in its
/// tables.
fn forget_identity(data: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(data)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == "auto.cnf" || name.starts_with("binlog.") {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Waits until the condition is true. It is checked every few milliseconds.
///
/// # Errors
/// If this takes longer than `patience`, or the check fails.
pub async fn wait_until(
    what: &str,
    patience: Duration,
    mut is: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let begin = Instant::now();
    while !is().await? {
        ensure!(begin.elapsed() < patience, "the step \"{what}\" took longer than {} s", patience.as_secs());
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    Ok(())
}
