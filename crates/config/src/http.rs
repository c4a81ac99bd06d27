//! `[http]`: the listener for operators, load balancers, monitoring and managers on other machines.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// `[http]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// The address and port to listen on.
    pub listen: SocketAddr,
    /// A file whose first line is the token of managers on other machines. Its role is operator. Relative to
    /// the configuration file.
    pub token_file: Option<PathBuf>,
    /// The tokens of people and programs.
    #[serde(default, rename = "token")]
    pub tokens: Vec<HttpTokenConfig>,
    /// The requests that need no token. `/healthz` never needs one.
    #[serde(default = "default_anonymous")]
    pub anonymous: Vec<AnonymousRequests>,
    /// PEM file with the certificate and its chain; HTTP without TLS if absent.
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the key of `tls_certificate`.
    pub tls_key: Option<PathBuf>,
    /// Interval between two probes of a server while clients send requests, in milliseconds.
    #[serde(default = "default_look_interval_ms")]
    pub look_interval_ms: u64,
    /// The result of a probe older than this is ignored, in milliseconds.
    #[serde(default = "default_stale_after_ms")]
    pub stale_after_ms: u64,
}

/// `[[http.token]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTokenConfig {
    /// The name under which the audit log records the requests with this token.
    pub name: String,
    /// What the token allows.
    pub role: HttpRole,
    /// A file whose first line is the token; relative to the configuration file.
    pub file: PathBuf,
}

/// What a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpRole {
    /// Read the state of the daemon, without row values.
    ReadOnly,
    /// Read the state of the daemon, read row values in the errors of channels, and change the state of the
    /// daemon.
    Operator,
}

impl HttpRole {
    /// Returns the name of the role in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::Operator => "operator",
        }
    }
}

/// Requests that may be allowed without a token: an item of `http.anonymous`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnonymousRequests {
    /// `/primary` and `/replica`, the checks of load balancers.
    Checks,
    /// `/metrics`.
    Metrics,
    /// `/status`, the topology of the clusters.
    Status,
}

fn default_anonymous() -> Vec<AnonymousRequests> {
    vec![AnonymousRequests::Checks]
}

fn default_look_interval_ms() -> u64 {
    500
}

fn default_stale_after_ms() -> u64 {
    3_000
}

impl HttpConfig {
    /// Returns `look_interval_ms` and `stale_after_ms`; without `[http]` their defaults.
    pub fn probe_times_ms(http: Option<&Self>) -> (u64, u64) {
        http.map_or((default_look_interval_ms(), default_stale_after_ms()), |http| {
            (http.look_interval_ms, http.stale_after_ms)
        })
    }

    /// Makes paths relative to `base`.
    pub(crate) fn rebase(&mut self, base: &Path) {
        let files =
            [&mut self.token_file, &mut self.tls_certificate, &mut self.tls_key].into_iter().flatten();
        for file in files.chain(self.tokens.iter_mut().map(|token| &mut token.file)) {
            *file = base.join(&*file);
        }
    }

    /// Checks the section for contradictions.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.look_interval_ms < 100 {
            return Err("http.look_interval_ms must be at least 100".into());
        }
        if self.stale_after_ms < self.look_interval_ms.saturating_mul(2) {
            return Err("http.stale_after_ms must be at least twice http.look_interval_ms".into());
        }
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            return Err("give both http.tls_certificate and http.tls_key, or neither".into());
        }
        let mut names = HashSet::new();
        for token in &self.tokens {
            if token.name.is_empty() || token.name.len() > 64 || token.name.chars().any(char::is_control) {
                return Err("http.token.name must have 1 to 64 characters, without control characters".into());
            }
            if !names.insert(&token.name) {
                return Err(format!("http.token.name = {:?} is given twice", token.name));
            }
        }
        Ok(())
    }
}
