//! The wall clock of the daemon differs from the clock of its source, and changes while the daemon runs.
//! Replicas and channels must still report their true lag.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, SlowSync, SteppedClock, require};
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How far the clock is set wrong, in milliseconds. The next constant, `LAG_SECONDS_MAX`, is the maximum lag
/// that a replica or channel may report.
const CLOCK_ERROR_MS: i64 = 1_000_000;
const LAG_SECONDS_MAX: u64 = 500;

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_correct_under_clock_steps_mysql() -> Result<()> {
    lag_is_correct_under_clock_steps(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_correct_under_clock_steps_mariadb() -> Result<()> {
    lag_is_correct_under_clock_steps(ServerKind::Mariadb118).await
}

async fn lag_is_correct_under_clock_steps(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    if !SlowSync::is_possible() {
        eprintln!("SKIPPED lag_is_correct_under_clock_steps: no C compiler (package gcc)");
        return Ok(());
    }
    let shell = Shell::new()?;
    let spec = TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    };
    let mut trial = Trial::start(spec).await?;
    let clock = SteppedClock::compile(shell.path())?;
    trial.add_environment(clock.environment());
    clock.set_offset_ms(CLOCK_ERROR_MS)?;
    let mut spec = ServerSpec::new(kind).name("target").options(["--server-id=3"]);
    if kind.flavour() == Flavour::MySql {
        spec = spec.options(["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]);
    }
    let target = Server::start(spec).await?;
    let socket = target.socket().display();
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"target\"\nsource = \"primary\"\nsocket = \"{socket}\"\nuser = \"root\"\ntls = \"off\"\n"
    ))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    trial
        .primary
        .sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY)")
        .await?;
    let replica = Server::start(ServerSpec::new(kind).name("replica").options(["--server-id=2"])).await?;
    replica.replicate(&trial.replica_of_relay()).await?;

    check_replica_lag(&trial, &replica).await?;
    check_channel_lag(&trial, &shell, &target).await?;
    clock.set_offset_ms(0)?;
    check_replica_lag(&trial, &replica).await?;
    check_channel_lag(&trial, &shell, &target).await?;
    ensure!(disconnections(&trial)? == 0, "a replica was disconnected, although none has read a wrong time");

    // While the source is down, its clock is unknown to the daemon, so the replica gets the time of the
    // daemon's clock.
    trial.stop_relay().await?;
    trial.primary.stop().await?;
    clock.set_offset_ms(CLOCK_ERROR_MS)?;
    trial.start_relay()?;
    wait_until_streaming(&trial).await?;
    trial.primary.restart(None).await?;
    trial.wait_captured().await?;
    check_replica_lag(&trial, &replica).await?;
    check_channel_lag(&trial, &shell, &target).await?;
    ensure!(
        disconnections(&trial)? == 1,
        "the daemon must disconnect the replica exactly once: {}",
        trial.relay_log_tail()
    );
    trial.stop_relay().await
}

/// Returns the number of times that a replica was disconnected because of the clock.
fn disconnections(trial: &Trial) -> Result<usize> {
    Ok(std::fs::read_to_string(trial.relay_output())?
        .matches("disconnecting the replica so that it reads")
        .count())
}

/// Waits until the daemon streams to a replica.
async fn wait_until_streaming(trial: &Trial) -> Result<()> {
    let begin = Instant::now();
    loop {
        if let Ok(mut connection) = Connection::connect(&trial.serve_options()).await {
            let processes = connection.query("SHOW PROCESSLIST").await?;
            let command = processes.column("Command").context("SHOW PROCESSLIST has no column Command")?;
            let is_dump = |command: &str| command.contains("Binlog Dump");
            if processes.rows.iter().any(|row| row.get_str(command).is_some_and(is_dump)) {
                return Ok(());
            }
        }
        ensure!(begin.elapsed() < PATIENCE, "no replica connects: {}", trial.relay_log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Blocks the replica for a while so that it cannot apply transactions, and checks the lag that the replica
/// reports. A replica that has applied everything always reports 0.
async fn check_replica_lag(trial: &Trial, replica: &Server) -> Result<()> {
    let behind = match replica.kind().flavour() {
        Flavour::MySql => ("SHOW REPLICA STATUS", "Seconds_Behind_Source"),
        Flavour::MariaDb => ("SHOW SLAVE STATUS", "Seconds_Behind_Master"),
    };
    let begin = Instant::now();
    while replica.sql("SELECT COUNT(*) FROM shop.t").await.is_err() {
        ensure!(
            begin.elapsed() < PATIENCE,
            "the replica does not replicate: {:?}",
            replica.replica_status().await?
        );
    }
    let mut holding = Connection::connect(&replica.connect_options()).await?;
    holding.execute("LOCK TABLES shop.t READ").await?;
    trial.primary.sql("INSERT INTO shop.t VALUES (NULL)").await?;
    let mut asking = Connection::connect(&replica.connect_options()).await?;
    let mut true_lags = 0;
    while true_lags < 10 {
        let status = asking.query(behind.0).await?;
        let lag = status.column(behind.1).and_then(|column| status.first()?.get_u64(column));
        ensure!(
            lag.is_none_or(|lag| lag <= LAG_SECONDS_MAX),
            "the replica reports a lag of {lag:?} s, which is too high"
        );
        // A replica that does not use the clock of the source may report 0 too. So only a lag above 0 shows
        // that the replica uses it.
        true_lags += usize::from(lag.is_some_and(|lag| lag > 0));
        ensure!(
            begin.elapsed() < PATIENCE,
            "the replica never reports a lag: {:?}",
            replica.replica_status().await?
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    holding.close().await;
    let gtids = written(&trial.primary).await?;
    ensure!(replica.wait_for_gtids(&gtids, PATIENCE).await?, "the replica does not apply the GTIDs {gtids}");
    Ok(())
}

/// Blocks the channel for a while, and checks the lag that `channel list` reports.
async fn check_channel_lag(trial: &Trial, shell: &Shell, target: &Server) -> Result<()> {
    let begin = Instant::now();
    while target.sql("SELECT COUNT(*) FROM shop.t").await.is_err() {
        ensure!(
            begin.elapsed() < PATIENCE,
            "the channel does not create the table: {}",
            trial.relay_log_tail()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut holding = Connection::connect(&target.connect_options()).await?;
    holding.execute("LOCK TABLES shop.t READ").await?;
    trial.primary.sql("INSERT INTO shop.t VALUES (NULL)").await?;
    loop {
        let listed = shell.run("channel list -c tailwater.toml --output json")?.exits(0).json()?;
        let lag = listed
            .first()
            .and_then(|channel| channel["lag_seconds"].as_f64())
            .context("`channel list` reports no lag")?;
        ensure!(lag <= LAG_SECONDS_MAX as f64, "the channel reports a lag of {lag} s, which is too high");
        if lag > 0.0 {
            break;
        }
        ensure!(begin.elapsed() < PATIENCE, "the channel never reports a lag: {}", trial.relay_log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    holding.close().await;
    Ok(())
}

async fn written(source: &Server) -> Result<String> {
    let variable = match source.kind().flavour() {
        Flavour::MySql => "gtid_executed",
        Flavour::MariaDb => "gtid_binlog_pos",
    };
    Ok(source.sql(&format!("SELECT @@global.{variable}")).await?.concat().replace("\\n", ""))
}
