//! Measures the peak memory of the daemon for a transaction and a row that are larger than its memory limits.
//!
//! The peak covers capture, log and channel together. `TAILWATER_LONG=1` uses a transaction of 1 GiB and a
//! row of 64 MiB, and tests both flavours in both commit orders.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tailwater_lab::fault_trial::{SOURCE_NAME, Trial, TrialDurability, TrialFolder, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_wire::Flavour;

use crate::shell_session::PROGRAM;

/// Time limit of each wait on a busy machine. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(1800);

const MIB: u64 = 1 << 20;

/// Maximum memory of the daemon in bytes for a transaction of any length with short rows. About 48 MiB of it
/// are pages of the program itself, which a build without optimization makes large. For a long row, the
/// memory for its row images is added to this limit.
const BASE_BYTES_MAX: u64 = 72 * MIB;

/// Number of images of a long row in memory. The event of an updated row has two images. The statement that
/// applies the row, a BINLOG event or SQL, is never in memory as a whole.
const LONG_ROW_COPIES_MAX: u64 = 2;

/// Number of images of a long row in memory if the row is applied by SQL. The allocator keeps the freed
/// memory of an earlier row if that row was shorter than 32 MiB.
const LONG_ROW_COPIES_BY_SQL_MAX: u64 = 3;

/// Maximum of each measured memory peak of the daemon, in bytes.
const DAEMON_BYTES_MAX: u64 = 256 * MIB;

/// Queries whose result changes if a transaction is applied twice, never, or partly.
const SUMS: [&str; 3] = [
    "SELECT COUNT(*), SUM(n) FROM large.hot",
    "SELECT COUNT(*), SUM(n) FROM large.notes",
    "SELECT COUNT(*), SUM(id), SUM(LENGTH(body)), SUM(CRC32(body)) FROM large.t",
];

/// Length in bytes of each row of the large transaction.
const SHORT_ROW_BYTES: u64 = 128 << 10;

/// Sizes of the large transaction and of the large row.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// The large transaction has `2^doublings` rows.
    doublings: usize,
    row_bytes: u64,
}

fn is_long() -> bool {
    std::env::var_os("TAILWATER_LONG").is_some()
}

