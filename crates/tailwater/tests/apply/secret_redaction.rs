//! A channel fails at a statement that contains a password or row values. Passwords are never shown. Row
//! values are shown only to an operator who asks for them on the daemon's machine.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tailwater_lab::fault_trial::Trial;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_wire::Flavour;

use crate::cli::http_listener::{Http, daemon};
use crate::shell_session::Shell;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

const PASSWORD: &str = "Correct-Horse-7";
const VALUE: &str = "value of a row";

on_each_server!(failed_statements_do_not_show_secrets);

async fn failed_statements_do_not_show_secrets(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (mut trial, port) = daemon(&shell, kind, "").await?;
    let target = Server::start(ServerSpec::new(kind).name("target").option("--server-id=2")).await?;
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"replica\"\nsource = \"primary\"\nsocket = \"{}\"\nuser = \"root\"\ntls = \"off\"\n",
        target.socket().display()
    ))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    let http = Http { port: port.number() };
    trial.primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (a VARCHAR(40) PRIMARY KEY)").await?;

    // The account already exists on the target, so the statement fails there.
    let unlogged = "SET sql_log_bin = 0";
    target.sql(&format!("{unlogged}; CREATE USER ann@localhost IDENTIFIED BY 'another'")).await?;
    trial.primary.sql(&format!("CREATE USER ann@localhost IDENTIFIED BY '{PASSWORD}'")).await?;
    let hash = match kind.flavour() {
        Flavour::MySql => "SELECT authentication_string FROM mysql.user WHERE user = 'ann'",
        Flavour::MariaDb => {
            "SELECT JSON_VALUE(priv, '$.authentication_string') FROM mysql.global_priv WHERE user = 'ann'"
        }
    };
    let hash = trial.primary.sql(hash).await?.concat();
    ensure!(hash.len() > 20, "the account has no password hash: {hash}");
    let hidden = [PASSWORD, hash.get(..20).unwrap_or_default()];
    let gtid = failed(&shell, "CREATE USER").await?;
    is_hidden(&shell, &http, &trial, &hidden)?;
    // No output shows a password, even with --show-values.
    let shown = shell.run("channel list -c tailwater.toml --output json --show-values")?.exits(0);
    shown.says(&["ann"]).stdout_lacks(&hidden);

    shell.run(&format!("channel skip -c tailwater.toml replica {gtid} --yes"))?.exits(0);
    target.sql(&format!("{unlogged}; INSERT INTO shop.t VALUES ('{VALUE}')")).await?;
    trial.primary.sql(&format!("INSERT INTO shop.t VALUES ('{VALUE}')")).await?;
    failed(&shell, "shop.t").await?;
    is_hidden(&shell, &http, &trial, &[VALUE])?;
    shell.run("channel list -c tailwater.toml --show-values")?.exits(0).says(&[VALUE]);
    trial.stop_relay().await
}

/// Waits until the channel has failed with a message that contains `at`. Returns the GTID of the failed
/// transaction.
async fn failed(shell: &Shell, at: &str) -> Result<String> {
    let started = Instant::now();
    loop {
        let status = shell.run("channel list -c tailwater.toml --output json")?.exits(0).json()?.remove(0);
        let message = status["fault"]["message"].as_str().unwrap_or_default();
        if status["state"] == "failed" && message.contains(at) {
            let gtid = message.split("transaction ").nth(1).and_then(|rest| rest.split(": ").next());
            return Ok(gtid.unwrap_or_default().to_owned());
        }
        ensure!(
            started.elapsed() < PATIENCE,
            "the channel has not failed with a message that contains {at:?}: {status}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Checks that none of the outputs that show no row values by default contains a text of `hidden`.
fn is_hidden(shell: &Shell, http: &Http, trial: &Trial, hidden: &[&str]) -> Result<()> {
    for words in ["channel list", "channel list --output json", "topology", "topology --output json"] {
        let ran = shell.run(&format!("{words} -c tailwater.toml"))?;
        let shown = format!("{}{}", ran.text(), ran.errors());
        ensure!(shown.contains("replica"), "`tailwater {words}` does not list the channel: {shown}");
        ensure!(
            !hidden.iter().any(|secret| shown.contains(secret)),
            "`tailwater {words}` shows a secret: {shown}"
        );
    }
    let status = http.until("/status", 200, |body| body.to_string().contains("TW-APP-"))?.to_string();
    ensure!(!hidden.iter().any(|secret| status.contains(secret)), "/status shows a secret: {status}");
    for path in ["/replica/replica", "/primary/primary", "/acker/primary"] {
        let (_, body) = http.ask("GET", path)?;
        ensure!(
            !hidden.iter().any(|secret| body.to_string().contains(secret)),
            "{path} shows a secret: {body}"
        );
    }
    let log = std::fs::read_to_string(trial.relay_output())?;
    ensure!(log.contains("TW-APP-"), "the daemon has not logged the error: {log}");
    ensure!(!hidden.iter().any(|secret| log.contains(secret)), "the daemon's log shows a secret: {log}");
    Ok(())
}
