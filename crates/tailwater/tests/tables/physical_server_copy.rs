//! `tailwater copy --binary`: a physical copy of a whole server.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};

use crate::shell_session::Shell;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

const SCRIPT: &str = "CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, n INT); \
                      INSERT INTO shop.t VALUES (1, 2), (3, 4)";

#[tokio::test]
async fn a_clone_into_a_server_without_a_service_manager_is_complete() -> Result<()> {
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (donor, recipient) = tokio::try_join!(
        Server::start(ServerSpec::new(kind).name("donor")),
        Server::start(ServerSpec::new(kind).name("recipient"))
    )?;
    let mut recipient = recipient;
    donor.sql(SCRIPT).await?;
    let server = |side: &str, server: &Server| {
        format!("--{side}-host 127.0.0.1 --{side}-port {} --{side}-user root", server.port())
    };
    let copy = format!("copy --binary {} {}", server("source", &donor), server("target", &recipient));
    shell.run(&copy)?.exits(4).stderr_has(&["TW-BULK-0100", "mysql_clone.so"]);
    for server in [&donor, &recipient] {
        server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'").await?;
    }
    shell.run(&format!("{copy} --database shop"))?.exits(2);
    shell.run(&format!("{copy} --dry-run"))?.exits(0).says(&["clones 127.0.0.1:", "MySQL 9.7", "MiB"]);
    // No service manager restarts the server after the clone.
    let left = shell.run(&format!("{copy} --restart-wait-max-s 1"))?.exits(1);
    left.stderr_has(&["TW-BULK-0102", "start it"]);
    let started = Instant::now();
    while recipient.is_running() {
        ensure!(started.elapsed() < PATIENCE, "the target does not shut down");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    recipient.start_again().await?;
    ensure!(recipient.sql("SELECT SUM(n) FROM shop.t").await? == ["6"]);
    // The target is not empty any more, so a second clone is refused.
    shell.run(&copy)?.exits(4).stderr_has(&["TW-BULK-0100", "shop"]);
    Ok(())
}

#[tokio::test]
async fn a_copy_with_mariadb_backup_creates_a_data_directory() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if is_skipped_in_ci(
        "a_copy_with_mariadb_backup_creates_a_data_directory",
        "crates/dump/tests/binary_copy.rs",
    ) || require(kind).is_none()
    {
        return Ok(());
    }
    let shell = Shell::new()?;
    let source = Server::start(ServerSpec::new(kind).name("source")).await?;
    source.sql(SCRIPT).await?;
    let socket = source.socket().display();
    let copy = format!("copy --binary --source-socket {socket} --source-user root --to-directory data");
    shell
        .run(&format!("{copy} --backup-program ./none"))?
        .exits(4)
        .stderr_has(&["TW-BULK-0100", "does not run"]);
    program(&source, &shell)?;
    let copy = format!("{copy} --backup-program ./backup");
    shell.run(&format!("{copy} --dry-run"))?.exits(0).says(&["copies MariaDB 10.11", "MiB"]);
    let done = shell.run(&copy)?.exits(0).says(&["MiB to data", "SET GLOBAL gtid_slave_pos = '"]);
    let gtids = source.sql("SELECT @@GLOBAL.gtid_binlog_pos").await?.concat();
    ensure!(
        done.text().contains(&format!("gtid_slave_pos = '{gtids}'")),
        "the command does not print the GTIDs of the copy: {}",
        done.text()
    );
    let target = Server::start(ServerSpec::new(kind).name("target").data(shell.path().join("data"))).await?;
    ensure!(target.sql("SELECT SUM(n) FROM shop.t").await? == ["6"]);
    shell.run(&copy)?.exits(4).stderr_has(&["TW-BULK-0100", "is not empty"]);
    Ok(())
}

/// Writes one executable file that runs the server's own backup program with its libraries.
fn program(server: &Server, shell: &Shell) -> Result<()> {
    let tool = server.tool("mariadb-backup")?;
    let mut script = String::from("#!/bin/sh\n");
    for (name, value) in tool.get_envs() {
        let value =
            value.context("the command removes an environment variable, which the script cannot do")?;
        script += &format!("export {}='{}'\n", name.to_string_lossy(), value.to_string_lossy());
    }
    let words = std::iter::once(tool.get_program()).chain(tool.get_args());
    let words: Vec<_> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
    script += &format!("exec {} \"$@\"\n", words.join(" "));
    shell.write("backup", &script)?;
    std::fs::set_permissions(shell.path().join("backup"), std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}
