//! The first commands of a new user: `demo`, and servers of `sandbox`.

use std::os::unix::fs::symlink;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_sandbox::{Cache, ServerKind, require};

use crate::shell_session::Shell;

#[test]
fn the_demo_reports_what_is_documented() -> Result<()> {
    if require(ServerKind::Mariadb1011).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let lines = shell.run("demo --short --output json")?.exits(0).json()?;
    let [report] = lines.as_slice() else { anyhow::bail!("the demo must print exactly one line: {lines:?}") };
    ensure!(
        report["ok"] == true && report["missing_in_log"] == 0,
        "the demo failed, or the log lacks commits: {report}"
    );
    ensure!(
        report["server"].is_string() && report["server_version"].is_string(),
        "the report does not name the server and its version: {report}"
    );
    ensure!(report["relay_restarts"] == 1, "the demo must restart the relay exactly once: {report}");
    for key in ["acknowledged", "log_bytes", "commits_per_second"] {
        ensure!(
            report[key].as_f64().is_some_and(|figure| figure > 0.0),
            "the figure {key} is not above 0: {report}"
        );
    }
    Ok(())
}

/// Returns a shell with its own cache folder, so that the test does not touch other sandbox servers of this
/// machine.
pub fn shell_with_cache() -> Result<(Shell, Cache)> {
    let mut shell = Shell::new()?;
    let (real, own) = (Cache::locate()?, Cache::at(shell.path().join("cache")));
    std::fs::create_dir_all(own.root())?;
    std::fs::create_dir_all(real.templates())?;
    symlink(real.servers(), own.servers())?;
    symlink(real.templates(), own.templates())?;
    shell.set("TAILWATER_CACHE", own.root().to_owned());
    Ok((shell, own))
}

/// Stops the sandbox servers if a test fails.
pub struct StopServersOnDrop<'a>(pub &'a Shell);

impl Drop for StopServersOnDrop<'_> {
    fn drop(&mut self) {
        // The test itself reports the failure. This command only stops the servers.
        let _ = self.0.run("sandbox down");
    }
}

#[test]
fn sandbox_servers_are_started_listed_and_stopped() -> Result<()> {
    if require(ServerKind::Mariadb1011).is_none() {
        return Ok(());
    }
    let (shell, own) = shell_with_cache()?;
    let _down = StopServersOnDrop(&shell);

    shell.run("sandbox list")?.exits(0).says(&["no servers", "sandbox up"]);
    let up = shell.run("sandbox up --server mariadb --version 10.11 -- --max-connections=67")?.exits(0);
    let up = up.says(&["mariadb-10.11-1: 10.11.", "on 127.0.0.1:", "SQL:", "binlog:", "data:"]).text();
    shell.run("sandbox list")?.exits(0).says(&[&up]);
    // The test runs the SQL command that `sandbox up` has printed, as a user would paste it.
    let sql = up
        .lines()
        .find_map(|line| line.trim().strip_prefix("SQL:"))
        .context("the output has no SQL command")?
        .trim();
    let answer = shell.bash(&format!("{sql} -N -e 'SELECT @@max_connections'"))?.exits(0);
    ensure!(answer.text().trim() == "67", "the server does not use the option: {answer:?}");

    let lines = shell.run("sandbox list --output json")?.exits(0).json()?;
    let [server] = lines.as_slice() else {
        anyhow::bail!("the list must have exactly one server: {lines:?}")
    };
    ensure!(
        server["name"] == "mariadb-10.11-1" && server["running"] == true,
        "the server is not listed as running: {server}"
    );
    ensure!(
        server["role"] == "standalone" && server["commands"]["SQL"] == sql,
        "the role or the SQL command of the server is wrong: {server}"
    );
    let pid = server["pid"].as_u64().context("the output has no process id")?;
    let port = server["port"].as_u64().context("the output has no port")?;
    ensure!(runs(pid));

    // The server keeps its data, port and options after a stop and after a crash.
    shell
        .bash(&format!("{sql} -e 'CREATE DATABASE d; SET GLOBAL local_infile = @@GLOBAL.local_infile'"))?
        .exits(0);
    for how in ["stop", "kill"] {
        shell.run(&format!("sandbox {how} mariadb-10.11-1"))?.exits(0).says(&["mariadb-10.11-1: "]);
        ensure!(shell.run("sandbox list --output json")?.exits(0).json()?[0]["running"] == false);
        shell
            .run(&format!("sandbox {how} mariadb-10.11-1"))?
            .exits(1)
            .stderr_has(&["TW-SBX-0008", "not running"]);
        shell.run("sandbox start")?.exits(0).says(&["mariadb-10.11-1: ", &format!("127.0.0.1:{port}")]);
        shell.run("sandbox start mariadb-10.11-1")?.exits(1).stderr_has(&["TW-SBX-0008", "is running"]);
        let answer = shell.bash(&format!("{sql} -N -e 'SELECT @@max_connections, @@local_infile; USE d'"))?;
        ensure!(answer.exits(0).text().trim() == "67\t1");
    }
    shell.run("sandbox kill")?.exits(2);
    let taken = format!("sandbox up --server mariadb --port {port}");
    shell.run(&taken)?.exits(1).stderr_has(&["TW-SBX-0022", &port.to_string()]);
    shell.run("sandbox up --server mariadb --port 65535 --count 2")?.exits(1).stderr_has(&["TW-SBX-0023"]);
    let lines = shell.run("sandbox list --output json")?.exits(0).json()?;
    ensure!(lines.len() == 1, "a refused command left servers behind: {lines:?}");
    let pid = lines[0]["pid"].as_u64().context("the output has no process id")?;

    shell.run("sandbox down mariadb-10.11-7")?.exits(1).stderr_has(&["TW-SBX-", "mariadb-10.11-7"]);
    ensure!(runs(pid));
    shell.run("sandbox down")?.exits(0).says(&["mariadb-10.11-1: stopped"]);
    ensure!(!runs(pid), "the server is still running");
    ensure!(std::net::TcpStream::connect(("127.0.0.1", port as u16)).is_err(), "the port is still in use");
    let left: Vec<_> =
        std::fs::read_dir(own.up())?.map(|entry| entry.map(|entry| entry.file_name())).collect();
    ensure!(left.len() == 1, "files other than the lock file remain: {left:?}");
    shell.run("sandbox down")?.exits(0).stdout_lacks(&["stopped"]);
    ensure!(shell.run("sandbox list --output json")?.exits(0).json()? == Vec::<Value>::new());
    Ok(())
}

/// Whether the process exists and is not a zombie.
fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z")))
}
