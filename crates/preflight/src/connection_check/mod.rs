//! Checks that the servers and this machine fit a configuration. The check changes nothing on servers. The
//! only file that it writes is a temporary file in the folder of the log.
//!
//! - `server_roles`: which servers the configuration names, and what each is used for.
//! - `server_facts` reads facts about a server, and `server_rules` derives the result lines from them.
//! - `server_id_rules`: finds `server_id`s that two servers share.
//! - `host_facts` and `host_rules`: the facts about this machine, and the result lines from them.

mod check_report;
mod host_facts;
mod host_rules;
mod server_facts;
mod server_id_rules;
mod server_roles;
mod server_rules;

use tailwater_config::Config;
use tailwater_daemon::options_from_config::ResolvedConfig;

pub use check_report::{CheckLevel, CheckLine, ConnectionReport};

/// Checks the servers of a configuration and this machine.
///
/// # Errors
/// If the daemon would reject the configuration, its error. Problems of servers are lines of the report.
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
