//! The servers of the benchmark: one with the tables, and empty targets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use tailwater_sandbox::{Server, ServerKind, ServerSpec};
use tailwater_session::{ConnectOptions, Connection, LoadPiece};
use tailwater_wire::Flavour;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::test_data::BenchTable;
use crate::arguments::TablesData;
use crate::fault_trial::primary_options;

/// Number of rows in one transaction that fills a table.
const FILL_ROWS: u64 = 50_000;
/// Number of connections that fill the tables.
const FILLERS: usize = 3;
/// A server with at most this number of dirty pages counts as idle. The server's own threads always modify
/// some pages.
const DIRTY_PAGES_MAX: u64 = 100;
/// Time limit for a server to become idle.
const REST_PATIENCE: Duration = Duration::from_secs(120);

/// Returns the options of all servers: enough memory for the data, a redo log that does not limit the speed,
/// and the default durability of a server without a binlog.
pub fn options(kind: ServerKind, rows: u64) -> Vec<String> {
    let pool_mib = (rows / 2_000).clamp(512, 4096);
    let mut options = vec![
        format!("--innodb-buffer-pool-size={pool_mib}M"),
        "--local-infile=1".into(),
        "--max-connections=100".into(),
        "--max-allowed-packet=64M".into(),
    ];
    match kind.flavour() {
        Flavour::MySql => options.push("--innodb-redo-log-capacity=1G".into()),
        Flavour::MariaDb => options.push("--innodb-log-file-size=1G".into()),
    }
    options
}

/// Starts the server that is dumped. It writes a binlog, like servers with backups.
///
/// # Errors
/// If the server does not start.
pub async fn start_source(kind: ServerKind, rows: u64) -> anyhow::Result<Server> {
    let spec = ServerSpec::new(kind)
        .name("source")
        .options(primary_options(kind))
        .options(["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0"])
        .options(options(kind, rows));
    Ok(Server::start(spec).await?)
}

/// Starts an empty server.
///
/// # Errors
/// If the server does not start.
pub async fn start_target(kind: ServerKind, rows: u64) -> anyhow::Result<Server> {
    let spec = ServerSpec::new(kind)
        .name("target")
        .options(["--server-id=2", "--skip-log-bin"])
        .options(options(kind, rows));
    Ok(Server::start(spec).await?)
}

