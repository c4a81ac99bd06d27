//! The package's unit under systemd: start, hang, upgrade while the daemon runs, and removal.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::ServerKind;

use super::clean_debian_system::{CleanRoot, package, require, with_version};
use super::systemd_container::{self, BootedRoot};
use super::{CONFIG, EARLIER, UNIT, configure, source};

/// A drop-in for the unit. The time limit in the unit itself would make the test slow.
const DROP_IN: &str = "[Service]\nWatchdogSec=2s\n";

#[tokio::test]
async fn systemd_starts_watches_upgrades_and_stops_the_daemon() -> Result<()> {
    let Some(image) = require() else { return Ok(()) };
    if !systemd_container::require(&image) || tailwater_sandbox::require(ServerKind::Mariadb1011).is_none() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let package = package(folder.path())?;
    let earlier = with_version(&package, EARLIER)?;
    let root = CleanRoot::copy(&image)?;
    let source = source().await?;
    root.install(&earlier)?;
    configure(&root, &source)?;
    std::fs::create_dir_all(root.path("/etc/systemd/system/tailwater.service.d"))?;
    std::fs::write(root.path("/etc/systemd/system/tailwater.service.d/watchdog.conf"), DROP_IN)?;

    let booted = BootedRoot::boot(&root, &folder.path().join("container.log"))?;
    ensure!(
        booted.property(UNIT, "ActiveState")? == "inactive",
        "the installation must not enable or start the unit"
    );
    // `systemctl` returns after the daemon has reported that it is ready.
    booted.run(&format!("systemctl enable --now {UNIT}"))?;
    let captured = |text: &str| text == "1 of 1 sources captured";
    booted.until_property(UNIT, "StatusText", captured)?;
    source.sql("CREATE DATABASE shop; CREATE TABLE shop.t (a INT PRIMARY KEY)").await?;

    let entries = booted.run("journalctl TAILWATER_SOURCE=orders --output=json --no-pager")?;
    ensure!(
        entries.contains("\"TAILWATER_SOURCE\":\"orders\"")
            && entries.contains("\"_SYSTEMD_UNIT\":\"tailwater.service\""),
        "the journal has no fields of messages: {entries}"
    );

    let first = booted.property(UNIT, "MainPID")?;
    booted.run(&format!("kill -STOP {first}"))?;
    booted.until_property(UNIT, "NRestarts", |count| count == "1")?;
    booted.until_property(UNIT, "StatusText", captured)?;
    source.sql("INSERT INTO shop.t VALUES (1)").await?;

    let second = booted.property(UNIT, "MainPID")?;
    ensure!(second != first, "systemd has not restarted the frozen daemon {second}");
    edit(&root, |config| format!("nonsense = 1\n{config}"))?;
    let said = booted.run(&root.install_command(&package)?)?;
    ensure!(
        said.contains("TW-CFG-0002") && said.contains("was not restarted"),
        "the upgrade does not report the wrong configuration: {said}"
    );
    ensure!(
        booted.property(UNIT, "MainPID")? == second,
        "an upgrade must not restart a daemon whose configuration is wrong"
    );
    edit(&root, |config| config.replace("nonsense = 1\n", ""))?;

    booted.run(&root.install_command(&package)?)?;
    booted.until_property(UNIT, "MainPID", |pid| pid != second && pid != "0")?;
    booted.until_property(UNIT, "StatusText", captured)?;
    source.sql("INSERT INTO shop.t VALUES (2)").await?;
    let enabled = booted.run(&format!("systemctl is-enabled {UNIT}"))?;
    ensure!(enabled.trim() == "enabled", "the upgrade must keep the unit enabled: {enabled}");

    upgrade_with_another_configuration(&root, &booted, &package)?;
    booted.until_property(UNIT, "StatusText", captured)?;
    source.sql("INSERT INTO shop.t VALUES (3)").await?;

    remove_and_install_again(&root, &booted, &package)?;
    booted.until_property(UNIT, "StatusText", captured)?;
    source.sql("INSERT INTO shop.t VALUES (4)").await?;

    booted.run("dpkg --purge tailwater")?;
    booted.until_property(UNIT, "ActiveState", |state| state == "inactive")?;
    ensure!(!root.path("/etc/systemd/system/multi-user.target.wants/tailwater.service").is_symlink());
    ensure!(
        !root.path("/etc/systemd/system/tailwater.service").is_symlink(),
        "the purge has left the unit masked"
    );
    ensure!(root.path("/var/lib/tailwater/log/orders").is_dir(), "the purge has deleted the log");
    Ok(())
}

