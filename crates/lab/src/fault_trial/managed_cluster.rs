//! A trial with a managed cluster: it has replicas that can become primary, and a manager in the relay's
//! process.

use std::fmt::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tailwater_manager::failover_driver::AuditFolder;
use tailwater_manager::model::Audit;
use tailwater_sandbox::{Server, ServerKind, ServerSpec};
use tailwater_wire::Flavour;

use super::{SOURCE_NAME, Trial, primary_options};
use tailwater_config::Config;
use tailwater_daemon::api::clusters::ClusterReport;
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::api::manager_requests::{ManagerAnswer, ManagerRequest};
use tailwater_daemon::control_socket::{ask, socket_of};

/// The name of the primary among the servers of its cluster.
pub const PRIMARY_NAME: &str = "db1";

/// Starts a replica that can become primary: it logs replicated changes in its own binlog.
///
/// # Errors
/// If it cannot be started.
pub async fn start_candidate(kind: ServerKind, number: u32) -> anyhow::Result<Server> {
    start_candidate_with(kind, number, &[]).await
}

/// Starts a replica as [`start_candidate`] does, with more server options.
///
/// # Errors
/// The errors of [`start_candidate`].
pub async fn start_candidate_with(kind: ServerKind, number: u32, more: &[String]) -> anyhow::Result<Server> {
    let mut options: Vec<String> = primary_options(kind);
    options.retain(|option| !option.starts_with("--server-id"));
    options.push(format!("--server-id={number}"));
    options.push("--sync-binlog=0".to_owned());
    options.push("--innodb-flush-log-at-trx-commit=0".to_owned());
    options.push(match kind.flavour() {
        Flavour::MySql => "--log-replica-updates=1".to_owned(),
        Flavour::MariaDb => "--log-slave-updates=1".to_owned(),
    });
    options.extend_from_slice(more);
    let server = Server::start(ServerSpec::new(kind).name(format!("db{number}")).options(options)).await?;
    server.create_replication_user().await?;
    // Replicas are read-only in production, too.
    server
        .sql(match kind.flavour() {
            Flavour::MySql => "SET GLOBAL super_read_only = 1",
            Flavour::MariaDb => "SET GLOBAL read_only = 1",
        })
        .await?;
    Ok(server)
}

impl Trial {
    /// Adds the primary and these servers to the configuration, and enables the manager in the relay's
    /// process. `manager` holds keys of `[manager]`. Takes effect at the relay's next start.
    ///
    /// # Errors
    /// If the configuration cannot be written.
    pub fn manage(&mut self, followers: &[&Server], manager: &str) -> anyhow::Result<()> {
        let named = followers.iter().map(|server| (server.name().to_owned(), server.port()));
        let all: Vec<_> = named.chain([(PRIMARY_NAME.to_owned(), self.primary.port())]).collect();
        self.manage_at(&all, manager)
    }

    /// Does the same as [`Trial::manage`], but the servers are at other loopback ports, such as those of
    /// faulty links. The primary must be among them, at the port given to [`Trial::write_config`].
    ///
    /// # Errors
    /// If the configuration cannot be written.
    pub fn manage_at(&mut self, servers: &[(String, u16)], manager: &str) -> anyhow::Result<()> {
        std::fs::write(self.spec.folder.join("root.cnf"), "[client]\nuser=root\npassword=\n")?;
        let mut text = String::new();
        for (name, port) in servers {
            let _ = write!(
                text,
                "\n[[server]]\nname = \"{name}\"\nsource = \"{SOURCE_NAME}\"\nhost = \"127.0.0.1\"\nport = {port}\n\
                 defaults_file = \"root.cnf\"\ntls = \"off\"\n"
            );
        }
        let _ = write!(text, "\n[manager]\n{manager}\n");
        self.add_channel(&text)
    }

    /// Returns the manager's report about the cluster; `None` while the relay does not answer.
    pub fn cluster(&self) -> Option<ClusterReport> {
        report(&self.config)
    }

