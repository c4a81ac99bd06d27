//! Two relays that both acknowledge, each with a manager, and etcd that says which of them acts: the cluster of
//! docs/how-to/production.md, but for its addresses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater::trial::led::{PRIMARY_NAME, start_follower};
use tailwater::trial::{Durability, Trial, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{
    Etcd, Ledger, OwnedProcess, ReservedPort, Server, ServerKind, Workload, WorkloadSpec, require,
};

use crate::http::Http;
use crate::shell::{PROGRAM, Shell};

/// Only reached when something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn the_other_manager_takes_over_mariadb() -> Result<()> {
    the_other_manager_takes_over(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_manager_takes_over_mysql() -> Result<()> {
    if std::env::var_os("TAILWATER_LONG").is_none() {
        eprintln!(
            "SKIPPED the_other_manager_takes_over_mysql: as with MariaDB, and longer; set TAILWATER_LONG=1"
        );
        return Ok(());
    }
    the_other_manager_takes_over(ServerKind::Mysql97).await
}

/// The relay beside the trial's.
struct Second {
    shell: Shell,
    process: Option<OwnedProcess>,
}

impl Second {
    /// The same configuration as the trial's, seen from the other side.
    fn new(first: &Shell, trial: &Trial, mine: &ReservedPort, its: &ReservedPort) -> Result<Self> {
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
        Ok(Self { shell, process: None })
    }

    fn start(&mut self) -> Result<()> {
        let config = self.shell.path().join("tailwater.toml");
        let arguments = ["run".into(), "-c".into(), config.into_os_string()];
        self.process = Some(OwnedProcess::start(PROGRAM, arguments, &self.shell.path().join("relay.log"))?);
        Ok(())
    }
}

/// What a manager says of the cluster.
fn status(shell: &Shell) -> Result<Value> {
    let ran = shell.run("manager status -c tailwater.toml --output json")?;
    let lines = ran.json().with_context(|| format!("{}{}", ran.text(), ran.errors()))?;
    Ok(lines.first().context("it says nothing")?["clusters"][0].clone())
}

pub async fn until(shell: &Shell, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    let begun = Instant::now();
    loop {
        let said = status(shell);
        if let Ok(said) = &said
            && is_so(said)
        {
            return Ok(said.clone());
        }
        let words = || std::fs::read_to_string(shell.path().join("relay.log")).unwrap_or_default();
        ensure!(begun.elapsed() < PATIENCE, "waited for {what}: {said:?}\n{}", words());
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

pub fn acts(status: &Value) -> bool {
    status["lease"].as_str().is_some_and(|lease| lease.starts_with("held"))
}

/// Both relays were seen to acknowledge, and all that was committed before is settled.
fn is_watched(status: &Value, both: &[&str]) -> bool {
    status["lossless"].as_str().is_some_and(|text| {
        text.ends_with("must acknowledge")
            && !text.contains(';')
            && both.iter().all(|name| text.contains(name))
    })
}

async fn the_other_manager_takes_over(kind: ServerKind) -> Result<()> {
    let (Some(_), Some(program)) = (require(kind), Etcd::require()) else { return Ok(()) };
    let (shell, folder) = (Shell::new()?, tempfile::tempdir()?);
    let spec = TrialSpec {
        kind,
        durability: Durability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    };
    let (etcd, trial, follower) =
        tokio::join!(Etcd::start(&program, folder.path()), Trial::start(spec), start_follower(kind, 2));
    let (etcd, mut trial, follower) = (etcd?, trial?, follower?);
    let (one, two) = (ReservedPort::pick()?, ReservedPort::pick()?);
    shell.write("token", "0123456789abcdef0123456789abcdef")?;
    trial.add_channel(&format!(
        "\n[http]\nlisten = \"127.0.0.1:{}\"\ntoken_file = \"token\"\nlook_interval_ms = 100\n\n[[relay]]\nname = \"relay2\"\n\
         source = \"primary\"\nurl = \"http://127.0.0.1:{}\"\ntoken_file = \"token\"\nserver_id = 4202\nserves = []\n",
        one.number(),
        two.number()
    ))?;
    trial.lead(
        &[&follower],
        &format!(
            "name = \"one\"\nautomatic = true\nlease = \"etcd\"\nlease_ttl_ms = 2000\netcd_endpoints = [\"{}\"]",
            etcd.endpoint()
        ),
    )?;
    let mut second = Second::new(&shell, &trial, &two, &one)?;
    trial.start_relay()?;
    second.start()?;
    trial.wait_captured().await?;
    follower.replicate(&trial.replica_of_relay()).await?;
    prepare(&trial.primary.connect_options()).await?;
    let ledger = Arc::<Ledger>::default();
    let spec = WorkloadSpec { pause: Duration::from_millis(2), ..WorkloadSpec::new(4) };
    let load = Workload::start(trial.primary.connect_options(), &spec, Arc::clone(&ledger));

    until(&shell, "both relays to be watched", |status| is_watched(status, &["tailwater", "relay2"])).await?;
    until(&second.shell, "both relays to be watched", |status| is_watched(status, &["tailwater", "relay1"]))
        .await?;
    // What the second daemon says of a replica that reads from the first one's log.
    let (http_one, http_two) = (Http { port: one.number() }, Http { port: two.number() });
    http_one.until("/replica/db2?lag=60", 200, |_| true)?;
    http_two.until("/replica/db2?lag=60", 200, |_| true)?;
    let ran = second.shell.run("topology -c tailwater.toml")?.exits(0);
    ran.says(&["relay1", "db2"]).hides(&["UnknownSource"]);

    // The manager that acts is ended; the other one acts, once the lease is free. Its daemon comes back as a relay.
    if !acts(&status(&shell)?) {
        until(&second.shell, "somebody to act", acts).await?;
        second.process.take().context("it runs")?.kill().await?;
        until(&shell, "the first to act", acts).await?;
        second.start()?;
        until(&second.shell, "the second to watch", |status| is_watched(status, &["tailwater", "relay1"]))
            .await?;
    }
    trial.kill_relay().await?;
    until(&second.shell, "the second to act", acts).await?;
    // One of two that acknowledge is not enough to prove anything.
    let ran = second.shell.run("failover primary --dry-run -c tailwater.toml")?.exits(4);
    ran.complains(&["TW-MGR-0032", "relay1"]);
    trial.start_relay()?;
    until(&second.shell, "both relays to be watched", |status| is_watched(status, &["tailwater", "relay1"]))
        .await?;

    trial.primary.kill().await?;
    let after = until(&second.shell, "a new primary", |status| status["primary"] != PRIMARY_NAME).await?;
    ensure!(after["primary"] == "db2", "{after:#}");
    load.redirect(follower.connect_options());
    let wanted = load.counters().snapshot().acknowledged + 50;
    let begun = Instant::now();
    while load.counters().snapshot().acknowledged < wanted {
        ensure!(begun.elapsed() < PATIENCE, "commits do not go on: {:?}", load.counters().snapshot());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "{:?}", report.errors);
    nothing_is_missing(&ledger, &follower).await?;
    // Both daemons name the same server, and both relays follow it.
    for http in [&http_one, &http_two] {
        http.until("/primary/db2", 200, |_| true)?;
        http.until("/primary/db1", 503, |body| body["reason"] == "the log follows db2")?;
    }
    until(&shell, "the first to know", |status| status["primary"] == "db2").await?;
    let begun = Instant::now();
    while follower.semi_sync_status().await?.replicas < 2 {
        ensure!(begun.elapsed() < PATIENCE, "{:?}", follower.semi_sync_status().await?);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(second);
    trial.kill_relay().await
}

async fn nothing_is_missing(ledger: &Ledger, server: &Server) -> Result<()> {
    let report = ledger.compare_with_server(&server.connect_options()).await?;
    let wrong = report.missing.count + report.altered.count + report.failed_but_present.count;
    ensure!(wrong == 0 && report.unlisted == 0, "{report:?}");
    Ok(())
}
