//! Starts the HTTP listener of the configuration.

use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::bearer_token::BearerToken;
use super::listener::{bind, serve};
use super::request_handler::HttpHandler;
use crate::control_api::Control;
use tailwater_config::Config;

/// Returns the token of `[http]`, if the section has a token file.
///
/// # Errors
/// If the file cannot be read, or its first line is not a valid token.
pub fn token_of(config: &Config) -> anyhow::Result<Option<BearerToken>> {
    let file = config.http.as_ref().and_then(|http| http.token_file.as_deref());
    file.map(BearerToken::read).transpose().context("http.token_file")
}

/// A bound listener that does not accept connections yet.
#[derive(Debug)]
pub struct HttpListener {
    listener: TcpListener,
    token: Option<BearerToken>,
}

impl HttpListener {
    /// Binds the address of `[http]`, if there is one.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn bind(config: &Config, token: Option<BearerToken>) -> anyhow::Result<Option<Self>> {
        let Some(http) = &config.http else { return Ok(None) };
        Ok(Some(Self { listener: bind(http.listen).await?, token }))
    }

    /// Serves requests until the returned task is aborted.
    pub fn serve(self, control: Arc<Control>) -> JoinHandle<()> {
        serve(self.listener, Arc::new(HttpHandler::new(control, self.token)))
    }
}
