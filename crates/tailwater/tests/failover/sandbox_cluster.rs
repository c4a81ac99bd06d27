//! The manager runs with the unchanged configuration that `tailwater sandbox up --semi-sync` prints, on a
//! cluster of the sandbox. While the primary is alive, the manager reports the rules that would refuse a
//! failover.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tailwater_sandbox::{Cache, ServerKind, require};
use tailwater_wire::Flavour;

use crate::cli::demo_and_sandbox::{StopServersOnDrop, shell_with_cache};
use crate::openmetrics_parser::Scrape;
use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

on_each_server!(a_sandbox_cluster_is_managed);

#[tokio::test]
async fn readiness_names_the_rule_that_would_refuse_mariadb() -> Result<()> {
    readiness_names_the_refusing_rule(ServerKind::Mariadb1011)
}

#[tokio::test]
async fn readiness_names_the_rule_that_would_refuse_mysql() -> Result<()> {
    readiness_names_the_refusing_rule(ServerKind::Mysql97)
}

/// The daemon. It is stopped when this value is dropped.
struct Daemon(Child);

impl Daemon {
    fn start(shell: &Shell, config: &str) -> Result<Self> {
        let log = fs::OpenOptions::new().create(true).append(true).open(shell.path().join("run.log"))?;
        let mut command = Command::new(PROGRAM);
        command.args(["run", "-c", config]).current_dir(shell.path());
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon is stopped even if the test fails.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Three servers. The first one is the primary.
struct Cluster<'a> {
    shell: &'a Shell,
    cache: &'a Cache,
    kind: ServerKind,
    /// The configuration that `sandbox up` printed.
    config: String,
}

impl<'a> Cluster<'a> {
    fn up(shell: &'a Shell, cache: &'a Cache, kind: ServerKind) -> Result<Self> {
        let family = match kind.flavour() {
            Flavour::MySql => "mysql",
            Flavour::MariaDb => "mariadb",
        };
        let series = kind.series();
        let up = format!("sandbox up --server {family} --version {series} --semi-sync --count 3");
        let printed = shell.run(&up)?.exits(0).text();
        let begins = printed.find("[log]").context("no configuration was printed")?;
        let config = printed[begins..].split("\n# ").next().unwrap_or_default().to_owned();
        shell.write("tailwater.toml", &config)?;
        Ok(Self { shell, cache, kind, config })
    }

    fn name(&self, number: u32) -> String {
        format!("{}-{number}", self.kind.name())
    }

    fn sql(&self, server: &str, statement: &str) -> Result<String> {
        let client = self.cache.up().join(server).join(self.kind.client());
        let command = format!("timeout 30 '{}' -N -e \"{statement}\"", client.display());
        Ok(self.shell.bash(&command)?.exits(0).text().trim().to_owned())
    }

    /// Returns what the manager reports of the cluster; `None` if the daemon does not answer.
    fn status(&self) -> Option<Value> {
        let ran = self.shell.run("manager status -c tailwater.toml --output json").ok()?;
        ran.json().ok()?.first().map(|status| status["clusters"][0].clone())
    }

