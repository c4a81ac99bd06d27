//! The servers of a configuration, and what each is used for.

use anyhow::Context;
use tailwater_apply::channel::GtidMode;
use tailwater_config::Config;
use tailwater_daemon::options_from_config::{ResolvedConfig, connect_options};
use tailwater_session::{AccountPurpose, ConnectOptions};

/// A server, as one section of the configuration uses it.
#[derive(Debug)]
pub(super) struct UsedServer {
    /// The section: `source orders`.
    pub(super) object: String,
    /// The name of the source to whose cluster the server belongs. For the target of a channel: the name of
    /// the source whose transactions the channel applies.
    pub(super) source: String,
    /// The address and the account.
    pub(super) connect: ConnectOptions,
    /// What the account is used for.
    pub(super) purposes: Vec<AccountPurpose>,
    /// The role of the server.
    pub(super) role: ServerRole,
}

/// The role of a server for the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerRole {
    /// The server's binlog is captured.
    Source {
        /// Whether commits of the source must wait for the log.
        semi_sync: bool,
    },
    /// The server's binlog may be captured after a failover.
    Member {
        /// Whether commits must wait for the log while this server is the primary.
        semi_sync: bool,
    },
    /// Channels write to the server.
    Target,
}

impl ServerRole {
    /// Whether the server's binlog is captured, or may be.
    pub(super) fn is_captured(self) -> bool {
        !matches!(self, Self::Target)
    }
}

/// The servers in the order of the configuration.
pub(super) fn servers_of(config: &Config, resolved: &ResolvedConfig) -> anyhow::Result<Vec<UsedServer>> {
    let is_managed = config.manager.is_some();
    let mut servers = Vec::new();
    for (source, capture) in config.sources.iter().zip(&resolved.captures) {
        let members: Vec<_> = config.servers.iter().filter(|server| server.source == source.name).collect();
        let mut own_is_member = false;
        let mut of_members = Vec::new();
        for member in members {
            let connect = connect_options(member.server());
            let connect = connect.with_context(|| format!("server {}", member.name))?;
            own_is_member |= connect.endpoint == capture.connect.endpoint;
            let mut purposes = vec![AccountPurpose::Capture, AccountPurpose::Probe];
            purposes.extend(is_managed.then_some(AccountPurpose::Failover));
            of_members.push(UsedServer {
                object: format!("server {}", member.name),
                source: source.name.clone(),
                connect,
                purposes,
                role: ServerRole::Member { semi_sync: source.semi_sync },
            });
        }
        let mut purposes = vec![AccountPurpose::Capture];
        // The manager uses the account of a [[server]] section if one describes the source's own server.
        // Otherwise it uses the source's account, which then needs more privileges.
        if is_managed && !own_is_member {
            purposes.extend([AccountPurpose::Probe, AccountPurpose::Failover]);
        }
        servers.push(UsedServer {
            object: format!("source {}", source.name),
            source: source.name.clone(),
            connect: capture.connect.clone(),
            purposes,
            role: ServerRole::Source { semi_sync: source.semi_sync },
        });
        servers.append(&mut of_members);
    }
    for (source, channel, _) in &resolved.channels {
        let mut purposes = vec![AccountPurpose::Apply];
        if matches!(channel.gtid, GtidMode::Log | GtidMode::Preserve) {
            purposes.push(AccountPurpose::Publish);
        }
        servers.push(UsedServer {
            object: format!("channel {}", channel.name),
            source: source.clone(),
            connect: channel.target.clone(),
            purposes,
            role: ServerRole::Target,
        });
    }
    Ok(servers)
}
