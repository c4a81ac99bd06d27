//! A target: a server with a new copy of the source's data from before the backlog, and the state of its
//! replication.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use tailwater_sandbox::{Server, ServerSpec, SlowSync};
use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{MariadbPosition, MysqlGtidSet};

use super::benchmark_plan::Conditions;
use super::replication_variant::replica_options;
use super::source_backlog::{Backlog, durability_options, server_options, superuser, wait_until};
use super::workload::SCHEMA;

const LOAD_PATIENCE: Duration = Duration::from_secs(60);
const NO_SUCH_TABLE: u16 = 1146;

/// A running target. Its data is deleted when this value is dropped.
#[derive(Debug)]
pub struct ReplayTarget {
    /// The server.
    pub server: Server,
    /// A connection for statements and for reading the target's state.
    pub connection: Connection,
    // The last field, so that it is dropped after the server: the server must have ended before its data is
    // deleted.
    _data: RemovedFolder,
}

/// A folder that is deleted when this value is dropped.
#[derive(Debug)]
struct RemovedFolder(PathBuf);

impl Drop for RemovedFolder {
    fn drop(&mut self) {
        // An error is ignored: the folder is inside the benchmark's own folder, which is deleted later.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl ReplayTarget {
    /// Starts a target. It writes no binlog: native replication is fastest without one, and Tailwater needs
    /// none.
    ///
    /// # Errors
    /// If the target cannot be started.
    pub async fn start(
        backlog: &Backlog,
        conditions: Conditions,
        slow: Option<&SlowSync>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let kind = backlog.source.kind();
        let data = RemovedFolder(folder.join(format!("target-{:08x}", rand::random::<u32>())));
        backlog.copy_base(&data.0)?;
        let mut spec = ServerSpec::new(kind)
            .name("target")
            .data(&data.0)
            .options(["--server-id=2", "--skip-log-bin"])
            .options(server_options(kind))
            .options(durability_options(conditions.durability))
            .options(replica_options(kind).iter().copied());
        if conditions.slow_fsync {
            spec = spec
                .environment([slow.context("the library that slows down syncs is missing")?.environment()]);
        }
        let server = Server::start(spec).await?;
        let mut connection = Connection::connect(&superuser(&server)).await?;
        // Waits until the data is in memory. A replica that has run for a while has its data in memory, so
        // the measurement does not include loading the data.
        wait_until("loading the buffer pool", LOAD_PATIENCE, async || {
            let answer = connection.query("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_load_status'").await?;
            let status = answer.first().and_then(|row| row.get_str(1)).unwrap_or_default();
            Ok(status.contains("load completed"))
        })
        .await?;
        Ok(Self { server, connection, _data: data })
    }

    /// Whether the whole backlog is applied.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn is_finished(&mut self) -> anyhow::Result<bool> {
        match self.connection.query(&format!("SELECT id FROM {SCHEMA}.finished LIMIT 1")).await {
            Ok(_) => Ok(true),
            Err(error) if error.server_error().is_some_and(|error| error.number == NO_SUCH_TABLE) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the number of source transactions that native replication has applied.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn applied(&mut self) -> anyhow::Result<u64> {
        let flavour = self.connection.server().flavour;
        let variable = match flavour {
            Flavour::MySql => "gtid_executed",
            Flavour::MariaDb => "gtid_slave_pos",
        };
        let answer = self.connection.query(&format!("SELECT @@global.{variable}")).await?;
        let text = answer.scalar().unwrap_or_default();
        Ok(match flavour {
            Flavour::MySql => u64::try_from(MysqlGtidSet::parse(text)?.count())?,
            Flavour::MariaDb => MariadbPosition::parse(text)?.iter().map(|gtid| gtid.sequence).sum(),
        })
    }

    /// Fails if native replication has stopped with an error.
    ///
    /// # Errors
    /// With the server's error message.
    pub async fn ensure_replicating(&self) -> anyhow::Result<()> {
        let status = self.server.replica_status().await?.context("the target is not a replica")?;
        for (number, message) in [&status.sql_error, &status.io_error] {
            if *number != 0 {
                bail!("native replication stopped with error {number}: {message}");
            }
        }
        Ok(())
    }

    /// Returns the CPU time that the server has used so far.
    ///
    /// # Errors
    /// If the server is not running.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.server.cpu_time().context("the target is not running")
    }

    /// Kills the server, because its data is not needed any more.
    ///
    /// # Errors
    /// If the server has already ended.
    pub async fn end(mut self) -> anyhow::Result<()> {
        self.server.kill().await?;
        Ok(())
    }
}
