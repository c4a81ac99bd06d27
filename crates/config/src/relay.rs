//! `[[relay]]`: relays on other machines that also capture and acknowledge a source's commits.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tailwater_wire::url_credentials::has_login;

/// `[[relay]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayConfig {
    /// The name of the relay in messages and in the topology.
    pub name: String,
    /// Name of the `[[source]]` that the relay also captures.
    pub source: String,
    /// The name of `source` in the relay's configuration. If absent, the name is the same as in this file.
    pub source_there: Option<String>,
    /// The address of the relay's `[http]` listener: `http://host:8080`.
    pub url: String,
    /// A file whose first line is the token of the relay's `[http]` listener; relative to the configuration
    /// file.
    pub token_file: PathBuf,
    /// PEM file of the certificate authorities for the relay's certificate, if `url` begins with https. If
    /// absent, the certificate authorities of the operating system are used. The path is relative to the
    /// configuration file.
    pub ca_file: Option<PathBuf>,
    /// The `server_id` of the source in the relay's configuration, under which the relay registers with the
    /// primary.
    pub server_id: u32,
    /// The address `host:port` of each `[[serve]]` listener of the relay, from which replicas can read.
    #[serde(default)]
    pub serves: Vec<String>,
    /// The `server_uuid` that the relay shows to MySQL replicas. If absent, it is derived in the same way as
    /// the relay derives it.
    pub serve_server_uuid: Option<String>,
    /// Time-out for connecting to the relay, in milliseconds.
    #[serde(default = "default_connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// Time-out for an answer of the relay, in milliseconds. Orders to follow another server have a longer
    /// time-out.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
}

fn default_connect_timeout_ms() -> u64 {
    1_000
}

fn default_timeout_ms() -> u64 {
    12_000
}

impl RelayConfig {
    /// Makes paths relative to `base`.
    pub(crate) fn rebase(&mut self, base: &Path) {
        self.token_file = base.join(&self.token_file);
        if let Some(file) = &mut self.ca_file {
            *file = base.join(&*file);
        }
    }

    /// Checks the section for contradictions. `sources` has the name and the `server_id` of each source.
    pub(crate) fn check(&self, sources: &[(&String, u32)]) -> Result<(), String> {
        let name = &self.name;
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
            return Err(format!(
                "relay.name = {name:?}: a name has 1 to 64 characters of a-z, A-Z, 0-9, `_`, `-`, `.`"
            ));
        }
        if name == "tailwater" {
            return Err("relay.name = \"tailwater\": this daemon's own relay has this name".into());
        }
        let source = sources.iter().find(|(source, _)| **source == self.source);
        let Some((_, own_id)) = source else {
            return Err(format!(
                "relay {name:?}: source = {:?}: there is no [[source]] of that name",
                self.source
            ));
        };
        if self.server_id == 0 || self.server_id == *own_id {
            return Err(format!(
                "relay {name:?}: server_id must be neither 0 nor {own_id}, the server_id of this daemon: two replicas with the same server_id disconnect each other"
            ));
        }
        if !["http://", "https://"].iter().any(|scheme| self.url.starts_with(scheme)) {
            return Err(format!("relay {name:?}: url must begin with http:// or https://"));
        }
        if has_login(&self.url) {
            return Err(format!("relay {name:?}: url must not contain a login; token_file has the token"));
        }
        let is_address = |text: &String| {
            text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if let Some(wrong) = self.serves.iter().find(|text| !is_address(text)) {
            return Err(format!(
                "relay {name:?}: serves: {wrong:?} is not host:port of a [[serve]] of the relay"
            ));
        }
        if self.connect_timeout_ms < 10 || self.timeout_ms < self.connect_timeout_ms {
            return Err(format!(
                "relay {name:?}: connect_timeout_ms must be at least 10, and timeout_ms at least connect_timeout_ms"
            ));
        }
        Ok(())
    }
}

/// Checks all `[[relay]]` sections for contradictions.
pub(crate) fn check(relays: &[RelayConfig], sources: &[(&String, u32)]) -> Result<(), String> {
    let (mut names, mut ids) = (HashSet::new(), HashSet::new());
    for relay in relays {
        relay.check(sources)?;
        if !names.insert(&relay.name) {
            return Err(format!("relay.name = {:?} is given twice", relay.name));
        }
        if !ids.insert((&relay.source, relay.server_id)) {
            return Err(format!("relay {:?}: server_id {} is given twice", relay.name, relay.server_id));
        }
    }
    Ok(())
}
