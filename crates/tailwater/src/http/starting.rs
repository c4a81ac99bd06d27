//! The listener as the configuration has it.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::answering::Answering;
use super::serving::{bind, serve};
use super::watching::Watching;
use crate::config::Config;
use crate::control::Controlled;
use crate::wiring;

/// A listener that has its address, and answers nobody yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
}

impl Bound {
    /// Takes the address of `[http]`, if there is one.
    ///
    /// # Errors
    /// If the address is not to be had.
    pub async fn of(config: &Config) -> anyhow::Result<Option<Self>> {
        let Some(http) = &config.http else { return Ok(None) };
        Ok(Some(Self { listener: bind(http.listen).await? }))
    }

    /// Answers until the task that is given back is aborted.
    ///
    /// # Errors
    /// If an option file with credentials cannot be read.
    pub fn serve(self, config: &Config, controlled: Arc<Controlled>) -> anyhow::Result<JoinHandle<()>> {
        let times = config.http.as_ref().map(|http| (http.look_interval_ms, http.stale_after_ms));
        let (interval_ms, stale_after_ms) = times.unwrap_or_default();
        let watching = Watching::start(
            wiring::clusters(config)?,
            Duration::from_millis(interval_ms),
            Duration::from_millis(stale_after_ms),
        );
        Ok(serve(self.listener, Arc::new(Answering::new(watching, controlled))))
    }
}
