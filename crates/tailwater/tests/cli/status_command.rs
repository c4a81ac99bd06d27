//! `tailwater status` of a daemon on real servers. At first all is well; then the test causes one problem
//! after another. The states of a manager are tested in `sandbox_cluster`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::{Server, ServerKind, require};
use tailwater_wire::Flavour;

use crate::cli::http_listener::{follower, member};
use crate::shell_session::{PROGRAM, Ran, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn status_says_what_is_wrong_mariadb() -> Result<()> {
    status_says_what_is_wrong(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn status_says_what_is_wrong_mysql() -> Result<()> {
    status_says_what_is_wrong(ServerKind::Mysql97).await
}

#[test]
fn status_needs_a_daemon() -> Result<()> {
    let shell = Shell::new()?;
    shell.write(
        "tailwater.toml",
        "[log]\ndirectory = \"log\"\n[[source]]\nname = \"orders\"\nhost = \"127.0.0.1\"\nport = 1\nserver_id = 4201\n",
    )?;
    for words in ["status -c tailwater.toml", "status -c tailwater.toml --output json"] {
        let ran = shell.run(words)?.exits(1);
        ensure!(ran.text().is_empty(), "the command printed results without a daemon: {}", ran.text());
        ran.stderr_has(&["TW-CTL-0001", "no daemon listens", "`tailwater run`"]);
    }
    shell.run("status -c absent.toml")?.exits(1).stderr_has(&["TW-CFG-0001"]);
    shell.run("status")?.exits(2).stderr_has(&["--config <FILE>"]);
    Ok(())
}

/// A primary that Tailwater captures, a replica that reads the log from it, and the target of a channel.
struct Setup {
    trial: Trial,
    replica: Server,
    target: Server,
}

impl Setup {
    async fn start(shell: &Shell, kind: ServerKind) -> Result<Self> {
        let mut trial = Trial::start(TrialSpec {
            kind,
            durability: TrialDurability::Full,
            options: Vec::new(),
            ack: AckMode::Durable,
            program: PathBuf::from(PROGRAM),
            folder: shell.path().to_owned(),
        })
        .await?;
        let (replica, target) =
            tokio::try_join!(follower(kind, 11, "replica"), follower(kind, 12, "target"))?;
        // The primary's own address is configured, with an account that can read everything.
        trial.add_channel(&member("db1", &trial.primary))?;
        trial.add_channel(&member("db2", &replica))?;
        trial.add_channel(&format!(
            "\n[[channel]]\nname = \"reports\"\nsource = \"primary\"\nsocket = \"{}\"\nuser = \"root\"\ntls = \"off\"\n",
            target.socket().display()
        ))?;
        trial.start_relay()?;
        trial.wait_captured().await?;
        trial.primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY)").await?;
        replica.replicate(&trial.replica_of_relay()).await?;
        replica.sql("SET GLOBAL read_only = 1").await?;
        Ok(Self { trial, replica, target })
    }
}

async fn status_says_what_is_wrong(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let Setup { mut trial, replica, target } = Setup::start(&shell, kind).await?;
    let well = until(&shell, "everything to be well", |status| {
        status["ok"] == true
            && status["channels"][0]["transactions_total"] == 2
            && status["binlog_servers"][0]["readers"][0]["name"] == "db2"
            && status["clusters"][0]["servers"][1]["behind_transactions"] == 0
    })?;
    let source = &well["sources"][0];
    ensure!(
        source["server"] == "db1" && source["state"] == "streaming",
        "the source is not reported as streaming from db1: {source:#}"
    );
    ensure!(
        source["semi_sync_in_force"] == true && source["behind_transactions"] == 0,
        "semi-sync is not reported as in force, or the log lags: {source:#}"
    );
    ensure!(
        well["log_disk"]["space"]["log_bytes"].as_u64() > Some(0),
        "no size of the log is reported: {well:#}"
    );
    let replica_shown = &well["clusters"][0]["servers"][1];
    ensure!(
        replica_shown["name"] == "db2" && replica_shown["reads_from"] == "tailwater",
        "db2 is not reported as a reader of Tailwater: {well:#}"
    );
    let screen = shell.run("status -c tailwater.toml")?.exits(0);
    let screen =
        screen.says(&["SOURCE", "streaming", "in force", "BINLOG SERVER", "CHANNEL", "CLUSTER primary"]);
    check_output(&screen, "all is well")?;
    // The exit code is the same if the program that reads the output ends early.
    shell.bash("{ tailwater status -c tailwater.toml; echo $? >&2; } | true")?.stderr_has(&["0"]);

    target.sql("DROP TABLE shop.t").await?;
    trial.primary.sql("INSERT INTO shop.t VALUES (4711)").await?;
    let failed = problem(&shell, "channel reports", None)?;
    let code = failed["code"].as_str().unwrap_or_default();
    ensure!(code.starts_with("TW-APP-"), "the problem has no code of the applier: {failed:#}");
    let screen =
        shell.run("status -c tailwater.toml")?.exits(3).says(&["failed", code, "tailwater channel start"]);
    check_output(&screen, "1 problem")?;

    let (stop, side) = match kind.flavour() {
        Flavour::MySql => ("STOP REPLICA SQL_THREAD", "source"),
        Flavour::MariaDb => ("STOP SLAVE SQL_THREAD", "master"),
    };
    replica.sql(stop).await?;
    let stopped = problem(&shell, "server db2", None)?;
    ensure!(
        stopped["code"] == "ReplicaStopped" || stopped["code"] == "SqlStopped",
        "the stopped replica has a wrong problem code: {stopped:#}"
    );
    shell.run("channel stop -c tailwater.toml reports")?.exits(0);
    problem(&shell, "channel reports", Some("ChannelStopped"))?;
    trial.primary.sql(&format!("SET GLOBAL rpl_semi_sync_{side}_enabled = 0")).await?;
    let off = problem(&shell, "source primary", Some("TW-RELAY-0101"))?;
    ensure!(
        off["remedy"].as_str().is_some_and(|remedy| remedy.contains("capture.md")),
        "the remedy does not name capture.md: {off:#}"
    );

    trial.primary.kill().await?;
    problem(&shell, "source primary", Some("RelayNotStreaming"))?;
    problem(&shell, "server db1", None)?;
    let screen = shell.run("status -c tailwater.toml")?.exits(3).says(&["waiting", "db1", "no answer"]);
    ensure!(
        screen.text().lines().last().is_some_and(|last| last.ends_with(" problems")),
        "the last line does not give the number of problems: {}",
        screen.text()
    );
    let all = shell.run("status -c tailwater.toml --output json")?.exits(3);
    ensure!(
        all.json()?.len() == 1 && !all.text().contains("4711"),
        "the output has more than one line, or shows a row value: {}",
        all.text()
    );
    trial.kill_relay().await?;
    shell.run("status -c tailwater.toml")?.exits(1).stderr_has(&["TW-CTL-0001"]);
    Ok(())
}

/// Checks that the output has at most 80 columns, no colours because it is piped, and `last` as its last
/// line.
fn check_output(screen: &Ran, last: &str) -> Result<()> {
    let text = screen.text();
    ensure!(text.lines().all(|line| line.chars().count() <= 80), "a line has more than 80 columns: {text}");
    ensure!(
        !text.contains('\x1b') && text.lines().last() == Some(last),
        "the output has colours, or a wrong last line: {text}"
    );
    Ok(())
}

/// Waits until the status has a problem of `object`, with the given code if there is one.
fn problem(shell: &Shell, object: &str, code: Option<&str>) -> Result<Value> {
    let find = |status: &Value| -> Option<Value> {
        let is_it = |one: &&Value| one["object"] == object && code.is_none_or(|code| one["code"] == code);
        status["problems"].as_array()?.iter().find(is_it).cloned()
    };
    let status = until(shell, &format!("a problem of {object}, {code:?}"), |status| find(status).is_some())?;
    ensure!(status["ok"] == false, "the status has a problem but reports ok: {status:#}");
    find(&status).context("the status does not list the expected problem")
}

/// Repeats the command until its output satisfies the condition.
fn until(shell: &Shell, what: &str, condition: impl Fn(&Value) -> bool) -> Result<Value> {
    let started = Instant::now();
    loop {
        let ran = shell.run("status -c tailwater.toml --output json")?;
        let status = ran.json()?.into_iter().next().with_context(|| ran.errors())?;
        if condition(&status) {
            return Ok(status);
        }
        ensure!(started.elapsed() < PATIENCE, "timed out while waiting for {what}: {status:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
