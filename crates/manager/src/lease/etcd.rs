//! The lease of several managers, kept by etcd, over the HTTP/JSON gateway of its v3 API.
//!
//! One key, bound to an etcd lease: it is made only if it is not there, in one transaction, so one manager has it; and it
//! goes when its lease ends. The revision in which it was made is the term's token: revisions only grow. Bytes are base64
//! and 64-bit numbers are strings in this gateway.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Certificate, Client, ClientBuilder, StatusCode};
use serde_json::{Value, json};

use super::keeper::Heard;
use super::{LeaseStore, Token};
use crate::ManagerError;

/// Answers are some hundred bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Where the lease lies.
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

/// A lease in etcd.
pub struct EtcdLease {
    options: EtcdOptions,
    client: Client,
    /// The member to ask, an index of the endpoints.
    member: usize,
    /// The etcd lease that the key may be bound to.
    lease: Option<String>,
    /// What the cluster gave the user; it counts with every member, and for a while.
    token: Option<HeaderValue>,
}

impl fmt::Debug for EtcdLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLease").field("options", &self.options).finish_non_exhaustive()
    }
}

impl EtcdLease {
    /// One that has asked for nothing yet.
    ///
    /// # Errors
    /// [`ManagerError::Etcd`] without an endpoint, if the file of the authorities cannot be used, or if no client can be
    /// made.
    pub fn new(options: EtcdOptions) -> Result<Self, ManagerError> {
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
        Ok(Self { options, client, member: 0, lease: None, token: None })
    }

    async fn try_acquire(&mut self) -> Result<Heard, String> {
        let key = STANDARD.encode(&self.options.key);
        // Most of the time somebody has it; a lease for each try would burden the cluster.
        let there = self.post("kv/range", json!({ "key": key })).await?;
        if let Some(holder) = holder_in(&there["kvs"]) {
            return Ok(Heard::Taken { holder });
        }
        let ttl = self.options.ttl_ms.div_ceil(1000).to_string();
        let granted = self.post("lease/grant", json!({ "TTL": ttl })).await?;
        let lease = granted["ID"].as_str().ok_or("etcd named no lease")?.to_owned();
        let ttl_ms = number(&granted["TTL"]).ok_or("etcd named no TTL")?.saturating_mul(1000);
        self.lease = Some(lease.clone());
        let put = json!({ "key": key, "value": STANDARD.encode(&self.options.holder), "lease": lease });
        let answer = self
            .post(
                "kv/txn",
                json!({
                    "compare": [created(&key, 0)],
                    "success": [{ "request_put": put }],
                    "failure": [{ "request_range": { "key": key } }],
                }),
            )
            .await?;
        if answer["succeeded"].as_bool() == Some(true) {
            let revision = number(&answer["header"]["revision"]).ok_or("etcd named no revision")?;
            return Ok(Heard::Granted { token: Token(revision), ttl_ms });
        }
        let holder = holder_in(&answer["responses"][0]["response_range"]["kvs"]);
        self.revoke().await;
        Ok(Heard::Taken { holder: holder.unwrap_or_else(|| "another manager".to_owned()) })
    }

    async fn try_renew(&mut self, token: Token) -> Result<Heard, String> {
        let gone = |reason: &str| Ok(Heard::Gone { reason: reason.to_owned() });
        let Some(lease) = self.lease.clone() else { return gone("no lease of etcd is held") };
        let key = STANDARD.encode(&self.options.key);
        let ours = self.post("kv/txn", json!({ "compare": [created(&key, token.0)] })).await?;
        if ours["succeeded"].as_bool() != Some(true) {
            return gone("the key in etcd is not this manager's any more");
        }
        let answer = self.post("lease/keepalive", json!({ "ID": lease })).await?;
        if answer["result"].is_null() {
            return Err(format!("etcd does not renew: {}", answer["error"]));
        }
        // Of a lease that has ended no TTL is told.
        match number(&answer["result"]["TTL"]).filter(|ttl| *ttl > 0) {
            Some(ttl) => Ok(Heard::Renewed { ttl_ms: ttl.saturating_mul(1000) }),
            None => gone("etcd has ended the lease"),
        }
    }

    async fn revoke(&mut self) {
        if let Some(lease) = self.lease.take() {
            // It ends by itself otherwise.
            let _ = self.post("lease/revoke", json!({ "ID": lease })).await;
        }
    }