/// Empties a target and waits until it is idle. The server is not restarted, so it keeps its memory. On a
/// virtual machine, the first use of memory takes longer than a load, and only the first contender would lose
/// this time.
///
/// # Errors
/// If the server refuses a statement, or does not become idle.
pub async fn empty(target: &Server, set: TablesData) -> anyhow::Result<()> {
    let mut connection = Connection::connect(&target.socket_options()).await?;
    for schema in [set.schema(), "tailwater"] {
        connection.execute(&format!("DROP DATABASE IF EXISTS {schema}")).await?;
    }
    let before =
        connection.query("SELECT @@innodb_max_dirty_pages_pct, @@innodb_max_dirty_pages_pct_lwm").await?;
    let before =
        before.first().and_then(|row| Some((row.get_str(0)?.to_owned(), row.get_str(1)?.to_owned())));
    let (most, from) = before.context("the server does not report its limits of dirty pages")?;
    connection.execute("SET GLOBAL innodb_max_dirty_pages_pct = 0").await?;
    let begin = Instant::now();
    loop {
        let answer = connection.query("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'").await?;
        let dirty = answer
            .first()
            .and_then(|row| row.get_str(1))
            .context("the server does not report its number of dirty pages")?;
        if dirty.parse::<u64>()? <= DIRTY_PAGES_MAX {
            break;
        }
        ensure!(begin.elapsed() < REST_PATIENCE, "the target still has {dirty} dirty pages");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Restore both limits. The server never keeps innodb_max_dirty_pages_pct_lwm above
    // innodb_max_dirty_pages_pct, so the statement that set the latter to 0 has lowered both.
    for (variable, value) in [("innodb_max_dirty_pages_pct", most), ("innodb_max_dirty_pages_pct_lwm", from)]
    {
        connection.execute(&format!("SET GLOBAL {variable} = {value}")).await?;
    }
    connection.close().await;
    Ok(())
}

/// Creates and fills the tables.
///
/// # Errors
/// If the server refuses a statement.
pub async fn fill(server: &Server, set: TablesData, rows: u64) -> anyhow::Result<()> {
    let connect = ConnectOptions { local_infile: true, ..server.socket_options() };
    let mut connection = Connection::connect(&connect).await?;
    connection.execute("SET SESSION sql_log_bin = 0").await?;
    connection.execute(&format!("CREATE DATABASE {}", set.schema())).await?;
    let mut parts = Vec::new();
    for table in set.tables(rows) {
        connection.execute(&table.create).await?;
        let table = Arc::new(table);
        for from in (0..table.rows).step_by(usize::try_from(FILL_ROWS)?) {
            parts.push((Arc::clone(&table), from, (from + FILL_ROWS).min(table.rows)));
        }
    }
    parts.reverse();
    let parts = Arc::new(Mutex::new(parts));
    let mut fillers = JoinSet::new();
    for _ in 0..FILLERS {
        fillers.spawn(fill_parts(connect.clone(), set, Arc::clone(&parts)));
    }
    while let Some(filled) = fillers.join_next().await {
        filled??;
    }
    for table in set.tables(rows) {
        connection.query(&format!("ANALYZE LOCAL TABLE {}.{}", set.schema(), table.name)).await?;
    }
    connection.close().await;
    Ok(())
}

type FillParts = Arc<Mutex<Vec<(Arc<BenchTable>, u64, u64)>>>;

async fn fill_parts(connect: ConnectOptions, set: TablesData, parts: FillParts) -> anyhow::Result<()> {
    let mut connection = Connection::connect(&connect).await?;
    connection.execute("SET SESSION sql_log_bin = 0, unique_checks = 0").await?;
    loop {
        let part = parts.lock().await.pop();
        let Some((table, from, to)) = part else { break };
        let (schema, name) = (set.schema(), table.name.clone());
        let lines = tokio::task::spawn_blocking(move || table.lines(from, to)).await?;
        let (sender, mut receiver) = mpsc::channel(2);
        sender.send(LoadPiece::Bytes(Bytes::from(lines))).await?;
        sender.send(LoadPiece::End).await?;
        let statement =
            format!("LOAD DATA LOCAL INFILE 'rows' INTO TABLE {schema}.{name} CHARACTER SET binary");
        // MySQL accepts JSON values only with a character set.
        let statement = match (name.as_str(), connection.server().flavour) {
            ("orders", Flavour::MySql) => format!(
                "{statement} (id, customer, amount, discount, score, placed, changed, state, name, note, token, @json, \
                 flags) SET attributes = CONVERT(@json USING utf8mb4)"
            ),
            _ => statement,
        };
        let loaded = connection.load_data(statement.as_bytes(), &mut receiver).await?;
        ensure!(
            loaded.affected_rows == to - from,
            "{name} has {} of {} rows after LOAD DATA",
            loaded.affected_rows,
            to - from
        );
    }
    connection.close().await;
    Ok(())
}

/// Returns the checksum of each table, as computed by the server.
///
/// # Errors
/// If a table is missing, or a checksum cannot be read.
pub async fn checksums(
    server: &Server,
    set: TablesData,
    rows: u64,
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut connection = Connection::connect(&server.socket_options()).await?;
    let mut sums = BTreeMap::new();
    for table in set.tables(rows) {
        let answer = connection.query(&format!("CHECKSUM TABLE {}.{}", set.schema(), table.name)).await?;
        let sum =
            answer.first().and_then(|row| row.get_str(1)).context("CHECKSUM TABLE returned no checksum")?;
        sums.insert(table.name, sum.to_owned());
    }
    connection.close().await;
    Ok(sums)
}
