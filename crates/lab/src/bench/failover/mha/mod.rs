//! Measures MHA with its own failure detection, on a primary and two replicas like those in Tailwater's
//! measurement.

mod installation;
mod ssh;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tailwater_sandbox::replication_setup::{REPLICATION_PASSWORD, REPLICATION_USER};
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{
    ChildProcess, Install, Ledger, ReplicaOf, ReplicaStart, Server, ServerKind, ServerSpec, Workload,
};
use tokio::task::JoinHandle;

use self::installation::{MhaEnvironment, MhaTools};
use self::ssh::SshServer;
use super::{WARM_UP, clients};
use crate::fault_trial::managed_cluster::{PRIMARY_NAME, start_candidate};
use crate::fault_trial::primary_failure::{PrimaryFailure, first_commit, millis};
use crate::fault_trial::{TrialFolder, primary_options};

/// Creates the account that MHA uses on the servers.
const ACCOUNT: &str = "SET SESSION sql_log_bin = 0; CREATE USER mha@'%' IDENTIFIED BY 'mha'; \
                       GRANT ALL ON *.* TO mha@'%' WITH GRANT OPTION";

/// The text that MHA prints when all checks have succeeded. The next constant, `FAILURE_MESSAGE`, is the text
/// that it prints when it considers the primary dead.
const WATCHING_MESSAGE: &str = "waiting until MySQL doesn't respond";
const FAILURE_MESSAGE: &str = "Master is not reachable from health checker!";

const PATIENCE: Duration = Duration::from_secs(120);

/// An installed MHA.
#[derive(Debug)]
pub struct Mha {
    tools: MhaTools,
    /// The version of MHA.
    pub version: String,
}

/// The times of one failover, in milliseconds since the failure.
#[derive(Debug, Clone, Copy)]
pub struct MhaFailover {
    /// When MHA considered the primary dead.
    pub noticed_ms: u64,
    /// When a client that retried continuously had its first successful commit on the new primary.
    pub first_commit_ms: u64,
    /// Number of acknowledged commits that the new primary lacks.
    pub lost: u64,
}

impl Mha {
    /// Returns the installed MHA; `None` if it was not downloaded.
    ///
    /// # Errors
    /// If MHA is downloaded and does not run.
    pub fn find(install: &Install) -> anyhow::Result<Option<Self>> {
        let Some(tools) = MhaTools::find()? else { return Ok(None) };
        let folder = TrialFolder::new(None)?;
        let version = tools.version(&tools.prepare(folder.path(), install)?)?;
        Ok(Some(Self { tools, version }))
    }

    /// Runs one failover on new servers.
    ///
    /// # Errors
    /// If the failover does not happen.
    pub async fn round(&self, kind: ServerKind, death: PrimaryFailure) -> anyhow::Result<MhaFailover> {
        let folder = TrialFolder::new(None)?;
        let mut primary = start_primary(kind).await?;
        let followers = [start_candidate(kind, 2).await?, start_candidate(kind, 3).await?];
        replicate_by_position(&primary, &followers).await?;
        prepare(&primary.connect_options()).await?;
        let environment = self.tools.prepare(folder.path(), primary.install())?;
        let ssh = SshServer::start(&self.tools, folder.path(), &environment).await?;
        let servers = [&primary, &followers[0], &followers[1]];
        let mut manager = MhaManager::start(&self.tools, folder.path(), &environment, &ssh, servers)?;
        manager.wait_for(WATCHING_MESSAGE, PATIENCE).await?;

        let ledger = Arc::new(Ledger::new());
        let workload = clients(&primary, &ledger);
        tokio::time::sleep(WARM_UP).await;
        let commits: Vec<_> = followers.iter().map(|server| first_commit(server.connect_options())).collect();
        let failed = Instant::now();
        match death {
            PrimaryFailure::Killed => primary.kill().await?,
            PrimaryFailure::Silent => primary.pause()?,
        }
        let noticed = async { manager.wait_for(FAILURE_MESSAGE, PATIENCE).await.map(|()| Instant::now()) };
        let (noticed, committed) = tokio::join!(noticed, first_of(commits));
        let (noticed, (at, new)) = match (noticed, committed) {
            (Ok(noticed), Ok(committed)) => (noticed, committed),
            (Err(error), _) | (_, Err(error)) => return Err(error.context(manager.output_tail())),
        };
        let new = &followers[new];
        workload.redirect(new.connect_options());
        if death == PrimaryFailure::Silent {
            // The clients of a frozen primary hang until its process has ended.
            primary.kill().await?;
        }
        manager.ends_well().await?;
        let lost = lost_on(new, workload, &ledger).await?;
        Ok(MhaFailover {
            noticed_ms: millis(noticed.duration_since(failed)),
            first_commit_ms: millis(at.duration_since(failed)),
            lost,
        })
    }
}