    /// One request to one member, as the user if there is one. After a failure the next goes to another.
    async fn post(&mut self, method: &str, body: Value) -> Result<Value, String> {
        let endpoint = self.options.endpoints[self.member % self.options.endpoints.len()].clone();
        let endpoint = endpoint.trim_end_matches('/');
        let answer = self.post_as_user(endpoint, method, &body).await;
        if answer.is_err() {
            self.member = self.member.wrapping_add(1);
        }
        answer.map_err(|trouble| format!("etcd at {endpoint}: {}", trouble.reason))
    }

    async fn post_as_user(&mut self, endpoint: &str, method: &str, body: &Value) -> Result<Value, Trouble> {
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

    async fn log_in(&self, endpoint: &str, user: &EtcdUser) -> Result<HeaderValue, Trouble> {
        let body = json!({ "name": user.name, "password": user.password });
        let url = format!("{endpoint}/v3/auth/authenticate");
        let answer = ask(&self.client, &url, &body, None).await;
        let answer = answer.map_err(|trouble| Trouble {
            reason: format!("login of {:?}: {}", user.name, trouble.reason),
            ..trouble
        })?;
        let token = answer["token"].as_str().and_then(|token| HeaderValue::from_str(token).ok());
        let mut token = token.ok_or_else(|| Trouble::of("it gave no token"))?;
        token.set_sensitive(true);
        Ok(token)
    }
}

impl LeaseStore for EtcdLease {
    async fn acquire(&mut self) -> Heard {
        // Of an earlier try whose end is not known.
        self.revoke().await;
        self.try_acquire().await.unwrap_or_else(|reason| Heard::Failed { reason })
    }

    async fn renew(&mut self, token: Token) -> Heard {
        self.try_renew(token).await.unwrap_or_else(|reason| Heard::Failed { reason })
    }

    async fn release(&mut self) {
        self.revoke().await;
    }
}

/// A client that believes the authorities of the options.
fn trusting(options: &EtcdOptions) -> Result<ClientBuilder, String> {
    let client = Client::builder();
    let Some(file) = &options.ca_file else { return Ok(client) };
    let named = |reason: &dyn fmt::Display| format!("{}: {reason}", file.display());
    let pem = std::fs::read(file).map_err(|error| named(&error))?;
    let authorities = Certificate::from_pem_bundle(&pem).map_err(|error| named(&error))?;
    if authorities.is_empty() {
        return Err(named(&"no certificate stands there"));
    }
    Ok(client.tls_certs_only(authorities))
}

/// Why a request came to nothing.
#[derive(Debug)]
struct Trouble {
    reason: String,
    /// A new login may mend it.
    is_about_the_token: bool,
}

impl Trouble {
    fn of(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_about_the_token: false }
    }
}

async fn ask(
    client: &Client,
    url: &str,
    body: &Value,
    token: Option<&HeaderValue>,
) -> Result<Value, Trouble> {
    let words = |error: reqwest::Error| Trouble::of(with_causes(&error.without_url()));
    let mut request = client.post(url).body(body.to_string());
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, token);
    }
    let mut response = request.send().await.map_err(words)?;
    let status = response.status();
    let mut text = Vec::new();
    while let Some(part) = response.chunk().await.map_err(words)? {
        if text.len() + part.len() > ANSWER_BYTES_MAX {
            return Err(Trouble::of("the answer is too long"));
        }
        text.extend_from_slice(&part);
    }
    if !status.is_success() {
        let said = String::from_utf8_lossy(&text[..text.len().min(300)]).into_owned();
        // What etcd answers where users were changed since the login is no 401.
        let is_about_the_token = status == StatusCode::UNAUTHORIZED || said.contains("auth store is old");
        return Err(Trouble { reason: format!("{status}: {said}"), is_about_the_token });
    }
    serde_json::from_slice(&text).map_err(|error| Trouble::of(format!("not JSON: {error}")))
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

/// True if the key was made in this revision; 0 if it is not there.
fn created(key: &str, revision: u64) -> Value {
    json!({ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": revision.to_string() })
}

/// Who holds it, of the keys in an answer.
fn holder_in(keys: &Value) -> Option<String> {
    let value = keys.get(0)?.get("value").and_then(Value::as_str).unwrap_or_default();
    let name = STANDARD.decode(value).unwrap_or_default();
    Some(String::from_utf8_lossy(&name).into_owned())
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}
