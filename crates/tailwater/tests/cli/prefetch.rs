//! Prefetch by the daemon, beside a native replica and for the target of a channel, and by the command alone.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::{Server, ServerKind, native_replica, require};

use crate::cli::http_listener::follower;
use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn pages_are_read_ahead_mariadb() -> Result<()> {
    pages_are_read_ahead(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn pages_are_read_ahead_mysql() -> Result<()> {
    pages_are_read_ahead(ServerKind::Mysql97).await
}

async fn pages_are_read_ahead(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (trial, replica, _target) = start(&shell, kind).await?;
    trial
        .primary
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b VARCHAR(400), KEY (a))")
        .await?;
    let rows: Vec<String> = (1..=200).map(|id| format!("({id}, {id}, REPEAT('x', 400))")).collect();
    trial.primary.sql(&format!("INSERT INTO d.t VALUES {}", rows.join(","))).await?;
    wait(&shell, "the channel applies", |status| status["channels"][0]["rows_total"].as_u64() >= Some(200))?;
    until_rows(&replica, 200).await?;

    // Both appliers stop, so that everything that follows is ahead of them.
    let stop = native_replica::stop_statement(kind.flavour());
    replica.sql(&format!("{stop} SQL_THREAD")).await?;
    shell.run("channel stop reports -c tailwater.toml")?.exits(0);
    let before = wait(&shell, "both are shown", |status| {
        figures(status, "db3").is_some() && figures(status, "reports").is_some()
    })?;
    let keys =
        |status: &Value, name: &str| figures(status, name).and_then(|figures| figures["keys"].as_u64());
    trial.primary.sql("UPDATE d.t SET a = a + 1000").await?;
    let read = wait(&shell, "all keys are read", |status| {
        // Each row has its own entry, and the old and new one of the index. The channel's prefetch leaves the
        // first 16 KiB to the channel.
        [("db3", 600), ("reports", 300)].into_iter().all(|(name, count)| {
            // Only the update is ahead; keys of the insert may still be counted.
            let is_ahead =
                figures(status, name).is_some_and(|figures| figures["bytes_ahead"].as_u64() > Some(0));
            is_ahead && keys(status, name) >= keys(&before, name).map(|keys| keys + count)
        })
    })?;
    for name in ["db3", "reports"] {
        let figures = figures(&read, name).unwrap_or_default();
        ensure!(figures["failed"] == 0 && figures["bytes_ahead"].as_u64() > Some(0), "{name}: {figures:#}");
    }
    let start = native_replica::start_statement(kind.flavour());
    replica.sql(&format!("{start} SQL_THREAD")).await?;
    shell.run("channel start reports -c tailwater.toml")?.exits(0);
    wait(&shell, "nothing is ahead", |status| {
        ["db3", "reports"].iter().all(|name| {
            figures(status, name).is_some_and(|figures| {
                figures["bytes_ahead"] == 0 && figures["rows_applied"].as_u64() >= Some(200)
            })
        })
    })?;
    shell.run("status -c tailwater.toml")?.says(&["PREFETCH", "db3", "reports", "IN TIME"]);
    let listed = shell.bash("curl -s --unix-socket log/control.sock http://localhost/api/v1/prefetches")?;
    let listed: Value = serde_json::from_str(&listed.text())?;
    ensure!(
        listed[0]["name"] == "db3"
            && listed[0]["is_of_channel"] == false
            && listed[1]["is_of_channel"] == true,
        "{listed:#}"
    );

    // The command alone, beside the same replica. It reads the binlog of the replica's source.
    trial.primary.create_replication_user().await?;
    let ran = shell
        .run(&format!(
            "prefetch --replica 127.0.0.1:{} --replica-user root --source-host 127.0.0.1 --source-port {} \
             --source-user root --run-s 1 --output json",
            replica.port(),
            trial.primary.port()
        ))?
        .exits(0);
    let last = ran.json()?.pop().unwrap_or_default();
    ensure!(last["state"] != "failed" && last["queries"] == 0, "{last:#}");
    let port = trial.primary.port();
    shell
        .run(&format!("prefetch --replica 127.0.0.1:{port} --replica-user root --run-s 1"))?
        .exits(1)
        .stderr_has(&["TW-PRE-0002", "replication channels"]);
    shell.run("prefetch --replica db:x")?.exits(1).stderr_has(&["HOST:PORT"]);
    shell.run("prefetch")?.exits(2).stderr_has(&["--replica"]);
    Ok(())
}

async fn start(shell: &Shell, kind: ServerKind) -> Result<(Trial, Server, Server)> {
    let mut trial = Trial::start(TrialSpec {
        kind,
        durability: TrialDurability::Full,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    })
    .await?;
    let (replica, target) = tokio::try_join!(follower(kind, 11, "replica"), follower(kind, 12, "target"))?;
    let socket = |server: &Server| {
        format!("socket = \"{}\"\nuser = \"root\"\ntls = \"off\"\n", server.socket().display())
    };
    trial.add_channel(&format!(
        "\n[[prefetch]]\nname = \"db3\"\nsource = \"primary\"\nmode = \"on\"\nahead_seconds_min = 0\nahead_bytes_min = 0\n{}",
        socket(&replica)
    ))?;
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"reports\"\nsource = \"primary\"\nprefetch = \"on\"\n{}",
        socket(&target)
    ))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    replica.replicate(&trial.replica_of_relay()).await?;
    Ok((trial, replica, target))
}

fn figures(status: &Value, name: &str) -> Option<Value> {
    let all = status["prefetches"].as_array()?;
    all.iter().find(|one| one["name"] == name).map(|one| one["figures"].clone())
}

async fn until_rows(replica: &Server, rows: u64) -> Result<()> {
    let began = Instant::now();
    loop {
        let found = replica.sql("SELECT COUNT(*) FROM d.t").await.unwrap_or_default();
        if found == [rows.to_string()] {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "the replica has {found:?} rows");
    }
}

fn wait(shell: &Shell, what: &str, condition: impl Fn(&Value) -> bool) -> Result<Value> {
    let began = Instant::now();
    loop {
        let ran = shell.run("status -c tailwater.toml --output json")?;
        let status = ran.json()?.pop().unwrap_or_default();
        if condition(&status) {
            return Ok(status);
        }
        ensure!(began.elapsed() < PATIENCE, "{what}: not reached: {:#}", status["prefetches"]);
        std::thread::sleep(Duration::from_millis(100));
    }
}
