//! `tailwater topology`, with and without a running daemon.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};

use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn topology_shows_a_cluster_mariadb() -> Result<()> {
    a_cluster_is_shown(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn topology_shows_a_cluster_mysql() -> Result<()> {
    a_cluster_is_shown(ServerKind::Mysql97).await
}

#[test]
fn topology_shows_unreachable_servers_without_a_daemon() -> Result<()> {
    let shell = Shell::new()?;
    shell.write(
        "tailwater.toml",
        "[log]\ndirectory = \"log\"\n[[source]]\nname = \"orders\"\nhost = \"127.0.0.1\"\nport = 1\nuser = \"u\"\nserver_id = 4201\n\
         [[server]]\nname = \"db2\"\nsource = \"orders\"\nhost = \"127.0.0.1\"\nport = 2\n",
    )?;
    let ran = shell.run("topology -c tailwater.toml")?.exits(0);
    ran.says(&[
        "orders",
        "127.0.0.1:1",
        "NotReached: connection refused",
        "RelayNotRunning",
        "db2",
        "UnreachablePrimary",
    ]);
    let ran = shell.run("topology -c tailwater.toml --output json")?.exits(0).json()?;
    ensure!(
        ran.len() == 1 && ran[0]["clusters"][0]["nodes"][0]["role"] == "primary",
        "the source is not shown as the primary: {ran:#?}"
    );
    shell.run("topology -c tailwater.toml --watch 0")?.exits(2);
    shell.run("topology -c absent.toml")?.exits(1).stderr_has(&["TW-CFG-0001"]);
    Ok(())
}

async fn follower(kind: ServerKind, id: u32) -> Result<Server> {
    let id = format!("--server-id={id}");
    Ok(Server::start(ServerSpec::new(kind).name("follower").options([&id, "--sync-binlog=0"])).await?)
}

async fn a_cluster_is_shown(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let mut trial = Trial::start(TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    })
    .await?;
    let (below_relay, beside, target) =
        tokio::try_join!(follower(kind, 11), follower(kind, 12), follower(kind, 13))?;
    let at = |server: &Server| {
        format!(
            "socket = \"{}\"\nuser = \"root\"\ntls = \"off\"\nsource = \"primary\"\n",
            server.socket().display()
        )
    };
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"reports\"\n{}\n[[server]]\nname = \"db2\"\npromotion = \"prefer\"\nregion = \"north\"\n{}",
        at(&target),
        at(&below_relay)
    ))?;
    let ran = shell.run("topology -c tailwater.toml")?.exits(0);
    ran.says(&["RelayNotRunning", "SemiSyncTooFew"]);

    // The account has exactly the privileges that `tailwater grants` prints.
    let grants = shell.run("grants --account tailwater@'%' --output json")?.exits(0).json()?;
    let flavour = kind.flavour().to_string();
    let grant = grants.iter().find(|grant| grant["server"] == flavour && grant["on"] == "every server");
    let statement = grant
        .and_then(|grant| grant["statement"].as_str())
        .context("`tailwater grants` printed no statement with \"on\": \"every server\"")?;
    trial.primary.sql(&format!("SET SESSION sql_log_bin = 0; {statement}")).await?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    below_relay.replicate(&trial.replica_of_relay()).await?;
    beside.replicate_from(&trial.primary).await?;
    trial.primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY)").await?;
    let cluster = until(&shell, "all servers to have no lag", |cluster| {
        let relay = child(cluster_primary(cluster), "tailwater");
        let replica = relay.and_then(|relay| child(relay, "db2"));
        replica.is_some_and(|replica| replica["gtid_state"]["behind"] == 0 && replica["lag_seconds"] == 0.0)
            && child(cluster_primary(cluster), "server_id 12").is_some()
    })?;
    let primary = cluster_primary(&cluster);
    ensure!(
        primary["writable"] == true && primary["semi_sync"]["clients"].as_u64() >= Some(1),
        "the primary is not writable, or has no semi-sync replica: {primary:#}"
    );
    let relay = child(primary, "tailwater").context("the primary has no relay below it")?;
    ensure!(
        relay["acknowledges"] == true && relay["problems"] == Value::Array(Vec::new()),
        "the relay does not acknowledge, or has problems: {relay:#}"
    );
    let is_position =
        |note: &Value| note.as_str().is_some_and(|note| note.starts_with("received from the primary "));
    ensure!(
        relay["notes"].as_array().is_some_and(|notes| notes.iter().any(is_position)),
        "the relay has no note about its position: {relay:#}"
    );
    let named = child(relay, "db2").context("the relay has no server db2 below it")?;
    ensure!(
        named["role"] == "replica" && named["promotion"] == "prefer" && named["region"] == "north",
        "db2 is shown with a wrong role, promotion or region: {named:#}"
    );
    let fed = child(relay, "reports").context("the relay has no target below it")?;
    ensure!(
        fed["role"] == "target" && fed["reached"] == true,
        "the channel's server is not shown as a reachable target: {fed:#}"
    );
    ensure!(
        child(primary, "server_id 12").is_some_and(|seen| seen["role"] == "seen"),
        "server 12 must be shown with the role `seen`: {primary:#}"
    );
    ensure!(
        relay["children"].as_array().is_some_and(|below| below.len() == 2),
        "the relay must have exactly two servers below it: {relay:#}"
    );
    ensure!(
        cluster["findings"] == Value::Array(Vec::new()),
        "the cluster has findings: {:#}",
        cluster["findings"]
    );

    let ran = shell.run("topology -c tailwater.toml")?.exits(0);
    ran.says(&[
        "primary",
        "└─ ",
        "├─ tailwater",
        "│  ├─ db2",
        "│  └─ reports",
        "acknowledges",
        "in step",
        "semi-sync",
    ]);

    trial.primary.kill().await?;
    let cluster = until(&shell, "the relay to report that the primary is unreachable", |cluster| {
        let findings = cluster["findings"].as_array();
        findings.is_some_and(|findings| findings.iter().any(|finding| finding["code"] == "DeadPrimary"))
    })?;
    ensure!(
        cluster["findings"][0]["action"]["held"] == "paused",
        "the failover is not held back by the pause: {:#}",
        cluster["findings"]
    );
    trial.kill_relay().await
}

fn cluster_primary(cluster: &Value) -> &Value {
    &cluster["nodes"][0]
}

fn child<'a>(node: &'a Value, name: &str) -> Option<&'a Value> {
    node["children"].as_array()?.iter().find(|child| child["name"] == name)
}

/// Repeats the command until its output satisfies the condition.
fn until(shell: &Shell, what: &str, condition: impl Fn(&Value) -> bool) -> Result<Value> {
    let started = Instant::now();
    loop {
        let looks = shell.run("topology -c tailwater.toml --output json")?.exits(0).json()?;
        let cluster = looks.first().context("the command printed nothing")?["clusters"][0].clone();
        if condition(&cluster) {
            return Ok(cluster);
        }
        ensure!(started.elapsed() < PATIENCE, "timed out while waiting for {what}: {cluster:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
