//! The listener as the configuration has it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::handler::HttpHandler;
use super::listener::{bind, serve};
use super::observer::Watching;
use super::token::BearerToken;
use crate::config::Config;
use crate::control::DaemonState;
use crate::manager::remote::RemoteRelay;
use crate::wiring::{self, ClusterWiring};

/// The token of `[http]`, if it has one.
///
/// # Errors
/// If it cannot be read, or is none.
pub fn secret_of(config: &Config) -> anyhow::Result<Option<BearerToken>> {
    let file = config.http.as_ref().and_then(|http| http.token_file.as_deref());
    file.map(BearerToken::read).transpose().context("http.token_file")
}

/// A listener that has its address, and answers nobody yet.
#[derive(Debug)]
pub struct HttpListener {
    listener: TcpListener,
    secret: Option<BearerToken>,
}

impl HttpListener {
    /// Takes the address of `[http]`, if there is one. `secret` is its token.
    ///
    /// # Errors
    /// If the address cannot be taken.
    pub async fn of(config: &Config, secret: Option<BearerToken>) -> anyhow::Result<Option<Self>> {
        let Some(http) = &config.http else { return Ok(None) };
        Ok(Some(Self { listener: bind(http.listen).await?, secret }))
    }

    /// Answers until the task that is given back is aborted.
    ///
    /// # Errors
    /// If an option file with credentials, or the token of a relay, cannot be read.
    pub fn serve(self, config: &Config, controlled: Arc<DaemonState>) -> anyhow::Result<JoinHandle<()>> {
        let times = config.http.as_ref().map(|http| (http.look_interval_ms, http.stale_after_ms));
        let (interval_ms, stale_after_ms) = times.unwrap_or_default();
        let relays_of = |cluster: &ClusterWiring| {
            let relays = config.relays.iter().filter(|relay| relay.source == cluster.plan.name);
            relays.map(RemoteRelay::of).collect::<anyhow::Result<Vec<_>>>()
        };
        let clusters = wiring::clusters(config)?.into_iter().map(|cluster| {
            let relays = relays_of(&cluster)?;
            Ok((cluster, relays))
        });
        let watching = Watching::start(
            clusters.collect::<anyhow::Result<Vec<_>>>()?,
            Duration::from_millis(interval_ms),
            Duration::from_millis(stale_after_ms),
        );
        Ok(serve(self.listener, Arc::new(HttpHandler::new(watching, controlled, self.secret))))
    }
}
