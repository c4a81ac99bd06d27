//! Client of one etcd cluster. It uses the HTTP/JSON gateway of etcd's v3 API, in which bytes are base64 and
//! 64-bit numbers are strings.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Certificate, Client, ClientBuilder, StatusCode};
use serde_json::{Value, json};
use tailwater_wire::url_credentials::without_login;

use crate::ManagerError;

/// The longest answer that is accepted, in bytes. Most answers have some hundred bytes; failover guards may
/// have some hundred thousand.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Where a value is stored in etcd, and how etcd is reached.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct EtcdOptions {
    /// Members of the cluster: `https://host:2379`. After a failure the next member is used. A URL may
    /// contain a login; messages show [`Self::shown_endpoints`].
    pub endpoints: Vec<String>,
    /// The key in etcd. Each managed cluster has a different key.
    pub key: String,
    /// Name of this manager, as other managers see it.
    pub holder: String,
    /// Duration of the lease, as in [`super::LeaseTimes`]; etcd counts whole seconds.
    pub ttl_ms: u64,
    /// Time limit of one request, as in [`super::LeaseTimes`].
    pub request_ms_max: u64,
    /// User and password, if the etcd cluster requires a login.
    pub user: Option<EtcdUser>,
    /// PEM file of the CAs that signed the members' certificates. Default: the CAs of the system.
    pub ca_file: Option<PathBuf>,
}

impl EtcdOptions {
    /// The URLs of the members without logins, for messages.
    pub fn shown_endpoints(&self) -> String {
        let shown: Vec<_> = self.endpoints.iter().map(|url| without_login(url)).collect();
        shown.join(", ")
    }
}

// This is not derived, because a derived implementation would print logins in the URLs.
impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.shown_endpoints())
            .field("key", &self.key)
            .field("holder", &self.holder)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUser {
    /// Name of the etcd user.
    pub name: String,
    /// Password of the etcd user.
    pub password: String,
}

// This is not derived, because a derived implementation would print the password.
impl fmt::Debug for EtcdUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdUser").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(super) struct EtcdClient {
    pub(super) options: EtcdOptions,
    client: Client,
    /// The member that is used at present, as an index into the list of endpoints.
    member: usize,
    /// Token of the login. It is valid for a limited time, on all members.
    token: Option<HeaderValue>,
}

impl fmt::Debug for EtcdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdClient").field("options", &self.options).finish_non_exhaustive()
    }
}

impl EtcdClient {
    /// Creates a client that has not connected yet.
    ///
    /// # Errors
    /// [`ManagerError::Etcd`] if there is no endpoint, if the CA file cannot be used, or if the client cannot
    /// be created.
    pub(super) fn new(options: EtcdOptions) -> Result<Self, ManagerError> {
        let failed = |reason: String| ManagerError::Etcd { endpoints: options.shown_endpoints(), reason };
        if options.endpoints.is_empty() || options.endpoints.iter().any(|url| !url.starts_with("http")) {
            return Err(failed("an endpoint must begin with http:// or https://".to_owned()));
        }
        // Ignore an error: it means that the process already has a crypto provider, and that provider works
        // equally well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = trusting(&options)
            .map_err(failed)?
            .timeout(Duration::from_millis(options.request_ms_max))
            // A proxy or a redirect could lead to another cluster than the configured one.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { options, client, member: 0, token: None })
    }

    /// Sends a request to one member, with a login token if a user is configured. After a failure the next
    /// request goes to the next member.
    pub(super) async fn post(&mut self, method: &str, body: Value) -> Result<Value, String> {
        let endpoint = self.options.endpoints[self.member % self.options.endpoints.len()].clone();
        let endpoint = endpoint.trim_end_matches('/');
        let answer = self.post_as_user(endpoint, method, &body).await;
        if answer.is_err() {
            self.member = self.member.wrapping_add(1);
        }
        answer.map_err(|trouble| format!("etcd at {}: {}", without_login(endpoint), trouble.reason))
    }

    /// Does the same as [`Self::post`] with a shorter time limit.
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
                Err(format!("etcd did not answer within {} ms", limit.as_millis()))
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
            // A login token may expire, be lost in a restart of etcd, or become invalid when users change.
            // The request is then repeated with a new token.
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
            reason: format!("the login of {:?} failed: {}", user.name, trouble.reason),
            ..trouble
        })?;
        let token = answer["token"].as_str().and_then(|token| HeaderValue::from_str(token).ok());
        let mut token = token.ok_or_else(|| EtcdRequestError::of("etcd returned no login token"))?;
        token.set_sensitive(true);
        Ok(token)
    }
}

/// Returns a client that trusts the configured CAs.
fn trusting(options: &EtcdOptions) -> Result<ClientBuilder, String> {
    /// Maximum size of the CA file, in bytes. A file with all CAs of a system has some hundred kilobytes.
    const CA_BYTES_MAX: u64 = 16 << 20;
    let client = Client::builder();
    let Some(file) = &options.ca_file else { return Ok(client) };
    let named = |reason: &dyn fmt::Display| format!("{}: {reason}", file.display());
    let pem = tailwater_files::read_user_file(file, CA_BYTES_MAX).map_err(|error| named(&error))?;
    let authorities = Certificate::from_pem_bundle(&pem).map_err(|error| named(&error))?;
    if authorities.is_empty() {
        return Err(named(&"the CA file contains no certificate"));
    }
    Ok(client.tls_certs_only(authorities))
}

/// Why a request failed.
#[derive(Debug)]
struct EtcdRequestError {
    reason: String,
    /// Whether a new login may help.
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
            return Err(EtcdRequestError::of("the answer of etcd is too long"));
        }
        text.extend_from_slice(&part);
    }
    if !status.is_success() {
        let body = String::from_utf8_lossy(&text[..text.len().min(300)]).into_owned();
        // After a change of users, etcd reports an invalid token with another status than 401.
        let is_about_the_token = status == StatusCode::UNAUTHORIZED || body.contains("auth store is old");
        return Err(EtcdRequestError { reason: format!("{status}: {body}"), is_about_the_token });
    }
    serde_json::from_slice(&text)
        .map_err(|error| EtcdRequestError::of(format!("the answer of etcd is not JSON: {error}")))
}

/// Returns the error with all its causes as text. The last cause is the most specific.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_message_shows_the_login_of_an_endpoint() {
        let options = |endpoint: &str| EtcdOptions {
            endpoints: vec![endpoint.to_owned()],
            request_ms_max: 5_000,
            ..EtcdOptions::default()
        };
        let mut client = EtcdClient::new(options("http://root:p4711@127.0.0.1:1/")).expect("a client");
        let refused = client.post("kv/range", json!({})).await.expect_err("nothing listens at port 1");
        assert!(refused.starts_with("etcd at http://***@127.0.0.1:1: "), "{refused}");
        let error = EtcdClient::new(options("etcd://root:p4711@etcd1")).expect_err("not HTTP").to_string();
        for text in [refused, error, format!("{client:?}")] {
            assert!(text.contains("***@") && !text.contains("4711"), "{text}");
        }
    }
}
