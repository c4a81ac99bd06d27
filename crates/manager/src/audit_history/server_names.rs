//! Translates the names of servers in an audit record to the names in this manager's configuration. Two
//! managers may name the same server differently, or an operator may have renamed it since.

use crate::model::{Audit, NamedServer};

/// Returns the audit record with the names of `servers`, this manager's configuration.
///
/// A server is recognized by its `server_id`, which is unique in a cluster. If one of the sides does not know
/// it, the address decides. A server that the configuration does not have keeps its name, unless the
/// configuration uses this name for another server: then its address is added to the name, so that the two
/// are not confused.
pub fn with_configured_names(mut audit: Audit, servers: &[NamedServer]) -> Audit {
    let recorded = audit.servers.clone();
    audit.rename_servers(|name| {
        let Some(server) = recorded.iter().find(|server| server.name == name) else { return name.to_owned() };
        match servers.iter().find(|known| is_same(known, server)) {
            Some(known) => known.name.clone(),
            None if servers.iter().any(|other| other.name == name && is_other(other, server)) => {
                format!("{name} ({})", server.address)
            }
            None => name.to_owned(),
        }
    });
    audit
}

fn is_same(known: &NamedServer, recorded: &NamedServer) -> bool {
    match (known.server_id, recorded.server_id) {
        (Some(known), Some(recorded)) => known == recorded,
        _ => known.address == recorded.address,
    }
}

/// Whether these are certainly two servers.
fn is_other(known: &NamedServer, recorded: &NamedServer) -> bool {
    matches!((known.server_id, recorded.server_id), (Some(known), Some(recorded)) if known != recorded)
}
