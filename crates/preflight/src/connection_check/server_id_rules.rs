//! Finds equal `server_id`s: two replicas with one `server_id` disconnect each other.

use std::collections::BTreeMap;

use tailwater_config::Config;

use super::check_report::{CheckLine, CheckLines};
use super::server_facts::ServerAnswer;
use super::server_roles::UsedServer;

/// A `server_id` in the cluster of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerIdUse {
    pub(super) source: String,
    pub(super) server_id: u32,
    pub(super) user: ServerIdUser,
}

/// Who uses a `server_id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerIdUser {
    /// The capture of the source.
    Capture,
    /// A server. Two sections of the configuration may name the same server, which then has the same
    /// identity.
    Server { object: String, identity: String },
    /// A replica that is registered with the source. The running daemon is registered, too.
    Registered { host: String },
}

/// The `server_id`s in all clusters.
pub(super) fn uses(config: &Config, servers: &[UsedServer], answers: &[ServerAnswer]) -> Vec<ServerIdUse> {
    let mut uses = Vec::new();
    for source in &config.sources {
        let mut add = |server_id: u32, user: ServerIdUser| {
            uses.push(ServerIdUse { source: source.name.clone(), server_id, user });
        };
        add(source.server_id, ServerIdUser::Capture);
        for (server, answer) in servers.iter().zip(answers) {
            let Some(state) = answer.as_ref().ok().and_then(|facts| facts.state.as_ref().ok()) else {
                continue;
            };
            if server.source != source.name || !server.role.is_captured() {
                continue;
            }
            let identity = state.uuid.clone().unwrap_or_else(|| format!("{}:{}", state.hostname, state.port));
            add(state.server_id, ServerIdUser::Server { object: server.object.clone(), identity });
            for replica in state.replicas.iter().filter(|_| server.object.starts_with("source ")) {
                let host = if replica.host.is_empty() { "an unnamed host" } else { replica.host.as_str() };
                add(replica.server_id, ServerIdUser::Registered { host: host.to_owned() });
            }
        }
    }
    uses
}

/// Returns the result lines about the `server_id`s of each cluster.
pub(super) fn judge(uses: &[ServerIdUse], is_daemon_running: bool) -> Vec<CheckLine> {
    let mut by_source: BTreeMap<&str, Vec<&ServerIdUse>> = BTreeMap::new();
    for one in uses {
        by_source.entry(&one.source).or_default().push(one);
    }
    by_source.iter().flat_map(|(source, uses)| judge_cluster(source, uses, is_daemon_running)).collect()
}

fn judge_cluster(source: &str, uses: &[&ServerIdUse], is_daemon_running: bool) -> Vec<CheckLine> {
    let mut lines = CheckLines::about(format!("source {source}"));
    let capture = uses.iter().find(|one| one.user == ServerIdUser::Capture).map(|one| one.server_id);
    let mut servers: BTreeMap<u32, Vec<(&str, &str)>> = BTreeMap::new();
    for one in uses {
        match &one.user {
            ServerIdUser::Server { object, identity } => {
                servers.entry(one.server_id).or_default().push((object, identity));
            }
            ServerIdUser::Registered { host } if Some(one.server_id) == capture && !is_daemon_running => {
                lines.problem(
                    "server_id",
                    format!(
                        "{}: a replica with this server_id, on {host}, is already registered with the source",
                        one.server_id
                    ),
                    "configure a server_id that no replica has; or stop the other daemon that uses this one",
                );
            }
            _ => {}
        }
    }
    for (id, used_by) in &servers {
        let names = || used_by.iter().map(|(object, _)| *object).collect::<Vec<_>>().join(", ");
        if Some(*id) == capture {
            let remedy = "configure for the capture a server_id that no server of the cluster has";
            lines.problem("server_id", format!("{id}: the capture has the server_id of {}", names()), remedy);
        }
        let mut identities: Vec<_> = used_by.iter().map(|(_, identity)| *identity).collect();
        identities.sort_unstable();
        identities.dedup();
        if identities.len() > 1 {
            let remedy = "give each server another server_id";
            lines.problem("server_id", format!("{id} is the server_id of {}", names()), remedy);
        }
    }
    if lines.lines.is_empty() && uses.len() > 1 {
        lines.ok("server_id", "no two servers have the same server_id");
    }
    lines.lines
}

#[cfg(test)]
mod tests {
    use super::super::check_report::CheckLevel;
    use super::*;

    fn levels(users: &[(u32, ServerIdUser)], is_daemon_running: bool) -> Vec<CheckLevel> {
        let uses = users.iter().map(|(server_id, user)| ServerIdUse {
            source: "orders".into(),
            server_id: *server_id,
            user: user.clone(),
        });
        judge(&uses.collect::<Vec<_>>(), is_daemon_running).iter().map(|line| line.level).collect()
    }

    fn server(object: &str, identity: &str) -> ServerIdUser {
        ServerIdUser::Server { object: object.into(), identity: identity.into() }
    }

    #[test]
    fn equal_ids_are_problems() {
        let registered = ServerIdUser::Registered { host: "db9".into() };
        let capture = (4201, ServerIdUser::Capture);
        let ok = [CheckLevel::Ok];
        let problem = [CheckLevel::Problem];
        assert_eq!(levels(&[capture.clone(), (1, server("source orders", "a"))], false), ok);
        assert_eq!(levels(&[capture.clone(), (4201, server("source orders", "a"))], false), problem);
        // One server may have two sections.
        let two = [capture.clone(), (1, server("source orders", "a")), (1, server("server db1", "a"))];
        assert_eq!(levels(&two, false), ok);
        let two = [capture.clone(), (1, server("source orders", "a")), (1, server("server db2", "b"))];
        assert_eq!(levels(&two, false), problem);
        // The running daemon itself is registered with the source.
        assert_eq!(levels(&[capture.clone(), (4201, registered.clone())], false), problem);
        assert_eq!(levels(&[capture.clone(), (4201, registered.clone())], true), ok);
        let all = [capture, (4201, registered), (1, server("source orders", "a"))];
        assert_eq!(levels(&all, true), ok);
        assert_eq!(levels(&all, false), problem);
    }
}
