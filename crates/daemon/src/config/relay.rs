//! `[[relay]]`: relays on other machines that also acknowledge a source's commits.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// `[[relay]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayConfig {
    /// Its name among the ackers.
    pub name: String,
    /// Name of the `[[source]]` whose commits it captures.
    pub source: String,
    /// The name of that source there; the same as here if absent.
    pub source_there: Option<String>,
    /// The address of its `[http]`: `http://host:8080`.
    pub url: String,
    /// A file whose first line is its token; relative to the configuration file.
    pub token_file: PathBuf,
    /// PEM file of the authorities that may have signed its certificate, where `url` begins with https; those
    /// of the system if absent. Relative to the configuration file.
    pub ca_file: Option<PathBuf>,
    /// The `server_id` of the source there, under which it registers with the primary.
    pub server_id: u32,
    /// `host:port` of each listener from which replicas read.
    #[serde(default)]
    pub serves: Vec<String>,
    /// The `server_uuid` that MySQL replicas see there; derived as there if absent.
    pub serve_server_uuid: Option<String>,
    /// Time-out of connecting, in milliseconds.
    #[serde(default = "default_connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// Time-out of an answer, in milliseconds; orders to follow another server have a longer one.
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
    pub(super) fn rebase(&mut self, base: &Path) {
        self.token_file = base.join(&self.token_file);
        if let Some(file) = &mut self.ca_file {
            *file = base.join(&*file);
        }
    }

    /// Checks the section for contradictions; `sources` are the names of the sources, each with its
    /// `server_id`.
    pub(super) fn check(&self, sources: &[(&String, u32)]) -> Result<(), String> {
        let name = &self.name;
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
            return Err(format!("relay.name = {name:?}: 1 to 64 of a-z, A-Z, 0-9, `_`, `-`, `.`"));
        }
        if name == "tailwater" {
            return Err("relay.name = \"tailwater\": that is what this Tailwater itself is called".into());
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
                "relay {name:?}: server_id must be neither 0 nor {own_id}, that of this Tailwater: two replicas with one server_id disconnect each other"
            ));
        }
        if !["http://", "https://"].iter().any(|scheme| self.url.starts_with(scheme)) {
            return Err(format!("relay {name:?}: url begins with http:// or https://"));
        }
        let is_address = |text: &String| {
            text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if let Some(wrong) = self.serves.iter().find(|text| !is_address(text)) {
            return Err(format!("relay {name:?}: serves: {wrong:?}: host:port of its [[serve]]"));
        }
        if self.connect_timeout_ms < 10 || self.timeout_ms < self.connect_timeout_ms {
            return Err(format!(
                "relay {name:?}: connect_timeout_ms is at least 10, timeout_ms no less than that"
            ));
        }
        Ok(())
    }
}

/// Checks all sections for contradictions.
pub(super) fn check(relays: &[RelayConfig], sources: &[(&String, u32)]) -> Result<(), String> {
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
