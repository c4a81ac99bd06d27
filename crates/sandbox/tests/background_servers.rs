//! Servers that keep running after the command that started them, and servers that must end with the process
//! that started them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::background_servers::{DetachedRole, UpSpec, down, list, up};
use tailwater_sandbox::{Cache, Server, ServerKind, ServerSpec, require};

use crate::server_download::{helper, is_helper};

fn alive(pid: u32) -> bool {
    // A zombie process has ended, but its parent has not waited for it yet.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z")))
}

async fn wait_until_gone(pid: u32) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while alive(pid) {
        ensure!(Instant::now() < deadline, "process {pid} is still running");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Creates a new cache with the servers and templates of this machine's cache.
fn cache_with_servers_of(folder: &Path) -> Result<Cache> {
    let real = Cache::locate()?;
    let cache = Cache::at(folder);
    std::fs::create_dir_all(real.templates())?;
    std::os::unix::fs::symlink(real.servers(), cache.servers())?;
    std::os::unix::fs::symlink(real.templates(), cache.templates())?;
    Ok(cache)
}

#[tokio::test]
#[ignore = "another test runs this one in a separate process, which is killed while it owns servers"]
async fn helper_owns_servers() -> Result<()> {
    if !is_helper("background_servers::helper_owns_servers") {
        return Ok(());
    }
    let mysql = Server::start(ServerSpec::new(ServerKind::Mysql97)).await?;
    let mut mariadb = Server::start(ServerSpec::new(ServerKind::Mariadb1011)).await?;
    mariadb.pause()?;
    for server in [&mysql, &mariadb] {
        println!(
            "owned {} {}",
            server.pid().context("the server has no process id")?,
            server.data().display()
        );
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    Ok(())
}

/// If the process that started servers is killed with SIGKILL, all its servers end, even a paused one. The
/// next start of a server removes their data.
#[tokio::test]
async fn a_killed_process_leaves_no_servers_and_no_data() -> Result<()> {
    if require(ServerKind::Mysql97).is_none() || require(ServerKind::Mariadb1011).is_none() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let cache = cache_with_servers_of(folder.path())?;
    let mut owner =
        helper("background_servers::helper_owns_servers")?.env("TAILWATER_CACHE", folder.path()).spawn()?;
    let mut owned = Vec::new();
    for line in BufReader::new(
        owner.stdout.take().context("the standard output of the other process is not captured")?,
    )
    .lines()
    {
        let line = line?;
        // The test harness prints its own output on the same line.
        if let Some((_, words)) = line.split_once("owned ") {
            let (pid, data) =
                words.split_once(' ').context("the helper printed no data folder after the process id")?;
            owned.push((pid.parse::<u32>()?, PathBuf::from(data)));
        }
        if owned.len() == 2 {
            break;
        }
    }
    ensure!(
        owned.len() == 2 && owned.iter().all(|(pid, data)| alive(*pid) && data.is_dir()),
        "a server is not running: {owned:?}"
    );
    owner.kill()?;
    owner.wait()?;
    for (pid, _) in &owned {
        wait_until_gone(*pid).await?;
    }
    let next = Server::start_in(&cache, ServerSpec::new(ServerKind::Mariadb1011)).await?;
    ensure!(owned.iter().all(|(_, data)| !data.exists()), "the data of a server was not removed: {owned:?}");
    drop(next);
    ensure!(std::fs::read_dir(cache.run())?.count() == 0);
    Ok(())
}

#[tokio::test]
#[ignore = "another test runs this one in a separate process, which starts servers that outlive it"]
async fn helper_goes_up() -> Result<()> {
    if is_helper("background_servers::helper_goes_up") {
        let kind = ServerKind::Mariadb1011;
        let spec = UpSpec {
            kind,
            count: 2,
            port: None,
            semi_sync: true,
            options: vec!["--max-connections=66".to_owned()],
        };
        up(&Cache::locate()?, &spec, |progress| println!("{progress}")).await?;
    }
    Ok(())
}

/// One process runs `up`, another one runs `list` and `down`.
#[tokio::test]
async fn detached_servers_run_until_down() -> Result<()> {
    if require(ServerKind::Mariadb1011).is_none() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let cache = cache_with_servers_of(folder.path())?;
    ensure!(list(&cache)?.is_empty());
    let output =
        helper("background_servers::helper_goes_up")?.env("TAILWATER_CACHE", folder.path()).output()?;
    let result = check_listed(&cache).await;
    // The servers are stopped even if a check has failed.
    let ended = down(&cache, &[]).await?;
    ensure!(output.status.success(), "`up` failed: {}", String::from_utf8_lossy(&output.stdout));
    result?;
    ensure!(ended.len() == 1 && ended.iter().all(|server| !alive(server.pid)));
    ensure!(
        list(&cache)?.is_empty() && std::fs::read_dir(cache.up())?.count() == 1,
        "`down` left files other than the lock file"
    );
    Ok(())
}

async fn check_listed(cache: &Cache) -> Result<()> {
    let servers = list(cache)?;
    let names: Vec<_> = servers.iter().map(|server| (server.name.as_str(), server.role)).collect();
    ensure!(
        names == [("mariadb-10.11-1", DetachedRole::Source), ("mariadb-10.11-2", DetachedRole::Replica)],
        "`list` returned the wrong servers: {names:?}"
    );
    ensure!(servers.iter().all(|server| server.is_running() && server.version.starts_with("10.11.")));

    // The test runs the commands in a shell, as a user would paste them.
    let sql = |server: usize, statement: &str| -> Result<String> {
        let commands = servers[server].commands();
        let (_, command) = commands
            .iter()
            .find(|(purpose, _)| *purpose == "SQL")
            .context("`DetachedServer::commands` returned no command for SQL")?;
        let output = Command::new("sh").arg("-c").arg(format!("{command} -N -e '{statement}'")).output()?;
        ensure!(
            output.status.success(),
            "the SQL command failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    ensure!(sql(0, "SELECT @@max_connections, @@rpl_semi_sync_master_enabled")? == "66\t1");
    ensure!(sql(1, "SELECT @@rpl_semi_sync_slave_enabled, @@read_only, @@log_slave_updates")? == "0\t1\t1");
    // Tailwater does not run in this test, so the replica must acknowledge.
    sql(1, "SET GLOBAL rpl_semi_sync_slave_enabled = 1; STOP SLAVE; START SLAVE")?;
    sql(0, "CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY); INSERT INTO d.t VALUES (5)")?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while sql(1, "SELECT a FROM d.t").unwrap_or_default() != "5" {
        ensure!(Instant::now() < deadline, "the row did not reach the replica");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ended = down(cache, &["mariadb-10.11-2".to_owned()]).await?;
    ensure!(ended.len() == 1 && !alive(ended[0].pid) && alive(servers[0].pid));
    Ok(())
}
