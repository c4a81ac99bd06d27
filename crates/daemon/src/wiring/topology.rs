//! The configuration as the manager takes it: who belongs to which cluster, and where each is.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use tailwater_apply::channel::{ChannelState, ChannelStatus};
use tailwater_capture::persisted_orders::PersistedOrders;
use tailwater_manager::FailoverReadiness;
use tailwater_manager::observation::Observation;
use tailwater_manager::probe::{ProbeTarget, probe_servers};
use tailwater_manager::topology::{
    ClusterPlan, ListenerPlan, Member, RelayPlan, RelayState, TargetPlan, TargetState,
};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use super::connect_options;
use super::serve::{identity_of, other_relay};
use crate::config::{Config, SourceConfig};
use crate::control::{Answer, Request, SourceReport, ask, socket_of};
use crate::error_chain::ErrorChain;
use crate::http::RelayStatus;
use crate::manager::relay_probes::ServerNames;
use crate::manager::requests::{ManagerAnswer, ManagerRequest};

/// A source's cluster, and whom to look at.
#[derive(Debug, Clone)]
pub struct ClusterWiring {
    /// What the configuration says.
    pub plan: ClusterPlan,
    /// The server that the log follows: the source's own, or the one that its capture was ordered to follow.
    pub primary: ProbeTarget,
    /// All others.
    pub followers: Vec<ProbeTarget>,
    /// The name of the source's own server: the source's, or that of the `[[server]]` with its address.
    pub own: String,
}

/// The cluster of each source, led by the server that its capture follows.
///
/// # Errors
/// If an option file with credentials, or what a capture was ordered, cannot be read; or if it follows a server that the
/// configuration does not name.
pub fn clusters(config: &Config) -> anyhow::Result<Vec<ClusterWiring>> {
    config.sources.iter().map(|source| cluster_led_by(config, source, None)).collect()
}

/// The cluster of one source, led by that server; by the one that its capture follows if none is given.
///
/// # Errors
/// As [`clusters`].
pub fn cluster_led_by(
    config: &Config,
    source: &SourceConfig,
    leader: Option<&str>,
) -> anyhow::Result<ClusterWiring> {
    cluster(config, source, leader).with_context(|| format!("the cluster of source {}", source.name))
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
        // The primary may be named among the servers, for its rule and region; it is looked at once, as the manager's account.
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
        lead(&mut plan, &mut primary, &mut followers, &leader)?;
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
    /// Whether the target of the channel of that name leads: what the log has of it must not be brought to it again.
    pub fn is_led_by_target(&self, channel: &str) -> bool {
        let target = self.plan.targets.iter().find(|target| target.channel == channel);
        target.is_some_and(|target| target.address == self.plan.primary.address)
    }

    /// The same cluster, led by the server of that name; as it is, if there is none or it leads already.
    pub fn led_by(&self, server: &str) -> Self {
        let mut led = self.clone();
        // Nothing has changed then.
        let _ = lead(&mut led.plan, &mut led.primary, &mut led.followers, server);
        led
    }
}

/// Puts the server that the capture follows by order into the place of the source's own, which becomes one of the others.
fn lead(
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
        bail!("its capture was ordered to follow {leader:?}, and there is no [[server]] of that name");
    };
    std::mem::swap(member, &mut plan.primary);
    std::mem::swap(subject, primary);
    Ok(())
}

/// Puts into the plans what the daemon of this configuration says; nothing if none answers.
pub fn ask_daemon(config: &Config, clusters: &mut [ClusterWiring]) {
    let socket = socket_of(&config.log.directory);
    // A daemon that is not there is a finding, and no error.
    let Ok(Answer::Topology(sources)) = ask(&socket, &Request::Topology) else { return };
    let channels = match ask(&socket, &Request::List) {
        Ok(Answer::Channels(channels)) => channels,
        _ => Vec::new(),
    };
    put_states(clusters, &sources, &channels);
}

/// Whether failovers would go through, by the source's name, as the manager in the daemon of this configuration says; nothing if none
/// is configured.
pub fn ask_readiness(config: &Config) -> BTreeMap<String, FailoverReadiness> {
    if config.manager.is_none() {
        return BTreeMap::new();
    }
    let asked = ask(&socket_of(&config.log.directory), &Request::Manager(ManagerRequest::Status));
    let unknown = |reason: String| {
        let of = |source: &SourceConfig| {
            (source.name.clone(), FailoverReadiness::Unknown { reason: reason.clone() })
        };
        config.sources.iter().map(of).collect()
    };
    match asked {
        Ok(Answer::Manager(ManagerAnswer::Clusters(clusters))) => {
            clusters.into_iter().map(|cluster| (cluster.source, cluster.readiness)).collect()
        }
        Ok(Answer::Failed { message, .. }) => unknown(format!("the daemon answered: {message}")),
        Ok(_) => unknown("the daemon gave an answer that is not about clusters".to_owned()),
        Err(error) => unknown(format!("{}", ErrorChain(&error))),
    }
}

/// Puts into the plans what a daemon says of its sources and channels.
pub fn put_states(clusters: &mut [ClusterWiring], sources: &[SourceReport], channels: &[ChannelStatus]) {
    for ClusterWiring { plan, .. } in clusters {
        let source = sources.iter().find(|source| source.source == plan.name);
        plan.relay.state = source.map(relay_state);
        for target in &mut plan.targets {
            let channel = channels.iter().find(|channel| channel.name == target.channel);
            target.state = channel.map(target_state);
        }
    }
}

/// What a relay on another machine says of itself, seen from a cluster of that primary. One that follows another server reads a
/// stream that is nothing to this one.
pub fn other_state(text: &RelayStatus, wiring: &ClusterWiring) -> RelayState {
    let acker = &text.acker;
    let follows = ServerNames::of(wiring).follows(text);
    let is_ours = follows == wiring.plan.primary.name;
    let is_streaming = text.is_streaming && is_ours;
    let flavour = if acker.is_mariadb == Some(true) { Flavour::MariaDb } else { Flavour::MySql };
    RelayState {
        is_streaming,
        doing: match (is_streaming, acker.stopped_since_ms) {
            (true, _) => "reading the source's stream".to_owned(),
            (false, Some(_)) => "stopped by order of the manager".to_owned(),
            (false, None) if text.is_streaming => format!("it follows {follows}"),
            (false, None) => {
                "it does not read the source's stream; its own `tailwater topology` says why".to_owned()
            }
        },
        heard_ago_ms: text.heard_ago_ms.filter(|_| is_ours),
        gtids: acker.holds.as_deref().and_then(|gtids| GtidSet::parse(flavour, gtids).ok()),
        // Its places say nothing here.
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

/// Looks at everybody of a cluster, the primary last; each look takes no longer than `timeout`.
pub async fn observe(cluster: &ClusterWiring, timeout: Duration) -> Vec<Observation> {
    let primary = std::slice::from_ref(&cluster.primary);
    let (mut all, primaries) = probe_servers(&cluster.followers, primary, timeout).await;
    all.extend(primaries);
    all
}