fn size() -> Size {
    match is_long() {
        false => Size { doublings: 9, row_bytes: 24 * MIB },
        true => Size { doublings: 13, row_bytes: 64 * MIB },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_bounded_for_large_transactions_and_rows_mariadb() -> Result<()> {
    if is_long() {
        measured(ServerKind::Mariadb1011, "independent").await?;
    }
    measured(ServerKind::Mariadb1011, "source").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_bounded_for_large_transactions_and_rows_mysql() -> Result<()> {
    if is_long() {
        measured(ServerKind::Mysql97, "source").await?;
    }
    measured(ServerKind::Mysql97, "independent").await
}

fn options(kind: ServerKind) -> Vec<String> {
    // MySQL requires a redo log that is ten times as large as the row.
    let redo = match kind.flavour() {
        Flavour::MySql => "--innodb-redo-log-capacity=2G",
        Flavour::MariaDb => "--innodb-log-file-size=1G",
    };
    vec!["--max-allowed-packet=1G".to_owned(), redo.to_owned()]
}

async fn measured(kind: ServerKind, order: &str) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let size = size();
    let folder = TrialFolder::new(None)?;
    let mut target = ServerSpec::new(kind).name("target").options(options(kind));
    target = target.options(["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0", "--server-id=2"]);
    let target = Server::start(target).await?;
    let mut trial = start(kind, &folder, &target, order).await?;
    trial
        .primary
        .sql(
            "CREATE DATABASE large; CREATE TABLE large.hot (id INT PRIMARY KEY, n BIGINT NOT NULL); \
             CREATE TABLE large.notes (n INT); INSERT INTO large.hot VALUES (0,0); \
             CREATE TABLE large.t (id INT AUTO_INCREMENT PRIMARY KEY, body LONGBLOB)",
        )
        .await?;
    let double = "INSERT INTO large.t (body) SELECT CONCAT(id, body) FROM large.t;".repeat(size.doublings);
    let fill = format!("INSERT INTO large.t (body) VALUES (REPEAT('b', {SHORT_ROW_BYTES})); {double}");
    let rows = stage(&mut trial, &target, "DO 1", &[&fill]).await?;

    let wide = size.row_bytes;
    let wide = [
        format!("INSERT INTO large.t (id, body) VALUES (1000001, REPEAT('x', {wide})), (1000002, 'short')"),
        "UPDATE large.t SET body=CONCAT('y', body) WHERE id > 1000000".to_owned(),
        format!("INSERT INTO large.t (id, body) VALUES (1000003, REPEAT('z', {wide}))"),
        "DELETE FROM large.t WHERE id=1000001".to_owned(),
    ];
    let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
    let row = stage(&mut trial, &target, "DO 1", &wide).await?;
    // The channel applies the same rows again. The target's table now has one more column, so the channel
    // applies the rows by SQL.
    let wide: Vec<&str> = std::iter::once("DELETE FROM large.t WHERE id > 1000000").chain(wide).collect();
    let by_sql =
        stage(&mut trial, &target, "SET SESSION sql_log_bin=0; ALTER TABLE large.t ADD extra INT", &wide)
            .await?;
    eprintln!(
        "{kind}, {order}: a transaction of {} MiB in {} MiB of memory, rows of {} MiB in {} MiB, by SQL in {} MiB",
        (SHORT_ROW_BYTES << size.doublings) / MIB,
        rows / MIB,
        size.row_bytes / MIB,
        row / MIB,
        by_sql / MIB
    );
    ensure!(rows < BASE_BYTES_MAX, "the daemon used {} MiB for a large transaction", rows / MIB);
    let row_max = BASE_BYTES_MAX + LONG_ROW_COPIES_MAX * size.row_bytes;
    ensure!(row < row_max.min(DAEMON_BYTES_MAX), "the daemon used {} MiB for a large row", row / MIB);
    let by_sql_max = BASE_BYTES_MAX + LONG_ROW_COPIES_BY_SQL_MAX * size.row_bytes;
    ensure!(
        by_sql < by_sql_max.min(DAEMON_BYTES_MAX),
        "the daemon used {} MiB for a large row by SQL",
        by_sql / MIB
    );
    trial.stop_relay().await
}

/// Starts a primary, and configures a daemon with default memory limits whose channel applies to `target`.
async fn start(kind: ServerKind, folder: &TrialFolder, target: &Server, order: &str) -> Result<Trial> {
    let mut trial = Trial::start(TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: options(kind),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: folder.path().to_owned(),
    })
    .await?;
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"target\"\nsource = \"{SOURCE_NAME}\"\nsocket = \"{}\"\nuser = \"root\"\n\
         tls = \"off\"\nstart = \"oldest\"\ncommit_order = \"{order}\"\n",
        target.socket().display()
    ))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    Ok(trial)
}

/// Runs `change` on the target, then starts a new daemon, which applies `transactions`. Returns the peak
/// memory of the daemon in bytes.
async fn stage(trial: &mut Trial, target: &Server, change: &str, transactions: &[&str]) -> Result<u64> {
    trial.stop_relay().await?;
    target.sql(change).await?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    for transaction in transactions {
        let count = "UPDATE large.hot SET n=n+1; INSERT INTO large.notes SELECT n FROM large.hot";
        trial.primary.sql(&format!("BEGIN; {transaction}; {count}; COMMIT; BEGIN; {count}; COMMIT")).await?;
    }
    wait_equal(trial, target).await?;
    trial
        .relay()
        .and_then(|relay| relay.memory_bytes_max())
        .context("the peak memory of the daemon (VmHWM) cannot be read")
}

async fn wait_equal(trial: &mut Trial, target: &Server) -> Result<()> {
    let sums = SUMS.join("; ");
    let wanted = trial.primary.sql(&sums).await?;
    let started = Instant::now();
    loop {
        // The query whose result changes with the last transaction runs first, because its result is the
        // smallest.
        if target.sql(SUMS[0]).await.unwrap_or_default() == wanted[..1] {
            let found = target.sql(&sums).await?;
            ensure!(found == wanted, "the target has the sums {found:?}, expected {wanted:?}");
            return Ok(());
        }
        let words = trial.relay_log_tail();
        ensure!(
            trial.relay().context("the daemon is not running")?.is_running(),
            "the daemon ended: {words}"
        );
        if started.elapsed() > PATIENCE || words.contains("the channel has stopped") {
            bail!("the target does not get the sums {wanted:?}; the daemon logged: {words}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
