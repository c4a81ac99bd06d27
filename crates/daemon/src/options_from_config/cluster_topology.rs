//! The clusters of the configuration: their servers and relays, with addresses and credentials.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use tailwater_apply::channel::{ChannelState, ChannelStatus};
use tailwater_capture::persisted_manager_orders::PersistedOrders;
use tailwater_manager::FailoverReadiness;
use tailwater_topology::failure_analysis::ClusterFinding;
use tailwater_topology::failure_analysis::single_observation_analysis::analyse_snapshot;
use tailwater_topology::server_probe::{ProbeTarget, probe_servers};
use tailwater_topology::server_state::Observation;
use tailwater_topology::{
    ClusterPlan, ListenerPlan, Member, RelayPlan, RelayState, TargetPlan, TargetState, build_tree,
};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use super::binlog_server_options::{identity_of, other_relay};
use super::connect_options;
use crate::api::capture_orders::RelayStatus;
use crate::api::captures::SourceReport;
use crate::api::clusters::ClusterView;
use crate::api::daemon_requests::{ControlAnswer, ControlCommand};
use crate::api::manager_requests::{ManagerAnswer, ManagerRequest};
use crate::control_socket::{ask, socket_of};
use crate::error_chain::ErrorChain;
use crate::manager::relay_probes::ServerNames;
use tailwater_config::{Config, SourceConfig};

/// The cluster of a source, with the servers to probe.
#[derive(Debug, Clone)]
pub struct ClusterWiring {
    /// The cluster as the configuration describes it.
    pub plan: ClusterPlan,
    /// The server that the log follows: the source's own server, or the server that its capture was ordered
    /// to follow.
    pub primary: ProbeTarget,
    /// All other servers.
    pub followers: Vec<ProbeTarget>,
    /// The name of the source's own server: the name of the `[[server]]` with the same address, or else the
    /// name of the source.
    pub own: String,
}

/// Returns the cluster of each source. The primary is the server that the source's capture follows.
///
/// # Errors
/// If an option file with credentials, or the file with a capture's orders, cannot be read; or if the
/// configuration has no server with the name that a capture follows.
pub fn clusters(config: &Config) -> anyhow::Result<Vec<ClusterWiring>> {
    config.sources.iter().map(|source| cluster_led_by(config, source, None)).collect()
}

/// Returns the cluster of one source with the given server as primary. If none is given, the primary is the
/// server that the capture follows.
///
/// # Errors
/// The errors of [`clusters`].
pub fn cluster_led_by(
    config: &Config,
    source: &SourceConfig,
    leader: Option<&str>,
) -> anyhow::Result<ClusterWiring> {
    cluster(config, source, leader)
        .with_context(|| format!("cannot determine the cluster of source {}", source.name))
}

fn cluster(config: &Config, source: &SourceConfig, leader: Option<&str>) -> anyhow::Result<ClusterWiring> {
    let name = &source.name;
    let mut primary = ProbeTarget { name: name.clone(), connect: connect_options(source.server())? };
    let mut plan = ClusterPlan {
        name: name.clone(),
        primary: Member {
            name: name.clone(),
            address: primary.connect.endpoint.to_string(),
            ..Member::default()
        },
        relay: RelayPlan { server_id: source.server_id, semi_sync: source.semi_sync, ..RelayPlan::default() },
        ..ClusterPlan::default()
    };
    for serve in config.serves.iter().filter(|serve| serve.source == *name) {
        let (server_id, uuid) = identity_of(source, serve)?;
        plan.relay.listeners.push(ListenerPlan { address: serve.listen.to_string(), server_id, uuid });
    }
    for relay in config.relays.iter().filter(|relay| relay.source == *name) {
        plan.others.push(other_relay(relay).with_context(|| format!("relay {}", relay.name))?);
    }
    let mut followers = Vec::new();
    for server in config.servers.iter().filter(|server| server.source == *name) {
        let connect = connect_options(server.server()).with_context(|| format!("server {}", server.name))?;
        let member = Member {
            name: server.name.clone(),
            address: connect.endpoint.to_string(),
            promotion: server.promotion,
            region: server.region.clone(),
        };
        // The primary may also have a [[server]] section, which gives its promotion rule and region. The
        // server is probed only once, with the account of that section.
        if connect.endpoint == primary.connect.endpoint {
            primary = ProbeTarget { name: server.name.clone(), connect };
            plan.primary = member;
        } else {
            plan.servers.push(member);
            followers.push(ProbeTarget { name: server.name.clone(), connect });
        }
    }
    let own = primary.name.clone();
    let followed = match leader {
        Some(leader) => Some(leader.to_owned()).filter(|leader| leader != name),
        None => PersistedOrders::read(&config.log.directory.join(name))?.follows,
    };
    if let Some(leader) = followed {
        set_primary(&mut plan, &mut primary, &mut followers, &leader)?;
    }
    for channel in config.channels.iter().filter(|channel| channel.source == *name) {
        let connect =
            connect_options(channel.server()).with_context(|| format!("channel {}", channel.name))?;
        let address = connect.endpoint.to_string();
        let is_named = plan.servers.iter().any(|server| server.address == address);
        plan.targets.push(TargetPlan { channel: channel.name.clone(), address, state: None });
        if !is_named {
            followers.push(ProbeTarget { name: format!("channel {}", channel.name), connect });
        }
    }
    Ok(ClusterWiring { plan, primary, followers, own })
}

