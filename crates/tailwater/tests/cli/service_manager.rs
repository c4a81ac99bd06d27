//! The daemon under a service manager such as systemd. The tests read the daemon's reports from a real
//! socket.

use std::ffi::OsString;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{ServerKind, require};

use crate::cli::http_listener::{Http, daemon};
use crate::shell_session::Shell;
use crate::systemd_notify_socket::Notifications;

/// The time after which the service manager would kill the daemon.
const WATCHDOG: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_daemon_reports_its_start_a_problem_a_hang_and_its_stop() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (mut trial, http) = daemon(&shell, kind, "").await?;
    let socket = shell.path().join("notify");
    let notifications = Notifications::bind(&socket)?;
    let variable = |name: &str, value: OsString| (OsString::from(name), value);
    trial.add_environment([
        variable("NOTIFY_SOCKET", socket.into_os_string()),
        variable("WATCHDOG_USEC", WATCHDOG.as_micros().to_string().into()),
    ]);

    trial.start_relay()?;
    let before = notifications.until("READY=1")?;
    ensure!(
        before[0].starts_with("STATUS=opening the logs"),
        "the first message does not report that the logs are being opened: {before:?}"
    );
    ensure!(before.len() == 2, "the daemon does not send exactly two messages at its start: {before:?}");
    // After READY=1, all listeners of the daemon answer.
    TcpStream::connect(("127.0.0.1", trial.serve_port())).context("cannot connect to the binlog server")?;
    ensure!(Http { port: http.number() }.ask("GET", "/healthz")?.0 == 200);
    shell.run("channel list -c tailwater.toml")?.exits(0);
    // The capture may have been streaming before the daemon was ready.
    let captured = "STATUS=1 of 1 sources captured\n";
    if !before[1].contains(captured) {
        notifications.until(captured)?;
    }
    for _ in 0..3 {
        notifications.until("WATCHDOG=1")?;
    }

    trial.primary.kill().await?;
    notifications.until("STATUS=0 of 1 sources captured; source primary: waiting to connect again: ")?;

    trial.relay().context("the daemon is not running")?.pause()?;
    notifications.until_silent(WATCHDOG * 5)?;
    trial.relay().context("the daemon is not running")?.resume()?;
    notifications.until("WATCHDOG=1")?;

    trial.stop_relay().await?;
    let last = notifications.until("STOPPING=1")?;
    ensure!(
        last.last().is_some_and(|last| last.contains("STATUS=stopping after a signal")),
        "the last message does not report the stop: {last:?}"
    );
    Ok(())
}
