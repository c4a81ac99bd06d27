//! `tailwater init` on real servers: from nothing to a daemon that captures.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_sandbox::{ReservedPort, Server, ServerKind, ServerSpec, require};
use tailwater_wire::Flavour;

use crate::shell_session::{Ran, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn from_nothing_to_a_daemon_that_captures_mariadb() -> Result<()> {
    from_nothing_to_a_daemon_that_captures(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn from_nothing_to_a_daemon_that_captures_mysql() -> Result<()> {
    from_nothing_to_a_daemon_that_captures(ServerKind::Mysql97).await
}

async fn started(kind: ServerKind, id: u32) -> Result<Server> {
    let id = format!("--server-id={id}");
    let options = [
        "--log-bin=binlog",
        "--sync-binlog=1",
        "--innodb-flush-log-at-trx-commit=1",
        "--binlog-format=ROW",
        id.as_str(),
    ];
    let mut spec = ServerSpec::new(kind).options(options);
    spec = match kind.flavour() {
        Flavour::MySql => spec.options(["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]),
        Flavour::MariaDb => spec.option("--log-slave-updates=1"),
    };
    Ok(Server::start(spec).await?)
}

/// Ends the daemon that `init` has started, even if the test fails.
struct StartedDaemon(String);

impl StartedDaemon {
    /// Returns the daemon whose process id `init` has printed.
    fn of(ran: &Ran) -> Result<Self> {
        let text = ran.text();
        let (_, rest) = text.split_once("runs as process ").with_context(|| text.clone())?;
        Ok(Self(rest.split(';').next().unwrap_or_default().to_owned()))
    }
}

impl Drop for StartedDaemon {
    fn drop(&mut self) {
        let _ = std::process::Command::new("kill").arg(&self.0).status();
    }
}

async fn from_nothing_to_a_daemon_that_captures(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (primary, replica) = tokio::try_join!(started(kind, 1), started(kind, 2))?;
    replica.replicate_from(&primary).await?;
    let port = ReservedPort::pick()?;
    let init = format!(
        "init --host 127.0.0.1 --port {} --user root -c tailwater.toml --name orders --account watcher@% --manager --serve 127.0.0.1:{}",
        primary.port(),
        port.number()
    );
    // Without --yes everything is printed, and nothing is changed.
    let planned = shell.run(&init)?.exits(0).says(&[
        &format!("primary 127.0.0.1:{}", primary.port()),
        &format!("replica 127.0.0.1:{}", replica.port()),
        "CREATE USER 'watcher'@'%' IDENTIFIED BY '***';",
        "GRANT REPLICATION SLAVE",
        "[[source]]\nname = \"orders\"",
        "[[server]]",
        "[manager]",
        "nothing was changed: repeat with --yes",
    ]);
    ensure!(
        std::fs::read_dir(shell.path())?.count() == 0,
        "`init` has written files without --yes: {}",
        planned.text()
    );
    let accounts = "SELECT COUNT(*) FROM mysql.user WHERE user = 'watcher'";
    ensure!(primary.sql(accounts).await? == ["0"]);

    let ran = shell.run(&format!("{init} --yes --start"))?;
    let daemon = StartedDaemon::of(&ran);
    let ran = ran.exits(0).says(&["the daemon captures"]);
    let daemon = daemon?;
    check_files(&shell, &ran)?;
    primary
        .sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY); INSERT INTO shop.t VALUES (1)")
        .await?;
    let status = status(&shell)?;
    ensure!(status["sources"][0]["state"] == "streaming", "the source is not streaming: {status:#}");
    ensure!(status["sources"][0]["semi_sync_in_force"] == true, "semi-sync is not in force: {status:#}");
    ensure!(
        status["clusters"][0]["servers"].as_array().is_some_and(|servers| servers.len() == 2),
        "the cluster must have exactly two servers: {status:#}"
    );
    shell.run("log ls log")?.exits(0).says(&["orders"]);

    // A repeated `init` has nothing to do. If its options differ from those of the first `init`, it is
    // refused. With --overwrite it keeps the old file under another name.
    shell
        .run(&format!("{init} --yes"))?
        .exits(0)
        .says(&["nothing to do: the primary and the files are already set up"]);
    let other = format!("{init} --no-semi-sync");
    let before = std::fs::read_to_string(shell.path().join("tailwater.toml"))?;
    shell.run(&format!("{other} --yes"))?.exits(4).stderr_has(&["nothing was changed", "--overwrite"]);
    ensure!(std::fs::read_to_string(shell.path().join("tailwater.toml"))? == before);
    shell.run(&format!("{other} --yes --overwrite"))?.exits(0).says(&["kept the present tailwater.toml"]);
    ensure!(std::fs::read_to_string(shell.path().join("tailwater.toml.before-init"))? == before);

    refusals(&shell, &primary, &replica).await?;
    drop(daemon);
    Ok(())
}

fn check_files(shell: &Shell, ran: &Ran) -> Result<()> {
    for (file, mode) in [("orders.cnf", 0o600), ("orders.repl.password", 0o600), ("tailwater.toml", 0o640)] {
        let permissions = std::fs::metadata(shell.path().join(file)).context(file)?.permissions();
        ensure!(permissions.mode() & 0o777 == mode, "{file} has the wrong mode {:o}", permissions.mode());
    }
    let secret = std::fs::read_to_string(shell.path().join("orders.cnf"))?;
    let password = secret.split('"').nth(1).context("orders.cnf has no password")?;
    ensure!(password.len() > 20, "the generated password is too short: {password}");
    ensure!(!ran.text().contains(password) && !ran.errors().contains(password), "the password is printed");
    let messages = std::fs::read_to_string(shell.path().join("tailwater.messages"))?;
    ensure!(!messages.contains(password), "the password is logged");
    Ok(())
}

fn status(shell: &Shell) -> Result<Value> {
    let began = Instant::now();
    loop {
        let status = shell
            .run("status -c tailwater.toml --output json")?
            .json()?
            .pop()
            .context("`tailwater status` printed nothing")?;
        let servers = status["clusters"][0]["servers"].as_array().map_or(0, Vec::len);
        if (status["sources"][0]["semi_sync_in_force"] == true && servers == 2) || began.elapsed() > PATIENCE
        {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

async fn refusals(shell: &Shell, primary: &Server, replica: &Server) -> Result<()> {
    let of_replica = format!(
        "init --host 127.0.0.1 --port {} --user root -c other.toml --name other --account watcher@% --yes",
        replica.port()
    );
    shell.run(&of_replica)?.exits(4).stderr_has(&["is a replica of", "name the primary"]);
    // The account is known, but not its password.
    let elsewhere = format!(
        "init --host 127.0.0.1 --port {} --user root -c other.toml --name other --account watcher@% --yes",
        primary.port()
    );
    shell.run(&elsewhere)?.exits(4).stderr_has(&["'watcher'@'%' exists", "--reset-password"]);
    ensure!(!shell.path().join("other.cnf").exists() && !shell.path().join("other.toml").exists());
    shell.run("init --host 127.0.0.1 --port 1 --user root --yes")?.exits(1).stderr_has(&["TW-SES-0001"]);
    Ok(())
}