impl ClusterWiring {
    /// Whether the target of a channel is the primary. The log then contains the target's own transactions,
    /// which must not be applied to it again.
    pub fn is_target_primary(&self, channel: &str) -> bool {
        let target = self.plan.targets.iter().find(|target| target.channel == channel);
        target.is_some_and(|target| target.address == self.plan.primary.address)
    }

    /// Returns the same cluster with another server as primary. If the cluster has no server of that name,
    /// its primary stays.
    pub fn with_primary(&self, server: &str) -> Self {
        let mut changed = self.clone();
        // The call fails only for an unknown name, and then it changes nothing.
        let _ = set_primary(&mut changed.plan, &mut changed.primary, &mut changed.followers, server);
        changed
    }
}

/// Makes the server `leader` the primary, because the capture was ordered to follow it. The previous primary
/// becomes a follower.
fn set_primary(
    plan: &mut ClusterPlan,
    primary: &mut ProbeTarget,
    followers: &mut [ProbeTarget],
    leader: &str,
) -> anyhow::Result<()> {
    if plan.primary.name == leader {
        return Ok(());
    }
    let member = plan.servers.iter_mut().find(|server| server.name == leader);
    let subject = followers.iter_mut().find(|follower| follower.name == leader);
    let (Some(member), Some(subject)) = (member, subject) else {
        bail!("the capture was ordered to follow {leader:?}, and there is no [[server]] of that name");
    };
    std::mem::swap(member, &mut plan.primary);
    std::mem::swap(subject, primary);
    Ok(())
}

impl ClusterView {
    /// Returns the topology tree that follows from one observation of each server.
    pub fn of(wired: &ClusterWiring, seen: &[Observation], readiness: Option<FailoverReadiness>) -> Self {
        let cluster = build_tree(&wired.plan, seen);
        let mut findings = analyse_snapshot(&wired.plan, &cluster, seen);
        let primary = &wired.plan.primary.name;
        // Like the manager, report readiness only with semi-sync. Without semi-sync, commits are not
        // guaranteed to survive a failover, so a possible loss is not a finding.
        let promised = readiness.as_ref().filter(|_| wired.plan.relay.semi_sync);
        findings.extend(promised.and_then(|readiness| ClusterFinding::not_ready(primary, readiness, 0)));
        findings.sort_by_key(|finding| finding.code);
        Self { cluster, findings, readiness }
    }
}

/// Asks the daemon of this configuration for the states of captures and channels, and sets them in the wiring
/// of the clusters.
pub fn ask_daemon(config: &Config, clusters: &mut [ClusterWiring]) {
    let socket = socket_of(&config.log.directory);
    // A daemon that does not run becomes a finding, not an error.
    let Ok(ControlAnswer::Topology(sources)) = ask(&socket, &ControlCommand::Topology) else { return };
    let channels = match ask(&socket, &ControlCommand::List) {
        Ok(ControlAnswer::Channels(channels)) => channels,
        _ => Vec::new(),
    };
    set_states(clusters, &sources, &channels);
}

