//! Tries a configuration against its servers and this machine. Changes nothing on servers; the only file that
//! it writes is a temporary one in the folder of the log.
//!
//! - `server_roles`: which servers the configuration names, and what each is used for.
//! - `server_facts`: reads from a server what the rules need.
//! - `server_rules`: judges a server. `server_id_rules`: finds equal `server_id`s.
//! - `host_facts` and `host_rules`: the same for this machine.

mod check_line;
mod host_facts;
mod host_rules;
mod server_facts;
mod server_id_rules;
mod server_roles;
mod server_rules;

use tailwater_config::Config;
use tailwater_daemon::options_from_config::ResolvedConfig;

pub use check_line::{CheckLevel, CheckLine, ConnectionReport};

/// Checks the servers of a configuration and this machine.
///
/// # Errors
/// The errors with which the daemon would refuse the configuration. What is wrong with a server is a line of
/// the report.
pub async fn check(config: &Config) -> anyhow::Result<ConnectionReport> {
    let resolved = ResolvedConfig::of(config)?;
    let servers = server_roles::servers_of(config, &resolved)?;
    let is_daemon_running = host_facts::is_daemon_running(config).await;
    let host = host_rules::judge(&host_facts::read(config, is_daemon_running).await);
    let facts = futures_util::future::join_all(servers.iter().map(server_facts::read)).await;
    let of_servers =
        servers.iter().zip(&facts).flat_map(|(server, facts)| server_rules::judge(server, facts));
    let mut lines: Vec<CheckLine> = of_servers.collect();
    lines.extend(server_id_rules::judge(&server_id_rules::uses(config, &servers, &facts), is_daemon_running));
    lines.extend(host);
    Ok(ConnectionReport::of(lines))
}
