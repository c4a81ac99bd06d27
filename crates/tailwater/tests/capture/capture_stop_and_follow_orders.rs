//! A daemon gets two orders over its control socket: stop the capture, then follow another server. The test
//! kills the daemon after each order.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tailwater_daemon::manager::local_relay_acker::SocketAcker;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_manager::action_executor::{AckerControl, AckerError, AckerReport};
use tailwater_manager::lossless_rules::AckerStop;
use tailwater_manager::model::LeaseToken;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_wire::Flavour;

use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn capture_obeys_acker_orders_mariadb() -> Result<()> {
    daemon_follows_acker_orders(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn capture_obeys_acker_orders_mysql() -> Result<()> {
    daemon_follows_acker_orders(ServerKind::Mysql97).await
}

struct Cluster {
    trial: Trial,
    shell: Shell,
    second: Server,
    acker: SocketAcker,
}

impl Cluster {
    async fn start(kind: ServerKind) -> Result<Self> {
        let shell = Shell::new()?;
        let mut trial = Trial::start(TrialSpec {
            kind,
            durability: TrialDurability::Reduced,
            options: Vec::new(),
            ack: AckMode::Durable,
            program: PathBuf::from(PROGRAM),
            folder: shell.path().to_owned(),
        })
        .await?;
        let (updates, plugin) = match kind.flavour() {
            Flavour::MySql => ("--log-replica-updates=1", "--plugin-load-add=semisync_source.so"),
            Flavour::MariaDb => ("--log-slave-updates=1", "--rpl-semi-sync-master-enabled=0"),
        };
        let spec = ServerSpec::new(kind).name("second").options([updates, plugin, "--sync-binlog=0"]);
        let second = Server::start(spec).await?;
        second.create_replication_user().await?;
        trial.add_channel(&format!(
            "\n[[server]]\nname = \"db2\"\nsource = \"primary\"\nhost = \"127.0.0.1\"\nport = {}\ndefaults_file = \"client.cnf\"\ntls = \"off\"\n",
            second.port()
        ))?;
        let acker = SocketAcker::new("tailwater", &shell.path().join("log/control.sock"), "primary");
        Ok(Self { trial, shell, second, acker })
    }

    /// Starts the daemon, waits until it answers, and returns what its acker reports.
    async fn run(&mut self) -> Result<AckerReport> {
        self.trial.start_relay()?;
        let begin = Instant::now();
        loop {
            match self.acker.read().await {
                Ok(report) => return Ok(report),
                Err(error) => {
                    ensure!(
                        begin.elapsed() < PATIENCE,
                        "the daemon does not answer: {error:?}: {}",
                        self.trial.relay_log_tail()
                    )
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Kills the daemon with SIGKILL and starts it again.
    async fn kill_and_run(&mut self) -> Result<AckerReport> {
        self.trial.kill_relay().await?;
        match self.acker.read().await {
            Err(AckerError::Refused(reason)) if reason.contains("no daemon listens") => {}
            other => bail!("the killed daemon still answers: {other:?}"),
        }
        self.run().await
    }

    fn topology(&self) -> Result<Value> {
        let looks = self.shell.run("topology -c tailwater.toml --output json")?.exits(0).json()?;
        Ok(looks.first().context("the command printed nothing")?["clusters"][0].clone())
    }

    /// Starts a commit on the primary that waits for an ACK.
    fn commit(&self, id: u32) -> tokio::task::JoinHandle<Result<()>> {
        let options = self.trial.primary.connect_options();
        tokio::spawn(async move {
            let mut connection = tailwater_session::Connection::connect(&options).await?;
            connection.execute(&format!("INSERT INTO shop.t VALUES ({id})")).await?;
            Ok(())
        })
    }

    async fn wait_for_waiting_commit(&self) -> Result<()> {
        let begin = Instant::now();
        let status = "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%_wait_sessions'";
        loop {
            let waiting = self.trial.primary.sql(status).await?.concat();
            if waiting.ends_with("\t1") {
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "no commit waits for an ACK: {waiting}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn daemon_follows_acker_orders(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut cluster = Cluster::start(kind).await?;
    let report = cluster.run().await?;
    ensure!(
        report.acker.stop == AckerStop::Unknown && report.acker.durable,
        "the report of the acker is unexpected: {report:?}"
    );
    cluster.trial.wait_captured().await?;
    cluster.second.replicate_from(&cluster.trial.primary).await?;
    cluster.trial.primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY)").await?;

    // The acker stops. It is still stopped after the daemon was killed and started again.
    let report = cluster.acker.stop(LeaseToken(3)).await.map_err(display)?;
    let held = report.acker.holds.clone().context("the acker reports no GTIDs")?;
    ensure!(
        report.acker.stop == AckerStop::Persistent && report.before.is_subset_of(&held),
        "the acker has not stopped persistently, or lacks GTIDs: {report:?}"
    );
    let commit = cluster.commit(1);
    cluster.wait_for_waiting_commit().await?;
    ensure!(cluster.kill_and_run().await? == report);
    match cluster.acker.start(LeaseToken(2)).await {
        Err(AckerError::Refused(reason)) if reason.starts_with("TW-RELAY-0015: ") => {}
        other => bail!("the order to start was not refused with TW-RELAY-0015: {other:?}"),
    }
    // The daemon answers this second order, so the capture has had time to react to the first order.
    cluster.acker.stop(LeaseToken(3)).await.map_err(display)?;
    cluster.wait_for_waiting_commit().await?;
    ensure!(!commit.is_finished());
    cluster
        .shell
        .run("topology -c tailwater.toml")?
        .exits(0)
        .says(&["stopped since ", "by order of the manager (lease term 3)"]);
    ensure!(
        cluster.trial.relay_log_tail().contains("stopped by order of a manager"),
        "the daemon has not logged that its capture was stopped: {}",
        cluster.trial.relay_log_tail()
    );
    cluster.acker.start(LeaseToken(4)).await.map_err(display)?;
    commit.await??;

    // The acker follows another server. It still does so after the daemon was killed and started again.
    ensure!(cluster.second.wait_for_gtids(&written_by(&cluster.trial.primary).await?, PATIENCE).await?);
    cluster.acker.stop(LeaseToken(5)).await.map_err(display)?;
    let forget = match kind.flavour() {
        Flavour::MySql => "STOP REPLICA; RESET REPLICA ALL",
        Flavour::MariaDb => "STOP SLAVE; RESET SLAVE ALL",
    };
    cluster.second.sql(forget).await?;
    cluster.second.enable_semi_sync_source().await?;
    match cluster.acker.follow(LeaseToken(5), "db3").await {
        Err(AckerError::Refused(reason)) if reason.starts_with("TW-RELAY-0016: ") => {}
        other => bail!("the order to follow db3 was not refused with TW-RELAY-0016: {other:?}"),
    }
    cluster.acker.follow(LeaseToken(5), "db2").await.map_err(display)?;
    cluster.second.sql("INSERT INTO shop.t VALUES (2)").await?;
    let seen = cluster.topology()?;
    let primary = &seen["nodes"][0];
    let relay = primary["children"]
        .as_array()
        .and_then(|below| below.iter().find(|child| child["name"] == "tailwater"));
    ensure!(
        primary["name"] == "db2" && primary["role"] == "primary",
        "the topology does not show db2 as the primary: {primary:#}"
    );
    ensure!(
        relay.is_some_and(|relay| relay["acknowledges"] == true),
        "the topology shows no relay that acknowledges commits: {primary:#}"
    );
    cluster.trial.primary.kill().await?;
    cluster.kill_and_run().await?;
    cluster.second.sql("INSERT INTO shop.t VALUES (3)").await?;
    let status = cluster.second.semi_sync_status().await?;
    ensure!(
        status.acknowledged >= 2 && status.unacknowledged == 0,
        "commits were not acknowledged by an ACK: {status:?}"
    );
    let held =
        cluster.acker.read().await.map_err(display)?.acker.holds.context("the acker reports no GTIDs")?;
    let written = written_by(&cluster.second).await?;
    ensure!(
        held.to_string() == written,
        "the log has the GTIDs {held}, but the server has written {written}"
    );
    cluster.shell.run("log verify log/primary")?.exits(0);
    cluster.trial.stop_relay().await
}

async fn written_by(server: &Server) -> Result<String> {
    let variable = match server.kind().flavour() {
        Flavour::MySql => "gtid_executed",
        Flavour::MariaDb => "gtid_binlog_state",
    };
    Ok(server.sql(&format!("SELECT @@global.{variable}")).await?.concat().replace("\\n", ""))
}

fn display(error: AckerError) -> anyhow::Error {
    anyhow::anyhow!("{error:?}")
}
