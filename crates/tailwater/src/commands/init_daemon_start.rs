//! Starts the daemon after `tailwater init`.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tailwater_config::Config;
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::api::daemon_status::DaemonStatus;
use tailwater_daemon::control_socket::{ask, socket_of};

/// Time limit for the daemon to answer, and then for it to start the capture.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two requests to the daemon.
const POLL: Duration = Duration::from_millis(100);

/// Environment variables that may hold the administrator's login. They would override the option file with
/// the password of the daemon's account.
const LOGIN_VARIABLES: [&str; 9] = [
    "TAILWATER_PASSWORD",
    "TAILWATER_USER",
    "TAILWATER_HOST",
    "TAILWATER_PORT",
    "TAILWATER_SOCKET",
    "MYSQL_PWD",
    "MYSQL_HOST",
    "MYSQL_TCP_PORT",
    "MYSQL_UNIX_PORT",
];

/// Returns a command that runs this program without the administrator's login in its environment.
///
/// # Errors
/// If the path of the program is not known.
pub(super) fn own_program() -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find the path of this program")?);
    for variable in LOGIN_VARIABLES {
        command.env_remove(variable);
    }
    Ok(command)
}

/// Starts the daemon if it does not run yet, and waits until it answers. Uses systemd if the package is
/// installed and the configuration is the package's. Otherwise the daemon is a separate process that outlives
/// this command.
///
/// # Errors
/// If the daemon cannot be started or ends.
pub(super) async fn start(config: &Path, mut note: impl FnMut(String)) -> anyhow::Result<()> {
    let loaded = Config::load(config)?;
    if status(&loaded).is_some() {
        note("the daemon is already running".to_owned());
        return Ok(());
    }
    if is_under_systemd(config) {
        let started = Command::new("systemctl").args(["enable", "--now", "tailwater"]).status();
        let started = started.context("cannot run systemctl enable --now tailwater")?;
        if !started.success() {
            bail!("systemd did not start the daemon: see `journalctl -u tailwater`");
        }
        note("started by systemd: systemctl status tailwater".to_owned());
        return Ok(());
    }
    let messages = config.with_extension("messages");
    let file = OpenOptions::new().create(true).append(true).open(&messages);
    let file = file.with_context(|| format!("cannot open {}", messages.display()))?;
    let mut command = own_program()?;
    command.arg("run").arg("-c").arg(config).stdin(Stdio::null());
    command.stdout(file.try_clone()?).stderr(file);
    // The daemon gets its own process group, so that signals from this terminal do not reach it.
    let mut daemon = command.process_group(0).spawn().context("cannot start `tailwater run`")?;
    wait_until_answers(&loaded, &mut daemon, &messages).await?;
    note(format!(
        "the daemon runs as process {}; its messages are in {}; stop it with `kill {}`",
        daemon.id(),
        messages.display(),
        daemon.id()
    ));
    Ok(())
}

fn is_under_systemd(config: &Path) -> bool {
    config == Path::new("/etc/tailwater/tailwater.toml")
        && Path::new("/run/systemd/system").is_dir()
        && Path::new("/usr/lib/systemd/system/tailwater.service").exists()
}

async fn wait_until_answers(config: &Config, daemon: &mut Child, messages: &PathBuf) -> anyhow::Result<()> {
    let began = Instant::now();
    while status(config).is_none() {
        if let Some(ended) = daemon.try_wait()? {
            let text = std::fs::read_to_string(messages).unwrap_or_default();
            let last = text.lines().last().unwrap_or_default();
            bail!("the daemon ended with {ended}: {last}");
        }
        if began.elapsed() > START_TIMEOUT {
            bail!("the daemon does not answer; its messages are in {}", messages.display());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// Waits until the daemon captures the source.
///
/// # Errors
/// If the daemon does not capture the source within the time limit. The error says what the daemon does
/// instead.
pub(super) async fn wait_until_captured(config: &Path, source: &str) -> anyhow::Result<()> {
    let config = Config::load(config)?;
    let began = Instant::now();
    loop {
        let status = status(&config);
        let of_source = status.iter().flat_map(|status| &status.sources).find(|one| one.source == source);
        match of_source {
            Some(captured) if captured.state == "streaming" => return Ok(()),
            captured if began.elapsed() > START_TIMEOUT => {
                let activity = captured.map_or("the daemon does not answer", |captured| &captured.activity);
                bail!("source {source} is not captured yet: {activity}");
            }
            _ => tokio::time::sleep(POLL).await,
        }
    }
}

fn status(config: &Config) -> Option<DaemonStatus> {
    match ask(&socket_of(&config.log.directory), &ControlCommand::Status) {
        Ok(ControlAnswer::Status(status)) => Some(*status),
        _ => None,
    }
}
