//! Identifies servers that appear in a replication status or a list of replicas.

use crate::cluster_config::RelayPlan;
use crate::server_state::{ConnectedReplica, ReplicaChannel, ServerState};

/// What identifies a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServerIdentity {
    pub uuids: Vec<String>,
    pub server_ids: Vec<u32>,
    /// The server's hosts in normalized spelling, with their ports.
    pub addresses: Vec<(String, u16)>,
}

impl ServerIdentity {
    /// Returns the identity of the server at `address`. `look` is the observed state of the server, if there
    /// is one.
    pub(super) fn of_server(address: &str, look: Option<&ServerState>) -> Self {
        let mut addresses: Vec<_> = split(address).into_iter().collect();
        if let Some(look) = look {
            let is_local = addresses.first().is_none_or(|(host, _)| host == LOCAL);
            let own_names = [Some(look.hostname.as_str()), look.report_host.as_deref()];
            addresses.extend(own_names.into_iter().flatten().map(|host| (one_spelling(host), look.port)));
            if is_local {
                addresses.push((LOCAL.to_owned(), look.port));
            }
        }
        Self {
            uuids: look.and_then(|look| look.uuid.clone()).into_iter().collect(),
            server_ids: look.map(|look| look.server_id).into_iter().collect(),
            addresses,
        }
    }

    /// Returns the identity of a relay, as its replicas see it.
    pub(super) fn of_relay(relay: &RelayPlan) -> Self {
        Self {
            uuids: relay.listeners.iter().map(|listen| listen.uuid.clone()).collect(),
            server_ids: relay
                .listeners
                .iter()
                .map(|listen| listen.server_id)
                .chain([relay.server_id])
                .collect(),
            addresses: relay.listeners.iter().filter_map(|listen| split(&listen.address)).collect(),
        }
    }
}

/// Finds the server that is the source of a channel: by its UUID, else by its address, else by its
/// `server_id`. An address may be an alias, and a `server_id` may belong to a server of another cluster.
pub(super) fn source_of(channel: &ReplicaChannel, known: &[ServerIdentity]) -> Option<usize> {
    let by_uuid = channel.source_uuid.as_ref().and_then(|uuid| {
        known.iter().position(|identity| identity.uuids.iter().any(|known| known.eq_ignore_ascii_case(uuid)))
    });
    let address = (one_spelling(&channel.source_host), channel.source_port);
    let by_address = || {
        known.iter().position(|identity| {
            identity.addresses.iter().any(|known| {
                // A relay that listens on all addresses also listens on the local address.
                *known == address || (known.0 == ANYWHERE && known.1 == address.1 && address.0 == LOCAL)
            })
        })
    };
    let by_server_id = || {
        let id = channel.source_server_id;
        // A known source UUID shows that the replica has reached its source. If no known server has this
        // UUID, the source belongs to another cluster.
        let may = id != 0 && channel.source_uuid.is_none();
        known.iter().position(|identity| may && identity.server_ids.contains(&id))
    };
    by_uuid.or_else(by_address).or_else(by_server_id)
}

/// Whether an entry in a list of replicas is this server.
pub(super) fn is_listed_as(identity: &ServerIdentity, server_id: u32, uuid: Option<&str>) -> bool {
    match uuid.filter(|uuid| !uuid.is_empty()) {
        Some(uuid) if !identity.uuids.is_empty() => {
            identity.uuids.iter().any(|known| known.eq_ignore_ascii_case(uuid))
        }
        _ => identity.server_ids.contains(&server_id),
    }
}

/// Returns the address of a replica that is not configured.
pub(super) fn address_of(replica: &ConnectedReplica) -> String {
    match (replica.host.as_str(), replica.port) {
        ("", _) => String::new(),
        (host, 0) => host.to_owned(),
        (host, port) => format!("{host}:{port}"),
    }
}

const LOCAL: &str = "127.0.0.1";
const ANYWHERE: &str = "0.0.0.0";

/// Splits `host:port` or `[address]:port`; returns `None` for a socket path.
fn split(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((one_spelling(host), port.parse().ok()?))
}

fn one_spelling(host: &str) -> String {
    match host.to_ascii_lowercase().trim_end_matches('.') {
        "localhost" | "::1" | LOCAL => LOCAL.to_owned(),
        "::" => ANYWHERE.to_owned(),
        host => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_in_one_spelling() {
        let check = |text, host: &str, port| assert_eq!(split(text), Some((host.to_owned(), port)), "{text}");
        check("localhost:3306", LOCAL, 3306);
        check("[::1]:3306", LOCAL, 3306);
        check("DB1.internal.:3307", "db1.internal", 3307);
        check("[2001:db8::1]:3306", "2001:db8::1", 3306);
        assert_eq!(split("/run/mysqld/mysqld.sock"), None);
    }

    #[test]
    fn a_listed_replica_is_identified_by_uuid_if_both_sides_have_one() {
        let identity =
            ServerIdentity { uuids: vec!["aa".into()], server_ids: vec![7], addresses: Vec::new() };
        assert!(is_listed_as(&identity, 9, Some("AA")));
        assert!(!is_listed_as(&identity, 7, Some("bb")), "another server with a copied server_id");
        assert!(is_listed_as(&identity, 7, None));
        assert!(is_listed_as(&ServerIdentity { uuids: Vec::new(), ..identity }, 7, Some("bb")));
    }
}
