//! Downloads servers from the real Debian mirror.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Cache, Install, Server, ServerKind, ServerSpec};

/// Returns a command that runs one ignored test of this program in a separate process, which can be killed.
pub fn helper(name: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("TAILWATER_TEST_HELPER", name).stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(command)
}

/// Whether this process was started by [`helper`], and not by a run of all ignored tests.
pub fn is_helper(name: &str) -> bool {
    std::env::var_os("TAILWATER_TEST_HELPER").is_some_and(|value| value == name)
}

#[test]
#[ignore = "another test runs this one in a separate process, which is killed while it installs a server"]
fn helper_installs() -> Result<()> {
    if is_helper("server_download::helper_installs") {
        Install::ensure(ServerKind::Mariadb118, &Cache::locate()?, &mut |progress| println!("{progress}"))?;
    }
    Ok(())
}

/// Each server is downloaded into an empty cache and starts, even if a first download was killed.
#[tokio::test]
async fn servers_are_downloaded_and_start() -> Result<()> {
    if std::env::var_os("TAILWATER_LONG").is_none() {
        eprintln!(
            "SKIPPED servers_are_downloaded_and_start: downloads some 150 MB; set TAILWATER_LONG=1 to run it"
        );
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let cache = Cache::at(folder.path());
    let mut child =
        helper("server_download::helper_installs")?.env("TAILWATER_CACHE", folder.path()).spawn()?;
    let state = cache.servers().join(".apt-state-mariadb-11.8/packages");
    let deadline = Instant::now() + Duration::from_secs(300);
    let fetched = || std::fs::read_dir(&state).map_or(0, |entries| entries.count());
    while fetched() < 10 {
        ensure!(
            Instant::now() < deadline && child.try_wait()?.is_none(),
            "only {} packages were downloaded",
            fetched()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    child.kill()?;
    child.wait()?;
    ensure!(
        Install::find(ServerKind::Mariadb118, &cache).is_err(),
        "the interrupted installation counts as complete"
    );

    for kind in ServerKind::ALL {
        let began = Instant::now();
        let mut last = String::new();
        let install = Install::ensure(kind, &cache, &mut |progress| {
            let line = progress.to_string();
            if line.split(' ').next() != last.split(' ').next() || line.contains("fetching") {
                println!("{line}");
            }
            last = line;
        })?;
        println!("{kind}: {:?}", began.elapsed());
        // The server must come from the cache, not from the system.
        ensure!(
            install.root().starts_with(folder.path()),
            "the server is not from the cache, but from {}",
            install.root().display()
        );
        let server = Server::start_in(&cache, ServerSpec::new(kind)).await?;
        println!("{kind}: {}", server.version());
        let tool = match kind {
            ServerKind::Mysql97 => "mysqlbinlog",
            ServerKind::Mariadb1011 | ServerKind::Mariadb118 => "mariadb-binlog",
        };
        let output = server.tool(tool)?.args(["--no-defaults", "--version"]).output().context(tool)?;
        ensure!(
            output.status.success(),
            "{tool} --version failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

#[test]
#[ignore = "another test runs this one in a separate process, in which a server is missing"]
fn helper_requires() {
    if is_helper("server_download::helper_requires")
        && tailwater_sandbox::require(ServerKind::Mysql97).is_some()
    {
        println!("found one");
    }
}

/// A missing server is reported in one line. In CI it fails the test, unless missing servers are allowed.
#[test]
fn a_missing_server_is_reported() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let run = |ci: bool, allowed: bool| -> Result<(bool, String)> {
        let mut command = helper("server_download::helper_requires")?;
        command.env("TAILWATER_CACHE", folder.path()).env("TAILWATER_FETCH", "0");
        command.env_remove("CI").env_remove("TAILWATER_ALLOW_MISSING_SERVERS");
        if ci {
            command.env("CI", "true");
        }
        if allowed {
            command.env("TAILWATER_ALLOW_MISSING_SERVERS", "1");
        }
        let output = command.stderr(Stdio::piped()).output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    };
    let (passed, text) = run(false, false)?;
    if text.contains("found one") {
        // MySQL 9.7 is installed as a package on this machine, so no missing server can be tested.
        return Ok(());
    }
    ensure!(
        passed && text.contains("SKIPPED server_download::helper_requires: needs MySQL 9.7: "),
        "the test with the missing server was not skipped: {text}"
    );
    let (passed, text) = run(true, false)?;
    ensure!(
        !passed && text.contains("SKIPPED server_download::helper_requires"),
        "the test with the missing server did not fail in CI: {text}"
    );
    let (passed, text) = run(true, true)?;
    ensure!(
        passed && text.contains("SKIPPED server_download::helper_requires"),
        "the test was not skipped although missing servers are allowed: {text}"
    );
    Ok(())
}
