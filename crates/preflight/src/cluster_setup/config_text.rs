//! The configuration that `tailwater init` writes.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use tailwater_session::{Endpoint, TlsMode};
use toml::Value;

use super::cluster_discovery::{DiscoveredCluster, DiscoveredServer, name_of};
use super::setup_plan::SetupWishes;

/// The settings of the configuration that are not in [`SetupWishes`].
pub(super) struct ChosenSettings<'a> {
    pub(super) server_id: u32,
    /// The option file with the account's password, relative to the folder of the configuration.
    pub(super) option_file: &'a str,
    /// The file with the password of the replicas' account, relative to the folder of the configuration.
    pub(super) replica_password_file: &'a str,
}

/// Returns the text of the configuration. The text depends only on the arguments.
pub(super) fn config_text(
    cluster: &DiscoveredCluster,
    wishes: &SetupWishes,
    chosen: &ChosenSettings<'_>,
) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_all(&mut text, cluster, wishes, chosen);
    text
}

fn write_all(
    text: &mut String,
    cluster: &DiscoveredCluster,
    wishes: &SetupWishes,
    chosen: &ChosenSettings<'_>,
) -> std::fmt::Result {
    let state = &cluster.primary.state;
    let name = quoted(&wishes.source_name);
    writeln!(text, "# Tailwater, written by `tailwater init`.")?;
    writeln!(text, "# Every key with its meaning and default: tailwater config default")?;
    writeln!(
        text,
        "# After a change: tailwater config check --connect -c FILE, then reload or restart the daemon.\n"
    )?;
    writeln!(text, "# The folder of the log, a copy of the primary's binlog.")?;
    writeln!(text, "[log]\ndirectory = {}", quoted_path(&wishes.log_directory))?;
    writeln!(
        text,
        "# The log's complete segments (files) are removed after this time, if nothing needs them."
    )?;
    writeln!(text, "#retention_hours_max = 168\n")?;
    writeln!(text, "# The primary: {} {}.", name_of(state.flavour), state.version)?;
    writeln!(text, "[[source]]\nname = {name}")?;
    address(text, &cluster.primary.endpoint)?;
    login(text, wishes, chosen)?;
    writeln!(text, "# Unique among all servers and replicas of the cluster.")?;
    writeln!(text, "server_id = {}", chosen.server_id)?;
    let meaning = match wishes.semi_sync {
        true => "A commit of the primary waits until it is in the log (semi-sync).",
        false => {
            "Commits do not wait for the log. If the primary is lost, its last commits may be lost, too."
        }
    };
    writeln!(text, "# {meaning}\nsemi_sync = {}", wishes.semi_sync)?;
    if let Some(listen) = wishes.serve {
        writeln!(text, "\n# Replicas and mysqlbinlog read the log here, as if it were the primary.")?;
        writeln!(text, "[[serve]]\nsource = {name}\nlisten = \"{listen}\"")?;
        writeln!(text, "[[serve.user]]\nname = \"repl\"")?;
        writeln!(text, "password_file = {}", quoted(chosen.replica_password_file))?;
    }
    for (server, server_name) in cluster.replicas.iter().zip(names(cluster, wishes)) {
        writeln!(text, "\n# A replica: {} {}.", name_of(server.state.flavour), server.state.version)?;
        writeln!(text, "[[server]]\nname = {}\nsource = {name}", quoted(&server_name))?;
        address(text, &server.endpoint)?;
        login(text, wishes, chosen)?;
    }
    if wishes.manager {
        writeln!(text, "\n# Watches the cluster: status, topology, switchover, failover.")?;
        writeln!(text, "[manager]")?;
        writeln!(
            text,
            "# With true, the manager replaces a dead primary without an operator (how-to/failover-runbook.md)."
        )?;
        writeln!(text, "automatic = false")?;
    }
    Ok(())
}

fn address(text: &mut String, endpoint: &Endpoint) -> std::fmt::Result {
    match endpoint {
        Endpoint::Tcp { host, port } => writeln!(text, "host = {}\nport = {port}", quoted(host)),
        Endpoint::Unix { path } => writeln!(text, "socket = {}", quoted_path(path)),
    }
}

fn login(text: &mut String, wishes: &SetupWishes, chosen: &ChosenSettings<'_>) -> std::fmt::Result {
    writeln!(text, "user = {}", quoted(&wishes.account.0))?;
    writeln!(text, "defaults_file = {}", quoted(chosen.option_file))?;
    let mode = match wishes.tls.mode {
        // The default.
        TlsMode::Preferred => return Ok(()),
        TlsMode::Off => "off",
        TlsMode::Required => "required",
        TlsMode::VerifyCa => "verify-ca",
        TlsMode::VerifyFull => "verify-full",
    };
    writeln!(text, "tls = \"{mode}\"")?;
    match &wishes.tls.ca {
        Some(ca) => writeln!(text, "tls_ca = {}", quoted_path(ca)),
        None => Ok(()),
    }
}

/// Returns the names of the replicas: their host names, followed by the port if two servers have the same
/// host name.
fn names(cluster: &DiscoveredCluster, wishes: &SetupWishes) -> Vec<String> {
    let legal =
        |letter: char| if letter.is_ascii_alphanumeric() || "_-.".contains(letter) { letter } else { '-' };
    let host = |server: &DiscoveredServer| {
        let name: String = server.state.hostname.chars().take(50).map(legal).collect();
        if name.is_empty() { "replica".to_owned() } else { name }
    };
    let hosts: Vec<String> = cluster.replicas.iter().map(host).collect();
    let mut taken = BTreeSet::from([wishes.source_name.clone(), "tailwater".to_owned()]);
    let mut names = Vec::new();
    for (server, host) in cluster.replicas.iter().zip(&hosts) {
        let is_shared = hosts.iter().filter(|other| *other == host).count() > 1 || taken.contains(host);
        let mut name = if is_shared { format!("{host}-{}", server.state.port) } else { host.clone() };
        while !taken.insert(name.clone()) {
            name.push_str("-2");
        }
        names.push(name);
    }
    names
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}