    /// Waits until the manager's report satisfies the condition.
    fn until(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Result<Value> {
        let started = Instant::now();
        loop {
            let status = self.status().unwrap_or_default();
            if condition(&status) {
                return Ok(status);
            }
            if started.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.shell.path().join("run.log"))?;
                bail!("timed out while waiting for {what}: {status:#}\n{log}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn wait_until_ready(&self) -> Result<Value> {
        let is_ready = |status: &Value| {
            status["readiness"]["state"] == "ready"
                && status["findings"].as_array().is_some_and(Vec::is_empty)
                && status["lease"].as_str().is_some_and(|lease| lease.starts_with("held"))
        };
        let status = self.until("a cluster that is ready", is_ready)?;
        // The daemon checks whether a failover is possible for each request for `/metrics` and for each
        // request for the status, separately.
        self.scrape_until("a cluster that is ready", |scrape| {
            let value = |name| scrape.value(&format!("tailwater_manager_{name}{{cluster=\"sandbox\"}}"));
            value("failover_readiness_known") == Some(1.0)
                && value("failover_ready") == Some(1.0)
                && value("leader") == Some(1.0)
                && !scrape.has("tailwater_manager_failover_refused_by")
                && !scrape.has("tailwater_manager_findings")
        })?;
        Ok(status)
    }

    /// Waits until the manager reports a finding for this rule whose text contains these words.
    fn wait_until_refused(&self, rule: &str, words: &[&str]) -> Result<()> {
        let is_told = |status: &Value| {
            let reason = status["readiness"]["reason"].as_str().unwrap_or_default();
            let findings = status["findings"].as_array().cloned().unwrap_or_default();
            let is_found =
                findings.iter().any(|one| one["code"] == "FailoverNotReady" && one["rule"] == rule);
            status["readiness"]["rule"] == rule && words.iter().all(|word| reason.contains(word)) && is_found
        };
        self.until(&format!("{rule} {words:?}"), is_told)?;
        let text = self.shell.run("manager status -c tailwater.toml")?.exits(0);
        text.says(&["not ready", rule, "FailoverNotReady"]).stdout_lacks(&["nothing is wrong"]);
        let rules = format!("tailwater_manager_failover_refused_by{{cluster=\"sandbox\",rule=\"{rule}\"}}");
        self.scrape_until(rule, |scrape| {
            scrape.value("tailwater_manager_failover_ready{cluster=\"sandbox\"}") == Some(0.0)
                && scrape.value(&rules) == Some(1.0)
                && scrape.text.matches("tailwater_manager_failover_refused_by{").count() == 1
                && scrape.text.contains("code=\"FailoverNotReady\"")
        })
    }

    /// Changes the option file of a server, and restarts the server.
    fn restart_with(&self, server: &str, change: impl Fn(&str) -> String) -> Result<()> {
        let file = self.cache.up().join(server).join("my.cnf");
        fs::write(&file, change(&fs::read_to_string(&file)?))?;
        self.shell.run(&format!("sandbox stop {server}"))?.exits(0);
        self.shell.run(&format!("sandbox start {server}"))?.exits(0);
        Ok(())
    }

    /// Requests the metrics until they satisfy the condition.
    fn scrape_until(&self, what: &str, condition: impl Fn(&Scrape) -> bool) -> Result<()> {
        let started = Instant::now();
        loop {
            let scrape = Scrape::of(self.http_address()?)?;
            if condition(&scrape) {
                return Ok(());
            }
            ensure!(started.elapsed() < PATIENCE, "timed out while waiting for {what}: {}", scrape.text);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the address at which the daemon listens for HTTP.
    fn http_address(&self) -> Result<&str> {
        let listen = self.config.split("[http]").nth(1).and_then(|text| text.split('"').nth(1));
        listen.context("the configuration has no HTTP address")
    }

    /// Requests `GET /status`.
    fn http_status(&self) -> Result<Value> {
        let mut stream = TcpStream::connect(self.http_address()?)?;
        stream.write_all(b"GET /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split("\r\n\r\n").nth(1).context("the response has no body")?;
        Ok(serde_json::from_str(body)?)
    }
}

async fn a_sandbox_cluster_is_managed(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (shell, cache) = shell_with_cache()?;
    let _down = StopServersOnDrop(&shell);
    let cluster = Cluster::up(&shell, &cache, kind)?;
    let (one, two) = (cluster.name(1), cluster.name(2));
    shell.run("config check -c tailwater.toml")?.exits(0);
    let _daemon = Daemon::start(&shell, "tailwater.toml")?;
    let status = cluster.wait_until_ready()?;
    ensure!(
        status["primary"] == one && status["readiness"]["server"] != one,
        "the primary is not {one}, or the candidate is the primary itself: {status:#}"
    );
    shell.run("manager status -c tailwater.toml")?.exits(0).says(&["ready: a failover", "nothing is wrong"]);
    shell.run("topology -c tailwater.toml")?.exits(0).says(&["failover: ready"]).stdout_lacks(&["! "]);
    ensure!(cluster.http_status()?["clusters"][0]["readiness"]["state"] == "ready");
    let well = shell.run("status -c tailwater.toml")?.exits(0);
    well.says(&["automatic failover; lease held", "failover: ready", "all is well"]);
    cluster
        .sql(&one, "CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY); INSERT INTO d.t VALUES (1)")?;

    shell.run(&format!("switchover sandbox --to {two} -c tailwater.toml"))?.exits(0);
    cluster.sql(&two, "INSERT INTO d.t VALUES (2)")?;
    if kind.flavour() == Flavour::MariaDb {
        // After a restart, MariaDB waits for ACKs only if its option file says so, because it does not
        // persist global variables.
        cluster.wait_until_refused("TW-MGR-0033", &[&two, "option file"])?;
        let status = cluster.http_status()?;
        let readiness = &status["clusters"][0]["readiness"];
        ensure!(readiness["rule"] == "TW-MGR-0033", "the readiness does not name TW-MGR-0033: {status:#}");
        let of_source = fs::read_to_string(cache.up().join(&one).join("my.cnf"))?;
        shell.run("manager pause -c tailwater.toml")?.exits(0);
        cluster.restart_with(&two, |_| of_source.clone())?;
        shell.run("manager resume -c tailwater.toml")?.exits(0);
    }
    cluster.wait_until_ready()?;
    shell.run(&format!("sandbox kill {two}"))?.exits(0);
    let is_replaced = |status: &Value| status["primary"].as_str().is_some_and(|primary| primary != two);
    let primary =
        cluster.until("another primary", is_replaced)?["primary"].as_str().unwrap_or_default().to_owned();
    cluster.sql(&primary, "INSERT INTO d.t VALUES (3)")?;
    let status = shell.run("status -c tailwater.toml")?.exits(3);
    status.says(&[
        "FailoverNotAcknowledged",
        "`tailwater manager acknowledge`",
        &format!("primary {primary}"),
    ]);
    ensure!(cluster.sql(&primary, "SELECT GROUP_CONCAT(a ORDER BY a) FROM d.t")? == "1,2,3");

    let side = if kind.flavour() == Flavour::MySql { "source" } else { "master" };
    cluster.sql(&primary, &format!("SET GLOBAL rpl_semi_sync_{side}_enabled = 0"))?;
    cluster.wait_until_refused("TW-MGR-0030", &[&primary, "semi-sync is off"])
}

fn readiness_names_the_refusing_rule(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (shell, cache) = shell_with_cache()?;
    let _down = StopServersOnDrop(&shell);
    let cluster = Cluster::up(&shell, &cache, kind)?;
    let (side, start, stop, log_updates) = match kind.flavour() {
        Flavour::MySql => ("replica", "START REPLICA", "STOP REPLICA", "log-replica-updates"),
        Flavour::MariaDb => ("slave", "START SLAVE", "STOP SLAVE", "log-slave-updates"),
    };
    let replicas = [cluster.name(2), cluster.name(3)];

    let no_relay = cluster.config.replacen("server_id", "semi_sync = false\nserver_id", 1);
    shell.write("tailwater.toml", &no_relay)?;
    let daemon = Daemon::start(&shell, "tailwater.toml")?;
    cluster.wait_until_refused("TW-MGR-0032", &["no relay acknowledges"])?;
    drop(daemon);

    shell.write("tailwater.toml", &cluster.config)?;
    let _daemon = Daemon::start(&shell, "tailwater.toml")?;
    cluster.wait_until_ready()?;
    let set = |on: u8| format!("SET GLOBAL rpl_semi_sync_{side}_enabled = {on}; {stop}; {start}");
    if kind.flavour() == Flavour::MySql {
        cluster.sql(&replicas[0], "SET GLOBAL super_read_only = 0; SET sql_log_bin = 0; \
            INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'; SET GLOBAL super_read_only = 1")?;
    }
    cluster.sql(&replicas[0], &set(1))?;
    cluster.wait_until_refused(
        "TW-MGR-0032",
        &["1 semi-sync replica of the primary without a [[relay]] section"],
    )?;
    cluster.sql(&replicas[0], &set(0))?;
    cluster.wait_until_ready()?;

    for replica in &replicas {
        cluster.restart_with(replica, |file| {
            file.replace(&format!("{log_updates}=1"), &format!("{log_updates}=0"))
        })?;
    }
    let off = |name: &String| format!("{name}: log_replica_updates is off");
    cluster.wait_until_refused("TW-MGR-0040", &[&off(&replicas[0]), &off(&replicas[1])])
}
