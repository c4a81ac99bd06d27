//! The commands with which an operator lists and controls the channels of a running daemon.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};

use crate::shell_session::{PROGRAM, Shell};

const PATIENCE: Duration = Duration::from_secs(60);

const SOURCE: &str = r#"
[log]
directory = "log"

[[source]]
name = "primary"
host = "127.0.0.1"
port = 1
user = "tailwater"
server_id = 4201
"#;

fn channel(more: &str) -> String {
    format!("{SOURCE}\n[[channel]]\nname = \"replica\"\nsource = \"primary\"\n{more}\n")
}

#[test]
fn a_channels_configuration_is_checked() -> Result<()> {
    let shell = Shell::new()?;
    let target = "host = \"db2\"";
    shell.write("good.toml", &channel(target))?;
    shell.run("config check -c good.toml")?.exits(0);
    shell.write("digits.toml", &channel(&format!("{target}\nold_temporal_precision = \"target\"")))?;
    shell.run("config check -c digits.toml")?.exits(0);
    for (more, complaint) in [
        ("", "the address of its target is missing"),
        ("host = \"db2\"\nsocket = \"sock\"", "either socket, or host and port"),
        ("host = \"db2\"\nworkers = 0", "workers must be 1 to 64"),
        ("host = \"db2\"\nworkers = 65", "workers must be 1 to 64"),
        ("host = \"db2\"\ncommit_order = \"any\"", "unknown variant `any`"),
        ("host = \"db2\"\nold_temporal_precision = \"guessed\"", "unknown variant `guessed`"),
        ("host = \"db2\"\ngtid = \"none\"", "unknown variant `none`"),
        ("host = \"db2\"\nbatch_bytes_max = 0", "batch_bytes_max"),
        ("host = \"db2\"\nmemory_bytes_max = 1000", "memory_bytes_max must be at least"),
        ("host = \"db2\"\ntls = \"verify-full\"", "need tls_ca"),
        ("host = \"db2\"\nretries = 3", "unknown field `retries`"),
        ("host = \"db2\"\n[channel.filters]\nexclude = [\"orders\"]", "\"orders\" is not a pattern"),
    ] {
        shell.write("bad.toml", &channel(more))?;
        shell.run("config check -c bad.toml")?.exits(1).stderr_has(&["TW-CFG-", complaint]);
    }
    shell.write("source.toml", &channel(target).replace("source = \"primary\"", "source = \"other\""))?;
    shell.run("config check -c source.toml")?.exits(1).stderr_has(&["no [[source]] of that name"]);
    shell.write("name.toml", &channel(target).replace("\"replica\"", "\"re plica\""))?;
    shell.run("config check -c name.toml")?.exits(1).stderr_has(&["channel.name"]);
    Ok(())
}

#[test]
fn channel_commands_need_a_daemon() -> Result<()> {
    let shell = Shell::new()?;
    shell.write("tailwater.toml", &channel("host = \"db2\""))?;
    for words in [
        "list -c tailwater.toml",
        "stop -c tailwater.toml replica",
        "skip -c tailwater.toml replica 0-1-1 --yes",
    ] {
        let ran = shell.run(&format!("channel {words}"))?.exits(1);
        ran.stderr_has(&["no daemon listens at", "control.sock", "`tailwater run`"]);
    }
    shell
        .run("channel stop -c tailwater.toml other")?
        .exits(1)
        .stderr_has(&["unknown channel \"other\"", "replica"]);
    shell.run("channel set -c tailwater.toml replica")?.exits(1).stderr_has(&["no setting was given"]);
    shell.run("channel start -c tailwater.toml replica --until-gtid 0-1-1 --until-time @1")?.exits(2);
    shell.run("channel start -c tailwater.toml replica --idempotent-once --until-time @1")?.exits(2);
    shell
        .run("grants --server mysql")?
        .exits(0)
        .says(&["GRANT REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN ON *.*"]);
    let grants = shell.run("grants --account u@h --output json")?.exits(0).json()?;
    ensure!(
        grants.iter().all(|grant| grant["statement"].as_str().is_some_and(|text| text.ends_with("TO u@h")))
    );
    ensure!(grants.iter().any(|grant| grant["server"] == "mariadb" && grant["on"] == "source"));
    shell.run("channel set -c tailwater.toml replica --gtid none")?.exits(2).stderr_has(&["own"]);
    Ok(())
}

