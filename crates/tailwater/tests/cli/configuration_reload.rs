//! Reloads of a running daemon's configuration, by SIGHUP and by `tailwater config reload`, while clients
//! write.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::{Server, ServerKind, require};

use crate::cli::http_listener::follower;
use crate::shell_session::{PROGRAM, Shell};
use crate::systemd_notify_socket::Notifications;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of transactions that are written during the reloads.
const TRANSACTIONS: u32 = 150;

#[tokio::test]
async fn reloads_under_load_lose_no_transaction_mariadb() -> Result<()> {
    reloads_under_load_lose_no_transaction(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn reloads_under_load_lose_no_transaction_mysql() -> Result<()> {
    reloads_under_load_lose_no_transaction(ServerKind::Mysql97).await
}

async fn reloads_under_load_lose_no_transaction(kind: ServerKind) -> Result<()> {
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
    let mut target = follower(kind, 12, "target").await?;
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"reports\"\nsource = \"primary\"\nsocket = \"{}\"\nuser = \"root\"\ntls = \"off\"\nworkers = 2\n\
         [channel.filters]\nexclude = []\n",
        target.socket().display()
    ))?;
    let socket = shell.path().join("notify");
    let notifications = Notifications::bind(&socket)?;
    trial.add_environment([(OsString::from("NOTIFY_SOCKET"), socket.into_os_string())]);
    trial.start_relay()?;
    trial.wait_captured().await?;
    notifications.until("READY=1")?;
    trial.primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY); CREATE TABLE shop.u (id INT PRIMARY KEY)").await?;
    let file = shell.path().join("tailwater.toml");
    let text = std::fs::read_to_string(&file)?;
    ensure!(shell.run("config reload -c tailwater.toml")?.exits(0).text() == "no setting has changed\n");

    let are_written = AtomicBool::new(false);
    let reloads = async {
        let mut count = 0;
        while count < 3 || !are_written.load(Ordering::Relaxed) {
            for workers in [4, 1, 3] {
                std::fs::write(&file, text.replace("workers = 2", &format!("workers = {workers}")))?;
                let mut command = tokio::process::Command::new(PROGRAM);
                command.args(["config", "reload", "-c", "tailwater.toml"]).current_dir(shell.path());
                let output = command.output().await?;
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                ensure!(
                    said == "applied        channel.reports.workers\n",
                    "the reload did not report the changed number of workers: {said}{}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            count += 1;
        }
        anyhow::Ok(())
    };
    let writes = async {
        for id in 0..TRANSACTIONS {
            trial.primary.sql(&format!("INSERT INTO shop.t VALUES ({id})")).await?;
        }
        are_written.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    tokio::try_join!(writes, reloads)?;
    ensure!(count(&target, "t", TRANSACTIONS).await?, "transactions are missing on the target");
    runs_with_three_workers(&shell)?;

    // On SIGHUP, the daemon applies the new filters and the new retention. The new [http] section needs a
    // restart.
    let changed =
        text.replace("exclude = []", "exclude = [\"shop.u\"]").replace("workers = 2", "workers = 3");
    let changed = changed.replace("[log]", "[log]\nretention_hours_max = 900")
        + "\n[messages]\nlevel = \"debug\"\n"
        + "\n[http]\nlisten = \"127.0.0.1:0\"\n";
    std::fs::write(&file, &changed)?;
    let pid = trial.relay().context("the daemon is not running")?.pid().to_string();
    ensure!(std::process::Command::new("kill").args(["-HUP", &pid]).status()?.success());
    let messages = notifications.until("RELOADING=1")?;
    ensure!(
        messages.last().is_some_and(|last| last.contains("MONOTONIC_USEC=")),
        "the message RELOADING=1 has no time: {messages:?}"
    );
    notifications.until("READY=1")?;
    trial.primary.sql("INSERT INTO shop.u VALUES (1); INSERT INTO shop.t VALUES (100000)").await?;
    ensure!(count(&target, "t", TRANSACTIONS + 1).await?, "the channel does not continue");
    ensure!(target.sql("SELECT COUNT(*) FROM shop.u").await? == ["0"], "the filter is not applied");
    // The second reload names again the section that needs a restart. It does not name the settings that the
    // first reload has applied.
    let again = shell
        .run("config reload -c tailwater.toml --output json")?
        .exits(0)
        .json()?
        .pop()
        .context("`config reload` printed nothing")?;
    ensure!(
        again["applied"] == serde_json::json!([]) && again["needs_restart"] == serde_json::json!(["http"]),
        "the second reload must report only that [http] needs a restart: {again:#}"
    );

    // A configuration file that is refused changes nothing.
    std::fs::write(&file, changed.replace("workers = 3", "workers = 3000"))?;
    let refused = shell.run("config reload -c tailwater.toml")?.exits(1);
    refused.stderr_has(&["TW-CFG-0003", "workers must be 1 to 64"]);
    std::fs::write(&file, changed.replace("[log]", "[log]\nno_such_key = 1"))?;
    ensure!(std::process::Command::new("kill").args(["-HUP", &pid]).status()?.success());
    notifications.until("RELOADING=1")?;
    notifications.until("READY=1")?;
    std::fs::write(&file, &changed)?;
    runs_with_three_workers(&shell)?;
    a_part_that_failed_is_tried_again(&shell, &file, &changed, &mut target).await?;
    trial.stop_relay().await?;
    Ok(())
}

/// New filters are stored on the target. While it is down, a reload applies everything else, and says what it
/// could not apply. The next reload tries that again, and nothing else.
async fn a_part_that_failed_is_tried_again(
    shell: &Shell,
    file: &Path,
    text: &str,
    target: &mut Server,
) -> Result<()> {
    target.kill().await?;
    let changed = text.replace("retention_hours_max = 900", "retention_hours_max = 800");
    std::fs::write(file, changed.replace("exclude = [\"shop.u\"]", "exclude = [\"shop.v\"]"))?;
    let said = shell.run("config reload -c tailwater.toml")?.exits(3);
    let said_text = said.text();
    ensure!(
        said_text.starts_with("applied        log.retention_hours_max\nneeds restart  http\n")
            && said_text.contains("\nnot applied    channel.reports.filters.exclude: cannot connect to "),
        "the reload must apply the retention, and not the filters: {said_text}"
    );
    target.start_again().await?;
    let said = shell.run("config reload -c tailwater.toml")?.exits(0);
    ensure!(
        said.text() == "applied        channel.reports.filters.exclude\nneeds restart  http\n",
        "the second reload must apply only the filters: {}",
        said.text()
    );
    ensure!(shell.run("config reload -c tailwater.toml")?.exits(0).text() == "needs restart  http\n");
    Ok(())
}

fn runs_with_three_workers(shell: &Shell) -> Result<()> {
    let began = Instant::now();
    loop {
        let channels = shell.run("channel list -c tailwater.toml --output json")?.exits(0).json()?;
        if channels[0]["workers"] == 3 && channels[0]["state"] == "running" {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "the channel does not run with three workers: {channels:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a table of the target has this number of rows. Returns false if that takes too long.
async fn count(target: &tailwater_sandbox::Server, table: &str, rows: u32) -> Result<bool> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if target.sql(&format!("SELECT COUNT(*) FROM shop.{table}")).await? == [rows.to_string()] {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(false)
}
