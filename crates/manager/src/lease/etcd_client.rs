//! One etcd cluster, over the HTTP/JSON gateway of its v3 API: who is asked, as whom, and what an answer may be. Bytes are base64 and
//! 64-bit numbers are strings in this gateway.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Certificate, Client, ClientBuilder, StatusCode};
use serde_json::{Value, json};

use crate::ManagerError;

/// Answers are some hundred bytes; what holds failovers back may be some hundred thousand.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Where something lies in etcd.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EtcdOptions {
    /// The members of the cluster: `https://host:2379`. Another is tried when one does not answer.
    pub endpoints: Vec<String>,
    /// The key; one for each cluster of servers that is managed.
    pub key: String,
    /// This manager's name, which others show.
    pub holder: String,
    /// As in the [`super::Terms`]; etcd counts in whole seconds.
    pub ttl_ms: u64,
    /// How long one request may take, as in the [`super::Terms`].
    pub request_ms_max: u64,
    /// Who asks, where the cluster wants to know.
    pub user: Option<EtcdUser>,
    /// PEM file with the authorities that may have signed the members' certificates; those of the system if absent.
    pub ca_file: Option<PathBuf>,
}

/// A user of the cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

// A password is never printed.
impl fmt::Debug for EtcdUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Asks the members of a cluster.
pub(super) struct EtcdClient {
    pub(super) options: EtcdOptions,
    client: Client,
    /// The member to ask, an index of the endpoints.
    member: usize,
    /// What the cluster gave the user; it counts with every member, and for a while.
    token: Option<HeaderValue>,
}

impl fmt::Debug for EtcdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdClient").field("options", &self.options).finish_non_exhaustive()
    }
}

impl EtcdClient {
    /// One that has asked for nothing yet.
    ///
    /// # Errors
    /// [`ManagerError::Etcd`] without an endpoint, if the file of the authorities cannot be used, or if no client can be
    /// made.
    pub(super) fn new(options: EtcdOptions) -> Result<Self, ManagerError> {
        let failed = |reason: String| ManagerError::Etcd { endpoints: options.endpoints.join(", "), reason };
        if options.endpoints.is_empty() || options.endpoints.iter().any(|url| !url.starts_with("http")) {
            return Err(failed("an endpoint begins with http:// or https://".to_owned()));
        }
        // Fails if the process has a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = trusting(&options)
            .map_err(failed)?
            .timeout(Duration::from_millis(options.request_ms_max))
            // What goes by way of a proxy or elsewhere is not the cluster that was named.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { options, client, member: 0, token: None })
    }

    /// One request to one member, as the user if there is one. After a failure the next goes to another.
    pub(super) async fn post(&mut self, method: &str, body: Value) -> Result<Value, String> {
        let endpoint = self.options.endpoints[self.member % self.options.endpoints.len()].clone();
        let endpoint = endpoint.trim_end_matches('/');
        let answer = self.post_as_user(endpoint, method, &body).await;
        if answer.is_err() {
            self.member = self.member.wrapping_add(1);
        }
        answer.map_err(|trouble| format!("etcd at {endpoint}: {}", trouble.reason))
    }

    /// The same for which less time is left.
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
            // Tokens end: by time, with a restart, when something about users changes.
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

/// A client that believes the authorities of the options.
fn trusting(options: &EtcdOptions) -> Result<ClientBuilder, String> {
    /// All authorities of a system have some hundred kilobytes.
    const CA_BYTES_MAX: u64 = 16 << 20;
    let client = Client::builder();
    let Some(file) = &options.ca_file else { return Ok(client) };
    let named = |reason: &dyn fmt::Display| format!("{}: {reason}", file.display());
    let pem = tailwater_files::read_named(file, CA_BYTES_MAX).map_err(|error| named(&error))?;
    let authorities = Certificate::from_pem_bundle(&pem).map_err(|error| named(&error))?;
    if authorities.is_empty() {
        return Err(named(&"no certificate stands there"));
    }
    Ok(client.tls_certs_only(authorities))
}

/// Why a request came to nothing.
#[derive(Debug)]
struct EtcdRequestError {
    reason: String,
    /// A new login may mend it.
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
        let said = String::from_utf8_lossy(&text[..text.len().min(300)]).into_owned();
        // What etcd answers where users were changed since the login is no 401.
        let is_about_the_token = status == StatusCode::UNAUTHORIZED || said.contains("auth store is old");
        return Err(EtcdRequestError { reason: format!("{status}: {said}"), is_about_the_token });
    }
    serde_json::from_slice(&text).map_err(|error| EtcdRequestError::of(format!("not JSON: {error}")))
}

/// What is wrong with a certificate, say, stands at the end.
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
