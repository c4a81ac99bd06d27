//! A source with a table several times larger than the buffer pool of its replica, and a prefetch beside that
//! replica with an account of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tailwater_prefetch::read_window::WindowLimits;
use tailwater_prefetch::{PrefetchFigures, PrefetchOptions, PrefetchSource, PrefetchStatus, run};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, native_replica, require};
use tailwater_session::{ConnectOptions, PasswordText};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

/// How long a condition may take. Reaching it is an error.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The number of rows of table `d.t`, of about 1 KB each.
pub const ROWS: u64 = 60_000;

/// The account of the prefetch on the replica.
const ACCOUNT: &str = "ahead";

/// A source and its native replica.
pub struct ColdReplica {
    pub source: Server,
    pub replica: Server,
}

/// A prefetch that runs in this process.
pub struct RunningPrefetch {
    pub figures: Arc<PrefetchFigures>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl ColdReplica {
    /// Starts both servers. `None` if the server is not on this machine. The table has two secondary indexes
    /// with values in random order, so that each changed row needs pages of its own.
    pub async fn start(kind: ServerKind, pool_mib: u64) -> anyhow::Result<Option<Self>> {
        let Some(_) = require(kind) else { return Ok(None) };
        let options = |pool: u64| {
            [
                format!("--innodb-buffer-pool-size={pool}M"),
                // By default, the server keeps more pages free than a small pool has.
                "--innodb-lru-scan-depth=100".to_owned(),
                "--innodb-buffer-pool-load-at-startup=OFF".to_owned(),
                "--innodb-buffer-pool-dump-at-shutdown=OFF".to_owned(),
                "--innodb-flush-method=O_DIRECT".to_owned(),
                "--innodb-flush-log-at-trx-commit=0".to_owned(),
                "--sync-binlog=0".to_owned(),
            ]
        };
        let source = Server::start(ServerSpec::new(kind).name("source").options(options(128))).await?;
        source
            .sql(&format!(
                "CREATE DATABASE d; USE d; CREATE TABLE d.n (n INT UNSIGNED PRIMARY KEY); INSERT INTO d.n VALUES \
                 (0),(1),(2),(3),(4),(5),(6),(7),(8),(9);
                 CREATE TABLE d.t (id INT UNSIGNED PRIMARY KEY, a INT UNSIGNED NOT NULL, b VARCHAR(60) NOT NULL, \
                 filler CHAR(250) CHARACTER SET utf8mb4 NOT NULL, more VARCHAR(800) NOT NULL, \
                 KEY on_a (a), UNIQUE KEY on_b (b));
                 INSERT INTO d.t SELECT id, CRC32(id), LEFT(SHA2(id, 256), 40), 'x', REPEAT('y', 800) FROM \
                 (SELECT 1 + a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n AS id \
                 FROM d.n a, d.n b, d.n c, d.n d, d.n e) numbers WHERE id <= {ROWS} ORDER BY id"
            ))
            .await?;
        let replica = Server::start(ServerSpec::new(kind).name("replica").options(options(pool_mib))).await?;
        replica.replicate_from(&source).await?;
        let this = Self { source, replica };
        this.wait_until_applied().await?;
        let rights = match kind.flavour() {
            Flavour::MySql => "SELECT, REPLICATION CLIENT",
            Flavour::MariaDb => "SELECT, REPLICA MONITOR",
        };
        // The account must not be in the replica's GTIDs, so that the test can compare them.
        this.replica
            .sql(&format!(
                "SET sql_log_bin = 0; CREATE USER {ACCOUNT}@'127.0.0.1' IDENTIFIED BY 'ahead'; \
                 GRANT {rights} ON *.* TO {ACCOUNT}@'127.0.0.1'"
            ))
            .await?;
        Ok(Some(this))
    }

    pub fn flavour(&self) -> Flavour {
        self.source.kind().flavour()
    }

    pub async fn wait_until_applied(&self) -> anyhow::Result<()> {
        let variable = match self.flavour() {
            Flavour::MySql => "gtid_executed",
            Flavour::MariaDb => "gtid_binlog_pos",
        };
        let position = self.source.sql(&format!("SELECT @@global.{variable}")).await?.concat();
        let position = position.replace("\\n", "");
        ensure!(
            self.replica.wait_for_gtids(&position, PATIENCE).await?,
            "the replica does not apply {position}"
        );
        Ok(())
    }

    /// The number of clients that the source sends its binlog to. The replica is one of them.
    pub async fn readers_of_source(&self) -> anyhow::Result<usize> {
        let processes = self.source.sql("SHOW PROCESSLIST").await?;
        Ok(processes.iter().filter(|line| line.contains("Binlog Dump")).count())
    }

    /// Stops the applier of the replica; the receiver continues.
    pub async fn stop_applier(&self) -> anyhow::Result<()> {
        let stop = native_replica::stop_statement(self.flavour());
        self.replica.sql(&format!("{stop} SQL_THREAD")).await?;
        Ok(())
    }

    /// Lets the replica apply everything, and returns how many pages it reads from disk meanwhile.
    pub async fn apply(&self) -> anyhow::Result<u64> {
        let before = self.pool_reads().await?;
        let start = native_replica::start_statement(self.flavour());
        self.replica.sql(&format!("{start} SQL_THREAD")).await?;
        self.wait_until_applied().await?;
        Ok(self.pool_reads().await? - before)
    }

    pub async fn pool_reads(&self) -> anyhow::Result<u64> {
        let row = self.replica.sql("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_reads'").await?.concat();
        row.split('\t')
            .nth(1)
            .and_then(|value| value.parse().ok())
            .with_context(|| format!("no number in {row}"))
    }

    /// Reads other rows, until the buffer pool has none of the pages of before.
    pub async fn evict(&self) -> anyhow::Result<()> {
        // Without this time, a scan replaces the pages of the whole pool, not only of its old part.
        let scan = "SELECT SUM(LENGTH(more)) FROM d.t FORCE INDEX (PRIMARY);";
        let time = "SET GLOBAL innodb_old_blocks_time";
        self.replica.sql(&format!("{time} = 0; {scan} {scan} {time} = 1000")).await?;
        Ok(())
    }

    /// Options of a prefetch that is always on and reads everything that is ahead.
    pub fn options(&self) -> PrefetchOptions {
        let account = self.replica.connect_options();
        let replica =
            ConnectOptions { user: ACCOUNT.to_owned(), password: PasswordText::new("ahead"), ..account };
        let source = PrefetchSource::Server(Box::new(self.source.replication_options()));
        PrefetchOptions {
            window: WindowLimits { seconds_min: 0, bytes_min: 0, ..WindowLimits::default() },
            feedback: None,
            connections: 4,
            poll: Duration::from_millis(50),
            ..PrefetchOptions::new(replica, source)
        }
    }
}

impl RunningPrefetch {
    pub fn start(options: PrefetchOptions) -> Self {
        let figures = Arc::<PrefetchFigures>::default();
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(options, Arc::clone(&figures), stop.clone()));
        Self { figures, stop, task }
    }

    /// Waits until the figures meet a condition.
    pub async fn wait_for(
        &self,
        what: &str,
        condition: impl Fn(&PrefetchStatus) -> bool,
    ) -> anyhow::Result<PrefetchStatus> {
        let began = Instant::now();
        loop {
            let status = self.figures.status();
            if condition(&status) {
                return Ok(status);
            }
            ensure!(began.elapsed() < PATIENCE, "{what}: not reached by {status:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn stop(self) -> anyhow::Result<PrefetchStatus> {
        self.stop.cancel();
        self.task.await?;
        Ok(self.figures.status())
    }
}
