//! Two relays that both acknowledge, each with a manager. A lease in etcd decides which manager acts. This is
//! the cluster of docs/how-to/production.md with other addresses.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_lab::fault_trial::managed_cluster::{PRIMARY_NAME, start_candidate};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{
    ChildProcess, Etcd, Ledger, ReservedPort, Server, ServerKind, Workload, WorkloadSpec, require,
};
use tailwater_session::Connection;

use crate::cli::http_listener::Http;
use crate::failover::former_primary_rejoin::commit_without_acknowledgement;
use crate::failover::manager_killed_mid_failover::{recoveries, spawn, wait_for_statement};
use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A hook that kills the daemon which runs it. The hook does so once for each file that requests it.
const DAEMON_KILL_HOOK: &str = r#"
[[manager.fence_hook]]
name = "fence"
command = ["bash", "-c", "if rm FOLDER/die-in-fence 2>/dev/null; then kill -9 $PPID; fi; exit 1"]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_other_manager_takes_over_mariadb() -> Result<()> {
    other_manager_takes_over(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_manager_takes_over_mysql() -> Result<()> {
    if std::env::var_os("TAILWATER_LONG").is_none() {
        eprintln!(
            "SKIPPED the_other_manager_takes_over_mysql: slower than the same test on MariaDB; set TAILWATER_LONG=1 to run it"
        );
        return Ok(());
    }
    other_manager_takes_over(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_manager_rolls_back_a_switchover_mariadb() -> Result<()> {
    other_manager_rolls_back_a_switchover(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_manager_rolls_back_a_failover_mariadb() -> Result<()> {
    other_manager_rolls_back_a_failover(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_manager_knows_the_accepted_data_loss_mariadb() -> Result<()> {
    other_manager_knows_the_accepted_data_loss(ServerKind::Mariadb1011).await
}

/// The second daemon: a relay with a manager.
pub struct SecondDaemon {
    pub shell: Shell,
    pub process: Option<ChildProcess>,
    /// The `tailwater` program that the second daemon runs.
    pub program: PathBuf,
}

impl SecondDaemon {
    /// Writes the configuration of the second daemon. It is the configuration of the first daemon with the
    /// roles of the two relays exchanged.
    fn new(
        first: &Shell,
        first_program: &Path,
        trial: &Trial,
        mine: &ReservedPort,
        its: &ReservedPort,
    ) -> Result<Self> {
        let shell = Shell::new()?;
        for name in ["client.cnf", "root.cnf", "token"] {
            std::fs::copy(first.path().join(name), shell.path().join(name))?;
        }
        let serve = ReservedPort::pick()?;
        let text = std::fs::read_to_string(first.path().join("tailwater.toml"))?;
        let text = text
            .replace("server_id = 4201", "server_id = 4200")
            .replace("server_id = 4202", "server_id = 4201")
            .replace("server_id = 4200", "server_id = 4202")
            .replace("relay2", "relay1")
            .replace("name = \"one\"", "name = \"two\"")
            .replace(&format!("url = \"http://127.0.0.1:{}\"", mine.number()), "url = ITS")
            .replace(&format!("127.0.0.1:{}", its.number()), &format!("127.0.0.1:{}", mine.number()))
            .replace("url = ITS", &format!("url = \"http://127.0.0.1:{}\"", its.number()))
            .replace("serves = []", &format!("serves = [\"127.0.0.1:{}\"]", trial.serve_port()))
            .replace(
                &format!("listen = \"127.0.0.1:{}\"", trial.serve_port()),
                &format!("listen = \"127.0.0.1:{}\"", serve.number()),
            );
        shell.write("tailwater.toml", &text)?;
        Ok(Self { shell, process: None, program: first_program.to_owned() })
    }

    pub fn start(&mut self) -> Result<()> {
        self.start_with([])
    }

    /// Starts the daemon with variables added to its environment.
    pub fn start_with(&mut self, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Result<()> {
        let config = self.shell.path().join("tailwater.toml");
        let arguments = ["run".into(), "-c".into(), config.into_os_string()];
        let log = self.shell.path().join("relay.log");
        self.process = Some(ChildProcess::start_with(&self.program, arguments, environment, &log)?);
        Ok(())
    }
}

/// Returns what the manager reports of the cluster.
fn status(shell: &Shell) -> Result<Value> {
    let ran = shell.run("manager status -c tailwater.toml --output json")?;
    let lines = ran.json().with_context(|| {
        format!("the output of `manager status` is not JSON: {}{}", ran.text(), ran.errors())
    })?;
    Ok(lines.first().context("`manager status` printed nothing")?["clusters"][0].clone())
}

pub async fn until(shell: &Shell, what: &str, condition: impl Fn(&Value) -> bool) -> Result<Value> {
    let started = Instant::now();
    loop {
        let cluster = status(shell);
        if let Ok(cluster) = &cluster
            && condition(cluster)
        {
            return Ok(cluster.clone());
        }
        let words = || std::fs::read_to_string(shell.path().join("relay.log")).unwrap_or_default();
        ensure!(started.elapsed() < PATIENCE, "timed out while waiting for {what}: {cluster:?}\n{}", words());
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// Whether the daemon's manager has the lease, so that it acts on the cluster.
pub fn has_lease(status: &Value) -> bool {
    status["lease"].as_str().is_some_and(|lease| lease.starts_with("held"))
}

/// Whether both relays acknowledge, all earlier commits are acknowledged, and the primary no longer counts
/// the old connection of a restarted relay. Such a connection looks like a semi-sync replica that is not
/// configured.
fn is_observed(status: &Value, both: &[&str]) -> bool {
    status["lossless"].as_str().is_some_and(|text| {
        text.ends_with("must acknowledge")
            && !text.contains(';')
            && !text.contains("not configured")
            && both.iter().all(|name| text.contains(name))
    })
}

/// A primary under load, a follower, both daemons, and etcd.
pub struct Pair {
    pub shell: Shell,
    pub trial: Trial,
    pub follower: Server,
    pub second: SecondDaemon,
    /// HTTP ports of the first and the second daemon.
    pub ports: (ReservedPort, ReservedPort),
    pub ledger: Arc<Ledger>,
    pub load: Workload,
    /// The store of the lease, and its folder.
    pub etcd: (Etcd, tempfile::TempDir),
}

impl Pair {
    /// Starts the cluster, and waits until both managers observe it and both relays acknowledge. `hooks` are
    /// the hooks of both managers. Their files are in the folder of the first daemon. `options` are server
    /// options of the primary.
    pub async fn start(
        kind: ServerKind,
        etcd: &Path,
        settings: &str,
        hooks: &str,
        durability: TrialDurability,
        options: Vec<String>,
    ) -> Result<Self> {
        Self::start_program(Path::new(PROGRAM), kind, etcd, settings, hooks, durability, options).await
    }

    /// Starts the same cluster as [`Self::start`]. Both daemons run the build `program`.
    pub async fn start_program(
        program: &Path,
        kind: ServerKind,
        etcd: &Path,
        settings: &str,
        hooks: &str,
        durability: TrialDurability,
        options: Vec<String>,
    ) -> Result<Self> {
        let (shell, folder) = (Shell::new()?, tempfile::tempdir()?);
        let spec = TrialSpec {
            kind,
            durability,
            options,
            ack: AckMode::Durable,
            program: program.to_owned(),
            folder: shell.path().to_owned(),
        };
        let (etcd, trial, follower) =
            tokio::join!(Etcd::start(etcd, folder.path()), Trial::start(spec), start_candidate(kind, 2));
        let (etcd, mut trial, follower) = (etcd?, trial?, follower?);
        let (one, two) = (ReservedPort::pick()?, ReservedPort::pick()?);
        shell.write("token", "0123456789abcdef0123456789abcdef")?;
        trial.add_channel(&format!(
            "\n[http]\nlisten = \"127.0.0.1:{}\"\ntoken_file = \"token\"\nlook_interval_ms = 100\n\n[[relay]]\nname = \"relay2\"\n\
             source = \"primary\"\nurl = \"http://127.0.0.1:{}\"\ntoken_file = \"token\"\nserver_id = 4202\nserves = []\n",
            one.number(),
            two.number()
        ))?;
        trial.manage(
            &[&follower],
            &format!(
                "name = \"one\"\n{settings}\nlease = \"etcd\"\nlease_ttl_ms = 2000\netcd_endpoints = [\"{}\"]\n{}",
                etcd.endpoint(),
                hooks.replace("FOLDER", &shell.path().display().to_string())
            ),
        )?;
        let mut second = SecondDaemon::new(&shell, program, &trial, &two, &one)?;
        trial.start_relay()?;
        second.start()?;
        trial.wait_captured().await?;
        follower.replicate(&trial.replica_of_relay()).await?;
        prepare(&trial.primary.connect_options()).await?;
        let ledger = Arc::<Ledger>::default();
        let spec = WorkloadSpec { pause: Duration::from_millis(2), ..WorkloadSpec::new(4) };
        let load = Workload::start(trial.primary.connect_options(), &spec, Arc::clone(&ledger));
        let pair =
            Self { shell, trial, follower, second, ports: (one, two), ledger, load, etcd: (etcd, folder) };
        pair.wait_until_observed().await?;
        Ok(pair)
    }

    /// Waits until both managers report that both relays acknowledge.
    pub async fn wait_until_observed(&self) -> Result<()> {
        for (shell, other) in [(&self.shell, "relay2"), (&self.second.shell, "relay1")] {
            let is_seen = |status: &Value| is_observed(status, &["tailwater", other]);
            until(shell, "both relays to acknowledge", is_seen).await?;
        }
        Ok(())
    }

    /// Makes sure that the first manager holds the lease.
    pub async fn make_first_active(&mut self) -> Result<()> {
        // Until one of the managers acts, either of them may get the lease.
        let started = Instant::now();
        while !has_lease(&status(&self.shell)?) {
            if !has_lease(&status(&self.second.shell)?) {
                ensure!(started.elapsed() < PATIENCE, "none of the managers acts");
                tokio::time::sleep(Duration::from_millis(30)).await;
                continue;
            }
            self.second.process.take().context("the second daemon is not running")?.kill().await?;
            until(&self.shell, "the first manager to act", has_lease).await?;
            self.second.start()?;
            self.wait_until_observed().await?;
        }
        Ok(())
    }

    pub async fn wait_for_more_commits(&self) -> Result<()> {
        let wanted = self.load.counters().snapshot().acknowledged + 50;
        let started = Instant::now();
        while self.load.counters().snapshot().acknowledged < wanted {
            ensure!(
                started.elapsed() < PATIENCE,
                "the primary acknowledges no further commits: {:?}",
                self.load.counters().snapshot()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

async fn other_manager_takes_over(kind: ServerKind) -> Result<()> {
    let (Some(_), Some(program)) = (require(kind), Etcd::require()) else { return Ok(()) };
    let mut pair =
        Pair::start(kind, &program, "automatic = true", "", TrialDurability::Reduced, Vec::new()).await?;
    // The second daemon must report correctly about a replica that reads from the log of the first daemon.
    let (http_one, http_two) = (Http { port: pair.ports.0.number() }, Http { port: pair.ports.1.number() });
    http_one.until("/replica/db2?lag=60", 200, |_| true)?;
    http_two.until("/replica/db2?lag=60", 200, |_| true)?;
    let ran = pair.second.shell.run("topology -c tailwater.toml")?.exits(0);
    ran.says(&["relay1", "db2"]).stdout_lacks(&["UnknownSource"]);

    // The acting manager is stopped. The other manager acts as soon as the lease is free. Then the first
    // daemon starts again as a relay.
    pair.make_first_active().await?;
    pair.trial.kill_relay().await?;
    until(&pair.second.shell, "the second manager to act", has_lease).await?;
    // With one of two ackers down, it cannot be proved that the failover is lossless.
    let ran = pair.second.shell.run("failover primary --dry-run -c tailwater.toml")?.exits(4);
    ran.stderr_has(&["TW-MGR-0032", "relay1"]);
    pair.trial.start_relay()?;
    until(&pair.second.shell, "the manager to observe both relays", |status| {
        is_observed(status, &["tailwater", "relay1"])
    })
    .await?;

    pair.trial.primary.kill().await?;
    let after =
        until(&pair.second.shell, "a new primary", |status| status["primary"] != PRIMARY_NAME).await?;
    ensure!(after["primary"] == "db2", "the new primary is not db2: {after:#}");
    pair.load.redirect(pair.follower.connect_options());
    pair.wait_for_more_commits().await?;
    let report = pair.load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    check_ledger(&pair.ledger, &pair.follower).await?;
    // Both daemons must report db2 as the primary, and both relays must follow it.
    for http in [&http_one, &http_two] {
        http.until("/primary/db2", 200, |_| true)?;
        http.until("/primary/db1", 503, |body| body["reason"] == "the log follows db2")?;
    }
    until(&pair.shell, "the first manager to know the new primary", |status| status["primary"] == "db2")
        .await?;
    let started = Instant::now();
    while pair.follower.semi_sync_status().await?.replicas < 2 {
        ensure!(
            started.elapsed() < PATIENCE,
            "the new primary does not require the ACKs of both relays: {:?}",
            pair.follower.semi_sync_status().await?
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(pair.second);
    pair.trial.kill_relay().await
}

async fn other_manager_rolls_back_a_switchover(kind: ServerKind) -> Result<()> {
    let (Some(_), Some(program)) = (require(kind), Etcd::require()) else { return Ok(()) };
    let mut pair =
        Pair::start(kind, &program, "automatic = false", "", TrialDurability::Reduced, Vec::new()).await?;
    pair.trial.primary.sql("CREATE TABLE tw_load.locked (id INT PRIMARY KEY)").await?;
    pair.make_first_active().await?;
    // A lock delays the statement that makes the primary read-only until the manager has been killed. Then
    // the primary becomes read-only.
    let mut holder = Connection::connect(&pair.trial.primary.connect_options()).await?;
    holder.execute("LOCK TABLES tw_load.locked WRITE").await?;
    let _command = spawn(&pair.shell, "switchover primary --to db2 --max-write-pause-ms 60000")?;
    wait_for_statement(&pair.trial.primary, "SET GLOBAL", true).await?;
    pair.trial.kill_relay().await?;
    holder.execute("UNLOCK TABLES").await?;
    let started = Instant::now();
    let takes_writes = async || {
        let word = pair.trial.primary.sql("SELECT @@global.read_only").await?.concat();
        anyhow::Ok(word == "0" || word == "OFF")
    };
    until(&pair.second.shell, "the second manager to act", has_lease).await?;
    // The first relay is down, so some actions cannot be undone yet. The primary accepts writes again anyway.
    let folder = pair.second.shell.path().join("log/manager/primary");
    while !(folder.exists() && recovery_recorded(&folder)? && takes_writes().await?) {
        ensure!(
            started.elapsed() < PATIENCE,
            "the second manager does not undo the switchover: {:?}",
            status(&pair.second.shell)?
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    pair.wait_for_more_commits().await?;
    pair.trial.start_relay()?;
    while recoveries(&folder)?.is_empty() {
        ensure!(
            started.elapsed() < PATIENCE * 2,
            "some actions of the interrupted failover or switchover are not undone: {:?}",
            status(&pair.second.shell)?
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    pair.wait_until_observed().await?;
    let report = pair.load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    check_ledger(&pair.ledger, &pair.trial.primary).await?;
    drop(pair.second);
    pair.trial.kill_relay().await
}

/// The daemon whose manager runs the failover is killed while the ackers are stopped, and the old primary
/// restarts. The other manager makes the ackers acknowledge again.
async fn other_manager_rolls_back_a_failover(kind: ServerKind) -> Result<()> {
    let (Some(_), Some(program)) = (require(kind), Etcd::require()) else { return Ok(()) };
    let mut pair =
        Pair::start(kind, &program, "automatic = false", DAEMON_KILL_HOOK, TrialDurability::Full, Vec::new())
            .await?;
    pair.make_first_active().await?;
    pair.shell.write("die-in-fence", "")?;
    pair.trial.primary.kill().await?;
    let _command = spawn(&pair.shell, "failover primary")?;
    let started = Instant::now();
    // The hook runs after the ackers have stopped.
    while pair.trial.relay().is_some_and(|relay| relay.is_running()) {
        ensure!(
            started.elapsed() < PATIENCE,
            "the hook does not kill the daemon: {:?}",
            status(&pair.shell)?
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pair.trial.primary.start_again().await?;
    until(&pair.second.shell, "the second manager to act", has_lease).await?;
    // The relay of the second daemon acknowledges again at once. The relay of the first daemon acknowledges
    // again after its restart.
    pair.wait_for_more_commits().await?;
    pair.trial.start_relay()?;
    let folder = pair.second.shell.path().join("log/manager/primary");
    while recoveries(&folder)?.is_empty() {
        ensure!(
            started.elapsed() < PATIENCE * 2,
            "some actions of the interrupted failover or switchover are not undone: {:?}",
            status(&pair.second.shell)?
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    pair.wait_until_observed().await?;
    let report = pair.load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    check_ledger(&pair.ledger, &pair.trial.primary).await?;
    drop(pair.second);
    pair.trial.kill_relay().await
}

/// A failover with `--allow-data-loss`. The daemon that ran it is killed before the old primary restarts.
async fn other_manager_knows_the_accepted_data_loss(kind: ServerKind) -> Result<()> {
    let (Some(_), Some(program)) = (require(kind), Etcd::require()) else { return Ok(()) };
    let settings = "automatic = false\nrejoin = true";
    let mut pair = Pair::start(kind, &program, settings, "", TrialDurability::Full, Vec::new()).await?;
    pair.make_first_active().await?;
    pair.trial.primary.sql("CREATE TABLE tw_load.kept (id INT PRIMARY KEY)").await?;
    pair.wait_for_more_commits().await?;
    pair.load.abort().await;
    pair.second.process.take().context("the second daemon is not running")?.kill().await?;
    // The second daemon is down, so it is unknown whether its relay has acknowledged this commit.
    let kept = commit_without_acknowledgement(
        &pair.trial.primary,
        &pair.shell,
        "INSERT INTO tw_load.kept VALUES (1)",
    )
    .await?;
    pair.trial.primary.kill().await?;
    ensure!(kept.await?.is_err(), "the client got an OK for a commit without an ACK");
    let ran = pair.shell.run("failover primary --allow-data-loss -c tailwater.toml")?.exits(0);
    ran.says(&["db2 is primary", "may be lost"]);
    pair.second.start()?;
    until(&pair.second.shell, "the second manager to know the new primary", |status| {
        status["primary"] == "db2"
    })
    .await?;
    pair.trial.kill_relay().await?;
    until(&pair.second.shell, "the second manager to act", has_lease).await?;
    pair.trial.primary.start_again().await?;
    let started = Instant::now();
    let log = pair.second.shell.path().join("relay.log");
    loop {
        let log = std::fs::read_to_string(&log)?;
        if log.contains("TW-MGR-0074") && log.contains("--allow-data-loss") {
            break;
        }
        ensure!(started.elapsed() < PATIENCE, "the automatic rejoin is not refused: {log}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let old = &pair.trial.primary;
    ensure!(
        old.sql("SELECT COUNT(*) FROM tw_load.kept").await? == ["1"],
        "the rejoin has undone the transaction that only this server has"
    );
    ensure!(
        old.sql("SHOW ALL SLAVES STATUS").await?.is_empty(),
        "the former primary replicates although it was not rejoined"
    );
    Ok(())
}

/// Whether there is an audit record of a finished recovery, with any outcome.
fn recovery_recorded(folder: &Path) -> Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|is| is == "json") {
            let record: Value = serde_json::from_slice(&std::fs::read(path)?)?;
            if record["resumes"].is_string() && record["outcome"]["end"].is_string() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

pub async fn check_ledger(ledger: &Ledger, server: &Server) -> Result<()> {
    let report = ledger.compare_with_server(&server.connect_options()).await?;
    let wrong = report.missing.count + report.altered.count + report.failed_but_present.count;
    ensure!(
        wrong == 0 && report.unlisted == 0,
        "acknowledged commits are missing, or there are rows that no client wrote: {report:?}"
    );
    Ok(())
}
