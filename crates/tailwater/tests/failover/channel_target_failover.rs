//! The target of a channel becomes primary. No acknowledged transaction is lost, the log continues after the
//! target's GTIDs, and the channel does not apply to the target what the target itself has written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tailwater_lab::fault_trial::managed_cluster::{PRIMARY_NAME, start_candidate};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{Ledger, Server, ServerKind, Workload, WorkloadSpec, require};

use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_target_is_promoted_mariadb() -> Result<()> {
    channel_target_is_promoted(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_target_is_promoted_mysql() -> Result<()> {
    if is_skipped_in_ci("a_channel_target_is_promoted_mysql", "the same test on MariaDB") {
        return Ok(());
    }
    channel_target_is_promoted(ServerKind::Mysql97).await
}

async fn channel_target_is_promoted(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
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
    let (trial, target) = tokio::join!(Trial::start(spec), start_candidate(kind, 2));
    let (mut trial, target) = (trial?, target?);
    if kind == ServerKind::Mysql97 {
        // A channel can write to a target with `read_only` on, but not with `super_read_only`. So only
        // `super_read_only` is switched off.
        target.sql("SET GLOBAL super_read_only = 0").await?;
    }
    trial.manage(&[&target], "automatic = true\nlease_ttl_ms = 10000")?;
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"to-db2\"\nsource = \"primary\"\nhost = \"127.0.0.1\"\nport = {}\n\
         defaults_file = \"root.cnf\"\ntls = \"off\"\nstart = \"oldest\"\n",
        target.port()
    ))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    prepare(&trial.primary.connect_options()).await?;
    trial.wait_until_observed().await?;

    let ledger = Arc::<Ledger>::default();
    let spec = WorkloadSpec { pause: Duration::from_millis(2), ..WorkloadSpec::new(4) };
    let load = Workload::start(trial.primary.connect_options(), &spec, Arc::clone(&ledger));
    more_commits(&load, 100).await?;
    trial.primary.kill().await?;
    let killed = Instant::now();
    let first = trial.wait_failed_over(PRIMARY_NAME).await?;
    ensure!(first == "db2", "the new primary is {first}, not db2");
    load.redirect(target.connect_options());
    more_commits(&load, 100).await?;
    println!("{kind:?}: the target of the channel accepted writes {:?} after the kill", killed.elapsed());
    channel_stays_stopped(&shell)?;
    shell
        .run("channel start to-db2 -c tailwater.toml")?
        .exits(1)
        .stderr_has(&["its target is the primary now"]);

    // The channel is also stopped after a restart of the daemon.
    trial.stop_relay().await?;
    trial.start_relay()?;
    // The clients can commit again after the daemon has restarted.
    more_commits(&load, 50).await?;
    channel_stays_stopped(&shell)?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    let report = ledger.compare_with_server(&target.connect_options()).await?;
    let wrong = report.missing.count + report.altered.count + report.failed_but_present.count;
    ensure!(
        wrong == 0 && report.unlisted == 0,
        "acknowledged commits are missing, or there are rows that no client wrote: {report:?}"
    );

    // The log is complete: a new replica reads the whole history of both primaries from it.
    let replica = start_candidate(kind, 3).await?;
    replica.replicate(&trial.replica_of_relay()).await?;
    wait_equal_gtids(&target, &replica).await?;
    trial.stop_relay().await?;
    shell.run("log verify log/primary")?.exits(0);
    Ok(())
}

fn channel_stays_stopped(shell: &Shell) -> Result<()> {
    let channels = shell.run("channel list --output json -c tailwater.toml")?.exits(0).json()?;
    ensure!(channels[0]["state"] == "stopped", "the channel is not stopped: {channels:#?}");
    // No operator has stopped the channel. It is stopped because its target is the primary.
    let because = channels[0]["stopped_because"].as_str().unwrap_or_default();
    ensure!(
        because.contains("the channel's target"),
        "the reason for the channel's stop does not name its target: {channels:#?}"
    );
    Ok(())
}

async fn wait_equal_gtids(server: &Server, replica: &Server) -> Result<()> {
    let question = "SELECT COUNT(*), SUM(CRC32(CONCAT_WS('#', worker, sequence))) FROM tw_load.tw_ledger";
    let lines = server.sql(question).await?;
    let started = Instant::now();
    // The query fails at first, because the table does not exist yet on the replica.
    while replica.sql(question).await.ok().as_ref() != Some(&lines) {
        ensure!(
            started.elapsed() < PATIENCE,
            "the replica does not have the rows {lines:?}: {:?}",
            replica.replica_status().await?
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Waits until `more` further commits are acknowledged.
async fn more_commits(load: &Workload, more: u64) -> Result<()> {
    let wanted = load.counters().snapshot().acknowledged + more;
    let started = Instant::now();
    while load.counters().snapshot().acknowledged < wanted {
        ensure!(started.elapsed() < PATIENCE, "commits do not continue: {:?}", load.counters().snapshot());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}