#[tokio::test]
async fn channels_are_controlled_by_operator_commands() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let target = Server::start(ServerSpec::new(kind).name("target").option("--server-id=2")).await?;
    let mut trial = Trial::start(TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    })
    .await?;
    let socket = target.socket().display();
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"replica\"\nsource = \"primary\"\nsocket = \"{socket}\"\nuser = \"root\"\ntls = \"off\"\n"
    ))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    trial.primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY)").await?;
    trial.primary.sql("INSERT INTO shop.t VALUES (1)").await?;
    holds(&target, "1").await?;
    until(&shell, "running").await?;
    shell.run("channel list -c tailwater.toml")?.exits(0).says(&["CHANNEL", "replica", "running"]);

    stop_and_start(&shell, &trial, &target).await?;
    fail_and_skip(&shell, &trial, &target).await?;
    change_filters(&shell, &trial, &target).await?;
    shell
        .run("channel set -c tailwater.toml replica --workers 2 --gtid own --commit-order independent --ddl-exec-mode idempotent --output json")?
        .exits(0)
        .says(&["\"workers\":2"]);
    trial.stop_relay().await
}

/// Returns the channel as `channel list` reports it in JSON.
fn status(shell: &Shell) -> Result<Value> {
    let lines = shell.run("channel list -c tailwater.toml --output json")?.exits(0).json()?;
    lines.into_iter().next().context("`channel list` printed no channel")
}

