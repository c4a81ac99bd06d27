//! The Debian package: installed, started, upgraded, removed and purged in a clean Debian system.

mod clean_debian_system;
mod install_upgrade_and_removal;
mod systemd_container;
mod systemd_unit;

use anyhow::{Result, ensure};
use tailwater_sandbox::replication_setup::{REPLICATION_PASSWORD, REPLICATION_USER};
use tailwater_sandbox::{ReservedPort, Server, ServerKind, ServerSpec};

use clean_debian_system::CleanRoot;

const CONFIG: &str = "/etc/tailwater/tailwater.toml";
const UNIT: &str = "tailwater.service";
/// Version of the package that the tests upgrade.
const EARLIER: &str = "0.0.1-1";

/// Edits the example configuration as its comments explain: removes the `#` before all settings, changes
/// addresses, and stores the passwords.
fn configure(root: &CleanRoot, source: &Server) -> Result<()> {
    let (serve, http) = (ReservedPort::pick()?, ReservedPort::pick()?);
    let is_setting = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
    let example = root.read(CONFIG)?;
    ensure!(example.lines().filter(is_setting).count() > 10, "the example has too few settings: {example}");
    let lines = example.lines().map(|line| if is_setting(&line) { &line[1..] } else { line });
    let config = lines.collect::<Vec<_>>().join("\n") + "\n";
    let config = config.replace("db1.internal", "127.0.0.1").replace("3306", &source.port().to_string());
    let config = config.replace("3307", &serve.number().to_string());
    let config = config.replace("8080", &http.number().to_string());
    let config = config.replace("user = \"tailwater\"", &format!("user = \"{REPLICATION_USER}\""));
    // The file is overwritten in place, so its owner and mode do not change.
    std::fs::write(root.path(CONFIG), config)?;
    let secret = |name: &str, text: String| {
        std::fs::write(root.path(name), text)?;
        root.run(&format!("chown root:tailwater {name} && chmod 0640 {name}"))
    };
    secret("/etc/tailwater/orders.cnf", format!("[client]\npassword = \"{REPLICATION_PASSWORD}\"\n"))?;
    secret("/etc/tailwater/repl.password", "another password\n".to_owned())?;
    let checked = root.run(&format!("runuser -u tailwater -- tailwater config check -c {CONFIG}"))?;
    ensure!(
        checked.contains("good") && !checked.contains("not compared"),
        "the configuration is refused, or the source was not queried: {checked}"
    );
    Ok(())
}

/// Starts a source whose commits wait for an ACK.
async fn source() -> Result<Server> {
    let options = ["--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--sync-binlog=0"];
    let spec = ServerSpec::new(ServerKind::Mariadb1011).name("source").options(options).semi_sync_source();
    let server = Server::start(spec).await?;
    server.create_replication_user().await?;
    Ok(server)
}