/// Asks the daemon of this configuration whether a failover would succeed in each cluster. Returns the
/// manager's answers by the name of the source; empty if the daemon has no manager.
pub fn ask_readiness(config: &Config) -> BTreeMap<String, FailoverReadiness> {
    if config.manager.is_none() {
        return BTreeMap::new();
    }
    let asked = ask(&socket_of(&config.log.directory), &ControlCommand::Manager(ManagerRequest::Status));
    let unknown = |reason: String| {
        let of = |source: &SourceConfig| {
            (source.name.clone(), FailoverReadiness::Unknown { reason: reason.clone() })
        };
        config.sources.iter().map(of).collect()
    };
    match asked {
        Ok(ControlAnswer::Manager(ManagerAnswer::Clusters(clusters))) => {
            clusters.into_iter().map(|cluster| (cluster.source, cluster.readiness)).collect()
        }
        Ok(ControlAnswer::Failed { message, .. }) => unknown(format!("the daemon answered: {message}")),
        Ok(_) => unknown("the daemon gave an answer that is not about clusters".to_owned()),
        Err(error) => unknown(format!("{}", ErrorChain(&error))),
    }
}

/// Sets the states of captures and channels in the description of their clusters.
pub fn set_states(clusters: &mut [ClusterWiring], sources: &[SourceReport], channels: &[ChannelStatus]) {
    for ClusterWiring { plan, .. } in clusters {
        let source = sources.iter().find(|source| source.source == plan.name);
        plan.relay.state = source.map(relay_state);
        for target in &mut plan.targets {
            let channel = channels.iter().find(|channel| channel.name == target.channel);
            target.state = channel.map(target_state);
        }
    }
}

/// Returns the state of a relay on another machine, for the cluster with its present primary. A relay that
/// follows another server does not stream from this primary.
pub fn remote_relay_state(status: &RelayStatus, wiring: &ClusterWiring) -> RelayState {
    let acker = &status.acker;
    let follows = ServerNames::of(wiring).follows(status);
    let is_ours = follows == wiring.plan.primary.name;
    let is_streaming = status.is_streaming && is_ours;
    let flavour = if acker.is_mariadb == Some(true) { Flavour::MariaDb } else { Flavour::MySql };
    RelayState {
        is_streaming,
        doing: match (is_streaming, acker.stopped_since_ms) {
            (true, _) => "reading the source's stream".to_owned(),
            (false, Some(_)) => "stopped by order of the manager".to_owned(),
            (false, None) if status.is_streaming => format!("the relay follows {follows}"),
            (false, None) => {
                "the relay is not reading the source's stream; `tailwater topology` on the relay's machine shows the reason"
                    .to_owned()
            }
        },
        heard_ago_ms: status.heard_ago_ms.filter(|_| is_ours),
        gtids: acker.holds.as_deref().and_then(|gtids| GtidSet::parse(flavour, gtids).ok()),
        // This field is empty, because positions in the relay's log are not comparable with positions in this
        // daemon's log.
        durable: String::new(),
        alarms: Vec::new(),
        readers: Vec::new(),
    }
}

fn relay_state(report: &SourceReport) -> RelayState {
    let flavour = match report.is_mariadb {
        Some(true) => Flavour::MariaDb,
        _ => Flavour::MySql,
    };
    RelayState {
        is_streaming: report.is_streaming,
        doing: report.doing.clone(),
        heard_ago_ms: report.heard_ago_ms,
        gtids: report.gtids.as_deref().and_then(|gtids| GtidSet::parse(flavour, gtids).ok()),
        durable: report.durable.clone(),
        alarms: report.alarms.clone(),
        readers: report.readers.clone(),
    }
}

fn target_state(channel: &ChannelStatus) -> TargetState {
    TargetState {
        doing: match channel.state {
            ChannelState::Connecting => "connecting",
            ChannelState::Running => "running",
            ChannelState::Stopped => "stopped",
            ChannelState::Failed => "failed",
        }
        .to_owned(),
        is_running: matches!(channel.state, ChannelState::Running),
        lag_seconds: channel.lag_seconds,
        stopped_because: channel.stop_reason.clone(),
        fault: channel.fault.as_ref().map(|fault| format!("{}: {}", fault.code, fault.message)),
    }
}

/// Probes all servers of a cluster, the primary last. Each probe takes at most `timeout`.
pub async fn observe(cluster: &ClusterWiring, timeout: Duration) -> Vec<Observation> {
    let primary = std::slice::from_ref(&cluster.primary);
    let (mut all, primaries) = probe_servers(&cluster.followers, primary, timeout).await;
    all.extend(primaries);
    all
}
