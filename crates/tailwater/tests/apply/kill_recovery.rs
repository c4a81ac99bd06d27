//! The test kills the daemon, and the target of its channel, under load at random moments. At the end the
//! target equals the source.
//!
//! Each run of the test prints its random seed. `TAILWATER_SEED=n` repeats the random choices of that run.
//! `TAILWATER_LONG=1` kills more often.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tailwater_lab::fault_trial::{SOURCE_NAME, Trial, TrialDurability, TrialFolder, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::{ConnectOptions, Connection};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::shell_session::{PROGRAM, earlier_program};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(90);

const CLIENTS: u64 = 4;

/// Queries whose result changes if a transaction is applied twice or never.
const SUMS: &str = "SELECT SUM(n) FROM tally.hot; SELECT COUNT(*) FROM tally.notes; \
                    CHECKSUM TABLE tally.hot, tally.notes EXTENDED";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_daemon_applies_each_transaction_once_to_mariadb() -> Result<()> {
    killed(ServerKind::Mariadb1011, true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_daemon_applies_each_transaction_once_to_mysql() -> Result<()> {
    killed(ServerKind::Mysql97, true).await
}

/// The source does not wait for ACKs. A background thread syncs the log to disk. Only the channel waits for
/// that sync before it applies a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_daemon_applies_each_transaction_of_a_source_without_semi_sync_once() -> Result<()> {
    killed(ServerKind::Mariadb1011, false).await?;
    killed(ServerKind::Mysql97, false).await
}

async fn killed(kind: ServerKind, semi_sync: bool) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let given = std::env::var("TAILWATER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(rand::random);
    eprintln!("{kind}: TAILWATER_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let folder = TrialFolder::new(None)?;
    // With these options, the target loses its newest commits when it is killed.
    let forgetful = ["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0", "--server-id=2"];
    let mut target = Server::start(ServerSpec::new(kind).name("target").options(forgetful)).await?;
    let mut trial = start(kind, &folder, &target, random.random()).await?;
    if !semi_sync {
        trial.set_asynchronous().await?;
    }
    trial.start_relay()?;
    if semi_sync {
        trial.wait_captured().await?;
    }
    trial
        .primary
        .sql(
            "CREATE DATABASE tally; CREATE TABLE tally.hot (id INT PRIMARY KEY, n BIGINT NOT NULL); \
             INSERT INTO tally.hot VALUES (0,0),(1,0),(2,0); CREATE TABLE tally.notes (client INT, n INT)",
        )
        .await?;
    let enough = CancellationToken::new();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let seed = random.random();
        clients.spawn(count(trial.primary.connect_options(), client, seed, enough.clone()));
    }
    let rounds = if std::env::var_os("TAILWATER_LONG").is_some() { 40 } else { 5 };
    for round in 0..rounds {
        tokio::time::sleep(Duration::from_millis(random.random_range(0..700))).await;
        let with_target = round == 2 || random.random_bool(0.3);
        if with_target {
            target.kill().await?;
        }
        if !with_target || random.random() {
            trial.kill_relay().await?;
            trial.set_program(Path::new(PROGRAM));
            trial.start_relay()?;
        }
        if with_target {
            target.start_again().await?;
        }
    }
    enough.cancel();
    let mut committed = 0;
    while let Some(client) = clients.join_next().await {
        committed += client??;
    }
    wait_equal(&mut trial, &target).await?;
    let sums = target.sql(SUMS).await?;
    let wanted = committed.to_string();
    ensure!(
        sums.starts_with(&[wanted.clone(), wanted]),
        "after {committed} committed transactions, the queries return {sums:?} on the target"
    );
    trial.stop_relay().await
}

/// Starts a primary, and configures a daemon whose channel applies to `target`.
async fn start(kind: ServerKind, folder: &TrialFolder, target: &Server, workers: u8) -> Result<Trial> {
    let spec = TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: earlier_program(),
        folder: folder.path().to_owned(),
    };
    let mut trial = Trial::start(spec).await?;
    std::fs::write(folder.path().join("target.cnf"), "[client]\nuser=root\n")?;
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"target\"\nsource = \"{SOURCE_NAME}\"\nhost = \"127.0.0.1\"\nport = {}\n\
         defaults_file = \"target.cnf\"\ntls = \"off\"\nstart = \"oldest\"\nworkers = {}\n\
         batch_transactions_max = 20\n",
        target.port(),
        workers % 4 + 1
    ))?;
    Ok(trial)
}

/// Repeatedly increments a row that other clients increment too, and inserts a row into a table without a
/// key. Returns the number of committed transactions.
async fn count(source: ConnectOptions, client: u64, seed: u64, enough: CancellationToken) -> Result<u64> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut connection = Connection::connect(&source).await?;
    let mut done = 0;
    while !enough.is_cancelled() {
        let id = random.random_range(0..3);
        connection.execute("BEGIN").await?;
        connection.execute(&format!("UPDATE tally.hot SET n=n+1 WHERE id={id}")).await?;
        connection.execute(&format!("INSERT INTO tally.notes VALUES ({client}, {done})")).await?;
        connection.execute("COMMIT").await?;
        done += 1;
    }
    Ok(done)
}

/// Waits until the target has the same data as the primary.
async fn wait_equal(trial: &mut Trial, target: &Server) -> Result<()> {
    let wanted = trial.primary.sql(SUMS).await?;
    let started = Instant::now();
    loop {
        let found = target.sql(SUMS).await.unwrap_or_default();
        if found == wanted {
            return Ok(());
        }
        let words = trial.relay_log_tail();
        ensure!(
            trial.relay().context("the daemon is not running")?.is_running(),
            "the daemon ended: {words}"
        );
        if started.elapsed() > PATIENCE {
            bail!("the target has the sums {found:?}, expected {wanted:?}; the daemon logged: {words}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
