//! A cluster for tests: an old primary, a replica, and a server that replaces the relay's log. For
//! native replication, that server and a relay are alike.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_manager::actions::replication_setup::{self, ReplicationSource};
use tailwater_sandbox::replication_setup::{REPLICATION_PASSWORD, REPLICATION_USER};
use tailwater_sandbox::{Server, ServerKind, ServerSpec};
use tailwater_session::{AccountPurpose, ConnectOptions, Connection, grant_statement};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

/// A time limit that is reached only if a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test on MySQL 9.7 and MariaDB 10.11.
macro_rules! on_both_families {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            #[tokio::test]
            async fn mysql_97() -> anyhow::Result<()> {
                super::$test(tailwater_sandbox::ServerKind::Mysql97).await
            }

            #[tokio::test]
            async fn mariadb_1011() -> anyhow::Result<()> {
                super::$test(tailwater_sandbox::ServerKind::Mariadb1011).await
            }
        }
    )*};
}
pub(crate) use on_both_families;

pub fn statement(kind: ServerKind, mysql: &'static str, mariadb: &'static str) -> &'static str {
    match kind.flavour() {
        Flavour::MySql => mysql,
        Flavour::MariaDb => mariadb,
    }
}

pub async fn start(kind: ServerKind, name: &str, id: u32) -> Result<Server> {
    let spec = ServerSpec::new(kind).name(name).option(format!("--server-id={id}"));
    let updates = statement(kind, "--log-replica-updates=1", "--log-slave-updates=1");
    let server =
        Server::start(spec.options([updates, "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0"]))
            .await?;
    server.create_replication_user().await?;
    // The grants that `tailwater grants` prints for failovers, and no more.
    let grant = grant_statement(AccountPurpose::Failover, kind.flavour(), LEADER);
    let load = statement(kind, "GRANT INSERT ON mysql.plugin TO leader@'%'", "DO 0");
    server.sql(&format!("SET SESSION sql_log_bin = 0; CREATE USER {LEADER}; {grant}; {load}")).await?;
    Ok(server)
}

/// The account that executes the actions.
const LEADER: &str = "leader@'%'";

pub fn as_leader(to: &Server) -> ConnectOptions {
    ConnectOptions { user: "leader".into(), ..to.connect_options() }
}

pub fn address(of: &Server) -> ReplicationSource {
    ReplicationSource::new("127.0.0.1", of.port(), REPLICATION_USER, REPLICATION_PASSWORD.into())
}

pub async fn connect(to: &Server) -> Result<Connection> {
    Ok(Connection::connect(&as_leader(to)).await?)
}

pub struct Cluster {
    pub kind: ServerKind,
    pub primary: Server,
    pub replica: Server,
    /// The server that replaces the log.
    pub log: Server,
}

impl Cluster {
    /// Starts the servers. The primary has a table, and both other servers replicate from it.
    pub async fn start(kind: ServerKind) -> Result<Self> {
        let (primary, replica, log) =
            tokio::try_join!(start(kind, "primary", 1), start(kind, "replica", 2), start(kind, "log", 3))?;
        primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY)").await?;
        for server in [&replica, &log] {
            let mut connection = connect(server).await?;
            replication_setup::read_from(&mut connection, &address(&primary), PATIENCE).await?;
        }
        let cluster = Self { kind, primary, replica, log };
        cluster.in_step().await?;
        Ok(cluster)
    }

    pub async fn in_step(&self) -> Result<()> {
        for server in [&self.replica, &self.log] {
            self.wait(server, "the server has the same rows as the primary", async || {
                Ok(rows(server).await? == rows(&self.primary).await?)
            })
            .await?;
        }
        Ok(())
    }

    pub async fn insert(&self, id: u32) -> Result<()> {
        self.primary.sql(&format!("INSERT INTO shop.t VALUES ({id})")).await?;
        Ok(())
    }

    /// Stops the applier of the replica, and lets the replica receive one row that it does not execute.
    pub async fn receive_only(&self, id: u32) -> Result<()> {
        self.replica.sql(statement(self.kind, "STOP REPLICA SQL_THREAD", "STOP SLAVE SQL_THREAD")).await?;
        self.receive(id).await
    }

    /// Lets the replica receive one row.
    pub async fn receive(&self, id: u32) -> Result<()> {
        self.insert(id).await?;
        let mut connection = connect(&self.primary).await?;
        let has = replication_setup::executed(&mut connection).await?;
        wait_until_received(&mut connect(&self.replica).await?, &has).await
    }

    pub async fn wait<F>(&self, server: &Server, what: &str, is_so: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<bool>>,
    {
        let started = Instant::now();
        while !is_so().await? {
            ensure!(
                started.elapsed() < PATIENCE,
                "timed out while waiting for this state: {what}: {:?}",
                server.replica_status().await?
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

/// Waits until a replica has received the transactions, whether or not it has executed them.
pub async fn wait_until_received(replica: &mut Connection, wanted: &GtidSet) -> Result<()> {
    let started = Instant::now();
    loop {
        let channel =
            replication_setup::status(replica).await?.context("the server has no replication channel")?;
        let executed = replication_setup::executed(replica).await?;
        if wanted.is_subset_of(&channel.received.union(&executed)?) {
            return Ok(());
        }
        ensure!(started.elapsed() < PATIENCE, "the replica did not receive the transactions: {channel:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the rows of the table.
pub async fn rows(server: &Server) -> Result<String> {
    Ok(server.sql("SELECT IFNULL(GROUP_CONCAT(id ORDER BY id), '') FROM shop.t").await?.concat())
}
