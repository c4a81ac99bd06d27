//! The manager in the daemon, on real servers under load: a primary that is killed is replaced by itself, and nothing that
//! was acknowledged is lost; what is refused is refused with its rule.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater::trial::led::{PRIMARY_NAME, start_follower};
use tailwater::trial::{Durability, Trial, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{Ledger, Server, ServerKind, Workload, WorkloadSpec, require};

use crate::shell::{PROGRAM, Shell};

/// Only reached when something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn killed_primaries_are_replaced_mariadb() -> Result<()> {
    killed_primaries_are_replaced(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_primaries_are_replaced_mysql() -> Result<()> {
    killed_primaries_are_replaced(ServerKind::Mysql97).await
}

/// A primary, two replicas that read from the log, and a relay that manages them.
struct Led {
    shell: Shell,
    trial: Trial,
    followers: Vec<Server>,
    ledger: Arc<Ledger>,
}

impl Led {
    async fn start(kind: ServerKind, manager: &str) -> Result<Self> {
        let shell = Shell::new()?;
        let spec = TrialSpec {
            kind,
            durability: Durability::Reduced,
            options: Vec::new(),
            ack: AckMode::Durable,
            program: PathBuf::from(PROGRAM),
            folder: shell.path().to_owned(),
        };
        let (trial, two, three) =
            tokio::join!(Trial::start(spec), start_follower(kind, 2), start_follower(kind, 3));
        let (mut trial, followers) = (trial?, vec![two?, three?]);
        trial.lead(&followers.iter().collect::<Vec<_>>(), manager)?;
        trial.start_relay()?;
        trial.wait_captured().await?;
        for follower in &followers {
            follower.replicate(&trial.replica_of_relay()).await?;
        }
        prepare(&trial.primary.connect_options()).await?;
        trial.wait_watched().await?;
        Ok(Self { shell, trial, followers, ledger: Arc::default() })
    }

    fn follower(&self, name: &str) -> Result<&Server> {
        self.followers.iter().find(|server| server.name() == name).context(name.to_owned())
    }

    fn load(&self, server: &Server, first_worker: u32) -> Workload {
        let pause = Duration::from_millis(2);
        let spec = WorkloadSpec { first_worker, pause, ..WorkloadSpec::new(4) };
        Workload::start(server.connect_options(), &spec, Arc::clone(&self.ledger))
    }

    /// Waits until both replicas have what a server has, and compares all with the ledger.
    async fn compare(&self, primary: &Server, servers: &[&Server]) -> Result<()> {
        let lines = primary.sql("SELECT COUNT(*), COALESCE(SUM(CRC32(CONCAT_WS('#', worker, sequence))), 0) FROM tw_load.tw_ledger").await?;
        for server in servers {
            let begun = Instant::now();
            loop {
                let has = server.sql("SELECT COUNT(*), COALESCE(SUM(CRC32(CONCAT_WS('#', worker, sequence))), 0) FROM tw_load.tw_ledger").await?;
                if has == lines {
                    break;
                }
                let status = server.replica_status().await?;
                ensure!(begun.elapsed() < PATIENCE, "{}: {has:?}, not {lines:?}: {status:?}", server.name());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let report = self.ledger.compare_with_server(&server.connect_options()).await?;
            let wrong = report.missing.count + report.altered.count + report.failed_but_present.count;
            ensure!(wrong == 0 && report.unlisted == 0, "{}: {report:?}", server.name());
        }
        Ok(())
    }

    fn tailwater(&self, words: &str) -> Result<crate::shell::Ran> {
        self.shell.run(&format!("{words} -c tailwater.toml"))
    }
}

/// Waits until so many more commits are acknowledged than now.
async fn more_commits(load: &Workload, more: u64) -> Result<()> {
    let wanted = load.counters().snapshot().acknowledged + more;
    let begun = Instant::now();
    while load.counters().snapshot().acknowledged < wanted {
        ensure!(begun.elapsed() < PATIENCE, "commits do not go on: {:?}", load.counters().snapshot());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

async fn killed_primaries_are_replaced(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut led = Led::start(kind, "automatic = true\nlease_ttl_ms = 10000").await?;
    let load = led.load(&led.trial.primary, 1);
    more_commits(&load, 100).await?;

    let plan = led.tailwater("failover primary --dry-run --output json")?.exits(0).json()?;
    ensure!(plan[0]["outcome"]["end"] == "planned", "{plan:#?}");
    led.tailwater("failover primary --dry-run --to db3")?.exits(0).says(&["db3 would be primary"]);
    led.tailwater("failover primary")?.exits(4).complains(&["TW-MGR-0045", "switchover"]);
    led.tailwater("failover elsewhere")?.exits(1).complains(&["there is no source \"elsewhere\""]);
    led.tailwater("manager status")?.exits(0).says(&["primary db1", "acts by itself", "nothing is wrong"]);

    led.trial.primary.kill().await?;
    let killed = Instant::now();
    let first = led.trial.wait_failed_over(PRIMARY_NAME).await?;
    load.redirect(led.follower(&first)?.connect_options());
    more_commits(&load, 100).await?;
    println!("{kind:?}: {first} took writes within {:?} of the kill", killed.elapsed());
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "{:?}", report.errors);
    let new = led.follower(&first)?;
    led.compare(new, &led.followers.iter().collect::<Vec<_>>()).await?;
    led.tailwater("manager status")?.exits(0).says(&[&format!("primary {first}"), "not acknowledged"]);

    // The next waits for somebody to have looked at this one.
    led.trial.wait_watched().await?;
    led.tailwater("manager acknowledge primary")?.exits(0).hides(&["not acknowledged"]);
    let load = led.load(led.follower(&first)?, 11);
    more_commits(&load, 50).await?;
    let at = led.followers.iter().position(|server| server.name() == first).context("the primary")?;
    led.followers[at].kill().await?;
    let second = led.trial.wait_failed_over(&first).await?;
    ensure!(second != PRIMARY_NAME && second != first, "{second}");
    load.redirect(led.follower(&second)?.connect_options());
    more_commits(&load, 50).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "{:?}", report.errors);
    led.compare(led.follower(&second)?, &[led.follower(&second)?]).await?;

    // A restart of the daemon goes on with the primary of now.
    led.trial.stop_relay().await?;
    led.shell.run("log verify log/primary")?.exits(0);
    led.trial.start_relay()?;
    led.trial.wait_watched().await?;
    led.tailwater("manager status")?.exits(0).says(&[&format!("primary {second}")]);
    led.trial.stop_relay().await?;
    Ok(())
}
