//! The lease of several managers, kept by etcd, over the HTTP/JSON gateway of its v3 API.
//!
//! One key, bound to an etcd lease: it is made only if it is not there, in one transaction, so one manager has it; and it
//! goes when its lease ends. The revision in which it was made is the term's token: revisions only grow. Bytes are base64
//! and 64-bit numbers are strings in this gateway.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Client;
use serde_json::{Value, json};

use super::keeper::Heard;
use super::{LeaseStore, Token};
use crate::ManagerError;

/// Answers are some hundred bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Where the lease lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdOptions {
    /// The members of the cluster: `http://host:2379`. Another is tried when one does not answer.
    pub endpoints: Vec<String>,
    /// The key; one for each cluster of servers that is managed.
    pub key: String,
    /// This manager's name, which others show.
    pub holder: String,
    /// As in the [`super::Terms`]; etcd counts in whole seconds.
    pub ttl_ms: u64,
    /// How long one request may take, as in the [`super::Terms`].
    pub request_ms_max: u64,
}

/// A lease in etcd.
#[derive(Debug)]
pub struct EtcdLease {
    options: EtcdOptions,
    client: Client,
    /// The member to ask, an index of the endpoints.
    member: usize,
    /// The etcd lease that the key may be bound to.
    lease: Option<String>,
}

impl EtcdLease {
    /// One that has asked for nothing yet.
    ///
    /// # Errors
    /// [`ManagerError::Etcd`] without an endpoint, or if no client can be made.
    pub fn new(options: EtcdOptions) -> Result<Self, ManagerError> {
        let failed = |reason: String| ManagerError::Etcd { endpoints: options.endpoints.join(", "), reason };
        if options.endpoints.is_empty() || options.endpoints.iter().any(|url| !url.starts_with("http")) {
            return Err(failed("an endpoint begins with http:// or https://".to_owned()));
        }
        // Fails if the process has a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .timeout(Duration::from_millis(options.request_ms_max))
            // What goes by way of a proxy or elsewhere is not the cluster that was named.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { options, client, member: 0, lease: None })
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

    /// One request to one member. After a failure the next goes to another.
    async fn post(&mut self, method: &str, body: Value) -> Result<Value, String> {
        let endpoint = &self.options.endpoints[self.member % self.options.endpoints.len()];
        let url = format!("{}/v3/{method}", endpoint.trim_end_matches('/'));
        let answer = ask(&self.client, &url, &body).await;
        if answer.is_err() {
            self.member = self.member.wrapping_add(1);
        }
        answer.map_err(|reason| format!("etcd at {endpoint}: {reason}"))
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

async fn ask(client: &Client, url: &str, body: &Value) -> Result<Value, String> {
    let words = |error: reqwest::Error| error.without_url().to_string();
    let mut response = client.post(url).body(body.to_string()).send().await.map_err(words)?;
    let status = response.status();
    let mut text = Vec::new();
    while let Some(part) = response.chunk().await.map_err(words)? {
        if text.len() + part.len() > ANSWER_BYTES_MAX {
            return Err("the answer is too long".to_owned());
        }
        text.extend_from_slice(&part);
    }
    if !status.is_success() {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&text[..text.len().min(300)])));
    }
    serde_json::from_slice(&text).map_err(|error| format!("not JSON: {error}"))
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
