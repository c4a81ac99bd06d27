//! The life of the package on a machine: install, configure, start, upgrade, remove, purge.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Server, ServerKind};

use super::clean_debian_system::{CleanRoot, package, require, with_version};
use super::{CONFIG, EARLIER, UNIT, configure, source};
use crate::documentation::markdown::{code_blocks, workspace};

/// Time limit for the daemon to end. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn package_is_installed_started_upgraded_removed_and_purged() -> Result<()> {
    let Some(image) = require() else { return Ok(()) };
    if tailwater_sandbox::require(ServerKind::Mariadb1011).is_none() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let package = package(folder.path())?;
    let earlier = with_version(&package, EARLIER)?;
    let root = CleanRoot::copy(&image)?;
    let source = source().await?;

    install_as_in_first_hour(&root, &earlier)?;
    installed_and_idle(&root)?;
    configure(&root, &source)?;
    let edited = root.read(CONFIG)?;
    capture(&root, &source, "CREATE DATABASE shop; CREATE TABLE shop.t (a INT PRIMARY KEY)").await?;
    let before = log(&root)?;
    ensure!(before.contains("0-1-"), "the log has no transaction before the upgrade: {before}");

    root.install(&package)?;
    let version = root.run("dpkg-query --show --showformat='${Version}' tailwater")?;
    ensure!(version != EARLIER, "the package still has the version before the upgrade: {version}");
    ensure!(root.read(CONFIG)? == edited, "the upgrade must keep the edits of {CONFIG}");
    let offered = root.read(&format!("{CONFIG}.dpkg-dist"))?;
    ensure!(
        !offered.contains(EARLIER),
        "the upgrade must store the new example as {CONFIG}.dpkg-dist: {offered}"
    );
    owned(&root, CONFIG, "root:tailwater 640")?;
    ensure!(log(&root)? == before, "the upgrade must not change the log");
    capture(&root, &source, "INSERT INTO shop.t VALUES (1)").await?;
    let after = log(&root)?;
    ensure!(after != before, "the upgraded daemon has captured nothing: {after}");
    root.run("runuser -u tailwater -- tailwater log verify /var/lib/tailwater/log")?;

    root.run("dpkg --remove tailwater")?;
    for absent in ["/usr/bin/tailwater", "/usr/lib/systemd/system/tailwater.service"] {
        ensure!(!root.path(absent).exists(), "the removed package has left {absent}");
    }
    ensure!(root.read(CONFIG)? == edited, "the removal of the package must keep its configuration");
    root.install(&package)?;
    ensure!(
        root.read(CONFIG)? == edited && log(&root)? == after,
        "the log must be the same after the package is removed and installed again"
    );

    let purged = root.run("dpkg --purge tailwater")?;
    ensure!(
        purged.contains("/var/lib/tailwater") && purged.contains("kept"),
        "the purge does not report that it keeps the log: {purged}"
    );
    ensure!(!root.path("/etc/tailwater").exists(), "the purge must delete the folder with the passwords");
    ensure!(root.path("/var/lib/tailwater/log/orders").is_dir(), "the purge must keep the log");
    root.run("getent passwd tailwater")?;
    Ok(())
}

/// Runs the installation command of docs/first-hour.md, the page for new users, in a folder with the package.
fn install_as_in_first_hour(root: &CleanRoot, package: &Path) -> Result<()> {
    let page = std::fs::read_to_string(workspace().join("docs/first-hour.md"))?;
    let blocks = code_blocks(&page);
    let block = blocks
        .iter()
        .find(|block| block.labels == ["package"])
        .context("no code block of docs/first-hour.md installs the package")?;
    std::fs::create_dir(root.path("/srv/download"))?;
    std::fs::copy(package, root.path(&format!("/srv/download/tailwater_{EARLIER}_amd64.deb")))?;
    root.run(&format!("cd /srv/download && {}", block.text))?;
    Ok(())
}

/// Checks what the first installation creates, and that the unit is not enabled, because there is no
/// configuration yet.
fn installed_and_idle(root: &CleanRoot) -> Result<()> {
    owned(root, "/etc/tailwater", "root:tailwater 750")?;
    owned(root, CONFIG, "root:tailwater 640")?;
    owned(root, "/var/lib/tailwater", "tailwater:tailwater 750")?;
    let account = root.run("getent passwd tailwater")?;
    ensure!(
        account.trim_end().ends_with(":/var/lib/tailwater:/usr/sbin/nologin"),
        "the account has another home folder or shell: {account}"
    );
    ensure!(!root.path("/etc/systemd/system/multi-user.target.wants/tailwater.service").exists());
    let conffiles = root.run("dpkg-query --show --showformat='${Conffiles}' tailwater")?;
    ensure!(
        conffiles.trim().starts_with(CONFIG) && conffiles.trim().lines().count() == 1,
        "the configuration is not the only conffile: {conffiles}"
    );
    root.run("tailwater --version")?;
    for page in ["tailwater", "tailwater-run", "tailwater-channel-start"] {
        root.run(&format!("gzip --test /usr/share/man/man1/{page}.1.gz"))?;
    }
    root.run("bash -c '. /usr/share/bash-completion/completions/tailwater && complete -p tailwater'")?;
    for script in [
        "/usr/share/zsh/vendor-completions/_tailwater",
        "/usr/share/fish/vendor_completions.d/tailwater.fish",
    ] {
        ensure!(root.read(script)?.contains("switchover"), "the completion script {script} lacks a command");
    }
    // The unchanged example configuration is refused, and the message says why.
    let refused = root.output(&format!("tailwater config check -c {CONFIG}"))?;
    let message = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        refused.status.code() == Some(1) && message.contains("TW-CFG-"),
        "the unchanged example was not refused with an explanation: {message}"
    );
    let analysed = root.run(&format!("systemd-analyze verify --man=no {UNIT}"))?;
    ensure!(!analysed.contains(UNIT), "systemd-analyze complains about the unit: {analysed}");
    Ok(())
}

/// Starts the command of the unit, and runs `statements` on the source. Their commits wait for an ACK of the
/// daemon. Then stops the daemon.
async fn capture(root: &CleanRoot, source: &Server, statements: &str) -> Result<()> {
    let output = root.path("/tmp/daemon.log");
    let (daemon, notifications) = root.start(UNIT, &output)?;
    let logged = || std::fs::read_to_string(&output).unwrap_or_default();
    let captured = "STATUS=1 of 1 sources captured";
    let start = notifications.until("READY=1").with_context(logged)?;
    // The capture may have been streaming before the daemon was ready.
    if !start.iter().any(|message| message.contains(captured)) {
        notifications.until(captured).with_context(logged)?;
    }
    source.sql(statements).await?;
    let status = daemon.terminate(PATIENCE).await?;
    ensure!(status.success(), "the daemon ended with {status}: {}", logged());
    notifications.until("STOPPING=1").with_context(logged)?;
    Ok(())
}

/// Lists the log with the privileges of the daemon's account.
fn log(root: &CleanRoot) -> Result<String> {
    root.run("runuser -u tailwater -- tailwater log ls /var/lib/tailwater/log")
}

/// Fails if the path does not have this owner, group and mode.
fn owned(root: &CleanRoot, path: &str, wanted: &str) -> Result<()> {
    let found = root.run(&format!("stat --format='%U:%G %a' '{path}'"))?;
    ensure!(found.trim() == wanted, "{path} is {}, not {wanted}", found.trim());
    Ok(())
}
