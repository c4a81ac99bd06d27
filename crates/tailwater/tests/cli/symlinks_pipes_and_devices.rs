//! Tests symbolic links, pipes and devices in places where commands expect files. Commands overwrite nothing
//! through them and do not hang.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};

use crate::shell_session::Shell;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn special_files_are_refused() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let server = Server::start(ServerSpec::new(kind)).await?;
    server
        .sql("CREATE DATABASE shop; CREATE TABLE shop.t (a INT PRIMARY KEY); INSERT INTO shop.t VALUES (1)")
        .await?;
    let at = format!("--host 127.0.0.1 --port {} --user root", server.port());
    shell.run(&format!("dump dumped {at}"))?.exits(0);
    server.sql("DROP DATABASE shop").await?;

    // Replace each file of a dump in turn with a pipe that has no writer, or with an endless device.
    let folder = shell.path().join("dumped");
    for file in files(&folder)? {
        let aside = shell.path().join("aside");
        std::fs::rename(&file, &aside)?;
        for device in [false, true] {
            match device {
                false => ensure!(Command::new("mkfifo").arg(&file).status()?.success()),
                true => symlink("/dev/zero", &file)?,
            }
            let started = Instant::now();
            let ran = shell.run(&format!("load dumped {at}"))?.exits(1);
            ensure!(
                started.elapsed() < PATIENCE,
                "the load does not end quickly when {} is a pipe or a device",
                file.display()
            );
            let name = file.file_name().context("the file has no name")?.to_string_lossy().into_owned();
            ran.stderr_has(&[&name, "regular file"]);
            std::fs::remove_file(&file)?;
            server.sql("DROP DATABASE IF EXISTS shop; DROP DATABASE IF EXISTS tailwater").await?;
        }
        std::fs::rename(&aside, &file)?;
    }
    shell.run(&format!("load dumped {at}"))?.exits(0);
    ensure!(server.sql("SELECT a FROM shop.t").await? == ["1"]);

    // The page replaces the symbolic link. The file that the link points to is unchanged.
    let victim = shell.path().join("victim");
    std::fs::write(&victim, "precious")?;
    let page = shell.path().join("page.html");
    symlink(&victim, &page)?;
    server.sql("FLUSH BINARY LOGS").await?;
    let binlog = server.data().join("binlog.000001").display().to_string();
    shell.run(&format!("log stats {binlog} --html page.html"))?.exits(0);
    ensure!(std::fs::read_to_string(&victim)? == "precious");
    ensure!(!page.is_symlink() && std::fs::read_to_string(&page)?.contains("<html"));

    // A log is read only from regular files, because parts of it are read twice.
    ensure!(Command::new("mkfifo").arg(shell.path().join("pipe")).status()?.success());
    for words in ["log cat pipe", "log stats pipe", "log verify pipe", "log ls pipe"] {
        shell.run(words)?.exits(1).stderr_has(&["pipe", "neither a log folder nor a regular file"]);
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}
