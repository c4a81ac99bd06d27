//! MHA, with its own detection, on a primary and two replicas like those that Tailwater has.

mod ssh;
mod tools;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tailwater_sandbox::replication::{REPLICATION_PASSWORD, REPLICATION_USER};
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{
    ChildProcess, Install, Ledger, ReplicaOf, ReplicaStart, Server, ServerKind, ServerSpec, Workload,
};
use tokio::task::JoinHandle;

use self::ssh::SshServer;
use self::tools::{MhaEnvironment, MhaTools};
use super::{WARM_UP, clients};
use crate::trial::managed_cluster::{PRIMARY_NAME, start_candidate};
use crate::trial::primary_failure::{PrimaryFailure, first_commit, millis};
use crate::trial::{TrialFolder, primary_options};

/// The account that it administers servers with.
const ACCOUNT: &str = "SET SESSION sql_log_bin = 0; CREATE USER mha@'%' IDENTIFIED BY 'mha'; \
                       GRANT ALL ON *.* TO mha@'%' WITH GRANT OPTION";

/// What it prints when it has checked everything and watches, and when it takes the primary for dead.
const WATCHES: &str = "waiting until MySQL doesn't respond";
const NOTICED: &str = "Master is not reachable from health checker!";

const PATIENCE: Duration = Duration::from_secs(120);

/// MHA, installed.
#[derive(Debug)]
pub struct Mha {
    tools: MhaTools,
    /// Its version.
    pub version: String,
}

/// One failover, in milliseconds since the failure.
#[derive(Debug, Clone, Copy)]
pub struct MhaFailover {
    /// Until it took the primary for dead.
    pub noticed_ms: u64,
    /// Until a client that tried all the time was told that something is committed on the new primary.
    pub first_commit_ms: u64,
    /// Commits that clients were told of and that the new primary lacks.
    pub lost: u64,
}

impl Mha {
    /// `None` if it was never fetched.
    ///
    /// # Errors
    /// If it is there and does not run.
    pub fn find(install: &Install) -> anyhow::Result<Option<Self>> {
        let Some(tools) = MhaTools::find()? else { return Ok(None) };
        let folder = TrialFolder::new(None)?;
        let version = tools.version(&tools.prepare(folder.path(), install)?)?;
        Ok(Some(Self { tools, version }))
    }

    /// One failover on servers of its own.
    ///
    /// # Errors
    /// If it does not happen.
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
        manager.wait_for(WATCHES, PATIENCE).await?;

        let ledger = Arc::new(Ledger::new());
        let workload = clients(&primary, &ledger);
        tokio::time::sleep(WARM_UP).await;
        let commits: Vec<_> = followers.iter().map(|server| first_commit(server.connect_options())).collect();
        let failed = Instant::now();
        match death {
            PrimaryFailure::Killed => primary.kill().await?,
            PrimaryFailure::Silent => primary.pause()?,
        }
        let noticed = async { manager.wait_for(NOTICED, PATIENCE).await.map(|()| Instant::now()) };
        let (noticed, committed) = tokio::join!(noticed, first_of(commits));
        let (noticed, (at, new)) = match (noticed, committed) {
            (Ok(noticed), Ok(committed)) => (noticed, committed),
            (Err(error), _) | (_, Err(error)) => return Err(error.context(manager.words())),
        };
        let new = &followers[new];
        workload.redirect(new.connect_options());
        if death == PrimaryFailure::Silent {
            // Its clients hang until it is gone.
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

/// The same primary that Tailwater has, without semi-sync: MHA fetches what its replicas lack from the dead one's files.
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
    let told = primary.sql("SHOW MASTER STATUS").await?.into_iter().next().context("no binlog")?;
    let mut words = told.split('\t');
    let file = words.next().unwrap_or_default().to_owned();
    let position = words.next().unwrap_or_default().parse().with_context(|| told.clone())?;
    let of = ReplicaOf::port(primary.port()).start(ReplicaStart::FilePosition { file, position });
    for follower in followers {
        follower.sql(ACCOUNT).await?;
        // As its manual has it: what one replica applied another may need.
        follower.sql("SET GLOBAL relay_log_purge = 0").await?;
        follower.replicate(&of).await?;
    }
    Ok(())
}

/// When the first of these was, and which it was.
async fn first_of(commits: Vec<JoinHandle<anyhow::Result<Instant>>>) -> anyhow::Result<(Instant, usize)> {
    let (first, which, others) = futures_util::future::select_all(commits).await;
    others.iter().for_each(JoinHandle::abort);
    Ok((first??, which))
}

/// How many acknowledged commits a server lacks.
async fn lost_on(server: &Server, workload: Workload, ledger: &Ledger) -> anyhow::Result<u64> {
    let report = workload.finish().await;
    ensure!(report.errors.is_empty(), "clients did not get to the new primary: {:?}", report.errors);
    Ok(ledger.compare_with_server(&server.connect_options()).await?.missing.count)
}

/// `masterha_manager`, running.
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

    /// Waits until it has printed this.
    async fn wait_for(&mut self, text: &str, patience: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !std::fs::read_to_string(&self.log).unwrap_or_default().contains(text) {
            if !self.process.is_running() || begun.elapsed() > patience {
                bail!("MHA did not come to \"{text}\": {}", self.words());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// It ends when a failover is complete.
    async fn ends_well(&mut self) -> anyhow::Result<()> {
        let status = self.process.wait(PATIENCE).await?;
        ensure!(status.success(), "MHA ended with {status}: {}", self.words());
        Ok(())
    }

    /// The last lines that it printed.
    fn words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(30).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// At its fastest: a ping every second, the least that it can be told, and no scripts.
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
