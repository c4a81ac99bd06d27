//! Each fault of a cluster with two relays fires its alerts, and no other alerts. A real Prometheus scrapes
//! both daemons. The alerts end with the fault.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_lab::fault_trial::{Trial, TrialDurability};
use tailwater_sandbox::{Etcd, Prometheus, Server, ServerKind, SlowSync, require};
use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tokio::task::JoinHandle;

use super::two_relays_and_managers::{Pair, SecondDaemon};
use crate::cli::http_listener::{daemon, follower, member, unlock};
use crate::monitoring_files::RULES;
use crate::shell_session::Shell;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(90);

/// How many times in a row the firing alerts must be the expected ones.
const CONFIRMATIONS: u32 = 6;

/// Prometheus with the alert rules of docs/monitoring, which fire within seconds.
struct Alerts {
    prometheus: Prometheus,
    _folder: tempfile::TempDir,
}

impl Alerts {
    fn start(program: &Path, ports: &[u16], token: Option<&Path>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let rules = folder.path().join("alerts.yml");
        std::fs::write(&rules, fast_rules())?;
        let targets: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let prometheus = Prometheus::start(program, folder.path(), &targets, token, &rules)?;
        Ok(Self { prometheus, _folder: folder })
    }

    /// Returns all alerts of Prometheus, whether they fire or not.
    fn all(&self) -> Result<Vec<Value>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.prometheus.port()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /api/v1/alerts HTTP/1.0\r\nHost: x\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("the response has no body")?;
        let body: Value = serde_json::from_str(body)?;
        body["data"]["alerts"].as_array().cloned().with_context(|| body.to_string())
    }

    /// Waits until exactly these alerts fire, and no other alert fires for some time.
    async fn until(&self, fault: &str, expected: &[&str]) -> Result<()> {
        let expected: BTreeSet<_> = expected.iter().map(|name| format!("Tailwater{name}")).collect();
        let (started, mut confirmations) = (Instant::now(), 0);
        while confirmations < CONFIRMATIONS {
            let alerts = self.all().unwrap_or_default();
            let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
            let names = firing.clone().filter_map(|alert| alert["labels"]["alertname"].as_str());
            let names: BTreeSet<_> = names.map(str::to_owned).collect();
            let is_known = !alerts.is_empty() || expected.is_empty();
            confirmations = if is_known && names == expected { confirmations + 1 } else { 0 };
            for alert in firing {
                for text in ["summary", "description"] {
                    let text = alert["annotations"][text].as_str().unwrap_or_default();
                    ensure!(
                        !text.is_empty() && !text.contains("<no value>"),
                        "the alert has an empty or incomplete text: {alert:#}"
                    );
                }
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "{fault}: the alerts {names:?} fire, expected {expected:?}\n{alerts:#?}\n{}",
                std::fs::read_to_string(self.prometheus.log()).unwrap_or_default()
            );
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        eprintln!("{fault}: {} after {:.1} s", names_of(&expected), started.elapsed().as_secs_f64());
        Ok(())
    }
}

fn names_of(names: &BTreeSet<String>) -> String {
    if names.is_empty() {
        "no alert".to_owned()
    } else {
        names.iter().cloned().collect::<Vec<_>>().join(", ")
    }
}

/// Returns the alert rules with short times. The rule about a disk that is filling is left out, because other
/// programs of this machine may fill its disk.
fn fast_rules() -> String {
    let mut rules = String::new();
    let mut is_left_out = false;
    for line in RULES.lines() {
        if let Some(name) = line.trim().strip_prefix("- alert: ") {
            is_left_out = name == "TailwaterLogDiskFilling";
        }
        if is_left_out {
            continue;
        }
        let line = match line.trim().starts_with("for: ") {
            true => "        for: 2s".to_owned(),
            false => line.replace("[5m]", "[10s]").replace("[15m]", "[10s]"),
        };
        // A lag of a few seconds must fire. The limits of slow and full disks are so far off that only the
        // faults of this test exceed them.
        let line = line.replace("_delay_seconds > 60", "_delay_seconds > 3");
        rules += &line.replace("))) > 0.1", "))) > 0.9").replace("5 * 2^30", "200 * 2^20");
        rules.push('\n');
    }
    rules
}

/// A file system in memory for the log of the second daemon, which the test can fill.
struct LogDisk(PathBuf);

impl LogDisk {
    /// Moves the log to a new file system. Returns `None` if this process may not mount.
    fn mount_over(log: &Path) -> Result<Option<Self>> {
        let copy = log.with_extension("copy");
        std::fs::rename(log, &copy)?;
        std::fs::create_dir(log)?;
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1g", "tmpfs"]).arg(log).output()?;
        let disk = mounted.status.success().then(|| Self(log.to_owned()));
        let copied = Command::new("cp").arg("-a").arg(copy.join(".")).arg(log).output()?;
        ensure!(
            copied.status.success(),
            "the log cannot be copied: {}",
            String::from_utf8_lossy(&copied.stderr)
        );
        Ok(disk)
    }