async fn until(shell: &Shell, state: &str) -> Result<Value> {
    let started = Instant::now();
    loop {
        let status = status(shell)?;
        if status["state"] == state {
            return Ok(status);
        }
        ensure!(started.elapsed() < PATIENCE, "the channel is not {state}: {status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the table on the target has exactly these ids.
async fn holds(target: &Server, ids: &str) -> Result<()> {
    let started = Instant::now();
    loop {
        // The query fails at first, because the table does not exist yet.
        let found = target.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM shop.t").await.unwrap_or_default();
        if found == [ids] {
            return Ok(());
        }
        ensure!(started.elapsed() < PATIENCE, "the target has the ids {found:?}, expected {ids}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn newest_gtid(trial: &Trial) -> Result<String> {
    Ok(trial.primary.sql("SELECT @@GLOBAL.gtid_binlog_pos").await?.concat())
}

async fn stop_and_start(shell: &Shell, trial: &Trial, target: &Server) -> Result<()> {
    shell.run("channel stop -c tailwater.toml replica")?.exits(0).says(&[
        "stopped",
        " - ",
        "an operator stopped the channel",
    ]);
    let stopped = status(shell)?;
    ensure!(
        stopped["lag_seconds"].is_null() && stopped["stopped_because"].is_string(),
        "the stopped channel has a lag, or no reason for its stop: {stopped}"
    );
    trial.primary.sql("INSERT INTO shop.t VALUES (2)").await?;
    let second = newest_gtid(trial).await?;
    trial.primary.sql("INSERT INTO shop.t VALUES (3)").await?;
    shell.run(&format!("channel start -c tailwater.toml replica --until-gtid {second}"))?.exits(0);
    holds(target, "1,2").await?;
    let stopped = until(shell, "stopped").await?;
    ensure!(
        stopped["newest_gtid"] == second.as_str(),
        "the channel did not stop after transaction {second}: {stopped}"
    );
    let because = stopped["stopped_because"].as_str().unwrap_or_default();
    ensure!(
        because == "the channel has reached its until condition",
        "the channel gives a wrong reason for its stop: {stopped}"
    );
    shell
        .run("channel start -c tailwater.toml replica --until-gtid nonsense")?
        .exits(1)
        .stderr_has(&["nonsense"]);
    shell.run("channel start -c tailwater.toml replica --until-time @1")?.exits(0);
    until(shell, "stopped").await?;
    holds(target, "1,2").await?;

    // `channel stop` has published the applied GTIDs to the target. The channel can be started from these
    // GTIDs.
    let applied = target.sql("SELECT @@GLOBAL.gtid_slave_pos").await?;
    ensure!(applied == [second.clone()], "`channel stop` published {applied:?}, expected {second}");
    target.sql("DELETE FROM shop.t WHERE id = 2").await?;
    let before = second.replace(second.rsplit('-').next().unwrap_or_default(), "");
    let number: u64 = second.rsplit('-').next().context("the GTID has no number")?.parse()?;
    let seek = format!("channel seek -c tailwater.toml replica {before}{}", number - 1);
    shell.run(&seek)?.exits(0).says(&["would resume as if", "nothing was changed: repeat with --yes"]);
    shell.run(&format!("{seek} --yes"))?.exits(0);
    shell.run("channel start -c tailwater.toml replica")?.exits(0);
    holds(target, "1,2,3").await
}

async fn fail_and_skip(shell: &Shell, trial: &Trial, target: &Server) -> Result<()> {
    target.sql("INSERT INTO shop.t VALUES (4)").await?;
    trial.primary.sql("INSERT INTO shop.t VALUES (4)").await?;
    let fourth = newest_gtid(trial).await?;
    trial.primary.sql("INSERT INTO shop.t VALUES (5)").await?;
    let failed = until(shell, "failed").await?;
    ensure!(
        failed["fault"]["code"] == "TW-APP-0002",
        "the channel has not failed with TW-APP-0002: {failed}"
    );
    // The lag of a failed channel is unknown; it is not reported as 0 s.
    ensure!(
        failed["lag_seconds"].is_null() && failed["stopped_because"].is_null(),
        "the failed channel has a lag, or a reason for a stop: {failed}"
    );
    let text = shell.run("channel list -c tailwater.toml")?.exits(0);
    text.says(&[
        "failed",
        "TW-APP-0002",
        &fourth,
        "insert into shop.t",
        "Duplicate entry '?'",
        "--show-values",
    ])
    .stdout_lacks(&["(id=4)"]);
    ensure!(failed["fault"]["detail"].is_null(), "row values are shown without --show-values: {failed}");
    let text = shell.run("channel list -c tailwater.toml --show-values")?.exits(0);
    text.says(&["(id=4)", "Duplicate entry '4'"]);
    let skip = format!("channel skip -c tailwater.toml replica {fourth}");
    let planned = shell.run(&format!("{skip} --output json"))?.exits(0).json()?;
    ensure!(
        planned[0]["done"] == false && planned[0]["plan"].as_str().is_some_and(|plan| plan.contains(&fourth))
    );
    ensure!(status(shell)?["state"] == "failed", "without --yes, `channel skip` has changed the channel");
    shell.run(&format!("{skip} --yes"))?.exits(0);
    holds(target, "1,2,3,4,5").await?;
    ensure!(target.sql("SELECT gtid FROM tailwater.apply_skipped").await? == [fourth]);
    shell
        .run("channel start -c tailwater.toml replica --idempotent-once")?
        .exits(1)
        .stderr_has(&["TW-APP-0008", "has not failed"]);
    target.sql("DELETE FROM shop.t WHERE id = 3").await?;
    trial.primary.sql("DELETE FROM shop.t WHERE id = 3").await?;
    until(shell, "failed").await?;
    shell.run("channel start -c tailwater.toml replica --idempotent-once")?.exits(0);
    trial.primary.sql("INSERT INTO shop.t VALUES (3)").await?;
    holds(target, "1,2,3,4,5").await
}

async fn change_filters(shell: &Shell, trial: &Trial, target: &Server) -> Result<()> {
    shell.write("filters.toml", "exclude = [{ tables = \"shop.t\", operations = [\"delete\"] }]\n")?;
    shell.write("wrong.toml", "exclude = [\"shop\"]\n")?;
    shell
        .run("channel filter -c tailwater.toml replica wrong.toml")?
        .exits(1)
        .stderr_has(&["TW-APP-0021", "is not a pattern"]);
    shell.write("unknown.toml", "excluded = [\"shop.t\"]\n")?;
    shell.run("channel filter -c tailwater.toml replica unknown.toml")?.exits(1).stderr_has(&["excluded"]);
    let answer =
        shell.run("channel filter -c tailwater.toml replica filters.toml --output json")?.exits(0).json()?;
    ensure!(answer[0]["filter_version"] == 2, "the new filters do not have version 2: {answer:?}");
    trial.primary.sql("DELETE FROM shop.t WHERE id = 1; INSERT INTO shop.t VALUES (6)").await?;
    holds(target, "1,2,3,4,5,6").await?;
    shell
        .bash("echo | tailwater channel filter -c tailwater.toml replica - --from-gtid 0-99-99999")?
        .exits(1)
        .stderr_has(&["TW-APP-0008", "0-99-99999"]);
    Ok(())
}
