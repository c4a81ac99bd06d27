//! Measures how fast an existing binlog is captured, and the memory use while a huge transaction is captured.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tailwater_log::LogDir;
use tailwater_sandbox::{ChildProcess, ReservedPort, Server, ServerKind};
use tailwater_session::{ConnectOptions, Connection};

use super::capture_servers::{AckVariant, Stage, plain_primary};
use crate::fault_trial::{SOURCE_NAME, TrialDurability, TrialFolder, serve_config, serve_options};

/// A primary whose binlog already has at least the requested number of bytes.
#[derive(Debug)]
pub struct ExistingBinlog {
    server: Server,
    files: Vec<(String, u64)>,
    folder: TrialFolder,
    runs: u32,
}

/// A relay that serves the log that it captured.
#[derive(Debug)]
pub struct ServingRelay {
    /// The relay's process.
    pub relay: ChildProcess,
    /// The options with which readers connect to the relay.
    pub options: ConnectOptions,
    _port: ReservedPort,
}

fn start_relay(folder: &Path) -> anyhow::Result<ChildProcess> {
    let config = folder.join("tailwater.toml");
    let arguments = ["run".as_ref(), "-c".as_ref(), config.as_os_str()];
    Ok(ChildProcess::start(std::env::current_exe()?, arguments, &folder.join("relay.log"))?)
}

/// Number of rows in one transaction of the bulk load; each row has 1 KiB.
const ROWS_PER_STATEMENT: u32 = 1_000;
const BULK_ROW_BYTES: u64 = 1_024;

async fn bulk_insert(connection: &mut Connection) -> anyhow::Result<()> {
    let sql = format!(
        "INSERT INTO tw_bulk.rows_of_bytes (body) SELECT REPEAT(SHA2(RAND(), 256), {}) FROM tw_bulk.numbers",
        BULK_ROW_BYTES / 64
    );
    connection.execute(&sql).await?;
    Ok(())
}

async fn prepare_bulk(connection: &mut Connection) -> anyhow::Result<()> {
    connection.execute("CREATE DATABASE tw_bulk").await?;
    connection.execute("CREATE TABLE tw_bulk.numbers (n INT PRIMARY KEY)").await?;
    connection
        .execute(
            "CREATE TABLE tw_bulk.rows_of_bytes (id BIGINT AUTO_INCREMENT PRIMARY KEY, body VARBINARY(1024))",
        )
        .await?;
    let mut values = String::from("INSERT INTO tw_bulk.numbers VALUES (0)");
    for number in 1..ROWS_PER_STATEMENT {
        // Writing to a String cannot fail.
        let _ = write!(values, ",({number})");
    }
    connection.execute(&values).await?;
    Ok(())
}

impl ExistingBinlog {
    /// Starts a primary and writes `bytes` bytes of row events, in transactions of 1 MiB.
    ///
    /// # Errors
    /// If the server fails.
    pub async fn make(kind: ServerKind, bytes: u64) -> anyhow::Result<Self> {
        let server = plain_primary(kind).await?;
        let mut connection = Connection::connect(&server.connect_options()).await?;
        prepare_bulk(&mut connection).await?;
        for _ in 0..bytes / (u64::from(ROWS_PER_STATEMENT) * BULK_ROW_BYTES) {
            bulk_insert(&mut connection).await?;
        }
        let logs = connection.query("SHOW BINARY LOGS").await?;
        let file = |row: &tailwater_session::TextRow| Some((row.get_str(0)?.to_owned(), row.get_u64(1)?));
        let files: Option<Vec<_>> = logs.rows.iter().map(file).collect();
        connection.close().await;
        let files = files.context("the primary lists no binlog files")?;
        Ok(Self { server, files, folder: TrialFolder::new(None)?, runs: 0 })
    }

