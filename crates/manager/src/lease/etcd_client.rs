//! Client of one etcd cluster over the HTTP/JSON gateway of its v3 API. In this gateway, bytes are base64 and
//! 64-bit numbers are strings.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Certificate, Client, ClientBuilder, StatusCode};
use serde_json::{Value, json};

use crate::ManagerError;

/// Longest accepted answer, in bytes. Most are some hundred; failover guards may have some hundred thousand.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Location of a key in etcd.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EtcdOptions {
    /// Members of the cluster: `https://host:2379`. After a failure the next member is used.
    pub endpoints: Vec<String>,
    /// The key; one for each managed cluster.
    pub key: String,
    /// Name of this manager, as others see it.
    pub holder: String,
    /// As in [`super::LeaseTimes`]; etcd counts whole seconds.
    pub ttl_ms: u64,
    /// Time limit of one request, as in [`super::LeaseTimes`].
    pub request_ms_max: u64,
    /// Login, if the cluster requires one.
    pub user: Option<EtcdUser>,
    /// PEM file of the CAs of the members' certificates; the system's CAs if absent.
    pub ca_file: Option<PathBuf>,
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUser {
    /// Its name.
    pub name: String,
    /// Password.
    pub password: String,
}

// The password is never printed.
impl fmt::Debug for EtcdUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdUser").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(super) struct EtcdClient {
    pub(super) options: EtcdOptions,
    client: Client,
    /// Index of the present member in the endpoints.
    member: usize,
    /// Login token; valid for a while, for all members.
    token: Option<HeaderValue>,
}

impl fmt::Debug for EtcdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdClient").field("options", &self.options).finish_non_exhaustive()
    }
}

impl EtcdClient {
    /// A client that has not connected yet.
    ///
    /// # Errors
    /// [`ManagerError::Etcd`] if there is no endpoint, if the CA file cannot be used, or if the client cannot
    /// be created.
    pub(super) fn new(options: EtcdOptions) -> Result<Self, ManagerError> {
        let failed = |reason: String| ManagerError::Etcd { endpoints: options.endpoints.join(", "), reason };
        if options.endpoints.is_empty() || options.endpoints.iter().any(|url| !url.starts_with("http")) {
            return Err(failed("an endpoint begins with http:// or https://".to_owned()));
        }
        // Fails if the process already has a provider, which is equivalent.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = trusting(&options)
            .map_err(failed)?
            .timeout(Duration::from_millis(options.request_ms_max))
            // A proxy or a redirect would lead to another cluster than the configured one.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { options, client, member: 0, token: None })
    }

    /// Sends a request to one member, logged in if a user is configured. After a failure the next request
    /// goes to another member.
    pub(super) async fn post(&mut self, method: &str, body: Value) -> Result<Value, String> {
        let endpoint = self.options.endpoints[self.member % self.options.endpoints.len()].clone();
        let endpoint = endpoint.trim_end_matches('/');
        let answer = self.post_as_user(endpoint, method, &body).await;
        if answer.is_err() {
            self.member = self.member.wrapping_add(1);
        }
        answer.map_err(|trouble| format!("etcd at {endpoint}: {}", trouble.reason))
    }

    /// The same with a shorter time limit.
    pub(super) async fn post_within(
        &mut self,
        limit: Duration,
        method: &str,
        body: Value,
    ) -> Result<Value, String> {
        match tokio::time::timeout(limit, self.post(method, body)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.member = self.member.wrapping_add(1);
                Err(format!("no answer within {} ms", limit.as_millis()))
            }
        }
    }

    async fn post_as_user(
        &mut self,
        endpoint: &str,
        method: &str,
        body: &Value,
    ) -> Result<Value, EtcdRequestError> {
        let url = format!("{endpoint}/v3/{method}");
        let Some(user) = self.options.user.clone() else {
            return ask(&self.client, &url, body, None).await;
        };
        let is_new = self.token.is_none();
        if is_new {
            self.token = Some(self.log_in(endpoint, &user).await?);
        }
        let answer = ask(&self.client, &url, body, self.token.as_ref()).await;
        match answer {
            // Tokens expire, are lost in a restart, and become invalid when users change.
            Err(trouble) if trouble.is_about_the_token && !is_new => {
                self.token = None;
                self.token = Some(self.log_in(endpoint, &user).await?);
                ask(&self.client, &url, body, self.token.as_ref()).await
            }
            Err(trouble) if trouble.is_about_the_token => {
                self.token = None;
                Err(trouble)
            }
            answer => answer,
        }
    }

    async fn log_in(&self, endpoint: &str, user: &EtcdUser) -> Result<HeaderValue, EtcdRequestError> {
        let body = json!({ "name": user.name, "password": user.password });
        let url = format!("{endpoint}/v3/auth/authenticate");
        let answer = ask(&self.client, &url, &body, None).await;
        let answer = answer.map_err(|trouble| EtcdRequestError {
            reason: format!("login of {:?}: {}", user.name, trouble.reason),
            ..trouble
        })?;
        let token = answer["token"].as_str().and_then(|token| HeaderValue::from_str(token).ok());
        let mut token = token.ok_or_else(|| EtcdRequestError::of("it gave no token"))?;
        token.set_sensitive(true);
        Ok(token)
    }
}

/// A client that trusts the configured CAs.
fn trusting(options: &EtcdOptions) -> Result<ClientBuilder, String> {
    /// All CAs of a system have some hundred kilobytes.
    const CA_BYTES_MAX: u64 = 16 << 20;
    let client = Client::builder();
    let Some(file) = &options.ca_file else { return Ok(client) };
    let named = |reason: &dyn fmt::Display| format!("{}: {reason}", file.display());
    let pem = tailwater_files::read_user_file(file, CA_BYTES_MAX).map_err(|error| named(&error))?;
    let authorities = Certificate::from_pem_bundle(&pem).map_err(|error| named(&error))?;
    if authorities.is_empty() {
        return Err(named(&"the file contains no certificate"));
    }
    Ok(client.tls_certs_only(authorities))
}

/// Why a request failed.
#[derive(Debug)]
struct EtcdRequestError {
    reason: String,
    /// A new login may help.
    is_about_the_token: bool,
}

impl EtcdRequestError {
    fn of(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_about_the_token: false }
    }
}

async fn ask(
    client: &Client,
    url: &str,
    body: &Value,
    token: Option<&HeaderValue>,
) -> Result<Value, EtcdRequestError> {
    let words = |error: reqwest::Error| EtcdRequestError::of(with_causes(&error.without_url()));
    let mut request = client.post(url).body(body.to_string());
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, token);
    }
    let mut response = request.send().await.map_err(words)?;
    let status = response.status();
    let mut text = Vec::new();
    while let Some(part) = response.chunk().await.map_err(words)? {
        if text.len() + part.len() > ANSWER_BYTES_MAX {
            return Err(EtcdRequestError::of("the answer is too long"));
        }
        text.extend_from_slice(&part);
    }
    if !status.is_success() {
        let body = String::from_utf8_lossy(&text[..text.len().min(300)]).into_owned();
        // After a change of users etcd does not answer with status 401.
        let is_about_the_token = status == StatusCode::UNAUTHORIZED || body.contains("auth store is old");
        return Err(EtcdRequestError { reason: format!("{status}: {body}"), is_about_the_token });
    }
    serde_json::from_slice(&text).map_err(|error| EtcdRequestError::of(format!("not JSON: {error}")))
}

/// The error with its causes, of which the last is the most specific.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

pub(super) fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}
