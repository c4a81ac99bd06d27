//! Tests faults of every kind under load. At the end, target and source are equal, and each transaction was
//! applied exactly once.
//!
//! A run prints its seed. `TAILWATER_SEED=n` repeats the random choices of that run, but not the timing of
//! the servers, so the result may differ. CI runs a few rounds; `TAILWATER_LONG=1` runs many.

mod channel_takeover;
mod full_target_disk;
mod kills_during_ddl;
mod large_transactions;
mod lock_conflicts;
mod process_kills;
mod xa_savepoints_temporary_tables;

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tailwater_apply::Channel;
use tailwater_apply::channel::ChannelOptions;
use tailwater_sandbox::{Server, ServerKind};
use tailwater_session::{ConnectOptions, Connection};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::channel_test_servers::Rig;

pub fn is_long() -> bool {
    std::env::var_os("TAILWATER_LONG").is_some()
}

/// Returns the servers for tests that need only one of the two flavours in a normal test run.
pub fn kinds() -> &'static [ServerKind] {
    if is_long() { &[ServerKind::Mariadb1011, ServerKind::Mysql97] } else { &[ServerKind::Mariadb1011] }
}

/// Returns a random generator, and prints its seed.
pub fn seeded(test: &str) -> StdRng {
    let given = std::env::var("TAILWATER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(rand::random);
    eprintln!("{test}: TAILWATER_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// A channel in its own runtime. It can end like a killed process: at any point, and without a message to the
/// target.
pub struct Applier {
    // The runtime must be dropped before the channel, so that no task of the runtime notices that the channel
    // is dropped.
    runtime: Abrupt,
    pub channel: Channel,
}

/// A runtime that shuts down at once when it is dropped, even within another runtime.
struct Abrupt(Option<Runtime>);

impl Drop for Abrupt {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Applier {
    pub fn start(options: ChannelOptions, rig: &Rig) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let channel = {
            let _entered = runtime.enter();
            Channel::start(options, rig.log(), rig.source_time(), false)
        };
        Ok(Self { runtime: Abrupt(Some(runtime)), channel })
    }

    pub fn kill(self) {
        drop(self.runtime);
        drop(self.channel);
    }

    /// Shuts the channel down.
    pub async fn end(self) {
        self.channel.shut_down().await;
        drop(self.runtime);
    }
}

/// Clients that count their transactions: in rows that all clients update, in rows that few clients update,
/// and in rows without a key.
pub struct Tally {
    clients: JoinSet<Result<u64>>,
    enough: CancellationToken,
}

/// The databases that these clients change.
pub const TALLY: &[&str] = &["tally"];

impl Tally {
    pub async fn prepare(source: &Server) -> Result<()> {
        source
            .sql(
                "CREATE DATABASE tally; USE tally; CREATE TABLE hot (id INT PRIMARY KEY, n BIGINT NOT NULL); \
                 INSERT INTO hot VALUES (0,0),(1,0),(2,0); \
                 CREATE TABLE cold (id INT PRIMARY KEY, n BIGINT NOT NULL, u INT UNIQUE, pad VARCHAR(200)); \
                 CREATE TABLE notes (client INT, n INT, text VARCHAR(200)); \
                 CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB; \
                 CREATE TABLE child (id INT AUTO_INCREMENT PRIMARY KEY, p INT, n INT DEFAULT 0, \
                   FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE) ENGINE=InnoDB",
            )
            .await?;
        Ok(())
    }

    /// Starts clients that run until [`Tally::stop`], with a short pause between transactions.
    pub fn start(source: &Server, clients: u64, seed: u64) -> Self {
        let enough = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for client in 0..clients {
            tasks.spawn(count(source.connect_options(), client, seed, enough.clone()));
        }
        Self { clients: tasks, enough }
    }

    /// Stops the clients. Returns how many transactions they committed.
    pub async fn stop(mut self) -> Result<u64> {
        self.enough.cancel();
        let mut total = 0;
        while let Some(client) = self.clients.join_next().await {
            total += client??;
        }
        Ok(total)
    }

    /// Checks the counts: every transaction adds one to a row that all clients update, and inserts one row.
    pub async fn ensure_counted(target: &Server, transactions: u64) -> Result<()> {
        let counted = target.sql("SELECT SUM(n) FROM tally.hot; SELECT COUNT(*) FROM tally.notes").await?;
        let wanted = transactions.to_string();
        ensure!(
            counted == [wanted.clone(), wanted.clone()],
            "the target has counted {counted:?} transactions, but the clients committed {wanted}"
        );
        Ok(())
    }
}

async fn count(source: ConnectOptions, client: u64, seed: u64, enough: CancellationToken) -> Result<u64> {
    let mut random = StdRng::seed_from_u64(seed.wrapping_add(client));
    let mut connection = Connection::connect(&source).await?;
    connection.execute("USE tally").await?;
    let mut done = 0;
    while !enough.is_cancelled() {
        let cold = client * 100 + random.random_range(0..40);
        let pad = "x".repeat(random.random_range(0..150));
        let parent = client * 100 + random.random_range(0..3);
        let statements = [
            "BEGIN".to_owned(),
            format!("UPDATE hot SET n=n+1 WHERE id={}", random.random_range(0..3)),
            format!(
                "INSERT INTO cold VALUES ({cold},1,{cold},'{pad}') ON DUPLICATE KEY UPDATE n=n+1, pad=VALUES(pad)"
            ),
            format!("INSERT INTO notes VALUES ({client},{done},'{pad}')"),
            match random.random_range(0..8) {
                0 => format!("DELETE FROM cold WHERE id={cold}"),
                1 => format!("UPDATE cold SET u=-u WHERE id={cold}"),
                2 => format!("DELETE FROM parent WHERE id={parent}"),
                3 => format!("UPDATE notes SET text='y' WHERE client={client} AND n={}", done / 2),
                _ => format!("INSERT IGNORE INTO parent VALUES ({parent})"),
            },
            // The parent row must exist. A cascade would not be in the binlog.
            format!("INSERT INTO child (p) SELECT id FROM parent WHERE id={parent}"),
            format!("UPDATE child SET n=n+1 WHERE p={parent}"),
            "COMMIT".to_owned(),
        ];
        let mut committed = true;
        for statement in &statements {
            match connection.execute(statement).await {
                Ok(_) => {}
                // After a deadlock, the server has rolled the transaction back.
                Err(error)
                    if error.server_error().is_some_and(|error| matches!(error.number, 1213 | 1020)) =>
                {
                    connection.execute("ROLLBACK").await?;
                    committed = false;
                    break;
                }
                Err(error) => return Err(error).with_context(|| statement.clone()),
            }
        }
        done += u64::from(committed);
        tokio::time::sleep(Duration::from_millis(random.random_range(0..4))).await;
    }
    Ok(done)
}

/// Runs a step with a time limit.
pub async fn in_time<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(crate::channel_test_servers::PATIENCE, work)
        .await
        .with_context(|| format!("timed out before this happened: {what}"))?
}

/// Waits until a query returns a value.
pub async fn until(server: &Server, sql: &str, wanted: &str) -> Result<()> {
    let work = async {
        while server.sql(sql).await.unwrap_or_default() != [wanted] {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    in_time(sql, work).await
}
