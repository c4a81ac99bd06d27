//! The daemon is killed during a switchover or failover. The restarted daemon undoes or completes it, and no
//! acknowledged transaction is lost.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_lab::fault_trial::managed_cluster::PRIMARY_NAME;
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::{Server, ServerKind, Workload, WorkloadSpec, require};
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use crate::failover::automatic_failover::{ManagedCluster, more_commits};
use crate::failover::switchover::{as_app, lead_clients};
use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Hooks that kill the daemon which runs them. A hook does so once for each file that requests it. The
/// daemon's log shows the kill.
const DAEMON_KILL_HOOK: &str = r#"automatic = true

[[manager.fence_hook]]
name = "fence"
command = ["bash", "-c", "if rm FOLDER/die-in-fence 2>/dev/null; then kill -9 $PPID; fi; ! : > /dev/tcp/$TAILWATER_OLD_HOST/$TAILWATER_OLD_PORT"]

[[manager.route_hook]]
name = "route"
command = ["bash", "-c", "if rm FOLDER/die-in-route 2>/dev/null; then kill -9 $PPID; fi; echo led to $TAILWATER_NEW_NAME"]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_manager_completes_or_undoes_an_interrupted_failover_mariadb() -> Result<()> {
    killed_mid_run(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_manager_completes_or_undoes_an_interrupted_failover_mysql() -> Result<()> {
    if is_skipped_in_ci(
        "a_restarted_manager_completes_or_undoes_an_interrupted_failover_mysql",
        "the same test on MariaDB",
    ) {
        return Ok(());
    }
    killed_mid_run(ServerKind::Mysql97).await
}

impl ManagedCluster {
    async fn wait_until_killed(&mut self) -> Result<()> {
        let started = Instant::now();
        while self.trial.relay().is_some_and(|relay| relay.is_running()) {
            ensure!(
                started.elapsed() < PATIENCE,
                "the hook does not kill the daemon: {}",
                self.trial.relay_log_tail()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Starts the switchover repeatedly, until its hook has killed the daemon. At first the daemon refuses
    /// the switchover, because it must first probe the servers that the recovery has changed.
    async fn switch_over_until_killed(&mut self, words: &str) -> Result<()> {
        let started = Instant::now();
        while self.trial.relay().is_some_and(|relay| relay.is_running()) {
            ensure!(
                started.elapsed() < PATIENCE,
                "the switchover does not kill the daemon: {}",
                self.trial.relay_log_tail()
            );
            let mut command = spawn(&self.shell, words)?;
            command.wait().await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Starts the daemon, waits until it has recorded how it recovered the interrupted failover or
    /// switchover, and returns that audit record.
    async fn restart_and_recover(&mut self) -> Result<serde_json::Value> {
        let folder = self.shell.path().join("log/manager/primary");
        let before = recoveries(&folder)?.len();
        self.trial.start_relay()?;
        let started = Instant::now();
        loop {
            if let Some(record) = recoveries(&folder)?.into_iter().nth(before) {
                return Ok(record);
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "the daemon does not recover the interrupted failover or switchover: {}",
                self.trial.relay_log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Starts the command without waiting for its end, because the daemon is killed before it answers.
pub fn spawn(shell: &Shell, words: &str) -> Result<tokio::process::Child> {
    let mut command = tokio::process::Command::new(PROGRAM);
    command.args(words.split_whitespace()).args(["-c", "tailwater.toml"]).current_dir(shell.path());
    Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn()?)
}

/// Returns the audit records of completed recoveries, oldest first.
pub fn recoveries(folder: &Path) -> Result<Vec<serde_json::Value>> {
    let paths = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<BTreeSet<_>>>()?;
    let mut recoveries = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|is| is == "json")) {
        let record: serde_json::Value = serde_json::from_slice(&std::fs::read(path)?)?;
        let end = record["outcome"]["end"].as_str().unwrap_or_default();
        if record["resumes"].is_string() && matches!(end, "promoted" | "undone") {
            recoveries.push(record);
        }
    }
    Ok(recoveries)
}

/// Waits until a session of the server runs a statement that matches `like`. If `wanted` is false, waits
/// until no session runs such a statement.
pub async fn wait_for_statement(server: &Server, like: &str, wanted: bool) -> Result<()> {
    let question = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '{like}%'");
    let started = Instant::now();
    while (server.sql(&question).await? != ["0"]) != wanted {
        ensure!(
            started.elapsed() < PATIENCE,
            "timed out while waiting for a statement like {like} (running: {wanted})"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

async fn killed_mid_run(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut cluster = ManagedCluster::start(kind, "").await?;
    let hooks = DAEMON_KILL_HOOK.replace("FOLDER", &cluster.shell.path().display().to_string());
    cluster.shell.write("hooks", &hooks)?;
    let config = std::fs::read_to_string(cluster.shell.path().join("tailwater.toml"))?;
    cluster
        .shell
        .write("tailwater.toml", &config.replace("\n[manager]\n", &format!("\n[manager]\n{hooks}")))?;
    cluster.trial.stop_relay().await?;
    cluster.trial.start_relay()?;
    cluster.trial.wait_until_observed().await?;
    cluster
        .trial
        .primary
        .sql(
            "CREATE USER app@'%' IDENTIFIED BY 'app'; GRANT ALL ON tw_load.* TO app@'%'; \
             CREATE TABLE tw_load.locked (id INT PRIMARY KEY)",
        )
        .await?;
    let spec = WorkloadSpec { first_worker: 1, pause: Duration::from_millis(30), ..WorkloadSpec::new(4) };
    let load = Workload::start(as_app(&cluster.trial.primary), &spec, Arc::clone(&cluster.ledger));
    more_commits(&load, 20).await?;

    killed_while_fencing(&mut cluster, kind).await?;
    more_commits(&load, 20).await?;
    killed_after_promotion(&mut cluster, &load).await?;
    more_commits(&load, 20).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    let db2 = cluster.follower("db2")?;
    cluster
        .compare(db2, &cluster.followers.iter().chain([&cluster.trial.primary]).collect::<Vec<_>>())
        .await?;

    if !is_skipped_in_ci("the daemon killed in a failover", "the model of recoveries") {
        killed_after_fence(&mut cluster).await?;
    }
    cluster.trial.stop_relay().await
}

/// A lock delays the statement that makes the primary read-only until the daemon has been killed. Then the
/// primary becomes read-only, although no switchover runs any more.
async fn killed_while_fencing(cluster: &mut ManagedCluster, kind: ServerKind) -> Result<()> {
    let mut holder = Connection::connect(&as_app(&cluster.trial.primary)).await?;
    holder.execute("LOCK TABLES tw_load.locked WRITE").await?;
    let _command = spawn(&cluster.shell, "switchover primary --to db2 --max-write-pause-ms 60000")?;
    let variable = if kind.flavour() == Flavour::MySql { "super_read_only" } else { "read_only" };
    let holds = format!("SET GLOBAL {variable} = 1");
    wait_for_statement(&cluster.trial.primary, &holds, true).await?;
    cluster.trial.kill_relay().await?;
    holder.execute("UNLOCK TABLES").await?;
    // The statement has completed, or the server has aborted it when the connection was lost.
    wait_for_statement(&cluster.trial.primary, &holds, false).await?;
    let record = cluster.restart_and_recover().await?;
    ensure!(
        record["outcome"]["end"] == "undone" && record["kind"] == "switchover",
        "the record of the recovery does not say that a switchover was undone: {record:#}"
    );
    cluster.tailwater("manager status")?.exits(0).says(&["primary db1"]);
    cluster.trial.wait_until_observed().await
}

/// The daemon is killed when db2 accepts writes but clients are not routed to it yet. The restarted daemon
/// completes the switchover.
async fn killed_after_promotion(cluster: &mut ManagedCluster, load: &Workload) -> Result<()> {
    cluster.shell.write("die-in-route", "")?;
    cluster.switch_over_until_killed("switchover primary --to db2 --max-write-pause-ms 60000").await?;
    lead_clients(load, &cluster.trial.primary, cluster.follower("db2")?).await?;
    let record = cluster.restart_and_recover().await?;
    ensure!(
        record["outcome"]["end"] == "promoted" && record["outcome"]["server"] == "db2",
        "the record of the recovery does not say that db2 was promoted: {record:#}"
    );
    ensure!(
        record["outcome"]["left"].as_array().is_some_and(Vec::is_empty),
        "the record of the recovery lists work that is left: {record:#}"
    );
    ensure!(record.to_string().contains("led to db2"), "the route hook has not run: {record:#}");
    cluster.trial.wait_for_primary("db2").await?;
    ensure!(
        cluster.trial.primary.sql("SELECT @@global.read_only").await? == ["1"],
        "{PRIMARY_NAME}, the former primary, accepts writes"
    );
    cluster.trial.wait_until_observed().await
}

/// The daemon is killed when the primary is dead and the ackers are stopped. After the daemon restarts, the
/// ackers capture again. The old primary restarts too, and remains the primary.
async fn killed_after_fence(cluster: &mut ManagedCluster) -> Result<()> {
    cluster.shell.write("die-in-fence", "")?;
    let at = cluster
        .followers
        .iter()
        .position(|server| server.name() == "db2")
        .context("db2 is not one of the replicas")?;
    cluster.followers[at].kill().await?;
    cluster.wait_until_killed().await?;
    let record = cluster.restart_and_recover().await?;
    ensure!(
        record["outcome"]["end"] == "undone" && record["kind"] == "failover",
        "the record of the recovery does not say that a failover was undone: {record:#}"
    );
    Ok(())
}