    /// Returns the total size of the primary's binlog files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, size)| size).sum()
    }

    fn fresh_folder(&mut self) -> anyhow::Result<PathBuf> {
        self.runs += 1;
        let folder = self.folder.path().join(format!("run-{}", self.runs));
        std::fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// Returns the options with which readers connect to the primary itself.
    pub fn source(&self) -> ConnectOptions {
        self.server.replication_options()
    }

    /// Returns the primary's version.
    pub fn version(&self) -> &str {
        self.server.version()
    }

    /// Starts a relay that captures the whole binlog. `more` is appended to its configuration.
    fn start_tailwater(&mut self, more: &str) -> anyhow::Result<(ChildProcess, PathBuf)> {
        let folder = self.fresh_folder()?;
        let account = self.server.replication_options();
        std::fs::write(
            folder.join("client.cnf"),
            format!("[client]\nuser={}\npassword={}\n", account.user, account.password.expose()),
        )?;
        let config = format!(
            "[log]\ndirectory = \"log\"\nack = \"durable\"\n[[source]]\nname = \"{SOURCE_NAME}\"\nhost = \"127.0.0.1\"\nport = {}\n\
             defaults_file = \"client.cnf\"\ntls = \"off\"\nserver_id = 4202\nsemi_sync = false\nstart = \"oldest\"\n{more}",
            self.server.port()
        );
        let path = folder.join("tailwater.toml");
        std::fs::write(&path, config)?;
        let relay = start_relay(&folder)?;
        Ok((relay, folder))
    }

    /// Waits until a relay has captured the whole binlog durably.
    async fn captured(&self, relay: &mut ChildProcess, folder: &Path) -> anyhow::Result<()> {
        let begin = Instant::now();
        let log = folder.join("log").join(SOURCE_NAME);
        // The end of the durable log is read from the index, which never contains transactions that are not
        // durable yet.
        while durable_bytes(&log) < self.bytes() {
            ensure!(relay.is_running(), "the relay has ended; see {}", folder.join("relay.log").display());
            if begin.elapsed() > Duration::from_secs(300) {
                bail!("the relay did not reach the end of the binlog");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Captures the whole binlog with Tailwater, with fdatasync for every byte. Returns MB/s, and the relay's
    /// peak memory in MiB.
    ///
    /// # Errors
    /// If the relay fails.
    pub async fn by_tailwater(&mut self) -> anyhow::Result<(f64, f64)> {
        let begin = Instant::now();
        let (mut relay, folder) = self.start_tailwater("")?;
        self.captured(&mut relay, &folder).await?;
        let rate = self.bytes() as f64 / 1e6 / begin.elapsed().as_secs_f64();
        let memory_mib = relay.memory_bytes_max().unwrap_or(0) as f64 / f64::from(1 << 20);
        relay.terminate(Duration::from_secs(30)).await?;
        std::fs::remove_dir_all(&folder)?;
        Ok((rate, memory_mib))
    }

    /// Captures the whole binlog with Tailwater, and then restarts Tailwater to serve the log.
    ///
    /// # Errors
    /// If the relay fails.
    pub async fn serve_by_tailwater(&mut self) -> anyhow::Result<ServingRelay> {
        let port = ReservedPort::pick()?;
        let (mut relay, folder) = self.start_tailwater(&serve_config(port.number()))?;
        self.captured(&mut relay, &folder).await?;
        // Restart Tailwater, because its peak memory while it captures must not count as memory for serving.
        relay.terminate(Duration::from_secs(30)).await?;
        let relay = start_relay(&folder)?;
        let options = serve_options(port.number());
        let begin = Instant::now();
        while let Err(error) = Connection::connect(&options).await {
            ensure!(begin.elapsed() < Duration::from_secs(30), "tailwater does not serve the log: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(ServingRelay { relay, options, _port: port })
    }

    /// Copies the whole binlog with the server's own tool, which does not fsync. Returns MB/s.
    ///
    /// # Errors
    /// If the tool fails.
    pub async fn by_native_tool(&mut self) -> anyhow::Result<f64> {
        let folder = self.fresh_folder()?;
        let mut command = tokio::process::Command::from(self.server.tool(native_tool(self.server.kind()))?);
        let first = self.files.first().map(|(file, _)| file.clone()).unwrap_or_default();
        let account = self.server.replication_options();
        let mut target = folder.clone().into_os_string();
        target.push("/");
        command
            .args([
                "--no-defaults",
                "--raw",
                "--read-from-remote-server",
                "--to-last-log",
                "--host=127.0.0.1",
            ])
            .arg(format!("--port={}", self.server.port()))
            .arg(format!("--user={}", account.user))
            .env("MYSQL_PWD", account.password.expose())
            .arg("--result-file")
            .arg(&target)
            .arg(first);
        let begin = Instant::now();
        let output = command.output().await?;
        let seconds = begin.elapsed().as_secs_f64();
        ensure!(
            output.status.success(),
            "the native tool failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let copied: u64 =
            std::fs::read_dir(&folder)?.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum();
        ensure!(copied >= self.bytes(), "the native tool copied {copied} of {} bytes", self.bytes());
        std::fs::remove_dir_all(&folder)?;
        Ok(self.bytes() as f64 / 1e6 / seconds)
    }

    /// Stops the primary.
    ///
    /// # Errors
    /// If the primary does not stop.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.server.stop().await?;
        Ok(())
    }
}

/// Returns the name of the server's own tool for reading binlogs.
pub fn native_tool(kind: ServerKind) -> &'static str {
    match kind.flavour() {
        tailwater_wire::Flavour::MySql => "mysqlbinlog",
        tailwater_wire::Flavour::MariaDb => "mariadb-binlog",
    }
}

/// Returns how much of a log is durable, in bytes.
pub fn durable_bytes(log: &Path) -> u64 {
    // Before the relay has created its log, the log cannot be opened. That counts as 0 bytes and is not an
    // error.
    let segments = LogDir::open_read_only(log).and_then(|log| log.segments());
    segments.map_or(0, |segments| segments.iter().map(|segment| segment.bytes).sum())
}

/// Commits one transaction of `bytes` bytes on a primary that Tailwater captures. Returns the relay's peak
/// memory in MiB.
///
/// # Errors
/// If a server or the relay fails.
pub async fn memory_with_huge_transaction(kind: ServerKind, bytes: u64) -> anyhow::Result<f64> {
    let mut stage = Stage::start(kind, TrialDurability::Reduced).await?;
    stage.attach(AckVariant::Durable).await?;
    let mut options = stage.trial.primary.connect_options();
    options.read_timeout = Some(Duration::from_secs(900));
    let mut connection = Connection::connect(&options).await?;
    prepare_bulk(&mut connection).await?;
    connection.execute("BEGIN").await?;
    for _ in 0..bytes / (u64::from(ROWS_PER_STATEMENT) * BULK_ROW_BYTES) {
        bulk_insert(&mut connection).await?;
    }
    connection.execute("COMMIT").await?;
    connection.close().await;
    let relay = stage.trial.relay().context("the relay is not running")?;
    let memory = relay.memory_bytes_max().context("the relay has ended")?;
    stage.stop().await?;
    Ok(memory as f64 / f64::from(1 << 20))
}
