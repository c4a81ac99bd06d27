//! `[traces]`: where the daemon sends traces.

use serde::Deserialize;

use crate::manager::ServiceUrl;

/// `[traces]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracesConfig {
    /// The OTLP receiver, over HTTP: `http://collector:4318`.
    pub endpoint: ServiceUrl,
}

impl TracesConfig {
    /// Checks the section for contradictions.
    pub(crate) fn check(&self) -> Result<(), String> {
        let url = self.endpoint.expose();
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        match rest {
            Some(rest) if !rest.is_empty() && !rest.contains(['?', '#', ' ']) => Ok(()),
            _ => Err("traces.endpoint must be a URL such as http://collector:4318".into()),
        }
    }
}