/// An upgrade checks the configuration that the unit names, not the example configuration of the package. It
/// does not change a folder mode that the administrator has set.
fn upgrade_with_another_configuration(root: &CleanRoot, booted: &BootedRoot, package: &Path) -> Result<()> {
    booted.run(&format!(
        "cp --preserve {CONFIG} /etc/tailwater/cluster.toml && chmod 0700 /var/lib/tailwater"
    ))?;
    let drop_in =
        format!("{DROP_IN}ExecStart=\nExecStart=/usr/bin/tailwater run -c /etc/tailwater/cluster.toml\n");
    std::fs::write(root.path("/etc/systemd/system/tailwater.service.d/watchdog.conf"), &drop_in)?;
    booted.run("systemctl daemon-reload")?;
    let running = booted.property(UNIT, "MainPID")?;
    edit(root, |config| format!("nonsense = 1\n{config}"))?;
    booted.run(&root.install_command(package)?)?;
    booted.until_property(UNIT, "MainPID", |pid| pid != running && pid != "0")?;
    upgrade_with_settings_in_the_environment(root, booted, package, &drop_in)?;
    let mode = booted.run("stat --format=%a /var/lib/tailwater")?;
    ensure!(
        mode.trim() == "700",
        "the upgrade must keep mode 700 of the log's folder, but the mode is {mode}"
    );
    Ok(())
}

/// An upgrade checks the configuration with the environment variables and the `--set` of the unit: the
/// daemon would not start without them.
fn upgrade_with_settings_in_the_environment(
    root: &CleanRoot,
    booted: &BootedRoot,
    package: &Path,
    drop_in: &str,
) -> Result<()> {
    let file = root.path("/etc/tailwater/cluster.toml");
    let config = std::fs::read_to_string(&file)?;
    let without = config.replace("server_id = 4201\n", "").replace("host = \"127.0.0.1\"\n", "");
    let without = without.replace("#semi_sync", "semi_sync");
    ensure!(without.len() + 30 < config.len(), "the settings are not in the file: {config}");
    std::fs::write(&file, &without)?;
    std::fs::write(
        root.path("/etc/tailwater/daemon.env"),
        "# A comment.\nTAILWATER_SOURCE_ORDERS_SERVER_ID='4201'\n",
    )?;
    let with_environment = format!(
        "{drop_in}EnvironmentFile=/etc/tailwater/daemon.env\nEnvironmentFile=-/etc/absent.env\n\
         Environment=\"TAILWATER_SOURCE_ORDERS_HOST=127.0.0.1\" TAILWATER_SOURCE_ORDERS_HEARTBEAT_MS=300\n\
         ExecStart=\nExecStart=/usr/bin/tailwater run -c /etc/tailwater/cluster.toml --set log.archive_interval_ms=9000\n"
    );
    let path = root.path("/etc/systemd/system/tailwater.service.d/watchdog.conf");
    std::fs::write(&path, &with_environment)?;
    booted.run("systemctl daemon-reload")?;
    let running = booted.property(UNIT, "MainPID")?;
    let said = booted.run(&root.install_command(package)?)?;
    ensure!(!said.contains("refuses"), "the environment of the unit does not count: {said}");
    booted.until_property(UNIT, "MainPID", |pid| pid != running && pid != "0")?;

    // A wrong value in the environment counts, too.
    std::fs::write(&path, with_environment.replace("HEARTBEAT_MS=300", "HEARTBEAT_MS=soon"))?;
    booted.run("systemctl daemon-reload")?;
    let running = booted.property(UNIT, "MainPID")?;
    let said = booted.run(&root.install_command(package)?)?;
    ensure!(said.contains("TW-CFG-0004") && said.contains("was not restarted"), "{said}");
    ensure!(booted.property(UNIT, "MainPID")? == running, "the daemon was restarted: {said}");
    let left = booted.run("ls /run/systemd/system /run | grep -c config-check || true")?;
    ensure!(left.trim() == "0", "the check has left files: {left}");

    std::fs::write(&file, config)?;
    std::fs::write(&path, drop_in)?;
    booted.run("systemctl daemon-reload")?;
    Ok(())
}

/// If a daemon was enabled when its package was removed, it runs again after the package is installed again.
/// An upgrade does not start a daemon that an operator has stopped.
fn remove_and_install_again(root: &CleanRoot, booted: &BootedRoot, package: &Path) -> Result<()> {
    booted.run(&format!("systemctl stop {UNIT}"))?;
    booted.run(&root.install_command(package)?)?;
    ensure!(
        booted.property(UNIT, "ActiveState")? == "inactive",
        "the upgrade must not start the stopped daemon"
    );
    booted.run("dpkg --remove tailwater")?;
    ensure!(!root.path("/usr/bin/tailwater").exists());
    booted.run(&root.install_command(package)?)?;
    booted.until_property(UNIT, "ActiveState", |state| state == "active")?;
    Ok(())
}

/// Replaces the text of the configuration file. The file keeps its owner and mode.
fn edit(root: &CleanRoot, text: impl Fn(&str) -> String) -> Result<()> {
    std::fs::write(root.path(CONFIG), text(&root.read(CONFIG)?)).context(CONFIG)
}