    /// Fills the file system until 3 % of it are free.
    fn fill(&self) -> Result<()> {
        let space = rustix::fs::statvfs(&self.0)?;
        let used = (space.f_blocks - space.f_bfree) * space.f_frsize;
        self.resize(&(used / 97 * 100).to_string())
    }

    fn resize(&self, size: &str) -> Result<()> {
        let remount = format!("remount,size={size}");
        let output = Command::new("mount").args(["-o", &remount]).arg(&self.0).output()?;
        ensure!(
            output.status.success(),
            "the file system cannot be resized: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

impl Drop for LogDisk {
    fn drop(&mut self) {
        // The daemon that writes to the file system may not have ended yet. The option -l unmounts the file
        // system anyway.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_follow_the_faults_of_a_cluster_mariadb() -> Result<()> {
    alerts_follow_faults(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_follow_the_faults_of_a_cluster_mysql() -> Result<()> {
    if std::env::var_os("TAILWATER_LONG").is_none() {
        eprintln!("SKIPPED: slower than the same test on MariaDB; set TAILWATER_LONG=1 to run it");
        return Ok(());
    }
    alerts_follow_faults(ServerKind::Mysql97).await
}

/// A client that writes ten times a second.
struct Writer {
    is_paused: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Writer {
    async fn start(primary: &Server) -> Result<Self> {
        primary.sql("CREATE TABLE tw_load.pulse (a BIGINT PRIMARY KEY AUTO_INCREMENT)").await?;
        let is_paused = Arc::<AtomicBool>::default();
        let (options, paused) = (primary.connect_options(), Arc::clone(&is_paused));
        let task = tokio::spawn(async move {
            loop {
                let Ok(mut client) = Connection::connect(&options).await else { continue };
                loop {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    let is_paused = paused.load(Ordering::Relaxed);
                    if !is_paused && client.execute("INSERT INTO tw_load.pulse VALUES (NULL)").await.is_err()
                    {
                        break;
                    }
                }
            }
        });
        Ok(Self { is_paused, task })
    }

    fn pause(&self) {
        self.is_paused.store(true, Ordering::Relaxed);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The cluster, with a channel of the first daemon.
struct Faults {
    shell: Shell,
    trial: Trial,
    follower: Server,
    second: SecondDaemon,
    etcd: Etcd,
    target: Server,
    writer: Writer,
    alerts: Alerts,
    kind: ServerKind,
}

async fn alerts_follow_faults(kind: ServerKind) -> Result<()> {
    let (Some(_), Some(etcd), Some(prometheus)) = (require(kind), Etcd::require(), Prometheus::require())
    else {
        return Ok(());
    };
    let mut pair =
        Pair::start(kind, &etcd, "automatic = true", "", TrialDurability::Full, Vec::new()).await?;
    let target = follower(kind, 9, "target").await?;
    std::fs::create_dir(pair.shell.path().join("dumps"))?;
    pair.trial.kill_relay().await?;
    pair.trial.add_channel(&format!(
        "\n[[channel]]\nname = \"reports\"\nsource = \"primary\"\nsocket = \"{}\"\nuser = \"root\"\ntls = \"off\"\n\
         \n[[backup]]\nname = \"nightly\"\nfolder = \"dumps\"\n\n[[check]]\nname = \"db2\"\nstate_file = \"db2.check\"\n",
        target.socket().display()
    ))?;
    pair.trial.start_relay()?;
    pair.wait_until_observed().await?;
    pair.make_first_active().await?;
    let ports = [pair.ports.0.number(), pair.ports.1.number()];
    let alerts = Alerts::start(&prometheus, &ports, Some(&pair.shell.path().join("token")))?;
    let Pair { shell, trial, follower, second, load, etcd: (etcd, _folder), ports: _ports, .. } = pair;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    let writer = Writer::start(&trial.primary).await?;
    let mut faults = Faults { shell, trial, follower, second, etcd, target, writer, alerts, kind };
    faults.backup_and_check().await?;
    faults.manager().await?;
    faults.semi_sync().await?;
    faults.channel().await?;
    faults.replica().await?;
    faults.relay().await?;
    faults.log_disk().await?;
    drop(faults.second);
    faults.trial.kill_relay().await
}

impl Faults {
    /// First there is no backup and no check result, then there are both. Later the backup is too old, and
    /// the check finds drift.
    async fn backup_and_check(&self) -> Result<()> {
        let shell = &self.shell;
        self.alerts.until("no backup, no check", &["BackupTooOld", "ResultUnreadable"]).await?;
        let (primary, replica) = (self.trial.primary.port(), self.follower.port());
        let dump = |name: &str| {
            format!("dump --host 127.0.0.1 --port {primary} --user root --database tw_load dumps/{name}")
        };
        shell.run(&dump("first"))?.exits(0);
        self.alerts.until("a backup", &["ResultUnreadable"]).await?;
        let both = format!(
            "--source-host 127.0.0.1 --source-port {primary} --source-user root --target-host 127.0.0.1 --target-port {replica} \
             --target-user root --table tw_load.checked --state db2.check"
        );
        self.trial.primary.sql("CREATE TABLE tw_load.checked (a INT PRIMARY KEY, b INT); INSERT INTO tw_load.checked VALUES (1, 1)").await?;
        shell.run(&format!("check {both}"))?.exits(0);
        self.alerts.until("a backup and a check", &[]).await?;

        let manifest = shell.path().join("dumps/first/manifest.json");
        let text = std::fs::read_to_string(&manifest)?;
        let (before, rest) = text.split_once("\"taken_at\": \"").context("the dump has no time")?;
        let (_, after) = rest.split_once('"').context("the dump has no time")?;
        std::fs::write(&manifest, format!("{before}\"taken_at\": \"2020-01-01T00:00:00Z\"{after}"))?;
        self.alerts.until("an old backup", &["BackupTooOld"]).await?;
        shell.run("status -c tailwater.toml")?.exits(3).says(&["backup nightly", "BackupTooOld"]);
        shell.run(&dump("second"))?.exits(0);
        self.alerts.until("a new backup", &[]).await?;

        let unlock = unlock(self.kind);
        let change = format!("{unlock} SET sql_log_bin = 0; UPDATE tw_load.checked SET b = 2");
        self.follower.sql(&change).await?;
        std::fs::remove_file(shell.path().join("db2.check"))?;
        shell.run(&format!("check {both}"))?.exits(3);
        self.alerts.until("drift", &["CheckFoundDrift"]).await?;
        shell.run(&format!("repair {both} --from-state"))?.exits(0);
        std::fs::remove_file(shell.path().join("db2.check"))?;
        shell.run(&format!("check {both}"))?.exits(0);
        self.alerts.until("no drift", &[]).await?;
        if self.kind.flavour() == Flavour::MySql {
            self.follower.sql("SET GLOBAL super_read_only = 1").await?;
        }
        Ok(())
    }

    /// An operator pauses failovers. Later etcd does not answer.
    async fn manager(&mut self) -> Result<()> {
        let shell = &self.shell;
        shell.run("manager pause -c tailwater.toml")?.exits(0);
        self.alerts.until("a pause", &["FailoverHeldBack"]).await?;
        shell.run("manager resume -c tailwater.toml")?.exits(0);
        self.alerts.until("no pause", &[]).await?;
        self.etcd.pause()?;
        self.alerts.until("etcd does not answer", &["NoLeader"]).await?;
        self.etcd.resume()?;
        self.alerts.until("etcd answers", &[]).await
    }

    /// A client disables semi-sync, and a restart of the primary enables it again. The test does not enable
    /// it with a statement, because the manager would then not know whether semi-sync survives a restart.
    async fn semi_sync(&mut self) -> Result<()> {
        let side = if self.kind.flavour() == Flavour::MySql { "source" } else { "master" };
        self.trial.primary.sql(&format!("SET GLOBAL rpl_semi_sync_{side}_enabled = 0")).await?;
        self.alerts.until("semi-sync is off", &["SemiSyncDegraded", "FailoverRefused"]).await?;
        self.shell.run("manager pause -c tailwater.toml")?.exits(0);
        self.trial.primary.stop().await?;
        self.trial.primary.start_again().await?;
        self.alerts.until("the primary has restarted", &["FailoverHeldBack"]).await?;
        self.trial.primary.kill().await?;
        let expected = ["CaptureNotStreaming", "FailoverHeldBack", "Finding"];
        self.alerts.until("the primary is down", &expected).await?;
        self.trial.primary.start_again().await?;
        self.shell.run("manager resume -c tailwater.toml")?.exits(0);
        self.alerts.until("the primary is up", &[]).await
    }

    async fn channel(&mut self) -> Result<()> {
        let shell = &self.shell;
        let mut locker = Connection::connect(&self.target.socket_options()).await?;
        locker.execute("LOCK TABLES tw_load.pulse WRITE").await?;
        self.alerts.until("a locked table on the target", &["ChannelLagging"]).await?;
        locker.execute("UNLOCK TABLES").await?;
        self.alerts.until("no lock on the target", &[]).await?;

        self.target.sql("SET sql_log_bin = 0; RENAME TABLE tw_load.checked TO tw_load.away").await?;
        self.trial.primary.sql("INSERT INTO tw_load.checked VALUES (2, 2)").await?;
        self.alerts.until("a target without a table", &["ChannelFailed"]).await?;
        self.target.sql("SET sql_log_bin = 0; RENAME TABLE tw_load.away TO tw_load.checked").await?;
        shell.run("channel start reports -c tailwater.toml")?.exits(0);
        self.alerts.until("the table is there again", &[]).await?;

        self.target.kill().await?;
        self.alerts.until("the target is down", &["ChannelNotRunning", "Finding"]).await?;
        self.target.start_again().await?;
        self.alerts.until("the target is up", &[]).await
    }

    async fn replica(&self) -> Result<()> {
        let (stop, start) = match self.kind.flavour() {
            Flavour::MySql => ("STOP REPLICA SQL_THREAD", "START REPLICA SQL_THREAD"),
            Flavour::MariaDb => ("STOP SLAVE SQL_THREAD", "START SLAVE SQL_THREAD"),
        };
        self.follower.sql(stop).await?;
        self.alerts.until("a replica does not apply", &["Finding"]).await?;
        self.follower.sql(start).await?;
        self.alerts.until("the replica applies", &[]).await
    }

    async fn relay(&mut self) -> Result<()> {
        self.second.process.take().context("the second daemon does not run")?.kill().await?;
        let expected = ["Down", "RelayDown", "NoSecondAcker", "FailoverRefused"];
        self.alerts.until("the second relay is down", &expected).await?;
        self.second.start()?;
        self.alerts.until("the second relay is up", &[]).await
    }

    async fn log_disk(&mut self) -> Result<()> {
        let second = &mut self.second;
        second.process.take().context("the second daemon does not run")?.kill().await?;
        let Some(disk) = LogDisk::mount_over(&second.shell.path().join("log"))? else {
            eprintln!("SKIPPED a full disk: this process may not mount");
            return Ok(());
        };
        if SlowSync::is_possible() {
            let slow = SlowSync::compile(second.shell.path(), Duration::from_secs(1))?;
            second.start_with([slow.environment()])?;
            self.alerts.until("a slow disk", &["LogSyncSlow"]).await?;
            second.process.take().context("the second daemon does not run")?.kill().await?;
        }
        second.start()?;
        self.alerts.until("a disk with free space", &[]).await?;
        // The client must write nothing to the log while its disk is full.
        self.writer.pause();
        disk.fill()?;
        self.alerts.until("a full disk", &["LogDiskLow"]).await?;
        disk.resize("1g")?;
        self.alerts.until("free space", &[]).await
    }
}

/// A primary that lost commits: an older copy of its data was restored.
#[tokio::test]
async fn a_rewound_primary_alerts_mysql() -> Result<()> {
    rewound_primary(ServerKind::Mysql97).await
}

#[tokio::test]
async fn a_rewound_primary_alerts_mariadb() -> Result<()> {
    rewound_primary(ServerKind::Mariadb1011).await
}

async fn rewound_primary(kind: ServerKind) -> Result<()> {
    let (Some(_), Some(prometheus)) = (require(kind), Prometheus::require()) else { return Ok(()) };
    let shell = Shell::new()?;
    let (mut trial, port) = daemon(&shell, kind, "").await?;
    // The cluster has a second server. So a capture that refuses its source waits for orders of the manager.
    let beside = follower(kind, 12, "beside").await?;
    trial.add_channel(&member("db2", &beside))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    trial.primary.sql("CREATE DATABASE shop").await?;
    trial.wait_captured().await?;
    trial.primary.stop().await?;
    let data = trial.primary.data().to_owned();
    let (old, new) = (data.with_extension("old"), data.with_extension("new"));
    copy(&data, &old)?;
    trial.primary.start_again().await?;
    trial.primary.sql("CREATE TABLE shop.t (a INT PRIMARY KEY); INSERT INTO shop.t VALUES (1)").await?;
    trial.wait_captured().await?;
    let alerts = Alerts::start(&prometheus, &[port.number()], None)?;
    alerts.until("a primary with one acker", &["NoSecondAcker"]).await?;
    trial.primary.stop().await?;
    alerts.until("the primary is down", &["CaptureNotStreaming"]).await?;
    copy(&data, &new)?;
    copy(&old, &data)?;
    trial.primary.start_again().await?;
    alerts.until("an older copy of the primary", &["RewoundPrimary"]).await?;
    trial.primary.stop().await?;
    copy(&new, &data)?;
    trial.primary.start_again().await?;
    trial.kill_relay().await?;
    trial.start_relay()?;
    alerts.until("the primary has its commits again", &["NoSecondAcker"]).await?;
    for folder in [old, new] {
        std::fs::remove_dir_all(folder)?;
    }
    trial.kill_relay().await
}

/// Replaces a folder by a copy of another.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    let output = Command::new("cp").arg("-a").arg(from).arg(to).output()?;
    ensure!(
        output.status.success(),
        "the folder cannot be copied: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
