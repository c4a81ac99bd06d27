//! `[http]`: where load balancers, monitoring and managers on other machines ask.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// `[http]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// A file whose first line is the token of those who may order something; nobody may if absent. Relative to the
    /// configuration file.
    pub token_file: Option<PathBuf>,
    /// How often each server is looked at, while somebody asks.
    #[serde(default = "default_look_interval_ms")]
    pub look_interval_ms: u64,
    /// What was seen longer ago does not count.
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
    /// Makes relative paths count from `base`.
    pub(super) fn rebase(&mut self, base: &Path) {
        if let Some(file) = &mut self.token_file {
            *file = base.join(&*file);
        }
    }

    /// What contradicts itself.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.look_interval_ms < 100 {
            return Err("http.look_interval_ms is at least 100".into());
        }
        if self.stale_after_ms < self.look_interval_ms.saturating_mul(2) {
            return Err("http.stale_after_ms is at least twice http.look_interval_ms".into());
        }
        Ok(())
    }
}