    /// Waits until the manager knows enough about the primary for a failover.
    ///
    /// # Errors
    /// If this takes more than a minute.
    pub async fn wait_until_observed(&self) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let cluster = self.cluster();
            let lossless = cluster.as_ref().and_then(|cluster| cluster.lossless.as_deref());
            let holds = cluster.as_ref().is_some_and(|cluster| cluster.lease.starts_with("held"));
            let settled = |text: &str| text == "1 of tailwater must acknowledge";
            if holds && lossless.is_some_and(settled) {
                return Ok(());
            }
            if started.elapsed() > Duration::from_secs(60) {
                bail!(
                    "the manager has not observed a primary that waits for ACKs: {cluster:?}: {}",
                    self.relay_log_tail()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the manager reports this server as the primary.
    ///
    /// # Errors
    /// If this takes more than a minute.
    pub async fn wait_for_primary(&self, server: &str) -> anyhow::Result<()> {
        let started = Instant::now();
        while self.cluster().is_none_or(|cluster| cluster.primary != server) {
            ensure!(
                started.elapsed() < Duration::from_secs(60),
                "the manager does not report {server} as the primary: {}",
                self.relay_log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Runs `tailwater rejoin` for a former primary, and returns its JSON output.
    ///
    /// # Errors
    /// If the rejoin fails.
    pub async fn rejoin(&self, server: &str) -> anyhow::Result<serde_json::Value> {
        let mut command = tokio::process::Command::new(&self.spec.program);
        command.args(["rejoin", "--output", "json", "-c"]).arg(&self.config).args([SOURCE_NAME, server]);
        let ran = command.stdin(Stdio::null()).output().await.context("cannot run tailwater rejoin")?;
        let text = String::from_utf8_lossy(&ran.stdout);
        ensure!(
            ran.status.success(),
            "tailwater rejoin failed: {}: {text}{}",
            ran.status,
            String::from_utf8_lossy(&ran.stderr)
        );
        let last = text.lines().last().unwrap_or_default();
        serde_json::from_str(last).with_context(|| format!("tailwater rejoin printed no JSON: {text}"))
    }

    /// Returns the audit record of the last finished failover.
    ///
    /// # Errors
    /// If there is none, or its audit record cannot be read.
    pub fn last_failover(&self) -> anyhow::Result<Audit> {
        let records = AuditFolder::new(self.spec.folder.join("log/manager").join(SOURCE_NAME));
        let failovers = records.list()?.into_iter().rev().filter(|id| id.ends_with("-failover"));
        for id in failovers {
            if let Some(audit) = records.load(&id)?.filter(|audit| audit.outcome.is_some()) {
                return Ok(audit);
            }
        }
        bail!("no failover has finished")
    }

    /// Waits until a server other than `old` is the primary, and returns its name.
    ///
    /// # Errors
    /// If this takes more than a minute.
    pub async fn wait_failed_over(&self, old: &str) -> anyhow::Result<String> {
        let started = Instant::now();
        loop {
            let cluster = self.cluster();
            if let Some(cluster) = cluster.as_ref().filter(|cluster| cluster.primary != old) {
                return Ok(cluster.primary.clone());
            }
            if started.elapsed() > Duration::from_secs(60) {
                let last = self.last_failover();
                bail!(
                    "no server has replaced {old} as primary: {cluster:?}; {last:?}: {}",
                    self.relay_log_tail()
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Returns the manager's report about the first cluster of this configuration; `None` while the daemon does
/// not answer.
pub fn report(config: &Path) -> Option<ClusterReport> {
    let config = Config::load(config).ok()?;
    let status = ControlCommand::Manager(ManagerRequest::Status);
    let asked = ask(&socket_of(&config.log.directory), &status);
    match asked.ok()? {
        ControlAnswer::Manager(ManagerAnswer::Clusters(clusters)) => clusters.into_iter().next(),
        _ => None,
    }
}

/// Waits until a server accepts writes of accounts without special privileges.
///
/// # Errors
/// If this takes more than a minute.
pub async fn wait_writable(server: &Server) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let read_only =
            server.sql("SELECT @@global.read_only").await.context("cannot read @@global.read_only")?;
        if read_only == ["0"] {
            return Ok(());
        }
        if started.elapsed() > Duration::from_secs(60) {
            bail!("{} is still read-only", server.name());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
