//! `[http]`: the listener for load balancers, monitoring and managers on other machines.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// `[http]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// The address and port to listen on.
    pub listen: SocketAddr,
    /// A file whose first line is the token that orders must carry. Without a token all orders are refused.
    /// Relative to the configuration file.
    pub token_file: Option<PathBuf>,
    /// Interval between two probes of a server while clients send requests, in milliseconds.
    #[serde(default = "default_look_interval_ms")]
    pub look_interval_ms: u64,
    /// The result of a probe older than this is ignored, in milliseconds.
    #[serde(default = "default_stale_after_ms")]
    pub stale_after_ms: u64,
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
        if let Some(file) = &mut self.token_file {
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
        Ok(())
    }
}
