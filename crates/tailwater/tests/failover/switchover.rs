//! Switchovers under load while the primary is alive: to another server, and back. A switchover that exceeds
//! its time limit is rolled back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_lab::fault_trial::managed_cluster::PRIMARY_NAME;
use tailwater_sandbox::{Server, ServerKind, Workload, WorkloadSpec, require};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;

use crate::failover::automatic_failover::{ManagedCluster, more_commits};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_switchover_to_another_server_and_back_mariadb() -> Result<()> {
    switchover_there_and_back(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switchover_to_another_server_and_back_mysql() -> Result<()> {
    switchover_there_and_back(ServerKind::Mysql97).await
}

/// Returns the connection options of an account that `read_only` prevents from writing.
pub fn as_app(server: &Server) -> ConnectOptions {
    ConnectOptions { user: "app".into(), password: "app".into(), ..server.connect_options() }
}

/// Acts as the proxy of the clients. As soon as the new primary accepts writes, this function routes the
/// clients to it and kills their sessions on the old primary.
pub async fn lead_clients(load: &Workload, from: &Server, to: &Server) -> Result<()> {
    let mut new = Connection::connect(&to.connect_options()).await?;
    let mut old = Connection::connect(&from.connect_options()).await?;
    let started = Instant::now();
    while new.query("SELECT @@global.read_only").await?.scalar() != Some("0") {
        ensure!(started.elapsed() < PATIENCE, "{} does not become writable", to.name());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    load.redirect(as_app(to));
    let sessions = old.query("SELECT id FROM information_schema.processlist WHERE user = 'app'").await?;
    for id in sessions.rows.iter().filter_map(|row| row.get_str(0)) {
        // The session may already have ended.
        let _ = old.execute(&format!("KILL {id}")).await;
    }
    Ok(())
}

impl ManagedCluster {
    fn server(&self, name: &str) -> Result<&Server> {
        let mut all = self.followers.iter().chain([&self.trial.primary]);
        let named = |server: &&Server| server.name() == name;
        if name == PRIMARY_NAME {
            return Ok(&self.trial.primary);
        }
        all.find(named).context(name.to_owned())
    }

    /// Waits until the manager has observed that `name` is the primary.
    async fn wait_until_observed(&self, name: &str) -> Result<()> {
        let started = Instant::now();
        loop {
            let cluster = self.trial.cluster();
            if cluster.as_ref().is_some_and(|cluster| cluster.primary == name && cluster.lossless.is_some()) {
                return Ok(());
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "the manager does not report {name} as primary: {cluster:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Runs a switchover while clients write. Returns the write pause in milliseconds.
    async fn switch_over(&self, load: &Workload, from: &str, to: &str) -> Result<u64> {
        let words = format!("switchover primary --to {to} --max-write-pause-ms 20000 --output json");
        let (ran, moved) = tokio::join!(
            async { tokio::task::block_in_place(|| self.tailwater(&words)) },
            lead_clients(load, self.server(from)?, self.server(to)?),
        );
        let audit = ran?.exits(0).json()?.remove(0);
        moved?;
        let promoted = &audit["outcome"];
        ensure!(
            promoted["end"] == "promoted" && promoted["server"] == to,
            "the switchover has not promoted {to}: {audit:#}"
        );
        ensure!(
            promoted["left"].as_array().is_some_and(Vec::is_empty),
            "the audit record lists work that is left: {audit:#}"
        );
        audit["pause_ms"].as_u64().context("the audit record has no write pause")
    }
}

async fn switchover_there_and_back(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut cluster = ManagedCluster::start(kind, "lease_ttl_ms = 10000").await?;
    cluster
        .trial
        .primary
        .sql(
            "CREATE USER app@'%' IDENTIFIED BY 'app'; GRANT ALL ON tw_load.* TO app@'%'; \
             CREATE TABLE tw_load.locked (id INT PRIMARY KEY)",
        )
        .await?;
    // The clients write slowly enough that none gives up while writes are refused.
    let spec = WorkloadSpec { first_worker: 1, pause: Duration::from_millis(30), ..WorkloadSpec::new(8) };
    let load = Workload::start(as_app(&cluster.trial.primary), &spec, Arc::clone(&cluster.ledger));
    more_commits(&load, 50).await?;

    cluster.tailwater("switchover primary --dry-run --to db3")?.exits(0).says(&["db3 would be primary"]);
    cluster.tailwater("switchover primary --to db9")?.exits(4).stderr_has(&["TW-MGR-0041"]);

    // A session holds a lock, so the primary cannot become read-only within the time limit. The switchover is
    // rolled back.
    let mut holder = Connection::connect(&as_app(&cluster.trial.primary)).await?;
    holder.execute("LOCK TABLES tw_load.locked WRITE").await?;
    let ran = cluster.tailwater("switchover primary --max-write-pause-ms 400")?.exits(4);
    // The time limit of the statement or the time limit of the whole switchover may be reached first. In both
    // cases the error names the same step.
    ran.stderr_has(&["pause writes"]);
    more_commits(&load, 50).await?;
    holder.execute("UNLOCK TABLES").await?;

    let pause_ms = cluster.switch_over(&load, PRIMARY_NAME, "db2").await?;
    more_commits(&load, 50).await?;
    // After a restart, MariaDB waits for ACKs only if its option file says so. A switchover does not change
    // the option file.
    let next = match kind.flavour() {
        Flavour::MySql => "nothing is wrong",
        Flavour::MariaDb => "not ready: every failover would be refused: TW-MGR-0033 db2",
    };
    cluster.wait_for_status(next).await?;
    cluster.tailwater("manager status")?.exits(0).says(&["primary db2"]);
    cluster.wait_until_observed("db2").await?;
    let back_ms = cluster.switch_over(&load, "db2", PRIMARY_NAME).await?;
    more_commits(&load, 50).await?;
    println!(
        "{kind:?}: no client could write for {pause_ms} ms during the first switchover, and for {back_ms} ms during the switchover back"
    );

    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    let servers: Vec<_> = cluster.followers.iter().collect();
    cluster.compare(&cluster.trial.primary, &servers).await?;
    cluster.compare(&cluster.trial.primary, &[&cluster.trial.primary]).await?;
    cluster.trial.stop_relay().await?;
    Ok(())
}
