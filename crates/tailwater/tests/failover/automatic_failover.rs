//! The manager of the daemon on real servers under load. It replaces a killed primary automatically, no
//! acknowledged transaction is lost, and a refusal names its safety rule.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_lab::fault_trial::managed_cluster::{PRIMARY_NAME, start_candidate, start_candidate_with};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::network_link::Link;
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{Ledger, Server, ServerKind, Workload, WorkloadSpec, require};
use tailwater_session::Connection;

use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_primary_is_replaced_mariadb() -> Result<()> {
    killed_primaries_are_replaced(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_primary_is_replaced_mysql() -> Result<()> {
    if is_skipped_in_ci("a_killed_primary_is_replaced_mysql", "the demo on MySQL") {
        return Ok(());
    }
    killed_primaries_are_replaced(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_or_unsafe_failover_does_not_run() -> Result<()> {
    blocked_and_refused(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_primary_is_fenced_before_it_is_replaced() -> Result<()> {
    replace_silent_primary(ServerKind::Mariadb1011, "automatic = true").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_detection_time_replaces_a_silent_primary_but_not_a_stalled_one() -> Result<()> {
    replace_silent_primary(ServerKind::Mysql97, "automatic = true\n[manager.analysis]\nagreed_after_ms = 800")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_cannot_reach_any_server_does_not_fail_over() -> Result<()> {
    partitioned_manager(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_without_semi_sync_is_replaced_by_another_candidate() -> Result<()> {
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    // The plan does not show that the candidate lacks the plugin file. Only the attempt to load the plugin
    // shows it.
    let plugins = tempfile::tempdir()?;
    let options = [format!("--plugin-dir={}", plugins.path().display())];
    let mut cluster = ManagedCluster::start_with_links(kind, "automatic = true", &[], &options).await?;
    let load = cluster.load(&cluster.trial.primary, 1);
    more_commits(&load, 50).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload got errors: {:?}", report.errors);
    cluster.compare(&cluster.trial.primary, &cluster.followers.iter().collect::<Vec<_>>()).await?;
    cluster.tailwater("failover primary --dry-run")?.exits(0).says(&["db2 would be primary"]);
    cluster.trial.primary.kill().await?;
    let first = cluster.trial.wait_failed_over(PRIMARY_NAME).await?;
    ensure!(first == "db3", "the new primary is {first}, not db3: {}", cluster.record()?);
    let record = cluster.record()?;
    for part in
        ["have db2 wait for 1 ACK", "semisync_source.so", "disable semi-sync on db2", "db3 is primary"]
    {
        ensure!(record.contains(part), "the audit record does not contain {part:?}: {record}");
    }
    // The failover has started the replication of db2 again.
    let load = cluster.load(cluster.follower("db3")?, 11);
    more_commits(&load, 50).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload got errors: {:?}", report.errors);
    cluster.compare(cluster.follower("db3")?, &cluster.followers.iter().collect::<Vec<_>>()).await?;
    cluster.trial.stop_relay().await
}

/// A fence hook that confirms that the old primary is down. In these tests, no server restarts by itself.
/// Without the hook, MariaDB needs an option file with which it waits for ACKs after a restart.
pub const OLD_PRIMARY_DOWN_HOOK: &str = r#"
[[manager.fence_hook]]
name = "gone"
command = ["bash", "-c", "! : > /dev/tcp/$TAILWATER_OLD_HOST/$TAILWATER_OLD_PORT"]
"#;

/// A cluster under test: a primary, two replicas that read from the log, and a relay with a manager.
pub struct ManagedCluster {
    pub shell: Shell,
    pub trial: Trial,
    pub followers: Vec<Server>,
    pub ledger: Arc<Ledger>,
}

impl ManagedCluster {
    pub async fn start(kind: ServerKind, manager: &str) -> Result<Self> {
        Self::start_with_links(kind, manager, &[], &[]).await
    }

    /// Starts the cluster. If `links` is not empty, each server has a network link to the relay, in the order
    /// of `links` with the primary first. `options` are server options of db2.
    async fn start_with_links(
        kind: ServerKind,
        manager: &str,
        links: &[Link],
        options: &[String],
    ) -> Result<Self> {
        let shell = Shell::new()?;
        let spec = TrialSpec {
            kind,
            durability: TrialDurability::Reduced,
            // The former primary needs this option to become primary again.
            options: vec!["--log-slave-updates=1".to_owned()],
            ack: AckMode::Durable,
            program: PathBuf::from(PROGRAM),
            folder: shell.path().to_owned(),
        };
        let (trial, two, three) = tokio::join!(
            Trial::start(spec),
            start_candidate_with(kind, 2, options),
            start_candidate(kind, 3)
        );
        let (mut trial, followers) = (trial?, vec![two?, three?]);
        let mut servers = vec![(PRIMARY_NAME.to_owned(), trial.primary.port())];
        servers.extend(followers.iter().map(|server| (server.name().to_owned(), server.port())));
        for (link, (_, port)) in links.iter().zip(&mut servers) {
            link.set_target(([127, 0, 0, 1], *port).into());
            *port = link.port();
        }
        trial.manage_at(&servers, manager)?;
        trial.write_config("127.0.0.1", servers[0].1)?;
        trial.start_relay()?;
        trial.wait_captured().await?;
        for follower in &followers {
            follower.replicate(&trial.replica_of_relay()).await?;
        }
        prepare(&trial.primary.connect_options()).await?;
        trial.wait_until_observed().await?;
        Ok(Self { shell, trial, followers, ledger: Arc::default() })
    }

    pub fn follower(&self, name: &str) -> Result<&Server> {
        self.followers.iter().find(|server| server.name() == name).context(name.to_owned())
    }

    pub fn load(&self, server: &Server, first_worker: u32) -> Workload {
        let pause = Duration::from_millis(2);
        let spec = WorkloadSpec { first_worker, pause, ..WorkloadSpec::new(4) };
        Workload::start(server.connect_options(), &spec, Arc::clone(&self.ledger))
    }

    /// Waits until the replicas have what `primary` has, and compares each server with the ledger.
    pub async fn compare(&self, primary: &Server, servers: &[&Server]) -> Result<()> {
        let lines = primary.sql("SELECT COUNT(*), COALESCE(SUM(CRC32(CONCAT_WS('#', worker, sequence))), 0) FROM tw_load.tw_ledger").await?;
        for server in servers {
            let started = Instant::now();
            loop {
                let has = server.sql("SELECT COUNT(*), COALESCE(SUM(CRC32(CONCAT_WS('#', worker, sequence))), 0) FROM tw_load.tw_ledger").await?;
                if has == lines {
                    break;
                }
                let status = server.replica_status().await?;
                ensure!(
                    started.elapsed() < PATIENCE,
                    "the rows of {} are {has:?}, expected {lines:?}: {status:?}",
                    server.name()
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let report = self.ledger.compare_with_server(&server.connect_options()).await?;
            let wrong = report.missing.count + report.altered.count + report.failed_but_present.count;
            ensure!(
                wrong == 0 && report.unlisted == 0,
                "{} lacks acknowledged commits, or has rows that no client wrote: {report:?}",
                server.name()
            );
        }
        Ok(())
    }

    /// Returns the audit record of the last finished failover or switchover as text.
    fn record(&self) -> Result<String> {
        let folder = std::fs::read_dir(self.shell.path().join("log/manager/primary"))?;
        let paths = folder.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        let newest = paths.iter().filter(|path| path.extension().is_some_and(|is| is == "txt")).max();
        Ok(std::fs::read_to_string(newest.context("there is no audit record")?)?)
    }

    /// Waits until the output of `tailwater manager status` contains `wanted`.
    pub async fn wait_for_status(&self, wanted: &str) -> Result<()> {
        let started = Instant::now();
        loop {
            let text = self.tailwater("manager status")?.exits(0).text();
            if text.contains(wanted) {
                return Ok(());
            }
            ensure!(started.elapsed() < PATIENCE, "the status does not contain {wanted:?}: {text}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub fn tailwater(&self, words: &str) -> Result<crate::shell_session::Ran> {
        self.shell.run(&format!("{words} -c tailwater.toml"))
    }
}

/// Waits until `more` further commits are acknowledged.
pub async fn more_commits(load: &Workload, more: u64) -> Result<()> {
    let wanted = load.counters().snapshot().acknowledged + more;
    let started = Instant::now();
    while load.counters().snapshot().acknowledged < wanted {
        ensure!(started.elapsed() < PATIENCE, "commits do not continue: {:?}", load.counters().snapshot());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

async fn killed_primaries_are_replaced(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut cluster =
        ManagedCluster::start(kind, &format!("automatic = true\n{OLD_PRIMARY_DOWN_HOOK}")).await?;
    let load = cluster.load(&cluster.trial.primary, 1);
    more_commits(&load, 100).await?;

    let plan = cluster.tailwater("failover primary --dry-run --output json")?.exits(0).json()?;
    ensure!(plan[0]["outcome"]["end"] == "planned", "the dry run does not end with a plan: {plan:#?}");
    cluster.tailwater("failover primary --dry-run --to db3")?.exits(0).says(&["db3 would be primary"]);
    cluster.tailwater("failover primary")?.exits(4).stderr_has(&["TW-MGR-0045", "switchover"]);
    cluster.tailwater("failover elsewhere")?.exits(1).stderr_has(&["there is no source \"elsewhere\""]);
    cluster.tailwater("manager status")?.exits(0).says(&[
        "primary db1",
        "automatic failover",
        "nothing is wrong",
    ]);

    cluster.trial.primary.kill().await?;
    let killed = Instant::now();
    let first = cluster.trial.wait_failed_over(PRIMARY_NAME).await?;
    load.redirect(cluster.follower(&first)?.connect_options());
    more_commits(&load, 100).await?;
    println!(
        "{kind:?}: {first} accepted writes {:?} after the kill of the primary\n{}",
        killed.elapsed(),
        cluster.record()?
    );
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload got errors: {:?}", report.errors);
    let new = cluster.follower(&first)?;
    cluster.compare(new, &cluster.followers.iter().collect::<Vec<_>>()).await?;
    cluster.tailwater("manager status")?.exits(0).says(&[&format!("primary {first}"), "not acknowledged"]);

    // No further automatic failover starts until an operator has acknowledged this one.
    cluster.trial.wait_until_observed().await?;
    cluster.tailwater("manager acknowledge primary")?.exits(0).stdout_lacks(&["not acknowledged"]);
    let load = cluster.load(cluster.follower(&first)?, 11);
    more_commits(&load, 50).await?;
    let at = cluster
        .followers
        .iter()
        .position(|server| server.name() == first)
        .context("the new primary is not one of the replicas")?;
    cluster.followers[at].kill().await?;
    let second = cluster.trial.wait_failed_over(&first).await?;
    ensure!(
        second != PRIMARY_NAME && second != first,
        "the second failover must promote the other replica, but has promoted {second}"
    );
    load.redirect(cluster.follower(&second)?.connect_options());
    more_commits(&load, 50).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload got errors: {:?}", report.errors);
    cluster.compare(cluster.follower(&second)?, &[cluster.follower(&second)?]).await?;

    // After a restart, the daemon continues with the current primary.
    cluster.trial.stop_relay().await?;
    cluster.shell.run("log verify log/primary")?.exits(0);
    cluster.trial.start_relay()?;
    cluster.trial.wait_until_observed().await?;
    cluster.tailwater("manager status")?.exits(0).says(&[&format!("primary {second}")]);
    cluster.trial.stop_relay().await?;
    Ok(())
}

async fn blocked_and_refused(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut cluster = ManagedCluster::start(kind, "automatic = true").await?;
    cluster.tailwater("manager downtime primary --server db9 --for 1h")?.exits(1).stderr_has(&["db9"]);
    let downtime = "manager downtime primary --server db3 --for 1h --reason disk";
    cluster.tailwater(downtime)?.exits(0).says(&["db3 is down on purpose until", "disk"]);
    cluster.tailwater("manager pause")?.exits(0).says(&["paused"]);
    cluster.trial.primary.sql("SET GLOBAL rpl_semi_sync_source_timeout = 1000").await?;
    cluster.wait_for_status("the time-out is too short").await?;
    cluster.trial.primary.kill().await?;
    cluster.wait_for_status("DeadPrimary db1").await?;
    cluster.wait_for_status("held: failover is paused").await?;
    // An operator can start a failover although automatic failover is paused. This failover is refused
    // because it might lose transactions.
    cluster.tailwater("failover primary")?.exits(4).stderr_has(&["TW-MGR-0030", "time-out is too short"]);
    let record = cluster.record()?;
    ensure!(record.contains("TW-MGR-0030"), "the audit record does not contain TW-MGR-0030: {record}");
    let ran = cluster.tailwater("failover primary --to db3 --allow-data-loss")?.exits(0);
    ran.says(&["allowed: TW-MGR-0030", "may be lost", "db3 is primary"]);
    cluster.wait_for_status("primary db3").await?;
    cluster.trial.stop_relay().await
}

async fn replace_silent_primary(kind: ServerKind, manager: &str) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut cluster = ManagedCluster::start(kind, manager).await?;
    let load = cluster.load(&cluster.trial.primary, 1);
    more_commits(&load, 50).await?;
    stall_primary(&mut cluster, &load).await?;
    cluster.trial.primary.pause()?;
    let first = cluster.trial.wait_failed_over(PRIMARY_NAME).await?;
    load.redirect(cluster.follower(&first)?.connect_options());
    // The former primary resumes and accepts writes. Commits on it wait forever, because no relay
    // acknowledges them.
    cluster.trial.primary.resume()?;
    let behind = cluster.trial.primary.connect_options();
    let late = tokio::spawn(async move {
        let mut connection = Connection::connect(&behind).await?;
        connection.execute("CREATE TABLE tw_load.late (id INT)").await
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure!(!late.is_finished(), "the old primary has acknowledged the commit: {:?}", late.await);
    // Client sessions that still wait for a commit on the former primary end when that server is killed. The
    // clients continue on the new primary.
    cluster.trial.primary.kill().await?;
    ensure!(late.await?.is_err(), "the commit was acknowledged without a relay");
    more_commits(&load, 50).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload got errors: {:?}", report.errors);
    cluster.compare(cluster.follower(&first)?, &cluster.followers.iter().collect::<Vec<_>>()).await?;
    cluster.trial.stop_relay().await
}

/// The primary is frozen for less than any time limit, and then resumes. From then on, the manager waits
/// three times as long before it counts the primary as unresponsive. The test freezes the primary for less
/// than that time too.
async fn stall_primary(cluster: &mut ManagedCluster, load: &Workload) -> Result<()> {
    let started = Instant::now();
    cluster.trial.primary.pause()?;
    tokio::time::sleep(Duration::from_millis(250)).await;
    cluster.trial.primary.resume()?;
    let lasted = started.elapsed();
    more_commits(load, 50).await?;
    let status = cluster.trial.cluster().context("the daemon does not report the cluster")?;
    let is_replaced = status.primary != PRIMARY_NAME || cluster.record().is_ok();
    ensure!(!is_replaced, "the primary was replaced after it was frozen for {lasted:?}: {status:?}");
    Ok(())
}

async fn partitioned_manager(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let nowhere = ([127, 0, 0, 1], 1).into();
    let links = [Link::open(nowhere).await?, Link::open(nowhere).await?, Link::open(nowhere).await?];
    let settings = "automatic = true\n[manager.analysis]\ndetect_after_ms = 1000\nstale_after_ms = 1000\n\
                    [manager.pace]\nping_timeout_ms = 300\nlook_timeout_ms = 300";
    let mut cluster = ManagedCluster::start_with_links(kind, settings, &links, &[]).await?;
    let load = cluster.load(&cluster.trial.primary, 1);
    more_commits(&load, 50).await?;
    links.iter().for_each(Link::cut_both);
    cluster.wait_for_status("UnreachablePrimary db1").await?;
    // The replacement of a dead primary takes less time than this wait.
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.tailwater("manager status")?.exits(0).says(&["primary db1", "UnreachablePrimary db1"]);
    ensure!(
        cluster.record().is_err(),
        "a failover was started although the primary is only unreachable: {}",
        cluster.record()?
    );
    links.iter().for_each(Link::restore);
    more_commits(&load, 50).await?;
    cluster.wait_for_status("nothing is wrong").await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload got errors: {:?}", report.errors);
    cluster.compare(&cluster.trial.primary, &cluster.followers.iter().collect::<Vec<_>>()).await?;
    cluster.trial.stop_relay().await
}