/// Starts a primary like Tailwater's, but without semi-sync. MHA copies what its replicas lack from the
/// binlog files of the dead primary.
async fn start_primary(kind: ServerKind) -> anyhow::Result<Server> {
    let spec = ServerSpec::new(kind).name(PRIMARY_NAME).options(primary_options(kind)).options([
        "--log-slave-updates=1",
        "--sync-binlog=1",
        "--innodb-flush-log-at-trx-commit=1",
    ]);
    let primary = Server::start(spec).await?;
    primary.create_replication_user().await?;
    primary.sql(ACCOUNT).await?;
    Ok(primary)
}

async fn replicate_by_position(primary: &Server, followers: &[Server]) -> anyhow::Result<()> {
    let position_line =
        primary.sql("SHOW MASTER STATUS").await?.into_iter().next().context("the primary has no binlog")?;
    let mut words = position_line.split('\t');
    let file = words.next().unwrap_or_default().to_owned();
    let position = words
        .next()
        .unwrap_or_default()
        .parse()
        .with_context(|| format!("SHOW MASTER STATUS has no position: {position_line}"))?;
    let of = ReplicaOf::port(primary.port()).start(ReplicaStart::FilePosition { file, position });
    for follower in followers {
        follower.sql(ACCOUNT).await?;
        // MHA's manual requires this: another replica may need relay log events that this replica has already
        // applied.
        follower.sql("SET GLOBAL relay_log_purge = 0").await?;
        follower.replicate(&of).await?;
    }
    Ok(())
}

/// Waits until the first of these commits completes. Returns the time at which it completed, and its index.
async fn first_of(commits: Vec<JoinHandle<anyhow::Result<Instant>>>) -> anyhow::Result<(Instant, usize)> {
    let (first, which, others) = futures_util::future::select_all(commits).await;
    others.iter().for_each(JoinHandle::abort);
    Ok((first??, which))
}

/// Returns the number of acknowledged commits that a server lacks.
async fn lost_on(server: &Server, workload: Workload, ledger: &Ledger) -> anyhow::Result<u64> {
    let report = workload.finish().await;
    ensure!(report.errors.is_empty(), "clients could not connect to the new primary: {:?}", report.errors);
    Ok(ledger.compare_with_server(&server.connect_options()).await?.missing.count)
}

/// A running `masterha_manager`.
struct MhaManager {
    process: ChildProcess,
    log: PathBuf,
}

impl MhaManager {
    fn start(
        tools: &MhaTools,
        folder: &Path,
        environment: &MhaEnvironment,
        ssh: &SshServer,
        servers: [&Server; 3],
    ) -> anyhow::Result<Self> {
        let config = folder.join("mha.cnf");
        std::fs::write(&config, config_text(folder, ssh, servers))?;
        let log = folder.join("manager.log");
        let conf = format!("--conf={}", config.display());
        let arguments = [conf.as_str(), "--ignore_last_failover"];
        let process = ChildProcess::start_with(tools.manager(), arguments, environment.variables(), &log)?;
        Ok(Self { process, log })
    }

    /// Waits until MHA has printed this text.
    async fn wait_for(&mut self, text: &str, patience: Duration) -> anyhow::Result<()> {
        let started = Instant::now();
        while !std::fs::read_to_string(&self.log).unwrap_or_default().contains(text) {
            if !self.process.is_running() || started.elapsed() > patience {
                bail!("MHA did not print \"{text}\": {}", self.output_tail());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Waits until MHA ends, which it does after a failover.
    async fn ends_well(&mut self) -> anyhow::Result<()> {
        let status = self.process.wait(PATIENCE).await?;
        ensure!(status.success(), "MHA ended with {status}: {}", self.output_tail());
        Ok(())
    }

    /// Returns the last lines of MHA's output.
    fn output_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(30).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// Returns the fastest configuration of MHA: a ping every second, which is the minimum, and no scripts.
fn config_text(folder: &Path, ssh: &SshServer, servers: [&Server; 3]) -> String {
    let place = folder.display();
    let mut text = format!(
        "[server default]\nuser=mha\npassword=mha\nrepl_user={REPLICATION_USER}\nrepl_password={REPLICATION_PASSWORD}\n\
         ping_interval=1\nmanager_workdir={place}/manager\nremote_workdir={place}/node\nclient_bindir={place}/bin\n{}",
        ssh.settings()
    );
    for (server, number) in servers.into_iter().zip(1..) {
        text += &format!(
            "[server{number}]\nhostname=127.0.0.1\nport={}\nmaster_binlog_dir={}\n",
            server.port(),
            server.data().display()
        );
    }
    text
}
